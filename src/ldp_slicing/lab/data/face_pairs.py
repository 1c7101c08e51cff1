"""Face verification: the pairs, the InsightFace sets, embeddings and the ten-fold protocol."""

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
from ldp_slicing.pickles import DataOnlyUnpickler

FORMATS = ("JPEG", "PNG")  # nothing else is tried on bytes from outside


class Face(NamedTuple):
    name: str
    number: int

    def file(self, suffix: str = ".jpg") -> Path:
        """Where LFW keeps it, relative to the set: ``Aaron_Peirsol/Aaron_Peirsol_0001.jpg``."""
        return Path(self.name) / f"{self.name}_{self.number:04d}{suffix}"


@dataclass(frozen=True)
class Pairs:
    """N pairs of faces, bool [N] whether they are one person, int64 [N] the fold of each, from 0."""

    first: tuple[Face, ...]
    second: tuple[Face, ...]
    same: NDArray[np.bool_]
    folds: NDArray[np.int64]


def read_pairs(path: Path) -> Pairs:
    """N = folds x 2 x count pairs from LFW's ``pairs.txt`` (View 2: 10 folds of 300 pairs of one person, then 300 of two).

    The first line says ``folds count`` (or, in View 1, only ``count``). A name that could lead out of the set's folder is refused.
    """
    lines = [
        line.split()
        for line in require_file(path, "LFW's list of pairs").read_text(encoding="utf-8").splitlines()
        if line.strip()
    ]
    folds, count = _header(lines[0] if lines else [], path)
    rows = lines[1:]
    if len(rows) != folds * 2 * count:
        raise DataError(f"{path} holds {len(rows)} pairs; its first line promises {folds} x 2 x {count}")
    same = np.arange(len(rows)) % (2 * count) < count
    pairs = [_pair(row, bool(one), f"{path}, pair {i}") for i, (row, one) in enumerate(zip(rows, same, strict=True), 1)]
    first, second = zip(*pairs, strict=True)
    return Pairs(first, second, same, np.arange(len(rows)) // (2 * count))


def _header(fields: list[str], path: Path) -> tuple[int, int]:
    if len(fields) not in (1, 2) or not all(field.isascii() and field.isdigit() and int(field) for field in fields):
        raise DataError(
            f"{path} begins with {' '.join(fields)!r}; the number of folds and of pairs is expected, as in '10 300'"
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
    """2 N encoded images and bool [N], whether images 2 i and 2 i + 1 show one person, from an InsightFace ``.bin`` set.

    Such a file is a pickle of (images, same). It is read as data: a file that names anything to be called, other than what makes up an
    array or bytes, is refused before it is called.
    """
    encoded = require_file(path, "an InsightFace verification set").read_bytes()
    try:
        content = DataOnlyUnpickler(io.BytesIO(encoded), encoding="bytes").load()
    except DataError:
        raise
    except Exception as error:  # a damaged pickle raises anything
        raise DataError(f"{path} is not a pickled verification set: {type(error).__name__}: {error}") from None
    if not isinstance(content, tuple | list) or len(content) != 2:
        raise DataError(f"{path} is not a verification set: a pair of images and answers is expected")
    images, same = ([*part] if isinstance(part, list | tuple | np.ndarray) else [] for part in content)
    if not same or len(images) != 2 * len(same):
        raise DataError(f"{path} holds {len(images)} images for {len(same)} pairs; two for each pair are expected")
    return [_encoded(image, path) for image in images], np.array([_answer(value, path) for value in same], np.bool_)


def _encoded(image: Any, path: Path) -> bytes:  # noqa: ANN401 - whatever the file holds
    if isinstance(image, bytes):
        return image
    if isinstance(image, np.ndarray) and image.dtype == np.uint8 and image.ndim == 1:
        return image.tobytes()
    raise DataError(f"{path} holds a {type(image).__name__} where the bytes of an image are expected")


def _answer(value: Any, path: Path) -> bool:  # noqa: ANN401 - whatever the file holds
    if isinstance(value, bool | np.bool_ | int | np.integer) and value in (0, 1):
        return bool(value)
    raise DataError(f"{path} holds {value!r} where true or false is expected")


def decode_faces(encoded: Sequence[bytes], *, size: int = 112) -> NDArray[np.uint8]:
    """uint8 [N, size, size, 3], RGB, from N JPEG or PNG images of exactly that size, in colour or grey."""
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
                f"is {image.width} x {image.height} of mode {image.mode}; {size} x {size} in 8-bit colour or grey is expected"
            )
        return np.asarray(image.convert("RGB"), np.uint8)
