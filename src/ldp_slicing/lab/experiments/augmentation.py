"""What augmentation and regularisation bring for processed releases, measured on held-out training images."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from ldp_slicing.lab.data.cifar import load_cifar
from ldp_slicing.lab.data.sets import ImageSet
from ldp_slicing.lab.experiment import Experiment, ExperimentContext, train_all, with_recipe
from ldp_slicing.lab.experiments.curves import HELD_OUT, OTHER, PUBLIC
from ldp_slicing.lab.experiments.tuning import validation_accuracy
from ldp_slicing.lab.learners.recipes import Recipe, recipe
from ldp_slicing.lab.rows import Mode, Row, select
from ldp_slicing.lab.tables import markdown, percent
from ldp_slicing.plan import Plan

EPSILON = 12.0
RECIPES: dict[Mode, str] = {PUBLIC: "cifar-reconstructed", "decoded": "cifar-decoded"}
NOTHING = {"mix": 0.0, "erase": 0, "average": 0.0, "smoothing": 0.0, "weight_decay": 5e-4}  # whatever was chosen since
ADDED: dict[str, tuple[str, dict[str, Any]]] = {  # what is added to the recipe
    "nothing": ("nothing", {}),
    "mix": ("up to half of another image is mixed in", {"mix": 0.5}),
    "erase": ("a square of 8 x 8 pixels is erased", {"erase": 8}),
    "average": ("averaged weights", {"average": 0.998}),
    "smoothing": ("smoothed labels", {"smoothing": 0.1}),
    "decay": ("four times the weight decay", {"weight_decay": 2e-3}),
}


def measure(context: ExperimentContext) -> Iterator[Row]:
    """First each addition by itself, then the two that helped most together."""
    rows = list(context.done)
    for additions in ([[name] for name in ADDED], None):
        wanted = [
            (row, how)
            for mode in RECIPES
            for row, how in _rows(mode, additions or _best_pair(rows, mode))
            if context.wants(row)
        ]
        sets = {name: load_cifar(name, context.data) for name in ("cifar10", OTHER["cifar10"])} if wanted else {}
        trials = [
            context.trial(row, sets["cifar10"], how, validation=HELD_OUT, public=_public(row, sets))
            for row, how in wanted
        ]
        for row in train_all(trials, context, validation_accuracy):
            rows.append(row)
            yield row


def _rows(mode: Mode, additions: Sequence[Sequence[str]]) -> Iterator[tuple[Row, Recipe]]:
    name = RECIPES[mode]
    for added in additions:
        changes = NOTHING | {key: value for one in added for key, value in ADDED[one][1].items()}
        how = replace(recipe(name), name=f"{name}-augmentation", **changes)
        how = replace(how, source=f"a candidate for {name}", deviations=(f"added: {_words(added)}",))
        row = Row("augmentation", "cifar10", plans=(Plan.paper(EPSILON),), prune="haar", release="once")
        yield with_recipe(replace(row, mode=mode, options={"added": "+".join(added)}), how), how


def _best_pair(rows: Sequence[Row], mode: Mode) -> list[list[str]]:
    """The two additions with the highest validation accuracy, if all were measured and both beat adding nothing."""
    found = {name: _accuracy(rows, mode, name) for name in ADDED}
    measured = {name: value for name, value in found.items() if value is not None}
    if len(measured) < len(ADDED):
        return []
    best = sorted((name for name in measured if measured[name] > measured["nothing"]), key=lambda name: -measured[name])
    return [sorted(best[:2], key=[*ADDED].index)] if len(best) > 1 else []


def _accuracy(rows: Sequence[Row], mode: Mode, added: str) -> float | None:
    found = select(rows, mode=mode, added=added)
    return float(found[-1].metrics["validation_accuracy"]) if found else None


def _words(added: Sequence[str]) -> str:
    return " and ".join(ADDED[name][0] for name in added)


def _public(row: Row, sets: dict[str, ImageSet]) -> ImageSet | None:
    return sets[OTHER[row.dataset]] if row.mode == PUBLIC else None


def table(rows: Sequence[Row]) -> str:
    modes: list[Mode] = [mode for mode in RECIPES if select(rows, mode=mode)]
    pairs = dict.fromkeys(str(row.options["added"]) for row in select(rows) if "+" in str(row.options["added"]))
    lines = [
        [_words(added.split("+")), *(percent(_accuracy(rows, mode, added)) for mode in modes)]
        for added in (*ADDED, *pairs)
    ]
    heads = [f"{mode}: validation accuracy, %" for mode in modes]
    return markdown(["added to the recipe", *heads], lines)


EXPERIMENT = Experiment(
    "augmentation",
    """
What augmentation and regularisation add to the recipes `cifar-reconstructed` and `cifar-decoded`: ResNet-56 on
CIFAR-10 at eps 12, pruned, one release of each image, one run each. Random crops and flips are part of the recipes.
The two additions that helped most are also tried together. Accuracy is measured on 5,000 held-out training images; the
test set is not used. An accuracy of 70 % on 5,000 images has a standard error of 0.6 points. The columns are the modes
of `curves`.
""",
    measure,
    table,
)
