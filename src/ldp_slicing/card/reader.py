"""The reader of a statement on a card: it takes the facts; everything else on the card is compared afterwards."""

from __future__ import annotations

import re
from fractions import Fraction

from ldp_slicing.card.prose import FORMS
from ldp_slicing.card.statement import SPENT_ON, Statement
from ldp_slicing.errors import CardError
from ldp_slicing.measured import entries, table_version
from ldp_slicing.plan import Plan
from ldp_slicing.strict_json import fields, shown, typed
from ldp_slicing.tables import round_up
from ldp_slicing.value_range import ValueRange
from ldp_slicing.view import Padded, Size
from ldp_slicing.wording import counted

_STATEMENT = {"releases": int, "most_releases_of_one_source": int, "most_spent_on_one_source": dict}
_STATEMENT |= {"width": list, "height": list, "view": dict, "output": str, "plan": dict, "levels": list}
_STATEMENT_OF = {2: _STATEMENT, 3: _STATEMENT | {"measured": dict}}  # by form of the card
_MEASURED = {"table": int, "entry": object, "sentence": str}
_UNVOIDED = {"releases": int, "released_pixel": float, "source_pixel": float, "why": str}
_VIEW = {"colour": str, "prune": str}
_VIEW_OF = {2: _VIEW, 3: _VIEW | {"size": str}}  # by form of the card
_SIZE = re.compile(r"(?P<most>at most )?(?P<width>[1-9][0-9]{0,8}) x (?P<height>[1-9][0-9]{0,8})(?P<padded>, .*)?")
_RANGE_OF = {2: {}, 3: {"range": str}}  # by form of the card
_PLAN = {"word_bits": int, "epsilon_requested": float, "epsilon_realised": float}
_PLAN |= {"slices": list, "dropped_bits": str, "remark": object}
_LEVEL = {"unit": str, "epsilon": float, "advantage_bound": float, "why": str}
_LEVEL_OF = {2: _LEVEL | {"vacuous": bool}, 3: _LEVEL | {"means": str}}  # by form of the card


def read_statement(content: object, version: int, where: str) -> Statement:
    form = FORMS[version]
    found = fields(content, _STATEMENT_OF[form], {} if form == 2 else {"without_voided": dict}, where=where)
    plan = Plan.from_dict(fields(found["plan"], _PLAN, where=f"{where}.plan"))
    named = dict.fromkeys(SPENT_ON[form], float)
    spent = fields(found["most_spent_on_one_source"], named, where=f"{where}.most_spent_on_one_source")
    unvoided = None
    if "without_voided" in found:
        sums = fields(found["without_voided"], _UNVOIDED, where=f"{where}.without_voided")
        unvoided = (sums["releases"], sums["released_pixel"], sums["source_pixel"])
    view = fields(found["view"], _VIEW_OF[form], _RANGE_OF[form], where=f"{where}.view")
    levels = [fields(level, _LEVEL_OF[form], where=f"{where}.levels[{i}]") for i, level in enumerate(found["levels"])]
    if len(levels) < 4:
        raise CardError(f"{where}.levels has {counted(len(levels), 'level')}; it should have at least 4")
    table = table_version()
    if form > 2:
        table = fields(found["measured"], _MEASURED, where=f"{where}.measured")["table"]
        entries(table)  # raises if this software does not know that version of the table
    pixels = _number_in(levels[3]["why"])
    image = spent.get("image", round_up(Fraction(spent["released_pixel"]) * pixels))  # as version 2 has it in a level
    return Statement(
        plan,
        None if view["prune"] == "none" else view["prune"],
        found["output"] if plan.is_colour else "rgb",
        _read_range(found["width"], f"{where}.width"),
        _read_range(found["height"], f"{where}.height"),
        pixels=pixels,
        dependents=_number_in(levels[2]["why"]),
        count=found["releases"],
        times=found["most_releases_of_one_source"],
        spent=(spent["released_pixel"], spent["source_pixel"], image),
        table=table,
        size=_read_size(view.get("size", "")),
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
