"""Release files: arrays that are made once. Release folders are tested with ReleasedDataset."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from ldp_slicing.errors import LdpSlicingError
from ldp_slicing.torch.store import read_release_file, release_once


class Releaser:
    """Makes a new random array for each position, and counts them."""

    def __init__(self) -> None:
        self.made = 0

    def __call__(self, positions: list[int]) -> list[NDArray[np.uint8]]:
        self.made += len(positions)
        return [np.random.default_rng().integers(0, 256, 50, np.uint8) for _ in positions]


def test_each_name_is_released_once(tmp_path: Path) -> None:
    release, path = Releaser(), tmp_path / "r.npz"
    first = release_once(path, ["a", "b", "a"], release)
    assert release.made == 2
    assert np.array_equal(first[0], first[2])
    again = release_once(path, ["b", "a"], release)
    assert release.made == 2
    assert np.array_equal(again[0], first[1])
    assert np.array_equal(again[1], first[0])


def test_a_file_grows_only_if_asked_to(tmp_path: Path) -> None:
    release, path = Releaser(), tmp_path / "r.npz"
    (first,) = release_once(path, ["a"], release)
    with pytest.raises(LdpSlicingError, match=r"is damaged, .* it lacks b"):
        release_once(path, ["a", "b"], release)
    kept, _ = release_once(path, ["a", "b"], release, extend=True)
    assert release.made == 2
    assert np.array_equal(kept, first)
    assert list(read_release_file(path)) == ["a", "b"]


def test_a_failed_release_writes_nothing(tmp_path: Path) -> None:
    def fail(positions: list[int]) -> list[NDArray[np.uint8]]:
        raise RuntimeError("no device")

    with pytest.raises(RuntimeError, match="no device"):
        release_once(tmp_path / "r.npz", ["a"], fail)
    assert list(tmp_path.glob("*.npz")) == []


@pytest.mark.parametrize("damage", ["cut off", "changed", "empty"])
def test_a_damaged_file_is_not_released_again(damage: str, tmp_path: Path) -> None:
    release, path = Releaser(), tmp_path / "r.npz"
    release_once(path, ["a"], release)
    data = path.read_bytes()
    middle = data.index(read_release_file(path)["a"].tobytes())
    changed = data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]
    path.write_bytes({"cut off": data[:-30], "changed": changed, "empty": b""}[damage])
    with pytest.raises(LdpSlicingError, match="cannot be made again without spending again"):
        release_once(path, ["a"], release)
    assert release.made == 1


def test_threads_share_one_release(tmp_path: Path) -> None:
    release = Releaser()
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda _: release_once(tmp_path / "r.npz", ["a"], release)[0], range(4)))
    assert release.made == 1
    assert all(np.array_equal(one, made[0]) for one in made)
