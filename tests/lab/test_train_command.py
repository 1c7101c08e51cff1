"""`ldp-slicing lab train`: one network on one data set, as a user runs it."""

from __future__ import annotations

import csv
import io
import json
import pickle
import shutil
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from typer.testing import CliRunner, Result

from ldp_slicing.cli import app
from ldp_slicing.errors import DataError, LdpSlicingError
from ldp_slicing.lab import train_command
from ldp_slicing.lab.data.sets import ImageSet, ReleaseInfo, Split, shrunk
from ldp_slicing.lab.learners.accounting import epsilon_per_source
from ldp_slicing.lab.learners.models import EMBEDDERS, MODELS
from ldp_slicing.lab.learners.recipes import recipe
from ldp_slicing.lab.learners.releases import release_splits
from ldp_slicing.lab.learners.run import Epoch
from ldp_slicing.lab.learners.task import TrainingTask
from ldp_slicing.lab.learners.training import checkpoint_path
from ldp_slicing.lab.run_folder import lock_folder
from ldp_slicing.lab.train_command import default_recipe, make_task, open_set
from ldp_slicing.lab.train_faces_command import open_people
from ldp_slicing.plan import Plan
from ldp_slicing.torch import Reconstructor
from tests.release.helpers import plant

RNG = np.random.default_rng(3)


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder set of dark cats and bright dogs, and a network for it that trains in no time."""
    for split, count in (("train", 20), ("test", 6)):
        for kind, low in (("cat", 0), ("dog", 120)):
            place = tmp_path / "data" / "pets" / split / kind
            place.mkdir(parents=True)
            for i in range(count):
                Image.fromarray(RNG.integers(low, low + 130, (16, 16, 3), dtype=np.uint8)).save(place / f"{i}.png")
    network = (nn.Conv2d(3, 8, 3, 4), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    monkeypatch.setitem(MODELS, "tiny", lambda classes: nn.Sequential(*deepcopy(network), nn.Linear(8, classes)))
    return tmp_path / "data"


def run(data: Path, folder: Path, *options: str) -> Result:
    arguments = [
        "lab",
        "train",
        "pets",
        "--data",
        str(data),
        "--out",
        str(folder),
        "--model",
        "tiny",
        "--epochs",
        "3",
        "--device",
        "cpu",
    ]
    return CliRunner().invoke(app, [*arguments, *options])


@pytest.mark.parametrize(
    ("options", "spent"),
    [
        ((), "more than eps 20 per"),
        (("--release", "every-epoch"), "more than eps 60 per"),
        (("--release", "view"), "this run is not private"),
        (("--release", "none", "--recipe", "cifar-authors"), "this run is not private"),
        (("--epsilon", "58", "--prune", "none", "--weights", "1:1:1", "--seed", "4"), "more than eps 58 per"),
        (("--epsilon", "5.2", "--slices", "Y7+Y4+Cb7+Cr7"), "more than eps 5.2 per"),
    ],
)
def test_train_prints_the_spent_epsilon(data: Path, tmp_path: Path, options: tuple[str, ...], spent: str) -> None:
    ran = run(data, tmp_path / "out", *options)
    assert ran.exit_code == 0, ran.output
    assert spent in ran.output
    row = json.loads((tmp_path / "out" / "result.json").read_text())
    training = row["training"]
    assert (row["finished"], training["epochs"], training["held_out"], training["images"]) == (True, 3, 4, 36)
    assert training["data_digest"] is None  # guesses of the sources could be checked by it
    assert "model tiny" in row["recipe"]["deviations"][-1]
    assert training["best_test_epoch"] is None  # the test set chooses nothing
    with (tmp_path / "out" / "log.csv").open() as file:
        log = list(csv.DictReader(file))
    assert [int(line["epoch"]) for line in log] == [0, 1, 2]
    assert all(line["test_accuracy"] == "" and line["validation_accuracy"] for line in log)
    assert (tmp_path / "out" / "model.pt").is_file()


def test_train_uses_existing_releases(data: Path, tmp_path: Path) -> None:
    made = CliRunner().invoke(
        app,
        [
            "privatize",
            str(data / "pets"),
            str(data / "released"),
            "--epsilon",
            "5.2",
            "--slices",
            "Y7+Y4+Cb7+Cr7",
            "--prune",
            "none",
        ],
    )
    assert made.exit_code == 0, made.output
    shutil.rmtree(data / "pets")  # no source is needed
    (data / "released").rename(data / "pets")
    ran = run(data, tmp_path / "out")
    assert ran.exit_code == 0, ran.output
    assert "more than eps 5.2 per" in ran.output
    row = json.loads((tmp_path / "out" / "result.json").read_text())
    assert (row["release"], row["mode"], row["prune"], row["plans"][0]["epsilon_requested"]) == (
        "existing",
        "decoded",
        None,
        5.2,
    )
    assert not list((tmp_path / "out").glob("*.npz"))
    images = open_set("pets", data)
    first = np.asarray(Image.open(data / "pets" / "train" / "cat" / "0.png").convert("RGB"))
    assert any(
        np.array_equal(first, one) for one in release_splits(make_task(images, epsilon=20.0))[0].images
    )  # as they are
    for option in (("--epsilon", "20"), ("--release", "once"), ("--prune", "haar")):
        refused = run(data, tmp_path / "other", *option)
        assert refused.exit_code == 2
        assert f"leave out {option[0]}" in refused.output
    attack = CliRunner().invoke(
        app, ["lab", "attack", "bayes", "pets", "--data", str(data), "--out", str(tmp_path / "attack")]
    )
    assert (attack.exit_code, "holds releases" in attack.output) == (2, True)
    with pytest.raises(LdpSlicingError, match="holds releases"):
        TrainingTask("run", images, recipe("cifar-once"), Plan.paper(20.0))
    with pytest.raises(DataError, match="name a folder of sources"):
        open_people("pets", data)


def test_releases_are_recognised_by_the_nearest_card(data: Path, tmp_path: Path) -> None:
    """They are not released again: above the set, in its parts, behind links, beside a list, in the set of X-rays."""

    def privatize(source: str, target: str, epsilon: str = "5") -> None:
        made = CliRunner().invoke(
            app, ["privatize", str(data / source), str(data / target), "--spend", "--epsilon", epsilon]
        )
        assert made.exit_code == 0, made.output

    def spent(name: str, place: Path = data) -> float:
        images = open_set(name, place)
        assert images.release_info is not None
        assert (images.release_info.plan.word_bits, images.release_info.prune) == (8 if images.is_grey else 24, "haar")
        task = make_task(images, epsilon=20.0)
        assert (task.release, epsilon_per_source(task)) == ("existing", images.release_info.spent)
        return images.release_info.spent

    shutil.copytree(data / "pets", data / "tree" / "pets")
    privatize("tree", "trees")
    assert spent("pets", data / "trees") == pytest.approx(5.0)
    shutil.copytree(data / "pets" / "test", data / "pets" / "val")
    for part in ("train", "val", "test"):
        privatize(f"pets/{part}", f"three/{part}")
    assert spent("three") > 10.0  # every source a second time, and each may be on both cards
    (data / "links").mkdir()
    for part in ("train", "test"):
        (data / "links" / part).symlink_to(data / "three" / part)
    assert spent("links") == spent("three")
    assert not open_set("links", data).is_grey
    for part in ("train", "test"):
        lines = [f"images/{part}/{kind}/{i}.png {label}" for label, kind in enumerate(("cat", "dog")) for i in range(6)]
        plant(data / "list", {f"{part}.txt": "\n".join(lines).encode()})
    privatize("pets", "list/images")
    spent("list")
    for split in ("train", "val", "test"):
        for kind in ("NORMAL", "PNEUMONIA"):
            (data / "x" / split / kind).mkdir(parents=True)
            Image.fromarray(RNG.integers(0, 256, (224, 224), dtype=np.uint8)).save(data / "x" / split / kind / "0.png")
    privatize("x", "chest_xray")
    assert spent("chest") == pytest.approx(5.0)


def test_releases_and_sources_are_not_mixed(data: Path) -> None:
    def privatize(part: str, target: str, epsilon: str) -> None:
        made = CliRunner().invoke(
            app, ["privatize", str(data / "pets" / part), str(data / target / part), "--spend", "-e", epsilon]
        )
        assert made.exit_code == 0, made.output

    others = {
        "card.json": b'{"suit": "hearts"}',
        "train/cat/card.json": b'["statements"]',
        "manifest.jsonl": b'{"file": "a"}\n',
    }
    plant(data / "pets", others)
    assert open_set("pets", data).release_info is None
    assert epsilon_per_source(make_task(open_set("pets", data), epsilon=5.0)) == pytest.approx(5.0)
    shutil.copy(data / "pets" / "train" / "cat" / "0.png", data / "pets" / "test" / "cat" / "copy.png")
    assert epsilon_per_source(make_task(open_set("pets", data), epsilon=5.0)) == pytest.approx(
        10.0
    )  # released twice, it would be
    (data / "pets" / "train" / "cat" / "card.json").unlink()
    privatize("train", "mixed", "5")
    shutil.copytree(data / "pets" / "test", data / "mixed" / "test")
    with pytest.raises(DataError, match="others have no card: keep sources"):
        open_set("mixed", data)
    with pytest.raises(DataError, match="others have no card: keep sources"):
        open_people("mixed", data)
    for part, eps in (("train", "5"), ("test", "6")):
        privatize(part, "different", eps)
    with pytest.raises(DataError, match="have different plans or views"):
        open_set("different", data)


def test_a_folder_is_used_by_one_process_at_a_time(data: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with lock_folder(tmp_path / "out"):
        ran = run(data, tmp_path / "out")
    assert (ran.exit_code, "another process is using" in ran.output) == (2, True)
    assert run(data, tmp_path / "out").exit_code == 0


def test_a_log_that_cannot_be_written_is_refused_before_anything_is_released(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ldp_slicing.lab.learners.logs.find_spec", lambda _: None)
    ran = run(data, tmp_path / "out", "--log", "tensorboard")
    assert (ran.exit_code, "needs tensorboard" in ran.output) == (2, True)
    assert not (tmp_path / "out").exists()


def test_a_card_with_several_word_sizes_is_refused(data: Path, tmp_path: Path) -> None:
    Image.fromarray(RNG.integers(0, 256, (16, 16), dtype=np.uint8)).save(data / "pets" / "train" / "cat" / "grey.png")
    assert CliRunner().invoke(app, ["privatize", str(data / "pets"), str(data / "released"), "-e", "20"]).exit_code == 0
    with pytest.raises(DataError, match="words of 24, 8 bits"):
        open_set("released", data)
    (data / "released" / "card.json").write_text("{}")
    with pytest.raises(DataError, match="is not a valid card"):
        open_set("released", data)


def test_a_folder_of_grey_images_is_grey(data: Path) -> None:
    """As `privatize` takes it: the plan of colour pixels would make an attack look weaker than it is."""
    assert not open_set("pets", data).is_grey
    for path in (data / "pets").rglob("*.png"):
        Image.open(path).convert("L").save(path)
    images = open_set("pets", data)
    assert images.is_grey
    task = make_task(images, epsilon=20.0)
    assert task.plan == Plan.grey(20.0)
    assert task.recipe.model == "five-blocks-grey"


@pytest.fixture
def _default_handlers() -> Iterator[None]:
    """Default handlers of signals, also where the parent process ignores SIGINT, as under nohup."""
    handlers = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("_default_handlers")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_the_epoch_and_training_can_be_resumed(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    write, times = train_command.write_log, [1]

    def interrupt(history: Sequence[Epoch], *rest: Any) -> None:
        write(history, *rest)
        for _ in range(times.pop() if times and len(history) == 2 else 0):
            signal.raise_signal(number)

    before = signal.getsignal(number)
    monkeypatch.setattr(train_command, "write_log", interrupt)
    stopped = run(data, tmp_path / "out")
    assert stopped.exit_code == 128 + number
    assert (
        "stopping at the end of the current step, such as an epoch; interrupt again to stop at once" in stopped.output
    )
    assert "stopped after 2 of 3 epochs; run the same command again to resume" in stopped.output
    assert signal.getsignal(number) is before
    assert run(data, tmp_path / "out").exit_code == 0
    row = json.loads((tmp_path / "out" / "result.json").read_text())
    assert len(row["training"]["history"]["loss"]) == 3
    times.append(2)
    assert run(data, tmp_path / "aborted").exit_code in (128 + signal.SIGINT, 128 + number)
    assert not (tmp_path / "aborted" / "result.json").exists()


@pytest.mark.usefixtures("_default_handlers")
def test_an_interrupt_stops_the_training_of_a_reconstructor(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fit(*_: Any, report: Callable[[int, float], None], **__: Any) -> None:
        signal.raise_signal(signal.SIGTERM)
        report(30, 1.0)

    monkeypatch.setattr(Reconstructor, "fit", fit)
    stopped = run(data, tmp_path / "out", "--mode", "reconstructed")
    assert stopped.exit_code == 128 + signal.SIGTERM
    for done in (0, 30):
        assert f"first training a reconstructor, {done} of 3,000 steps" in stopped.output
    assert "stopped before the first epoch; run the same command again to resume" in stopped.output


@pytest.mark.parametrize("options", [("--mode", "reconstructed-public"), ("--public", "pets")])
def test_public_images_and_their_mode_go_together(data: Path, tmp_path: Path, options: tuple[str, str]) -> None:
    ran = run(data, tmp_path / "out", *options)
    assert ran.exit_code == 2
    assert "needs --public SET" in ran.output


def test_a_stopped_run_resumes_and_a_finished_one_stays(data: Path, tmp_path: Path) -> None:
    first = run(data, tmp_path / "out", "--minutes", "0")
    assert first.exit_code == 0
    assert "stopped before the first epoch" in first.output
    assert not (tmp_path / "out" / "result.json").exists()
    second = run(data, tmp_path / "out")
    assert "test accuracy" in second.output
    before = json.loads((tmp_path / "out" / "result.json").read_text())
    assert "test accuracy" in run(data, tmp_path / "out").output
    assert json.loads((tmp_path / "out" / "result.json").read_text())["metrics"] == before["metrics"]


def test_a_refusal_leaves_the_folder_unbound(data: Path, tmp_path: Path) -> None:
    for options, word in ((("--validation", "0.999"), "cannot hold out"), (("--seed", "-1"), "seed")):
        ran = run(data, tmp_path / "out", *options)
        assert ran.exit_code == 2
        assert word in ran.output
    assert run(data, tmp_path / "out").exit_code == 0


def test_the_result_contains_no_digest_of_the_sources(data: Path, tmp_path: Path) -> None:
    """A digest of sources confirms a guess of them; `task.json` has it, and stays."""
    assert run(data, tmp_path / "out").exit_code == 0
    digest = json.loads((tmp_path / "out" / "task.json").read_text())["images"]
    assert digest == open_set("pets", data).digest
    assert digest not in (tmp_path / "out" / "result.json").read_text()


def test_a_folder_is_bound_to_one_task(data: Path, tmp_path: Path) -> None:
    assert run(data, tmp_path / "out", "--minutes", "0").exit_code == 0
    for options, message in (
        (("--epsilon", "5"), "with --epsilon 20, and this command is with --epsilon 5: to continue, use the options"),
        (("--seed", "1"), "with --seed 0, and this command is with --seed 1: to continue"),
        (("--release", "none"), "with --release once, and this command is with --release none: to continue"),
        (("--prune", "none"), "with --prune haar, and this command is with --prune none: to continue"),
        (("--lr", "0.5"), "with --lr 0.002, and this command is with --lr 0.5: to continue"),
        (("--weights", "1:1:1"), "with other --slices or --weights: name another --out"),
        (("--validation", "0.2"), "with other held-out images (--validation): name another --out"),
    ):
        ran = run(data, tmp_path / "out", *options)
        assert ran.exit_code == 2
        assert f"was begun {message}" in " ".join(ran.output.split())


def test_a_folder_that_cannot_be_written_to_is_refused(data: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    ran = run(data, tmp_path / "file" / "out")
    assert ran.exit_code == 2
    assert "cannot write to" in ran.output


def test_a_folder_is_bound_to_its_images_not_to_their_names(data: Path, tmp_path: Path) -> None:
    assert run(data, tmp_path / "out", "--minutes", "0").exit_code == 0
    path = data / "pets" / "train" / "cat" / "3.png"
    before = path.read_bytes()
    Image.new("RGB", (16, 16), (1, 2, 3)).save(path)
    ran = run(data, tmp_path / "out")
    assert ran.exit_code == 2
    assert "was begun with other images: name another --out" in " ".join(ran.output.split())
    path.write_bytes(before)
    assert run(data, tmp_path / "out").exit_code == 0


def test_the_digest_of_a_set_covers_images_labels_and_groups() -> None:
    images, labels = RNG.integers(0, 256, (6, 4, 4, 3), dtype=np.uint8), np.arange(6)
    split, other, nothing = Split(images, labels), Split(images, labels[::-1].copy()), Split(images[:0], labels[:0])
    sets = [
        (split, split),
        (split, other),
        (other, split),
        (split, nothing),
        (nothing, split),
        (Split(images.reshape(6, 8, 2, 3), labels), split),
        (Split(images, labels, labels), split),
        (Split(images, labels, labels[::-1].copy()), split),
    ]
    assert len({ImageSet("set", 6, *parts).digest for parts in sets}) == len(sets)
    assert (
        ImageSet("set", 6, split, other).digest
        == ImageSet("other", 7, Split(images.copy(), labels.copy()), other).digest
    )
    task = make_task(ImageSet("set", 6, split, split), epsilon=5.2)
    moved = make_task(ImageSet("set", 6, other, split), epsilon=5.2)
    assert checkpoint_path(task, Path()) != checkpoint_path(moved, Path())


def test_tensorboard_can_read_its_log(data: Path, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    assert run(data, tmp_path / "out", "--log", "tensorboard").exit_code == 0
    events = EventAccumulator(str(tmp_path / "out" / "tensorboard"))
    events.Reload()
    assert [event.step for event in events.Scalars("loss")] == [0, 1, 2]
    assert "test_accuracy" not in events.Tags()["scalars"]


def test_invalid_options_of_train_are_refused(data: Path, tmp_path: Path) -> None:
    for options, word in (
        (("--validation", "0"), "between 0 and 1"),
        (("--recipe", "faces-arcface"), "lab train-faces"),
        (("--recipe", "nothing"), "no recipe"),
        (("--model", "vgg"), "no classifier 'vgg'"),
        (("--model", "resnet50-grey"), "'resnet50-grey' does not take colour images"),
        (("--device", "gpu"), "no device 'gpu' on this machine; available: cpu"),
        (("--device", "cuda:77"), "no device 'cuda:77' on this machine; available: cpu"),
    ):
        ran = run(data, tmp_path / "out", *options)
        assert ran.exit_code == 2, ran.output
        assert word in ran.output
        assert not (tmp_path / "out").exists()  # nothing was released, and no folder is bound to what was refused
    ran = CliRunner().invoke(app, ["lab", "train", "cifar10", "--data", str(tmp_path)])
    assert ran.exit_code == 2
    assert "cifar-10-batches-py" in ran.output


def test_grey_images_get_a_grey_plan_and_recipe() -> None:
    split = Split(np.zeros((20, 8, 8, 1), np.uint8), np.arange(20) % 2)
    task = make_task(ImageSet("grey", 2, split, split), epsilon=5.2)
    assert task.plan is not None
    assert task.plan.word_bits == 8
    assert (task.recipe.name, task.validation) == ("chest-small", 2)


@pytest.mark.parametrize(
    ("count", "name"), [(5_000, "small-set"), (5_001, "medium-set"), (25_000, "medium-set"), (25_001, "cifar-decoded")]
)
def test_the_recipe_depends_on_the_number_of_images(count: int, name: str) -> None:
    split = Split(np.zeros((count, 2, 2, 3), np.uint8), np.arange(count) % 2)
    assert default_recipe(ImageSet("set", 2, split, split), "decoded") == name


def test_a_recipe_may_shrink_sources_and_leaves_releases_alone() -> None:
    values = np.arange(2 * 6 * 4, dtype=np.uint8).reshape(2, 6, 4, 1)
    images = ImageSet("grey", 2, Split(values, np.arange(2), np.arange(2)), Split(values, np.arange(2)))
    small = shrunk(images, 3)
    assert small.train.images.shape == small.test.images.shape == (2, 3, 2, 1)
    assert small.train.images[0, 0, 0, 0] == 3  # the mean of 0, 1, 4 and 5, rounded half up
    assert small.train.groups is not None
    assert shrunk(images, 6) is images
    released = replace(images, release_info=ReleaseInfo(Plan.grey(5.0), "haar", 5.0))
    assert shrunk(released, 3) is released


def test_a_run_that_diverged_is_repeated_with_the_same_releases(data: Path, tmp_path: Path) -> None:
    options = ("--epsilon", "5.2", "--slices", "Y7,Y6")
    ran = run(data, tmp_path / "out", *options, "--lr", "1e30")
    assert ran.exit_code == 2
    told = " ".join(ran.output.split())
    assert "the loss diverged in epoch" in told
    assert "run the same command with another --lr" in told
    [before] = [path.read_bytes() for path in (tmp_path / "out").glob("*.releases.npz")]
    again = run(data, tmp_path / "out", *options, "--lr", "0.01")
    assert again.exit_code == 0, again.output
    assert [path.read_bytes() for path in (tmp_path / "out").glob("*.releases.npz")] == [before]


def test_named_sets_are_read_from_their_usual_folders(tmp_path: Path) -> None:
    for name, place in (("cifar100", "cifar-100-python"), ("chest", "chest_xray"), ("mine", "mine")):
        with pytest.raises(LdpSlicingError, match=place):
            open_set(name, tmp_path)


def write_people(folder: Path) -> Path:
    """Six people of two photos, and a verification set of ten pairs."""
    for person in range(6):
        (folder / "people" / f"p{person}").mkdir(parents=True)
        for i in range(2):
            Image.fromarray(RNG.integers(0, 256, (112, 112, 3), dtype=np.uint8)).save(
                folder / "people" / f"p{person}" / f"{i}.png"
            )
    buffers = []
    for _ in range(20):
        buffer = io.BytesIO()
        Image.fromarray(RNG.integers(0, 256, (112, 112, 3), dtype=np.uint8)).save(buffer, "PNG")
        buffers.append(buffer.getvalue())
    (folder / "toy.bin").write_bytes(pickle.dumps((buffers, [i % 2 == 0 for i in range(10)])))
    return folder


@pytest.mark.parametrize("options", [("--release", "once"), ("--release", "every-epoch"), ("--release", "none")])
def test_a_recogniser_is_trained_and_verified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    data = write_people(tmp_path)
    network = nn.Sequential(nn.Conv2d(3, 4, 5, 8), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, 8))
    torch.save(network.state_dict(), tmp_path / "start.pt")
    monkeypatch.setitem(EMBEDDERS, "ir50", (lambda: network, 8))
    arguments = [
        "lab",
        "train-faces",
        "people",
        "--data",
        str(data),
        "--verify",
        str(data / "toy.bin"),
        "--out",
        str(tmp_path / "out"),
    ]
    rest = ["--start", str(tmp_path / "start.pt"), "--epochs", "1", "--device", "cpu"]
    ran = CliRunner().invoke(app, [*arguments, *rest, *options])
    assert ran.exit_code == 0, ran.output
    assert "toy: " in ran.output
    row = json.loads((tmp_path / "out" / "result.json").read_text())
    assert row["metrics"]["verification"][0]["pairs"] == 10
    kept = [path.read_bytes() for path in (tmp_path / "out").glob("verification.npz")]
    assert len(kept) == (options[1] == "once")
    again = CliRunner().invoke(app, [*arguments, *rest, *options])
    assert ran.output.endswith(again.output) or options[1] == "every-epoch"
    assert [
        path.read_bytes() for path in (tmp_path / "out").glob("verification.npz")
    ] == kept  # nobody is released again
    assert row["training"]["chosen_by"] == "last"
    assert (row["recipe"]["name"], row["recipe"]["margin"]) == ("faces-paper", 0.4)


@pytest.mark.parametrize(("release", "spent"), [("once", 10.0), ("every-epoch", 15.0)])
def test_images_used_for_training_and_verification_spend_on_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, release: str, spent: float
) -> None:
    data = write_people(tmp_path)
    files = sorted((data / "people").rglob("*.png"))
    pairs = [files[i % len(files)].read_bytes() for i in range(20)]
    (data / "same.bin").write_bytes(pickle.dumps((pairs, [True] * 10)))
    network = nn.Sequential(nn.Conv2d(3, 4, 5, 8), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, 8))
    monkeypatch.setitem(EMBEDDERS, "ir50", (lambda: network, 8))
    arguments = [
        "lab",
        "train-faces",
        "people",
        "--data",
        str(data),
        "--verify",
        str(data / "same.bin"),
        "--out",
        str(tmp_path / "out"),
    ]
    rest = ["--epochs", "2", "--device", "cpu", "--epsilon", "5", "--release", release]
    ran = CliRunner().invoke(app, [*arguments, *rest])
    assert f"no source has spent more than eps {spent:g} per released pixel, " in ran.output
    assert json.loads((tmp_path / "out" / "result.json").read_text())["epsilon_spent"] == pytest.approx(spent, rel=1e-6)
    if release == "once":
        without = [one for one in arguments if one not in ("--verify", str(data / "same.bin"))]
        assert (
            "no source has spent more than eps 10 per" in CliRunner().invoke(app, [*without, *rest]).output
        )  # it was verified before
        (tmp_path / "out" / "verification.npz").write_bytes(b"PK torn")
        again = CliRunner().invoke(app, [*arguments, *rest])
        assert again.exit_code == 2
        assert "verification.npz is damaged, and its releases cannot be made again without spending again" in " ".join(
            again.output.split()
        )


def test_invalid_options_of_train_faces_are_refused(tmp_path: Path) -> None:
    data = write_people(tmp_path)
    torch.save({"state_dict": {"weight": torch.zeros(3)}, "epoch": 3}, data / "other.pt")
    torch.save([torch.zeros(3)], data / "list.pt")
    for name in ("junk.pt", "dlib.dat"):
        (data / name).write_bytes(b"something else")
    images, same = pickle.loads((data / "toy.bin").read_bytes())
    (data / "few.bin").write_bytes(pickle.dumps((images[:8], same[:4])))
    arguments = ["lab", "train-faces", "people", "--data", str(data), "--out", str(tmp_path / "out"), "--device", "cpu"]
    for options, word in (
        (("--recipe", "cifar-once"), "does not train a recogniser"),
        (("--verify", str(data / "people" / "p0" / "0.png")), "verification set"),
        (("--start", str(data / "nothing.pt")), "the initial weights"),
        (
            ("--start", str(data / "other.pt")),
            "holds weights of another network: weight, ... instead of 0.weight, 1.weight",
        ),
        (("--start", str(data / "junk.pt")), "holds no readable weights"),
        (("--start", str(data / "list.pt")), "holds no weights: expected tensors by name"),
        (("--start", str(data / "dlib.dat")), "dlib's weights fit only the recipe faces-arcface"),
        (
            ("--verify", str(data / "nothing.bin")),
            "nothing.bin does not exist: it should be an InsightFace verification set",
        ),
        (("--verify", str(data / "few.bin")), "few.bin holds 4 pairs, which is too few for 10 folds"),
    ):
        ran = CliRunner().invoke(app, [*arguments, *options])
        assert ran.exit_code == 2, ran.output
        assert word in " ".join(ran.output.split())
        assert not (tmp_path / "out").exists()
    Image.new("RGB", (8, 8)).save(data / "people" / "p0" / "0.png")
    Image.new("RGB", (8, 8)).save(data / "small.png")
    for path in (data / "people").glob("*/*.png"):
        Image.new("RGB", (8, 8)).save(path)
    ran = CliRunner().invoke(app, arguments)
    assert ran.exit_code == 2
    assert "aligned to 112 x 112" in ran.output


def test_the_authors_recipe_for_faces_differs_where_their_code_does() -> None:
    paper, code = recipe("faces-paper"), recipe("faces-authors")
    assert (paper.margin, paper.learning_rate, code.margin, code.learning_rate) == (0.4, 0.1, 0.5, 0.01)
    rates = [paper.learning_rate_at(epoch) for epoch in range(paper.epochs)]
    assert rates[:5] == sorted(rates[:5])
    assert rates[5] == 0.1
    assert rates[10] == pytest.approx(0.01)
    assert rates[22] == pytest.approx(0.0001)


def test_more_epochs_are_another_run(data: Path, tmp_path: Path) -> None:
    assert run(data, tmp_path / "out").exit_code == 0
    before = (tmp_path / "out" / "result.json").read_bytes()
    more = run(data, tmp_path / "out", "--epochs", "5")
    said = " ".join(more.output.split())
    assert (more.exit_code, "was begun with --epochs 3, and this command is with --epochs 5: to" in said) == (2, True)
    assert (tmp_path / "out" / "result.json").read_bytes() == before


def test_lists_above_a_folder_of_releases(data: Path, tmp_path: Path) -> None:
    target = data / "mine" / "releases"
    assert CliRunner().invoke(app, ["privatize", str(data / "pets"), str(target), "--epsilon", "5.2"]).exit_code == 0
    for split in ("train", "test"):
        names = [
            path.relative_to(data / "mine").with_suffix(".jpg") for path in sorted((target / split).rglob("*.png"))
        ]
        (data / "mine" / f"{split}.txt").write_text("".join(f"{name} {int('dog' in str(name))}\n" for name in names))
    images = open_set("mine", data)
    assert images.release_info is not None
    assert (len(images.train.labels), len(images.test.labels), images.release_info.plan.epsilon) == (40, 12, 5.2)
    assert CliRunner().invoke(app, ["verify", str(target)]).exit_code == 0


def test_a_folder_with_other_parameters_is_refused(data: Path, tmp_path: Path) -> None:
    assert run(data, tmp_path / "out", "--minutes", "0").exit_code == 0
    task = tmp_path / "out" / "task.json"
    began = json.loads(task.read_text())
    del began["epochs"]
    task.write_text(json.dumps(began))
    refused = run(data, tmp_path / "out")
    assert refused.exit_code == 2
    said = " ".join(refused.output.split())
    assert "was begun without --epochs, and this command is with --epochs 3: to continue, use the options that" in said


def test_train_runs_outside_the_main_thread(data: Path, tmp_path: Path) -> None:
    found: list[Result] = []
    thread = threading.Thread(target=lambda: found.append(run(data, tmp_path / "out")))
    thread.start()
    thread.join()
    assert found[0].exit_code == 0, found[0].output
