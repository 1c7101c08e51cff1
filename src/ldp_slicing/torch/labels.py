"""Labels: what is passed on unprotected beside the releases, in memory of its own, and on disk without pickle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ldp_slicing.errors import ReleaseError

SCALARS = {int: np.int64, float: np.float64, bool: np.bool_}


def own(label: Any) -> Any:  # noqa: ANN401
    """A label of its own memory: a view would keep alive, send to workers and write to files whatever it is a view of."""
    if isinstance(label, Tensor):
        return label.detach().clone()
    if isinstance(label, np.ndarray):
        return np.array(label)
    if isinstance(label, dict):
        return {own(key): own(value) for key, value in label.items()}
    if isinstance(label, tuple | list):
        parts = [own(part) for part in label]
        return parts if isinstance(label, list) else type(label)(*parts) if hasattr(label, "_fields") else tuple(parts)
    if isinstance(label, set | frozenset):
        return (set if isinstance(label, set) else frozenset)(map(own, label))
    return label


def stored_kind(label: Any) -> str:  # noqa: ANN401
    """How a label lies on disk, such as "int" or "tensor torch.float32 (4,)". No pickle is written, so only numbers are taken."""
    if type(label) in SCALARS and not (type(label) is int and label.bit_length() > 63):
        return type(label).__name__
    if isinstance(label, np.generic | np.ndarray) and label.dtype.kind in "biuf":
        return f"array {label.dtype} {label.shape}"
    if type(label) is Tensor and label.dtype != torch.bfloat16 and not label.is_complex():
        return f"tensor {label.dtype} {tuple(label.shape)}"
    raise ReleaseError(
        f"a store on disk takes labels that are numbers, or tensors or arrays of numbers; got {type(label).__name__}: use store=None"
    )


def to_column(labels: Sequence[Any]) -> NDArray[Any]:
    """Labels of one kind as one array."""
    return (
        torch.stack([*labels]).cpu().numpy()
        if isinstance(labels[0], Tensor)
        else np.array(labels, SCALARS.get(type(labels[0])))
    )


def from_column(column: NDArray[Any], kind: str) -> list[Any]:
    """Each label as it was."""
    return (
        column.tolist() if " " not in kind else list(torch.from_numpy(column) if kind.startswith("tensor") else column)
    )
