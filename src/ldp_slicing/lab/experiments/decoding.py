"""What decoding is worth before anything is learnt, and to a learner too simple to find it out by itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional

from ldp_slicing.lab.attacks.contact_sheet import contact_sheet, portrait, view_of
from ldp_slicing.lab.data.cifar import load_cifar
from ldp_slicing.lab.data.sets import Split
from ldp_slicing.lab.experiment import BUDGETS, Experiment, Findings, Row, Setting, markdown
from ldp_slicing.lab.experiments.curves import THICK
from ldp_slicing.lab.learners.scattering import scatter
from ldp_slicing.plan import Plan
from ldp_slicing.slicer import Slicer
from ldp_slicing.torch.decode import Decoder
from ldp_slicing.torch.simulate import apply_view

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TRAIN, TEST = 10_000, 5_000
STRENGTHS = (1e1, 1e2, 1e3, 1e4, 1e5, 1e6)  # of the ridge; the last fifth of the training images chooses
WAYS = {"as it comes": "raw", "decoded": "decoded"}
PLANS = {f"paper-eps{eps:g}": Plan.paper(eps) for eps in BUDGETS}
PLANS |= {f"thick-eps{eps:g}": Plan.sliced(eps, slices) for eps, slices in THICK.items()}

SHEET, SHOWN = (
    "decoding-portrait.png",
    (*(Plan.paper(eps) for eps in (2.4, 5.2, 12.0, 20.0, 58.0)), Plan.sliced(3.5, THICK[3.5])),
)


def measure(setting: Setting) -> Iterator[Row]:
    if setting.wants("portrait") and not setting.has("portrait"):
        setting.pictures.mkdir(parents=True, exist_ok=True)
        _portraits(setting.device).save(setting.pictures / SHEET)
        yield {"run": "portrait", "seed": 0, "finished": True, "pictures": [SHEET]}
    images = load_cifar("cifar10", setting.data)
    train, test = (
        Split(split.images[:count], split.labels[:count])
        for split, count in ((images.train, TRAIN), (images.test, TEST))
    )
    labels, answers = (torch.from_numpy(split.labels).to(setting.device) for split in (train, test))
    for run, plan in PLANS.items():
        if not setting.wants(run) or setting.has(run):
            continue
        if setting.limits.over:
            setting.left.append(run)
            continue
        released = [_tensor(np.asarray(Slicer(plan)(split.images)), setting.device) for split in (train, test)]
        decoder = Decoder.fit(released[0], plan)
        pictures = {
            "raw": [
                apply_view(some, None, colour=True) for some in released
            ],  # Y, Cb and Cr of both, so that nothing but decoding differs
            "decoded": [torch.cat([decoder(part) for part in torch.split(some, 1000)]) for some in released],
        }
        view = apply_view(_tensor(test.images, setting.device), "haar", colour=True)
        row: Row = {
            "run": run,
            "seed": 0,
            "finished": True,
            "epsilon_requested": plan.epsilon,
            "training_images": len(labels),
        }
        for way, (some, others) in pictures.items():
            row[f"explained_{way}"] = [explained(*pair) for pair in zip(others.unbind(1), view.unbind(1), strict=True)]
            row[f"accuracy_{way}"] = _linear(_features(some), labels, _features(others), answers)
        setting.say(
            f"{run}: {100 * row['accuracy_raw']:.2f} % as it comes, {100 * row['accuracy_decoded']:.2f} % decoded"
        )
        yield row


def _portraits(device: torch.device) -> Image.Image:
    """The source and its view; releases of it, and their luma as it is to be expected."""
    source = portrait().to(device)
    columns = {"source and view": torch.cat([source.float(), view_of(source, "haar")])}
    for plan in SHOWN:
        released = _tensor(np.asarray(Slicer(plan)(source.permute(0, 2, 3, 1).cpu().numpy())), device)
        luma = Decoder.fit(released, plan)(released)[:, :1].expand(-1, 3, -1, -1)
        columns[f"eps {plan.epsilon:g}{'' if len(plan.slices) > 1 else ', few bits'}"] = torch.cat([released, luma])
    return contact_sheet(columns)


def _tensor(images: np.ndarray, device: torch.device) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(images.transpose(0, 3, 1, 2))).to(device)


def explained(found: Tensor, wanted: Tensor) -> float:
    """The share of the variance of what is wanted that a line through what was found explains; 0 where that does not vary."""
    x, y = (values.flatten().double() - values.double().mean() for values in (found, wanted))
    return float((x * y).mean() ** 2 / (x.square().mean() * y.square().mean()).clamp_min(1e-12))


def _features(images: Tensor) -> Tensor:
    """[N, 3, H, W] of 0..255 to float32 [N, F]: scattering coefficients, means over 2 x 2 of them."""
    parts = []
    for part in torch.split(images.float() / 255, 500):
        found = scatter(part.flatten(0, 1))
        parts.append(functional.avg_pool2d(found, 2).reshape(len(part), -1))
    return torch.cat(parts)


def _linear(features: Tensor, labels: Tensor, tests: Tensor, answers: Tensor) -> float:
    """The accuracy of ridge regression to the classes, on features of equal variance."""
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
    def shares(row: Row, way: str) -> str:
        return " / ".join(f"{share:.2f}" for share in row[f"explained_{way}"])

    lines = []
    for run, plan in PLANS.items():
        for row in (row for row in rows if row["run"] == run):
            words = f"{plan.epsilon:g}" + (f", {THICK[plan.epsilon]} as one" if run.startswith("thick") else "")
            lines.append(
                [
                    words,
                    *(shares(row, way) for way in WAYS.values()),
                    *(f"{100 * row[f'accuracy_{way}']:.2f}" for way in WAYS.values()),
                ]
            )
    heads = [f"Y / Cb / Cr explained, {words}" for words in WAYS] + [f"accuracy, {words}, %" for words in WAYS]
    return markdown(["eps of a released pixel", *heads], lines)


def figure(findings: Findings) -> Figure:
    from ldp_slicing.lab.figures import COLOURS, legend, line, panels

    drawn, (left, right) = panels(2)
    rows = {eps: row for eps in BUDGETS for row in findings["decoding"] if row["run"] == f"paper-eps{eps:g}"}
    for (words, way), colour in zip(WAYS.items(), (COLOURS[3], COLOURS[0]), strict=True):
        line(left, {eps: [row[f"explained_{way}"][0]] for eps, row in rows.items()}, words, colour)
        line(right, {eps: [row[f"accuracy_{way}"]] for eps, row in rows.items()}, words, colour)
    few = {eps: row for eps in THICK for row in findings["decoding"] if row["run"] == f"thick-eps{eps:g}"}
    shares = {
        left: [row["explained_decoded"][0] for row in few.values()],
        right: [row["accuracy_decoded"] for row in few.values()],
    }
    for axis, found in shares.items():
        axis.plot(list(few), [100 * share for share in found], "D", color=COLOURS[2], label="few bits as one, decoded")
    left.set(title="What a pixel says of the pruned luma", ylabel="variance explained, %", ylim=(0, 100))
    right.set(title="A linear classifier on scattering features", ylabel="accuracy, CIFAR-10, %", ylim=(0, 60))
    for axis in (left, right):
        axis.set(xlabel="eps of one released pixel, per release (local)")
        legend(axis)
    return drawn


EXPERIMENT = Experiment(
    "What decoding is worth: how much of the variance of the pruned view a released value explains, as it comes and decoded "
    "(`ldp_slicing.torch.Decoder`), in 5,000 test images of CIFAR-10; and what a linear classifier gets from scattering features of Y, "
    "Cb and Cr of 10,000 training images, to which the decoder is fitted, too. Each image is released once. Below: a portrait and its "
    "pruned view; releases of it, and their luma as it is to be expected, from that one release and the plan alone",
    measure,
    table,
    figure,
)
