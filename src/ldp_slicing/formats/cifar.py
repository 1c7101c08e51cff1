"""The pickles in which CIFAR-10 and CIFAR-100 were published. No code in them is run. They are released as WebDataset shards."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

import numpy as np

from ldp_slicing.errors import DataError, ImageError
from ldp_slicing.formats import CIFAR_ENDINGS
from ldp_slicing.formats.base import Entry, Options, check_keep, entry_of, left_out
from ldp_slicing.images import Decoded
from ldp_slicing.pickles import unpickle_data

_ROW = 3 * 32 * 32


def read(file: BinaryIO, options: Options) -> Iterator[Entry]:
    try:
        content = unpickle_data(file.read())
        rows = np.asarray(content["data"])
        there = [name for name in CIFAR_ENDINGS if name in content]
        check_keep(options.keep, there)
        labels = {CIFAR_ENDINGS[name]: list(content[name]) for name in there if name in options.keep}
    except ImageError:
        raise
    except DataError as error:
        raise ImageError(str(error)) from None
    except Exception as error:  # a pickle can be wrong in every way
        raise ImageError(f"is not a CIFAR file: {type(error).__name__}: {error}") from None
    if (
        rows.dtype != np.uint8
        or rows.ndim != 2
        or rows.shape[1] != _ROW
        or any(len(column) != len(rows) for column in labels.values())
    ):
        raise ImageError(
            f"is not a CIFAR file: its rows are {rows.dtype} {rows.shape}, and {_ROW} bytes a row with a label each are expected"
        )
    for number, row in enumerate(rows):
        kept = {ending: str(int(column[number])).encode() for ending, column in labels.items()}
        pixels = np.ascontiguousarray(row.reshape(3, 32, 32).transpose(1, 2, 0))
        entry = entry_of(f"{number:05}.png", Decoded(pixels, ()), None, kept)
        yield entry if number else left_out(entry, set(there) - set(options.keep))
