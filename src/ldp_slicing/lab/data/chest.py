"""The chest X-rays of Kermany et al. (2018)."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from ldp_slicing.lab.data.folders import list_images, read_folder, read_release_info
from ldp_slicing.lab.data.sets import ImageSet, Split, require_folder


def load_chest(folder: Path) -> ImageSet:
    """Load the set as grey images of 224 x 224. The 16 images of the official validation split join the training set.

    The groups of the training set are patients, or examinations if the file name tells no more.
    """
    root = require_folder(
        folder / "chest_xray",
        "the chest X-ray set of Kermany et al. 2018 (doi.org/10.17632/rscbjbr9sj; folders train, val, test)",
    )
    (first, classes), (second, _), (test, _) = (
        read_folder(root / name, size=(224, 224), grey=True) for name in ("train", "val", "test")
    )
    paths = [path for part in ("train", "val") for kind in classes for path in list_images(root / part / kind)]
    groups = np.unique([patient(path) for path in paths], return_inverse=True)[1].astype(np.int64)
    train = Split(np.concatenate([first.images, second.images]), np.concatenate([first.labels, second.labels]), groups)
    tested = [path for kind in classes for path in list_images(root / "test" / kind)]
    return ImageSet("chest", 2, train, test, read_release_info([*paths, *tested], grey=True))


def patient(file: Path) -> str:
    """Whose X-ray a file is, such as "person7_virus" or "NORMAL2-IM-0401".

    The virus, bacteria, IM and NORMAL2 files are numbered separately: the official test set shares numbers with the
    training set, but none of the same kind.
    """
    found = re.match(r"person\d+_[a-z]+|(NORMAL\d*-)?IM-\d+", file.name)
    return found[0] if found else str(file)  # a patient of its own


def kinds_of_test_images(folder: Path) -> list[str]:
    """The kind of each test image, in the order of ``load_chest``."""
    root = folder / "chest_xray" / "test"
    return [kind(path) for label in ("NORMAL", "PNEUMONIA") for path in list_images(root / label)]


def kind(file: Path) -> str:
    """What the name of a file says besides numbers: "bacteria", "virus", "IM" or "NORMAL2-IM"; "other" if nothing."""
    found = re.match(r"person\d+_([a-z]+)|((?:NORMAL\d*-)?IM)-\d+", file.name)
    return (found[1] or found[2]) if found else "other"
