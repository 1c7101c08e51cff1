"""How a task processes its releases before training: it decodes them, or reconstructs images from them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from ldp_slicing.files import atomic_path
from ldp_slicing.lab.learners.releases import task_file
from ldp_slicing.lab.learners.task import TrainingTask
from ldp_slicing.plan import Plan
from ldp_slicing.torch.decode import Decoder
from ldp_slicing.torch.reconstruct import Reconstructor

Decode = Callable[[Tensor], Tensor]


def fit_decoder(task: TrainingTask, released: Tensor, folder: Path | None = None) -> Decode | None:
    """Return the processing of releases for the task's mode, fitted to its training releases; None for the mode "raw".

    It maps uint8 [N, C, H, W] to the same shape, or to twice the channels if the task takes reconstructed and decoded
    ones. A reconstructor is kept in ``folder``, so that a task that is resumed is trained on the same images.
    """
    if task.mode == "raw" or task.plan is None:
        return None
    if task.mode == "decoded":
        return Decoder.fit(released, task.plan, prune=task.prune)
    reconstructor = _fit_reconstructor(task, task.plan, released, folder)
    if not task.beside_decoded:
        return reconstructor
    return lambda images: torch.cat((reconstructor(images), reconstructor.decoder(images)), 1)


def _fit_reconstructor(task: TrainingTask, plan: Plan, released: Tensor, folder: Path | None) -> Reconstructor:
    steps, path = task.recipe.reconstructor_steps, None
    if folder is not None:
        path = task_file(task, folder, "reconstructor.pt", task.release, task.mode, task.start_digest, steps)
        if path.is_file():
            return Reconstructor.from_state_dict(torch.load(path, weights_only=True), released.device)
    public = None if task.public is None else torch.from_numpy(task.public.train.images).permute(0, 3, 1, 2)
    reconstructor = Reconstructor.fit(released, plan, prune=task.prune, public=public, steps=steps, seed=task.seed)
    if path is not None:
        with atomic_path(path) as temporary:
            torch.save(reconstructor.state_dict(), temporary)
    return reconstructor
