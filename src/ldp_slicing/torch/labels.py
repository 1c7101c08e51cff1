"""Labels: data that is passed on unprotected beside the releases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ldp_slicing.errors import ReleaseError

_NUMBER_DTYPES = {int: np.int64, float: np.float64, bool: np.bool_}


def copy_label(label: Any) -> Any:  # noqa: ANN401
    """Return a deep copy whose tensors and arrays have their own memory.

    A label that is a tensor view of its source would keep the source alive, and carry it along to workers and files.
    """
    if isinstance(label, Tensor):
        return label.detach().clone()
    if isinstance(label, np.ndarray):
        return np.array(label)
    if isinstance(label, dict):
        return {copy_label(key): copy_label(value) for key, value in label.items()}
    if isinstance(label, list):
        return [copy_label(part) for part in label]
    if isinstance(label, tuple):
        parts = [copy_label(part) for part in label]
        return type(label)(*parts) if hasattr(label, "_fields") else tuple(parts)
    if isinstance(label, set | frozenset):
        return (set if isinstance(label, set) else frozenset)(map(copy_label, label))
    return label


def storage_kind(label: Any) -> str:  # noqa: ANN401
    """Return how a label is stored on disk, such as "int" or "tensor torch.float32 (4,)".

    Nothing is pickled, so only numbers and tensors or arrays of numbers can be stored. Others raise ReleaseError.
    """
    if type(label) in _NUMBER_DTYPES and not (type(label) is int and label.bit_length() > 63):
        return type(label).__name__
    if isinstance(label, np.generic | np.ndarray) and label.dtype.kind in "biuf":
        return f"array {label.dtype} {label.shape}"
    if type(label) is Tensor and label.dtype != torch.bfloat16 and not label.is_complex():
        return f"tensor {label.dtype} {tuple(label.shape)}"
    raise ReleaseError(
        "labels in a store must be numbers, or tensors or arrays of numbers; "
        f"got {type(label).__name__}: use store=None"
    )


def to_column(labels: Sequence[Any]) -> NDArray[Any]:
    """Return labels of one kind as one array [N, ...]."""
    if isinstance(labels[0], Tensor):
        return torch.stack([*labels]).cpu().numpy()
    return np.array(labels, _NUMBER_DTYPES.get(type(labels[0])))


def from_column(column: NDArray[Any], kind: str) -> list[Any]:
    """Return the labels that ``to_column`` stored, each with its own type. kind: see ``storage_kind``."""
    if kind.startswith("tensor"):
        return list(torch.from_numpy(column))
    return list(column) if kind.startswith("array") else column.tolist()
