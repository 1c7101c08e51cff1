"""Reading a manifest that somebody else wrote."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from ldp_slicing.errors import ReleaseError
from ldp_slicing.manifest import is_lost, read_manifest, write_manifest
from ldp_slicing.sets import MANIFEST_NAME
from ldp_slicing.storage import LocalStorage

LINE = {"output": "a/z.png", "sha256": "0" * 64, "status": "released"}
LOST = {"width": 3, "height": 4, "word_bits": 24, "member": "b.png", "frames": 2}
LINES = [LINE, LINE | {"member": "b.png"}, LINE | {"frames": 3}, LINE | {"status": "lost"} | LOST]
TEXT = json.dumps({"manifest": 2} | LINE).encode() + b"\n"


def test_lines_are_read_as_they_were_written(tmp_path: Path) -> None:
    write_manifest(LocalStorage(tmp_path), LINES)
    assert (tmp_path / MANIFEST_NAME).read_bytes().startswith(TEXT)
    assert list(read_manifest(LocalStorage(tmp_path))) == LINES


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
        {"status": "lost", "width": 1, "height": 1, "word_bits": 10**18},
        {"status": "released", "width": 1, "height": 1, "word_bits": 8},
        {"status": "kept"},
        {"sha256": "0"},
        {"frames": 1},
        {"frames": 2.0},
        {"frames": float("nan")},
        {"note": "a whole source"},
        {"member": []},
        {"manifest": 1},
        {"manifest": 3},
        {"manifest": "2"},
        {"status": "lost", "width": 1, "height": 0, "word_bits": 8},
    ],
)
def test_an_invalid_line_is_refused(change: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / MANIFEST_NAME).write_text(
        "".join(json.dumps({"manifest": 2} | line) + "\n" for line in (LINE, LINE | change))
    )
    with pytest.raises(ReleaseError, match="line 2 is not a valid manifest line"):
        list(read_manifest(LocalStorage(tmp_path)))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (TEXT.replace(b", ", b","), "not written as this software writes it"),
        (TEXT.replace(b"}\n", b"} \n"), "not written as"),
        (TEXT.replace(b"}\n", b"}"), "not written as"),
        (TEXT.replace(b"}\n", b"}\r\n"), "not written as"),
        (TEXT.replace(b"a/z", b"\\u0061/z"), "not written as"),
        (TEXT.replace(b'"status"', b'"output": "b.png", "status"'), "the key 'output' occurs twice"),
        (TEXT.replace(b'"output": "a/z.png", ', b"")[:-2] + b', "output": "a/z.png"}\n', "not written as"),
        (TEXT.replace(b'"status"', b'"note": "x", "status"'), "unknown key 'note'"),
        (b"\n", "not JSON"),
        (b"[" * 50_000 + b"\n", "nested too deeply"),
        (b" " * (2 << 20), "has a line of more than 65,536 bytes"),
        (TEXT.replace(b'{"manifest": 2, ', b"{"), "lacks the key 'manifest'"),
        (TEXT.replace(b'{"manifest": 2, ', b'{"manifest": 1, '), "it has version 1, and this software reads version 2"),
    ],
)
def test_a_line_has_one_text(text: bytes, why: str, tmp_path: Path) -> None:
    (tmp_path / MANIFEST_NAME).write_bytes(TEXT + text)
    with pytest.raises(ReleaseError, match=why):
        list(read_manifest(LocalStorage(tmp_path)))


def test_a_manifest_that_is_a_pipe_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / MANIFEST_NAME)
    with pytest.raises(ReleaseError, match="not a regular file"):
        list(read_manifest(LocalStorage(tmp_path)))


def test_a_release_is_lost_only_while_its_path_is_free(tmp_path: Path) -> None:
    place, line = LocalStorage(tmp_path), {**LINE, "output": "z.png", "status": "lost"}
    assert is_lost(place, line)
    assert not is_lost(place, LINE)
    (tmp_path / "z.png").write_bytes(b"")
    assert not is_lost(place, line)
