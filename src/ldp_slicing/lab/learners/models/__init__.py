"""The networks, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from ldp_slicing.errors import LdpSlicingError
from ldp_slicing.lab.learners.models.cifar import narrow_resnet9, resnet9, resnet56
from ldp_slicing.lab.learners.models.classify import five_blocks_grey, resnet50_grey, wide_resnet28
from ldp_slicing.lab.learners.models.face_networks import EMBEDDING, DlibOfCrop, ir50

MODELS: dict[str, Callable[[int], nn.Module]] = {
    "resnet56": resnet56,
    "resnet9": resnet9,
    "resnet9-narrow": narrow_resnet9,
    "wrn28": wide_resnet28,
    "resnet50-grey": resnet50_grey,
    "five-blocks-grey": five_blocks_grey,
    "ir50": ir50,
}
EMBEDDERS: dict[str, tuple[Callable[[], nn.Module], int]] = {
    "ir50": (ir50, EMBEDDING),
    "dlib": (DlibOfCrop, 128),
}


def build(name: str, classes: int) -> nn.Module:
    """A new network from images to logits [N, classes].

    It takes [N, 3, 32, 32]; ir50 takes [N, 3, 112, 112], resnet50-grey and five-blocks-grey take [N, 1, H, W].
    """
    if name not in MODELS:
        raise LdpSlicingError(f"no classifier {name!r}; available: {', '.join(sorted(MODELS))}")
    return MODELS[name](classes)


def widen(model: nn.Module, factor: int) -> nn.Module:
    """The network with ``factor`` times its input channels: its first convolution is changed."""
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d):
            layer.in_channels *= factor
            weight = layer.weight.detach().repeat(1, factor, 1, 1) / factor**0.5  # outputs vary as before
            layer.weight = nn.Parameter(weight)
            return model
    raise LdpSlicingError(f"{type(model).__name__} has no convolution to widen")


def build_embedder(name: str) -> tuple[nn.Module, int]:
    """A new network from [N, 3, 112, 112] to [N, D] embeddings, and D."""
    if name not in EMBEDDERS:
        raise LdpSlicingError(f"no embedder {name!r}; available: {', '.join(sorted(EMBEDDERS))}")
    make, size = EMBEDDERS[name]
    return make(), size


def load_weights(model: nn.Module, path: Path) -> None:
    """Load initial weights: dlib's own ``.dat`` for the model "dlib", otherwise a saved state dict.

    No code in the file is run.
    """
    if not path.is_file():
        raise LdpSlicingError(f"{path} does not exist: it should hold the initial weights")
    if path.suffix == ".dat" and isinstance(model, DlibOfCrop):
        model.network.load_dlib(path)
        return
    content = _state_dict(path)
    if isinstance(model, DlibOfCrop) and any(name.endswith("running_mean") for name in content):
        model.unfold(torch.zeros(2, 3, 112, 112, dtype=torch.uint8))  # creates the batch norms; the file fills them
    try:
        model.load_state_dict(content)
    except RuntimeError as error:
        found, expected = (", ".join([*names][:3]) for names in (content, model.state_dict()))
        why = " ".join(str(error).split())[:200]
        raise LdpSlicingError(
            f"{path} holds weights of another network: {found}, ... instead of {expected}, ...: {why}"
        ) from None


def load_body(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Load the weights of such a network for other classes: all but those of the last linear layer."""
    head = [name for name, layer in model.named_modules() if isinstance(layer, nn.Linear)][-1]
    body = {name: value for name, value in weights.items() if name.rpartition(".")[0] != head}
    model.load_state_dict(body | {name: value for name, value in model.state_dict().items() if name not in body})


def _state_dict(path: Path) -> dict[str, Tensor]:
    """Tensors by name: the whole file, or its entry "state_dict"."""
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged pickle raises anything
        dlib = " (dlib's weights fit only the recipe faces-arcface)" if path.suffix == ".dat" else ""
        why = (str(error).splitlines() or [repr(error)])[0]
        raise LdpSlicingError(f"{path} holds no readable weights{dlib}: {why}") from None
    found: dict[str, Tensor] = content.get("state_dict", content) if isinstance(content, dict) else {}
    if (
        not isinstance(found, dict)
        or not all(isinstance(name, str) for name in found)
        or not any(map(torch.is_tensor, found.values()))
    ):
        raise LdpSlicingError(f"{path} holds no weights: expected tensors by name")
    return found
