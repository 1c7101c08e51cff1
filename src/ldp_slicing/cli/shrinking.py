"""The options that shrink sources before the noise, and what shrinking changes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated

import typer

from ldp_slicing.card import Statement
from ldp_slicing.errors import LdpSlicingError, Reason
from ldp_slicing.plan import kind_of_pixels
from ldp_slicing.tables import round_up
from ldp_slicing.view import Padded, Size
from ldp_slicing.wording import number


def parse_size(text: str, option: str) -> tuple[int, int]:
    """Return width and height, or report the option as invalid."""
    try:
        width, height = (int(part) for part in text.lower().split("x"))
    except ValueError:
        raise typer.BadParameter(f"expected width x height, such as 224x224; got {text!r}", param_hint=option) from None
    if min(width, height) < 1:
        raise typer.BadParameter(f"an image has at least one pixel; got {text!r}", param_hint=option)
    return width, height


MaxSide = Annotated[
    int | None,
    typer.Option(
        "--max-side",
        metavar="PIXELS",
        min=1,
        help="Shrink larger images before the noise, to this longest side. Smaller images keep their size.",
        show_default="the size of each image",
    ),
]
Fit = Annotated[
    str | None,
    typer.Option(
        "--fit",
        metavar="WxH",
        help="Shrink all images before the noise, to one size; they are first cropped around the centre to this aspect "
        "ratio. Smaller images are refused.",
        show_default="the size of each image",
    ),
]
Pad = Annotated[
    bool,
    typer.Option(
        "--pad",
        help="With --fit: pad smaller images with black. Anybody can tell where the padding ends, and so how large the "
        "image was.",
    ),
]


def choose_size(max_side: int | None, fit: str | None, pad: bool) -> Size:
    """Return the size of releases that the options ask for."""
    if max_side is not None and fit is not None:
        raise LdpSlicingError("--max-side and --fit exclude each other: leave one out", Reason.SETTINGS)
    if pad and fit is None:
        raise LdpSlicingError("--pad applies to --fit only: add --fit, or leave it out", Reason.SETTINGS)
    if fit is None:
        return max_side
    wanted = parse_size(fit, "--fit")
    return Padded(*wanted) if pad else wanted


@dataclass(frozen=True)
class Lowered:
    """By how much shrinking lowered the eps of a whole image, for the largest one.

    The numbers tell the size of a source, so they are for the owner, and no card has them.
    """

    word_bits: int
    image_epsilon: float
    without_shrinking: float

    @classmethod
    def by(cls, statement: Statement, source_pixels: int) -> Iterator[Lowered]:
        """Yield what shrinking changed, or nothing. source_pixels: the most of one source."""
        if statement.size is not None and source_pixels > statement.pixels:
            epsilon = Fraction(statement.plan.realised_epsilon)
            image, source = (round_up(epsilon * pixels) for pixels in (statement.pixels, source_pixels))
            yield cls(statement.plan.word_bits, image, source)

    @property
    def sentence(self) -> str:
        now, before = number(self.image_epsilon), number(self.without_shrinking)
        kind = kind_of_pixels(self.word_bits)
        return f"shrinking lowered the epsilon of the largest image ({kind}) from {before} to {now}"
