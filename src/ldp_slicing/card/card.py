"""The card: the privacy statement that travels with releases, its writer, and its one reader.

A card has exactly one text for its facts, prose included. The reader takes the facts from a text, writes the card again
and compares the two, so that nothing on a card is unchecked. Tests: tests/test_card.py.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO

from ldp_slicing.card.prose import (
    CARD_VERSION,
    EQUALITY,
    NAMES,
    NOT_COMPLETE,
    NOT_PROTECTED,
    PADDED_SIZE,
    READ_THIS,
    SERIES,
    SIZE,
)
from ldp_slicing.card.reader import read_statement
from ldp_slicing.card.statement import Statement
from ldp_slicing.errors import CardError, LdpSlicingError
from ldp_slicing.files import open_regular, read_limited
from ldp_slicing.strict_json import contrasted, differences, fields, parse, shown, typed
from ldp_slicing.tables import LAYOUT_VERSION
from ldp_slicing.version import __version__
from ldp_slicing.view import Padded

CARD_BYTES = 1 << 20  # the longest card
MOST_STATEMENTS = 17  # words have 24 bits, or 16 to 1, and there is one statement for each
MOST_KEPT, MOST_NAME = 256, 255  # names of data kept beside the images, and the characters of one
SOFTWARE = re.compile(r"ldp-slicing [0-9]{1,4}(\.[0-9]{1,4}){1,2}((a|b|rc|\.dev|\.post)[0-9]{1,4})?")


@dataclass(frozen=True)
class Card:
    """The privacy statement of a set of releases, with one ``Statement`` per plan.

    >>> print(Slicer(Plan.paper(20.0)).card(width=112, height=112))     # doctest: +SKIP

    ``random_names``: file names were replaced by random ones. ``owners_key``: equal sources have equal releases.
    ``kept``: names of the data released beside the images, which is not protected. ``complete``: the run released
    everything that it can. ``software`` wrote the card.
    ``series``: the UIDs of DICOM files tell which of them belong together.
    """

    statements: tuple[Statement, ...]
    random_names: bool = False
    owners_key: bool = False
    kept: tuple[str, ...] = ()
    complete: bool = True
    software: str = f"ldp-slicing {__version__}"
    series: bool = False

    def __post_init__(self) -> None:
        ordered = sorted(self.statements, key=lambda one: one.plan.word_bits, reverse=True)
        for one, other in pairwise(ordered):
            if one.plan.word_bits == other.plan.word_bits:
                raise CardError(f"there are two statements about {one.plan.word_bits}-bit words")
        if not ordered:
            raise CardError("a card needs at least one statement")
        if len(self.kept) > MOST_KEPT or any(len(name) > MOST_NAME for name in self.kept):
            raise CardError(
                f"a card names at most {MOST_KEPT} kinds of data kept beside the images, "
                f"with at most {MOST_NAME} characters each"
            )
        if not SOFTWARE.fullmatch(self.software):
            raise CardError(f"{shown(self.software)} is not a version of this software")
        object.__setattr__(self, "statements", tuple(ordered))
        object.__setattr__(self, "kept", tuple(sorted(set(self.kept))))

    @classmethod
    def from_json(cls, text: str | bytes) -> Card:
        """Return the card that has exactly this text, or raise CardError.

        >>> card = Slicer(Plan.paper(20.0)).card(width=112, height=112)        # doctest: +SKIP
        >>> Card.from_json(card.to_json()) == card                             # doctest: +SKIP
        True
        """
        try:
            data = text.encode() if isinstance(text, str) else text
            content = parse(data, most_bytes=CARD_BYTES)
            card = _read_card(content)
            right = card.to_dict()
        except CardError:
            raise
        except ValueError as error:  # every LdpSlicingError is one
            raise CardError(str(error)) from None
        for where, said, meant in differences(content, right):
            raise CardError(f"{where} {contrasted(said, meant)}")
        if card.to_json().encode() != data:
            raise CardError("it is not written as this software writes cards")
        return card

    @classmethod
    def load(cls, file: BinaryIO) -> Card:
        """Read a card from an open file, and close it. Raise CardError if it is not one."""
        try:
            return cls.from_json(read_limited(file, CARD_BYTES))
        except (LdpSlicingError, OSError) as error:
            raise CardError(str(error)) from None

    @classmethod
    def read(cls, path: Path | str) -> Card:
        """Read a card from a regular file. Raise CardError if it is not one.

        >>> card = Card.read("releases/card.json")       # doctest: +SKIP
        """
        try:
            return cls.load(open_regular(Path(path)))
        except LdpSlicingError as error:
            raise CardError(f"{path} is not a valid card: {error}") from None

    def statement(self, bits: int | None = None) -> Statement:
        """Return the statement about words of so many bits: 24 for colour, 1 to 16 for grey. None: the only one."""
        found = [one for one in self.statements if bits in (None, one.plan.word_bits)]
        if len(found) == 1:
            return found[0]
        *others, last = (str(one.plan.word_bits) for one in self.statements)
        wanted = f"none about {bits} bits" if bits is not None else f"so pass bits={', '.join(others)} or {last}"
        raise CardError(f"the card has statements about words of {', '.join([*others, last])} bits, {wanted}")

    @property
    def not_protected(self) -> tuple[str, ...]:
        """What the releases reveal."""
        sizes = [one.size for one in self.statements]
        hidden = {NAMES} if self.random_names else set()
        hidden |= {SIZE} if all(isinstance(size, tuple) for size in sizes) else set()  # then all have one size
        is_padded = any(isinstance(size, Padded) for size in sizes)
        said = tuple(
            PADDED_SIZE if line == SIZE and is_padded else line for line in NOT_PROTECTED if line not in hidden
        )
        return (*said, *([SERIES] if self.series else []), *([EQUALITY] if self.owners_key else []))

    def to_dict(self) -> dict[str, Any]:
        """Return the card as JSON values."""
        return {
            "card": CARD_VERSION,
            "software": self.software,
            "keystream_layout": LAYOUT_VERSION,
            "complete": self.complete,
            "statements": [statement.to_dict() for statement in self.statements],
            "not_protected": list(self.not_protected),
            "kept_beside": list(self.kept),
            "read_this": list(READ_THIS),
        }

    def to_json(self) -> str:
        """Return the text of the card's file, which ends with a line feed."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False) + "\n"

    def __str__(self) -> str:
        parts = [str(statement) for statement in self.statements]
        parts.append("not protected: " + "; ".join(self.not_protected) + ".")
        if self.kept:
            parts.append("released beside the images, without protection: " + ", ".join(self.kept) + ".")
        if not self.complete:
            parts.append(NOT_COMPLETE)
        return "\n".join([*parts, *READ_THIS])


_CARD = {"card": int, "software": str, "keystream_layout": int, "complete": bool, "statements": list}
_CARD |= {"not_protected": list, "kept_beside": list, "read_this": list}


def _read_card(content: object) -> Card:
    """Take the facts from a card. Everything else on it is compared afterwards."""
    if not isinstance(content, dict) or "card" not in content:
        raise CardError("it is not a card")
    version = typed(content["card"], int, "card")
    if version != CARD_VERSION:
        raise CardError(f"it has version {version}, and this software reads version {CARD_VERSION}")
    found = fields(content, _CARD)
    if found["keystream_layout"] != LAYOUT_VERSION:
        layout = found["keystream_layout"]
        raise CardError(f"keystream layout {layout} is unknown: this software knows {LAYOUT_VERSION}")
    if len(found["statements"]) > MOST_STATEMENTS:
        raise CardError(f"there are {len(found['statements']):,} statements; a card has at most {MOST_STATEMENTS}")
    return Card(
        tuple(read_statement(one, f"statements[{i}]") for i, one in enumerate(found["statements"])),
        random_names=NAMES not in found["not_protected"],
        owners_key=EQUALITY in found["not_protected"],
        kept=tuple(typed(name, str, "kept_beside") for name in found["kept_beside"]),
        complete=found["complete"],
        software=found["software"],
        series=SERIES in found["not_protected"],
    )
