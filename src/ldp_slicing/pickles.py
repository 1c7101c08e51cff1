"""Reading data sets that were published as pickles, without running code from them.

A pickle is a program: it names functions and calls them. Here it can only name the few that make arrays, and each
of those is replaced by one of this module, which checks what it is given. So no call can claim more memory than the
file has bytes for, and every element of an array comes from the file.
"""

from __future__ import annotations

import io
import math
import pickle
import pickletools
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from ldp_slicing.errors import DataError

_PLAIN_TYPE = re.compile(r"[<>|=]?[?biufSU]\d*")
_MOST_OPERATIONS = 1 << 24  # CIFAR's files have 200,000; one byte can make an object of 60
_MEMO_WRITES = ("PUT", "BINPUT", "LONG_BINPUT")


class _PickledType:
    """A dtype of a pickle: numbers, truth values or fixed-size text, with the byte order that comes as its state."""

    def __init__(self, code: str | bytes, *_flags: object) -> None:
        text = _as_text(code)
        if _PLAIN_TYPE.fullmatch(text) is None:
            raise DataError(
                f"the pickle has an array of type {text!r}, which a data set does not need; it was not read"
            )
        self.dtype: np.dtype[Any] = np.dtype(text)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        if _as_text(state[1]) == ">":
            self.dtype = self.dtype.newbyteorder(">")


class _PickledArray(np.ndarray[Any, Any]):
    """An empty array that becomes the array of its state, whose data must be as long as its shape and type say."""

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _version, shape, kind, is_fortran, data = state
        _check_length(data, kind, shape)
        super().__setstate__((1, shape, kind.dtype, bool(is_fortran), data))  # type: ignore[arg-type]


def _as_text(code: str | bytes) -> str:
    """Return text that a pickle of Python 2 holds as bytes."""
    return code.decode("latin1") if isinstance(code, bytes) else str(code)


def _check_length(data: bytes | bytearray, kind: _PickledType, shape: tuple[int, ...]) -> None:
    stated = math.prod(shape) * kind.dtype.itemsize
    if not isinstance(data, bytes | bytearray) or min(shape, default=0) < 0 or not stated == len(data):
        raise DataError(f"the pickle has an array of shape {shape} without as much data; it was not read")


def _reconstruct(_array_type: object, _shape: object, _code: object) -> _PickledArray:
    """Stand in for NumPy's function, which would return uninitialised memory of any shape."""
    return _PickledArray((0,), np.uint8)


def _frombuffer(data: bytes | bytearray, kind: _PickledType, shape: tuple[int, ...], order: str) -> Any:  # noqa: ANN401
    _check_length(data, kind, shape)
    return np.frombuffer(data, kind.dtype).reshape(shape, order="F" if order == "F" else "C")


def _scalar(kind: _PickledType, data: bytes) -> Any:  # noqa: ANN401
    _check_length(data, kind, ())
    return np.frombuffer(data, kind.dtype)[0]


def _encode(text: str, encoding: str) -> bytes:
    """Stand in for ``_codecs.encode``, by which Python 3 stores bytes in old protocols. Other codecs enlarge data."""
    if encoding != "latin1":
        raise DataError(f"the pickle uses the codec {encoding!r}, which a data set does not need; it was not read")
    return text.encode(encoding)


class _StandIn:
    """A function that a pickle may call. It has no state that a pickle could set, and later files would find."""

    __slots__ = ("_function",)

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __call__(self, *arguments: object) -> Any:  # noqa: ANN401
        return self._function(*arguments)

    def __setstate__(self, state: object) -> None:
        raise DataError("the pickle changes a function, which a data set does not need; it was not read")


_STAND_INS: dict[tuple[str, str], Callable[..., Any] | str] = {
    ("numpy", "ndarray"): "an argument of _reconstruct, which cannot be called",
    ("numpy", "dtype"): _PickledType,
    **{(f"numpy.{core}.multiarray", "_reconstruct"): _StandIn(_reconstruct) for core in ("core", "_core")},
    **{(f"numpy.{core}.multiarray", "scalar"): _StandIn(_scalar) for core in ("core", "_core")},
    **{(f"numpy.{core}.numeric", "_frombuffer"): _StandIn(_frombuffer) for core in ("core", "_core")},
    ("_codecs", "encode"): _StandIn(_encode),
}


class _DataOnlyUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401
        if (module, name) not in _STAND_INS:
            raise DataError(f"the pickle calls {module}.{name}, which a data set does not need; it was not read")
        return _STAND_INS[module, name]


def load_data_only(data: bytes) -> Any:  # noqa: ANN401
    """Return what the pickle holds: arrays, plain values and containers. No code from the file is run.

    Raises DataError if the pickle calls anything else, and many other types if it is damaged.
    """
    for number, (operation, argument, _) in enumerate(pickletools.genops(data)):
        if number >= _MOST_OPERATIONS:
            raise DataError(f"the pickle has more than {_MOST_OPERATIONS:,} operations; it was not read")
        if operation.name in _MEMO_WRITES and argument is not None and argument > number:
            raise DataError("the pickle stores a value under a number that is too large; it was not read")
    return _DataOnlyUnpickler(io.BytesIO(data), encoding="bytes").load()


def unpickle_data(data: bytes) -> dict[str, Any]:
    """Return a pickled dict of arrays, lists and strings, with text keys. No code from the file is run."""
    content = load_data_only(data)
    return {key.decode() if isinstance(key, bytes) else str(key): value for key, value in content.items()}
