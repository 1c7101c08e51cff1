"""A data set that is released once: every access, epoch and worker sees the very same releases, and nobody the sources."""

from __future__ import annotations

import io
import json
import operator
import os
import shutil
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Dataset, IterableDataset

from ldp_slicing.card import Card, Statement
from ldp_slicing.errors import CardError, ImageError, LdpSlicingError, ReleaseError
from ldp_slicing.keys import source_digest
from ldp_slicing.plan import Plan
from ldp_slicing.slicer import Slicer, as_batch
from ldp_slicing.tables import LAYOUT_VERSION
from ldp_slicing.torch.distributed import processes, refuse_each_its_own, wait_until_made
from ldp_slicing.torch.images import image_of, refuse_picture, source_of
from ldp_slicing.torch.labels import from_column, own, stored_kind, to_column
from ldp_slicing.view import Prune

STORE_VERSION = 1
BATCH_BYTES = 3 << 18  # of sources that are released together
HEADER_BYTES = 128  # of pixels.npy: written last, when the number of pixels is known
Array = NDArray[Any]
Transform = Callable[[Any], Any] | None
Progress = Callable[[int, int], None] | None


@dataclass(frozen=True)
class Index:
    """What the flat pixels are: kind "pil", "tensor", "tv_tensor" or "array"; items "image", "tuple" or "list"; a shape and labels each.

    times: how many of them were released from the same source, of the one with most.
    """

    kind: str
    items: str
    shapes: NDArray[np.int64]
    label_kinds: tuple[str, ...]
    labels: list[tuple[Any, ...]]
    times: int


class MadeByAnotherError(ReleaseError):
    """The store is there, or another process is making it."""


class ReleasedDataset(Dataset[Any]):
    """The releases of a data set, one for each item, made on construction.

    >>> sources = TensorDataset(torch.zeros(5, 3, 8, 8, dtype=torch.uint8), torch.arange(5))
    >>> released = ReleasedDataset(sources, Slicer(Plan.paper(20.0)), transform=v2.RandomHorizontalFlip())
    >>> image, label = released[0]                  # uint8 [3, 8, 8], 0 to 255, like the source; the label as it was

    dataset: has a length, and items that are an image, or a tuple or list that begins with one and goes on with labels. An image is a PIL
    image (RGB, L, I;16), a uint8 tensor or tv_tensors.Image C x H x W with 3 channels or 1, or an array H x W x C or H x W (uint16 for grey
    of 9 to 16 bits); the same kind comes back, tensors on the CPU. The sizes may differ. Floats are refused: ToTensor belongs in
    ``transform``, which is applied to the release on every access. A transform of the wrapped data set is part of the source: a random
    crop there is released as it came out, once. An item that is in the data set twice is released twice, and that costs 2 x eps: the card
    counts equal pictures. It cannot count crops and other near-duplicates, which compose as well.

    store: None keeps the releases in memory; a path writes them to that new folder, with their card, where ``ReleasedDataset.open`` finds
    them; then labels must be numbers, or tensors or arrays of numbers. ``progress(done, of)`` is called after each release.
    Of processes that train together (``torchrun``) the first to come releases to the store, and the others wait for it and open it;
    without a store they are refused, since each would release for itself.
    Labels are NOT protected. Numbers, strings, tensors and arrays of them are taken, also in dicts, lists, tuples and sets; nothing with
    three or more dimensions, or two where the sources are grey, lists counted like the dimensions of tensors, unless it is a
    tv_tensors.Mask or the like; and no other objects, nor derived classes of these.
    """

    _view: tuple[Prune, str]  # and the output

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
        self.transform = transform
        self._folder: Path | None = None
        if store is not None:
            folder = Path(store).absolute()
            try:
                write_store(folder, dataset, slicer, progress)
                self._load(folder)
            except MadeByAnotherError:
                if processes() == 1:
                    raise
                wait_until_made(folder, partial_of(folder))
                self._load(folder)
                self._check_same(dataset, slicer)
            return
        refuse_each_its_own()
        file = io.BytesIO()
        index = release_all(dataset, slicer, file, progress, lambda label: "any")
        self._hold(index, np.frombuffer(file.getbuffer(), slicer.plan.dtype), slicer.plan)
        self._view, self._secret = (slicer.prune, slicer.output), slicer.randomness.secret

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, transform: Transform = None) -> ReleasedDataset:
        """The releases in a folder that ``store=`` wrote. No source and no slicer is needed; pixels are read where they lie."""
        self = cls.__new__(cls)
        self.transform = transform
        self._load(Path(path).absolute())
        return self

    def __len__(self) -> int:
        return len(self._index.shapes)

    def __getitem__(self, index: int) -> Any:  # noqa: ANN401
        i = range(len(self))[operator.index(index)]
        begin, end = self._offsets[i : i + 2].tolist()
        pixels = self._pixels[begin:end].reshape(self._index.shapes[i])
        image = image_of(self._index.kind, pixels, ycbcr=self._view[1] == "ycbcr")
        if self.transform is not None:
            image = self.transform(image)
        if self._index.items == "image":
            return image
        item = (image, *map(own, self._index.labels[i]))
        return item if self._index.items == "tuple" else list(item)

    @property
    def card(self) -> Card:
        """What is promised about these releases."""
        if not self._secret:
            raise CardError(
                "no card for seeded output: whoever knows the seed removes the mask. Leave randomness at its default"
            )
        return make_card(self._index, self._plan, *self._view)

    def __getstate__(self) -> dict[str, Any]:
        """For a worker that is spawned: of a store on disk only where it is."""
        return self.__dict__ if self._folder is None else {"_folder": self._folder, "transform": self.transform}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if self._folder is not None:
            self._load(self._folder)

    def _hold(self, index: Index, pixels: Array, plan: Plan) -> None:
        pixels.flags.writeable = False
        self._index, self._pixels, self._plan = index, pixels, plan
        self._offsets = np.concatenate(([0], np.cumsum(index.shapes.prod(axis=1))))

    def _check_same(self, dataset: Any, slicer: Slicer) -> None:  # noqa: ANN401
        """Refuse a store of other releases than this process was to make, as far as a look at the first and the last item tells."""
        count, output = count_items(dataset), slicer.output if slicer.plan.is_colour else self._view[1]
        same = (count, slicer.plan, (slicer.prune, output)) == (len(self), self._plan, self._view)
        for i in (0, count - 1) if same else ():
            items, image, rest = parts_of(dataset[i])
            kind, pixels = source_of(image)
            here, labels = (
                (items, kind, shape_of(kind, pixels)),
                [*zip(map(own, rest), self._index.labels[i], strict=False)],
            )
            same &= here == (self._index.items, self._index.kind, tuple(self._index.shapes[i].tolist()))
            same &= len(rest) == len(self._index.labels[i]) and all(
                np.array_equal(np.asarray(a), np.asarray(b)) for a, b in labels
            )
        if not same:
            raise ReleaseError(
                f"{self._folder} holds other releases than this process was to make: give each its own store, or all the same"
            )

    def _load(self, folder: Path) -> None:
        if not (folder / "index.json").is_file():
            if (folder / "card.json").is_file():
                raise ReleaseError(
                    f"{folder} holds releases of `privatize`, as files: open them as what they are, such as by ImageFolder"
                )
            raise ReleaseError(
                f"{folder} holds no complete releases: it has no index.json. Make them with store={str(folder)!r}"
            )
        try:
            about = json.loads((folder / "index.json").read_text())
            if about["version"] != STORE_VERSION:
                raise ValueError(f"layout {about['version']!r} instead of {STORE_VERSION}")
            pixels = np.asarray(np.load(folder / "pixels.npy", mmap_mode="r")).reshape(-1)
            shapes, kinds = np.load(folder / "shapes.npy"), tuple(about["labels"])
            columns = [from_column(np.load(folder / f"labels-{c}.npy"), kind) for c, kind in enumerate(kinds)]
            labels = list(zip(*columns, strict=True)) if columns else [()] * len(shapes)
            card = json.loads((folder / "card.json").read_text())
            (statement,) = card["statements"]
            index = Index(
                about["kind"], about["items"], shapes, kinds, labels, statement["most_releases_of_one_source"]
            )
            part = statement["plan"]
            plan = Plan.from_dict(part)
        except (OSError, EOFError, KeyError, TypeError, ValueError) as error:
            raise ReleaseError(f"{folder} is damaged: {error}") from error
        self._hold(index, pixels, plan)
        whole = self._offsets[-1] == len(pixels) and pixels.dtype == plan.dtype
        if not whole or len(labels) != len(self):
            raise ReleaseError(
                f"{folder} is damaged: its {len(self)} shapes do not fit its {len(pixels)} {pixels.dtype} values and labels"
            )
        if (plan.realised_epsilon, LAYOUT_VERSION) != (part["epsilon_realised"], card["keystream_layout"]):
            raise CardError(
                f"{folder} was released by {card['software']}, whose tables were others: only its own card.json is true"
            )
        prune, output = statement["view"]["prune"], statement["output"]
        self._view, self._secret = (None if prune == "none" else prune, "rgb" if output == "grey" else output), True
        self._folder = folder


def count_items(dataset: object) -> int:
    try:
        count = 0 if isinstance(dataset, IterableDataset) else len(dataset)  # type: ignore[arg-type]
    except (TypeError, NotImplementedError):
        count = 0
    if not count or not hasattr(dataset, "__getitem__"):
        raise ReleaseError(
            f"a data set has a length, at least 1, and items by number; got {type(dataset).__name__}: make it a list first"
        )
    return count


def parts_of(item: Any) -> tuple[str, Any, list[Any]]:  # noqa: ANN401
    """What kind of item it is, its image, and what goes with it."""
    if isinstance(item, dict) or (isinstance(item, tuple | list) and not item):
        raise ImageError(f"an item is an image, or a tuple or list that begins with one; got {type(item).__name__}")
    items = "tuple" if isinstance(item, tuple) else "list" if isinstance(item, list) else "image"
    image, *rest = (item,) if items == "image" else item
    return items, image, rest


def shape_of(kind: str, pixels: Array) -> tuple[int, ...]:
    return (pixels.shape[2], *pixels.shape[:2]) if "tensor" in kind else pixels.shape


def gather(images: Iterable[Array]) -> Iterator[Array]:
    """Images [H, W, C] as batches [N, H, W, C] of one shape, in their order: one image, or copies of as many as BATCH_BYTES hold."""
    room, waiting = np.empty((0, 0, 0, 0), np.uint8), 0
    for image in images:
        if image.shape != room.shape[1:]:
            if waiting:
                yield room[:waiting]
            room, waiting = np.empty((max(1, BATCH_BYTES // image.nbytes), *image.shape), image.dtype), 0
        room[waiting] = image
        waiting += 1
        if waiting == len(room):
            yield room
            waiting = 0
    if waiting:
        yield room[:waiting]


def release_all(
    dataset: Any,  # noqa: ANN401
    slicer: Slicer,
    file: BinaryIO,
    progress: Progress,
    label_kind: Callable[[Any], str],
) -> Index:
    """Release each item once and append its pixels to ``file``: no more than a batch is held beside it."""
    count = count_items(dataset)
    forms: list[tuple[str, str, int, tuple[str, ...]]] = []  # one, that of the first item
    shapes, labels, seen = [], [], Counter[bytes]()
    bits = 8 if slicer.plan.is_colour else slicer.plan.word_bits

    def sources() -> Iterator[Array]:
        """Item by item, checked before the release: what is refused costs nothing."""
        for i in range(count):
            item = dataset[i]
            try:
                items, image, rest = parts_of(item)
                for label in rest:
                    refuse_picture(label, slicer)
                kept = tuple(map(own, rest))
                kind, pixels = source_of(image)
                (source,) = as_batch(pixels, slicer.plan)
                here = (items, kind, pixels.ndim, tuple(label_kind(label) for label in kept))
                if not forms:
                    forms.append(here)
                if here != forms[0]:
                    raise ReleaseError(
                        f"(item, image, dimensions, labels) are {here}, but {forms[0]} before: all items must agree"
                    )
            except LdpSlicingError as error:
                raise type(error)(f"item {i}: {error}") from error
            shapes.append(shape_of(kind, pixels))
            labels.append(kept)
            seen[source_digest(source, bits)] += 1
            yield source

    done = 0
    for batch in gather(sources()):
        release = slicer(batch)
        file.write(np.ascontiguousarray(release.transpose(0, 3, 1, 2) if "tensor" in forms[0][1] else release).data)
        if progress is not None:
            for number in range(done + 1, done + 1 + len(batch)):
                progress(number, count)
        done += len(batch)
    ((items, kind, _, kinds),) = forms
    return Index(kind, items, np.array(shapes, np.int64), kinds, labels, max(seen.values()))


def make_card(index: Index, plan: Plan, prune: Prune, output: str) -> Card:
    height, width = (-2, -1) if "tensor" in index.kind else (0, 1)
    sizes = tuple((w, h) for w, h in index.shapes[:, [width, height]].tolist())
    return Card((Statement(plan, prune, output, sizes, times=index.times),))


def partial_of(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.partial")


def _check_free(folder: Path) -> None:
    is_taken = folder.exists() and (not folder.is_dir() or any(folder.iterdir()))
    if (folder / "index.json").exists():  # after the look: another process may have made it meanwhile
        raise MadeByAnotherError(
            f"{folder} is already released: use ReleasedDataset.open({str(folder)!r}); releasing again would spend again"
        )
    if is_taken:
        raise ReleaseError(
            f"{folder} exists and holds something else, or an incomplete copy of a store: name a new folder"
        )


def write_store(folder: Path, dataset: object, slicer: Slicer, progress: Progress) -> None:
    """The whole folder under its name, or nothing."""
    if not slicer.randomness.secret:
        raise ReleaseError(
            "seeded output is not private and gets no card, so it is not stored: leave randomness at its default"
        )
    _check_free(folder)
    partial = partial_of(folder)
    try:
        partial.mkdir(parents=True)
    except FileExistsError:
        raise MadeByAnotherError(
            f"{partial} exists: a release is under way (of several processes let one release and the others open), or one was interrupted. "
            "Then nobody was given its releases: remove that folder and release again; if somebody was, the new ones add up with them"
        ) from None
    try:
        _check_free(folder)  # another process may have made it just before this one began
        with open(partial / "pixels.npy", "xb") as file:
            file.write(bytes(HEADER_BYTES))
            index = release_all(dataset, slicer, file, progress, stored_kind)
            same = bool((index.shapes == index.shapes[0]).all())
            shape = (
                [*index.shapes.shape[:1], *index.shapes[0].tolist()] if same else [int(index.shapes.prod(axis=1).sum())]
            )
            described = repr({"descr": slicer.plan.dtype.str, "fortran_order": False, "shape": tuple(shape)})
            file.seek(0)
            file.write(
                b"\x93NUMPY\1\0"
                + struct.pack("<H", HEADER_BYTES - 10)
                + described.ljust(HEADER_BYTES - 11).encode()
                + b"\n"
            )
        np.save(partial / "shapes.npy", index.shapes)
        for c, column in enumerate(zip(*index.labels, strict=True)):
            np.save(partial / f"labels-{c}.npy", to_column(column), allow_pickle=False)
        (partial / "card.json").write_text(make_card(index, slicer.plan, slicer.prune, slicer.output).to_json() + "\n")
        about = {"version": STORE_VERSION, "kind": index.kind, "items": index.items, "labels": index.label_kinds}
        (partial / "index.json").write_text(json.dumps(about, indent=2) + "\n")
        for (
            path
        ) in partial.iterdir():  # so that after a power cut, whichever name the folder has, it is whole or has no index
            with open(path, "rb+") as file:
                os.fsync(file.fileno())
        if folder.exists():
            folder.rmdir()  # it is empty
        partial.rename(folder)
    except BaseException:
        shutil.rmtree(partial)
        raise
