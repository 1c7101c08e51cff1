"""Pickles: what is read, and what hostile ones can make the reader do."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ldp_slicing.errors import DataError
from ldp_slicing.pickles import load_data_only, unpickle_data
from tests.release.helpers import outputs, plant, release, spent

ARRAYS = [
    np.arange(24, dtype=np.uint8).reshape(2, 3, 4),
    np.asfortranarray(np.arange(12, dtype=np.int32).reshape(3, 4)),
    np.array([True, False]),
    np.array([1.5, -2.0], ">f4"),
    np.array([b"ab", b"c"]),
    np.array(["ab", "c"]),
]


@pytest.mark.parametrize("protocol", range(2, 6))
@pytest.mark.parametrize("array", ARRAYS, ids=lambda array: array.dtype.str)
def test_arrays_are_read_back(array: Any, protocol: int) -> None:
    content = unpickle_data(pickle.dumps({b"data": array, "one": np.int64(7), "text": b"\xff"}, protocol))
    np.testing.assert_array_equal(content["data"], array)
    assert content["data"].dtype.newbyteorder("=") == array.dtype.newbyteorder("=")
    assert content["one"] == 7
    assert content["text"] == b"\xff"


class Calls:
    """An object whose pickle calls ``function(*arguments)`` and then sets a state, if there is one."""

    def __init__(self, function: Any, *arguments: Any, state: Any = None) -> None:
        self.parts = (function, arguments) if state is None else (function, arguments, state)

    def __reduce__(self) -> tuple[Any, ...]:
        return self.parts


_RECONSTRUCT = np.zeros(1).__reduce__()[0]
_FROMBUFFER = np.zeros(1).__reduce_ex__(5)[0]
_SCALAR = np.int64(1).__reduce__()[0]
U1 = np.dtype(np.uint8)


def without_data(shape: tuple[int, ...], kind: Any, data: Any) -> Calls:
    return Calls(_RECONSTRUCT, np.ndarray, (0,), b"b", state=(1, shape, kind, False, data))


HOSTILE = {
    "an array without data": Calls(np.ndarray, (200_000, 3072), "u1"),
    "an array that is only begun": Calls(_RECONSTRUCT, np.ndarray, (200_000, 3072), "u1"),
    "less data than the shape needs": without_data((200_000, 3072), U1, b"few"),
    "negative shape": without_data((-1, -3), U1, b"few"),
    "objects": without_data((200_000, 3072), np.dtype(object), [1]),
    "a buffer that is too short": Calls(_FROMBUFFER, b"few", U1, (200_000, 3072), "C"),
    "a number without data": Calls(_SCALAR, np.dtype("S1000000000"), b"1"),
    "a type with a shape": Calls(np.dtype, ("u1", (200_000, 3072))),
    "a codec that enlarges": Calls(__import__("_codecs").encode, b"a", "hex"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_no_array_is_larger_than_the_data_in_the_file(name: str, tmp_path: Path) -> None:
    data = pickle.dumps({"data": HOSTILE[name]})
    ran = release(plant(tmp_path / "in", {"data_batch_1": data}), tmp_path / "out")
    assert set(ran.problems) == {"data_batch_1"}
    assert outputs(tmp_path / "out") == {}
    assert spent().releases == 0


def test_large_numbers_of_stored_values_are_refused() -> None:
    """Python's unpickler makes a table as long as the largest number."""
    data = b"\x80\x02}r" + (2**32 - 1).to_bytes(4, "little") + b"."
    with pytest.raises(DataError, match="too large"):
        load_data_only(data)


def test_a_pickle_of_many_operations_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """One byte of a pickle can make an object of sixty."""
    monkeypatch.setattr("ldp_slicing.pickles._MOST_OPERATIONS", 1000)
    load_data_only(b"\x80\x02(" + b"]" * 900 + b"l.")
    with pytest.raises(DataError, match="more than 1,000 operations"):
        load_data_only(b"\x80\x02(" + b"]" * 1100 + b"l.")


@pytest.mark.parametrize(
    "name", ["_codecs encode", "numpy.core.multiarray _reconstruct", "numpy.core.multiarray scalar"]
)
@pytest.mark.parametrize("state", [({"a": 1}, None), (None, {"__defaults__": (1,)}), {"a": 1}])
def test_a_pickle_cannot_change_a_function(name: str, state: Any) -> None:
    """It would stay changed for the files that this process reads later."""
    module, function = name.encode().split()
    changed = pickle.dumps(state, 2).removeprefix(b"\x80\x02").removesuffix(b".")
    with pytest.raises(DataError, match="changes a function"):
        load_data_only(b"\x80\x02c" + module + b"\n" + function + b"\n" + changed + b"b.")
