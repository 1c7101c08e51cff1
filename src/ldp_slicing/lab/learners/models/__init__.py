"""The networks of the experiments, by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from ldp_slicing.errors import LdpSlicingError
from ldp_slicing.lab.learners.models.cifar import resnet9, resnet56
from ldp_slicing.lab.learners.models.classify import resnet50_grey, wide_resnet28
from ldp_slicing.lab.learners.models.face_networks import EMBEDDING, DlibOfCrop, ir50

MODELS: dict[str, Callable[[int], nn.Module]] = {
    "resnet56": resnet56,
    "resnet9": resnet9,
    "wrn28": wide_resnet28,
    "resnet50-grey": resnet50_grey,
    "ir50": ir50,
}
EMBEDDERS: dict[str, tuple[Callable[[], nn.Module], int]] = {"ir50": (ir50, EMBEDDING), "dlib": (DlibOfCrop, 128)}


def build(name: str, classes: int) -> nn.Module:
    """A new network from images to [N, classes]: [N, 3, 32, 32], for ir50 [N, 3, 112, 112], for resnet50-grey [N, 1, H, W]."""
    if name not in MODELS:
        raise LdpSlicingError(f"no model {name!r} for classes; there are {', '.join(sorted(MODELS))}")
    return MODELS[name](classes)


def build_embedder(name: str) -> tuple[nn.Module, int]:
    """A new network from [N, 3, 112, 112] to [N, D] embeddings, and D."""
    if name not in EMBEDDERS:
        raise LdpSlicingError(f"no model {name!r} for embeddings; there are {', '.join(sorted(EMBEDDERS))}")
    make, size = EMBEDDERS[name]
    return make(), size


def load_weights(model: nn.Module, path: Path) -> None:
    """Weights to start from: dlib's own ``.dat`` for the model "dlib", a saved state dict otherwise. No code in the file is run."""
    if not path.is_file():
        raise LdpSlicingError(f"{path} is not there: it should hold the weights to start from")
    if path.suffix == ".dat" and isinstance(model, DlibOfCrop):
        model.network.load_dlib(path)
        return
    content = _state_dict(path)
    if isinstance(model, DlibOfCrop) and any(name.endswith("running_mean") for name in content):
        model.unfold(
            torch.zeros(2, 3, 112, 112, dtype=torch.uint8)
        )  # batch norms in their places; what they hold comes from the file
    try:
        model.load_state_dict(content)
    except RuntimeError as error:
        there, wanted = (", ".join([*names][:3]) for names in (content, model.state_dict()))
        why = " ".join(str(error).split())[:200]
        raise LdpSlicingError(
            f"{path} holds weights of another network: {there}, ... instead of {wanted}, ...: {why}"
        ) from None


def _state_dict(path: Path) -> dict[str, Tensor]:
    """Tensors by name, as they were saved or, by others, beside other things under "state_dict"."""
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged pickle raises anything
        dlib = "; dlib's own are what the recipe faces-arcface starts from" * (path.suffix == ".dat")
        why = (str(error).splitlines() or [repr(error)])[0]
        raise LdpSlicingError(f"{path} holds no weights that can be read{dlib}: {why}") from None
    found: dict[str, Tensor] = content.get("state_dict", content) if isinstance(content, dict) else {}
    if (
        not isinstance(found, dict)
        or not all(isinstance(name, str) for name in found)
        or not any(map(torch.is_tensor, found.values()))
    ):
        raise LdpSlicingError(f"{path} holds no weights: tensors by their names in the network are expected")
    return found
