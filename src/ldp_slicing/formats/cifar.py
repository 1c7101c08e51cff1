"""CIFAR pickles: reads the Python files of CIFAR-10 and CIFAR-100. Their releases are written as WebDataset shards.

Unpickling runs no code: see ``ldp_slicing.pickles``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any, BinaryIO

import numpy as np

from ldp_slicing.errors import DataError, ImageError
from ldp_slicing.formats import CIFAR_ENDINGS
from ldp_slicing.formats.base import Entry, Options, check_keep, make_entry, note_left_out
from ldp_slicing.images import Decoded
from ldp_slicing.pickles import unpickle_data

_ROW_BYTES = 3 * 32 * 32
_MAX_BYTES = 1 << 30  # the largest of CIFAR's files has 155 MB; a pickle is read as a whole


def read(file: BinaryIO, options: Options) -> Iterator[Entry]:
    """Yield one entry per row, uint8 [32, 32, 3], with the labels that are kept."""
    try:
        data = file.read(_MAX_BYTES + 1)
        if len(data) > _MAX_BYTES:
            raise ImageError(f"has more than {_MAX_BYTES:,} bytes: split it into files as large as CIFAR's own")
        content: Any = unpickle_data(data)
        rows = content["data"]
        if not isinstance(rows, np.ndarray):  # a list that holds one list many times would become a huge array
            raise ImageError(f"is not a CIFAR file: its data is no array, but of the type {type(rows).__name__}")
        present = [name for name in CIFAR_ENDINGS if name in content]
        check_keep(options.keep, present)
        labels = {CIFAR_ENDINGS[name]: _labels(content[name], len(rows)) for name in present if name in options.keep}
    except ImageError:
        raise
    except DataError as error:
        raise ImageError(str(error)) from None
    except Exception as error:  # a pickle can hold anything
        raise ImageError(f"is not a CIFAR file: {type(error).__name__}: {error}") from None
    if rows.dtype != np.uint8 or rows.ndim != 2 or rows.shape[1] != _ROW_BYTES:
        raise ImageError(
            f"is not a CIFAR file: expected rows of {_ROW_BYTES} bytes, got an array {rows.dtype} {rows.shape}"
        )
    for number, row in enumerate(rows):
        kept = {ending: column[number] for ending, column in labels.items()}
        pixels = np.ascontiguousarray(row.reshape(3, 32, 32).transpose(1, 2, 0))
        entry = make_entry(f"{number:05}.png", Decoded(pixels, ()), None, kept, kept)
        yield entry if number else note_left_out(entry, set(present) - set(options.keep))


def keepable(open_file: Callable[[], BinaryIO]) -> Collection[str]:
    return CIFAR_ENDINGS


def _labels(column: Any, count: int) -> list[bytes]:  # noqa: ANN401
    if len(column) != count:
        raise ImageError(f"is not a CIFAR file: it does not have one label for each of its {count} images")
    return [str(int(label)).encode() for label in column]
