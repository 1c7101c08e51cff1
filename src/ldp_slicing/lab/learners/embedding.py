"""Embeddings of images by a trained network."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional


def embed(
    model: nn.Module,
    images: Tensor,
    flip: bool = True,
    *,
    prepare: Callable[[Tensor], Tensor] | None = None,
    batch: int = 64,
) -> Tensor:
    """Embed [N, 3, H, W] images as float32 [N, D] of length 1, on the CPU.

    prepare: turns images into the model's input. flip: add the embedding of the mirror image. The mirror image is made
    from the **same release**, which is post-processing and free; releasing a source and its mirror image separately
    would spend 2 eps.
    """
    device = next((parameter.device for parameter in model.parameters()), images.device)
    was_training = model.training
    model.eval()
    try:
        with torch.inference_mode():
            starts = range(0, len(images), batch)
            parts = [_embed(model, images[i : i + batch].to(device), flip, prepare).float().cpu() for i in starts]
    finally:
        model.train(was_training)
    return functional.normalize(torch.cat(parts))


def _embed(model: nn.Module, images: Tensor, flip: bool, prepare: Callable[[Tensor], Tensor] | None) -> Tensor:
    total: Tensor = model(prepare(images) if prepare else images)
    return total + _embed(model, images.flip(-1), False, prepare) if flip else total
