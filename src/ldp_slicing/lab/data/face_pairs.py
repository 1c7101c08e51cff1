"""Pairs of faces for verification: LFW's pairs.txt and the InsightFace sets."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ldp_slicing.errors import DataError
from ldp_slicing.lab.data.sets import require_file
from ldp_slicing.pickles import load_data_only

FORMATS = ("JPEG", "PNG")  # other decoders are not tried on untrusted bytes


class Face(NamedTuple):
    name: str
    number: int

    def file(self, suffix: str = ".jpg") -> Path:
        """Its path in LFW, such as ``Aaron_Peirsol/Aaron_Peirsol_0001.jpg``."""
        return Path(self.name) / f"{self.name}_{self.number:04d}{suffix}"


@dataclass(frozen=True)
class Pairs:
    """N pairs of faces. same: bool [N], whether both are one person. folds: int64 [N], from 0."""

    first: tuple[Face, ...]
    second: tuple[Face, ...]
    same: NDArray[np.bool_]
    folds: NDArray[np.int64]


def read_pairs(path: Path) -> Pairs:
    """Read LFW's ``pairs.txt``: for each fold ``count`` pairs of one person, then ``count`` pairs of two people.

    The first line is ``folds count``, in View 2 "10 300", or only ``count`` in View 1. A name that leads outside the
    set's folder is refused.
    """
    lines = [
        line.split()
        for line in require_file(path, "LFW's list of pairs").read_text(encoding="utf-8").splitlines()
        if line.strip()
    ]
    folds, count = _header(lines[0] if lines else [], path)
    rows = lines[1:]
    if len(rows) != folds * 2 * count:
        raise DataError(f"{path} holds {len(rows)} pairs; its first line announces {folds} x 2 x {count}")
    same = np.arange(len(rows)) % (2 * count) < count
    pairs = [_pair(row, bool(one), f"{path}, pair {i}") for i, (row, one) in enumerate(zip(rows, same, strict=True), 1)]
    first, second = zip(*pairs, strict=True)
    return Pairs(first, second, same, np.arange(len(rows)) // (2 * count))


def _header(fields: list[str], path: Path) -> tuple[int, int]:
    if len(fields) not in (1, 2) or not all(field.isascii() and field.isdigit() and int(field) for field in fields):
        raise DataError(
            f"{path} begins with {' '.join(fields)!r}; expected the number of folds and of pairs, such as '10 300'"
        )
    numbers = [int(field) for field in fields]
    return (1, numbers[0]) if len(numbers) == 1 else (numbers[0], numbers[1])


def _pair(fields: list[str], same: bool, where: str) -> tuple[Face, Face]:
    if same and len(fields) == 3:
        return _face(fields[0], fields[1], where), _face(fields[0], fields[2], where)
    if not same and len(fields) == 4:
        return _face(fields[0], fields[1], where), _face(fields[2], fields[3], where)
    expected = "'name number number'" if same else "'name number name number'"
    raise DataError(f"{where}: {' '.join(fields)!r} is not {expected}")


def _face(name: str, number: str, where: str) -> Face:
    if not (number.isascii() and number.isdigit()) or name.startswith(".") or any(c in name for c in "/\\:\0"):
        raise DataError(f"{where}: {name!r} {number!r} is not a person and a number")
    return Face(name, int(number))


def read_bin(path: Path) -> tuple[list[bytes], NDArray[np.bool_]]:
    """Read an InsightFace ``.bin`` set: 2 N encoded images, and bool [N], whether 2 i and 2 i + 1 show one person.

    The file is a pickle of (images, same). It is read as data: anything callable in it, other than what makes up arrays
    and bytes, is refused and not called.
    """
    encoded = require_file(path, "an InsightFace verification set").read_bytes()
    try:
        content = load_data_only(encoded)
    except DataError:
        raise
    except Exception as error:  # a damaged pickle raises anything
        raise DataError(f"{path} is not a pickled verification set: {type(error).__name__}: {error}") from None
    if not isinstance(content, tuple | list) or len(content) != 2:
        raise DataError(f"{path} is not a verification set: expected a pair of images and answers")
    images, same = ([*part] if isinstance(part, list | tuple | np.ndarray) else [] for part in content)
    if not same or len(images) != 2 * len(same):
        raise DataError(f"{path} holds {len(images)} images for {len(same)} pairs; expected two per pair")
    return [_encoded(image, path) for image in images], np.array([_answer(value, path) for value in same], np.bool_)


def _encoded(image: Any, path: Path) -> bytes:  # noqa: ANN401 - whatever the file holds
    if isinstance(image, bytes):
        return image
    if isinstance(image, np.ndarray) and image.dtype == np.uint8 and image.ndim == 1:
        return image.tobytes()
    found = f"an array of {image.ndim} dimensions" if isinstance(image, np.ndarray) else f"a {type(image).__name__}"
    raise DataError(f"{path} holds {found} instead of the bytes of an image")


def _answer(value: Any, path: Path) -> bool:  # noqa: ANN401 - whatever the file holds
    if isinstance(value, bool | np.bool_ | int | np.integer) and value in (0, 1):
        return bool(value)
    raise DataError(f"{path} holds {value!r} instead of true or false")


def decode_faces(encoded: Sequence[bytes], *, size: int = 112) -> NDArray[np.uint8]:
    """Decode N JPEG or PNG images of exactly that size, colour or grey, to uint8 [N, size, size, 3], RGB."""
    images = np.empty((len(encoded), size, size, 3), np.uint8)
    for i, content in enumerate(encoded):
        try:
            images[i] = _decode(content, size)
        except DataError as error:
            raise DataError(f"image {i}: {error}") from None
        except Exception as error:  # decoders raise many things on damaged files
            raise DataError(f"image {i} cannot be decoded: {type(error).__name__}: {error}") from None
    return images


def _decode(content: bytes, size: int) -> NDArray[np.uint8]:
    with Image.open(io.BytesIO(content), formats=FORMATS) as image:
        if image.size != (size, size) or image.mode not in ("RGB", "L"):  # before anything large is allocated
            raise DataError(
                f"is {image.width} x {image.height}, mode {image.mode}; expected {size} x {size}, 8-bit colour or grey"
            )
        return np.asarray(image.convert("RGB"), np.uint8)
