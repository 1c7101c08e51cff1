"""Reading a manifest that somebody else wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ldp_slicing.errors import ReleaseError
from ldp_slicing.manifest import MANIFEST_NAME, is_lost, read_manifest, write_manifest
from ldp_slicing.storage import LocalStorage

LINE = {"output": "a/z.png", "sha256": "", "status": "released"}


def test_lines_are_read_as_they_were_written(tmp_path: Path) -> None:
    lines = [LINE, LINE | {"member": "b.png"}, LINE | {"frames": 3}]
    write_manifest(LocalStorage(tmp_path), lines)
    assert list(read_manifest(LocalStorage(tmp_path))) == lines


@pytest.mark.parametrize("content", [b"not json\n", b"[1]\n", b'{"output": 3}\n', b"\xff\n", None])
def test_a_missing_or_damaged_manifest_is_refused(content: bytes | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / MANIFEST_NAME).write_bytes(content)
    with pytest.raises(ReleaseError, match=r"has no manifest.jsonl" if content is None else "damaged manifest.jsonl"):
        list(read_manifest(LocalStorage(tmp_path)))


@pytest.mark.parametrize(
    "change",
    [
        {"output": "../in/00001.png"},
        {"output": "a\\..\\b.png"},
        {"output": "/etc/a.png"},
        {"output": "\\a.png"},
        {"output": "a\0.png"},
        {"output": "\ud800.png"},
        {"output": ""},
        {"frames": "x"},
        {"frames": 0},
        {"frames": True},
        {"member": 3},
        {"status": "lost"},
        {"status": "lost", "width": 1, "height": 0, "word_bits": 8},
    ],
)
def test_an_invalid_line_is_refused(change: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / MANIFEST_NAME).write_text("".join(json.dumps(line) + "\n" for line in (LINE, LINE | change)))
    with pytest.raises(ReleaseError, match="line 2 is not a valid manifest line"):
        list(read_manifest(LocalStorage(tmp_path)))


def test_a_release_is_lost_only_while_its_path_is_free(tmp_path: Path) -> None:
    place, line = LocalStorage(tmp_path), {**LINE, "output": "z.png", "status": "lost"}
    assert is_lost(place, line)
    assert not is_lost(place, LINE)
    (tmp_path / "z.png").write_bytes(b"")
    assert not is_lost(place, line)
