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

from ldp_slicing.card import Card
from ldp_slicing.errors import DataError, LdpSlicingError, ReleaseError
from ldp_slicing.images import read_image
from ldp_slicing.lab.data.sets import ImageSet, ReleaseInfo, Split, require_file, require_folder
from ldp_slicing.manifest import read_manifest
from ldp_slicing.plan import COLOUR_BITS
from ldp_slicing.sets import CARD_NAME, MANIFEST_NAME, has_card
from ldp_slicing.storage import LocalStorage

SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff"})


def read_images(
    paths: Sequence[Path], *, size: tuple[int, int] | None = None, grey: bool | None = False
) -> NDArray[np.uint8]:
    """Read N files as uint8 [N, H, W, 3], or [N, H, W, 1] if ``grey``.

    size: (width, height) to resize to; without it all files must have one size.
    grey: None means grey if all images are grey, and colour otherwise.
    """
    if not paths:
        raise DataError("no images to read")
    if grey is None:
        grey = all_grey(paths)
    first = _read(paths[0], size, grey)
    images = np.empty((len(paths), *first.shape), np.uint8)

    def fill(i: int) -> None:
        image = _read(paths[i], size, grey)
        if image.shape != first.shape:
            found, expected = (f"{shape[1]} x {shape[0]}" for shape in (image.shape, first.shape))
            raise DataError(f"{paths[i]} is {found}, but the first image is {expected}: resize them to one size")
        images[i] = image

    with ThreadPoolExecutor() as pool:  # decoding releases Python's lock
        deque(pool.map(fill, range(len(paths))), maxlen=0)
    return images


def all_grey(paths: Iterable[Path]) -> bool:
    """Whether `privatize` would read each of these files as grey, judging by its header."""

    def is_grey(path: Path) -> bool:
        try:
            with Image.open(path) as image:
                return image.mode in ("1", "L", "LA") or image.mode.startswith("I;16")
        except (OSError, ValueError):
            return False  # reading the file reports what is wrong

    return all(map(is_grey, paths))


def _read(path: Path, size: tuple[int, int] | None, grey: bool) -> NDArray[np.uint8]:
    try:
        pixels = read_image(path).pixels
    except LdpSlicingError as error:
        raise DataError(f"{path}: {error}") from None
    if pixels.dtype != np.uint8:
        raise DataError(f"{path} has more than 8 bits per channel: convert it to 8 bits")
    image = Image.fromarray(pixels).convert("L" if grey else "RGB")
    if size is not None and image.size != size:
        image = image.resize(size, Image.Resampling.BILINEAR)
    return np.asarray(image).reshape(image.height, image.width, -1)


def read_folder(
    root: Path, *, size: tuple[int, int] | None = None, grey: bool | None = False
) -> tuple[Split, list[str]]:
    """Read ``root/CLASS/*`` in the order of names, like torchvision's ImageFolder. Returns the classes' names too."""
    folders = [
        path for path in sorted(require_folder(root, "a folder with one folder per class").iterdir()) if path.is_dir()
    ]
    by_class = {path.name: found for path in folders if (found := list_images(path))}
    files = [(path, i) for i, found in enumerate(by_class.values()) for path in found]
    if not files:
        raise DataError(
            f"{root} has no images in class folders: put 8-bit images into one folder per class (DICOM files cannot be "
            "trained on)"
        )
    images = read_images([path for path, _ in files], size=size, grey=grey)
    return Split(images, np.array([label for _, label in files], np.int64)), list(by_class)


def list_images(root: Path) -> list[Path]:
    """All image files in a folder and its subfolders, by name."""
    return [path for path in sorted(root.rglob("*")) if path.suffix.lower() in SUFFIXES]


def read_list(path: Path, *, grey: bool | None = False) -> Split:
    """Read a list with lines such as ``relative/path.jpg 7``: an image in the list's folder and its class number.

    If the image does not exist, its release is read: the same path with the suffix .png.
    """
    files, labels = zip(*listed_images(path), strict=True)
    return Split(read_images(files, grey=grey), np.array(labels, np.int64))


def listed_images(path: Path) -> list[tuple[Path, int]]:
    """The images and class numbers of a list, see ``read_list``."""
    found = []
    for number, line in enumerate(
        require_file(path, "a list of images and classes").read_text(encoding="utf-8").splitlines(), 1
    ):
        if not line.strip():
            continue
        name, _, label = line.strip().rpartition(" ")
        if not name or not (label.isascii() and label.isdigit()):
            raise DataError(f"{path}, line {number}: {line!r} should be a path and the number of a class")
        file = (path.parent / name).resolve()
        if not file.is_relative_to(path.parent.resolve()):
            raise DataError(f"{path}, line {number}: {name!r} is outside the list's folder")
        release = file.with_suffix(".png")
        found.append((release if not file.exists() and release.is_file() else file, int(label)))
    if not found:
        raise DataError(f"{path} names no images")
    return found


def load_folder(root: Path) -> ImageSet:
    """Load ``root/train`` and ``root/test`` (one folder per class), or the lists ``train.txt`` and ``test.txt``.

    The set is grey if all images are. Images that a card of `privatize` covers are releases.
    """
    if not any((root / name).exists() for name in ("train", "train.txt")):
        require_folder(root, "a folder with this name")
        whole = root.absolute()
        if has_card(LocalStorage(root)):  # lists do not belong among releases
            raise DataError(
                f"{root} holds releases without labels: list them in {whole.parent / 'train.txt'} and test.txt beside "
                f"it, one on each line with the number of its class, such as `{whole.name}/NAME.png 0`, and train on "
                f"the set {whole.parent.name} with --data {whole.parent.parent}"
            )
        raise DataError(
            f"{root} has neither train/ and test/, each with one folder per class, nor train.txt and test.txt, which "
            "list images and the numbers of their classes, one image on each line, such as `NAME.png 0`"
        )
    if (root / "train.txt").is_file():
        files = [file for name in ("train", "test") for file, _ in listed_images(root / f"{name}.txt")]
    else:
        files = [file for name in ("train", "test") for file in list_images(root / name)]
    grey = bool(files) and all_grey(files)
    release_info = read_release_info(files, grey=grey)
    return replace(_load_folder(root, grey=grey), release_info=release_info)


def read_release_info(files: Sequence[Path], *, grey: bool) -> ReleaseInfo | None:
    """What the nearest card above each file says; None if the files are sources. A mixture of both is refused."""
    cards = {_find_card(folder.resolve()) for folder in {file.parent for file in files}}
    if cards <= {None}:
        return None
    found = sorted(card for card in cards if card)
    if None in cards:
        raise DataError(f"{found[0]} covers some images, and others have no card: keep sources and releases apart")
    first, *more = (_read_card(card, grey=grey) for card in found)
    if any((other.plan, other.prune) != (first.plan, first.prune) for other in more):
        raise DataError(f"{found[0]} and {found[1]} have different plans or views: train on one plan at a time")
    return replace(first, spent=sum(info.spent for info in (first, *more)))  # all may cover the same source


def _find_card(folder: Path) -> Path | None:
    """The card of the folder or of its nearest parent. A manifest shows that there should be a card beside it."""
    for place in map(LocalStorage, (folder, *folder.parents)):
        if has_card(place) or _has_manifest(place):
            return place.root / CARD_NAME
    return None


def _has_manifest(place: LocalStorage) -> bool:
    """Whether there is a manifest of `privatize`. Other software uses the same file name."""
    try:
        return place.size(MANIFEST_NAME) is not None and next(read_manifest(place), None) is not None
    except ReleaseError:
        return False


def _read_card(card: Path, *, grey: bool) -> ReleaseInfo:
    """The card's one statement. A card with several does not tell which of them covers an image."""
    try:
        statements = Card.read(card).statements
    except LdpSlicingError as error:
        raise DataError(str(error)) from None
    if [one.plan.word_bits for one in statements] != [8 if grey else COLOUR_BITS]:
        words = ", ".join(str(one.plan.word_bits) for one in statements)
        raise DataError(
            f"{card} covers words of {words} bits: train on releases that are all colour (24) or all 8-bit grey"
        )
    return ReleaseInfo(statements[0].plan, statements[0].prune, statements[0].most_spent[0])


def _load_folder(root: Path, *, grey: bool) -> ImageSet:
    if (root / "train.txt").is_file():
        train, test = (read_list(root / f"{name}.txt", grey=grey) for name in ("train", "test"))
        classes = 1 + int(max(train.labels.max(), test.labels.max()))
        return ImageSet(root.name, classes, train, test)
    (train, names), (test, tested) = (read_folder(root / name, grey=grey) for name in ("train", "test"))
    if names != tested:
        raise DataError(f"{root}: the classes of train, {', '.join(names)}, are not those of test, {', '.join(tested)}")
    return ImageSet(root.name, len(names), train, test)
