"""What the stored numbers of a DICOM file mean: signed, inverted, rescaled to units, mapped to a range."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ldp_slicing.errors import ImageError
from ldp_slicing.formats.dicom.pixels import Stored
from ldp_slicing.value_range import RangeMap, ValueRange

_MOST_EXPONENT = 40
_ADVICE = "--range LOW:HIGH in its units, such as --range 0:80:12, maps it to words"


@dataclass(frozen=True)
class Rescale:
    """The value of a stored number s is slope x s + intercept."""

    slope: Fraction = Fraction(1)
    intercept: Fraction = Fraction(0)


def grey_words(pixels: NDArray[Any], stored: Stored) -> NDArray[Any]:
    """Return the words of a grey frame; 0 is black. Bits above the stored ones (overlays) are removed.

    Integers of up to 16 bits become uint8 or uint16, longer ones uint32. Floats stay as they are.
    """
    if stored.is_float:
        if np.isnan(pixels).any():
            raise ImageError("has pixels that are not numbers (NaN)")
        return pixels
    bits = stored.bits
    kind = np.uint8 if bits <= 8 else np.uint16 if bits <= 16 else np.uint32
    words = pixels.astype(np.int64) & ((1 << bits) - 1)
    if stored.is_signed:
        words ^= 1 << (bits - 1)
    if stored.is_inverted:
        words ^= (1 << bits) - 1
    return words.astype(kind)


def colour_words(pixels: NDArray[Any], stored: Stored) -> NDArray[np.uint8]:
    """Return a colour frame as uint8 [H, W, 3]. More than 8 bits are reduced to 8, also those of a palette."""
    bits = 8 * pixels.dtype.itemsize if stored.is_palette else stored.bits
    return (pixels[..., :3] >> (bits - 8)).astype(np.uint8)


def without_range(stored: Stored) -> None:
    """Raise ImageError if the words of a grey file need a range."""
    if stored.is_float:
        raise ImageError(f"has floating-point pixels, which have no fixed range: {_ADVICE}")
    if stored.bits > 16:
        raise ImageError(f"stores {stored.bits} bits, and words have at most 16: {_ADVICE}")


def range_map(dataset: Any, stored: Stored, number: int, wanted: ValueRange) -> RangeMap:  # noqa: ANN401
    """Return how the words of a frame become words of the range. Frames are numbered from 1."""
    if wanted.modality and (modality := dataset.get("Modality")) != wanted.modality:
        raise ImageError(f"has the modality {modality or 'none'}, and the range {wanted.modality} is not for it")
    rescale = _rescale(dataset, number)
    slope, intercept = rescale.slope, rescale.intercept
    # What grey_words did to the stored number, undone: s = +-(w) + constant.
    if stored.is_inverted and not stored.is_float:
        slope, intercept = -slope, intercept + slope * ((1 << stored.bits) - 1)
        if stored.is_signed:
            intercept += slope * (1 << (stored.bits - 1))
    elif stored.is_signed and not stored.is_float:
        intercept -= slope * (1 << (stored.bits - 1))
    return RangeMap(wanted, slope, intercept, stored.is_inverted)


def used_bits(words: NDArray[Any], stored: Stored) -> int:
    """Return the fewest bits that hold the values of a grey frame, signed or not as the file stores them."""
    low, high = int(words.min()), int(words.max())
    if stored.is_inverted:
        top = (1 << stored.bits) - 1
        low, high = top - high, top - low
    if not stored.is_signed:
        return max(1, high.bit_length())
    half = 1 << (stored.bits - 1)
    return 1 + max(
        (high - half if high >= half else 0).bit_length(), (half - 1 - low if low < half else 0).bit_length()
    )


def _rescale(dataset: Any, number: int) -> Rescale:  # noqa: ANN401
    if "DoseGridScaling" in dataset:
        return Rescale(_fraction(dataset.DoseGridScaling))
    places = [dataset]
    for name, index in (("SharedFunctionalGroupsSequence", 0), ("PerFrameFunctionalGroupsSequence", number - 1)):
        groups = dataset.get(name) or []
        if index < len(groups):
            places += list(groups[index].get("PixelValueTransformationSequence") or [])
    if any("ModalityLUTSequence" in place for place in places):
        raise ImageError("states its units by a modality LUT, which --range does not read")
    for place in reversed(places):
        if "RescaleSlope" in place or "RescaleIntercept" in place:
            return Rescale(_fraction(place.get("RescaleSlope", 1)), _fraction(place.get("RescaleIntercept", 0)))
    return Rescale()


def _fraction(value: object) -> Fraction:
    """Return the exact number of a decimal string."""
    try:
        number = Decimal(str(value).strip())
        if number.is_finite() and abs(number.adjusted()) <= _MOST_EXPONENT:
            return Fraction(number)
    except InvalidOperation:
        pass
    raise ImageError(f"has a rescale slope or intercept that is not a usual number: {str(value)[:40]!r}")
