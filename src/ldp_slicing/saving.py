"""One release and its card as files, for programs that release single images. Sets are released by ``release``.

Tests: tests/test_saving.py.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ldp_slicing.card import Card
from ldp_slicing.errors import ImageError
from ldp_slicing.files import write_atomically
from ldp_slicing.plan import COLOUR_BITS, Plan
from ldp_slicing.png import encode_png
from ldp_slicing.sets import card_beside, set_around


def check_target(path: Path, plan: Plan, *, output: str = "rgb") -> None:
    """Raise ImageError unless a release by ``plan`` and its card can be written at ``path``. Nothing is overwritten."""
    if plan.is_colour and output != "rgb":
        raise ImageError(
            f"{path} cannot hold {output}, because readers take the colours of a PNG for RGB: save with a Slicer whose "
            'output is "rgb"'
        )
    if plan.word_bits not in (8, 16, COLOUR_BITS):
        raise ImageError(
            f"a PNG holds words of 8, 16 or 24 bits, but this plan's have {plan.word_bits}: release words of 8 or 16 "
            "bits, or DICOM files with `ldp-slicing privatize`"
        )
    if path.suffix.lower() != ".png":
        raise ImageError(f"{path} must end in .png, since a release is written without loss")
    if not path.parent.is_dir():
        raise ImageError(f"{path} cannot be written: the folder {path.parent} does not exist")
    for file in (path, path.with_name(card_beside(path.name))):
        if file.exists() or file.is_symlink():
            raise _exists(file)
    if (folder := set_around(path.parent)) is not None:
        raise ImageError(f"{path} would lie in {folder}, a set whose card does not count it: save it elsewhere")


def write_release(path: Path, release: NDArray[np.unsignedinteger], plan: Plan, card: Card) -> None:
    """Write the card beside ``path``, and then the release, uint8 H x W x 3, uint8 H x W or uint16 H x W, as a PNG.

    The card comes first, and is removed if the release cannot be written: there is never a release without its card.
    Whoever creates the card has the name: of several that save to one path, only one writes, so a card never lies
    beside the release of another.
    """
    beside = path.with_name(card_beside(path.name))
    try:
        file = beside.open("xb")
    except FileExistsError:
        raise _exists(beside) from None
    try:
        with file:
            file.write(card.to_json().encode())
        if os.path.lexists(path):
            raise _exists(path)
        write_atomically(path, map(bytes, encode_png(release, plan)))
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def _exists(file: Path) -> ImageError:
    return ImageError(f"{file} exists and is not overwritten: choose another name")
