"""CIFAR-10 and CIFAR-100, from the Python versions that their authors publish."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ldp_slicing.errors import DataError
from ldp_slicing.lab.data.sets import ImageSet, Split, require_file, require_folder
from ldp_slicing.pickles import unpickle_data

SOURCE = "the unpacked {} python version (www.cs.toronto.edu/~kriz/cifar.html)"


def load_cifar(name: str, folder: Path) -> ImageSet:
    """ "cifar10" or "cifar100", from the folders that torchvision and the authors use."""
    if name == "cifar10":
        root = require_folder(folder / "cifar-10-batches-py", SOURCE.format("CIFAR-10"))
        train = _read([root / f"data_batch_{i}" for i in range(1, 6)], "labels")
        return ImageSet(name, 10, train, _read([root / "test_batch"], "labels"))
    if name == "cifar100":
        root = require_folder(folder / "cifar-100-python", SOURCE.format("CIFAR-100"))
        return ImageSet(name, 100, _read([root / "train"], "fine_labels"), _read([root / "test"], "fine_labels"))
    raise DataError(f"no data set {name!r}; available: cifar10, cifar100")


def _read(files: list[Path], label_key: str) -> Split:
    for file in files:
        require_file(file, "one of the files of the set's python version")
    parts = [unpickle_data(file.read_bytes()) for file in files]
    rows = np.concatenate([np.asarray(part["data"], np.uint8) for part in parts])
    labels = np.concatenate([np.asarray(part[label_key], np.int64) for part in parts])
    if rows.shape != (len(labels), 3072):
        raise DataError(f"{files[0].parent} holds {rows.shape} bytes for {len(labels)} labels; expected 3072 per image")
    return Split(np.ascontiguousarray(rows.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)), labels)
