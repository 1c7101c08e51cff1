"""ReleasedDataset: a data set whose items are released once, so that all epochs and workers see the same releases."""

from __future__ import annotations

import io
import operator
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset

from ldp_slicing.arrays import as_batch
from ldp_slicing.card import Card
from ldp_slicing.digests import source_digest
from ldp_slicing.errors import CardError, ImageError, LdpSlicingError, ReleaseError
from ldp_slicing.plan import channel_bits
from ldp_slicing.slicer import Slicer
from ldp_slicing.torch.decode import check_transform
from ldp_slicing.torch.distributed import check_single_process, process_count, wait_for_store
from ldp_slicing.torch.images import IMAGE_TYPES, ImageKind, check_label, from_pixels, pixels_to_tensor, to_pixels
from ldp_slicing.torch.labels import copy_label, storage_kind
from ldp_slicing.torch.store import Index, Releases, StoreExistsError, open_folder, write_folder

_IMAGE_KEYS = ("image", "img")  # of items that are dicts
BATCH_BYTES = 3 << 18  # sources that are released together
Array = NDArray[Any]
Transform = Callable[[Any], Any] | None
Progress = Callable[[int, int], None] | None


class ReleasedDataset(Dataset[Any]):
    """The releases of a data set, one per item, made on construction.

    >>> sources = TensorDataset(torch.zeros(5, 3, 8, 8, dtype=torch.uint8), torch.arange(5))
    >>> released = ReleasedDataset(sources, Slicer(Plan.paper(20.0)), transform=v2.RandomHorizontalFlip())
    >>> image, label = released[0]                  # uint8 [3, 8, 8], 0 to 255, like the source; the label as it was

    dataset
        has a length and returns items by number. An item is an image, a tuple or list of an image and labels, or a dict
        of an image and labels, as Hugging Face has it. The image of a dict is its only PIL image or tv_tensors.Image;
        if it has neither, the tensor or array with the key "image" or "img". An image is a uint8 tensor or
        tv_tensors.Image C x H x W with 3 channels or 1, a PIL image (RGB, L, I;16), or a uint8 array H x W x C or
        H x W; uint16 for grey of 9 to 16 bits. Sizes may differ. Releases have the same type and dtype; tensors are on
        the CPU. Floats are refused: put ToTensor into ``transform``.
    slicer
        makes the releases. They have the shapes of their sources, or the slicer's ``size``.
    store
        None keeps the releases in memory. A path writes them to that new folder, with their card, and
        ``ReleasedDataset.open`` reads them; labels must then be numbers, or tensors or arrays of numbers. If several
        processes train together (``torchrun``), the first one releases to the store and the others wait and open it.
        Without a store this is refused, because each process would make releases of its own.
    transform
        is applied to the release on every access. A transform of the wrapped data set is part of the source: a random
        crop there is released once, as it was. A ``Decoder`` for another plan is refused as by ``open_releases``.
    progress
        ``progress(done, total)`` is called after each release.

    Labels are NOT protected. They may be numbers, strings, and tensors or arrays of them, also in dicts, lists, tuples
    and sets. Labels that may be images are refused: see ``ldp_slicing.torch.images.check_label``.

    An item that occurs twice is released twice, which costs 2 x eps: the card counts equal images. It cannot count
    crops and other near-duplicates, which compose as well.
    """

    def __init__(
        self,
        dataset: Any,  # noqa: ANN401
        slicer: Slicer,
        *,
        store: str | os.PathLike[str] | None = None,
        transform: Transform = None,
        progress: Progress = None,
    ) -> None:
        if not isinstance(slicer, Slicer):
            raise ReleaseError(f"a ReleasedDataset needs a Slicer, such as Slicer(Plan.paper(20.0)); got {slicer!r}")
        check_transform(transform, lambda bits: slicer)  # before anything is released
        self._transform = transform
        self._folder = None if store is None else Path(store).absolute()
        if self._folder is None:
            check_single_process()
            file = io.BytesIO()
            index = _release_items(dataset, slicer, file, progress, lambda label: "any")
            pixels = np.frombuffer(file.getbuffer(), slicer.plan.dtype)
            is_secret = slicer.randomness.secret
            self._hold(Releases(index, pixels, slicer.plan, slicer.prune, slicer.output, slicer.size, is_secret))
            return
        try:
            write_folder(
                self._folder, slicer, lambda file: _release_items(dataset, slicer, file, progress, storage_kind)
            )
            self._hold(open_folder(self._folder))
        except StoreExistsError:
            if process_count() == 1:
                raise
            wait_for_store(self._folder)
            self._hold(open_folder(self._folder))
            self._check_same(dataset, slicer)

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, transform: Transform = None) -> ReleasedDataset:
        """Return the releases in a folder that ``store=`` wrote. Needs neither sources nor slicer.

        >>> released = ReleasedDataset.open("releases")                                              # doctest: +SKIP

        Pixels are read when they are accessed, so the folder may be larger than memory.
        """
        self = cls.__new__(cls)
        self._folder = Path(path).absolute()
        self._hold(open_folder(self._folder))
        self.transform = transform
        return self

    @property
    def transform(self) -> Transform:
        """What is applied to the release on every access. A decoder for another plan is refused."""
        return self._transform

    @transform.setter
    def transform(self, transform: Transform) -> None:
        check_transform(transform, lambda bits: self._releases)
        self._transform = transform

    def __len__(self) -> int:
        return len(self._releases.index.shapes)

    def __getitem__(self, index: int) -> Any:  # noqa: ANN401
        i = item_number(index, len(self))
        about = self._releases.index
        image = from_pixels(about.kind, self._releases.image(i), ycbcr=self._releases.output == "ycbcr")
        if self.transform is not None:
            image = self.transform(image)
        if about.items == "image":
            return image
        labels = list(map(copy_label, about.labels[i]))
        if about.items == "dict":
            named = dict(zip(about.keys[1:], labels, strict=True))
            return {about.keys[0]: image, **named}
        return (image, *labels) if about.items == "tuple" else [image, *labels]

    def images(self) -> Iterator[Tensor]:
        """Yield each release alone as [1, C, H, W], without transform and label: what ``Decoder.from_card`` takes."""
        is_tensor = "tensor" in self._releases.index.kind
        for pixels in map(self._releases.image, range(len(self))):
            yield torch.tensor(pixels)[None] if is_tensor else pixels_to_tensor(pixels)[None]

    @property
    def card(self) -> Card:
        """The privacy statement of these releases."""
        made = self._releases
        if not made.is_secret:
            raise CardError(
                "seeded output gets no card, because anybody who knows the seed can remove the mask; "
                "leave randomness at its default"
            )
        return made.index.card(made.plan, made.prune, made.output, made.size)

    def __getstate__(self) -> dict[str, Any]:
        """Return the path of a store instead of its pixels: workers open it themselves."""
        return self.__dict__ if self._folder is None else {"_folder": self._folder, "_transform": self._transform}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if self._folder is not None:
            self._hold(open_folder(self._folder))

    def _hold(self, releases: Releases) -> None:
        releases.pixels.flags.writeable = False
        self._releases = releases

    def _check_same(self, dataset: Any, slicer: Slicer) -> None:  # noqa: ANN401
        """Raise ReleaseError if the store is not of this data set and slicer. Compares the first and the last item."""
        made, count = self._releases, _count_items(dataset)
        output = slicer.output if slicer.plan.is_colour else made.output
        wanted = (count, slicer.plan, slicer.prune, output, slicer.size)
        if wanted != (len(self), made.plan, made.prune, made.output, made.size) or not all(
            _is_item_of(made.index, i, dataset[i], slicer) for i in (0, count - 1)
        ):
            raise ReleaseError(
                f"{self._folder} holds releases of other sources, or by another plan or view, than this process was to "
                "make: give all processes the same sources and slicer, or each its own store"
            )


def item_number(index: int, count: int) -> int:
    """Return the number of an item, of which there are ``count``. A negative index counts from the end."""
    try:
        return range(count)[operator.index(index)]
    except IndexError:
        raise IndexError(f"there is no release {index}: the data set has {count:,}, numbered from 0") from None


def _is_item_of(index: Index, i: int, item: object, slicer: Slicer) -> bool:
    """Return whether the item's release has the type, the shape and the labels of item ``i`` of a store."""
    items, keys, image, labels = _split_item(item)
    kind, pixels = to_pixels(image)
    shape = _stored_shape(kind, slicer.released_shape(pixels.shape))
    if (items, keys, kind, shape) != (index.items, index.keys, index.kind, tuple(index.shapes[i].tolist())):
        return False
    pairs = list(zip(map(copy_label, labels), index.labels[i], strict=False))
    return len(labels) == len(index.labels[i]) and all(np.array_equal(np.asarray(a), np.asarray(b)) for a, b in pairs)


def _count_items(dataset: object) -> int:
    try:
        count = 0 if isinstance(dataset, IterableDataset) else len(dataset)  # type: ignore[arg-type]
    except (TypeError, NotImplementedError):
        count = 0
    if not count or not hasattr(dataset, "__getitem__"):
        raise ReleaseError(
            "a data set must have a length of at least 1 and items by number; "
            f"got {type(dataset).__name__}: turn it into a list first"
        )
    return count


def _split_item(item: Any) -> tuple[str, tuple[str, ...], Any, list[Any]]:  # noqa: ANN401
    """Return the type of the item ("image", "tuple", "list", "dict"), the keys of a dict, its image and its labels.

    The key of the image comes first.
    """
    if isinstance(item, tuple | list) and not item:
        raise ImageError(
            f"an item must be an image, a tuple or list that begins with one, or a dict; got {type(item).__name__}"
        )
    if isinstance(item, dict):
        key = _image_key(item)
        labels = {name: value for name, value in item.items() if name != key}
        return "dict", (key, *labels), item[key], list(labels.values())
    if not isinstance(item, tuple | list):
        return "image", (), item, []
    image, *others = item
    return "tuple" if isinstance(item, tuple) else "list", (), image, others


def _image_key(item: dict[Any, Any]) -> str:
    """Return the key of the one image of an item. Several images are refused: all but one would be labels."""
    if not all(isinstance(key, str) for key in item):
        raise ImageError("the keys of an item must be strings")
    found: list[str] = [key for key, value in item.items() if isinstance(value, IMAGE_TYPES)]
    found = found or [key for key in _IMAGE_KEYS if key in item]
    if len(found) != 1:
        raise ImageError(
            "an item that is a dict must have one image: a PIL image or tv_tensors.Image with any key, or else a "
            f"tensor or array with the key {' or '.join(map(repr, _IMAGE_KEYS))}; got the keys "
            f"{', '.join(map(repr, item))}"
        )
    return found[0]


def _stored_shape(kind: ImageKind, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape in which a release of shape [h, w, C] or [h, w] is stored: channels first for tensors."""
    return (shape[2], *shape[:2]) if "tensor" in kind else shape


def _batches_of_one_shape(images: Iterable[Array]) -> Iterator[Array]:
    """Yield images [H, W, C] in order as batches [N, H, W, C] of one shape and up to BATCH_BYTES, or of one image."""
    batch, filled = np.empty((0, 0, 0, 0), np.uint8), 0
    for image in images:
        if image.shape != batch.shape[1:]:
            if filled:
                yield batch[:filled]
            batch, filled = np.empty((max(1, BATCH_BYTES // image.nbytes), *image.shape), image.dtype), 0
        batch[filled] = image  # a copy: the data set may reuse its memory
        filled += 1
        if filled == len(batch):
            yield batch
            filled = 0
    if filled:
        yield batch[:filled]


def _release_items(
    dataset: Any,  # noqa: ANN401
    slicer: Slicer,
    file: BinaryIO,
    progress: Progress,
    label_kind: Callable[[Any], str],
) -> Index:
    """Release each item once, append its pixels to ``file``, and return the index. Holds one batch in memory."""
    count = _count_items(dataset)
    forms: list[tuple[str, tuple[str, ...], ImageKind, int, tuple[str, ...]]] = []  # of the first item
    shapes, all_labels, sources_seen = [], [], Counter[bytes]()
    bits = channel_bits(slicer.plan.word_bits)

    def checked_sources() -> Iterator[Array]:
        """Yield sources [H, W, C]. An item is checked before its batch is released, so refusing it costs nothing."""
        for i in range(count):
            item = dataset[i]
            try:
                items, keys, image, labels = _split_item(item)
                for label in labels:
                    check_label(label, slicer)
                copies = tuple(map(copy_label, labels))
                kind, pixels = to_pixels(image)
                (source,) = as_batch(pixels, slicer.plan)
                shape = _stored_shape(kind, slicer.released_shape(pixels.shape))
                form = (items, keys, kind, pixels.ndim, tuple(label_kind(label) for label in copies))
                if not forms:
                    forms.append(form)
                if form != forms[0]:
                    raise ReleaseError(
                        f"(item, keys, image, dimensions, labels) are {form}, but {forms[0]} before: "
                        "all items must agree"
                    )
            except LdpSlicingError as error:
                raise type(error)(f"item {i}: {error}") from error
            shapes.append(shape)
            all_labels.append(copies)
            sources_seen[source_digest(source, bits)] += 1
            yield source

    done = 0
    for batch in _batches_of_one_shape(checked_sources()):
        release = slicer(batch)
        is_tensor = "tensor" in forms[0][2]
        file.write(np.ascontiguousarray(release.transpose(0, 3, 1, 2) if is_tensor else release).data)
        for _ in batch:
            done += 1
            if progress is not None:
                progress(done, count)
    ((items, keys, kind, _, kinds),) = forms
    return Index(kind, items, np.array(shapes, np.int64), kinds, all_labels, max(sources_seen.values()), keys)
