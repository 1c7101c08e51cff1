"""How close reconstructed images are to the view, by the number of training steps of the reconstructor."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from ldp_slicing.lab.data.cifar import load_cifar
from ldp_slicing.lab.data.sets import hold_out
from ldp_slicing.lab.experiment import Experiment, ExperimentContext
from ldp_slicing.lab.experiments.curves import HELD_OUT, OTHER, PUBLIC, RECONSTRUCTED
from ldp_slicing.lab.rows import Row, select
from ldp_slicing.lab.tables import markdown
from ldp_slicing.plan import Plan
from ldp_slicing.slicer import Slicer
from ldp_slicing.torch.decode import Decoder
from ldp_slicing.torch.reconstruct import Reconstructor
from ldp_slicing.torch.simulate import apply_view

BUDGETS = (20.0, 12.0, 5.2)
STEPS = (1000, 3000, 9000)


def measure(context: ExperimentContext) -> Iterator[Row]:
    """Budget by budget: the same releases, decoded and reconstructed."""
    rows = {eps: _rows(eps) for eps in BUDGETS}
    pending = {eps: [row for row in some if context.pending(row)] for eps, some in rows.items()}
    if not any(pending.values()):
        return
    train, held_out = hold_out(load_cifar("cifar10", context.data).train, HELD_OUT, 0)
    public: Tensor | None = None
    if any(row.mode == PUBLIC for some in pending.values() for row in some):
        public = _tensor(load_cifar(OTHER["cifar10"], context.data).train.images, context.device)
    for eps, some in pending.items():
        if not some:
            continue
        plan = Plan.paper(eps)
        released, tests = (_tensor(np.asarray(Slicer(plan)(part.images)), context.device) for part in (train, held_out))
        view = apply_view(_tensor(held_out.images, context.device), "haar", colour=True)
        for row in some:
            if context.limits.reached:
                context.postponed.append(row)
                continue
            began = time.monotonic()
            expected = _expect(row, released, tests, public)
            pairs = zip(expected.unbind(1), view.unbind(1), strict=True)
            errors = [float((a - b).square().mean().sqrt()) for a, b in pairs]
            context.log(f"{row.label}: rmse of Y, Cb, Cr {', '.join(f'{error:.2f}' for error in errors)}")
            yield replace(row, metrics={"rmse": errors}, seconds=time.monotonic() - began)


def _rows(eps: float) -> list[Row]:
    base = Row("reconstructing", "cifar10", plans=(Plan.paper(eps),), prune="haar", release="once", mode="decoded")
    reconstructed = [replace(base, mode=mode, options={"steps": steps}) for steps in STEPS for mode in RECONSTRUCTED]
    return [base, *reconstructed]


def _expect(row: Row, released: Tensor, tests: Tensor, public: Tensor | None) -> Tensor:
    """float32 [N, 3, H, W]: the posterior means of the test releases by the row's method."""
    (plan,) = row.plans
    if row.mode == "decoded":
        decoder = Decoder.fit(released, plan)
        return torch.cat([decoder.expect(part) for part in torch.split(tests, 1000)])
    images = public if row.mode == PUBLIC else None
    return Reconstructor.fit(released, plan, public=images, steps=int(row.options["steps"])).expect(tests)


def _tensor(images: np.ndarray, device: torch.device) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(images.transpose(0, 3, 1, 2))).to(device)


def table(rows: Sequence[Row]) -> str:
    lines = []
    for row in (row for eps in BUDGETS for row in select(rows, plan=Plan.paper(eps))):
        errors, steps = row.metrics["rmse"], row.options.get("steps", "-")
        cells = [f"{error:.2f}" for error in errors]
        lines.append([f"{row.plans[0].epsilon:g}", row.mode, str(steps), *cells, f"{row.seconds or 0:.0f}"])
    heads = ["eps per released pixel", "releases", "steps", "RMSE of Y", "RMSE of Cb", "RMSE of Cr", "seconds"]
    return markdown(heads, lines)


EXPERIMENT = Experiment(
    "reconstructing",
    """
Root mean squared error between the view of 5,000 held-out training images of CIFAR-10 (values of 0 to 255, pruned) and
the expected values that `Decoder` or `Reconstructor` computes from one release of each. The reconstructor is trained
for the given number of steps, each on 256 images: on the releases of the other 45,000 training images, or
(`reconstructed-public`) on simulated releases of CIFAR-100. The test set is not used.
""",
    measure,
    table,
)
