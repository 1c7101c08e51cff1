"""Pictures as PyTorch has them: PIL images, tensors C x H x W, arrays; to their releases and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import PIL.Image
import torch
from numpy.typing import NDArray
from torch import Tensor
from torchvision import tv_tensors  # type: ignore[import-untyped]

from ldp_slicing.errors import ImageError
from ldp_slicing.slicer import Slicer

EXPLICIT = (tv_tensors.Image, tv_tensors.Video, PIL.Image.Image)  # what is a picture whatever else is in the sample
LABELS = (
    tv_tensors.BoundingBoxes,
    tv_tensors.Mask,
    *([tv_tensors.KeyPoints] if hasattr(tv_tensors, "KeyPoints") else []),
)
SCALARS = frozenset(
    {bool, int, float, complex, *np.sctypeDict.values()} - {np.object_, np.bytes_, np.void}
)  # these and no heirs of theirs
PIL_MODES = ("RGB", "L", "I;16", "I;16L", "I;16B")


def release_pixels(image: Tensor, slicer: Slicer) -> NDArray[np.unsignedinteger]:
    """Releases of uint8 (uint16 for deep grey) [..., C, H, W], each image of it on its own, as a new array of the same shape.

    >>> release_pixels(torch.zeros(2, 3, 4, 4, dtype=torch.uint8), Slicer(Plan.paper(20.0))).shape
    (2, 3, 4, 4)
    """
    release = slicer(sources_of(image))
    return np.ascontiguousarray(release.transpose(0, 3, 1, 2)).reshape(image.shape)


def sources_of(image: Tensor) -> NDArray[np.unsignedinteger]:
    """[..., C, H, W] as the slicer takes it, [N, H, W, C], or a refusal."""
    shape = tuple(image.shape)
    if image.dtype.is_floating_point:
        raise ImageError(
            f"floats have no fixed range, so {image.dtype} is refused: release before v2.ToDtype or ToTensor (use v2.PILToTensor for the "
            "tensor); for values in 0..1, (image * 255).round().to(torch.uint8) goes back"
        )
    if image.dtype not in (torch.uint8, torch.uint16):
        raise ImageError(
            f"an image has dtype torch.uint8, or torch.uint16 for deep grey; got {image.dtype}: convert it with image.to"
        )
    if len(shape) < 3 or shape[-3] not in (1, 3):
        raise ImageError(
            f"a tensor is an image as C x H x W with 3 channels or 1; got {shape}; image.permute(2, 0, 1) turns H x W x C"
        )
    if isinstance(image, tv_tensors.TVTensor) and not isinstance(image, EXPLICIT):
        raise ImageError(
            f"a {type(image).__name__} is not an image that can be released; wrap an image in tv_tensors.Image"
        )
    batch: NDArray[np.unsignedinteger] = image.as_subclass(Tensor).reshape(-1, *shape[-3:]).cpu().numpy()
    return batch.transpose(0, 2, 3, 1)


def source_of(image: object) -> tuple[str, NDArray[np.unsignedinteger]]:
    """What kind of image it is ("pil", "tensor", "tv_tensor" or "array"), and its pixels: [H, W, C], or [H, W] as a grey image has them."""
    if isinstance(image, PIL.Image.Image):
        if image.mode not in PIL_MODES:  # others have pixels too, such as places in a palette
            raise ImageError(
                f'a PIL image has mode RGB, L or I;16; got {image.mode!r}: convert it first, such as image.convert("RGB")'
            )
        return "pil", np.asarray(image)
    if isinstance(image, Tensor | np.ndarray) and not (
        image.ndim == 3 or (image.ndim == 2 and isinstance(image, np.ndarray))
    ):
        raise ImageError(f"one image has 3 dimensions, or 2 as an array of greys; got {tuple(image.shape)}")
    if isinstance(image, Tensor):
        return "tv_tensor" if isinstance(image, tv_tensors.TVTensor) else "tensor", sources_of(image)[0]
    if isinstance(image, np.ndarray):
        return "array", image
    raise ImageError(f"an image is a PIL image, a tensor or an array; got {type(image).__name__}")


def image_of(kind: str, pixels: NDArray[np.unsignedinteger], *, ycbcr: bool = False) -> Any:  # noqa: ANN401
    """A release in the kind its source had, tensors from [C, H, W], in memory of its own, so that nobody changes the release."""
    if kind == "pil":
        mode = ("YCbCr" if ycbcr else "RGB") if pixels.ndim == 3 else "L" if pixels.dtype == np.uint8 else "I;16"
        return PIL.Image.frombytes(mode, (pixels.shape[1], pixels.shape[0]), pixels.tobytes())
    if kind == "array":
        return pixels.copy()
    tensor = torch.from_numpy(pixels.copy())
    return tv_tensors.Image(tensor) if kind == "tv_tensor" else tensor


def refuse_picture(label: object, slicer: Slicer, depth: int = 0) -> None:
    """Raise if ``label``, which is about to be passed on beside what ``slicer`` releases, may be a picture or have one inside.

    It may if its numbers have as many dimensions as a picture: three, or two where sources are grey. The dimensions of tensors and arrays
    count, and so does every list, tuple or set (``depth`` of them) around them: a list of boxes [[x, y, w, h], ...] has two, and is a label
    of colour pictures only. A dict gives names and is no dimension: within its values the count begins anew. Strings and None may lie at
    any depth. What tv_tensors calls boxes, masks or key points is taken as such. An object of any other class may hold a picture that
    nobody sees, also if it is a number or a tensor of a derived class, or a key. A picture that was made flat, or that is spread plane by
    plane over labels or names, is not found.
    """
    if isinstance(label, LABELS) or type(label) in (str, np.str_, type(None)):
        return
    if isinstance(label, dict):
        for key, value in label.items():
            refuse_picture(key, slicer)
            refuse_picture(value, slicer)
        return
    if isinstance(label, list | tuple | set | frozenset):
        for part in label:
            refuse_picture(part, slicer, depth + 1)
        return
    what = type(label).__name__
    numbers = type(label) in (Tensor, np.ndarray, np.memmap)
    opaque = isinstance(label, np.ndarray) and label.dtype.kind in "OSV"  # of objects, bytes or records
    if not opaque and (numbers or type(label) in SCALARS):
        dimensions = depth + (label.ndim if numbers else 0)  # type: ignore[attr-defined]
        if dimensions < (3 if slicer.plan.is_colour else 2):
            return
        what = f"{'list' if depth else what} of {dimensions} dimensions"
    raise ImageError(
        f"a {what} among the labels may be a picture or hold one, and labels are passed on unprotected: leave it out, make it numbers and "
        "strings, wrap it in tv_tensors (Mask, BoundingBoxes) if it may be seen, or (for Privatize) in tv_tensors.Image to have it released"
    )
