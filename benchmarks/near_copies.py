"""How often the ledger notices a shrunk or re-encoded copy of an image, and how often it takes another image for one.

    python -m benchmarks.near_copies DATA            # a folder with lfw112/ and cifar-10-batches-py/

Every image of a set is entered. *False alarms*: the share of images that resemble another image of the set.
Near-duplicates that the set itself holds are not false alarms: pairs whose 16 x 16 grey cells correlate above 0.99 are
counted apart. *Noticed*: the share of altered copies that resemble their original.
"""

from __future__ import annotations

import argparse
import io
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ldp_slicing.fingerprint import ENOUGH_MARKS, cells_of, marks_of
from ldp_slicing.pickles import unpickle_data

NEAR_DUPLICATE = 0.99
COPIES = 1000  # images of each set that are altered


def lfw(data: Path) -> list[Image.Image]:
    return [Image.open(path).convert("RGB") for path in sorted((data / "lfw112").rglob("*.webp"))]


def cifar(data: Path) -> list[Image.Image]:
    """The parts of CIFAR-10 that the fingerprint was not chosen on."""
    images = []
    for name in ("data_batch_3", "data_batch_4", "test_batch"):
        rows = np.asarray(unpickle_data((data / "cifar-10-batches-py" / name).read_bytes())["data"], np.uint8)
        images += [Image.fromarray(row) for row in rows.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)]
    return images


def encoded(image: Image.Image, kind: str, quality: int) -> Image.Image:
    buffer = io.BytesIO()
    image.save(buffer, kind, quality=quality)
    return Image.open(io.BytesIO(buffer.getvalue())).convert("RGB")


def altered(image: Image.Image) -> Iterator[tuple[str, Image.Image]]:
    width, height = image.size
    half = image.resize((width // 2, height // 2), Image.Resampling.LANCZOS)
    yield "JPEG, quality 90", encoded(image, "JPEG", 90)
    yield "JPEG, quality 50", encoded(image, "JPEG", 50)
    yield "WebP, quality 75", encoded(image, "WEBP", 75)
    yield "70 % of the size", image.resize((width * 7 // 10, height * 7 // 10), Image.Resampling.BICUBIC)
    yield "half the size", half
    yield "half the size, JPEG, quality 75", encoded(half, "JPEG", 75)
    yield "a third of the size", image.resize((width // 3, height // 3), Image.Resampling.BOX)
    yield "twice the size", image.resize((width * 2, height * 2), Image.Resampling.BICUBIC)
    yield "grey", image.convert("L").convert("RGB")


def marks(image: Image.Image) -> tuple[bytes, ...]:
    return marks_of(np.asarray(image), 8)


def centred(image: Image.Image) -> NDArray[np.float64]:
    cells = cells_of(np.asarray(image), 8).ravel().astype(np.float64)
    cells -= cells.mean()
    return cells / max(float(np.linalg.norm(cells)), 1.0)


def measure(name: str, images: list[Image.Image]) -> None:
    entered = [marks(image) for image in images]
    by_mark = defaultdict[bytes, list[int]](list)
    for number, own in enumerate(entered):
        for mark in own:
            by_mark[mark].append(number)
    cells = [centred(image) for image in images]
    alarms = duplicates = 0
    for number, own in enumerate(entered):
        shared = Counter(other for mark in own for other in by_mark[mark] if other != number)
        resembling = [other for other, count in shared.items() if count >= ENOUGH_MARKS]
        alarms += any(cells[number] @ cells[other] <= NEAR_DUPLICATE for other in resembling)
        duplicates += any(cells[number] @ cells[other] > NEAR_DUPLICATE for other in resembling)
    print(
        f"{name}: {len(images):,} images; false alarms {100 * alarms / len(images):.2f} %; "
        f"with a near-duplicate in the set {100 * duplicates / len(images):.2f} %"
    )
    noticed, step = Counter[str](), len(images) // COPIES
    chosen = range(0, step * COPIES, step)
    for number in chosen:
        for kind, copy in altered(images[number]):
            noticed[kind] += len({*marks(copy)} & {*entered[number]}) >= ENOUGH_MARKS
    for kind, count in noticed.items():
        print(f"  {kind:<32} noticed {100 * count / len(chosen):5.1f} %")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="folder with lfw112/ and cifar-10-batches-py/")
    folder = parser.parse_args().data
    measure("LFW, 112 x 112", lfw(folder))
    measure("CIFAR-10, 32 x 32", cifar(folder))
