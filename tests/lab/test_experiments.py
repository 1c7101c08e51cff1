"""Every experiment from data to page, at a size that says nothing about accuracy."""

from __future__ import annotations

import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from typer.testing import CliRunner, Result

from ldp_slicing import Plan, Slicer
from ldp_slicing.cli import app
from ldp_slicing.errors import LdpSlicingError
from ldp_slicing.lab import experiments, plans, results
from ldp_slicing.lab.data.chest import load_chest, patient
from ldp_slicing.lab.data.folders import load_folder, read_folder
from ldp_slicing.lab.data.lfw import images_in_pairs, load_lfw, sides
from ldp_slicing.lab.data.sets import DataError
from ldp_slicing.lab.experiment import BUDGETS, Row
from ldp_slicing.lab.experiments import (
    ablation,
    curves,
    decoding,
    faces,
    identity,
    overhead,
    throughput,
    tradeoff,
    tuning,
)
from ldp_slicing.lab.learners import objectives, recipes
from ldp_slicing.lab.learners.models import EMBEDDERS, MODELS
from ldp_slicing.lab.learners.models import adversaries as networks
from ldp_slicing.lab.learners.recipes import Recipe, recipe
from ldp_slicing.lab.metrics import recognition as recognise
from ldp_slicing.lab.reproduce import reproduce
from ldp_slicing.plan import PAPER_WEIGHTS

RNG = np.random.default_rng(7)


def tiny(classes: int, channels: int = 3) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(channels, 4, 3, 4),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(16, classes),
    )


class FewBits(Plan):
    """Plans that are decoded in no time."""

    @classmethod
    def paper(cls, epsilon: float, weights: Sequence[float] = PAPER_WEIGHTS) -> Plan:
        return Plan.sliced(epsilon, "Y7,Y6,Cb7,Cr7")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small networks under the names of the recipes, one epoch, few images held out."""
    monkeypatch.setitem(MODELS, "resnet56", tiny)
    monkeypatch.setitem(MODELS, "resnet50-grey", lambda classes: tiny(classes, channels=1))
    monkeypatch.setitem(EMBEDDERS, "dlib", (lambda: tiny(128), 128))
    monkeypatch.setattr(curves, "HELD_OUT", 10)
    monkeypatch.setattr(ablation, "HELD_OUT", 10)
    monkeypatch.setattr(tuning, "HELD_OUT", 10)
    monkeypatch.setattr(curves, "Plan", FewBits)
    monkeypatch.setattr(tuning, "Plan", FewBits)
    monkeypatch.setattr(
        ablation, "VARIANTS", {name: (FewBits.paper(20.0), *more) for name, (_, *more) in ablation.VARIANTS.items()}
    )
    monkeypatch.setattr(decoding, "SHOWN", (FewBits.paper(20.0),))
    monkeypatch.setattr(
        decoding, "PLANS", {"paper-eps20": FewBits.paper(20.0), "thick-eps5.2": decoding.PLANS["thick-eps5.2"]}
    )
    monkeypatch.setattr(faces, "BUDGETS", (5.2, 20.0))
    monkeypatch.setattr(faces, "PAPER", (1.0, 2.0))
    monkeypatch.setattr(overhead, "ROUNDS", 1)
    for name, value in {"COUNTS": (1, 2), "SECONDS": 0.1, "IMAGES": 32}.items():
        monkeypatch.setattr(throughput, name, value)
    monkeypatch.setattr(identity, "TARGETS", {"easy": (200.0, None), "eps20": (20.0, "haar")})
    monkeypatch.setattr(identity, "TRIED", {"wrn": ("easy",), "posterior": ("easy",)})
    monkeypatch.setattr(objectives, "wide_resnet28", lambda classes, width, channels: tiny(classes, channels))
    monkeypatch.setitem(MODELS, "resnet9", tiny)
    few = {name: tradeoff.PLANS[name] for name in ("paper-pruned-eps20", "thick-whole-eps5.2-y76c7")}
    monkeypatch.setattr(tradeoff, "PLANS", few)
    monkeypatch.setitem(
        networks.NETWORKS, "two-stage", lambda channels, gain: networks.WhiteBox(channels, gain, width=8, scales=2)
    )


def write_cifar(folder: Path) -> None:
    def batch(key: str, classes: int, count: int) -> bytes:
        return pickle.dumps(
            {"data": RNG.integers(0, 256, (count, 3072), dtype=np.uint8), key: [i % classes for i in range(count)]}
        )

    ten, hundred = folder / "cifar-10-batches-py", folder / "cifar-100-python"
    for path in (ten, hundred):
        path.mkdir(parents=True)
    for i in range(1, 6):
        (ten / f"data_batch_{i}").write_bytes(batch("labels", 10, 10))
    (ten / "test_batch").write_bytes(batch("labels", 10, 20))
    (hundred / "train").write_bytes(batch("fine_labels", 100, 200))
    (hundred / "test").write_bytes(batch("fine_labels", 100, 200))


def write_chest(folder: Path) -> None:
    for split, count in (("train", 12), ("val", 2), ("test", 4)):
        for kind in ("NORMAL", "PNEUMONIA"):
            place = folder / "chest_xray" / split / kind
            place.mkdir(parents=True)
            for i in range(count):
                Image.fromarray(RNG.integers(0, 256, (30, 40), dtype=np.uint8)).save(place / f"{i}.jpeg")


def test_nobody_who_is_held_out_of_the_x_rays_is_trained_on(tmp_path: Path) -> None:
    write_chest(tmp_path)
    train, names = load_chest(tmp_path).train, list[Path]()
    for split in ("train", "val"):
        for kind in ("NORMAL", "PNEUMONIA"):
            for i, path in enumerate(sorted((tmp_path / "chest_xray" / split / kind).iterdir())):
                renamed = {
                    "NORMAL": f"{'NORMAL2-' * (i % 2)}IM-{split == 'val':04d}-{i:04d}.jpeg",
                    "PNEUMONIA": f"person{i // 4}_{('virus', 'bacteria')[i % 2]}_{i}{split}.jpeg",
                }
                path.rename(path.with_name(renamed[kind]))
    named = load_chest(tmp_path)
    for split in ("train", "val"):
        for kind in ("NORMAL", "PNEUMONIA"):
            names += sorted((tmp_path / "chest_xray" / split / kind).iterdir())
    assert train.groups is not None
    assert len(set(train.groups.tolist())) == len(train.labels)  # 0.jpeg, which is there four times, names nobody
    groups = named.train.groups
    assert groups is not None
    assert {patient(name) for name in names} >= {
        "IM-0000",
        "NORMAL2-IM-0000",
        "IM-0001",
        "person0_virus",
        "person2_bacteria",
    }
    for i, name in enumerate(names):
        assert [patient(other) == patient(name) for other in names] == (groups == groups[i]).tolist()
    assert named.train.labels.tolist() == [int(name.name.startswith("person")) for name in names]


def write_both(folder: Path) -> None:
    write_cifar(folder)
    write_lfw(folder)


def write_lfw(folder: Path, people: int = 16, folds: int = 4) -> None:
    """Four folds of two pairs of one person and two of two; person i is in fold i mod 4, and the last two people are in none."""
    root = folder / "lfw112"
    for person in range(people + 2):
        place = root / f"P{person}"
        place.mkdir(parents=True)
        for number in (1, 2):
            Image.fromarray(RNG.integers(0, 256, (112, 112, 3), dtype=np.uint8)).save(
                place / f"P{person}_{number:04d}.webp", lossless=True
            )
    lines = [f"{folds}\t2"]
    for fold in range(folds):
        mine = [f"P{person}" for person in range(people) if person % folds == fold]
        lines += [f"{name}\t1\t2" for name in mine[:2]] + [f"{mine[2]}\t1\t{mine[3]}\t1", f"{mine[2]}\t2\t{mine[3]}\t2"]
    (root / "pairs.txt").write_text("\n".join(lines) + "\n")
    torch.save(tiny(128).state_dict(), folder / recognise.WEIGHTS)


MAKERS: dict[str, tuple[Callable[[Path], None], int]] = {  # how its data are made, and how many rows it has
    "fidelity": (write_cifar, 5),
    "curves": (write_cifar, 2 * 2 * (7 + 2 * 3 + 1) + 2 + 2),
    "decoding": (write_cifar, 2 + 1),
    "tuning": (write_cifar, 6),
    "dp-sgd": (write_cifar, 3 * (7 + 1)),
    "ablation": (write_cifar, 6),
    "chest": (write_chest, 2 * 7 + 2),
    "faces": (write_lfw, 2 * (4 + 4 + 4 + 5 + 1)),  # untuned, labels, public, variants, rebuilt
    "psnr": (write_both, 2 * 2 * 7),
    "overhead": (write_lfw, 5),
    "throughput": (lambda _: None, 2 * 2),
    "identity": (write_both, 2 * 2 + 2 * (2 * 2 + 1)),
    "tradeoff": (write_cifar, 2 * 2 + 1),
}


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("name", MAKERS)
def test_an_experiment_runs_from_data_to_page(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make, count = MAKERS[name]
    make(tmp_path / "data")
    monkeypatch.setattr(
        experiments.frame.Setting, "shortened", lambda _, how: replace(how, epochs=min(how.epochs, 1), batch=16)
    )
    done, path = reproduce(
        name, tmp_path / "data", tmp_path / "results", tmp_path / "work", device="cpu", say=lambda _: None
    )
    rows = results.read(name, tmp_path / "results")
    assert done
    assert len(rows) == count
    assert all(0 <= row.get("accuracy", 0) <= 1 for row in rows)
    text = path.with_suffix(".md").read_text()
    assert "Not finished" not in text
    assert path.with_suffix(".png").is_file() == (experiments.EXPERIMENTS[name].figure is not None)
    once = [row for row in rows if row.get("release") == "once"]
    assert all(row["epsilon_spent_per_released_pixel"] <= row["epsilon_requested"] for row in once)
    page = results.summarise(tmp_path / "results").read_text()
    assert f"## {name}" in page


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("name", "only", "count"), [("curves", "cifar100-eps58", 2), ("fidelity", "cifar100-clean", 2)]
)
def test_a_set_that_no_wanted_run_needs_is_not_asked_for(
    name: str, only: str, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_cifar(tmp_path / "data")
    shutil.rmtree(tmp_path / "data" / "cifar-10-batches-py")
    monkeypatch.setattr(experiments.frame.Setting, "shortened", lambda _, how: replace(how, epochs=1, batch=16))
    reproduce(
        name, tmp_path / "data", tmp_path / "results", tmp_path / "work", device="cpu", only=only, say=lambda _: None
    )
    assert len(results.read(name, tmp_path / "results")) == count


def test_two_at_once_lose_no_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that another process has written meanwhile stay."""
    write_both(tmp_path / "data")
    kept = results.keep

    def keep(name: str, about: str, row: Row, folder: Path) -> Path:
        kept(name, about, row | {"run": f"other-{row['run']}"}, folder)
        return kept(name, about, row, folder)

    monkeypatch.setattr(results, "keep", keep)
    reproduce(
        "psnr",
        tmp_path / "data",
        tmp_path / "results",
        tmp_path / "work",
        device="cpu",
        only="cifar10-whole",
        say=lambda _: None,
    )
    assert len(results.read("psnr", tmp_path / "results")) == 2 * len(BUDGETS)


def test_a_name_that_no_run_has_is_refused(tmp_path: Path) -> None:
    write_both(tmp_path / "data")
    for name, run in (("psnr", "lfw-pruned-eps20"), ("overhead", "time-batch"), ("curves", "cifar10-eps20-longer")):
        with pytest.raises(LdpSlicingError, match=f"'nosuch' in its name; there are .*{run}"):
            reproduce(
                name,
                tmp_path / "data",
                tmp_path / "results",
                tmp_path / "work",
                device="cpu",
                only="nosuch",
                say=lambda _: None,
            )


def test_every_experiment_is_tried_here() -> None:
    assert set(MAKERS) <= set(experiments.EXPERIMENTS)
    assert sorted(BUDGETS) == list(BUDGETS)
    assert len(curves.PAPER["cifar10"]) == len(curves.PAPER["cifar100"]) == len(faces.PAPER) == len(BUDGETS)


@pytest.mark.parametrize("name", ["fidelity", "curves", "ablation", "tradeoff", "faces", "chest"])
def test_figures_are_drawn_of_what_there_is(name: str) -> None:
    draw = experiments.EXPERIMENTS[name].figure
    assert draw is not None
    assert draw({name: []}).axes  # an experiment that was stopped early shows as much as it has


def test_nobody_who_is_tested_was_trained_on(tmp_path: Path) -> None:
    write_lfw(tmp_path)
    loaded = load_lfw(tmp_path)
    person = {i: face.name for face, i in loaded.index.items()}
    first, second = sides(loaded)
    assert (first.folds, second.folds) == ((0, 1), (2, 3))
    for side in (first, second):
        trained = {person[int(i)] for i in side.images}
        tested = {person[int(i)] for i in images_in_pairs(loaded, side)}
        assert not trained & tested
        assert {"P16", "P17"} <= trained  # in no pair at all
        assert len(trained) == side.classes == side.people.max() + 1
        by_person = {(person[int(i)], int(number)) for i, number in zip(side.images, side.people, strict=True)}
        assert len(by_person) == side.classes


def test_a_face_that_is_missing_is_named(tmp_path: Path) -> None:
    write_lfw(tmp_path)
    (tmp_path / "lfw112" / "P3" / "P3_0002.webp").unlink()
    with pytest.raises(DataError, match="P3_0002"):
        load_lfw(tmp_path)
    with pytest.raises(DataError, match="lfw112"):
        load_lfw(tmp_path / "nowhere")


def test_without_its_weights_the_face_experiment_says_where_to_get_them(tmp_path: Path) -> None:
    write_lfw(tmp_path)
    (tmp_path / recognise.WEIGHTS).unlink()
    with pytest.raises(DataError, match="face_recognition_models"):
        reproduce("faces", tmp_path, tmp_path / "results", tmp_path / "work", device="cpu")


def test_folders_and_lists_give_the_same_images(tmp_path: Path) -> None:
    listed: dict[str, list[str]] = {"train": [], "test": []}
    for split in listed:
        for number, kind in enumerate(("cat", "dog")):
            (tmp_path / "tree" / split / kind).mkdir(parents=True)
            for i in range(3):
                name = f"{split}/{kind}/a {i}.png"
                Image.fromarray(RNG.integers(0, 256, (6, 8, 3), dtype=np.uint8)).save(tmp_path / "tree" / name)
                listed[split].append(f"{name} {number}")
    tree = load_folder(tmp_path / "tree")
    for split, lines in listed.items():
        (tmp_path / "tree" / f"{split}.txt").write_text("\n".join(lines) + "\n\n")
    by_list = load_folder(tmp_path / "tree")
    assert tree.classes == by_list.classes == 2
    assert tree.train.images.shape == (6, 6, 8, 3)
    for one, other in ((tree.train, by_list.train), (tree.test, by_list.test)):
        assert np.array_equal(one.images, other.images)
        assert np.array_equal(one.labels, other.labels)
    resized, _ = read_folder(tmp_path / "tree" / "train", size=(4, 5), grey=True)
    assert resized.images.shape == (6, 5, 4, 1)


def test_what_is_wrong_with_a_folder_or_list_is_said(tmp_path: Path) -> None:
    kinds = [tmp_path / "set" / split / kind for split, kind in (("train", "a"), ("test", "b"))]
    for i, place in enumerate(kinds):
        place.mkdir(parents=True)
        with pytest.raises(DataError, match="no images"):
            read_folder(place.parent)
        Image.new("RGB", (4, 4 + i)).save(place / "x.png")
    with pytest.raises(DataError, match="a, are not those of test, b"):
        load_folder(tmp_path / "set")
    Image.new("RGB", (5, 4)).save(kinds[0] / "y.png")
    with pytest.raises(DataError, match="5 x 4, the first image 4 x 4"):
        read_folder(kinds[0].parent)
    Image.fromarray(np.zeros((4, 4), np.uint16)).save(kinds[1] / "deep.png")
    with pytest.raises(DataError, match="deeper"):
        read_folder(kinds[1].parent)
    (kinds[1] / "deep.png").write_bytes(b"no image")
    with pytest.raises(DataError, match=r"deep\.png"):
        read_folder(kinds[1].parent)
    for line, problem in (("../x.png 1", "leads out"), ("x.png one", "number of a class"), ("", "no images")):
        (tmp_path / "train.txt").write_text(line + "\n")
        (tmp_path / "test.txt").write_text("\n")
        with pytest.raises(DataError, match=problem):
            load_folder(tmp_path)


def test_recipes_of_the_experiments_are_there() -> None:
    assert {"cifar-authors", "cifar-paper", "cifar-once", "chest", "faces-arcface", "faces-teacher"} <= set(
        recipes.recipes()
    )
    assert isinstance(recipe("chest"), Recipe)
    assert Plan.grey(1.0, 8).word_bits == 8


def test_what_was_not_begun_is_not_done(tmp_path: Path) -> None:
    write_cifar(tmp_path)
    assert not reproduce("ablation", tmp_path, tmp_path / "results", tmp_path / "work", device="cpu", minutes=0.0)[0]


def test_a_run_that_was_stopped_takes_no_finished_ones_place() -> None:
    done: dict[str, object] = {"run": "a", "seed": 0, "finished": True}
    assert results.add({"run": "a", "seed": 0, "finished": False}, [done]) == [done]
    assert results.add({"run": "a", "seed": 0, "finished": True, "new": 1}, [done]) == [
        {"run": "a", "seed": 0, "finished": True, "new": 1}
    ]
    assert len(results.add({"run": "a", "seed": 1, "finished": False}, [done])) == 2


def test_plans_of_the_tradeoff_spend_what_they_say() -> None:
    assert len(plans.PLANS) == 2 * (7 + 7) + 3 + (7 + 5)
    assert set(plans.ALONE) < set(plans.PLANS)
    single = plans.PLANS["single-pruned-eps5.2-y74c7"][0]
    whole = {part.bits: part.epsilon for part in Plan.paper(20.0).slices}
    assert [part.epsilon / single.slices[0].epsilon for part in single.slices] == pytest.approx(
        [whole[part.bits] / whole[0x800000] for part in single.slices], rel=1e-3
    )
    for name, (plan, prune, slices) in plans.PLANS.items():
        point = plans.Point(name, plan, prune, slices, 0.0, 0.0, 0.0)
        made = eval(point.code, {"Slicer": Slicer, "Plan": Plan})
        assert (made.plan, made.prune) == (plan, prune)
        assert f"eps{plan.epsilon:g}" in name
        assert (prune is None) == ("whole" in name)
    assert plans.PLANS["thick-whole-eps5.2-y76c7"][0].slices[0].bits == 0xC08080
    assert plans.PLANS["thick-pruned-eps1-y7"][0].slices[0].bits == 0x800000
    assert plans.PLANS["thick-pruned-eps5.2-y754"][0].slices[0].bits == 0xB00000


def measured(name: str, accuracy: float, leakage: float, held_out: float) -> list[dict[str, object]]:
    rows = [
        {
            "run": f"cifar10-{name}-learner",
            "accuracy": accuracy,
            "history": {"validation_accuracy": [0.01, None, held_out]},
        },
        {"run": f"cifar10-{name}-adversary", "found": [{"plan": name, "ssim": leakage}]},
    ]
    return [row | {"seed": 0, "finished": True} for row in rows]


def test_the_plan_that_teaches_most_and_leaks_little_enough_is_proposed_by_images_held_out(tmp_path: Path) -> None:
    rows = [
        *measured("paper-pruned-eps1", 0.12, 0.16, held_out=0.10),
        *measured(
            "paper-pruned-eps20", 0.68, 0.70, held_out=0.64
        ),  # the better one by the test set, which chooses nothing
        *measured("thick-pruned-eps2.4-y74", 0.66, 0.69, held_out=0.65),
        *measured("paper-whole-eps20", 0.75, 0.84, held_out=0.76),
        {
            "run": "cifar10-paper-pruned-eps58-learner",
            "seed": 0,
            "finished": True,
            "accuracy": 0.9,
        },  # its leakage is not known
    ]
    results.write("tradeoff", "About", rows, tmp_path)

    def choose(*options: str) -> Result:
        return CliRunner().invoke(app, ["lab", "choose", "--results", str(tmp_path), *options])

    found = choose("--max-leakage", "0.72")
    assert found.exit_code == 0
    assert (
        "thick-pruned-eps2.4-y74: eps 2.4 per released pixel, test accuracy 66.00 %, chosen by 65.00 % on"
        in found.output
    )
    assert "prune='haar'" in found.output
    assert "paper-whole-eps20" in choose("--max-leakage", "1").output
    assert "Slicer(Plan.paper(20), prune=None)" in choose("--max-leakage", "1").output
    assert "ldp-slicing privatize SRC DST --epsilon 20 --prune none" in choose("--max-leakage", "1").output
    for options, word in (
        (("--max-leakage", "0.1"), "the least leaky, paper-pruned-eps1"),
        (("--max-leakage", "1", "--max-epsilon", "0.5"), "the smallest was 1"),
        (("--max-leakage", "0.2"), "paper-pruned-eps1 has an accuracy of 10.00 % on images held out"),
        (("--max-leakage", "1", "--task", "faces"), "measured for cifar10"),
        (("--max-leakage", "1.2"), "0 to 1; got 1.2"),
        (("--max-leakage", "-1"), "0 to 1; got -1"),
        (("--max-leakage", "nan"), "0 to 1; got nan"),
    ):
        refused = choose(*options)
        assert refused.exit_code == 2
        assert word in refused.output
    (tmp_path / "tradeoff.json").unlink()
    assert "lab reproduce tradeoff" in choose("--max-leakage", "1").output
    kept = plans.best(plans.points(rows))
    assert [one.name for one in kept] == ["paper-pruned-eps1", "thick-pruned-eps2.4-y74", "paper-whole-eps20"]


def test_plans_can_be_chosen_anywhere_and_without_torch(tmp_path: Path) -> None:
    code = "import sys; sys.modules['torch'] = None; from ldp_slicing.cli import app; app(['lab', 'choose', '--max-leakage', '0.78'])"
    ran = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "ldp-slicing privatize SRC DST --epsilon" in ran.stdout


def test_results_that_are_not_there_are_a_refusal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for arguments in ((), ("nosuch",), (str(tmp_path),)):
        ran = CliRunner().invoke(app, ["lab", "results", *arguments])
        assert ran.exit_code == 2
        assert "holds no results" in ran.output
    assert not list(tmp_path.iterdir())
