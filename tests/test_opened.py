"""Which files of a folder are releases. What is read from them is tested in tests/torch/test_opening.py."""

from __future__ import annotations

from pathlib import Path

from ldp_slicing.opened import open_set
from tests.release.helpers import PNG, plant, release, verified

NAMES = ["._a.png", "a.png", "b/.ldp-slicing-partial/a.png"]


def test_releases_are_found_whatever_their_sources_are_called(tmp_path: Path) -> None:
    """``verify`` takes them for releases, and the card counts them."""
    target = tmp_path / "out"
    release(plant(tmp_path / "in", dict.fromkeys(NAMES, PNG)), target)
    plant(target, {"._b": b"", "b/.ldp-slicing-partial/._a.png": b"\0\5\x16\7 as macOS leaves it"})
    assert [file for file, _ in verified(target)] == ["._b"]
    assert [item.path for item in open_set(target).items] == NAMES
