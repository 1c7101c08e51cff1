"""How much can be learnt from few releases: the default recipes of `lab train` against a plain training loop."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

from ldp_slicing.lab.data.cifar import load_cifar
from ldp_slicing.lab.data.sets import ImageSet
from ldp_slicing.lab.experiment import Experiment, ExperimentContext, RowsByExperiment, Trial, train_all, with_recipe
from ldp_slicing.lab.experiments import curves
from ldp_slicing.lab.learners.accounting import epsilon_per_source
from ldp_slicing.lab.learners.recipes import recipe
from ldp_slicing.lab.learners.releases import release_splits
from ldp_slicing.lab.learners.task import TrainingTask
from ldp_slicing.lab.rows import Row, read_rows, select
from ldp_slicing.lab.tables import markdown, metric, spread
from ldp_slicing.lab.train_command import default_recipe
from ldp_slicing.plan import Plan
from ldp_slicing.torch.decode import Decoder

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIZES, SEEDS, EPSILON = (2_000, 10_000, 50_000), 3, 20.0
VALIDATION = 10  # `lab train` holds out one image in so many; the plain loop holds out none
PLAIN_EPOCHS, PLAIN_BATCH, PLAIN_RATE, PLAIN_PAD = 40, 64, 1e-3, 4
METHODS = {"plain-loop": "plain loop", "lab-train": "`lab train`, default"}


def measure(context: ExperimentContext) -> Iterator[Row]:
    rows = {
        (size, method, seed): _row(size, method, seed) for size in SIZES for method in METHODS for seed in range(SEEDS)
    }
    if not context.wants_any(rows.values()):
        return
    whole = load_cifar("cifar10", context.data)
    sets = {size: _first(whole, size) for size in SIZES}
    for (size, method, _), row in rows.items():
        if method == "plain-loop" and context.pending(row):
            yield _plain_loop(row, sets[size], context)
    trials = []
    for (size, method, _), row in rows.items():
        if method == "lab-train":
            how = recipe(default_recipe(sets[size], "decoded"))
            trial = context.trial(with_recipe(row, how), sets[size], how, validation=size // VALIDATION)
            if (known := _known_from_curves(trial, context)) is None:
                trials.append(trial)
            elif context.pending(known):
                yield known
    yield from train_all(trials, context)


def _known_from_curves(trial: Trial, context: ExperimentContext) -> Row | None:
    """The row of the same network in `curves`, if it was measured there, under this experiment's name."""
    row, task = trial.row, trial.task
    others = replace(context, done=tuple(read_rows(context.results / f"{curves.EXPERIMENT.name}.json")))
    found = others.find_done(replace(row, experiment=curves.EXPERIMENT.name, method="", options={}), task)
    if found is None or found.training is None or found.training.held_out != task.validation:
        return None
    return replace(found, experiment=row.experiment, method=row.method, options=row.options)


def _row(size: int, method: str, seed: int) -> Row:
    plans = (Plan.paper(EPSILON),)
    options = {"images": size}
    return Row(
        "small-sets", "cifar10", method, plans, "haar", release="once", mode="decoded", options=options, seed=seed
    )


def _first(images: ImageSet, count: int) -> ImageSet:
    """The set with its first ``count`` training images, which are in random order, and all test images."""
    return replace(images, train=images.train.part(slice(count)))


def plain_network(classes: int) -> nn.Module:
    """Three convolutions, as in many tutorials."""
    layers, inside = list[nn.Module](), 3
    for outside in (32, 64, 128):
        layers += [nn.Conv2d(inside, outside, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
        inside = outside
    return nn.Sequential(*layers, nn.Flatten(), nn.LazyLinear(classes))


def _plain_loop(row: Row, images: ImageSet, context: ExperimentContext) -> Row:
    """The row with the test accuracy of a network that is trained by the loop that one would write first."""
    task = TrainingTask("plain", images, recipe("cifar-decoded"), row.plan, row.prune, "once", row.seed, mode="decoded")
    train, _, test = release_splits(task)
    released, tests = (torch.from_numpy(part.images).permute(0, 3, 1, 2).to(context.device) for part in (train, test))
    labels, answers = (torch.from_numpy(part.labels).to(context.device) for part in (train, test))
    assert task.plan is not None  # noqa: S101 - the row has one
    decoder = Decoder.fit(released, task.plan, prune=task.prune)

    def inputs(some: Tensor) -> Tensor:
        return torch.cat([(decoder(part).float() - 128) / 32 for part in torch.split(some, 1000)])

    accuracy = train_plainly(inputs(released), labels, inputs(tests), answers, images.classes, row.seed, context.epochs)
    context.log(f"{row.label}: test accuracy {100 * accuracy:.2f} %")
    return replace(row, metrics={"test_accuracy": accuracy}, epsilon_spent=epsilon_per_source(task))


def train_plainly(
    images: Tensor,
    labels: Tensor,
    tests: Tensor,
    answers: Tensor,
    classes: int,
    seed: int,
    epochs: int | None = None,
) -> float:
    """The test accuracy after ``epochs`` of AdamW on float32 [N, 3, H, W], cropped and flipped at random."""
    torch.manual_seed(seed)
    network = plain_network(classes).to(images.device)
    network(images[:1])
    optimiser = torch.optim.AdamW(network.parameters(), PLAIN_RATE)
    padded = functional.pad(images, (PLAIN_PAD,) * 4)
    for _ in range(epochs or PLAIN_EPOCHS):
        for index in torch.split(torch.randperm(len(images), device=images.device), PLAIN_BATCH):
            optimiser.zero_grad()
            functional.cross_entropy(network(_augment(padded, index)), labels[index]).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
    network.eval()
    with torch.no_grad():
        found = torch.cat([network(part).argmax(1) for part in torch.split(tests, 500)])
    return float((found == answers).float().mean())


def _augment(padded: Tensor, index: Tensor) -> Tensor:
    """Random crops of the padded images [N, C, H, W] at ``index``, half of them flipped."""
    side, count, device = padded.shape[2] - 2 * PLAIN_PAD, len(index), padded.device
    shifts = torch.randint(2 * PLAIN_PAD + 1, (2, count, 1), device=device)
    columns = torch.arange(side, device=device)
    columns = torch.where(torch.rand(count, 1, device=device) < 0.5, columns.flip(0), columns)
    rows, columns = shifts[0] + torch.arange(side, device=device), shifts[1] + columns
    return padded[index[:, None, None], :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


def table(rows: Sequence[Row]) -> str:
    lines = []
    for size in SIZES:
        found = {method: select(rows, method=method, images=size) for method in METHODS}
        names = sorted({str(row.recipe["name"]) for row in found["lab-train"]})
        cells = [spread(metric(some, "test_accuracy")) for some in found.values()]
        lines.append([f"{size:,}", *cells, " or ".join(names) or "-"])
    return markdown(["releases", *(f"{words}, test accuracy, %" for words in METHODS.values()), "recipe"], lines)


def figure(rows: RowsByExperiment) -> Figure:
    from ldp_slicing.lab.figures import COLOURS, legend, line, panels

    drawn, (axis,) = panels(1)
    for (method, words), colour in zip(METHODS.items(), COLOURS[1::-1], strict=True):
        found = {
            float(size): metric(select(rows["small-sets"], method=method, images=size), "test_accuracy")
            for size in SIZES
        }
        line(axis, found, words.replace("`", ""), colour)
    axis.set_xticks(SIZES, [f"{size:,}" for size in SIZES])
    title = "CIFAR-10, eps 20, one release per image\nbars: range over three seeds"
    axis.set(title=title, xlabel="training images", ylabel="test accuracy, %")
    axis.set_ylim(0, 100)
    legend(axis)
    return drawn


EXPERIMENT = Experiment(
    "small-sets",
    """
Test accuracy on CIFAR-10 after training on the first 2,000, the first 10,000 or all 50,000 training images. Training
and test images are released once each at eps 20 (the paper's plan, pruned) and decoded with `Decoder`.

- The plain loop has three convolutions, AdamW at 1e-3, 40 epochs in batches of 64, random crops and flips. It was not
  tuned. It learns from all of these images and is tested after its last epoch.
- `lab train` uses its default recipe for this number of images: another network and schedule and, up to 25,000
  images, smoothed labels and averaged weights. It holds out a tenth of the images to choose the epoch, so it learns
  from fewer. With 50,000 images its networks are those of `curves`, which are not trained again.
""",
    measure,
    table,
    figure,
)
