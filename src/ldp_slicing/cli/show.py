from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Annotated

import typer

from ldp_slicing.cli.common import PruneChoice, PruneOption, err, out, plain, refusals_exit
from ldp_slicing.errors import LdpSlicingError, ReleaseError
from ldp_slicing.files import write_atomically
from ldp_slicing.formats.single import read_single
from ldp_slicing.plan import COLOUR_BITS
from ldp_slicing.sheet import make_sheet


@refusals_exit
def show(
    image: Annotated[Path, typer.Argument(metavar="IMAGE", help="A source: an image, or DICOM.", show_default=False)],
    target: Annotated[
        Path, typer.Option("--out", "-o", help="Where the sheet goes: a new .png file.", show_default=False)
    ],
    slices: Annotated[
        str | None,
        typer.Option(
            "--slices",
            metavar="BITS",
            help="Releases in which these bits are randomised as one and the others dropped, such as Y7+Y4+Cb7+Cr7.",
            show_default="every bit by itself, as in the paper",
        ),
    ] = None,
    prune: PruneOption = PruneChoice.haar,
    side: Annotated[
        int, typer.Option("--side", min=16, max=1024, help="Show pieces, and wholes, at most this large.")
    ] = 192,
) -> None:
    """`ldp-slicing show portrait.jpg --out sheet.png`

    Draw what the mechanism does to an image: the view, the bit-planes, releases from epsilon 1 to 58 with and without pruning.

    The image is released at its full size. Of one larger than a tile you see the middle, pixel by pixel, and the whole made small:
    averaging takes noise away, so that a large release shows more than its pixels do.

    The sheet shows the source. It is for the owner's eyes, not for release.
    """
    if target.suffix.lower() != ".png":
        raise ReleaseError(f"{target} must end in .png")
    if os.path.lexists(target):
        raise ReleaseError(f"{target} exists already: nothing is overwritten")
    try:
        source = read_single(image)
    except LdpSlicingError as error:
        raise type(error)(f"{image}: {error}") from None
    for notice in source.notices:
        err.print(f"[yellow]notice:[/yellow] {plain(notice)}")
    encoded = io.BytesIO()
    with err.status("drawing"):
        make_sheet(source.pixels, side, slices, prune.prune, 8 if source.bits == COLOUR_BITS else source.bits).save(
            encoded, "PNG"
        )
    try:
        write_atomically(target, [encoded.getvalue()])
    except OSError as error:
        raise ReleaseError(f"{target} cannot be written: {error.strerror}") from None
    out.print(f"{plain(str(target))} (for the owner only: it shows the source)")
