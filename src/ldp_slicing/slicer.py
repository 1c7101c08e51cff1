"""The one front door: release = rebuild(view(source) XOR mask)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, Protocol, overload

import numpy as np
from numpy.typing import NDArray

from ldp_slicing import mask, view
from ldp_slicing.card import Card, Statement
from ldp_slicing.errors import CardError, ImageError, LdpSlicingError
from ldp_slicing.kernel import VARIANTS, Kernel
from ldp_slicing.plan import COLOUR_BITS, Plan
from ldp_slicing.randomness import SLACK, Fresh, Keystream, Randomness
from ldp_slicing.tables import Tables
from ldp_slicing.view import Prune

if TYPE_CHECKING:
    from PIL import Image

Array = NDArray[np.unsignedinteger]
Output = Literal["rgb", "ycbcr"]

STRIP_BYTES = 3 << 17  # of keystream: what a strip needs stays in the processor's cache


class Backend(Protocol):
    """The two steps that strips of an image, or several small images at once, go through, in NumPy or compiled.

    lanes: uint16 [images, lanes, 64]; blocks: one for each image; masks: uint8 [images, planes, pixels], plane 0 the lowest byte of
    the word; source, release: [images, H, W, C].
    """

    name: str

    def draw(
        self,
        lanes: NDArray[np.uint16],
        tables: Tables,
        first_pixel: int,
        blocks: Sequence[mask.Blocks],
        masks: NDArray[np.uint8],
        offset: int,
    ) -> None: ...
    def finish(
        self, source: Array, release: Array, masks: NDArray[np.uint8], plan: Plan, prune: Prune, to_rgb: bool
    ) -> None: ...


class Reference:
    """The mechanism as it is defined. The kernel must equal it byte for byte."""

    name = "reference (NumPy)"

    @staticmethod
    def draw(
        lanes: NDArray[np.uint16],
        tables: Tables,
        first_pixel: int,
        blocks: Sequence[mask.Blocks],
        masks: NDArray[np.uint8],
        offset: int,
    ) -> None:
        for image in range(len(lanes)):
            mask.draw(lanes[image], tables, first_pixel, blocks[image], masks[image], offset)

    @staticmethod
    def finish(source: Array, release: Array, masks: NDArray[np.uint8], plan: Plan, prune: Prune, to_rgb: bool) -> None:
        for image in range(len(source)):
            Reference._finish_one(source[image], release[image], masks[image], plan, prune, to_rgb)

    @staticmethod
    def _finish_one(
        source: Array, release: Array, masks: NDArray[np.uint8], plan: Plan, prune: Prune, to_rgb: bool
    ) -> None:
        """source, release: [H, W, C]; masks: uint8 [planes, at least H * W]."""
        height, width, channels = source.shape
        bits = 8 if plan.is_colour else plan.word_bits
        words = np.array(np.moveaxis(source, -1, 0), order="C")  # a copy: the source stays as it is
        if plan.is_colour:
            words = view.to_ycbcr(words)
        noise = join_planes(masks[:, : height * width], channels).reshape(words.shape)
        for c in range(channels):
            shift = 8 * (channels - 1 - c)  # Y << 16 | Cb << 8 | Cr
            keep, drop = (
                words.dtype.type(value >> shift & ((1 << bits) - 1)) for value in (plan.kept_bits, plan.dropped_value)
            )
            words[c] = (view.prune_low(words[c], prune, bits) ^ noise[c]) & keep | drop
        if to_rgb and plan.is_colour:
            words = view.to_rgb(words)
        for c in range(channels):  # much faster than one assignment with moved axes
            release[..., c] = words[c]


class Slicer:
    """Turns sources into releases.

    >>> slicer = Slicer(Plan.paper(20.0))
    >>> release = slicer(np.zeros((4, 6, 3), np.uint8))       # same shape and dtype; every call is a new release

    image: uint8 H x W x 3 (RGB), N x H x W x 3, H x W or H x W x 1 (grey), N x H x W x 1; uint16 for grey of 9 to 16 bits; or a
    PIL image of mode RGB, L or I;16. The same kind and size comes back. Each image of a batch has its own key.

    prune: "haar" (the paper's LL pruning), "haar2", "haar4", "haar8" (what is left made so much stronger), "dct" (8x8 blocks without DC)
    or None. output: "rgb", or "ycbcr" for the randomised word itself. backend: "auto", "reference" or "kernel"; all give the same
    distribution and, for one key, the same bytes.
    """

    def __init__(
        self,
        plan: Plan,
        *,
        prune: Prune = "haar",
        output: Output = "rgb",
        backend: Literal["auto", "reference", "kernel"] = "auto",
        randomness: Randomness | None = None,
    ) -> None:
        if not isinstance(plan, Plan):
            raise LdpSlicingError(f"a Slicer needs a Plan, such as Plan.paper(20.0); got {plan!r}")
        if output not in ("rgb", "ycbcr"):
            raise LdpSlicingError(f'output is "rgb" or "ycbcr"; got {output!r}')
        self.plan = plan
        self.prune: Prune = prune
        self.output: Output = output
        self.randomness: Randomness = Fresh() if randomness is None else randomness
        self.backend: Backend = choose_backend(backend)
        self._block = view.block_of(prune)

    def __repr__(self) -> str:
        return f"Slicer({self.plan!r}, prune={self.prune!r}, output={self.output!r}, backend={self.backend.name!r})"

    @overload
    def __call__(self, image: Array) -> Array: ...
    @overload
    def __call__(self, image: Image.Image) -> Image.Image: ...
    def __call__(self, image: Array | Image.Image) -> Array | Image.Image:
        """A release of ``image``. Nobody counts these: releasing one source t times costs t x eps."""
        return self._release_array(image) if isinstance(image, np.ndarray) else self._release_pil(image)

    def card(self, width: int, height: int) -> Card:
        """What is promised about one release of a ``width`` x ``height`` image."""
        if not self.randomness.secret:
            raise CardError(
                "no card for seeded output: whoever knows the seed removes the mask. Leave randomness at its default"
            )
        return Card((Statement(self.plan, self.prune, self.output, ((width, height),)),))

    def release_into(self, image: Array, target: Array) -> None:
        """A release of an array, written to memory that is there: ``target`` has its shape and dtype, any strides and byte order."""
        images = as_batch(image, self.plan)
        if target.shape != image.shape:
            raise ImageError(f"the target has shape {target.shape}, the image {image.shape}")
        if target.dtype.newbyteorder("=") != image.dtype.newbyteorder("="):  # narrower, it would cut the words short
            raise ImageError(
                f"the target has dtype {target.dtype}, the image {image.dtype}: make it with np.empty_like(image)"
            )
        self._release_batch(images, target.reshape(images.shape))

    def _release_array(self, array: Array) -> Array:
        images = as_batch(array, self.plan)
        release = np.empty(images.shape, images.dtype.newbyteorder("="))
        self._release_batch(images, release)
        return release.reshape(array.shape)

    def _release_pil(self, image: Image.Image) -> Image.Image:
        from PIL import Image  # only here: arrays need no Pillow

        if not isinstance(image, Image.Image):
            raise ImageError(f"an image is a NumPy array or a PIL image; got {type(image).__name__}: {_advice(image)}")
        if image.mode not in ("RGB", "L", "I;16", "I;16L", "I;16B"):
            raise ImageError(
                f'a PIL image must have mode RGB, L or I;16; got {image.mode!r}: convert it first, for example image.convert("RGB")'
            )
        release = self._release_array(np.asarray(image))
        if self.output == "ycbcr" and self.plan.is_colour:
            return Image.frombytes("YCbCr", image.size, release.tobytes())
        return Image.fromarray(release)

    def _release_batch(self, sources: Array, releases: Array) -> None:
        """sources, releases: [N, H, W, C]. So many at once that their keystream makes a strip: memory does not grow with the batch."""
        count, height, width, _ = sources.shape
        together = max(
            1, STRIP_BYTES // (2 * self.plan.tables.lanes * -(-height * width // mask.BLOCK_PIXELS) * mask.BLOCK_PIXELS)
        )
        for first in range(0, count, together):
            self._release_some(sources[first : first + together], releases[first : first + together])

    def _release_some(self, sources: Array, releases: Array) -> None:
        """sources, releases: [images, H, W, C]. Strip by strip, so that memory does not grow with the images."""
        images, height, width, _ = sources.shape
        tables, backend = self.plan.tables, self.backend
        rows = max(1, STRIP_BYTES // (2 * tables.lanes) // width // self._block) * self._block
        pixels = min(rows, height) * width
        masks = np.empty((images, tables.planes, pixels + mask.BLOCK_PIXELS), np.uint8)
        block_bytes = 2 * tables.lanes * mask.BLOCK_PIXELS
        buffer = np.empty(images * -(-pixels // mask.BLOCK_PIXELS) * block_bytes + SLACK, np.uint8)
        room = buffer.data
        whole = -(-height * width // mask.BLOCK_PIXELS) * block_bytes
        keystreams = [Keystream(self.randomness.key(), whole) for _ in range(images)]
        answers = [keystream.blocks for keystream in keystreams]
        drawn = spare = 0  # pixels whose masks were drawn; how many of those wait at the front of `masks`
        for top in range(0, height, rows):
            strips = np.require(
                sources[:, top : top + rows], sources.dtype.newbyteorder("="), ("C", "A")
            )  # the kernel reads words
            need = strips.shape[1] * width
            blocks = max(0, -(-(need - spare) // mask.BLOCK_PIXELS))
            if blocks:
                size = blocks * block_bytes
                for image, keystream in enumerate(keystreams):
                    keystream.fill(room[image * size : (image + 1) * size + SLACK])
                lanes = buffer[: images * size].view("<u2").reshape(images, -1, mask.BLOCK_PIXELS)
                backend.draw(lanes, tables, drawn, answers, masks, spare)
            targets = releases[:, top : top + rows]
            direct = targets.flags.c_contiguous and targets.flags.aligned and targets.dtype.isnative
            done = targets if direct else np.empty(strips.shape, strips.dtype)
            backend.finish(strips, done, masks, self.plan, self.prune, self.output == "rgb")
            if not direct:
                targets[...] = done
            drawn, spare = drawn + blocks * mask.BLOCK_PIXELS, spare + blocks * mask.BLOCK_PIXELS - need
            if spare:
                masks[..., :spare] = masks[..., need : need + spare]


@overload
def privatize(image: Array, epsilon: float = 20.0) -> Array: ...
@overload
def privatize(image: Image.Image, epsilon: float = 20.0) -> Image.Image: ...
def privatize(image: Array | Image.Image, epsilon: float = 20.0) -> Array | Image.Image:
    """One release of ``image`` with the paper's defaults: Plan.paper (Plan.grey for a grey image), Haar pruning.

    >>> release = privatize(np.zeros((4, 6, 3), np.uint8), epsilon=20.0)
    """
    array = np.asarray(image)
    colour = array.ndim >= 3 and array.shape[-1] == 3
    bits = COLOUR_BITS if colour else 16 if array.dtype.kind == "u" and array.dtype.itemsize == 2 else 8
    return _paper_slicer(epsilon, bits)(image)


@lru_cache(maxsize=64)
def _paper_slicer(epsilon: float, bits: int) -> Slicer:
    return Slicer(Plan.paper(epsilon) if bits == COLOUR_BITS else Plan.grey(epsilon, bits))


def _advice(image: object) -> str:
    """How what is no image becomes one."""
    if isinstance(image, str | os.PathLike):
        return "open it first, PIL.Image.open(path); `ldp-slicing privatize` does that and keeps a ledger"
    if hasattr(image, "detach"):
        return "ldp_slicing.torch.Privatize releases tensors"
    return "convert it with np.asarray(image)"


def choose_backend(backend: str) -> Backend:
    """ "auto" is the kernel where it was built."""
    if backend == "kernel" or (backend == "auto" and VARIANTS):
        return Kernel()
    if backend in ("auto", "reference"):
        return Reference()
    raise LdpSlicingError(f'backend is "auto", "reference" or "kernel"; got {backend!r}')


def as_batch(array: Array, plan: Plan) -> Array:
    """``array`` as [N, H, W, C], or a refusal that says what does not fit the plan and how to convert."""
    if array.dtype.kind == "f":
        raise ImageError(
            f"floats have no fixed range, so {array.dtype} is refused; for values in 0..1 use np.round(image * 255).astype(np.uint8)"
        )
    if array.dtype.kind != "u" or array.dtype.itemsize > 2:
        raise ImageError(
            f"an image has dtype uint8, or uint16 for deep grey; got {array.dtype}: convert it with astype after checking its range"
        )
    if array.ndim == 2:
        images = array[None, :, :, None]
    elif array.ndim == 3 and array.shape[-1] in (1, 3):
        images = array[None]
    elif array.ndim == 4 and array.shape[-1] in (1, 3):
        images = array
    else:
        raise ImageError(
            f"a shape is H x W x 3, N x H x W x 3, H x W, or N x H x W x 1 for a batch of grey images; got {array.shape}"
        )
    if 0 in images.shape[1:]:
        raise ImageError(f"an image has at least one pixel; got shape {array.shape}")
    kind = "colour" if images.shape[-1] == 3 else "grey"
    if plan.is_colour != (kind == "colour"):
        wanted = (
            "a colour plan, such as Plan.paper(20.0)"
            if kind == "colour"
            else f"a grey plan, such as Plan.grey(20.0, bits={8 * array.dtype.itemsize})"
        )
        raise ImageError(
            f"a {kind} image of shape {array.shape} needs {wanted}; this plan's word has {plan.word_bits} bits"
        )
    if plan.is_colour and array.dtype.itemsize == 2:
        raise ImageError("a colour image has 8 bits per channel; for 16-bit colour use (image >> 8).astype(np.uint8)")
    if not plan.is_colour:
        _check_depth(images, plan)
    return images


def _check_depth(images: Array, plan: Plan) -> None:
    if images.dtype.itemsize == 1 and plan.word_bits > 8:
        raise ImageError(
            f"a uint8 image has 8-bit words, this plan's have {plan.word_bits}: use Plan.grey(epsilon, bits=8)"
        )
    if images.dtype.itemsize == 2 and plan.word_bits <= 8:
        raise ImageError(
            f"a uint16 image is deep grey, this plan's words have {plan.word_bits} bits: use Plan.grey(epsilon, bits=9 to 16)"
        )
    full = plan.word_bits == 8 * images.dtype.itemsize
    if not full and images.size and (highest := int(images.max())) >> plan.word_bits:
        raise ImageError(
            f"the image has the value {highest}, above the {plan.word_bits}-bit words of this plan (0 to {(1 << plan.word_bits) - 1})"
        )


def join_planes(planes: NDArray[np.uint8], channels: int) -> Array:
    """Masks as bytes of the word, lowest first, to [channels, pixels]: Y, Cb, Cr, or one grey channel of one or two bytes."""
    if len(planes) == channels:
        return planes[::-1]
    deep: NDArray[np.uint16] = planes[0] | planes[1].astype(np.uint16) << np.uint16(8)
    return deep
