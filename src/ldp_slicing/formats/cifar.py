"""CIFAR pickles: reads the Python files of CIFAR-10 and CIFAR-100. Their releases are written as WebDataset shards.

Unpickling runs no code: see ``ldp_slicing.pickles``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy as np

from ldp_slicing.errors import DataError, ImageError
from ldp_slicing.formats import CIFAR_ENDINGS
from ldp_slicing.formats.base import Entry, Options, check_keep, make_entry, note_left_out
from ldp_slicing.images import Decoded
from ldp_slicing.pickles import unpickle_data

_ROW_BYTES = 3 * 32 * 32


def read(file: BinaryIO, options: Options) -> Iterator[Entry]:
    """Yield one entry per row, uint8 [32, 32, 3], with the labels that are kept."""
    try:
        content: Any = unpickle_data(file.read())
        rows = np.asarray(content["data"])
        present = [name for name in CIFAR_ENDINGS if name in content]
        check_keep(options.keep, present)
        labels = {CIFAR_ENDINGS[name]: list(content[name]) for name in present if name in options.keep}
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
    if any(len(column) != len(rows) for column in labels.values()):
        raise ImageError(f"is not a CIFAR file: it does not have one label for each of its {len(rows)} images")
    for number, row in enumerate(rows):
        kept = {ending: str(int(column[number])).encode() for ending, column in labels.items()}
        pixels = np.ascontiguousarray(row.reshape(3, 32, 32).transpose(1, 2, 0))
        entry = make_entry(f"{number:05}.png", Decoded(pixels, ()), None, kept)
        yield entry if number else note_left_out(entry, set(present) - set(options.keep))
