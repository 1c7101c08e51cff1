"""Images as PyTorch programs hold them (PIL images, tensors, arrays): to pixels and back, and not among labels."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import PIL.Image
import torch
from numpy.typing import NDArray
from torch import Tensor
from torchvision import tv_tensors  # type: ignore[import-untyped]

from ldp_slicing.errors import ImageError
from ldp_slicing.slicer import Slicer

IMAGE_TYPES = (tv_tensors.Image, tv_tensors.Video, PIL.Image.Image)  # always images, whatever else a sample holds
_LABEL_TYPES = (
    tv_tensors.BoundingBoxes,
    tv_tensors.Mask,
    *([tv_tensors.KeyPoints] if hasattr(tv_tensors, "KeyPoints") else []),
)
_SCALAR_TYPES = frozenset(  # exactly these: a subclass may hold more
    {bool, int, float, complex, *np.sctypeDict.values()} - {np.object_, np.bytes_, np.void}
)
_PIL_MODES = ("RGB", "L", "I;16", "I;16L", "I;16B")

ImageKind = Literal["pil", "tensor", "tv_tensor", "array"]


def release_tensor(image: Tensor, slicer: Slicer) -> NDArray[np.unsignedinteger]:
    """Return an array [..., C, h, w] with a release of each image of the uint8 (uint16 for deep grey) [..., C, H, W].

    >>> release_tensor(torch.zeros(2, 3, 4, 4, dtype=torch.uint8), Slicer(Plan.paper(20.0))).shape
    (2, 3, 4, 4)
    """
    release = slicer(tensor_to_batch(image))
    return np.ascontiguousarray(release.transpose(0, 3, 1, 2)).reshape(*image.shape[:-2], *release.shape[1:3])


def tensor_to_batch(image: Tensor) -> NDArray[np.unsignedinteger]:
    """Return the uint8 or uint16 [..., C, H, W] as an array [N, H, W, C]; raise ImageError if it is not an image."""
    shape = tuple(image.shape)
    if image.dtype.is_floating_point:
        raise ImageError(
            f"an image of dtype {image.dtype} has no fixed range: release it before v2.ToDtype or ToTensor (use "
            "v2.PILToTensor to get a tensor); for values in 0..1 use (image * 255).round().to(torch.uint8)"
        )
    if image.dtype not in (torch.uint8, torch.uint16):
        raise ImageError(
            f"an image must have dtype torch.uint8, or torch.uint16 for deep grey; got {image.dtype}: convert it with "
            "image.to"
        )
    if len(shape) < 3 or shape[-3] not in (1, 3):
        raise ImageError(
            f"an image tensor must have shape C x H x W with 3 channels or 1; got {shape}; "
            "image.permute(2, 0, 1) converts H x W x C"
        )
    if isinstance(image, tv_tensors.TVTensor) and not isinstance(image, IMAGE_TYPES):
        raise ImageError(f"a {type(image).__name__} cannot be released; wrap an image in tv_tensors.Image")
    batch: NDArray[np.unsignedinteger] = image.as_subclass(Tensor).reshape(-1, *shape[-3:]).cpu().numpy()
    return batch.transpose(0, 2, 3, 1)


def to_pixels(image: object) -> tuple[ImageKind, NDArray[np.unsignedinteger]]:
    """Return the kind of an image, and its pixels as an array [H, W, C] or, for a grey PIL image or array, [H, W]."""
    if isinstance(image, PIL.Image.Image):
        if image.mode not in _PIL_MODES:  # others have pixels of another meaning, such as positions in a palette
            raise ImageError(
                f"a PIL image must have mode RGB, L or I;16; got {image.mode!r}: convert it first, "
                'for example with image.convert("RGB")'
            )
        return "pil", np.asarray(image)
    if isinstance(image, Tensor):
        if image.ndim != 3:
            raise ImageError(f"one image tensor has 3 dimensions; got shape {tuple(image.shape)}")
        return "tv_tensor" if isinstance(image, tv_tensors.TVTensor) else "tensor", tensor_to_batch(image)[0]
    if isinstance(image, np.ndarray):
        if image.ndim not in (2, 3):
            raise ImageError(f"one image array has 3 dimensions, or 2 if it is grey; got shape {image.shape}")
        return "array", image
    raise ImageError(f"an image must be a PIL image, a tensor or an array; got {type(image).__name__}")


def from_pixels(kind: ImageKind, pixels: NDArray[np.unsignedinteger], *, ycbcr: bool = False) -> Any:  # noqa: ANN401
    """Return an image of that kind with its own memory, so that changing it does not change the release.

    pixels: [C, H, W] for tensors, else [H, W, C] or [H, W]. ycbcr: whether colour pixels are Y, Cb, Cr.
    """
    if kind == "pil":
        mode = ("YCbCr" if ycbcr else "RGB") if pixels.ndim == 3 else "L" if pixels.dtype == np.uint8 else "I;16"
        return PIL.Image.frombytes(mode, (pixels.shape[1], pixels.shape[0]), pixels.tobytes())
    if kind == "array":
        return pixels.copy()
    tensor = torch.from_numpy(pixels.copy())
    return tv_tensors.Image(tensor) if kind == "tv_tensor" else tensor


def pixels_to_tensor(pixels: NDArray[np.unsignedinteger]) -> Tensor:
    """Return pixels [H, W, C] or [H, W] as a tensor [C, H, W] with its own memory."""
    image = torch.tensor(pixels)
    return image.permute(2, 0, 1).contiguous() if image.ndim == 3 else image[None]


def check_label(label: object, slicer: Slicer, depth: int = 0) -> None:
    """Raise ImageError if ``label``, which is passed on unprotected, may be an image or hold one.

    A label may be an image if its numbers have as many dimensions as one: three, or two if the plan is grey. Dimensions
    of tensors and arrays count, and so does every list, tuple or set around them (``depth`` of them). So a list of
    boxes [[x, y, w, h], ...] has two dimensions, and is a label of colour images only. A dict is not a dimension:
    within its values the count starts again. Strings and None may be at any depth. Boxes, masks and key points of
    tv_tensors are always labels. An object of any other class may hold an image, even if it is a subclass of a number
    or a tensor, or a key of a dict.

    An image that was flattened, or whose planes are spread over several labels, is not found.
    """
    if isinstance(label, _LABEL_TYPES) or type(label) in (str, np.str_, type(None)):
        return
    if isinstance(label, dict):
        for key, value in label.items():
            check_label(key, slicer)
            check_label(value, slicer)
        return
    if isinstance(label, list | tuple | set | frozenset):
        for part in label:
            check_label(part, slicer, depth + 1)
        return
    found = type(label).__name__
    dimensions = _dimensions(label)
    if dimensions is not None:
        if depth + dimensions < (3 if slicer.plan.is_colour else 2):
            return
        found = f"{'list' if depth else found} of {depth + dimensions} dimensions"
    raise ImageError(
        f"a {found} among the labels may be an image or hold one, and labels are not protected: leave it out, turn it "
        "into numbers and strings, or wrap it in tv_tensors (Mask, BoundingBoxes) if it may be public; Privatize "
        "releases what is wrapped in tv_tensors.Image"
    )


def _dimensions(label: object) -> int | None:
    """Return the number of dimensions of a number, tensor or array of numbers; None for any other object."""
    if isinstance(label, np.ndarray) and label.dtype.kind in "OSV":  # objects, bytes or records
        return None
    if type(label) in (Tensor, np.ndarray, np.memmap):
        return int(label.ndim)  # type: ignore[attr-defined]
    return 0 if type(label) in _SCALAR_TYPES else None
