"""Labeled Faces in the Wild, and two-way cross-fitting: nobody who is tested was trained on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ldp_slicing.errors import DataError
from ldp_slicing.lab.data.face_pairs import Face, Pairs, read_pairs
from ldp_slicing.lab.data.folders import read_images
from ldp_slicing.lab.data.sets import ImageSet, require_folder


@dataclass(frozen=True)
class FaceSet:
    """uint8 [N, 112, 112, 3] faces, the index of each face, and the pairs of View 2."""

    images: NDArray[np.uint8]
    index: Mapping[Face, int]
    pairs: Pairs

    def of(self, faces: tuple[Face, ...]) -> NDArray[np.int64]:
        """int64 [P]: the indices of these faces."""
        return np.array([self.index[face] for face in faces], np.int64)

    def tested(self, folds: ArrayLike) -> NDArray[np.bool_]:
        """bool [P]: which pairs are in these folds."""
        return np.isin(self.pairs.folds, folds)


@dataclass(frozen=True)
class Side:
    """One half of the ten folds.

    images: int64 [M], the images to train on: those of people who are in none of its pairs. people: int64 [M], from 0.
    """

    folds: tuple[int, ...]
    images: NDArray[np.int64]
    people: NDArray[np.int64]
    classes: int


def load_lfw(folder: Path) -> FaceSet:
    """Load ``folder/lfw112``: faces aligned to the ArcFace template, and ``pairs.txt``.

    The files are called ``Person_Name/Person_Name_0001.webp`` (or .jpg, .png).
    """
    root = require_folder(
        folder / "lfw112",
        "LFW (vis-www.cs.umass.edu/lfw) aligned to 112 x 112, one folder per person, with its pairs.txt",
    )
    files = sorted(path for path in root.glob("*/*") if path.suffix in (".webp", ".jpg", ".png"))
    index = {Face(path.parent.name, int(path.stem.rpartition("_")[2])): i for i, path in enumerate(files)}
    faces = FaceSet(read_images(files), index, read_pairs(root / "pairs.txt"))
    missing = [face for face in (*faces.pairs.first, *faces.pairs.second) if face not in index]
    if missing:
        raise DataError(f"{root} lacks {missing[0].file('')} and {len(missing) - 1} more of the faces in pairs.txt")
    return faces


def load_lfw_set(folder: Path) -> ImageSet:
    """LFW as a set to attack: people in pairs of the first half of the folds are tested, and all others are public.

    Labels are people, numbered apart in both splits, since nobody is in both.
    """
    faces = load_lfw(folder)
    side, _ = sides(faces)
    tested = images_in_pairs(faces, side)
    names = np.array([face.name for face, _ in sorted(faces.index.items(), key=lambda found: found[1])])
    people = np.unique(names[tested], return_inverse=True)[1]
    return ImageSet.from_arrays("lfw", (faces.images[side.images], side.people), (faces.images[tested], people))


def sides(faces: FaceSet) -> tuple[Side, Side]:
    """The two halves of the folds. Each is tested by a network trained on people in none of its pairs."""
    folds = np.unique(faces.pairs.folds)
    first, second = (_side(faces, half) for half in np.array_split(folds, 2))
    return first, second


def _side(faces: FaceSet, folds: NDArray[np.int64]) -> Side:
    tested = faces.tested(folds)
    named = [*zip(faces.pairs.first, tested, strict=True), *zip(faces.pairs.second, tested, strict=True)]
    unseen = {face.name for face, is_tested in named if is_tested}
    kept = [(i, face.name) for face, i in faces.index.items() if face.name not in unseen]
    numbers = {name: number for number, name in enumerate(sorted({name for _, name in kept}))}
    people = np.array([numbers[name] for _, name in kept], np.int64)
    return Side(tuple(int(fold) for fold in folds), np.array([i for i, _ in kept], np.int64), people, len(numbers))


def images_in_pairs(faces: FaceSet, side: Side) -> NDArray[np.int64]:
    """int64 [M]: the images in the side's pairs."""
    tested = faces.tested(side.folds)
    return np.unique(np.concatenate([faces.of(people)[tested] for people in (faces.pairs.first, faces.pairs.second)]))
