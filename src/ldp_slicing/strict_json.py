"""A strict reader of JSON, for cards and manifests that somebody else wrote.

Standard readers accept what two people can read differently, or what nobody looks at: doubled keys, of which the last
counts; NaN; unknown keys. This reader refuses all of it. Tests: tests/test_strict_json.py.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from itertools import takewhile
from types import MappingProxyType
from typing import Any, NoReturn

from ldp_slicing.errors import LdpSlicingError

MOST_DIGITS = 18  # of an integer: below 2^60
NAMES = {dict: "an object", list: "a list", str: "a text", int: "an integer", float: "a number with a decimal point"}
NAMES |= {bool: "true or false"}
NO_FIELDS: Mapping[str, type] = MappingProxyType({})

Difference = tuple[str, Any, Any]  # where in the document, what it says there, what is right


def parse(data: bytes, *, most_bytes: int) -> Any:  # noqa: ANN401 - JSON values
    """Return the value of a JSON document, or raise LdpSlicingError.

    Every key occurs once in its object, numbers are finite, integers have at most 18 digits, and the document has at
    most ``most_bytes`` bytes.
    """
    if len(data) > most_bytes:
        raise LdpSlicingError(f"it has more than {most_bytes:,} bytes")
    try:
        return _DECODER.decode(data.decode("utf-8"))
    except LdpSlicingError:
        raise
    except RecursionError:
        raise LdpSlicingError("it is nested too deeply") from None
    except ValueError as error:
        raise LdpSlicingError(f"it is not JSON: {error}") from None


def fields(
    content: object, required: Mapping[str, type], optional: Mapping[str, type] = NO_FIELDS, *, where: str = ""
) -> dict[str, Any]:
    """Return a JSON object that has all required keys, no others but optional ones, and values of exactly these types.

    Otherwise raise LdpSlicingError. ``where`` is the place of the object in its document.
    """
    found: dict[str, Any] = typed(content, dict, where or "the document")
    for key, value in found.items():
        kind = required.get(key) or optional.get(key)
        if kind is None:
            raise LdpSlicingError(f"there is an unknown key {shown(key)}" + (f" in {where}" if where else ""))
        typed(value, kind, f"{where}.{key}" if where else key)
    for key in required:
        if key not in found:
            raise LdpSlicingError(f"{where or 'the document'} lacks the key {key!r}")
    return found


def typed(value: object, kind: type, where: str) -> Any:  # noqa: ANN401 - JSON values
    """Return the value, which must have exactly this type: True is not an integer, and 20 is not 20.0.

    ``object`` stands for any type.
    """
    if kind is not object and type(value) is not kind:
        raise LdpSlicingError(f"{where} must be {NAMES[kind]}; got {shown(value)}")
    return value


def shown(value: object) -> str:
    """Format a value for a message: at most 60 characters."""
    return _cut(repr(value))


def contrasted(written: object, right: object) -> str:
    """Say that a value is ``written`` and should be ``right``. Long values begin shortly before they differ."""
    are_texts = isinstance(written, str) and isinstance(right, str)
    pair = [str(one) if are_texts else repr(one) for one in (written, right)]
    same = sum(1 for _ in takewhile(lambda two: two[0] == two[1], zip(*pair, strict=False)))
    if same > 30:
        pair = [f"...{text[same - 20 :]}" for text in pair]
    said, meant = (_cut(repr(text) if are_texts else text) for text in pair)
    return f"is {said}; it should be {meant}"


def _cut(text: str) -> str:
    """Cut a text in quotes or brackets to 60 characters, and close it."""
    return text if len(text) <= 60 else f"{text[:56]}...{text[-1]}"


def differences(written: Any, right: Any, where: str = "") -> Iterator[Difference]:  # noqa: ANN401 - JSON values
    """Yield every place where a JSON value differs from what it should be."""
    if isinstance(right, dict) and isinstance(written, dict) and right.keys() == written.keys():
        for key, value in right.items():
            yield from differences(written[key], value, f"{where}.{key}" if where else key)
    elif isinstance(right, list) and isinstance(written, list) and len(right) == len(written):
        for i, value in enumerate(right):
            yield from differences(written[i], value, f"{where}[{i}]")
    elif type(written) is not type(right) or written != right:
        yield where, written, right


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict[str, Any]()
    for key, value in pairs:
        if key in found:
            raise LdpSlicingError(f"the key {shown(key)} occurs twice")
        found[key] = value
    return found


def _integer(text: str) -> int:
    if len(text) > MOST_DIGITS:
        raise LdpSlicingError(f"the integer {text[:20]}... has more than {MOST_DIGITS} digits")
    return int(text)


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise LdpSlicingError(f"the number {text[:20]} is too large")
    return value


def _not_a_number(text: str) -> NoReturn:
    raise LdpSlicingError(f"{text} is not a number in JSON")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_unique, parse_int=_integer, parse_float=_finite, parse_constant=_not_a_number
)
