"""What decoding gains before anything is learnt, and for a linear learner, which cannot learn to decode by itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional

from ldp_slicing.lab.attacks.contact_sheet import contact_sheet, portrait, view_of
from ldp_slicing.lab.data.cifar import load_cifar
from ldp_slicing.lab.data.sets import Split
from ldp_slicing.lab.experiment import Experiment, ExperimentContext, RowsByExperiment
from ldp_slicing.lab.experiments.curves import THICK
from ldp_slicing.lab.learners.scattering import scatter
from ldp_slicing.lab.rows import Mode, Row, plan_name, select
from ldp_slicing.lab.tables import markdown
from ldp_slicing.plan import BUDGETS, Plan
from ldp_slicing.slicer import Slicer
from ldp_slicing.torch.decode import Decoder
from ldp_slicing.torch.simulate import apply_view

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TRAIN, TEST = 10_000, 5_000
STRENGTHS = (1e1, 1e2, 1e3, 1e4, 1e5, 1e6)  # of the ridge penalty; the last fifth of the training images chooses
MODES: tuple[Mode, ...] = ("raw", "decoded")
PLANS = (*(Plan.paper(eps) for eps in BUDGETS), *(Plan.sliced(eps, slices) for eps, slices in THICK.items()))
SHEET = "decoding-portrait.png"
SHOWN = (*(Plan.paper(eps) for eps in (2.4, 5.2, 12.0, 20.0, 58.0)), Plan.sliced(3.5, THICK[3.5]))


def measure(context: ExperimentContext) -> Iterator[Row]:
    sheet = Row("decoding", method="portrait")
    if context.pending(sheet):
        context.results.mkdir(parents=True, exist_ok=True)
        _portraits(context.device).save(context.results / SHEET)
        yield replace(sheet, files=(SHEET,))
    by_plan = {
        plan: [
            Row("decoding", "cifar10", "linear", plans=(plan,), prune="haar", release="once", mode=mode)
            for mode in MODES
        ]
        for plan in PLANS
    }
    pending = {plan: rows for plan, rows in by_plan.items() if {context.pending(row) for row in rows} >= {True}}
    if not pending:
        return
    images = load_cifar("cifar10", context.data)
    train, test = (
        Split(split.images[:count], split.labels[:count])
        for split, count in ((images.train, TRAIN), (images.test, TEST))
    )
    for plan, rows in pending.items():
        if context.limits.reached:
            context.postponed.extend(rows)
        else:
            yield from _compare(plan, rows, train, test, context)


def _compare(plan: Plan, rows: Sequence[Row], train: Split, test: Split, context: ExperimentContext) -> Iterator[Row]:
    """The rows of one plan: the same releases, raw and decoded. Both as Y, Cb and Cr, so that only decoding differs."""
    labels, answers = (torch.from_numpy(split.labels).to(context.device) for split in (train, test))
    released = [_tensor(np.asarray(Slicer(plan)(split.images)), context.device) for split in (train, test)]
    decoder = Decoder.fit(released[0], plan)
    inputs: dict[str, list[Tensor]] = {
        "raw": [apply_view(some, None, colour=True) for some in released],
        "decoded": [torch.cat([decoder(part) for part in torch.split(some, 1000)]) for some in released],
    }
    view = apply_view(_tensor(test.images, context.device), "haar", colour=True)
    for row in rows:
        learnt, tested = inputs[row.mode]
        channels = zip(tested.unbind(1), view.unbind(1), strict=True)
        metrics = {
            "training_images": len(labels),
            "explained_variance": [explained(*pair) for pair in channels],
            "test_accuracy": _linear(_features(learnt), labels, _features(tested), answers),
        }
        context.log(f"{row.label}: test accuracy {100 * float(metrics['test_accuracy']):.2f} %")  # type: ignore[arg-type]
        yield replace(row, metrics=metrics)


def _portraits(device: torch.device) -> Image.Image:
    """The source and its view; releases of it, and their decoded luma."""
    source = portrait().to(device)
    columns = {"source,\nview": torch.cat([source.float(), view_of(source, "haar")])}
    for plan in SHOWN:
        released = _tensor(np.asarray(Slicer(plan)(source.permute(0, 2, 3, 1).cpu().numpy())), device)
        luma = Decoder.fit(released, plan)(released)[:, :1].expand(-1, 3, -1, -1)
        thick = "" if len(plan.slices) > 1 else f",\n{plan_name(plan)}"
        columns[f"eps {plan.epsilon:g}{thick}"] = torch.cat([released, luma])
    return contact_sheet(columns)


def _tensor(images: np.ndarray, device: torch.device) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(images.transpose(0, 3, 1, 2))).to(device)


def explained(found: Tensor, wanted: Tensor) -> float:
    """The squared correlation of two tensors; 0 where the first does not vary."""
    x, y = (values.flatten().double() - values.double().mean() for values in (found, wanted))
    return float((x * y).mean() ** 2 / (x.square().mean() * y.square().mean()).clamp_min(1e-12))


def _features(images: Tensor) -> Tensor:
    """[N, 3, H, W] of 0..255 to float32 [N, F]: scattering coefficients, averaged over 2 x 2."""
    parts = []
    for part in torch.split(images.float() / 255, 500):
        found = scatter(part.flatten(0, 1))
        parts.append(functional.avg_pool2d(found, 2).reshape(len(part), -1))
    return torch.cat(parts)


def _linear(features: Tensor, labels: Tensor, tests: Tensor, answers: Tensor) -> float:
    """The test accuracy of ridge regression to the classes, on features of unit variance."""
    mean, deviation = features.mean(0), features.std(0).clamp_min(1e-6)
    x, unseen = (features - mean) / deviation, (tests - mean) / deviation
    y = functional.one_hot(labels).float()
    y -= y.mean(0)

    def solve(count: int, strength: float) -> Tensor:
        square = x[:count].T @ x[:count] + strength * torch.eye(x.shape[1], device=x.device)
        weights: Tensor = torch.linalg.solve(square, x[:count].T @ y[:count])
        return weights

    most = len(x) * 4 // 5
    held = [((x[most:] @ solve(most, strength)).argmax(1) == labels[most:]).sum().item() for strength in STRENGTHS]
    weights = solve(len(x), STRENGTHS[int(np.argmax(held))])
    return float(((unseen @ weights).argmax(1) == answers).double().mean())


def table(rows: Sequence[Row]) -> str:
    lines = []
    for plan in PLANS:
        for row in [row for mode in MODES for row in select(rows, plan=plan, mode=mode)]:
            explained_by = [f"{share:.2f}" for share in row.metrics["explained_variance"]]
            accuracy = f"{100 * row.metrics['test_accuracy']:.2f}"
            lines.append([f"{plan.epsilon:g}", plan_name(plan), row.mode, *explained_by, accuracy])
    heads = ["eps per released pixel", "plan", "releases", *(f"variance explained, {c}" for c in ("Y", "Cb", "Cr"))]
    return markdown([*heads, "test accuracy, %"], lines)


def figure(rows: RowsByExperiment) -> Figure:
    from ldp_slicing.lab.figures import COLOURS, legend, line, panels

    drawn, (left, right) = panels(2)

    def values(plan: Plan, mode: Mode) -> tuple[list[float], list[float]]:
        found = select(rows["decoding"], plan=plan, mode=mode)
        luma = [row.metrics["explained_variance"][0] for row in found]
        return luma, [row.metrics["test_accuracy"] for row in found]

    for mode, colour in zip(MODES, (COLOURS[3], COLOURS[0]), strict=True):
        for axis, part in ((left, 0), (right, 1)):
            line(axis, {eps: values(Plan.paper(eps), mode)[part] for eps in BUDGETS}, f"paper's plan, {mode}", colour)
    for axis, part in ((left, 0), (right, 1)):
        thick = {eps: values(Plan.sliced(eps, slices), "decoded")[part] for eps, slices in THICK.items()}
        points = [(eps, 100 * found[0]) for eps, found in thick.items() if found]
        axis.plot([x for x, _ in points], [y for _, y in points], "D", color=COLOURS[2], label="thick slice, decoded")
    left.set(title="Variance of the pruned luma", ylabel="variance explained by a released pixel, %", ylim=(0, 100))
    right.set(title="Linear classifier on scattering features", ylabel="test accuracy, CIFAR-10, %", ylim=(0, 60))
    for axis in (left, right):
        axis.set(xlabel="eps per released pixel")
        legend(axis)
    return drawn


EXPERIMENT = Experiment(
    "decoding",
    """
Two measures of what decoding (`ldp_slicing.torch.Decoder`) gains. The first is the share of the variance of the pruned
view that a raw or decoded pixel explains, on 5,000 test images of CIFAR-10. The second is the test accuracy of a linear
classifier on scattering features. The classifier and the decoder are fitted to the same 10,000 training images. Each
image is released once.

The contact sheet shows a portrait and its pruned view, releases of the portrait, and the decoded luma of each release,
computed from that one release and the plan.
""",
    measure,
    table,
    figure,
)
