"""Privatize: the slicer as a torchvision transform. Every call is a release; ``ReleasedDataset`` releases once."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import PIL.Image
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import get_worker_info
from torchvision import tv_tensors  # type: ignore[import-untyped]
from torchvision.transforms import v2  # type: ignore[import-untyped]

from ldp_slicing.errors import ImageError, ReleaseError
from ldp_slicing.slicer import Slicer

EXPLICIT = (tv_tensors.Image, tv_tensors.Video, PIL.Image.Image)  # what is a picture whatever else is in the sample
LABELS = (tv_tensors.BoundingBoxes, tv_tensors.Mask, *([tv_tensors.KeyPoints] if hasattr(tv_tensors, "KeyPoints") else []))
PIL_MODES = ("RGB", "L", "I;16", "I;16L", "I;16B")
SCALARS = {int: np.int64, float: np.float64, bool: np.bool_}


class RepeatedReleaseWarning(UserWarning):
    """Sources are, or may be, released more than once, and that adds up."""


class Privatize(v2.Transform):  # type: ignore[misc]
    """Each picture of a sample becomes a release of it.

    >>> privatize = Privatize(Slicer(Plan.paper(20.0)), dataset_size=1)
    >>> v2.Compose([v2.PILToTensor(), privatize, v2.ToDtype(torch.float32, scale=True)])(PIL.Image.new("RGB", (4, 4))).shape
    torch.Size([3, 4, 4])

    Pictures: tv_tensors.Image, tv_tensors.Video (every frame is a release), PIL images (RGB, L, I;16) and, where there is none of these,
    the first plain tensor. Tensors: uint8 [..., C, H, W] with 3 channels or 1, 0 to 255 (uint16 for grey of 9 to 16 bits). Type, shape,
    dtype and device stay the same. Boxes, masks, key points and labels are left alone. An image that cannot be released raises; so does
    a sample without a picture, or with a further array of three or more dimensions, which would pass unprotected.

    In a training loop the same sources are released again in every epoch: t epochs cost t x eps. ``releases`` counts, and a
    RepeatedReleaseWarning says so once per process: when there were more releases than ``dataset_size``, or, without that number, at the
    first. Each DataLoader worker counts its own, and starts anew in every epoch unless it is persistent; so there, worker 0 says it at its
    first release. What is done to the picture before (a crop, a flip) is part of the source: crops of one source compose.
    """

    def __init__(self, slicer: Slicer, *, dataset_size: int | None = None) -> None:
        super().__init__()
        if not isinstance(slicer, Slicer):
            raise ReleaseError(f"Privatize needs a Slicer, such as Slicer(Plan.paper(20.0)); got {slicer!r}")
        if dataset_size is not None and (isinstance(dataset_size, bool) or not isinstance(dataset_size, int) or dataset_size < 1):
            raise ReleaseError(f"dataset_size is the number of sources, at least 1; got {dataset_size!r}")
        self.slicer = slicer
        self.dataset_size = dataset_size
        self.releases = 0
        self._told_in: int | None = None  # a process: a forked or spawned worker has not been told

    def check_inputs(self, flat_inputs: list[Any]) -> None:
        """Before anything is released: is there a picture, and is there none that torchvision's rules would let pass as it is?"""
        pictures = [i for i, leaf in enumerate(flat_inputs) if isinstance(leaf, EXPLICIT)]
        if not pictures:
            plain = (i for i, leaf in enumerate(flat_inputs) if isinstance(leaf, Tensor) and not isinstance(leaf, tv_tensors.TVTensor))
            pictures = [*plain][:1]
        if not pictures:
            kinds = ", ".join(sorted({type(leaf).__name__ for leaf in flat_inputs})) or "nothing"
            raise ImageError(f"there is no image in this sample, only {kinds}: turn a NumPy array into one with v2.ToImage()")
        for i in set(range(len(flat_inputs))) - set(pictures):
            refuse_picture(flat_inputs[i])

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:  # noqa: ANN401
        if isinstance(inpt, LABELS):
            return inpt
        if isinstance(inpt, PIL.Image.Image):
            release: Any = self.slicer(inpt)
            self._count(1)
            return release
        pixels = release_pixels(inpt, self.slicer)
        self._count(int(np.prod(pixels.shape[:-3])))
        release = torch.from_numpy(pixels).to(inpt.device)
        return tv_tensors.wrap(release, like=inpt) if isinstance(inpt, tv_tensors.TVTensor) else release

    def extra_repr(self) -> str:
        plan = self.slicer.plan
        return (
            f"epsilon={plan.realised_epsilon:.6g} per released pixel, word_bits={plan.word_bits}, prune={self.slicer.prune!r}, "
            f"output={self.slicer.output!r}, dataset_size={self.dataset_size}, releases={self.releases}"
        )

    def _count(self, images: int) -> None:
        self.releases += images
        if self._told_in == os.getpid():
            return
        worker, size = get_worker_info(), self.dataset_size
        again = size is not None and self.releases > size
        if not again and not (size is None if worker is None else worker.id == 0):
            return
        epsilon = self.slicer.plan.realised_epsilon
        message = (
            f"every call of Privatize is a release: a source that comes t times costs t x {epsilon:.6g} epsilon per released pixel "
            f"(10 epochs: {10 * epsilon:.6g})"
        )
        if size is not None and again:
            times = -(-self.releases // size)
            message = (
                f"Privatize made {self.releases} releases of {size} sources, so some source at least {times} times: that costs "
                f"{times} x {epsilon:.6g} = {times * epsilon:.6g} epsilon per released pixel, and it grows with every epoch"
            )
        self._told_in = os.getpid()
        warnings.warn(f"{message}. ldp_slicing.torch.ReleasedDataset releases each source once", RepeatedReleaseWarning, stacklevel=2)


def release_pixels(image: Tensor, slicer: Slicer) -> NDArray[np.unsignedinteger]:
    """Releases of uint8 (uint16 for deep grey) [..., C, H, W], each image of it on its own, as a new array of the same shape.

    >>> release_pixels(torch.zeros(2, 3, 4, 4, dtype=torch.uint8), Slicer(Plan.paper(20.0))).shape
    (2, 3, 4, 4)
    """
    shape = tuple(image.shape)
    if image.dtype.is_floating_point:
        raise ImageError(
            f"floats have no fixed range, so {image.dtype} is refused: release before v2.ToDtype or ToTensor (use v2.PILToTensor for the "
            "tensor); for values in 0..1, (image * 255).round().to(torch.uint8) goes back"
        )
    if image.dtype not in (torch.uint8, torch.uint16):
        raise ImageError(f"an image has dtype torch.uint8, or torch.uint16 for deep grey; got {image.dtype}: convert it with image.to")
    if len(shape) < 3 or shape[-3] not in (1, 3):
        raise ImageError(f"a tensor is an image as C x H x W with 3 channels or 1; got {shape}; image.permute(2, 0, 1) turns H x W x C")
    if isinstance(image, tv_tensors.TVTensor) and not isinstance(image, EXPLICIT):
        raise ImageError(f"a {type(image).__name__} is not an image that can be released; wrap an image in tv_tensors.Image")
    batch = image.as_subclass(Tensor).reshape(-1, *shape[-3:]).cpu().numpy()
    release = slicer(batch.transpose(0, 2, 3, 1))
    return np.ascontiguousarray(release.transpose(0, 3, 1, 2)).reshape(shape)


def release_image(image: object, slicer: Slicer) -> tuple[str, NDArray[np.unsignedinteger]]:
    """What kind of image it is ("pil", "tensor", "tv_tensor" or "array"), and the pixels of its one release: [C, H, W] for tensors."""
    if isinstance(image, PIL.Image.Image):
        if image.mode not in PIL_MODES:  # others have pixels too, such as places in a palette
            raise ImageError(f'a PIL image has mode RGB, L or I;16; got {image.mode!r}: convert it first, such as image.convert("RGB")')
        return "pil", slicer(np.asarray(image))  # as an array: an image on the way out would only be taken apart again
    if isinstance(image, Tensor | np.ndarray) and not (image.ndim == 3 or (image.ndim == 2 and isinstance(image, np.ndarray))):
        raise ImageError(f"one image has 3 dimensions, or 2 as an array of greys; got {tuple(image.shape)}")
    if isinstance(image, Tensor):
        return "tv_tensor" if isinstance(image, tv_tensors.TVTensor) else "tensor", release_pixels(image, slicer)
    if isinstance(image, np.ndarray):
        return "array", slicer(image)
    raise ImageError(f"an image is a PIL image, a tensor or an array; got {type(image).__name__}")


def image_of(kind: str, pixels: NDArray[np.unsignedinteger], *, ycbcr: bool = False) -> Any:  # noqa: ANN401
    """The way back from ``release_image``, in memory of its own, so that nobody changes the release."""
    if kind == "pil":
        mode = ("YCbCr" if ycbcr else "RGB") if pixels.ndim == 3 else "L" if pixels.dtype == np.uint8 else "I;16"
        return PIL.Image.frombytes(mode, (pixels.shape[1], pixels.shape[0]), pixels.tobytes())
    if kind == "array":
        return pixels.copy()
    tensor = torch.from_numpy(pixels.copy())
    return tv_tensors.Image(tensor) if kind == "tv_tensor" else tensor


def refuse_picture(leaf: object, dimensions: int = 3) -> None:
    """Raise if ``leaf``, which is about to be passed on as a label, may be a picture: it is one, or has that many dimensions."""
    found = leaf.ndim if isinstance(leaf, Tensor | np.ndarray) and not isinstance(leaf, LABELS) else 0
    if isinstance(leaf, EXPLICIT) or found >= dimensions:
        what = f"{type(leaf).__name__} of {found} dimensions" if found else type(leaf).__name__
        raise ImageError(
            f"a {what} among the labels may be a picture, and labels are passed on unprotected: leave it out, wrap it in tv_tensors.Mask "
            "if it may be seen, or (for Privatize) in tv_tensors.Image to have it released"
        )


def own(label: Any, dimensions: int = 3) -> Any:  # noqa: ANN401
    """A label of its own memory: a view would keep alive, and send to workers, whatever it is a view of. Pictures are refused."""
    refuse_picture(label, dimensions)
    if isinstance(label, Tensor):
        return label.detach().clone()
    if isinstance(label, np.ndarray):
        return label.copy()
    if isinstance(label, dict):
        return {key: own(value, dimensions) for key, value in label.items()}
    if isinstance(label, tuple | list):
        parts = [own(part, dimensions) for part in label]
        return parts if isinstance(label, list) else type(label)(*parts) if hasattr(label, "_fields") else tuple(parts)
    return label


def stored_kind(label: Any) -> str:  # noqa: ANN401
    """How a label lies on disk, such as "int" or "tensor torch.float32 (4,)". No pickle is written, so only numbers are taken."""
    if type(label) in SCALARS and not (type(label) is int and label.bit_length() > 63):
        return type(label).__name__
    if isinstance(label, np.generic | np.ndarray) and label.dtype.kind in "biuf":
        return f"array {label.dtype} {label.shape}"
    if type(label) is Tensor and label.dtype != torch.bfloat16 and not label.is_complex():
        return f"tensor {label.dtype} {tuple(label.shape)}"
    raise ReleaseError(
        f"a store on disk takes labels that are numbers, or tensors or arrays of numbers; got {type(label).__name__}: use store=None"
    )


def to_column(labels: Sequence[Any]) -> NDArray[Any]:
    """Labels of one kind as one array."""
    return torch.stack([*labels]).cpu().numpy() if isinstance(labels[0], Tensor) else np.array(labels, SCALARS.get(type(labels[0])))


def from_column(column: NDArray[Any], kind: str) -> list[Any]:
    """Each label as it was."""
    return column.tolist() if " " not in kind else list(torch.from_numpy(column) if kind.startswith("tensor") else column)
