"""Checking a folder of releases against its manifest and card."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ldp_slicing import Card, Plan, Slicer
from ldp_slicing.audit.releases import audit_releases
from ldp_slicing.card import Statement
from ldp_slicing.card.prose import CARD_VERSION
from ldp_slicing.errors import ReleaseError
from ldp_slicing.png import encode_png
from ldp_slicing.release.settings import ReleaseSettings
from ldp_slicing.storage import LocalStorage
from ldp_slicing.verify import verify, verify_file
from tests.markers import encoded, gradient, png_chunk
from tests.release.helpers import PNG, card_of, manifest_of, plant, release, small_images, verified, write_card


@pytest.fixture
def target(tmp_path: Path) -> Path:
    files = {
        **small_images(5),
        "grey/a.png": encoded(gradient()[..., 0], "PNG"),
        "deep.png": encoded(gradient()[..., 0].astype(np.uint16), "PNG"),
    }
    release(plant(tmp_path / "in", files), tmp_path / "out")
    return tmp_path / "out"


def test_a_manifest_names_every_release_with_its_checksum(target: Path) -> None:
    lines = manifest_of(target)
    assert [line["output"] for line in lines] == sorted(line["output"] for line in lines)
    assert len(lines) == 7
    for line in lines:
        assert set(line) == {"manifest", "output", "sha256", "status"}
        assert line["sha256"] == hashlib.sha256((target / line["output"]).read_bytes()).hexdigest()
    assert verified(target) == []


def replace_file(target: Path, name: str, data: bytes) -> None:
    """Replace a file and enter its checksum into the manifest, as if it had been released."""
    (target / name).write_bytes(data)
    lines = [
        line | ({"sha256": hashlib.sha256(data).hexdigest()} if line["output"] == name else {})
        for line in manifest_of(target)
    ]
    (target / "manifest.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def change_card(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    def apply(target: Path) -> None:
        card = card_of(target)
        change(card)
        write_card(target, card)

    return apply


A_RELEASE = b"".join(encode_png(gradient(9, 7)))
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
        lambda t: replace_file(t, "00001.png", A_RELEASE[:33] + png_chunk(b"tEXt", b"a\0b") + A_RELEASE[33:]),
        "00001.png",
        "more than pixels: chunks tEXt",
    ),
    "after the end": (
        lambda t: replace_file(t, "00001.png", A_RELEASE + b"more"),
        "00001.png",
        "4 bytes after the end",
    ),
    "no PNG": (lambda t: replace_file(t, "00001.png", encoded(gradient(), "JPEG")), "00001.png", "not a PNG"),
    "another size": (
        lambda t: replace_file(t, "00001.png", b"".join(encode_png(gradient(99, 7)))),
        "00001.png",
        "declares 7 x 99 pixels; the card states at most 7 x 9",
    ),
    "another kind": (
        lambda t: replace_file(t, "00001.png", b"".join(encode_png(gradient()[..., 0]))),
        "card.json",
        "found",
    ),
    "too few pixels": (
        lambda t: replace_file(
            t, "00001.png", A_RELEASE[:16] + png_chunk(b"IHDR", b"\0\0\0\7\0\0\0\7\10\2\0\0\0")[8:] + A_RELEASE[33:]
        ),
        "00001.png",
        "not in one stream of stored blocks",
    ),
    "no card": (lambda t: (t / "card.json").unlink(), "card.json", "is missing"),
    "a torn card": (lambda t: (t / "card.json").write_text("{"), "card.json", "is not a valid card: it is not JSON"),
    "a card of odd types": (
        change_card(lambda card: card.update(kept_beside=[[]], statements=[])),
        "card.json",
        "kept_beside must be a text",
    ),
    "a card of the future": (
        change_card(lambda card: card.update(card=CARD_VERSION + 1)),
        "card.json",
        f"version {CARD_VERSION + 1}",
    ),
    "a wrong count": (
        change_card(lambda card: card["statements"][0].update(releases=4)),
        "card.json",
        "states 4 releases of 24-bit words; found 5",
    ),
    "a wrong level": (
        change_card(lambda card: card["statements"][1]["levels"][2].update(epsilon=1.0)),
        "card.json",
        "levels[2].epsilon is 1.0; it should be",
    ),
    "a wrong plan": (
        change_card(lambda card: card["statements"][0]["plan"].update(epsilon_realised=1.0)),
        "card.json",
        "plan.epsilon_realised is 1.0; it should be",
    ),
    "a statement too few": (
        change_card(lambda card: card["statements"].pop()),
        "card.json",
        "has no statement about 1 release of 8-bit words",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_verify_finds_the_problem(name: str, target: Path) -> None:
    spoil, file, why = WRONG[name]
    spoil(target)
    problems = verified(target)
    assert any(found == file and why in problem for found, problem in problems), problems


def test_a_file_of_an_unknown_type(target: Path) -> None:
    line = {"manifest": 2, "output": "in/00001.exe", "sha256": "0" * 64, "status": "released"}
    with open(target / "manifest.jsonl", "a") as file:
        file.write(json.dumps(line) + "\n")
    assert ("in/00001.exe", "has a file type that is never released") in verified(target)


@pytest.mark.parametrize("value", [10**400, float("inf"), None, "many"])
def test_a_card_with_impossible_numbers(value: Any, target: Path) -> None:
    for key in ("most_releases_of_one_source", "most_spent_on_one_source"):
        spoil = value if key == "most_releases_of_one_source" else {"released_pixel": value, "source_pixel": value}
        change_card(lambda card, key=key, spoil=spoil: card["statements"][0].update({key: spoil}))(target)
        assert [file for file, _ in verified(target)] == ["card.json"]
        assert not audit_releases(target).passed


def test_member_names_that_are_not_utf8(tmp_path: Path) -> None:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", encoding="latin-1", format=tarfile.GNU_FORMAT) as tar:
        member = tarfile.TarInfo("gr\u00fcn.png")
        member.size = len(PNG)
        tar.addfile(member, io.BytesIO(PNG))
    release(plant(tmp_path / "in", {"a.tar": file.getvalue()}), tmp_path / "out")
    assert verified(tmp_path / "out") == []


def test_a_missing_library_is_an_error_and_not_a_finding(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody who receives DICOM files and lacks pydicom must not think that the files were changed."""

    def missing(name: str, extra: str = "") -> None:
        raise ReleaseError("needs pydicom: pip install 'ldp-slicing[dicom]'")

    monkeypatch.setattr("ldp_slicing.verify.load_format", missing)
    with pytest.raises(ReleaseError, match="needs pydicom"):
        verify(LocalStorage(target))


def test_a_card_cannot_hide_that_names_are_visible(target: Path) -> None:
    card = card_of(target)
    card["not_protected"].remove("file names and folders")
    write_card(target, card)
    assert [name for name, problem in verified(target) if "is not a random name" in problem] == ["card.json"]


def test_a_single_file_has_the_name_that_its_owner_gave_it(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(PNG)
    release(tmp_path / "a.png", tmp_path / "anna.png", settings=ReleaseSettings(20.0, names="random"))
    card = Card.read(tmp_path / "anna.png.card.json")
    assert not card.random_names
    assert verify_file(LocalStorage(tmp_path), "anna.png").problems == []
    (tmp_path / "anna.png.card.json").write_text(replace(card, random_names=True).to_json())
    ((name, problem),) = verify_file(LocalStorage(tmp_path), "anna.png").problems
    assert (name, "anna.png is not a random name" in problem) == ("anna.png.card.json", True)


@pytest.mark.parametrize("unvoided", [None, (1, 20.0, 80.0)])
def test_a_card_about_smaller_releases_is_wrong_whatever_it_states_as_spent(
    unvoided: tuple[int, float, float] | None, tmp_path: Path
) -> None:
    """Its sums are too small for these releases. That is a finding about the card, and no reason to check nothing."""
    release(plant(tmp_path / "in", small_images(2)), tmp_path / "out")
    card = Card.read(tmp_path / "out" / "card.json")
    (width, _), (height, _) = card.statement().width, card.statement().height
    sizes = [(width, 1), (1, height)]
    small = Statement.of(
        card.statement().plan, "haar", "rgb", sizes, times=2, spent=(40.0, 160.0, 640.0), unvoided=unvoided
    )
    (tmp_path / "out" / "card.json").write_text(replace(card, statements=(small,)).to_json())
    ((name, problem),) = verify(LocalStorage(tmp_path / "out")).problems
    assert (name, problem.partition(":")[0]) == ("card.json", "cannot be about the releases that were found")
    assert any(check.section == "releases" and not check.passed for check in audit_releases(tmp_path / "out").checks)


def test_a_second_card_beside_a_release_of_a_set_is_wrong(target: Path) -> None:
    """It could state a smaller eps than the card of the set."""
    card = Slicer(Plan.paper(1.0), prune=None).card(7, 9)
    (target / "00001.png.card.json").write_text(card.to_json())
    ((name, problem),) = verify_file(LocalStorage(target), "00001.png").problems
    assert name == "00001.png.card.json"
    assert problem.startswith("is a second card about 00001.png")
    assert audit_releases(target / "00001.png").exit_status == 1


def test_a_file_that_no_release_can_fill_is_not_read(target: Path) -> None:
    """A sparse file takes no room, and its checksum days."""
    with (target / "00001.png").open("r+b") as file:
        file.truncate(1 << 43)
    assert verified(target)[0] == ("00001.png", "has 8,796,093,022,208 bytes, more than any release has")


def test_a_dicom_file_that_no_release_can_fill_is_not_read(target: Path) -> None:
    lines = (target / "manifest.jsonl").read_text()
    (target / "manifest.jsonl").write_text(lines.replace("00001.png", "00001.dcm"))
    with (target / "00001.png").rename(target / "00001.dcm").open("r+b") as file:
        file.truncate(1 << 43)
    assert verified(target)[0] == ("00001.dcm", "has 8,796,093,022,208 bytes, more than any release has")


def test_random_names_are_recognised(tmp_path: Path) -> None:
    settings = ReleaseSettings(20.0, names="random")
    release(plant(tmp_path / "in", small_images(5)), tmp_path / "out", settings=settings)
    assert "file names and folders" not in card_of(tmp_path / "out")["not_protected"]
    assert verified(tmp_path / "out") == []
