"""Damaged and hostile variants of files: random byte-level edits, and edits of JSON documents."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable
from typing import Any

_NUMBERS = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)
_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, -0.0, 0.1, 1e308, "", "0", "../up.png", "/etc/passwd", "\0"),
    *("x" * 10_000, [], {}, [[]], {"a": {}}, "\ud800", "nan", "0x1", "0xffffffffffffffffff"),
)


def mutate(data: bytes, rng: random.Random, other: bytes = b"") -> bytes:
    """One to four random edits of ``data``; some splice in a part of ``other``."""
    found = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        rng.choice(_EDITS)(found, rng, other)
    return bytes(found)


def _flip_bits(data: bytearray, rng: random.Random, _: bytes) -> None:
    for _ in range(min(len(data), rng.choice((1, 1, 8, 64)))):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _set_number(data: bytearray, rng: random.Random, _: bytes) -> None:
    """Overwrite a length or a count, most often near the beginning, where headers are."""
    if len(data) > 8:
        at = rng.randrange(min(len(data) - 4, rng.choice((64, 512, len(data)))))
        layout = rng.choice((">I", "<I", ">H", "<H", "B"))
        size = struct.calcsize(layout)
        data[at : at + size] = struct.pack(layout, rng.choice(_NUMBERS) & ((1 << 8 * size) - 1))


def _truncate(data: bytearray, rng: random.Random, _: bytes) -> None:
    del data[rng.randrange(len(data) + 1) :]


def _delete(data: bytearray, rng: random.Random, _: bytes) -> None:
    at = rng.randrange(len(data) + 1)
    del data[at : at + rng.choice((1, 4, 100, 1000))]


def _repeat(data: bytearray, rng: random.Random, _: bytes) -> None:
    at = rng.randrange(len(data) + 1)
    data[at:at] = data[at : at + rng.choice((1, 4, 100, 1000))] * rng.choice((1, 3))


def _append(data: bytearray, rng: random.Random, other: bytes) -> None:
    data += rng.choice((bytes(100), rng.randbytes(100), other[:5000]))


def _splice(data: bytearray, rng: random.Random, other: bytes) -> None:
    if other:
        at, start = rng.randrange(len(data) + 1), rng.randrange(len(other))
        data[at : at + 200] = other[start : start + rng.randrange(1, 2000)]


Edit = Callable[[bytearray, random.Random, bytes], None]
_EDITS: tuple[Edit, ...] = (
    _flip_bits,
    _flip_bits,
    _set_number,
    _set_number,
    _truncate,
    _delete,
    _repeat,
    _append,
    _splice,
)


def mutate_json(text: str, rng: random.Random) -> str:
    """A changed JSON document: another value, a removed, added, renamed or repeated key; or changed bytes."""
    if rng.random() < 0.2:
        return mutate(text.encode(), rng).decode("utf-8", "replace")
    content = json.loads(text)
    containers = [one for one in _walk(content) if one]
    if not containers:
        return json.dumps(rng.choice(_VALUES))
    chosen = rng.choice(containers)
    key = rng.choice(list(chosen) if isinstance(chosen, dict) else range(len(chosen)))
    action = rng.choice(("value", "value", "remove", "add", "double"))
    if action == "remove":
        del chosen[key]
    elif action == "add" and isinstance(chosen, dict):
        chosen[f"{key} too"] = rng.choice(_VALUES)
    elif action == "double" and isinstance(chosen, dict):
        written = json.dumps(content)
        name = json.dumps(key)
        return written.replace(f"{name}:", f"{name}: {json.dumps(rng.choice(_VALUES))}, {name}:", 1)
    elif isinstance(chosen[key], int | float) and not isinstance(chosen[key], bool) and rng.random() < 0.5:
        chosen[key] = chosen[key] * rng.choice((0.5, 0.99, 1.01, 2))
    else:
        chosen[key] = rng.choice(_VALUES)
    return json.dumps(content)


def _walk(content: Any) -> list[Any]:
    """Every list and dict of a document."""
    found = []
    if isinstance(content, dict | list):
        found.append(content)
        for one in content.values() if isinstance(content, dict) else content:
            found += _walk(one)
    return found
