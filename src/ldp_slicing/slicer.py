"""The mechanism as one call: release = rebuild(view(source) XOR mask).

Tests: tests/test_slicer.py and tests/test_vectors.py.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, cast, overload

import numpy as np
from numpy.typing import NDArray

from ldp_slicing import mask, view
from ldp_slicing.arrays import Array, as_batch, pixels_of
from ldp_slicing.card import Card, Statement
from ldp_slicing.errors import CardError, ImageError, ImageKeyError, LdpSlicingError, PresetError
from ldp_slicing.kernel import VARIANTS, Kernel
from ldp_slicing.plan import COLOUR_BITS, Plan, channel_bits, check_is_card
from ldp_slicing.presets import Preset, get_preset, no_budget, unlike_measured
from ldp_slicing.randomness import SLACK, Fresh, ImageKey, Keystream, Randomness
from ldp_slicing.saving import check_target, write_release
from ldp_slicing.tables import Tables
from ldp_slicing.view import Prune, Shrinking, Size

if TYPE_CHECKING:
    from PIL import Image

Output = Literal["rgb", "ycbcr"]
BackendName = Literal["auto", "reference", "kernel"]
Keys = ImageKey | Sequence[ImageKey]

STRIP_BYTES = 3 << 17  # of keystream: the working memory of one strip fits in the processor's cache


class Backend(Protocol):
    """The two steps of the mechanism for a strip of one image, or for several small images, in NumPy or compiled.

    lanes: uint16 [images, lanes, 64]. blocks: one per image. masks: uint8 [images, planes, pixels]; plane 0 is the
    lowest byte of the word. source, release: uint8 or uint16 [images, H, W, C].
    """

    @property
    def name(self) -> str: ...
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
    """The definition of the mechanism, in NumPy. The kernel must return the same bytes."""

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
        """source, release: [H, W, C]. masks: uint8 [planes, at least H * W]."""
        height, width, channels = source.shape
        bits = channel_bits(plan.word_bits)
        words = np.array(np.moveaxis(source, -1, 0), order="C")  # a copy: the source must not change
        if plan.is_colour:
            words = view.to_ycbcr(words)
        noise = mask.join_planes(masks[:, : height * width], channels).reshape(words.shape)
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


@dataclass(frozen=True, init=False, repr=False, eq=False)
class Slicer:
    """Turns sources into releases. Immutable, so threads and workers can share one.

    >>> slicer = Slicer(Plan.paper(20.0))
    >>> release = slicer(np.zeros((4, 6, 3), np.uint8))       # same shape and dtype; every call is a new release

    image
        uint8 H x W x 3 (RGB), uint8 H x W or H x W x 1 (grey), uint16 H x W or H x W x 1 (grey of 9 to 16 bits), a
        batch N x H x W x 3 or N x H x W x 1 of those, or a PIL image of mode RGB, L or I;16. The release has the same
        type and dtype, and the same shape unless ``size`` is given.
    key
        an ``ImageKey``, or a sequence of them for a batch, one per image. By default each image gets a fresh key.
    prune
        "haar" (the paper's LL pruning), "haar2", "haar4", "haar8" (the remaining detail amplified by that factor),
        "dct" (8x8 blocks without DC) or None.
    size
        None releases every pixel. An int is the longest side of a release: 224 shrinks larger images, keeps their
        aspect, and leaves smaller images as they are. (width, height) is the size of every release: the largest
        centred rectangle of that aspect is shrunk, and smaller images are refused, or padded with black by
        ``view.Padded(width, height)``. Shrinking comes before the noise, costs no eps and reveals less.
        ``released_shape`` tells the shape that results.
    output
        "rgb", or "ycbcr" for the randomised words themselves.
    backend
        "auto", "reference" or "kernel", or a ``Backend``. All return the same bytes for the same key.
    randomness
        where fresh keys come from. None is the operating system; seeded randomness is for tests and is not private.
    """

    plan: Plan
    prune: Prune
    size: Size
    output: Output
    backend: Backend
    randomness: Randomness

    def __init__(
        self,
        plan: Plan,
        *,
        prune: Prune = "haar",
        size: Size = None,
        output: Output = "rgb",
        backend: BackendName | Backend = "auto",
        randomness: Randomness | None = None,
    ) -> None:
        if not isinstance(plan, Plan):
            raise LdpSlicingError(f"a Slicer needs a Plan, such as Plan.paper(20.0); got {plan!r}")
        if output not in ("rgb", "ycbcr"):
            raise LdpSlicingError(f'output must be "rgb" or "ycbcr"; got {output!r}')
        view.block_of(prune)  # raises if there is no such pruning
        view.check_size(size)
        chosen = choose_backend(backend) if isinstance(backend, str) else backend
        values = (plan, prune, size, output, chosen, Fresh() if randomness is None else randomness)
        for field, value in zip(fields(self), values, strict=True):
            object.__setattr__(self, field.name, value)

    @classmethod
    def from_card(cls, card: Card, bits: int | None = None, *, backend: BackendName | Backend = "auto") -> Slicer:
        """Return a slicer with the plan, view and output that a card states. Its keys are its own.

        >>> slicer = Slicer.from_card(Card.read("releases/card.json"))         # doctest: +SKIP

        bits: of the words, 24 for colour and 1 to 16 for grey, if the card has several statements. If the card states a
        range of values, the slicer takes words of that range.
        """
        check_is_card(card)
        stated = card.statement(bits)
        output: Output = "ycbcr" if stated.output == "ycbcr" else "rgb"
        return cls(stated.plan, prune=stated.prune, size=stated.size, output=output, backend=backend)

    def __repr__(self) -> str:
        view_options = f"prune={self.prune!r}, size={self.size!r}"
        return f"Slicer({self.plan!r}, {view_options}, output={self.output!r}, backend={self.backend.name!r})"

    @overload
    def __call__(self, image: Array, key: Keys | None = None) -> Array: ...
    @overload
    def __call__(self, image: Image.Image, key: Keys | None = None) -> Image.Image: ...
    def __call__(self, image: Array | Image.Image, key: Keys | None = None) -> Array | Image.Image:
        """Return a release of ``image``. Calls are not counted: releasing one source t times costs t x eps."""
        return self._release_array(image, key) if isinstance(image, np.ndarray) else self._release_pil(image, key)

    def save(self, image: Array | Image.Image, path: str | Path) -> Card:
        """Release one image, write the release and its card, and return the card.

        >>> slicer.save(image, "release.png")         # and release.png.card.json  # doctest: +SKIP

        Other software writes PNG differently, and ``ldp-slicing verify`` refuses that: bytes that may differ may hide
        something. Existing files are not overwritten. As with every call, nothing is counted in a ledger.
        """
        target = Path(path)
        check_target(target, self.plan, output=self.output)
        array = pixels_of(image)
        source = as_batch(array, self.plan)
        if array.ndim == 4:
            raise ImageError(f"a batch of shape {array.shape} cannot be one file: save its images one by one")
        card = self.card(source.shape[2], source.shape[1])
        release = self._release_array(source, None)[0]
        write_release(target, release if self.plan.is_colour else release[..., 0], self.plan, card)
        return card

    def card(self, width: int, height: int) -> Card:
        """Return the card of one release of a ``width`` x ``height`` source."""
        if not self.randomness.secret:
            raise CardError(
                "seeded output gets no card, because anybody who knows the seed can remove the mask; "
                "leave randomness at its default"
            )
        released_height, released_width = self.released_shape((height, width))
        sizes = ((released_width, released_height),)
        return Card((Statement.of(self.plan, self.prune, self.output, sizes, size=self.size),))

    def shrinking(self, height: int, width: int) -> Shrinking | None:
        """Return how a ``height`` x ``width`` source is shrunk, or None if all of it is released in its size."""
        return view.shrinking_of(self.size, height, width)

    def released_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of the release of an array: H x W, H x W x C or N x H x W x C, as ``shape`` is."""
        row_axis = 1 if len(shape) == 4 else 0
        how = self.shrinking(*shape[row_axis : row_axis + 2])
        if how is None:
            return shape
        return (*shape[:row_axis], how.released_height, how.released_width, *shape[row_axis + 2 :])

    def release_into(self, image: Array, out: Array, key: Keys | None = None) -> None:
        """Release an array into ``out``, which has the shape of the release and its dtype, in any memory layout."""
        images, shape = as_batch(image, self.plan), self.released_shape(image.shape)
        if out.shape != shape:
            raise ImageError(f"out has shape {out.shape}, but the release has {shape}")
        if out.dtype.newbyteorder("=") != image.dtype.newbyteorder("="):  # a narrower dtype would truncate the words
            raise ImageError(
                f"out has dtype {out.dtype}, but the image has {image.dtype}: create it with "
                "np.empty(slicer.released_shape(image.shape), image.dtype)"
            )
        keys = self._take_keys(key, len(images), image.ndim == 4)
        self._release_batch(images, out.reshape(self.released_shape(images.shape)), keys)

    def _release_array(self, array: Array, key: Keys | None) -> Array:
        images = as_batch(array, self.plan)
        release = np.empty(self.released_shape(images.shape), images.dtype.newbyteorder("="))
        self._release_batch(images, release, self._take_keys(key, len(images), array.ndim == 4))
        return release.reshape(self.released_shape(array.shape))

    def _release_pil(self, image: Image.Image, key: Keys | None) -> Image.Image:
        from PIL import Image  # not above: arrays need no Pillow

        release = self._release_array(pixels_of(image), key)
        if self.output == "ycbcr" and self.plan.is_colour:
            return Image.frombytes("YCbCr", release.shape[1::-1], release.tobytes())
        return Image.fromarray(release)

    def _take_keys(self, key: Keys | None, count: int, is_batch: bool) -> Iterator[bytes]:
        """Return one key per image. Keys that were passed are all checked and taken before anything is released."""
        if key is None:
            return (self.randomness.key().take() for _ in range(count))
        keys = [key] if isinstance(key, ImageKey | bytes) else list(key)
        for one in keys:
            if not isinstance(one, ImageKey):
                raise ImageKeyError(
                    f"a key must be an ImageKey, which can be used once; got {type(one).__name__}: derive one with "
                    "ldp_slicing.keys.Secret.image_key, or leave key out for a fresh one"
                )
            if self.randomness.secret and not one.is_secret:
                raise ImageKeyError(
                    "this key is not secret, and releases of this slicer need secret keys: use a key from a Secret, "
                    "or a Slicer with the same seeded randomness"
                )
        if len(keys) != count or is_batch == isinstance(key, ImageKey):
            raise ImageKeyError(
                f"one image takes an ImageKey and a batch a sequence of them, one per image; "
                f"got {len(keys)} for {count if is_batch else 'one image'}"
            )
        return iter([one.take() for one in keys])

    def _release_batch(self, sources: Array, releases: Array, keys: Iterator[bytes]) -> None:
        """sources: [N, H, W, C]. releases: [N, h, w, C]. Releases as many images at a time as share one strip.

        A strip has room for the keystream of its images, and for a row of each source while it is shrunk.
        """
        count, height, width, _ = releases.shape
        keystream_bytes = self._block_bytes * -(-height * width // mask.BLOCK_PIXELS)
        row_bytes = 8 * sources.shape[2] * sources.shape[3]
        together = max(1, STRIP_BYTES // max(keystream_bytes, row_bytes))
        for first in range(0, count, together):
            chosen = slice(first, first + together)
            self._release_some(sources[chosen], releases[chosen], list(islice(keys, together)))

    @property
    def _block_bytes(self) -> int:
        """Keystream bytes of 64 pixels."""
        return 2 * self.plan.tables.lanes * mask.BLOCK_PIXELS

    def _release_some(self, sources: Array, releases: Array, keys: list[bytes]) -> None:
        """sources: [images, H, W, C]. releases: [images, h, w, C]. Works in strips, so memory does not grow with h."""
        images, height, width, _ = releases.shape
        how = self.shrinking(*sources.shape[1:3])
        tables, backend, block = self.plan.tables, self.backend, view.block_of(self.prune)
        rows = max(1, STRIP_BYTES // (2 * tables.lanes) // width // block) * block
        pixels = min(rows, height) * width
        masks = np.empty((images, tables.planes, pixels + mask.BLOCK_PIXELS), np.uint8)
        buffer = np.empty(images * -(-pixels // mask.BLOCK_PIXELS) * self._block_bytes + SLACK, np.uint8)
        room = buffer.data
        image_bytes = -(-height * width // mask.BLOCK_PIXELS) * self._block_bytes
        keystreams = [Keystream(key, image_bytes) for key in keys]
        answers = [keystream.blocks for keystream in keystreams]
        drawn = spare = 0  # pixels whose masks were drawn; how many of those masks wait at the front of `masks`
        for top in range(0, height, rows):
            end = min(top + rows, height)
            strips = view.shrink_rows(sources, how, top, end) if how is not None else sources[:, top:end]
            # The kernel reads aligned words in native byte order.
            strips = np.require(strips, strips.dtype.newbyteorder("="), ("C", "A"))
            need = strips.shape[1] * width
            blocks = max(0, -(-(need - spare) // mask.BLOCK_PIXELS))
            if blocks:
                size = blocks * self._block_bytes
                for image, keystream in enumerate(keystreams):
                    keystream.fill(room[image * size : (image + 1) * size + SLACK])
                lanes = buffer[: images * size].view("<u2").reshape(images, -1, mask.BLOCK_PIXELS)
                backend.draw(lanes, tables, drawn, answers, masks, spare)
            targets = releases[:, top:end]
            direct = targets.flags.c_contiguous and targets.flags.aligned and targets.dtype.isnative
            done = targets if direct else np.empty(strips.shape, strips.dtype)
            backend.finish(strips, done, masks, self.plan, self.prune, self.output == "rgb")
            if not direct:
                targets[...] = done
            drawn, spare = drawn + blocks * mask.BLOCK_PIXELS, spare + blocks * mask.BLOCK_PIXELS - need
            if spare:
                masks[..., :spare] = masks[..., need : need + spare]


@overload
def privatize(image: Array, epsilon: float | None = None, *, preset: str | Path | None = None) -> Array: ...
@overload
def privatize(image: Image.Image, epsilon: float | None = None, *, preset: str | Path | None = None) -> Image.Image: ...
def privatize(
    image: Array | Image.Image, epsilon: float | None = None, *, preset: str | Path | None = None
) -> Array | Image.Image:
    """Return one release of ``image`` at a budget that you choose, or with a preset.

    >>> release = privatize(np.zeros((4, 6, 3), np.uint8), epsilon=5.2)
    >>> release = privatize(np.zeros((4, 6, 3), np.uint8), preset="paper")

    image
        uint8 H x W x 3, uint8 or uint16 H x W, a batch of those, or a PIL image; see ``Slicer``.
    epsilon
        the budget of a released pixel, for the paper's plan (Plan.grey for a grey image) with Haar pruning. One that
        makes the noise pointless is refused; ``Slicer`` takes any plan.
    preset
        the name of a preset, or the path of a preset file; see ``ldp-slicing plan --presets``. If it was measured on
        another kind of image only, such as grey ones, there is a warning.
    """
    if epsilon is None and preset is None:
        raise no_budget('call privatize(image, epsilon=5.2) or privatize(image, preset="paper")')
    if epsilon is not None and preset is not None:
        raise PresetError("a preset has its own view, plan and budget: leave out epsilon")
    array = np.asarray(image)
    colour = array.ndim >= 3 and array.shape[-1] == 3
    bits = COLOUR_BITS if colour else 16 if array.dtype.kind == "u" and array.dtype.itemsize == 2 else 8
    chosen = get_preset(preset) if preset is not None else Preset("epsilon", "", cast("float", epsilon))
    if unlike := unlike_measured(chosen.measured_bits, bits):
        warnings.warn(f"this image {unlike}", stacklevel=2)
    return _slicer_of(chosen, bits)(image)


@lru_cache(maxsize=64)
def _slicer_of(preset: Preset, bits: int) -> Slicer:
    plan = preset.plan(bits)
    plan.check_noise("Choose a smaller epsilon; to release anyway, for example in an experiment, use Slicer(plan)")
    return Slicer(plan, prune=preset.prune, size=preset.size)


def choose_backend(name: str) -> Backend:
    """Return the backend of that name. "auto" is the kernel where it was built, else the reference."""
    if name == "kernel" or (name == "auto" and VARIANTS):
        return Kernel()
    if name in ("auto", "reference"):
        return Reference()
    raise LdpSlicingError(f'backend must be "auto", "reference" or "kernel"; got {name!r}')
