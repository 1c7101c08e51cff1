"""The reader of a statement on a card: it takes the facts; everything else on the card is compared afterwards."""

from __future__ import annotations

import re

from ldp_slicing.card.statement import SPENT_ON, Statement
from ldp_slicing.errors import CardError
from ldp_slicing.measured import entries
from ldp_slicing.plan import Plan
from ldp_slicing.strict_json import fields, shown, typed
from ldp_slicing.value_range import ValueRange
from ldp_slicing.view import Padded, Size
from ldp_slicing.wording import counted

_STATEMENT = {"releases": int, "most_releases_of_one_source": int, "most_spent_on_one_source": dict}
_STATEMENT |= {"width": list, "height": list, "view": dict, "output": str, "plan": dict, "levels": list}
_STATEMENT |= {"measured": dict}
_MEASURED = {"table": int, "entry": object, "sentence": str}
_UNVOIDED = {"releases": int, "released_pixel": float, "source_pixel": float, "why": str}
_VIEW = {"colour": str, "prune": str, "size": str}
_SIZE = re.compile(r"(?P<most>at most )?(?P<width>[1-9][0-9]{0,8}) x (?P<height>[1-9][0-9]{0,8})(?P<padded>, .*)?")
_PLAN = {"word_bits": int, "epsilon_requested": float, "epsilon_realised": float}
_PLAN |= {"slices": list, "dropped_bits": str, "remark": object}
_LEVEL = {"unit": str, "epsilon": float, "advantage_bound": float, "means": str, "why": str}


def read_statement(content: object, where: str) -> Statement:
    found = fields(content, _STATEMENT, {"without_voided": dict}, where=where)
    plan = Plan.from_dict(fields(found["plan"], _PLAN, where=f"{where}.plan"))
    named = dict.fromkeys(SPENT_ON, float)
    spent = fields(found["most_spent_on_one_source"], named, where=f"{where}.most_spent_on_one_source")
    unvoided = None
    if "without_voided" in found:
        sums = fields(found["without_voided"], _UNVOIDED, where=f"{where}.without_voided")
        unvoided = (sums["releases"], sums["released_pixel"], sums["source_pixel"])
    view = fields(found["view"], _VIEW, {"range": str}, where=f"{where}.view")
    levels = [fields(level, _LEVEL, where=f"{where}.levels[{i}]") for i, level in enumerate(found["levels"])]
    if len(levels) < 4:
        raise CardError(f"{where}.levels has {counted(len(levels), 'level')}; it should have at least 4")
    table = fields(found["measured"], _MEASURED, where=f"{where}.measured")["table"]
    entries(table)  # raises if this software does not know that version of the table
    return Statement(
        plan,
        None if view["prune"] == "none" else view["prune"],
        found["output"] if plan.is_colour else "rgb",
        _read_range(found["width"], f"{where}.width"),
        _read_range(found["height"], f"{where}.height"),
        pixels=_number_in(levels[3]["why"]),
        dependents=_number_in(levels[2]["why"]),
        count=found["releases"],
        times=found["most_releases_of_one_source"],
        spent=(spent["released_pixel"], spent["source_pixel"], spent["image"]),
        table=table,
        size=_read_size(view["size"]),
        unvoided=unvoided,
        value_range=ValueRange.parse(view["range"]) if "range" in view else None,
    )


def _read_size(text: str) -> Size:
    """Return the size that ``view.sizing`` words so, and None for any other text."""
    found = _SIZE.fullmatch(text)
    if found is None:
        return None
    width, height = int(found["width"]), int(found["height"])
    return width if found["most"] else Padded(width, height) if found["padded"] else (width, height)


def _read_range(values: list[object], where: str) -> tuple[int, int]:
    if len(values) != 2:
        raise CardError(f"{where} must be two integers, the smallest and the largest; got {shown(values)}")
    return typed(values[0], int, where), typed(values[1], int, where)


def _number_in(why: str) -> int:
    """Return the number that an explanation gives. "One released pixel" has no digits."""
    found = re.search("[0-9][0-9,]{0,25}", why)
    return int(found[0].replace(",", "")) if found else 1
