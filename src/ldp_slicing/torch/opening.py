"""open_releases: releases as a data set, for an analyst who has only the releases and their card."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import Tensor
from torch.utils.data import Dataset

from ldp_slicing.card import Card
from ldp_slicing.errors import ReleaseError
from ldp_slicing.formats import load_format, suffix_of
from ldp_slicing.opened import OpenedReleases, open_set
from ldp_slicing.torch.dataset import ReleasedDataset, item_number
from ldp_slicing.torch.decode import check_transform
from ldp_slicing.torch.images import pixels_to_tensor
from ldp_slicing.torch.store import is_store

FOLDER = "folder"  # the label of a release that lies in the folder of its class
_ONE_PER_FILE = (".png", ".dcm")


def open_releases(
    path: str | os.PathLike[str], *, label: str | None = None, transform: Callable[[Any], Any] | None = None
) -> ReleasedFiles | ReleasedDataset:
    """Open releases by their card. Needs neither sources nor settings.

    >>> releases = open_releases("releases", transform=augment)                                      # doctest: +SKIP
    >>> image = releases[0]  # or (image, label), if there are labels                                # doctest: +SKIP
    >>> decoder = Decoder.from_card(releases.card, releases.images())                                # doctest: +SKIP

    path
        a folder that ``privatize`` wrote, a folder or file inside it, or one file with its card. It may hold image
        files, WebDataset shards, Parquet files (a Hugging Face repository), DICOM files and videos. A remote address
        such as hf://datasets/NAME/REPOSITORY needs the extra ``remote``. A folder that ``ReleasedDataset(store=...)``
        wrote is opened with ``ReleasedDataset.open``.
    label
        the name of the kept data to return beside each image, or "folder" for the number of the folder that the file
        lies in, see ``classes``. By default the only kept data that the card names; a dict if it names several; the
        folder if it names none and all files lie in folders; and nothing otherwise.
    transform
        is applied to the image on every access. A ``Decoder`` or ``Reconstructor`` for a plan other than the card's is
        refused, also within v2.Compose and when ``transform`` is assigned later. One that a function calls, such as a
        lambda, cannot be checked.
    """
    if is_store(path):
        if label is not None:
            raise ReleaseError(f"{path} is a store, whose items are as they were released: leave out label")
        return ReleasedDataset.open(path, transform=transform)
    return ReleasedFiles(open_set(os.fspath(path)), label=label, transform=transform)


class ReleasedFiles(Dataset[Any]):
    """The releases in files, one per item, in the order of their names. ``open_releases`` makes it.

    An item is an image, or an image and its label. An image is a tensor, uint8 [3, H, W] for colour, uint8 or uint16
    [1, H, W] for grey. Files are read on access, so the set may be larger than memory. A video is decoded as a whole.

    card
        the card. names: the path of each release, with its member if the file holds several.
    classes
        the names of the classes that labels are numbers of; empty if labels are something else.
    """

    def __init__(
        self, opened: OpenedReleases, *, label: str | None = None, transform: Callable[[Any], Any] | None = None
    ) -> None:
        self._opened = opened
        self.transform = transform
        self._label = self._choose_label(label)

    @property
    def card(self) -> Card:
        return self._opened.card

    @property
    def transform(self) -> Callable[[Any], Any] | None:
        """What is applied to the image on every access. A decoder for a plan other than the card's is refused."""
        return self._transform

    @transform.setter
    def transform(self, transform: Callable[[Any], Any] | None) -> None:
        check_transform(transform, self.card.statement)
        self._transform = transform

    @property
    def names(self) -> list[str]:
        return [item.name for item in self._opened.items]

    @cached_property
    def classes(self) -> tuple[str, ...]:
        if self._label == FOLDER:
            return tuple(sorted({self._folder(i) for i in range(len(self))}))
        first = self._opened.items[0].path
        if isinstance(self._label, str) and suffix_of(first) == ".parquet":
            with self._opened.place.open(first) as file:
                return tuple(load_format("parquet_columns", "parquet").class_names(file).get(self._label, ()))
        return ()

    def __len__(self) -> int:
        return len(self._opened)

    def __getitem__(self, index: int) -> Any:  # noqa: ANN401
        number = item_number(index, len(self))
        released = self._opened.load(number)
        image: Any = pixels_to_tensor(released.pixels)
        if self.transform is not None:
            image = self.transform(image)
        if self._label is None:
            return image
        if self._label == FOLDER:
            return image, self.classes.index(self._folder(number))
        kept = {name: released.kept.get(name) for name in self.card.kept}
        return image, kept[self._label] if self._label else kept

    def images(self, bits: int | None = None) -> Iterator[Tensor]:
        """Yield each release alone as [1, C, H, W], without transform and label: what ``Decoder.from_card`` takes.

        bits: only releases whose words have so many bits: 24 for colour, 1 to 16 for grey.
        """
        if bits is not None:
            self.card.statement(bits)  # raises if there are none
        for number in range(len(self)):
            released = self._opened.load(number)
            if bits in (None, released.bits):
                yield pixels_to_tensor(released.pixels)[None]

    def about(self, index: int) -> Mapping[str, Any]:
        """Return all data that was kept beside a release, by name; of a DICOM file also its SeriesInstanceUID."""
        return dict(self._opened.load(item_number(index, len(self))).kept)

    @cached_property
    def series(self) -> dict[str, list[int]]:
        """The items of each DICOM series, by its UID: by InstanceNumber if that was kept, and else by name."""
        found: dict[str, list[tuple[int, int]]] = {}
        for number in range(len(self)):
            kept = self._opened.load(number).kept
            if "SeriesInstanceUID" in kept:
                place = (kept.get("InstanceNumber", 0), number)
                found.setdefault(kept["SeriesInstanceUID"], []).append(place)
        return {uid: [number for _, number in sorted(places)] for uid, places in found.items()}

    def _folder(self, number: int) -> str:
        return Path(self._opened.items[number].path).parent.name

    def _choose_label(self, wanted: str | None) -> str | None:
        """Return the name of the label, "" for all kept data in a dict, or None if items are images alone."""
        kept, items = self.card.kept, self._opened.items
        if wanted is None and kept:
            return kept[0] if len(kept) == 1 else ""
        start = len(self._opened.below and f"{self._opened.below}/")
        are_in_folders = not self.card.random_names and all("/" in item.path[start:] for item in items)
        if wanted is None:
            is_by_class = are_in_folders and all(suffix_of(item.path) in _ONE_PER_FILE for item in items)
            return FOLDER if is_by_class else None
        if wanted not in (*kept, *([FOLDER] if are_in_folders else [])):
            known = ", ".join((*kept, *([FOLDER] if are_in_folders else []))) or "none"
            raise ReleaseError(f"{self._opened.name} has no label {wanted!r}; it has: {known}")
        return wanted
