"""The whole run on a small set: it measures, stops, resumes, answers and writes nothing but its report and its work."""

from __future__ import annotations

import json
import math
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

pytest.importorskip("torch")

import torch

from ldp_slicing import Plan, Slicer
from ldp_slicing.card import Card
from ldp_slicing.cli import app
from ldp_slicing.errors import LdpSlicingError
from ldp_slicing.files import OWNERS_NOTE
from ldp_slicing.lab.advise import budget, findings, networks, run, sources
from ldp_slicing.lab.advise.findings import make_rules
from ldp_slicing.lab.advise.measuring import Measurer
from ldp_slicing.lab.advise.page import make_page
from ldp_slicing.lab.advise.prepare import outline
from ldp_slicing.lab.advise.report import make_preset, to_dict, write_report
from ldp_slicing.lab.advise.request import Request, Talk
from ldp_slicing.lab.advise.run import advise
from ldp_slicing.presets import Preset
from tests.lab.advise.images import write_folder

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Networks and steps so few that a run takes seconds."""
    effort = networks.Effort(width=4, batch=8, pixels=16_384, attacked=8, tested=100)
    monkeypatch.setattr(networks.Effort, "on", classmethod(lambda cls, device: effort))
    for module in (budget, run):
        monkeypatch.setattr(module, "MOST", 3)
        monkeypatch.setattr(module, "FEWEST", 2)
    for module in (run, findings):
        monkeypatch.setattr(module, "SEEDS", (1,))


def request(tmp_path: Path, **changes: Any) -> Request:
    source = tmp_path / "sources"
    if not source.exists():
        write_folder(source)
    options = {"sizes": (16,), "families": ("thick",), "views": (None,), "epsilons": (2.4,), "device": "cpu"}
    return Request(source, tmp_path / "advice", **(options | changes))


def test_the_command_proposes_a_setting_that_privatize_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_folder(tmp_path / "sources")
    out, arguments = tmp_path / "advice", ["advise", str(tmp_path / "sources"), "--out", str(tmp_path / "advice")]
    arguments += ["--sizes", "16,12", "--views", "none", "--plans", "thick", "--epsilons", "2.4", "--device", "cpu"]
    done = CliRunner().invoke(app, [*arguments, "--min-accuracy", "0"])
    assert done.exit_code == 0, done.output
    first, timing, second, *_ = done.output.splitlines()
    first_output = done.output
    assert first == "48 of 48 images read at 16 x 16, 2 classes"
    assert timing == "timing a few training steps: about 90 seconds"
    assert re.match(
        r"schedule for 15 min on .*: 2 of 2 settings in 1 round, then confirmation of up to 2 settings with 1 ", second
    )
    assert "may be no better than guessing" in done.output  # after three steps of training
    assert {one.name for one in out.iterdir()} == {"report.html", "report.json"}
    monkeypatch.setattr(findings, "_may_guess", lambda *_: False)
    done = CliRunner().invoke(app, [*arguments, "--min-accuracy", "0"])
    assert "meets the limit against the attacks that were tried: test accuracy at least 0." in done.output
    assert {one.name for one in tmp_path.iterdir()} == {"sources", "advice", "advice.owner"}
    assert {one.name for one in out.iterdir()} == {"report.html", "report.json", "preset.json"}
    assert "belongs to the owner" in (tmp_path / "advice.owner" / OWNERS_NOTE).read_text()

    page, report = (out / "report.html").read_text(), json.loads((out / "report.json").read_text())
    assert report["proposal"]["command"] in done.output.replace("\n", " ")
    by_preset = f"ldp-slicing privatize SRC DST --preset {out / 'preset.json'}"
    assert f"  {by_preset}" in done.output.splitlines()
    assert by_preset in page
    assert not re.findall(r"https?:|<script|src=\"(?!data:)|g0[0-9]_", page)
    assert "lower bound" in page
    accuracy = report["proposal"]["name"], report["settings"][0]["utility"]["accuracy"]["value"]
    assert report["settings"][0]["name"] == accuracy[0]
    assert f"<li>test accuracy {accuracy[1]:.3f} (95 % interval " in page  # beside the proposal, not only in the table
    assert findings.NO_LINKAGE in page
    assert report["finished"]
    each = r"\((\d) steps? each\)"
    pattern = rf"^(round 1|confirmation): (\d) settings?, (\d) learners? {each}, (\d) attacks? {each}$"
    said = re.findall(pattern, first_output, re.MULTILINE)
    sizes = {one["name"]: one["width"] for one in report["settings"]}
    for name, settings, learners, learning, attacks, attacking in said:
        stage = report["stages"][name]
        assert [len(stage["settings"]), stage["learning"], stage["attacking"]] == [
            *map(int, (settings, learning, attacking))
        ]
        assert int(learners) == len(stage["settings"]) + (name == "confirmation")  # it has unprotected images, too
        views = {sizes[one] for one in stage["settings"]}
        assert int(attacks) == len(views | {16} if name == "round 1" else views)  # and round 1 attacks them
    assert [one[0] for one in said] == list(report["stages"])
    steps = [one["attacking"] for one in report["stages"].values()]  # of the rounds, and of the confirmation
    assert steps == sorted(set(steps))
    assert steps[-1] >= 2 * steps[-2]

    preset = Preset.read(out / "preset.json")
    assert any("test accuracy" in sentence for sentence in preset.measured)
    release = ["privatize", str(tmp_path / "sources"), str(tmp_path / "releases"), "--preset", str(out / "preset.json")]
    done = CliRunner().invoke(app, [*release, "--ledger", str(tmp_path / "ledger.sqlite")])
    assert done.exit_code == 0, done.output
    card = (tmp_path / "releases" / "card.json").read_text()
    assert Card.read(tmp_path / "releases" / "card.json").statement(8).plan == preset.plan(8)
    assert "advice" not in card
    assert not [one for sentence in preset.measured for one in re.findall(r"0\.\d{3}", sentence) if one in card]

    records = (tmp_path / "advice.owner" / "records.jsonl").read_text()
    done = CliRunner().invoke(app, [*arguments, "--max-ssim", "0"])  # other limits need no new measurements
    assert done.exit_code == 0, done.output
    assert (tmp_path / "advice.owner" / "records.jsonl").read_text() == records
    assert "No confirmed setting meets the limit." in done.output
    assert "SSIM of reconstructions" in done.output
    assert "a lower bound" in done.output
    assert not (out / "preset.json").exists()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--out", "{}/a.txt"], "cannot write to "),
        (["--out", "{}/a.txt/advice"], "cannot write to "),
        (["--samples", "{}/none.png"], "none.png is not a file"),
        (["--views", "foo"], "--views: expected some of haar,haar2,haar4,haar8,dct,none;"),
        (["--plans", ""], "--plans: expected some of paper,thick,grey; got ''"),
        (["--sizes", "16,"], "--sizes: expected numbers of pixels"),
        (["--sizes", "16,0"], "--sizes takes longest sides of 8 pixels or more, such as 112,56,28; got 0"),
        (["--epsilons", "0"], "--epsilons takes numbers above 0, such as 2.4,5.2,12; got 0"),
        (["--epsilons", "nan,-1"], "--epsilons takes numbers above 0, such as 2.4,5.2,12; got nan"),
        (["--epsilons", "2.4,inf"], "--epsilons takes numbers above 0, such as 2.4,5.2,12; got inf"),
        (["--minutes", "nan"], "--minutes takes a number above 0, such as 15; got nan"),
        (["--minutes", "inf"], "--minutes takes a number above 0, such as 15; got inf"),
        (["--recogniser", "{}/none.dat"], "none.dat is not a file"),
    ],
)
def test_options_are_checked_before_anything_is_read(tmp_path: Path, options: list[str], problem: str) -> None:
    (tmp_path / "a.txt").touch()
    options = [one.format(tmp_path) for one in options]
    done = CliRunner().invoke(app, ["advise", str(tmp_path / "sources"), "--dry-run", *options])
    assert done.exit_code == 2
    assert problem in " ".join(done.output.split())


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a folder in which nothing can be created")
def test_a_folder_that_cannot_be_created_is_refused(tmp_path: Path) -> None:
    write_folder(tmp_path / "sources")
    arguments = ["advise", str(tmp_path / "sources"), "--out", "/proc/advice", "--device", "cpu", "--sizes", "16"]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 2
    assert "refused:" in done.output
    assert "/proc/advice" in done.output


def test_a_run_that_is_stopped_goes_on_where_it_stopped(tmp_path: Path) -> None:
    said = list[str]()
    ask = request(tmp_path, groups="name:g[0-9]+", rules=make_rules(max_linkage=0.5))
    stopped = advise(ask, Talk(said.append, interrupted=lambda: any(line.startswith("round 1") for line in said)))
    before = dict(stopped.work.records)
    assert not stopped.finished
    assert stopped.answer.kind == "unfinished"
    assert {"plan", "round 1"} <= before.keys()
    assert "linkage is tested on 4 held-out groups with two or more images; guessing gives a rank-1" in said[1]
    finished = advise(ask, Talk(said.append))
    assert f"continuing the run in {tmp_path / 'advice.owner'}" in said
    assert finished.finished
    assert {name: finished.work.records[name] for name in before} == before
    (found,) = finished.findings
    assert {"accuracy", "roc_auc", "balanced_accuracy"} <= found.utility.keys()
    assert {"ssim", "rank_1"} <= found.risks.keys()
    assert {"ssim", "rank_1"} <= finished.controls.keys()
    assert found.confirmations == 1
    chance = finished.judge["chance"]
    assert f"guessing</td><td></td><td>0.500</td><td>0.500</td>{3 * '<td></td>'}<td>{chance:.3f}</td>" in make_page(
        finished
    )
    for refuse in (outline, advise):
        with pytest.raises(LdpSlicingError, match=r"with --groups name:g\[0-9\]\+, and this command is with"):
            refuse(request(tmp_path, groups="name:g[0-9]"), Talk())
        with pytest.raises(LdpSlicingError, match=r"without --images and with --epsilons 2\.4, and .* --images 64 and"):
            refuse(replace(ask, epsilons=(3.0, 5.2), images=64), Talk())
    next((tmp_path / "sources").rglob("*.png")).unlink()
    for refuse in (outline, advise):
        with pytest.raises(LdpSlicingError, match="images, labels or groups have changed since"):
            refuse(ask, Talk())


def test_the_time_counts_from_the_start_of_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long_ago = time.monotonic() - 3600
    result = advise(request(tmp_path), Talk(), long_ago)
    assert not result.finished
    assert result.answer.sentence == "The time was too short to measure anything: use more --minutes."
    assert advise(request(tmp_path), Talk()).finished
    monkeypatch.setattr(sources, "AT_ONCE", 16)
    with pytest.raises(LdpSlicingError, match="--minutes 15 is too short to read the 48 images of this run again"):
        advise(request(tmp_path), Talk(), long_ago)


def test_the_answer_of_a_run_that_is_not_finished_may_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = advise(request(tmp_path), Talk())
    assert "may change" not in make_page(result)
    monkeypatch.setattr(run, "advise", lambda *_: replace(result, finished=False))
    done = CliRunner().invoke(app, ["advise", str(tmp_path / "sources"), "--out", str(tmp_path / "advice")])
    assert "not finished, so the answer may change: first run the same command again to continue" in done.output
    assert "The run is not finished, so the answer may change." in (tmp_path / "advice" / "report.html").read_text()


def test_a_setting_names_the_size_if_not_all_images_were_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "AT_ONCE", 16)
    for images, fit in ((None, ""), (32, "--fit 16x16")):  # the others may be larger
        (found,) = advise(replace(request(tmp_path, images=images), out=tmp_path / f"advice{images}"), Talk()).findings
        assert found.setting.command.endswith(fit or "--prune none")


def test_a_resumed_run_trains_nothing_for_what_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If it did, a run with little time for each resumption would never end."""
    asked, trained, make = request(tmp_path, groups="name:g[0-9]+"), list[int](), Measurer.make_judge

    def counted(self: Measurer, seed: int, steps: int) -> Any:
        trained.append(seed)
        return make(self, seed, steps)

    monkeypatch.setattr(Measurer, "make_judge", counted)
    said = list[str]()
    assert not advise(
        asked, Talk(said.append, interrupted=lambda: any("confirmation: " in one for one in said))
    ).finished
    assert {0, 1} <= set(trained)
    trained.clear()
    assert advise(asked, Talk()).finished
    assert trained == [1]  # for the attacks of the confirmation; those of the round are done
    trained.clear()
    assert advise(replace(asked, rules=make_rules(max_linkage=0.5)), Talk()).finished
    assert not trained


def test_every_call_of_torch_is_a_chance_to_stop() -> None:
    calls = list[int]()

    def stop() -> bool:
        calls.append(1)
        return len(calls) > 2

    with networks.Stoppable(stop):
        ones = torch.ones(2) + 1
        with pytest.raises(networks.Stopped):
            ones.sum()
    assert len(calls) == 3


def test_the_preset_calls_risks_lower_bounds_and_has_stronger_results(tmp_path: Path) -> None:
    result = advise(request(tmp_path), Talk())
    (found,) = result.findings
    known = {"ssim": findings.Known("ssim", 0.9876, "an-entry", "objects, CIFAR-10")}
    for stronger, end in (
        ({}, ""),
        (known, "; on a comparable setting, a stronger attack reached 0.988 (objects, CIFAR-10)"),
    ):
        chosen = replace(found, known=stronger)
        preset = make_preset(replace(result, answer=findings.Answer("proposal", "", chosen)))
        assert preset is not None
        assert preset.measured[0] == f"test accuracy {found.utility['accuracy']}, measured by `advise` on 48 sources"
        risk = f"SSIM of reconstructions {found.risks['ssim']}, a lower bound measured by `advise` on 48 sources{end}"
        assert preset.measured[-1] == risk


def test_people_without_labels(tmp_path: Path) -> None:
    source = tmp_path / "sources"
    write_folder(source)
    for image in sorted(source.rglob("*.png")):
        person = source / image.name[:3]
        person.mkdir(exist_ok=True)
        image.rename(person / image.name)
    result = advise(request(tmp_path, labels="none", groups="folder"), Talk())
    (found,) = result.findings
    assert not found.utility
    assert {"ssim", "rank_1"} <= found.risks.keys()
    assert to_dict(result)["sources"] == {
        "images": 48,
        "of": 48,
        "width": 16,
        "height": 16,
        "grey": True,
        "classes": 0,
        "groups": 12,
    }
    assert result.answer.kind == "no limits"
    assert "report.html" in write_report(result)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"out": "sources/advice"}, "overlap"),
        ({"out": "."}, "overlap"),
        ({"source": "nothing"}, "nothing does not exist"),
        ({"minutes": 0.0}, "--minutes takes a number above 0, such as 15; got 0"),
        ({"recogniser": Path(__file__)}, "--recogniser links images to groups"),
        ({"rules": make_rules(max_linkage=0.1)}, "a limit on linkage needs --groups"),
        ({"rules": make_rules(min_accuracy=0.1), "labels": "none"}, "a limit on accuracy needs labels"),
    ],
)
def test_what_cannot_be_measured_is_refused(tmp_path: Path, changes: dict[str, Any], problem: str) -> None:
    (tmp_path / "sources").mkdir()
    places = {name: tmp_path / changes.pop(name) for name in ("source", "out") if name in changes}
    asked = Request(**({"source": tmp_path / "sources", "out": tmp_path / "advice"} | places | changes))
    with pytest.raises(LdpSlicingError, match=problem):
        advise(asked, Talk())
    assert {one.name for one in tmp_path.iterdir()} == {"sources"}


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"groups": "folder"}, "are in one group: every class needs two or more groups"),
        ({"labels": "none", "groups": "name:g"}, "all images are of one group"),
        ({"sizes": (64,)}, "--sizes 64: images of 16 x 16 pixels are not enlarged; name smaller sizes"),
        ({"sizes": (8,)}, "images of 8 x 8 pixels are too small to measure: both sides need 12 pixels or more"),
        ({"families": ("grey",)}, "the plan `grey` is for colour images"),
        ({"samples": (Path(__file__),)}, r"--samples .*test_run.py cannot be shown"),
        ({"groups": "name:g[0-9]+", "recogniser": Path(__file__)}, "test_run.py"),
        ({"groups": "name:g[0-9]+_[0-9]", "rules": make_rules(max_linkage=0.5)}, "--max-linkage cannot be tested"),
    ],
)
def test_images_that_do_not_suit_the_request_are_refused(tmp_path: Path, changes: dict[str, Any], problem: str) -> None:
    asked = request(tmp_path, **changes)
    for refuse in (outline, advise):  # the dry run refuses what a run refuses
        with pytest.raises(LdpSlicingError, match=problem):
            refuse(asked, Talk())
    assert {one.name for one in tmp_path.iterdir()} == {"sources"}


def test_sizes_larger_than_the_images_are_left_out_and_sources_stay_large_enough_for_ssim(tmp_path: Path) -> None:
    said = list[str]()
    result = advise(request(tmp_path, sizes=(16, 10, 64)), Talk(said.append))
    assert said[1] == "--sizes 64 is left out: images of 16 x 16 pixels are not enlarged"
    assert {one.setting.size for one in result.findings} == {(16, 16), (10, 10)}
    assert all(math.isfinite(one.risks["ssim"].value) for one in result.findings)


@pytest.mark.parametrize("name", ["letter.txt", OWNERS_NOTE])  # a state folder of `privatize` has another note
def test_another_folder_is_not_taken_for_a_work_folder(name: str, tmp_path: Path) -> None:
    (tmp_path / "advice.owner").mkdir()
    (tmp_path / "advice.owner" / name).write_text("mine")
    for refuse in (outline, advise):
        with pytest.raises(LdpSlicingError, match="is not a work folder of `advise`"):
            refuse(request(tmp_path), Talk())
    assert [one.name for one in (tmp_path / "advice.owner").iterdir()] == [name]


def test_a_report_is_not_written_among_releases(tmp_path: Path) -> None:
    asked = request(tmp_path)
    (tmp_path / "card.json").write_text(Slicer(Plan.paper(20.0)).card(8, 8).to_json())
    with pytest.raises(LdpSlicingError, match="which holds releases and is handed on"):
        outline(asked, Talk())
