"""What a task makes of its releases before training: decoded or rebuilt images."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from ldp_slicing.files import atomic_path
from ldp_slicing.lab.learners.releases import task_file
from ldp_slicing.lab.learners.task import TrainingTask
from ldp_slicing.torch.decode import Decoder
from ldp_slicing.torch.rebuild import Rebuilder


def fit_decoder(task: TrainingTask, released: Tensor, folder: Path | None = None) -> Decoder | Rebuilder | None:
    """Fit what the task's mode asks for to its training releases, uint8 [N, C, H, W]; None for the mode "raw".

    A rebuilder is kept in ``folder``, so that a task that is resumed learns from the same images.
    """
    if task.mode == "raw" or task.plan is None:
        return None
    if task.mode == "decoded":
        return Decoder.fit(released, task.plan, prune=task.prune)
    steps, path = task.recipe.rebuild_steps, None
    if folder is not None:
        path = task_file(task, folder, "rebuilder.pt", task.release, task.mode, task.start_digest, steps)
        if path.is_file():
            return Rebuilder.from_state_dict(torch.load(path, weights_only=True), released.device)
    public = None if task.public is None else torch.from_numpy(task.public.train.images).permute(0, 3, 1, 2)
    rebuilder = Rebuilder.fit(released, task.plan, prune=task.prune, public=public, steps=steps, seed=task.seed)
    if path is not None:
        with atomic_path(path) as temporary:
            torch.save(rebuilder.state_dict(), temporary)
    return rebuilder
