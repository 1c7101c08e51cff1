"""Attacks on verify: what an owner declares freely (names, kept data, losses) is bounded, and nothing else is free."""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

from ldp_slicing.card.card import MOST_KEPT
from ldp_slicing.errors import ReleaseError
from ldp_slicing.manifest import write_manifest
from ldp_slicing.release.settings import ReleaseSettings
from ldp_slicing.storage import LocalStorage
from ldp_slicing.verify import verify_file
from tests.formats.shards import members_of, shard
from tests.formats.tampering import problem_of
from tests.markers import encoded, gradient
from tests.release.helpers import PNG, SECRET, card_of, manifest_of, plant, release, verified, write_card

OTHER = encoded(gradient(11, 5), "PNG")
KEEP = ReleaseSettings(5.0, keep=("cls",))


def enter(target: Path, **changes: Any) -> None:
    """Change the first line of the manifest."""
    first, *lines = manifest_of(target)
    write_manifest(LocalStorage(target), [first | changes, *lines])


def test_a_loss_that_did_not_happen_states_no_numbers_of_its_own(tmp_path: Path) -> None:
    """A lost release has its size in the manifest. If the file is there, these numbers are compared with it."""
    release(plant(tmp_path / "in", {"a.png": PNG, "b.png": OTHER}), tmp_path / "out")
    enter(tmp_path / "out", status="lost", width=7, height=9, word_bits=24)
    assert verified(tmp_path / "out") == []
    enter(tmp_path / "out", status="lost", width=7, height=9, word_bits=int.from_bytes(SECRET[:6], "big"))
    assert "its size is not the one in the manifest" in dict(verified(tmp_path / "out"))["a.png"]


def test_a_card_mentions_only_the_kept_data_that_is_there(tmp_path: Path) -> None:
    release(plant(tmp_path / "in", {"s.tar": shard({"0.png": PNG, "0.cls": b"7"})}), tmp_path / "out", KEEP)
    assert card_of(tmp_path / "out")["kept_beside"] == ["cls"]
    assert verified(tmp_path / "out") == []
    card = card_of(tmp_path / "out")
    card["kept_beside"].append("Anna Smith, born 1970")
    write_card(tmp_path / "out", {**card, "kept_beside": sorted(card["kept_beside"])})
    assert "that no file holds: 'Anna Smith, born 1970'" in dict(verified(tmp_path / "out"))["card.json"]


def test_kept_data_of_a_lost_release_may_be_mentioned(tmp_path: Path) -> None:
    files = {"a.tar": shard({"0.png": PNG, "0.cls": b"7"}), "b.png": OTHER}
    release(plant(tmp_path / "in", files), tmp_path / "out", KEEP)
    (tmp_path / "out" / "a.tar").unlink()
    release(tmp_path / "in", tmp_path / "out", KEEP)
    assert dict(verified(tmp_path / "out")) == {"a.tar": "is lost, as the manifest records"}


def zipped(data: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("source", data)
    return file.getvalue()


@pytest.mark.parametrize(
    ("ending", "data"),
    [
        ("zip", zipped(OTHER)),
        ("txt", zipped(OTHER)),
        ("tar", shard({"a": OTHER})),
        ("jpg", b" " + OTHER),
        ("dcm", b" "),
    ],
)
def test_what_could_not_be_kept_in_a_shard_is_wrong(ending: str, data: bytes, tmp_path: Path) -> None:
    """``privatize`` keeps no image and no archive, so a card that mentions one does not make it right."""
    target = tmp_path / "out"
    release(plant(tmp_path / "in", {"s.tar": shard({"0.png": PNG, "0.cls": b"7"})}), target, KEEP)
    members = {"0.png": members_of(target / "s.tar")["0.png"], f"0.{ending}": data}
    write_card(target, card_of(target) | {"kept_beside": [ending]})
    problem = problem_of(target, "s.tar", shard(members, tarfile.GNU_FORMAT, mtime=0, uname="", uid=0))
    assert problem == f"0.{ending} is an image or an archive that was not released"


@pytest.mark.parametrize("keep", [tuple(map(str, range(MOST_KEPT + 1))), ("x" * 300,)])
def test_names_that_a_card_cannot_mention_are_refused_at_once(keep: tuple[str, ...], tmp_path: Path) -> None:
    with pytest.raises(ReleaseError, match="a card names at most"):
        release(plant(tmp_path / "in", {"a.png": PNG}), tmp_path / "out", ReleaseSettings(5.0, keep=keep))


@pytest.mark.parametrize(
    "attribute", ["user.comment", "trusted.comment", "security.comment", "security.selinux", "system.comment"]
)
@pytest.mark.parametrize("name", ["a.png", ".", "card.json"])
def test_extended_attributes_of_every_kind_are_reported(attribute: str, name: str, tmp_path: Path) -> None:
    release(plant(tmp_path / "in", {"a.png": PNG}), tmp_path / "out")
    try:
        os.setxattr(tmp_path / "out" / name, attribute, SECRET * 20)
    except (AttributeError, OSError):
        pytest.skip("this user or file system cannot set it")
    assert f"has the extended attribute {attribute}" in dict(verified(tmp_path / "out"))[name]


def test_a_label_of_the_system_is_not_reported(tmp_path: Path) -> None:
    release(plant(tmp_path / "in", {"a.png": PNG}), tmp_path / "out")
    try:
        os.setxattr(tmp_path / "out" / "a.png", "security.selinux", b"system_u:object_r:user_home_t:s0\0")
    except (AttributeError, OSError):
        pytest.skip("this user or file system cannot set it")
    assert verified(tmp_path / "out") == []


def test_extended_attributes_of_a_single_file_are_reported(tmp_path: Path) -> None:
    release(plant(tmp_path, {"a.png": PNG}) / "a.png", tmp_path / "b.png")
    try:
        os.setxattr(tmp_path / "b.png", "user.comment", SECRET)
    except (AttributeError, OSError):
        pytest.skip("this file system has no extended attributes")
    assert "user.comment" in dict(verify_file(LocalStorage(tmp_path), "b.png").problems)["b.png"]


def written(path: Path, members: list[tuple[str, bytes]]) -> bytes:
    """Return a shard with these members in our encoding."""
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as file:
        for name, data in members:
            made = plant(path.parent, {"member": data}) / "member"
            about = tarfile.TarInfo(name)
            about.size = len(data)
            with made.open("rb") as content:
                file.addfile(about, content)
    return path.read_bytes()


@pytest.mark.parametrize(
    ("names", "why"),
    [
        (["0.png", "1.png", "0.png"], "ended before it"),
        (["0.png", "0.png"], "occurs more than once"),
        (["0.png", "./0.png"], "ended before it"),
        (["a/0.png", "a//0.png"], "ended before it"),
        (["0.png", "0.cls", "0.cls"], "occurs more than once"),
    ],
)
def test_equal_names_of_members_are_found(names: list[str], why: str, tmp_path: Path) -> None:
    """Only the last of them would be unpacked, so that the others are hidden."""
    source = {"0.png": PNG, "0.cls": b"7", "1.png": OTHER}
    release(plant(tmp_path / "in", {"s.tar": shard(source)}), tmp_path / "out", KEEP)
    members = members_of(tmp_path / "out" / "s.tar")
    content = [(name, members["0.cls"] if name.endswith("cls") else members["0.png"]) for name in names]
    problem = problem_of(tmp_path / "out", "s.tar", written(tmp_path / "forged.tar", content))
    assert problem is not None
    assert why in problem


@pytest.mark.parametrize("order", [["0.png", "1.png", "0.jpg"], ["0.png", "./0.png"]])
def test_members_apart_from_their_sample_are_not_released(order: list[str], tmp_path: Path) -> None:
    data = written(tmp_path / "s.tar", [(name, encoded(gradient(8 + i, 8), "PNG")) for i, name in enumerate(order)])
    ran = release(plant(tmp_path / "in", {"s.tar": data}), tmp_path / "out")
    assert list(members_of(tmp_path / "out" / "s.tar")) == order[:-1]
    assert "is apart from the rest of its sample" in ran.problems[f"s.tar: {order[-1]}"]
    assert verified(tmp_path / "out") == []


def test_a_name_of_a_member_has_a_limit(tmp_path: Path) -> None:
    long, longest = f"{'x' * 2044}.png", f"{'y' * 2045}.png"
    ran = release(plant(tmp_path / "in", {"s.tar": shard({long: PNG, longest: OTHER})}), tmp_path / "out")
    assert list(members_of(tmp_path / "out" / "s.tar")) == [long]
    assert "has a name of more than 2,048 bytes" in str(ran.problems)
    assert verified(tmp_path / "out") == []
    member = members_of(tmp_path / "out" / "s.tar")[long]
    data = shard({f"{'x' * 5000}.png": member}, tarfile.GNU_FORMAT, mtime=0, uname="", uid=0)
    assert problem_of(tmp_path / "out", "s.tar", data) is not None


def test_members_have_random_names_where_the_card_says_so(tmp_path: Path) -> None:
    random = ReleaseSettings(5.0, names="random", keep=("cls",))
    release(plant(tmp_path / "in", {"s.tar": shard({"0.png": PNG, "0.cls": b"7"})}), tmp_path / "out", random)
    assert verified(tmp_path / "out") == []
    (path,) = (tmp_path / "out").rglob("*.tar")
    output = path.relative_to(tmp_path / "out").as_posix()
    content = [(f"Anna Smith.{name.rpartition('.')[2]}", data) for name, data in members_of(path).items()]
    path.write_bytes(written(tmp_path / "forged.tar", content))
    enter(tmp_path / "out", member="Anna Smith.png", sha256=hashlib.sha256(path.read_bytes()).hexdigest())
    assert f"{output}: Anna Smith.png is not a random name" in dict(verified(tmp_path / "out"))["card.json"]


def test_a_document_with_many_keys_is_refused_quickly(tmp_path: Path) -> None:
    """Doubled keys were once looked for by comparing all pairs of keys."""
    keys = {f"{i:x}": 0 for i in range(90_000)}
    text = json.dumps(keys)[:-1] + ', "ffff": 0}'
    release(plant(tmp_path / "in", {"a.png": PNG}), tmp_path / "out")
    (tmp_path / "out" / "card.json").write_text(text[: 1 << 20])
    assert "the key 'ffff' occurs twice" in dict(verified(tmp_path / "out"))["card.json"]
