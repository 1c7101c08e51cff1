"""Small data sets and a small network in the places where the lab expects large ones."""

from __future__ import annotations

import io
import pickle
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn

from ldp_slicing.lab.attacks import recognition


def tiny(classes: int, channels: int = 3) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(channels, 4, 3, 4),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(16, classes),
    )


def write_cifar(folder: Path) -> None:
    rng = np.random.default_rng(7)

    def batch(key: str, classes: int, count: int) -> bytes:
        return pickle.dumps(
            {"data": rng.integers(0, 256, (count, 3072), dtype=np.uint8), key: [i % classes for i in range(count)]}
        )

    ten, hundred = folder / "cifar-10-batches-py", folder / "cifar-100-python"
    for path in (ten, hundred):
        path.mkdir(parents=True)
    for i in range(1, 6):
        (ten / f"data_batch_{i}").write_bytes(batch("labels", 10, 10))
    (ten / "test_batch").write_bytes(batch("labels", 10, 20))
    (hundred / "train").write_bytes(batch("fine_labels", 100, 200))
    (hundred / "test").write_bytes(batch("fine_labels", 50, 100))  # two of a class, for pairs


def write_chest(folder: Path) -> None:
    rng = np.random.default_rng(8)
    for split, count in (("train", 12), ("val", 2), ("test", 4)):
        for kind in ("NORMAL", "PNEUMONIA"):
            place = folder / "chest_xray" / split / kind
            place.mkdir(parents=True)
            for i in range(count):
                Image.fromarray(rng.integers(0, 256, (30, 40), dtype=np.uint8)).save(place / f"{i}.jpeg")


def write_lfw(folder: Path, people: int = 16, folds: int = 4) -> None:
    """Four folds, each with two matching and two other pairs. Person i is in fold i mod 4, the last two in none."""
    rng = np.random.default_rng(9)
    root = folder / "lfw112"
    for person in range(people + 2):
        place = root / f"P{person}"
        place.mkdir(parents=True)
        for number in (1, 2):
            Image.fromarray(rng.integers(0, 256, (112, 112, 3), dtype=np.uint8)).save(
                place / f"P{person}_{number:04d}.webp", lossless=True
            )
    lines = [f"{folds}\t2"]
    for fold in range(folds):
        mine = [f"P{person}" for person in range(people) if person % folds == fold]
        lines += [f"{name}\t1\t2" for name in mine[:2]] + [f"{mine[2]}\t1\t{mine[3]}\t1", f"{mine[2]}\t2\t{mine[3]}\t2"]
    (root / "pairs.txt").write_text("\n".join(lines) + "\n")
    torch.save(tiny(128).state_dict(), folder / recognition.WEIGHTS)


def write_both(folder: Path) -> None:
    write_cifar(folder)
    write_lfw(folder)


def write_bin(path: Path, pairs: int = 10) -> None:
    """An InsightFace verification set of random faces, of which half of the pairs match."""
    rng = np.random.default_rng(10)
    encoded = []
    for _ in range(2 * pairs):
        buffer = io.BytesIO()
        Image.fromarray(rng.integers(0, 256, (112, 112, 3), dtype=np.uint8)).save(buffer, "PNG")
        encoded.append(buffer.getvalue())
    path.write_bytes(pickle.dumps((encoded, [i % 2 == 0 for i in range(pairs)])))


def write_face_set(folder: Path) -> None:
    write_lfw(folder)
    (folder / "face-sets").mkdir()
    write_bin(folder / "face-sets" / "agedb_30.bin")
