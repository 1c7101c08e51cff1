from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ldp_slicing.audit.releases import audit_releases
from ldp_slicing.errors import ReleaseError
from ldp_slicing.images import encode_png
from ldp_slicing.manifest import verify
from ldp_slicing.storage import LocalStorage
from tests.markers import encoded, picture, png_chunk
from tests.release.helpers import PNG, card_of, manifest_of, pictures, plant, release, verified


@pytest.fixture
def target(tmp_path: Path) -> Path:
    files = {
        **pictures(5),
        "grey/a.png": encoded(picture()[..., 0], "PNG"),
        "deep.png": encoded(picture()[..., 0].astype(np.uint16), "PNG"),
    }
    release(plant(tmp_path / "in", files), tmp_path / "out")
    return tmp_path / "out"


def test_a_manifest_names_every_release_with_its_checksum(target: Path) -> None:
    lines = manifest_of(target)
    assert [line["output"] for line in lines] == sorted(line["output"] for line in lines)
    assert len(lines) == 7
    for line in lines:
        assert set(line) == {"output", "sha256", "status"}
        assert line["sha256"] == hashlib.sha256((target / line["output"]).read_bytes()).hexdigest()
    assert verified(target) == []


def in_manifest(target: Path, name: str, data: bytes) -> None:
    """Another file under that name, as if it had been released."""
    (target / name).write_bytes(data)
    lines = [
        line | ({"sha256": hashlib.sha256(data).hexdigest()} if line["output"] == name else {})
        for line in manifest_of(target)
    ]
    (target / "manifest.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def on_the_card(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    def apply(target: Path) -> None:
        card = card_of(target)
        change(card)
        (target / "card.json").write_text(json.dumps(card))

    return apply


A_RELEASE = b"".join(encode_png(picture(9, 7)))
WRONG: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "a byte": (
        lambda t: (t / "00001.png").write_bytes((t / "00001.png").read_bytes()[:-1] + b"?"),
        "00001.png",
        "checksum",
    ),
    "missing": (lambda t: (t / "00001.png").unlink(), "00001.png", "is missing"),
    "a folder instead": (lambda t: ((t / "00001.png").unlink(), (t / "00001.png").mkdir()), "00001.png", "is missing"),
    "a link instead": (
        lambda t: ((t / "00001.png").rename(t.parent / "x"), (t / "00001.png").symlink_to(t.parent / "x")),
        "00001.png",
        "missing",
    ),
    "one more": (lambda t: (t / "extra.txt").write_text("hello"), "extra.txt", "not in the manifest"),
    "a link more": (lambda t: (t / "link").symlink_to("00001.png"), "link", "symbolic link"),
    "half a file": (lambda t: plant(t, {".ldp-slicing-partial/x": b"half"}), ".ldp-slicing-partial/x", "unfinished"),
    "metadata": (
        lambda t: in_manifest(t, "00001.png", A_RELEASE[:33] + png_chunk(b"tEXt", b"a\0b") + A_RELEASE[33:]),
        "00001.png",
        "more than pixels: tEXt",
    ),
    "behind the end": (lambda t: in_manifest(t, "00001.png", A_RELEASE + b"more"), "00001.png", "behind its end"),
    "no PNG": (lambda t: in_manifest(t, "00001.png", encoded(picture(), "JPEG")), "00001.png", "not a PNG"),
    "another size": (
        lambda t: in_manifest(t, "00001.png", b"".join(encode_png(picture(99, 7)))),
        "card.json",
        "height[1] should be 99",
    ),
    "another kind": (
        lambda t: in_manifest(t, "00001.png", b"".join(encode_png(picture()[..., 0]))),
        "card.json",
        "there are",
    ),
    "too few pixels": (
        lambda t: in_manifest(
            t, "00001.png", A_RELEASE[:16] + png_chunk(b"IHDR", b"\0\0\0\7\0\0\0\7\10\2\0\0\0")[8:] + A_RELEASE[33:]
        ),
        "00001.png",
        "pixels than it says",
    ),
    "no card": (lambda t: (t / "card.json").unlink(), "card.json", "missing"),
    "a torn card": (lambda t: (t / "card.json").write_text("{"), "card.json", "damaged"),
    "a card of the future": (on_the_card(lambda card: card.update(card=3)), "card.json", "version 3"),
    "a wrong count": (
        on_the_card(lambda card: card["statements"][0].update(releases=4)),
        "card.json",
        "speaks of 4 releases of 24-bit words; there are 5",
    ),
    "a wrong level": (
        on_the_card(lambda card: card["statements"][1]["levels"][2].update(epsilon=1.0)),
        "card.json",
        "levels[2].epsilon should be",
    ),
    "a wrong plan": (
        on_the_card(lambda card: card["statements"][0]["plan"].update(epsilon_realised=1.0)),
        "card.json",
        "plan.epsilon_realised should be",
    ),
    "a statement too few": (
        on_the_card(lambda card: card["statements"].pop()),
        "card.json",
        "says nothing of 1 release of 8-bit words",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_found(name: str, target: Path) -> None:
    spoil, file, why = WRONG[name]
    spoil(target)
    problems = verified(target)
    assert any(found == file and why in problem for found, problem in problems), problems


@pytest.mark.parametrize("content", [b"not json\n", b"[1]\n", b'{"output": 3}\n', b"\xff\n", None])
def test_a_set_without_a_manifest_is_refused(content: bytes | None, target: Path) -> None:
    (target / "manifest.jsonl").unlink()
    if content is not None:
        (target / "manifest.jsonl").write_bytes(content)
    with pytest.raises(ReleaseError, match=r"has no manifest.jsonl|is damaged"):
        verified(target)


def test_a_line_for_a_file_of_no_kind(target: Path) -> None:
    with open(target / "manifest.jsonl", "a") as file:
        file.write(json.dumps({"output": "in/00001.exe", "sha256": "", "status": "released"}) + "\n")
    assert ("in/00001.exe", "is of a kind that is not released") in verified(target)


@pytest.mark.parametrize(
    "change",
    [
        {"output": "../in/00001.png"},
        {"output": "/etc/a.png"},
        {"output": "a\0.png"},
        {"output": "\ud800.png"},
        {"frames": "x"},
        {"frames": 0},
        {"frames": True},
        {"member": 3},
    ],
)
def test_a_line_that_no_run_wrote_is_refused(change: dict[str, Any], target: Path) -> None:
    with open(target / "manifest.jsonl", "a") as file:
        file.write(json.dumps({"output": "z.png", "sha256": "", "status": "released"} | change) + "\n")
    with pytest.raises(ReleaseError, match="line 8 is not one of a manifest"):
        verified(target)


@pytest.mark.parametrize("value", [10**400, float("inf"), None, "many"])
def test_a_card_with_impossible_numbers_is_named(value: Any, target: Path) -> None:
    for key in ("most_releases_of_one_source", "most_spent_on_one_source"):
        spoil = value if key == "most_releases_of_one_source" else {"released_pixel": value, "source_pixel": value}
        on_the_card(lambda card, key=key, spoil=spoil: card["statements"][0].update({key: spoil}))(target)
        assert [file for file, _ in verified(target)] == ["card.json"]
        assert not audit_releases(target).holds


def test_odd_names_within_a_shard_are_found_again(tmp_path: Path) -> None:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", encoding="latin-1", format=tarfile.GNU_FORMAT) as tar:
        member = tarfile.TarInfo("gr\u00fcn.png")
        member.size = len(PNG)
        tar.addfile(member, io.BytesIO(PNG))
    release(plant(tmp_path / "in", {"a.tar": file.getvalue()}), tmp_path / "out")
    assert verified(tmp_path / "out") == []


def test_without_the_library_that_reads_it_nothing_is_said_of_a_file(
    target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever receives scans and lacks pydicom must not think that somebody changed them."""

    def missing(name: str, extra: str = "") -> None:
        raise ReleaseError("needs pydicom: pip install 'ldp-slicing[dicom]'")

    monkeypatch.setattr("ldp_slicing.manifest.module_of", missing)
    with pytest.raises(ReleaseError, match="needs pydicom"):
        verify(LocalStorage(target))
