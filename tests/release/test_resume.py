"""One source, one release: across interruptions, repetitions, losses and changes."""

from __future__ import annotations

import os
import re
import shutil
import stat
from pathlib import Path

import pytest

from ldp_slicing.errors import ReleaseError
from ldp_slicing.files import OWNERS_NOTE
from ldp_slicing.keys import new_key_file
from ldp_slicing.release.opening import prepare
from ldp_slicing.release.run import on_this_machine
from ldp_slicing.release.settings import ReleaseSettings
from ldp_slicing.release.state import RunState
from tests.formats.videos import FRAMES, video
from tests.markers import encoded, gradient
from tests.release.helpers import (
    PNG,
    SETTINGS,
    card_of,
    manifest_of,
    on_card,
    outputs,
    plant,
    release,
    small_images,
    snapshot,
    spent,
    tree,
    verified,
)

OTHER = encoded(gradient(11, 5), "PNG")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return plant(tmp_path / "in", small_images(150))


@pytest.mark.parametrize("workers", [1, 2])
def test_a_stopped_run_is_resumed_without_repeating_anything(workers: int, source: Path, tmp_path: Path) -> None:
    target = tmp_path / "out"
    assert release(source, target, after=1, workers=workers).stopped
    before, key = outputs(target), tmp_path / "out.owner" / "key"
    assert 0 < len(before) < 150
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert stat.S_IMODE(key.parent.stat().st_mode) == 0o700
    assert verified(target) == []
    kept = {name: (target / name).stat().st_mtime_ns for name in before}
    ran = release(source, target, workers=workers)
    assert (ran.complete, ran.kept, len(ran.reports)) == (True, len(before), 150 - len(before))
    after = outputs(target)
    assert len(after) == on_card(target) == 150
    assert {name: after[name] for name in before} == before
    assert {name: (target / name).stat().st_mtime_ns for name in before} == kept
    assert not key.exists()
    assert tree(tmp_path / "out.owner") == [OWNERS_NOTE, "state.sqlite"]
    assert "Do not share it" in (tmp_path / "out.owner" / OWNERS_NOTE).read_text()
    assert verified(target) == []
    assert (spent().releases, spent().unfinished) == (150, 0)


def test_outputs_lost_in_a_power_cut_are_made_again_with_the_same_bytes(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "out"
    release(source, target, after=1)
    before = outputs(target)
    lost, empty, cut, zeros = list(before)[:4]
    (target / lost).unlink()
    (target / empty).write_bytes(b"")
    (target / cut).write_bytes(before[cut][:-7])
    (target / zeros).write_bytes(before[zeros][:60] + bytes(40) + before[zeros][100:])  # the size is right
    plant(tmp_path / "out.owner" / "temporary", {"left over": b"half a file"})
    assert release(source, target).complete
    after = outputs(target)
    assert {name: after[name] for name in before} == before
    assert len(after) == spent().releases == 150
    assert not (tmp_path / "out.owner" / "temporary").exists()


def test_flushed_outputs_are_not_read_again(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ldp_slicing.release.run.FLUSH_SECONDS", 0.0)
    target = tmp_path / "out"
    release(source, target, after=1)
    name = next(iter(outputs(target)))
    content = (target / name).read_bytes()
    (target / name).write_bytes(content[:-13] + b"!" + content[-12:])
    release(source, target)
    assert verified(target)[0] == (name, "has changed since its release: its checksum differs from the manifest")


def test_a_finished_run_releases_only_new_files(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "out"
    release(source, target)
    before, beside = outputs(target), (tmp_path / "out" / "manifest.jsonl").read_bytes()
    ran = release(source, target)
    assert (ran.complete, ran.reports, ran.problems) == (True, {}, {})
    assert (outputs(target), (target / "manifest.jsonl").read_bytes()) == (before, beside)
    plant(source, {"new/a.png": OTHER, "00000.jpg": encoded(gradient(6, 6), "JPEG")})
    ran = release(source, target)
    assert set(ran.reports) == {"new/a.png", "00000.jpg"}
    after = outputs(target)
    assert {name: after[name] for name in before} == before
    assert set(after) - set(before) == {"new/a.png", "00000.jpg.png"}
    assert len(manifest_of(target)) == on_card(target) == spent().releases == 152
    assert verified(target) == []


@pytest.mark.parametrize("how", ["lost", "damaged"])
def test_a_lost_release_is_made_again_only_by_spending(how: str, source: Path, tmp_path: Path) -> None:
    target = tmp_path / "out"
    release(source, target)
    first = outputs(target)["00007.png"]
    (target / "00007.png").unlink()
    if how == "damaged":
        (target / "00007.png").write_bytes(b"\0" * len(first))
    ran = release(source, target)
    said = {
        "lost": "is lost, and cannot be made again without spending again; --spend allows it",
        "damaged": "00007.png: move that file away",
    }
    assert said[how] in ran.problems["00007.png"]
    if how == "damaged":
        assert "00007.png is not the file that was released under that name" in (ran.card_problem or "")
        assert not (target / "card.json").exists()  # no card would be true of it
    else:
        assert [line["status"] for line in manifest_of(target)] == ["released"] * 7 + [how] + ["released"] * 142
        assert verified(target) == [("00007.png", "is lost, as the manifest records")]
        text = (target / "card.json").read_text()
        (target / "card.json").write_text(text.replace('"releases": 150', '"releases": 149'))
        assert ("card.json", "states 149 releases of 24-bit words; found 150") in verified(target)
        (target / "card.json").write_text(text)
    assert spent().releases == 150
    if how == "damaged":
        assert release(source, target, spend=True).reports == {}  # --spend does not allow overwriting
        (target / "00007.png").unlink()
    ran = release(source, target, spend=True)
    assert set(ran.reports) == {"00007.png"}
    assert outputs(target)["00007.png"] not in (first, b"\0" * len(first))
    assert manifest_of(target)[7]["status"] == "released again"
    assert card_of(target)["statements"][0]["most_releases_of_one_source"] == 2
    assert [level["unit"] for level in card_of(target)["statements"][0]["levels"]][-2:] == [
        "source pixel, 2 releases",
        "image, 2 releases",
    ]
    assert spent().releases == 151
    assert verified(target) == []


def test_a_lost_release_that_comes_back_is_no_problem(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "out"
    release(source, target)
    (target / "00007.png").rename(tmp_path / "elsewhere")
    assert release(source, target).problems
    (tmp_path / "elsewhere").rename(target / "00007.png")
    assert not release(source, target).problems
    assert verified(target) == []


def test_another_target_is_another_release(source: Path, tmp_path: Path) -> None:
    release(source, tmp_path / "one")
    ran = release(source, tmp_path / "two")
    assert len(ran.problems) == 150
    assert all("add up to epsilon 10" in problem for problem in ran.problems.values())
    assert outputs(tmp_path / "two") == {}
    assert spent().releases == 150
    assert release(source, tmp_path / "two", spend=True).problems == {}
    assert spent().releases == 300
    one, two = outputs(tmp_path / "one"), outputs(tmp_path / "two")
    assert set(one) == set(two)
    assert not set(one.values()) & set(two.values())


CHANGED = [
    (ReleaseSettings(epsilon=6.0), "epsilon: 5.0 then, 6.0 now"),
    (ReleaseSettings(5.0, prune=None), "prune: haar then, none now"),
    (ReleaseSettings(5.0, (1, 1, 1)), "weights: 4:1:1 then, 1:1:1 now"),
    (ReleaseSettings(5.0, slices="Y7=3,Y6"), "slices: each bit then, Y7 3.75, Y6 1.25 now"),
    (ReleaseSettings(5.0, names="random"), "names: keep then, random now"),
    (
        ReleaseSettings(5.0, prune="dct", duplicates="once"),
        "prune: haar then, dct now; duplicates: spend then, once now",
    ),
]


@pytest.mark.parametrize(("settings", "said"), CHANGED, ids=[said for _, said in CHANGED])
@pytest.mark.parametrize("after", [1, None], ids=["unfinished", "finished"])
def test_other_parameters_are_refused_with_both_values(
    settings: ReleaseSettings, said: str, after: int | None, source: Path, tmp_path: Path
) -> None:
    release(source, tmp_path / "out", after=after)
    before = snapshot(tmp_path, lambda path: "sqlite" not in path.name)
    with pytest.raises(ReleaseError, match=re.escape(said)):
        release(source, tmp_path / "out", settings)
    assert snapshot(tmp_path, lambda path: "sqlite" not in path.name) == before


def test_another_source_ledger_or_key_is_another_parameter(source: Path, tmp_path: Path) -> None:
    release(source, tmp_path / "out")
    with pytest.raises(ReleaseError, match=r"begun with the sources in .*in, and .*other does not hold the same"):
        release(plant(tmp_path / "other", {"a.png": PNG}), tmp_path / "out")
    release(plant(tmp_path / "third", {"a.png": PNG}), tmp_path / "out3", ledger=tmp_path / "other.sqlite")
    with pytest.raises(
        ReleaseError,
        match=r"begun with the ledger .*ledger.sqlite, not with .*other.sqlite: name that one with --ledger",
    ):
        release(source, tmp_path / "out", ledger=tmp_path / "other.sqlite")
    with pytest.raises(ReleaseError, match=r"begun with the ledger .*ledger.sqlite, and .*third.sqlite does not exist"):
        release(source, tmp_path / "out", ledger=tmp_path / "third.sqlite")
    new_key_file(tmp_path / "key")
    with pytest.raises(ReleaseError, match="key: run then, "):
        release(source, tmp_path / "out", key=tmp_path / "key")


def test_a_target_whose_state_was_deleted_is_refused(source: Path, tmp_path: Path) -> None:
    release(source, tmp_path / "out", after=1)
    shutil.rmtree(tmp_path / "out.owner")
    with pytest.raises(ReleaseError, match="not an empty folder"):
        release(source, tmp_path / "out")


def test_a_run_whose_key_was_lost_cannot_repeat_anything(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "out"
    release(source, target, after=1)
    before = outputs(target)
    (tmp_path / "out.owner" / "key").unlink()
    first = next(iter(before))
    (target / first).unlink()
    ran = release(source, target)
    assert "cannot be made again" in ran.problems[first]
    assert len(outputs(target)) == 149
    assert spent().releases == 150


def test_a_crash_just_before_the_key_was_destroyed(source: Path, tmp_path: Path) -> None:
    release(source, tmp_path / "out")
    new_key_file(tmp_path / "out.owner" / "key")
    release(source, tmp_path / "out")
    assert not (tmp_path / "out.owner" / "key").exists()


def test_two_runs_at_once_on_one_target(source: Path, tmp_path: Path) -> None:
    run = prepare(source, tmp_path / "out", SETTINGS)
    with pytest.raises(ReleaseError, match="another process is working on this release"):
        prepare(source, tmp_path / "out", SETTINGS)
    list(run.run(on_this_machine(1)))
    run.close()
    assert len(outputs(tmp_path / "out")) == 150


def test_other_processes_can_use_the_ledger_while_a_run_is_open(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run's database is locked exclusively; the ledger that is attached to it is not."""
    monkeypatch.setattr("ldp_slicing.ledger.file.BUSY_SECONDS", 0.1)
    run = prepare(source, tmp_path / "out", SETTINGS)
    other = plant(tmp_path / "other", {"a.png": OTHER})
    assert release(other, tmp_path / "out2").complete
    list(run.run(on_this_machine(1)))
    assert run.result.complete
    assert release(plant(other, {"b.png": encoded(gradient(5, 5), "PNG")}), tmp_path / "out2").complete
    run.close()
    assert spent().releases == 152


def test_an_interrupted_later_run_leaves_earlier_releases_alone(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "out"
    release(source, target)
    plant(source, {f"more/{name}": data for name, data in small_images(150, 5, 5).items()})
    release(source, target, after=1)
    (target / "00003.png").unlink()  # from the first run, whose key is gone
    ran = release(source, target)
    assert "cannot be made again" in ran.problems["00003.png"]
    assert len(outputs(target)) == 299
    assert spent().releases == 300


# Sources that change


def test_a_source_that_was_only_touched_has_not_changed(source: Path, tmp_path: Path) -> None:
    release(source, tmp_path / "out")
    os.utime(source / "00001.png", (1, 1))
    content = (source / "00002.png").read_bytes()
    (source / "00002.png").unlink()
    (source / "00002.png").write_bytes(content)
    assert release(source, tmp_path / "out").problems == {}


def test_a_replaced_source_is_reported_and_its_release_stays(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "out"
    release(source, target)
    before = outputs(target)
    (source / "00001.png").write_bytes(OTHER)
    (source / "00002.png").unlink()
    os.mkfifo(source / "00002.png")
    (source / "00003.png").unlink()
    ran = release(source, target)
    assert ran.problems == dict.fromkeys(
        ["00001.png", "00002.png"],
        "has changed since it was released, and its release is of the earlier content; to release the new content, "
        "give it another name",
    )
    assert outputs(target) == before
    (source / "00001.png").rename(source / "renamed.png")
    (source / "00002.png").unlink()
    assert release(source, target).problems == {}
    assert set(outputs(target)) - set(before) == {"renamed.png"}


def test_a_source_replaced_while_the_run_was_stopped_gets_new_noise(source: Path, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    release(source, one, after=0)
    shutil.copytree(one, two)
    shutil.copytree(tmp_path / "one.owner", tmp_path / "two.owner")
    release(source, one)
    (source / "00149.png").write_bytes(OTHER)
    release(source, two, spend=True)  # under the same key, as if the first run had not happened
    first, second = outputs(one), outputs(two)
    assert {name for name in first if first[name] != second[name]} == {"00149.png"}
    assert spent().releases == 151


# Owner's keys


def test_under_an_owners_key_equal_pixels_have_equal_releases_anywhere(tmp_path: Path) -> None:
    grey = encoded(gradient()[..., 0], "PNG")
    source = plant(
        tmp_path / "in", {"a.png": PNG, "copy of a.png": PNG, "b.bmp": encoded(gradient(9, 7), "BMP"), "c.png": grey}
    )
    elsewhere = plant(tmp_path / "elsewhere", {"album/x.png": PNG, "y.tiff": encoded(gradient()[..., 0], "TIFF")})
    new_key_file(tmp_path / "key")
    release(source, tmp_path / "out", key=tmp_path / "key")
    release(elsewhere, tmp_path / "out2", key=tmp_path / "key", ledger=tmp_path / "another.sqlite", workers=2)
    one, two = outputs(tmp_path / "out"), outputs(tmp_path / "out2")
    assert one["a.png"] == one["copy of a.png"] == one["b.png"] == two["album/x.png"]
    assert one["c.png"] == two["y.png"]
    assert spent().releases == 2
    assert any("equal sources have equal releases" in line for line in card_of(tmp_path / "out")["not_protected"])
    assert not (tmp_path / "out.owner" / "key").exists()
    (tmp_path / "out" / "a.png").unlink()
    assert release(source, tmp_path / "out", key=tmp_path / "key").complete
    assert outputs(tmp_path / "out") == one
    assert spent().releases == 2
    new_key_file(tmp_path / "key2")
    assert len(release(source, tmp_path / "out3", key=tmp_path / "key2").problems) == 4
    assert len(release(source, tmp_path / "out4", ReleaseSettings(6.0), key=tmp_path / "key").problems) == 4
    with pytest.raises(ReleaseError, match="cost nothing more"):
        release(source, tmp_path / "out5", ReleaseSettings(20.0, duplicates="once"), key=tmp_path / "key")


# Copies and names


def test_copies_are_counted_or_left_out(tmp_path: Path) -> None:
    source = plant(
        tmp_path / "in", {"a.png": PNG, "b.png": PNG, "c/d.bmp": encoded(gradient(9, 7), "BMP"), "e.png": OTHER}
    )
    release(source, tmp_path / "each")
    each = outputs(tmp_path / "each")
    assert len(set(each.values())) == 4
    assert card_of(tmp_path / "each")["statements"][0]["most_releases_of_one_source"] == 3
    once = tmp_path / "ledger.sqlite"
    ran = release(source, tmp_path / "once", ReleaseSettings(5.0, duplicates="once"), ledger=once)
    assert ran.copies == ["b.png", "c/d.bmp"]
    assert (ran.problems, ran.complete) == ({}, True)
    assert list(outputs(tmp_path / "once")) == ["a.png", "e.png"]
    assert spent(once).releases == 2
    ran = release(source, tmp_path / "once", ReleaseSettings(5.0, duplicates="once"), ledger=once)
    assert (ran.copies, ran.problems) == (["b.png", "c/d.bmp"], {})
    assert verified(tmp_path / "once") == []


def test_random_names_reveal_nothing_and_are_remembered(source: Path, tmp_path: Path) -> None:
    settings, target = ReleaseSettings(5.0, names="random"), tmp_path / "out"
    plant(source, {"card.json/secret album/a.png": OTHER})
    release(source, target, settings, after=1)
    before = outputs(target)
    release(source, target, settings)
    names = outputs(target)
    assert len(names) == 151
    assert all(re.fullmatch(r"([0-9a-f]{2})/\1[0-9a-f]{30}\.png", name) for name in names)
    assert set(before.items()) <= set(names.items())
    beside = b"".join(snapshot(target, lambda path: path.suffix != ".png").values())
    assert not re.search(rb"secret|album|\"\d{5}\.png", beside)
    assert "file names and folders" not in card_of(target)["not_protected"]
    plant(source, {"later.png": encoded(gradient(3, 3), "PNG")})
    release(source, target, settings)
    assert len(outputs(target)) == 152
    assert verified(target) == []


ODD = [
    b"two words",
    b"new\nline",
    b"\xff\xfe not UTF-8",
    "größe, 日本".encode(),
    b"tab\there",
    b"'quoted' \"twice\"",
    b"back\\slash",
    b"%s {x} $HOME",
]


@pytest.mark.parametrize("names", ["keep", "random"])
def test_odd_names_are_resumed_listed_and_verified(names: str, tmp_path: Path) -> None:
    odd = [f"{os.fsdecode(name)}/{i} {os.fsdecode(name)}.png" for name in ODD for i in range(20)]
    files = {name: encoded(gradient(4 + i, 5), "PNG") for i, name in enumerate(odd)}
    source, target, settings = plant(tmp_path / "in", files), tmp_path / "out", ReleaseSettings(5.0, names=names)  # type: ignore[arg-type]
    assert release(source, target, settings, after=1).stopped
    before = outputs(target)
    ran = release(source, target, settings, workers=2)
    assert (ran.complete, ran.problems, ran.kept) == (True, {}, len(before))
    after = outputs(target)
    assert {name: after[name] for name in before} == before
    assert set(after) == set(files) or names == "random"
    assert len(after) == spent().releases == len(files)
    assert {line["output"] for line in manifest_of(target)} == set(after)
    assert verified(target) == []


# Other places


def test_a_video_of_equal_frames_under_an_owners_key(tmp_path: Path) -> None:
    """Equal frames are one release and one entry; the card still says how many frames there are."""
    new_key_file(tmp_path / "key")
    source = plant(tmp_path / "in", {"a.mkv": video([FRAMES[0]] * 5 + [FRAMES[1]])})
    release(source, tmp_path / "out", key=tmp_path / "key")
    assert card_of(tmp_path / "out")["statements"][0]["most_releases_of_one_source"] == 6
    assert spent().releases == 2
    assert verified(tmp_path / "out") == []


def test_a_stop_while_releases_are_checked_changes_nothing(source: Path, tmp_path: Path) -> None:
    release(source, tmp_path / "out")
    before = snapshot(tmp_path / "out")
    plant(source, {"new.png": OTHER})
    run = prepare(source, tmp_path / "out", SETTINGS, stop=lambda: True)
    assert list(run.run(on_this_machine(1))) == []
    assert (run.stopped, run.result.complete) == (True, False)
    run.close()
    assert snapshot(tmp_path / "out") == before
    assert release(source, tmp_path / "out").complete


def test_the_current_folder_as_target(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    release(source, Path())
    assert len(outputs(tmp_path / "here")) == 150
    assert (tmp_path / "here.owner" / "state.sqlite").exists()


def test_a_target_on_another_file_system_than_its_state(source: Path, tmp_path: Path) -> None:
    shared = Path("/dev/shm") if Path("/dev/shm").is_dir() else tmp_path
    target = shared / f"ldp-slicing-{os.getpid()}"
    try:
        release(source, target, state=tmp_path / "state", after=1)
        assert not [name for name in tree(target) if "partial" in name]
        release(source, target, state=tmp_path / "state")
        assert len(outputs(target)) == 150
        assert verified(target) == []
        assert {path.name for path in tmp_path.iterdir()} == {"in", "state"}
    finally:
        shutil.rmtree(target)


def test_a_state_of_another_version_or_none_at_all(source: Path, tmp_path: Path) -> None:
    release(source, tmp_path / "out")
    journal = RunState(tmp_path / "out.owner")
    journal.set_durably("version", 99)
    journal.close()
    with pytest.raises(ReleaseError, match=r"another version of this software \(format 99, not"):
        release(source, tmp_path / "out")
    (tmp_path / "out.owner" / "state.sqlite").write_bytes(b"no database" * 100)
    with pytest.raises(ReleaseError, match="cannot be used"):
        release(source, tmp_path / "out")


def test_what_was_released_is_counted_when_release_and_source_are_gone(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "out"
    release(source, target)
    (target / "00007.png").unlink()
    (source / "00007.png").unlink()
    for spend in (False, True, True):
        ran = release(source, target, spend=spend)
        assert "lost" in ran.problems["00007.png"]
        assert card_of(target)["statements"][0]["releases"] == 150
        assert verified(target) == [("00007.png", "is lost, as the manifest records")]
