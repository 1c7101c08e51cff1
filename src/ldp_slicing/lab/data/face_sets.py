"""Verification sets of faces: an InsightFace ``.bin``, a folder with LFW's ``pairs.txt``, or people to draw pairs from.

No code in a file is run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ldp_slicing.errors import DataError
from ldp_slicing.lab.data.face_pairs import Face, decode_faces, read_bin, read_pairs
from ldp_slicing.lab.data.folders import SUFFIXES, list_images, listed_images, read_images, read_release_info

FOLDS = 10
SIDE = 112  # of an aligned face, in pixels
PAIRS = 300  # matching pairs in a fold, and as many others, as in LFW
ALL_AT_ONCE = 100_000  # so many possible pairs are listed; of more, some are drawn


@dataclass(frozen=True, eq=False)
class FacePairs:
    """P pairs of N faces. first, second: int64 [P], positions of faces. same: bool [P]. folds: int64 [P], from 0."""

    first: NDArray[np.int64]
    second: NDArray[np.int64]
    same: NDArray[np.bool_]
    folds: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class VerificationSet:
    """uint8 [N, 112, 112, 3] faces, and pairs of them. drawn: how many matching pairs of a fold, if they were drawn."""

    name: str
    images: NDArray[np.uint8]
    pairs: FacePairs
    drawn: int | None = None


def open_face_set(path: Path, *, count: int = PAIRS) -> VerificationSet:
    """Open a verification set of aligned faces, 112 x 112.

    path: an InsightFace ``.bin``; a folder of people, with or without LFW's ``pairs.txt``; or a list of images and the
    numbers of their people, as CelebA's. count: of the pairs that are drawn if the set has none, by
    ``draw_face_pairs``.
    """
    if path.suffix == ".bin":
        return _from_bin(path)
    if path.is_dir():
        if (path / "pairs.txt").is_file():
            return _from_pairs(path)
        files: Sequence[Path] = list_images(path)
        people: ArrayLike
        if read_release_info(files, grey=False):
            raise DataError(f"{path} holds releases: name a set of sources, each of which is released here")
        people = np.unique([file.parent.as_posix() for file in files], return_inverse=True)[1] if files else []
    elif path.suffix == ".txt":
        files, people = zip(*listed_images(path), strict=True)
    else:
        raise DataError(f"{path} is no verification set: name a .bin file, a folder of people, or a list (.txt)")
    if not files:
        raise DataError(f"{path} has no images: name a folder with one folder per person")
    try:
        pairs = draw_face_pairs(np.asarray(people, np.int64), count=count)
    except DataError as error:
        raise DataError(f"{path}: {error}") from None
    return replace(_with_files(path, files, pairs), drawn=count)


def _from_bin(path: Path) -> VerificationSet:
    encoded, same = read_bin(path)
    if len(same) < FOLDS:
        raise DataError(f"{path} holds {len(same)} pairs, which is too few for {FOLDS} folds")
    faces = list(dict.fromkeys(encoded))  # each is released once
    position = {face: i for i, face in enumerate(faces)}
    where = np.array([position[face] for face in encoded], np.int64)
    sizes = [len(part) for part in np.array_split(same, FOLDS)]
    folds = np.repeat(np.arange(FOLDS), sizes)
    return VerificationSet(path.stem, decode_faces(faces), FacePairs(where[0::2], where[1::2], same, folds))


def _from_pairs(root: Path) -> VerificationSet:
    read = read_pairs(root / "pairs.txt")
    used = list(dict.fromkeys((*read.first, *read.second)))
    position = {face: i for i, face in enumerate(used)}
    first, second = (np.array([position[face] for face in faces], np.int64) for faces in (read.first, read.second))
    return _with_files(root, [_file_of(face, root) for face in used], FacePairs(first, second, read.same, read.folds))


def _file_of(face: Face, root: Path) -> Path:
    for suffix in sorted(SUFFIXES):
        if (file := root / face.file(suffix)).is_file():
            return file
    raise DataError(f"{root} lacks {face.file('')}, which is in its pairs.txt")


def _with_files(path: Path, files: Sequence[Path], pairs: FacePairs) -> VerificationSet:
    """The set of those files that are in a pair; no others are read."""
    used, where = np.unique(np.concatenate((pairs.first, pairs.second)), return_inverse=True)
    images = read_images([files[i] for i in used])
    height, width = images.shape[1:3]
    if (height, width) != (SIDE, SIDE):
        raise DataError(f"{path} holds images of {width} x {height}: faces must be aligned to {SIDE} x {SIDE}")
    first, second = where.reshape(2, -1).astype(np.int64)
    return VerificationSet(path.stem, images, FacePairs(first, second, pairs.same, pairs.folds))


def draw_face_pairs(people: NDArray[np.int64], *, folds: int = FOLDS, count: int = PAIRS, seed: int = 0) -> FacePairs:
    """Draw ``count`` different pairs of one person and as many of two people for each fold, from int64 [N] people.

    As in LFW, nobody is in two folds. The same files and seed give the same pairs.
    """
    rng = np.random.default_rng(seed)
    groups = np.array_split(rng.permutation(np.unique(people)), folds)
    drawn = []
    for fold, group in enumerate(groups):
        members = [np.flatnonzero(people == person) for person in group]
        for same in (True, False):
            found = _draw(members, count, same, rng)
            if len(found) < count:
                kind = "of one person" if same else "of two people"
                raise DataError(
                    f"fold {fold + 1} of {folds} has {len(group)} people and {len(found)} pairs {kind}; {count} are "
                    "wanted: ask for fewer pairs"
                )
            drawn += [(*pair, same, fold) for pair in found]
    first, second, same_person, of_fold = (np.array(column) for column in zip(*drawn, strict=True))
    return FacePairs(first, second, same_person.astype(np.bool_), of_fold)


def _draw(
    members: Sequence[NDArray[np.int64]], count: int, same: bool, rng: np.random.Generator
) -> list[tuple[int, int]]:
    """Up to ``count`` different pairs of images of one person, or of two of the people whose images are ``members``."""
    images = np.concatenate([np.empty(0, np.int64), *members])
    person = np.repeat(np.arange(len(members)), [len(one) for one in members])
    matching = sum(len(one) * (len(one) - 1) // 2 for one in members)
    possible = matching if same else len(images) * (len(images) - 1) // 2 - matching
    if possible <= max(count, ALL_AT_ONCE):
        pools = [combinations(one.tolist(), 2) for one in members] if same else [_across(members)]
        every = [pair for pool in pools for pair in pool]
        return [every[i] for i in rng.permutation(len(every))[:count]]
    found = dict[tuple[int, int], None]()
    several = np.flatnonzero([len(members[int(one)]) > 1 for one in person]) if same else np.arange(len(images))
    while len(found) < count:
        i = int(rng.choice(several))
        j = int(rng.choice(np.flatnonzero((person == person[i]) == same)))
        if i != j:
            found[int(images[min(i, j)]), int(images[max(i, j)])] = None
    return list(found)


def _across(members: Sequence[NDArray[np.int64]]) -> Iterator[tuple[int, int]]:
    """All pairs of images of two people."""
    for one, other in combinations(members, 2):
        yield from product(one.tolist(), other.tolist())
