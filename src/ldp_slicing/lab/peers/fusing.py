"""Fused kernels on a GPU, where they were asked for: one pass over memory instead of one for each operation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import TypeVar

import torch
from torch import Tensor

Function = TypeVar("Function", bound=Callable[..., Tensor])

_asked_for: ContextVar[bool] = ContextVar("fused kernels", default=False)


@contextmanager
def fused_kernels(wanted: bool = True) -> Iterator[None]:
    """Compile the functions of ``fused`` in this block. Results differ by rounding alone."""
    before = _asked_for.set(wanted)
    try:
        yield
    finally:
        _asked_for.reset(before)


def fused(function: Function, *, any_size: bool = True) -> Function:
    """The function, compiled at its first call in ``fused_kernels``, and as it is outside of it.

    any_size: whether one kernel serves tensors of all sizes. If not, each size is compiled by itself.
    """
    compiled = torch.compile(function, dynamic=any_size)

    @wraps(function)
    def run(*arguments: Tensor) -> Tensor:
        found: Tensor = (compiled if _asked_for.get() else function)(*arguments)
        return found

    return run  # type: ignore[return-value]
