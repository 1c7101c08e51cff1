"""How a task processes its releases before training: it decodes them, or reconstructs images from them."""

from __future__ import annotations

from collections.abc import Callable
from math import nan
from pathlib import Path

import torch
from torch import Tensor

from ldp_slicing.lab.learners.checkpoint import save_state
from ldp_slicing.lab.learners.releases import described_file, task_file
from ldp_slicing.lab.learners.task import TrainingTask
from ldp_slicing.plan import Plan
from ldp_slicing.torch.decode import Decoder
from ldp_slicing.torch.reconstruct import Reconstructor, Report
from ldp_slicing.torch.simulate import simulate

Decode = Callable[[Tensor], Tensor]


def fit_decoder(
    task: TrainingTask, released: Tensor, folder: Path | None = None, report: Report | None = None
) -> Decode | None:
    """Return the processing of releases for the task's mode, fitted to its training releases; None for the mode "raw".

    It maps uint8 [N, C, H, W] to the same shape, or to twice the channels if the task takes reconstructed and decoded
    ones. A reconstructor is kept in ``folder``, so that a task that is resumed is trained on the same images. One that
    is trained on public images serves all tasks with these images and this plan, whatever their seeds. report: called
    as by ``Reconstructor.fit``, and before the first step.
    """
    if task.mode == "raw" or task.plan is None:
        return None
    if task.mode == "decoded":
        return Decoder.fit(released, task.plan, prune=task.prune)
    reconstructor = _fit_reconstructor(task, task.plan, released, folder, report)
    if not task.beside_decoded:
        return reconstructor
    return lambda images: torch.cat((reconstructor(images), reconstructor.decoder(images)), 1)


def _fit_reconstructor(
    task: TrainingTask, plan: Plan, released: Tensor, folder: Path | None, report: Report | None
) -> Reconstructor:
    steps, suffix, path = task.recipe.reconstructor_steps, "reconstructor.pt", None
    report = report or (lambda done, loss: None)
    if task.public is None:
        if folder is not None:
            path = task_file(task, folder, suffix, task.release, task.mode, steps)
        return _kept(
            path,
            released,
            lambda: Reconstructor.fit(released, plan, prune=task.prune, steps=steps, seed=task.seed, report=report),
            report,
        )
    if folder is not None:
        path = described_file(folder, task.public.name, suffix, plan, task.prune, task.public.digest, steps)
    public = torch.from_numpy(task.public.train.images).permute(0, 3, 1, 2).to(released.device)

    def train() -> Reconstructor:
        simulated = simulate(public, plan, torch.Generator(public.device).manual_seed(0), prune=task.prune)
        return Reconstructor.fit(simulated, plan, prune=task.prune, public=public, steps=steps, report=report)

    return _kept(path, released, train, report).fitted_to(released)


def _kept(path: Path | None, released: Tensor, train: Callable[[], Reconstructor], report: Report) -> Reconstructor:
    """The reconstructor in the file ``path``; without one, a new one, which is then stored there."""
    if path is not None and path.is_file():
        return Reconstructor.from_state_dict(torch.load(path, map_location="cpu", weights_only=True), released.device)
    report(0, nan)
    reconstructor = train()
    if path is not None:
        save_state(reconstructor.state_dict(), path)
    return reconstructor
