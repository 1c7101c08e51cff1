"""Releases that are made once and kept on disk, so that nobody releases the same sources again.

There are two forms. A *release file* (``release_once``) holds arrays by name and can grow; the lab uses it.
A *release folder* (``write_folder``, ``open_folder``) holds the items of a data set with their labels and their card;
``ReleasedDataset`` uses it. Its pixels are read in place, so it may be larger than memory.

Both are written under a temporary name and renamed when complete. Damage is an error and never a reason to release
again. The arrays of a release file have checksums, which are compared on reading.
"""

from __future__ import annotations

import json
import os
import shutil
import struct
import zipfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray

from ldp_slicing.card import Card, Statement
from ldp_slicing.errors import LdpSlicingError, ReleaseError
from ldp_slicing.files import atomic_path, sync_file
from ldp_slicing.formats.base import Member, Released
from ldp_slicing.opened import Item, OpenedReleases
from ldp_slicing.plan import Plan
from ldp_slicing.sets import CARD_NAME
from ldp_slicing.slicer import Slicer
from ldp_slicing.storage import LocalStorage
from ldp_slicing.torch.images import ImageKind
from ldp_slicing.torch.labels import from_column, to_column
from ldp_slicing.view import Prune, Size, to_rgb

INDEX_NAME = "index.json"
FOLDER_VERSION = 2  # no earlier one was in a released version
_NPY_HEADER_BYTES = 128  # room for the header of pixels.npy, which is written last
Array = NDArray[Any]


def release_once(
    path: Path, names: Sequence[str], release: Callable[[list[int]], Iterable[Array]], *, extend: bool = False
) -> list[Array]:
    """Return one array per name from a release file; release what is not there yet, and add it to the file first.

    release: takes the positions in ``names`` of the arrays to make, and returns them in that order. A name that occurs
        several times is made once.
    extend: whether names may be added to an existing file. If False, a missing name means that the file is damaged.

    Of several processes, one releases and the others wait for it.
    """
    with FileLock(path.with_suffix(".lock"), mode=0o666):
        exists = path.is_file()
        known: dict[str, Any] = read_release_file(path) if exists else {}
        missing = {name: i for i, name in reversed([*enumerate(names)]) if name not in known}
        if missing and exists and not extend:
            raise _damaged(path, f"it lacks {', '.join(sorted(missing))}")
        if missing:
            positions = sorted(missing.values())
            known |= zip((names[i] for i in positions), release(positions), strict=True)
            with atomic_path(path) as temporary:
                np.savez(temporary, **known)
    return [known[name] for name in names]


def read_release_file(path: Path) -> dict[str, Array]:
    """Return all arrays of a release file by name; raise LdpSlicingError if it is damaged."""
    try:
        with path.open("rb") as file, np.load(file) as content:
            return dict(content)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise _damaged(path, error) from None


def _damaged(path: Path, reason: object) -> LdpSlicingError:
    return LdpSlicingError(
        f"{path} is damaged, and its releases cannot be made again without spending again: {reason}. "
        "Restore it from a backup"
    )


class StoreExistsError(ReleaseError):
    """The folder exists already, or another process is writing it."""


@dataclass(frozen=True)
class Index:
    """How the items of a data set follow from the flat array of their pixels.

    kind: the type of the images, "pil", "tensor", "tv_tensor" or "array".
    items: the type of the items, "image", "tuple", "list" or "dict".
    shapes: int64 [N, D], the shape of each image.
    label_kinds: how each label is stored.
    labels: the labels of each item.
    times: the number of releases of the source that was released most often.
    keys: of items that are dicts, the key of the image and those of the labels.
    """

    kind: ImageKind
    items: str
    shapes: NDArray[np.int64]
    label_kinds: tuple[str, ...]
    labels: list[tuple[Any, ...]]
    times: int
    keys: tuple[str, ...] = ()

    def card(self, plan: Plan, prune: Prune, output: str, size: Size) -> Card:
        height, width = (-2, -1) if "tensor" in self.kind else (0, 1)
        sizes = tuple((w, h) for w, h in self.shapes[:, [width, height]].tolist())
        return Card((Statement.of(plan, prune, output, sizes, times=self.times, size=size),))


@dataclass(frozen=True)
class Releases:
    """The releases of a data set: index, flat pixels (uint8 or uint16), and the plan and view they were made with."""

    index: Index
    pixels: Array
    plan: Plan
    prune: Prune
    output: str
    size: Size
    is_secret: bool = True

    @cached_property
    def _offsets(self) -> NDArray[np.int64]:
        return np.concatenate(([0], np.cumsum(self.index.shapes.prod(axis=1))))

    def image(self, number: int) -> Array:
        """Return the pixels of a release: [C, H, W] if the images are tensors, else [H, W, C] or [H, W]."""
        begin, end = self._offsets[number : number + 2].tolist()
        return self.pixels[begin:end].reshape(self.index.shapes[number])


@dataclass(frozen=True)
class OpenedStore(OpenedReleases):
    """The releases of a store, one by one, in RGB or grey. They have numbers instead of file names."""

    stored: Releases

    def load(self, number: int) -> Released:
        """Return a release. Its labels are not kept data, which has names."""
        planes, plan = self.stored.image(number), self.stored.plan
        if "tensor" not in self.stored.index.kind:
            planes = np.moveaxis(planes, -1, 0) if planes.ndim == 3 else planes[None]
        if plan.is_colour:
            pixels = np.moveaxis(to_rgb(planes) if self.stored.output == "ycbcr" else planes, 0, -1)
        else:
            pixels = planes[0]
        return Released(pixels, plan.word_bits)


def partial_folder(folder: Path) -> Path:
    """Return the temporary name of a release folder while it is written."""
    return folder.with_name(f"{folder.name}.partial")


def write_folder(folder: Path, slicer: Slicer, write_pixels: Callable[[BinaryIO], Index]) -> None:
    """Create a release folder: the complete folder under its name, or nothing.

    write_pixels: writes the pixels of all releases to the file, and returns their index.

    Raises StoreExistsError if the folder is complete already, or if another process is writing it.
    """
    if not slicer.randomness.secret:
        raise ReleaseError(
            "seeded output is not private and gets no card, so it is not stored: leave randomness at its default"
        )
    _check_free(folder)
    partial = partial_folder(folder)
    try:
        partial.mkdir(parents=True)
    except FileExistsError:
        raise StoreExistsError(
            f"{partial} exists: another process is releasing to it, or was interrupted. If several processes train "
            "together, let one release and the others open. If it was interrupted, remove that folder and release "
            "again; if somebody has received its releases, the eps of the new ones adds to theirs"
        ) from None
    try:
        _check_free(folder)  # another process may have completed it just before this one began
        with open(partial / "pixels.npy", "xb") as file:
            file.write(bytes(_NPY_HEADER_BYTES))
            index = write_pixels(file)
            file.seek(0)
            file.write(_npy_header(index.shapes, slicer.plan.dtype))
        np.save(partial / "shapes.npy", index.shapes)
        for c, column in enumerate(zip(*index.labels, strict=True)):
            np.save(partial / f"labels-{c}.npy", to_column(column), allow_pickle=False)
        card = index.card(slicer.plan, slicer.prune, slicer.output, slicer.size)
        (partial / CARD_NAME).write_text(card.to_json())
        about = {"version": FOLDER_VERSION, "kind": index.kind, "items": index.items, "labels": index.label_kinds}
        about["keys"] = index.keys
        (partial / INDEX_NAME).write_text(json.dumps(about, indent=2) + "\n")
        for path in partial.iterdir():  # after a power cut the folder is complete or has no index
            with open(path, "rb+") as file:
                sync_file(file)
        if folder.exists():
            folder.rmdir()  # it is empty
        partial.rename(folder)
    except BaseException:
        shutil.rmtree(partial)
        raise


def _check_free(folder: Path) -> None:
    is_taken = folder.exists() and (not folder.is_dir() or any(folder.iterdir()))
    if (folder / INDEX_NAME).exists():  # looked up second: another process may complete the folder in between
        raise StoreExistsError(
            f"{folder} is already released: use ReleasedDataset.open({str(folder)!r}); "
            "releasing again would spend again"
        )
    if is_taken:
        raise ReleaseError(f"{folder} holds something else, or an incomplete copy of a store: name a new folder")


def _npy_header(shapes: NDArray[np.int64], dtype: np.dtype[Any]) -> bytes:
    """Return the header of pixels.npy: [N, ...] if all images have the same shape, else flat."""
    same = bool((shapes == shapes[0]).all())
    shape = (len(shapes), *shapes[0].tolist()) if same else (int(shapes.prod(axis=1).sum()),)
    described = repr({"descr": dtype.str, "fortran_order": False, "shape": shape})
    text = described.ljust(_NPY_HEADER_BYTES - 11).encode() + b"\n"
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(text)) + text


def is_store(path: str | os.PathLike[str]) -> bool:
    """Return whether a path is a store of ``ReleasedDataset``."""
    return (Path(path) / INDEX_NAME).is_file()


def open_store(folder: Path) -> OpenedStore:
    """Open a store in the way that ``ldp_slicing.opened.open_set`` opens the output of ``privatize``."""
    stored = open_folder(folder)
    card = stored.index.card(stored.plan, stored.prune, stored.output, stored.size)
    count = len(stored.index.shapes)
    items = tuple(Item(f"{number:0{len(str(count - 1))}}", Member("", number)) for number in range(count))
    return OpenedStore(str(folder), LocalStorage(folder), "", card, items, stored)


def open_folder(folder: Path) -> Releases:
    """Return the releases in a folder that ``write_folder`` made. Pixels are mapped into memory and not read."""
    if not (folder / INDEX_NAME).is_file():
        if (folder / CARD_NAME).is_file():
            raise ReleaseError(
                f"{folder} holds files that `ldp-slicing privatize` released: use open_releases({str(folder)!r})"
            )
        raise ReleaseError(
            f"{folder} holds no complete releases: it has no {INDEX_NAME}. Make them with store={str(folder)!r}"
        )
    try:
        about = json.loads((folder / INDEX_NAME).read_text())
        if about["version"] != FOLDER_VERSION:
            raise ValueError(f"layout {about['version']!r} instead of {FOLDER_VERSION}")
        pixels = np.asarray(np.load(folder / "pixels.npy", mmap_mode="r")).reshape(-1)
        shapes, kinds = np.load(folder / "shapes.npy"), tuple(about["labels"])
        columns = [from_column(np.load(folder / f"labels-{c}.npy"), kind) for c, kind in enumerate(kinds)]
        labels = list(zip(*columns, strict=True)) if columns else [()] * len(shapes)
        (statement,) = Card.read(folder / CARD_NAME).statements
        index = Index(about["kind"], about["items"], shapes, kinds, labels, statement.times, tuple(about["keys"]))
        plan = statement.plan
    except (OSError, EOFError, KeyError, TypeError, ValueError) as error:
        raise ReleaseError(f"{folder} is damaged: {error}") from error
    if shapes.prod(axis=1).sum() != len(pixels) or pixels.dtype != plan.dtype or len(labels) != len(shapes):
        raise ReleaseError(
            f"{folder} is damaged: its {len(shapes)} shapes do not fit its {len(pixels)} {pixels.dtype} values "
            "and labels"
        )
    return Releases(index, pixels, plan, statement.prune, statement.output, statement.size)
