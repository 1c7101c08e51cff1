"""Face verification: the pairs, the InsightFace sets, embeddings and the ten-fold protocol."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional

from ldp_slicing.errors import DataError
from ldp_slicing.lab.data import need_file
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
        for line in need_file(path, "LFW's list of pairs").read_text(encoding="utf-8").splitlines()
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
    encoded = need_file(path, "an InsightFace verification set").read_bytes()
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


def embed(
    model: nn.Module,
    images: Tensor,
    flip: bool = True,
    *,
    prepare: Callable[[Tensor], Tensor] | None = None,
    batch: int = 64,
) -> Tensor:
    """[N, 3, H, W], whatever ``prepare`` (or without it the model) takes, to float32 [N, D] of length 1, on the CPU.

    With ``flip`` the embedding is that of the image plus that of its mirror. The mirror is made here, of the **same release**: it is
    post-processing and free. Releasing a source and its mirror separately would be two releases of one source and spend 2 eps.
    """
    device = next((parameter.device for parameter in model.parameters()), images.device)
    was_training = model.training
    model.eval()
    try:
        with torch.inference_mode():
            starts = range(0, len(images), batch)
            parts = [_embed(model, images[i : i + batch].to(device), flip, prepare).float().cpu() for i in starts]
    finally:
        model.train(was_training)
    return functional.normalize(torch.cat(parts))


def _embed(model: nn.Module, images: Tensor, flip: bool, prepare: Callable[[Tensor], Tensor] | None) -> Tensor:
    total: Tensor = model(prepare(images) if prepare else images)
    return total + _embed(model, images.flip(-1), False, prepare) if flip else total


def squared_distances(a: Tensor, b: Tensor) -> NDArray[np.float64]:
    """Two [N, D] to float64 [N]: row by row; 0..4 for rows of length 1."""
    if a.shape != b.shape or a.ndim != 2:
        raise ValueError(f"embeddings of shapes {tuple(a.shape)} and {tuple(b.shape)} do not pair up as [N, D]")
    distances: NDArray[np.float64] = (a.detach().double() - b.detach().double()).square().sum(1).cpu().numpy()
    return distances


@dataclass(frozen=True)
class Verification:
    """Shares of pairs, 0..1: the mean over the folds, its standard error, each fold's accuracy, and each fold's threshold."""

    accuracy: float
    standard_error: float
    per_fold: NDArray[np.float64]
    thresholds: NDArray[np.float64]


def fold_accuracy(distances: ArrayLike, same: ArrayLike, folds: ArrayLike | int = 10) -> Verification:
    """float [N] distances, bool [N] answers and int [N] folds (or how many folds of neighbours to cut) to the accuracy over the folds.

    Each fold is judged by the threshold that is best on the others; a pair below it is taken for one person.
    """
    values, truth = np.asarray(distances, np.float64), np.asarray(same, np.bool_)
    groups = np.asarray(_cut(len(values), folds) if isinstance(folds, int) else folds)
    if values.ndim != 1 or truth.shape != values.shape or groups.shape != values.shape:
        raise ValueError(
            f"distances {values.shape}, answers {truth.shape} and folds {groups.shape} are not of one length"
        )
    if not np.isfinite(values).all():
        raise ValueError("some distances are not finite: the model or its input is broken")
    names = np.unique(groups)
    if len(names) < 2:
        raise ValueError(f"{len(names)} folds: a threshold needs another fold to be chosen on")
    thresholds = np.array([best_threshold(values[groups != name], truth[groups != name]) for name in names])
    hits = [
        (values[groups == name] < threshold) == truth[groups == name]
        for name, threshold in zip(names, thresholds, strict=True)
    ]
    per_fold = np.array([hit.mean() for hit in hits])
    return Verification(float(per_fold.mean()), float(per_fold.std(ddof=1) / len(names) ** 0.5), per_fold, thresholds)


def _cut(count: int, folds: int) -> NDArray[np.int64]:
    """int64 [count]: neighbours in folds of equal size, the first ones larger by one where it does not divide."""
    if not 2 <= folds <= count:
        raise ValueError(f"{folds} folds cannot be cut from {count} pairs")
    sizes = [len(part) for part in np.array_split(np.empty(count), folds)]
    return np.repeat(np.arange(folds, dtype=np.int64), sizes)


def best_threshold(distances: NDArray[np.float64], same: NDArray[np.bool_]) -> float:
    """float64 [N] and bool [N] to the threshold under which most pairs are judged rightly; of equals the smallest.

    The candidates lie midway between neighbouring distances, and below and above all of them (minus and plus infinity).
    """
    order = np.argsort(distances, kind="stable")
    ordered, truth = distances[order], same[order]
    # right[i]: pairs judged rightly when exactly the i nearest are taken for one person
    right = np.concatenate([[0], np.cumsum(np.where(truth, 1, -1))]) + np.count_nonzero(~truth)
    lower, upper = ordered[:-1], ordered[1:]
    middle = lower / 2 + upper / 2
    middle = np.where(middle > lower, middle, upper)  # between neighbouring floats there is none
    candidates = np.concatenate([[-np.inf], middle, [np.inf]])
    possible = np.concatenate([[True], lower < upper, [True]])  # equal distances cannot be told apart
    return float(candidates[possible][np.argmax(right[possible])])
