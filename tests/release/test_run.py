from __future__ import annotations

import io
import json
import os
import pickle
import resource
import subprocess
import sys
import tarfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import BinaryIO

import numpy as np
import pytest
from PIL import Image

from ldp_slicing import Plan
from ldp_slicing.audit.releases import audit_releases
from ldp_slicing.errors import LdpSlicingError, ReleaseError
from ldp_slicing.formats import image
from ldp_slicing.formats.base import Entry, Options
from ldp_slicing.images import read_image
from ldp_slicing.keys import new_key_file
from ldp_slicing.ledger import Ledger, default_ledger
from ldp_slicing.release import records
from ldp_slicing.release.opening import prepare
from ldp_slicing.release.run import on_this_machine
from ldp_slicing.release.settings import ReleaseSettings
from ldp_slicing.release.worker import BATCH_SOURCES
from ldp_slicing.sets import CARD_NAME
from ldp_slicing.storage import PARTIAL, LocalStorage
from tests.markers import encoded, gradient, png_16
from tests.release.helpers import (
    BESIDE,
    PNG,
    SETTINGS,
    card_of,
    on_card,
    outputs,
    pixels,
    plant,
    release,
    small_images,
    spent,
    tree,
    verified,
    write_card,
)

MIXED = {
    "colour.jpg": encoded(gradient(), "JPEG"),
    "album/grey.png": encoded(gradient()[..., 2], "PNG"),
    "album/deep.tif": encoded(gradient()[..., 0].astype(np.uint16) * 257, "TIFF"),
    "album/more/one pixel.bmp": encoded(gradient(1, 1), "BMP"),
    "palette.gif": encoded(Image.fromarray(gradient()).quantize(8), "GIF"),
    "wide.png": png_16(gradient().astype(np.uint16) * 257),
    "cmyk.tiff": encoded(Image.fromarray(gradient()).convert("CMYK"), "TIFF"),
    "transparent.webp": encoded(Image.fromarray(gradient()).convert("RGBA"), "WEBP"),
}


def test_a_mixed_folder_is_mirrored_and_each_image_gets_the_plan_that_fits(tmp_path: Path) -> None:
    source, target = plant(tmp_path / "in", MIXED), tmp_path / "new" / "out"
    ran = release(source, target)
    assert set(ran.reports) == set(MIXED)
    assert ran.complete
    assert tree(target) == sorted([*(str(PurePath(name).with_suffix(".png")) for name in MIXED), *BESIDE])
    for name, report in ran.reports.items():
        assert report.problem is None
        before, after = read_image(source / name).pixels, pixels(target / report.task.output)
        assert (after.shape, after.dtype) == (before.shape, before.dtype)
        assert before.size == 3 or np.mean(before != after) > 0.5
    statements = {statement["plan"]["word_bits"]: statement for statement in card_of(target)["statements"]}
    assert {bits: statement["releases"] for bits, statement in statements.items()} == {24: 6, 16: 1, 8: 1}
    assert statements[24]["width"] == [1, 37]
    assert all(0 < statement["plan"]["epsilon_realised"] <= SETTINGS.epsilon for statement in statements.values())
    assert verified(target) == []
    assert (spent().releases, spent().unfinished) == (len(MIXED), 0)


def test_slices_for_colour_images(tmp_path: Path) -> None:
    source, target, settings = (
        plant(tmp_path / "in", MIXED),
        tmp_path / "out",
        ReleaseSettings(5.0, slices="Y7+Y4+Cb7+Cr7"),
    )
    ran = release(source, target, settings, workers=2)
    (statement,) = card_of(target)["statements"]
    assert (statement["plan"]["word_bits"], statement["releases"]) == (24, 6)
    assert statement["plan"]["epsilon_realised"] == Plan.sliced(5.0, "Y7+Y4+Cb7+Cr7").realised_epsilon <= 5.0
    assert set(ran.problems) == {"album/grey.png", "album/deep.tif"}
    assert all("is grey, and these slices are for colour pixels" in problem for problem in ran.problems.values())
    assert (spent().releases, spent().unfinished) == (6, 0)  # the others cost nothing
    assert len(tree(target)) == 6 + len(BESIDE)
    assert audit_releases(target).passed
    assert verified(target) == []
    before = outputs(target)
    again = release(
        source, target, ReleaseSettings(5.0, slices=" y4+Y7 + Cr7+cb7=3")
    )  # the same, spelled in another way
    assert (again.kept, outputs(target)) == (6, before)


def test_slices_for_grey_images(tmp_path: Path) -> None:
    deep = io.BytesIO()
    Image.fromarray(np.arange(63, dtype=np.uint16).reshape(9, 7) * 999).save(deep, "PNG")
    source = plant(
        tmp_path / "in",
        {"a.png": encoded(gradient(9, 7)[..., 0], "PNG"), "deep.png": deep.getvalue(), "colour.png": PNG},
    )
    ran = release(source, tmp_path / "out", ReleaseSettings(5.0, slices="11+10"))
    assert {name: problem.partition(":")[0] for name, problem in ran.problems.items()} == {
        "a.png": "there is no bit '11'",
        "colour.png": "is in colour, and these slices are for grey pixels",
    }
    (statement,) = card_of(tmp_path / "out")["statements"]
    assert [part["bits"] for part in statement["plan"]["slices"]] == ["0xc00"]
    assert verified(tmp_path / "out") == []
    with pytest.raises(ReleaseError, match=r"slices: bit 11.bit 10 5\.0 then, bit 11.bit 9 5\.0 now"):
        release(source, tmp_path / "out", ReleaseSettings(5.0, slices="11+9"))
    with pytest.raises(LdpSlicingError, match="there is no bit '17'"):
        release(source, tmp_path / "out2", ReleaseSettings(5.0, slices="17"))


def test_a_grey_image_stored_in_colour_gets_a_notice(tmp_path: Path) -> None:
    grey = np.repeat(gradient(9, 7)[..., :1], 3, axis=2)
    source = plant(tmp_path / "in", {"x-ray.png": encoded(grey, "PNG"), "colour.png": PNG})
    run = prepare(source, tmp_path / "out", SETTINGS)
    advised = list[tuple[str, str, int]]()
    list(run.run(on_this_machine(1), advise=lambda *advice: advised.append((*advice, run.ledger.total().releases))))
    assert [(one.source, one.notice.partition(",")[0], one.images) for one in records.notices(run.state)] == [
        ("x-ray.png", "all three channels are equal", 1)
    ]
    run.close()
    assert [(path, notice.partition(",")[0], spent) for path, notice, spent in advised] == [
        ("x-ray.png", "all three channels are equal", 0)  # before anything was spent
    ]


def test_releases_do_not_depend_on_the_number_of_workers_and_differ_between_runs(tmp_path: Path) -> None:
    source = plant(tmp_path / "in", MIXED)
    for name, workers in (("one", 1), ("four", 4), ("again", 4)):
        release(source, tmp_path / name, workers=workers, ledger=tmp_path / f"{name}.sqlite")
    assert tree(tmp_path / "one") == tree(tmp_path / "four") == tree(tmp_path / "again")
    assert card_of(tmp_path / "one") == card_of(tmp_path / "four")
    big = [name for name in tree(tmp_path / "one") if name.endswith(".png") and "one pixel" not in name]
    for name in big:
        assert len({(tmp_path / run / name).read_bytes() for run in ("one", "four", "again")}) == 3


def test_sources_with_the_same_stem_do_not_overwrite_each_other(tmp_path: Path) -> None:
    sizes = {"a.jpg": (5, 4), "a.png": (6, 4), "A.PNG": (7, 4), "a.webp": (8, 4)}
    source = plant(tmp_path / "in", {name: encoded(gradient(*size), "PNG") for name, size in sizes.items()})
    made = {name: report.task.output for name, report in release(source, tmp_path / "out").reports.items()}
    assert len({output.casefold() for output in made.values()}) == 4
    for name, size in sizes.items():
        assert pixels(tmp_path / "out" / made[name]).shape == (*size, 3)
    assert len(outputs(tmp_path / "out")) == 4


def test_bad_files_are_reported_and_the_others_are_released(tmp_path: Path) -> None:
    frames = encoded(gradient(), "WEBP", save_all=True, append_images=[Image.fromarray(gradient()[::-1])])
    bad = {
        "raw.dng": b"hello",
        "empty.png": b"",
        "text.jpg": b"not an image",
        "cut.png": PNG[:60],
        "moving.webp": frames,
    }
    source = plant(tmp_path / "in", {**bad, "good.png": PNG, "also good.png": PNG})
    (source / "link.png").symlink_to("good.png")
    os.mkfifo(source / "pipe.png")
    ran = release(source, tmp_path / "out")
    assert set(ran.problems) == {*bad, "link.png", "pipe.png"}
    assert set(ran.reports) == {*bad, "good.png", "also good.png"}
    assert ran.complete
    assert list(outputs(tmp_path / "out")) == ["also good.png", "good.png"]
    assert on_card(tmp_path / "out") == 2
    assert spent().releases == 2


def test_files_that_change_between_listing_and_reading(tmp_path: Path) -> None:
    source = plant(tmp_path / "in", {"good.png": PNG, "vanished.png": PNG, "pipe.png": PNG, "folder.png": PNG})
    plant(source, {"turned.png": PNG})
    run = prepare(source, tmp_path / "out", SETTINGS)
    for name in ("vanished.png", "pipe.png", "folder.png", "turned.png"):
        (source / name).unlink()
    os.mkfifo(source / "pipe.png")
    (source / "folder.png").mkdir()
    (source / "turned.png").symlink_to("good.png")
    list(run.run(on_this_machine(1)))
    assert {one.source: one.problem for one in records.problems(run.state)} == {
        "vanished.png": "No such file or directory",
        "pipe.png": "is not a regular file",
        "folder.png": "Is a directory",
        "turned.png": "is a symbolic link; links are not followed",
    }
    run.close()
    assert tree(tmp_path / "out") == ["card.json", "good.png", "manifest.jsonl"]


def test_a_run_that_releases_nothing_leaves_no_card(tmp_path: Path) -> None:
    assert release(plant(tmp_path / "in", {"a.png": b"x"}), tmp_path / "out").complete
    assert tree(tmp_path / "out") == []


def test_a_folder_named_like_the_card_does_not_prevent_the_card(tmp_path: Path) -> None:
    taken = {"Card.json/a.png": PNG, "manifest.jsonl/a.png": PNG, ".ldp-slicing-partial/a.png": PNG}
    ran = release(plant(tmp_path / "in", {**taken, "b.png": PNG}), tmp_path / "out")
    assert set(ran.problems) == set(taken)
    assert tree(tmp_path / "out") == ["b.png", *BESIDE]


REFUSALS = {
    "source is missing": ("nowhere", "out", "does not exist"),
    "source is empty": ("empty", "out", "holds no file that can be released"),
    "target is not empty": ("in", "full", "not an empty folder"),
    "target is a file": ("in", "full/file", "not an empty folder"),
    "target is a broken link": ("in", "broken", "broken is a symbolic link to nowhere2, which does not exist: mount"),
    "target is below a broken link": ("in", "broken/out", "out is below .*broken, a symbolic link to nowhere2, which"),
    "target is the source": ("in", "in", "overlap"),
    "target is in the source": ("in", "in/out", "overlap"),
    "target is deep in the source": ("in", "in/album/new/out", "overlap"),
    "source is in the target": ("in/album", "in", "overlap"),
    "target is in the source by dots": ("in", "empty/../in/out", "overlap"),
    "target is the source by dots": ("in/album/..", "in", "overlap"),
    "target is in the source by a link": ("in", "link/out", "overlap"),
    "target is in a folder of the source by a link": ("in", "link to album/out", "overlap"),
    "source is a link to the target's parent": ("link", "in/out", "overlap"),
    "target is a link to the source": ("in", "link", "overlap"),
    "target is below a file": ("in", "full/file/out", "out cannot be created in .*file"),
    "target is a link to itself": ("in", "loop", "cannot be released|not an empty folder"),
    "file to a jpeg": ("in/a.png", "new.jpg", "must end in .png"),
    "file to an existing file": ("in/a.png", "full/there.png", "exists and is not overwritten"),
    "file to itself": ("in/a.png", "in/a.png", "overlap"),
    "file to itself by a link": ("in/a.png", "link/a.png", "overlap"),
    "file to a broken link": ("in/a.png", "broken.png", "exists and is not overwritten"),
    "file whose card is there": ("in/a.png", "full/carded.png", "exists and is not overwritten"),
    "file below itself": ("in/a.png", "in/a.png/b.png", "overlap"),
}


@pytest.fixture
def places(tmp_path: Path) -> Path:
    plant(
        tmp_path,
        {
            "in/a.png": PNG,
            "in/album/b.png": PNG,
            "full/file": b"x",
            "full/there.png": b"x",
            "full/carded.png.card.json": b"x",
        },
    )
    (tmp_path / "empty").mkdir()
    for link, to in {
        "link": "in",
        "link to album": "in/album",
        "broken": "nowhere2",
        "broken.png": "nowhere3",
        "loop": "loop",
    }.items():
        (tmp_path / link).symlink_to(to)
    return tmp_path


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals_write_nothing(name: str, places: Path) -> None:
    source, target, why = REFUSALS[name]
    before = sorted(places.rglob("*"))
    with pytest.raises(ReleaseError, match=why):
        prepare(places / source, places / target, SETTINGS)
    assert sorted(places.rglob("*")) == before


WRONG = [
    ReleaseSettings(epsilon=-1),
    ReleaseSettings(20.0, weights=(0, 0, 0)),
    ReleaseSettings(20.0, slices="Y7+16"),
    ReleaseSettings(20.0, slices="17"),
    ReleaseSettings(20.0, slices=""),
    ReleaseSettings(20.0, prune="no"),
]  # type: ignore[arg-type]


@pytest.mark.parametrize("settings", WRONG)
def test_wrong_settings_are_refused_before_anything_is_touched(settings: ReleaseSettings, places: Path) -> None:
    with pytest.raises(LdpSlicingError):
        prepare(places / "in", places / "out", settings)
    assert not (places / "out").exists()


def test_an_empty_target_may_exist_or_be_a_link(places: Path) -> None:
    (places / "to empty").symlink_to("empty")
    release(places / "in", places / "to empty")
    assert tree(places / "empty") == ["a.png", "album/b.png", *BESIDE]


def test_a_state_folder_whose_link_leads_to_nothing_is_refused(places: Path) -> None:
    with pytest.raises(ReleaseError, match="broken is a symbolic link to nowhere2, which does not exist: mount"):
        release(places / "in", places / "out", state=places / "broken")
    assert not (places / "out").exists()
    assert not default_ledger().exists()


def test_one_file_to_one_file(places: Path) -> None:
    ran = release(places / "in" / "a.png", places / "new" / "x.y.PNG")
    assert (ran.problems, ran.complete) == ({}, True)
    assert tree(places / "new") == ["x.y.PNG", "x.y.PNG.card.json"]
    assert spent().releases == 1
    assert json.loads((places / "new" / "x.y.PNG.card.json").read_text())["statements"][0]["releases"] == 1
    assert pixels(places / "new" / "x.y.PNG").shape == (9, 7, 3)


def limit_files() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))


def test_a_file_that_grows_too_large_is_retried_later(tmp_path: Path) -> None:
    """In a process of its own, with a limit of 300 kB on the size of files."""
    big, other = encoded(gradient(400, 400), "PNG"), encoded(gradient(5, 5), "PNG")
    source = plant(tmp_path / "in", {"a.png": PNG, "big.png": big, "z/big too.png": big, "z/small.png": other})
    command = [
        sys.executable,
        "-m",
        "ldp_slicing",
        "privatize",
        str(source),
        str(tmp_path / "out"),
        "--epsilon",
        "20",
        "--json",
        "--workers",
        "2",
    ]
    run = subprocess.run(command, preexec_fn=limit_files, capture_output=True, text=True, check=False)
    assert run.returncode == 5, run.stderr
    result = json.loads(run.stdout)
    assert {problem["source"]: problem["problem"] for problem in result["problems"]} == dict.fromkeys(
        ["big.png", "z/big too.png"], "could not be released: File too large"
    )
    assert not result["complete"]
    assert list(outputs(tmp_path / "out")) == ["a.png", "z/small.png"]
    assert on_card(tmp_path / "out") == result["released"] == 2
    assert (spent().releases, spent().unfinished) == (2, 0)
    before = outputs(tmp_path / "out")
    run = subprocess.run(command, capture_output=True, text=True, check=False)  # there is room again
    assert run.returncode == 0, run.stderr
    after = outputs(tmp_path / "out")
    assert {name: after[name] for name in before} == before
    assert set(after) == {*before, "big.png", "z/big too.png"}
    assert verified(tmp_path / "out") == []
    assert (spent().releases, spent().unfinished) == (4, 0)


def test_a_target_that_changes_during_the_run(tmp_path: Path) -> None:
    source = plant(tmp_path / "in", {"a.png": PNG, "x/b.png": PNG, "c.png": PNG})
    run = prepare(source, tmp_path / "out", SETTINGS)
    plant(tmp_path / "out", {"x": b"a file where a folder should go"})
    (tmp_path / "out" / "c.png").mkdir()
    list(run.run(on_this_machine(1)))
    assert {one.source for one in records.problems(run.state)} == {"x/b.png", "c.png"}
    assert not run.result.complete
    run.close()
    assert tree(tmp_path / "out") == ["a.png", *BESIDE, "x"]
    assert on_card(tmp_path / "out") == 1
    empty = "is a folder without a release, and none needs it: remove it"
    assert verified(tmp_path / "out") == [("x", "is not in the manifest"), ("c.png", empty)]


def test_an_unexpected_error_concerns_one_source_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def faulty(file: BinaryIO, options: Options) -> Iterator[Entry]:
        for entry in read(file, options):
            if entry.bits == 16:
                raise ZeroDivisionError("nobody foresaw this")
            yield entry

    read = image.read
    monkeypatch.setattr(image, "read", faulty)
    ran = release(plant(tmp_path / "in", MIXED), tmp_path / "out")
    assert ran.problems == {"album/deep.tif": "could not be read: ZeroDivisionError('nobody foresaw this')"}
    assert on_card(tmp_path / "out") == len(MIXED) - 1


def test_a_card_that_cannot_be_written_is_a_problem(tmp_path: Path) -> None:
    source = plant(tmp_path / "in", {"a.png": PNG})
    run = prepare(source, tmp_path / "out", SETTINGS)
    for _ in run.run(on_this_machine(1)):
        (tmp_path / "out" / CARD_NAME).mkdir()
    assert run.result.problem == "the card could not be written: Is a directory"
    assert not run.result.complete
    run.close()
    assert tree(tmp_path / "out") == ["a.png", "manifest.jsonl"]
    (tmp_path / "out" / CARD_NAME).rmdir()
    assert release(source, tmp_path / "out").complete
    assert verified(tmp_path / "out") == []


@pytest.mark.parametrize("workers", [1, 4])
@pytest.mark.parametrize("after", [0, 1, 5])
def test_a_run_that_is_stopped_leaves_whole_files_and_a_card_that_is_true(
    workers: int, after: int, tmp_path: Path
) -> None:
    count = 5 * BATCH_SOURCES  # more than four workers can have at once
    source = plant(
        tmp_path / "in", {f"{number:03}.png": encoded(gradient(40 + number, 20), "PNG") for number in range(count)}
    )
    ran = release(source, tmp_path / "out", workers=workers, after=after)
    names = list(outputs(tmp_path / "out"))
    assert after <= len(names) < count
    assert ran.stopped
    assert len(ran.reports) == len(names)
    sizes = Counter((made.height, made.width) for report in ran.reports.values() for made in report.releases)
    assert Counter(pixels(tmp_path / "out" / name).shape[:2] for name in names) == sizes
    assert (on_card(tmp_path / "out") if names else 0) == len(names)
    assert (spent().releases, spent().unfinished) == (len(names), 0)


def test_zero_workers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ReleaseError, match="got 0"):
        on_this_machine(0)


def test_the_card_adds_up_earlier_releases_under_other_plans(tmp_path: Path) -> None:
    source = plant(tmp_path / "in", small_images(2, 20, 30))
    release(source, tmp_path / "strong", ReleaseSettings(epsilon=58.0, prune="dct"))
    assert release(source, tmp_path / "weak", ReleaseSettings(epsilon=1.0), spend=True).problems == {}
    (statement,) = card_of(tmp_path / "weak")["statements"]
    levels = {level["unit"]: level for level in statement["levels"]}
    ledger = Ledger(default_ledger())
    ((_, known),) = ledger.most_spent(1)
    ledger.close()
    assert statement["most_releases_of_one_source"] == known.releases == 2
    assert levels["source pixel, 2 releases"]["epsilon"] == known.source_pixel_epsilon == pytest.approx(64 * 58 + 4 * 1)
    assert levels["image, 2 releases"]["epsilon"] == pytest.approx(20 * 30 * (58 + 1))
    assert levels["source pixel, 2 releases"]["means"].startswith("This promise does not stop")
    assert "another plan" in levels["source pixel, 2 releases"]["why"]
    assert levels["source pixel"]["epsilon"] == pytest.approx(4)
    assert verified(tmp_path / "weak") == []
    card = card_of(tmp_path / "weak")
    card["statements"][0]["most_spent_on_one_source"]["released_pixel"] = 2.0
    write_card(tmp_path / "weak", card)
    assert any("if that of released pixels is 2.0" in problem for _, problem in verified(tmp_path / "weak"))


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"state": "out/state"}, "holds the run key"),
        ({"state": "out"}, "holds the run key"),
        ({"ledger": "out/ledger.sqlite"}, "handed on"),
        ({"ledger": "link/deep/ledger.sqlite"}, "handed on"),
    ],
)
def test_state_and_ledger_inside_the_target_are_refused(options: dict[str, str], why: str, tmp_path: Path) -> None:
    source = plant(tmp_path / "in", small_images(1))
    (tmp_path / "out").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "out")
    with pytest.raises(ReleaseError, match=why):
        release(source, tmp_path / "out", **{name: tmp_path / place for name, place in options.items()})
    assert tree(tmp_path / "out") == []


def test_a_file_address_is_a_path(tmp_path: Path) -> None:
    source = plant(tmp_path / "in", {"a b.png": PNG})
    (source / "link.png").symlink_to(source / "a b.png")
    with pytest.raises(ReleaseError, match="overlap"):
        release(f"file://{source}", source / "out")  # type: ignore[arg-type]
    ran = release(source.as_uri(), f"file://localhost{tmp_path}/out")  # type: ignore[arg-type]
    assert set(ran.problems) == {"link.png"}
    assert outputs(tmp_path / "out").keys() == {"a b.png"}


def test_hashing_works_after_a_fork(tmp_path: Path) -> None:
    """In a process of its own, which forks and must end."""
    script = (
        "import os\nfrom pathlib import Path\nfrom ldp_slicing.storage import LocalStorage, write_file\n"
        "write_file(LocalStorage(Path('.')), 'a', [bytes(1 << 20)])\nchild = os.fork()\n"
        "write_file(LocalStorage(Path('.')), f'b{child}', [bytes(1 << 20)])\n"
        "child and os.waitpid(child, 0)\n"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", script], cwd=tmp_path, check=True, timeout=60)
    assert len(tree(tmp_path)) == 3


def test_a_rewritten_card_states_what_was_spent_meanwhile(tmp_path: Path) -> None:
    source = plant(tmp_path / "in", small_images(2, 20, 30))
    release(source, tmp_path / "one", ReleaseSettings(epsilon=20.0))
    release(source, tmp_path / "two", ReleaseSettings(epsilon=30.0), spend=True)
    assert card_of(tmp_path / "one")["statements"][0]["most_releases_of_one_source"] == 1
    plant(source, {"new.png": PNG})
    release(source, tmp_path / "one", ReleaseSettings(epsilon=20.0))
    (statement,) = card_of(tmp_path / "one")["statements"]
    assert statement["most_releases_of_one_source"] == 2
    assert statement["most_spent_on_one_source"]["released_pixel"] == pytest.approx(50)
    assert verified(tmp_path / "one") == []


def test_a_folder_of_other_files_is_refused_as_state_folder(tmp_path: Path) -> None:
    source, mine = (
        plant(tmp_path / "in", {"a.png": PNG, "b.txt": b"?"}),
        plant(tmp_path / "mine", {"thesis.txt": b"mine"}),
    )
    for target in ("out.png", "out"):
        with pytest.raises(ReleaseError, match="not an empty folder, and no run left it"):
            release(source / "a.png" if target.endswith("png") else source, tmp_path / target, state=mine)
    assert tree(mine) == ["thesis.txt"]
    for name in ("ledger", "key"):
        if name == "key":
            new_key_file(tmp_path / "state.key")
            plant(tmp_path / "state", {})
        options = {name: tmp_path / "state" / "file", "state": tmp_path / "state"}
        if name == "key":
            (tmp_path / "state").mkdir()
            (tmp_path / "state.key").rename(tmp_path / "state" / "file")
        with pytest.raises(ReleaseError, match="the state folder of the run"):
            release(source, tmp_path / "out", **options)


def test_a_run_that_released_nothing_deletes_only_its_own_files(tmp_path: Path) -> None:
    source = plant(tmp_path / "in", {"b.png": b"?"})
    run = prepare(source, tmp_path / "out", SETTINGS)
    plant(tmp_path / "out.owner", {"letter.txt": b"put here meanwhile"})
    list(run.run(on_this_machine(1)))
    run.close()
    assert tree(tmp_path / "out.owner") == ["letter.txt"]
    assert not (tmp_path / "out").exists()


def test_two_names_of_one_target_are_the_same_run(tmp_path: Path) -> None:
    source = plant(tmp_path / "in", small_images(2))
    (tmp_path / "out").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "out")
    run = prepare(source, tmp_path / "out", SETTINGS)
    with pytest.raises(ReleaseError, match="another process is working on this release"):
        prepare(source, tmp_path / "link", SETTINGS)
    run.close()


def test_a_foreign_file_in_the_target_is_not_overwritten(tmp_path: Path) -> None:
    source = plant(tmp_path / "in", small_images(2))
    release(source, tmp_path / "out")
    plant(source, {"new.png": encoded(gradient(12, 13), "PNG")})
    plant(tmp_path / "out", {"new.png": b"not ours"})
    ran = release(source, tmp_path / "out")
    assert "nothing is overwritten" in ran.problems["new.png"]
    assert (tmp_path / "out" / "new.png").read_bytes() == b"not ours"


def test_a_shard_that_was_touched_has_not_changed(tmp_path: Path) -> None:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        member = tarfile.TarInfo("a.png")
        member.size = len(PNG)
        tar.addfile(member, io.BytesIO(PNG))
    source = plant(tmp_path / "in", {"s.tar": file.getvalue()})
    release(source, tmp_path / "out")
    os.utime(source / "s.tar", (1, 1))
    assert release(source, tmp_path / "out").problems == {}
    (source / "s.tar").write_bytes(file.getvalue()[:-512])
    assert "has changed" in release(source, tmp_path / "out").problems["s.tar"]


def test_temporary_files_in_the_target_are_visible(tmp_path: Path) -> None:
    """Temporary files lie in the target if the state folder is on another file system."""
    for scratch in (tmp_path / "scratch", None):
        place = LocalStorage(tmp_path / "target", scratch, partial=f"{PARTIAL}/run")
        file = place.create("a.png")
        assert file.is_visible == (scratch is None)
        other = LocalStorage(tmp_path / "target", scratch and tmp_path / "other", partial=f"{PARTIAL}/other").create(
            "b.png"
        )
        file.abort()
        place.remove_temporary_files()  # its own
        other.write(b"b")
        other.commit()
        assert (tmp_path / "target" / "b.png").read_bytes() == b"b"
        (tmp_path / "target" / "b.png").unlink()


def test_a_torn_and_unrecorded_release_is_made_again(tmp_path: Path) -> None:
    """The file has its name and lost its content, and the state does not record it."""
    source, key = plant(tmp_path / "in", small_images(4)), tmp_path / "key"
    new_key_file(key)
    release(source, tmp_path / "whole", key=key)
    whole = outputs(tmp_path / "whole")
    prepare(source, tmp_path / "out", SETTINGS, key=key).close()  # names are chosen; nothing is recorded as released
    zeros = whole["00003.png"][:50] + bytes(20) + whole["00003.png"][70:]
    plant(tmp_path / "out", {"00001.png": b"", "00002.png": whole["00002.png"][:-7], "00003.png": zeros})
    ran = release(source, tmp_path / "out", key=key)
    assert (ran.problems, ran.complete) == ({}, True)
    assert verified(tmp_path / "out") == []


@pytest.mark.parametrize("before", [False, True])
def test_a_foreign_file_is_not_overwritten_by_any_number_of_attempts(before: bool, tmp_path: Path) -> None:
    """Also if its name was chosen in an earlier attempt that did not get to it."""
    source = plant(tmp_path / "in", small_images(2))
    if before:
        plant(source, {"new.png": encoded(gradient(5, 5), "PNG")})
        prepare(source, tmp_path / "out", SETTINGS).close()
    else:
        assert release(source, tmp_path / "out").complete
        plant(source, {"new.png": encoded(gradient(5, 5), "PNG")})
    mine = PNG + bytes(4)  # longer than anything that was cut off
    plant(tmp_path / "out", {"new.png": mine})
    for _ in range(3):
        ran = release(source, tmp_path / "out")
        assert "nothing is overwritten" in ran.problems["new.png"]
        assert (tmp_path / "out" / "new.png").read_bytes() == mine
        assert "new.png is in the target but not counted" in (ran.card_problem or "")
        assert not (tmp_path / "out" / CARD_NAME).exists()
    (tmp_path / "out" / "new.png").unlink()
    assert release(source, tmp_path / "out").complete
    assert verified(tmp_path / "out") == []


def test_a_source_whose_kind_changes_gets_another_name(tmp_path: Path) -> None:
    """It was still being copied at the first attempt."""
    source = plant(tmp_path / "in", small_images(1) | {"data_batch_1": b""})
    assert release(source, tmp_path / "out").problems == {}  # skipped
    plant(
        source,
        {
            "data_batch_1": pickle.dumps(
                {"data": np.arange(2 * 3072).astype(np.uint8).reshape(2, 3072), "labels": [0, 1]}, 2
            )
        },
    )
    ran = release(source, tmp_path / "out")
    assert (ran.problems, ran.complete) == ({}, True)
    assert sorted(outputs(tmp_path / "out")) == ["00000.png", "data_batch_1.tar"]
    assert verified(tmp_path / "out") == []


def test_an_empty_target_made_by_the_owner_stays(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    release(plant(tmp_path / "in", {"b.png": b"?"}), tmp_path / "out")
    assert (tmp_path / "out").is_dir()
    assert not (tmp_path / "out.owner").exists()


@pytest.mark.parametrize("size", [(2, 2), (1, 9), (3, 1)])
def test_tiny_images_released_with_other_views_add_up(size: tuple[int, int], tmp_path: Path) -> None:
    source = plant(tmp_path / "in", small_images(1, *size))
    release(source, tmp_path / "one", ReleaseSettings(epsilon=5.0, prune="dct"))
    release(source, tmp_path / "two", ReleaseSettings(epsilon=5.0), spend=True)
    assert verified(tmp_path / "two") == []
    assert audit_releases(tmp_path / "two").passed
