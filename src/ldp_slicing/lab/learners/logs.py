"""The log of a run: a CSV file, or TensorBoard's event files."""

from __future__ import annotations

import csv
from dataclasses import asdict, fields
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from ldp_slicing.errors import LdpSlicingError
from ldp_slicing.lab.learners.run import Epoch

LogFormat = Literal["csv", "tensorboard"]


def write_log(history: list[Epoch], folder: Path, kind: LogFormat) -> Path:
    """Write the whole history to ``log.csv`` or ``tensorboard/``.

    It is written again after every epoch, so that a run that was stopped and resumed has one log without gaps.
    """
    return _csv(history, folder / "log.csv") if kind == "csv" else _tensorboard(history, folder / "tensorboard")


def check_log(kind: LogFormat) -> None:
    """Refuse a log format whose library is not installed, before a run has begun."""
    if kind == "tensorboard" and find_spec("tensorboard") is None:
        raise LdpSlicingError("--log tensorboard needs tensorboard: pip install tensorboard, or use --log csv")


def _csv(history: list[Epoch], path: Path) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Epoch)])
        writer.writeheader()
        writer.writerows(asdict(epoch) for epoch in history)
    return path


def _tensorboard(history: list[Epoch], folder: Path) -> Path:
    from torch.utils.tensorboard import SummaryWriter

    for old in folder.glob("events.out.tfevents.*"):
        old.unlink()
    with SummaryWriter(str(folder)) as writer:
        for epoch in history:
            for name, value in asdict(epoch).items():
                if name != "epoch" and value is not None:
                    writer.add_scalar(name, value, epoch.epoch)
    return folder
