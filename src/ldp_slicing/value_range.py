"""A range of values, LOW to HIGH in the units of a file, that is mapped to the words of a plan before the noise.

Bits of a word that no pixel uses get no budget: a CT file stores 16 bits, but its values lie between -1024 and 3071 HU,
so words of 12 bits are enough. The range is a public constant of the run. It is never taken from an image, because that
would reveal something about the image.

Proof: docs/proofs.md, 7.4. Tests: tests/test_value_range.py.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ldp_slicing.errors import LdpSlicingError

MODALITIES = {"CT": "-1024:3071"}  # in the units that DICOM fixes for the modality: HU
_MOST_BITS = 16
_NUMBER = r"(-?[0-9]{1,12}(?:\.[0-9]{1,9})?)"
_RANGE = re.compile(rf"{_NUMBER}:{_NUMBER}(?::([0-9]{{1,2}}))?")
_TABLE_BITS = 16  # sources of so many bits are mapped by a table of all their values


@dataclass(frozen=True)
class ValueRange:
    """LOW and HIGH, and the bits of the words that they are mapped to.

    modality: the DICOM modality that the range is meant for, or nothing.
    """

    low: Fraction
    high: Fraction
    bits: int
    modality: str = ""

    @classmethod
    def parse(cls, text: str) -> ValueRange:
        """Return the range that is written LOW:HIGH or LOW:HIGH:BITS, or named by its modality.

        >>> str(ValueRange.parse("CT"))
        '-1024:3071:12'

        Without BITS the words have the fewest bits that tell all whole numbers of the range apart, at most 16.
        """
        found = _RANGE.fullmatch(MODALITIES.get(text, text))
        if not found:
            raise LdpSlicingError(
                f"a range is LOW:HIGH in the units of the file, such as -1024:3071, or the modality "
                f"{' or '.join(MODALITIES)}; got {text!r}"
            )
        low, high = Fraction(found[1]), Fraction(found[2])
        if low >= high:
            raise LdpSlicingError(f"the range {text} is empty: LOW must be less than HIGH")
        bits = int(found[3]) if found[3] else min(_MOST_BITS, max(1, math.floor(high - low).bit_length()))
        if not 1 <= bits <= _MOST_BITS:
            raise LdpSlicingError(f"words of a range have 1 to {_MOST_BITS} bits; got {bits}")
        return cls(low, high, bits, text if text in MODALITIES else "")

    def __str__(self) -> str:
        """Return the range in its one spelling, with its bits."""
        return f"{_decimal(self.low)}:{_decimal(self.high)}:{self.bits}"

    @property
    def highest(self) -> int:
        """The word of HIGH and of everything above."""
        return (1 << self.bits) - 1

    def word(self, value: Fraction) -> int:
        """Return the word of one value: scaled in exact rationals, rounded half up, clamped. The definition."""
        scaled = (value - self.low) * self.highest / (self.high - self.low)
        return min(max(math.floor(scaled + Fraction(1, 2)), 0), self.highest)


@dataclass(frozen=True)
class RangeMap:
    """How the words of one source become words of the range.

    slope, intercept: the value of a source's word w is slope x w + intercept, in the units of the range.
    inverted: whether the source shows its lowest value as white. Then so does the release.
    """

    range: ValueRange
    slope: Fraction
    intercept: Fraction
    inverted: bool = False

    def __post_init__(self) -> None:
        if not self.slope:
            raise LdpSlicingError("a rescale slope of 0 makes all values equal")

    def __str__(self) -> str:
        """Return everything that decides about the words, for the derivation of keys."""
        return f"{self.range} {self.slope} {self.intercept} {'inverted' if self.inverted else 'upright'}"

    @property
    def rescale(self) -> tuple[Fraction, Fraction]:
        """Slope and intercept by which the words of the release give values again."""
        low, high = self.range.low, self.range.high
        step = (high - low) / self.range.highest
        return (-step, high) if self.inverted else (step, low)

    def word(self, source: Fraction) -> int:
        """Return the word for one word of the source: the definition that ``apply`` follows."""
        word = self.range.word(self.slope * source + self.intercept)
        return self.range.highest - word if self.inverted else word

    def apply(self, source: NDArray[np.generic]) -> NDArray[np.unsignedinteger]:
        """Map uint8, uint16, uint32 or float words of any shape to words of the range, uint8 or uint16."""
        if source.dtype.kind == "u" and 8 * source.dtype.itemsize <= _TABLE_BITS:
            words: NDArray[np.unsignedinteger] = _table(self, source.dtype.itemsize)[source]
            return words
        return _mapped(self, source)


def _mapped(by: RangeMap, source: NDArray[np.generic]) -> NDArray[np.unsignedinteger]:
    """A word is the number of thresholds that the source reaches. Thresholds are exact in the source's own type."""
    thresholds = _thresholds(by, is_float=source.dtype.kind == "f")
    values = source.astype(thresholds.dtype)
    words = np.searchsorted(thresholds, -values if by.slope < 0 else values, side="right")
    words = by.range.highest - words if by.inverted else words
    return words.astype(np.uint8 if by.range.bits <= 8 else np.uint16)


@lru_cache(maxsize=8)
def _table(by: RangeMap, itemsize: int) -> NDArray[np.unsignedinteger]:
    table = _mapped(by, np.arange(1 << 8 * itemsize, dtype=np.uint32))
    table.flags.writeable = False
    return table


@lru_cache(maxsize=8)
def _thresholds(by: RangeMap, *, is_float: bool) -> NDArray[np.generic]:
    """For each word k from 1, the least x with word(x) >= k, where x is a source's word, or its negative if slope < 0.

    word(v) >= k if and only if v >= low + (k - 1/2) (high - low) / highest.
    """
    step = (by.range.high - by.range.low) / by.range.highest
    first, each = (by.range.low - step / 2 - by.intercept) / abs(by.slope), step / abs(by.slope)
    # In whole numbers over one denominator: the sum of fractions would reduce each of up to 65,535.
    scale = math.lcm(first.denominator, each.denominator)
    start, more = int(first * scale), int(each * scale)
    exact = range(start + more, start + more * (by.range.highest + 1), more)
    if is_float:
        return np.array([_float_up(one, scale) for one in exact], np.float64)
    most = 1 << 62  # far beyond all words of 32 bits
    return np.array([min(max(-(-one // scale), -most), most) for one in exact], np.int64)


def _float_up(value: int, scale: int) -> float:
    """Return the least float that is not below ``value / scale``."""
    nearest = value / scale
    top, bottom = nearest.as_integer_ratio()
    return nearest if top * scale >= value * bottom else math.nextafter(nearest, math.inf)


def _decimal(value: Fraction) -> str:
    """Return a number with at most nine decimals, without trailing zeros."""
    text = format(Decimal(value.numerator) / Decimal(value.denominator), "f")
    return text.rstrip("0").rstrip(".") if "." in text else text
