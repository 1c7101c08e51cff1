"""The chest X-rays of Kermany et al. (2018)."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from ldp_slicing.lab.data.folders import SUFFIXES, read_folder, read_release_info
from ldp_slicing.lab.data.sets import ImageSet, Split, require_folder


def load_chest(folder: Path) -> ImageSet:
    """The chest X-rays of Kermany et al. 2018, grey, 224 x 224; the 16 images of the official validation split go to the training set.

    The groups of the training set are patients, or examinations where that is all that a file's name says.
    """
    root = require_folder(
        folder / "chest_xray",
        "the chest X-ray set of Kermany et al. 2018 (doi.org/10.17632/rscbjbr9sj; folders train, val, test)",
    )
    (first, classes), (second, _), (test, _) = (
        read_folder(root / name, size=(224, 224), grey=True) for name in ("train", "val", "test")
    )
    paths = [path for part in ("train", "val") for kind in classes for path in sorted((root / part / kind).rglob("*"))]
    patients = [patient(path) for path in paths if path.suffix.lower() in SUFFIXES]
    groups = np.unique(patients, return_inverse=True)[1].astype(np.int64)
    train = Split(np.concatenate([first.images, second.images]), np.concatenate([first.labels, second.labels]), groups)
    files = [*paths, *(path for kind in classes for path in (root / "test" / kind).rglob("*"))]
    return ImageSet(
        "chest",
        2,
        train,
        test,
        read_release_info([file for file in files if file.suffix.lower() in SUFFIXES], grey=True),
    )


def patient(file: Path) -> str:
    """Whose X-ray a file is: "person7_virus" or "NORMAL2-IM-0401". The virus, bacteria, IM and NORMAL2 files are each numbered apart.

    That they are is seen from the official test set: it shares numbers with the training set, but none of the same kind.
    """
    found = re.match(r"person\d+_[a-z]+|(NORMAL\d*-)?IM-\d+", file.name)
    return found[0] if found else str(file)  # one of its own
