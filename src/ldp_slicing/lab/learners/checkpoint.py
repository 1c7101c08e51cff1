"""Checkpoints: the state of a learner in a file, complete or not there at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from ldp_slicing.errors import LdpSlicingError
from ldp_slicing.files import atomic_path
from ldp_slicing.lab.interfaces import Learner


def save_state(state: dict[str, Any], path: Path) -> None:
    """Write the state of a network or learner. Raise OSError on a full disk, which torch would hide, given a path."""
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        torch.save(state, file)


def save_checkpoint(learner: Learner, path: Path) -> None:
    save_state(learner.state_dict(), path)


def load_checkpoint(learner: Learner, path: Path) -> None:
    state = torch.load(path, map_location=learner.device, weights_only=True)
    try:
        learner.load_state_dict(state)
    except LdpSlicingError as error:
        raise LdpSlicingError(f"{path} cannot be continued: {error}") from None
