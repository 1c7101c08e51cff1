from __future__ import annotations

import os
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import CTR

from ldp_slicing import Plan, Slicer, privatize
from ldp_slicing.errors import CardError
from ldp_slicing.randomness import SLACK, Fresh, Keystream, SeededForTests

IMAGE = np.zeros((16, 16, 3), np.uint8)


def ctr(key: bytes, counter: int, size: int) -> bytes:
    return Cipher(AES256(key), CTR(counter.to_bytes(16, "big"))).encryptor().update(bytes(size))


@pytest.mark.parametrize(
    "sizes",
    [
        (128, 640, 1024),
        (16,) * 5,
        (3 << 17,),
        ((3 << 17) - 32, 16, 16),
        (3 << 17, 16),
        (500_000, 300_000),
        (1_000_000,),
    ],
)
def test_lanes_are_aes_256_ctr_from_counter_zero(sizes: tuple[int, ...]) -> None:
    """Covers small images, which use precomputed counters, and large ones, which use CTR mode."""
    key = bytes(range(32))
    stream, got = Keystream(key, sum(sizes)), b""
    for size in sizes:
        room = bytearray(size + SLACK)
        stream.fill(memoryview(room))
        got += room[:size]
    assert got == ctr(key, 0, sum(sizes))


def test_exhausted_keystream_raises() -> None:
    stream = Keystream(bytes(32), 128)
    stream.fill(memoryview(bytearray((3 << 17) - 16 + SLACK)))
    with pytest.raises(AssertionError, match="only 16 of the 32 bytes"):
        stream.fill(memoryview(bytearray(32 + SLACK)))


def test_ties_use_counters_from_2_to_the_64() -> None:
    key = bytes(range(32))
    index = [0, 1, 77, 3 * 12_000_000 + 2, (1 << 63) - 1]
    counters = np.array([[1, i] for i in index], ">u8").data.cast("B")
    for size in (128, 1 << 20):
        stream = Keystream(key, size)
        expected = b"".join(ctr(key, (1 << 64) + i, 16) for i in index)
        assert stream.blocks(counters) == expected
        stream.fill(memoryview(bytearray(128 + SLACK)))  # the two counter ranges are independent
        assert stream.blocks(counters) == expected


def test_every_image_gets_a_key_from_the_operating_system(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def spy(size: int, urandom=os.urandom) -> bytes:  # noqa: ANN001
        asked.append(size)
        return bytes(urandom(size))

    monkeypatch.setattr("os.urandom", spy)
    Slicer(Plan.paper(20.0))(np.zeros((5, 4, 4, 3), np.uint8))
    assert asked == [32] * 5


def test_seeds_of_python_and_numpy_have_no_effect() -> None:
    releases = set()
    for _ in range(4):
        random.seed(42)
        np.random.seed(42)
        releases.add(privatize(IMAGE, 20.0).tobytes())
    assert len(releases) == 4


def test_threads_never_share_a_mask() -> None:
    slicer = Slicer(Plan.paper(20.0))
    with ThreadPoolExecutor(8) as pool:
        releases = [release.tobytes() for release in pool.map(slicer, [IMAGE] * 200)]
        batches = [
            release.tobytes() for batch in pool.map(slicer, [np.tile(IMAGE, (100, 1, 1, 1))] * 20) for release in batch
        ]
    assert len(set(releases + batches)) == 2200


def test_threads_release_the_same_bytes_as_one_thread() -> None:
    """With seeded keys, concurrent releases equal sequential ones."""
    plan, image = Plan.paper(20.0), np.random.default_rng(0).integers(0, 256, (300, 200, 3), dtype=np.uint8)

    def release(seed: int) -> bytes:
        return Slicer(plan, randomness=SeededForTests(seed))(image).tobytes()

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(release, range(40))) == [release(seed) for seed in range(40)]


WORKERS = """
import multiprocessing, sys
import numpy as np
from ldp_slicing import Plan, Slicer

slicer = Slicer(Plan.paper(20.0))
images = np.zeros((int(sys.argv[2]), 16, 16, 3), np.uint8)
slicer(images)                                  # used before the fork, which must not share keys

def release(_):
    return [one.tobytes() for one in slicer(images)]

if __name__ == "__main__":
    with multiprocessing.get_context(sys.argv[1]).Pool(4) as pool:
        releases = pool.map(release, range(40), chunksize=1) + [release(0) for _ in range(10)]
    print(len({one for some in releases for one in some}))
"""


@pytest.mark.parametrize(("method", "batch"), [("fork", 1), ("fork", 300), ("spawn", 1)])
def test_worker_processes_never_share_a_mask(method: str, batch: int, tmp_path: os.PathLike[str]) -> None:
    script = os.path.join(tmp_path, "workers.py")  # noqa: PTH118
    with open(script, "w") as file:
        file.write(WORKERS)
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", script, method, str(batch)], capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == str(50 * batch)


def test_seeded_output_is_repeatable_and_gets_no_card() -> None:
    one, two = (Slicer(Plan.paper(20.0), randomness=SeededForTests(9)) for _ in range(2))
    assert np.array_equal(one(IMAGE), two(IMAGE))
    assert not np.array_equal(one(IMAGE), one(IMAGE))  # the next key
    with pytest.raises(CardError, match="seed"):
        one.card(16, 16)
    assert Fresh().secret
