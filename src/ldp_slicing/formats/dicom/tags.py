"""The attributes of a source that an owner can keep by name, and no others. Each value has one encoding.

Only numbers and codes are on the list: free text could name a patient. What is kept is not protected, and the card
lists it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydicom.valuerep import format_number_as_ds

from ldp_slicing.errors import ImageError
from ldp_slicing.formats.base import check_keep

_MODALITIES = "CR|CT|DX|ES|GM|IO|MG|MR|NM|OP|OPT|PT|PX|RF|RG|RTDOSE|RTIMAGE|SC|SEG|SM|US|XA|XC"


@dataclass(frozen=True)
class Tag:
    """An attribute: its number, value representation, number of values, and what a code may be."""

    number: int
    kind: str
    count: int = 1
    codes: str = ""

    def encode(self, values: Sequence[object]) -> str:
        """Return the one encoding of some values, or raise ValueError."""
        if len(values) != self.count:
            raise ValueError
        if self.kind == "CS":
            if not all(re.fullmatch(self.codes, str(value)) for value in values):
                raise ValueError
            return "\\".join(map(str, values))
        if self.kind == "IS":
            numbers = [int(str(value)) for value in values]
            if not all(-(1 << 31) <= number < 1 << 31 for number in numbers):
                raise ValueError
            return "\\".join(map(str, numbers))
        return "\\".join(format_number_as_ds(float(str(value))) for value in values)  # refuses what is not finite

    def decode(self, text: str) -> Any:  # noqa: ANN401
        """Return the value, or a list of values, that ``encode`` wrote: numbers or codes."""
        convert = {"CS": str, "IS": int}.get(self.kind, float)
        values = [convert(value) for value in text.split("\\")]
        return values if self.count > 1 else values[0]


TAGS = {
    "Modality": Tag(0x00080060, "CS", codes=_MODALITIES),
    "SliceThickness": Tag(0x00180050, "DS"),
    "SpacingBetweenSlices": Tag(0x00180088, "DS"),
    "ImagerPixelSpacing": Tag(0x00181164, "DS", 2),
    "PatientPosition": Tag(0x00185100, "CS", codes="[HF]F(S|P|DR|DL)"),
    "ViewPosition": Tag(0x00185101, "CS", codes="AP|PA|LL|RL|RLD|LLD|RLO|LLO"),
    "SeriesNumber": Tag(0x00200011, "IS"),
    "AcquisitionNumber": Tag(0x00200012, "IS"),
    "InstanceNumber": Tag(0x00200013, "IS"),
    "PatientOrientation": Tag(0x00200020, "CS", 2, "[APRLHF]{1,3}"),
    "ImagePositionPatient": Tag(0x00200032, "DS", 3),
    "ImageOrientationPatient": Tag(0x00200037, "DS", 6),
    "Laterality": Tag(0x00200060, "CS", codes="[RLUB]"),
    "ImageLaterality": Tag(0x00200062, "CS", codes="[RLUB]"),
    "SliceLocation": Tag(0x00201041, "DS"),
    "PixelSpacing": Tag(0x00280030, "DS", 2),
}
GEOMETRY = ("ImagerPixelSpacing", "ImagePositionPatient", "PixelSpacing")  # of pixels: another size makes them wrong


def kept_tags(dataset: Any, keep: Sequence[str], *, shrinks: bool = False) -> dict[str, str]:  # noqa: ANN401
    """Return the encoded values of the attributes to keep, by name.

    Raise ImageError if the source has none of them, or if one of them may not be kept or has an unusual value.
    """
    for name in keep:
        if name not in TAGS and name in dataset:
            raise ImageError(f"{name} of a DICOM file cannot be kept; these can: {', '.join(sorted(TAGS))}")
    if shrinks and (wrong := sorted({*keep} & {*GEOMETRY})):
        raise ImageError(
            f"{' and '.join(wrong)} would be wrong for a smaller image: leave out --keep, or keep the size"
        )
    present = [name for name in TAGS if dataset.get(name) not in (None, "", [])]
    check_keep(keep, present or ["nothing that can be kept"])
    found = {}
    for name in present:
        if name in keep:
            value = dataset.get(name)
            values = [value] if isinstance(value, str) or not hasattr(value, "__len__") else list(value)
            try:
                found[name] = TAGS[name].encode(values)
            except (ValueError, OverflowError):
                raise ImageError(f"its {name} has a value that cannot be kept: leave out --keep {name}") from None
    return found


def parse_tag(name: str, text: str) -> str | None:
    """Return the text of a kept attribute if it is the one encoding of its values, or None."""
    try:
        return text if TAGS[name].encode(text.split("\\")) == text else None
    except (ValueError, OverflowError):
        return None
