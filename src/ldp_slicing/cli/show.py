from __future__ import annotations

import io
from pathlib import Path
from typing import Annotated

import typer

from ldp_slicing.cli.common import PruneChoice, PruneOption, check_new_file, err, out, plain, refusals_exit
from ldp_slicing.cli.shrinking import Fit, MaxSide, Pad, choose_size
from ldp_slicing.comparison_sheet import make_sheet
from ldp_slicing.errors import LdpSlicingError, ReleaseError
from ldp_slicing.files import write_atomically
from ldp_slicing.formats.single import read_single
from ldp_slicing.plan import channel_bits
from ldp_slicing.sets import check_outside_sets
from ldp_slicing.view import shrink


@refusals_exit
def show(
    image: Annotated[
        Path, typer.Argument(metavar="IMAGE", help="The source: an image or a DICOM file.", show_default=False)
    ],
    target: Annotated[
        Path, typer.Option("--out", "-o", metavar="FILE", help="New .png file for the sheet.", show_default=False)
    ],
    slices: Annotated[
        str | None,
        typer.Option(
            "--slices",
            metavar="BITS",
            help="Bits to randomise as one thick slice, such as Y7+Y4+Cb7+Cr7. Other bits are dropped.",
            show_default="one slice per bit, as in the paper",
        ),
    ] = None,
    prune: PruneOption = PruneChoice.haar,
    max_side: MaxSide = None,
    fit: Fit = None,
    pad: Pad = False,
    side: Annotated[
        int,
        typer.Option(
            "--side", metavar="PIXELS", min=16, max=1024, help="Largest width and height of a tile, in pixels."
        ),
    ] = 192,
) -> None:
    """Example: `ldp-slicing show portrait.jpg --out sheet.png`

    Draw a sheet with an image, its view, its bit-planes, and releases from epsilon 1 to 58 with and without pruning.

    The image is released at its full size, or as --max-side or --fit shrinks it. If a release is larger than a tile,
    the sheet shows the middle of each release at full size and the whole release reduced. Averaging removes noise, so a
    large release reveals more than its single pixels suggest. Under each release, the sheet states the share of people
    that a network re-identified at this budget, if it was measured: a release that looks like noise may still reveal a
    face.

    The sheet shows the source. It is for the owner only and must not be released.
    """
    if target.suffix.lower() != ".png":
        raise ReleaseError(f"{target} must end in .png")
    check_new_file(target)
    check_outside_sets(target)
    if not image.exists():
        raise ReleaseError(f"{image} does not exist")
    if image.is_dir():
        raise ReleaseError(f"{image} is a folder: name one image or DICOM file in it")
    size = choose_size(max_side, fit, pad)
    try:
        source = read_single(image)
        small = shrink(source.pixels, size)
    except LdpSlicingError as error:
        raise type(error)(f"{image}: {error}") from None
    for notice in source.notices:
        err.print(f"[yellow]notice:[/yellow] {plain(notice)}")
    encoded = io.BytesIO()
    with err.status("drawing"):
        make_sheet(small, side, slices, prune.prune, channel_bits(source.bits), shrunk=size is not None).save(
            encoded, "PNG"
        )
    write_atomically(target, [encoded.getvalue()])
    out.print(f"written to {plain(str(target))}, for the owner only: it shows the source")
