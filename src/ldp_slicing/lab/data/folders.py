"""Image folders and lists: one folder per class, or a text file of paths and labels."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ldp_slicing.card import read_card, read_statement
from ldp_slicing.errors import DataError, LdpSlicingError, ReleaseError
from ldp_slicing.images import read_image
from ldp_slicing.lab.data.sets import ImageSet, ReleaseInfo, Split, require_file, require_folder
from ldp_slicing.manifest import CARD_NAME, MANIFEST_NAME, has_card, read_manifest
from ldp_slicing.plan import COLOUR_BITS
from ldp_slicing.storage import LocalStorage

SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff"})


def read_images(
    paths: Sequence[Path], *, size: tuple[int, int] | None = None, grey: bool | None = False
) -> NDArray[np.uint8]:
    """uint8 [N, H, W, 3], or [N, H, W, 1] with ``grey``, from N files of one size; ``size`` (width, height) resizes them to it.

    ``grey`` None: as they are, if all are; where some are colour, all become so.
    """
    if not paths:
        raise DataError("no images to read")
    if grey is None:
        grey = all_grey(paths)
    first = _read(paths[0], size, grey)
    images = np.empty((len(paths), *first.shape), np.uint8)

    def fill(i: int) -> None:
        picture = _read(paths[i], size, grey)
        if picture.shape != first.shape:
            found, wanted = (f"{shape[1]} x {shape[0]}" for shape in (picture.shape, first.shape))
            raise DataError(f"{paths[i]} is {found}, the first image {wanted}: images of one set are of one size")
        images[i] = picture

    with ThreadPoolExecutor() as pool:  # decoding runs without Python's lock
        deque(pool.map(fill, range(len(paths))), maxlen=0)
    return images


def all_grey(paths: Iterable[Path]) -> bool:
    """Whether `privatize` would take each of them for grey, by their heads."""

    def is_grey(path: Path) -> bool:
        try:
            with Image.open(path) as picture:
                return picture.mode in ("1", "L", "LA") or picture.mode.startswith("I;16")
        except (OSError, ValueError):
            return False  # whoever reads it says what is wrong

    return all(map(is_grey, paths))


def _read(path: Path, size: tuple[int, int] | None, grey: bool) -> NDArray[np.uint8]:
    try:
        pixels = read_image(path).pixels
    except LdpSlicingError as error:
        raise DataError(f"{path}: {error}") from None
    if pixels.dtype != np.uint8:
        raise DataError(f"{path} is deeper than 8 bits; such images are not trained on here")
    picture = Image.fromarray(pixels).convert("L" if grey else "RGB")
    if size is not None and picture.size != size:
        picture = picture.resize(size, Image.Resampling.BILINEAR)
    return np.asarray(picture).reshape(picture.height, picture.width, -1)


def read_folder(
    root: Path, *, size: tuple[int, int] | None = None, grey: bool | None = False
) -> tuple[Split, list[str]]:
    """``root/CLASS/*`` in the order of names, as torchvision's ImageFolder has it, and the names of the classes."""
    folders = [
        path for path in sorted(require_folder(root, "a folder with one folder per class").iterdir()) if path.is_dir()
    ]
    pictures = {path.name: found for path in folders if (found := list_images(path))}
    classes = list(pictures)
    files = [(path, i) for i, found in enumerate(pictures.values()) for path in found]
    if not files:
        raise DataError(
            f"{root} holds no images in folders of their class; DICOM and more than 8 bits are not learnt from here"
        )
    return Split(
        read_images([path for path, _ in files], size=size, grey=grey),
        np.array([label for _, label in files], np.int64),
    ), classes


def list_images(root: Path) -> list[Path]:
    return [path for path in sorted(root.rglob("*")) if path.suffix.lower() in SUFFIXES]


def read_list(path: Path, *, size: tuple[int, int] | None = None, grey: bool | None = False) -> Split:
    """Lines of ``relative/path.jpg 7``: an image beside the list, or below it, or its release, and the number of its class."""
    files, labels = zip(*_listed(path), strict=True)
    return Split(read_images(files, size=size, grey=grey), np.array(labels, np.int64))


def _listed(path: Path) -> list[tuple[Path, int]]:
    found = []
    for number, line in enumerate(
        require_file(path, "a list of images and classes").read_text(encoding="utf-8").splitlines(), 1
    ):
        if not line.strip():
            continue
        name, _, label = line.strip().rpartition(" ")
        if not name or not (label.isascii() and label.isdigit()):
            raise DataError(f"{path}, line {number}: {line!r} is not a path and the number of a class")
        file = (path.parent / name).resolve()
        if not file.is_relative_to(path.parent.resolve()):
            raise DataError(f"{path}, line {number}: {name!r} leads out of the list's folder")
        found.append(
            (file if file.exists() or not file.with_suffix(".png").is_file() else file.with_suffix(".png"), int(label))
        )
    if not found:
        raise DataError(f"{path} names no images")
    return found


def load_folder(root: Path, *, size: tuple[int, int] | None = None) -> ImageSet:
    """``root/train`` and ``root/test``, each a folder of classes, or ``train.txt`` and ``test.txt``, each a list.

    Grey where all images are. What a card of `privatize` covers is a release.
    """
    if (root / "train.txt").is_file():
        files = [file for name in ("train", "test") for file, _ in _listed(root / f"{name}.txt")]
    else:
        files = [file for name in ("train", "test") for file in list_images(root / name)]
    grey = bool(files) and all_grey(files)
    release_info = read_release_info(files, grey=grey)
    return replace(_load_folder(root, size, grey=grey), release_info=release_info)


def read_release_info(files: Sequence[Path], *, grey: bool) -> ReleaseInfo | None:
    """What cards say of these files, each by the nearest one above it; None where they are sources. Both together are refused."""
    folders = {file.parent for file in files}
    cards = {_card_over(folder.resolve()) for folder in folders}
    if cards <= {None}:
        return None
    found = sorted(card for card in cards if card)
    if None in cards:
        raise DataError(
            f"{found[0]} says that some of the images are releases, and others have no card: they are not mixed"
        )
    first, *more = (_given(card, grey=grey) for card in found)
    if any((other.plan, other.prune) != (first.plan, first.prune) for other in more):
        raise DataError(f"{found[0]} and {found[1]} name different plans or views: a set to learn from has one")
    return replace(first, spent=sum(one.spent for one in (first, *more)))  # a source may be on each of them


def _card_over(folder: Path) -> Path | None:
    """Where its card lies, or should: where a manifest does there are releases, too."""
    return next(
        (
            place.root / CARD_NAME
            for place in map(LocalStorage, (folder, *folder.parents))
            if has_card(place) or _has_manifest(place)
        ),
        None,
    )


def _has_manifest(place: LocalStorage) -> bool:
    """Whether it is one of `privatize`: others have files of that name, too."""
    try:
        return place.size(MANIFEST_NAME) is not None and next(read_manifest(place), None) is not None
    except ReleaseError:
        return False


def _given(card: Path, *, grey: bool) -> ReleaseInfo:
    """What the card says of such images, if it speaks of no others: to decode, their word must be known."""
    try:
        statements = [read_statement(one) for one in read_card(card.read_bytes()).statements]
    except (OSError, LdpSlicingError) as error:
        raise DataError(f"{card} is no card that can be read: {error}") from None
    if [one.plan.word_bits for one in statements] != [8 if grey else COLOUR_BITS]:
        words = ", ".join(str(one.plan.word_bits) for one in statements)
        raise DataError(
            f"{card} speaks of words of {words} bits: a set to learn from has colour (24) or 8-bit grey releases, and no others"
        )
    return ReleaseInfo(statements[0].plan, statements[0].prune, statements[0].spent[0])


def _load_folder(root: Path, size: tuple[int, int] | None, *, grey: bool) -> ImageSet:
    if (root / "train.txt").is_file():
        train, test = (read_list(root / f"{name}.txt", size=size, grey=grey) for name in ("train", "test"))
        classes = 1 + int(max(train.labels.max(), test.labels.max()))
        return ImageSet(root.name, classes, train, test)
    (train, names), (test, tested) = (read_folder(root / name, size=size, grey=grey) for name in ("train", "test"))
    if names != tested:
        raise DataError(f"{root}: the classes of train, {', '.join(names)}, are not those of test, {', '.join(tested)}")
    return ImageSet(root.name, len(names), train, test)
