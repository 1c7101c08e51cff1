"""Thrift's compact protocol, as far as Parquet files use it: decode and encode a structure.

A structure is a dict of field numbers to ``Field``. Encoding gives one form for each content.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ldp_slicing.errors import ImageError

_TRUE, _FALSE, _BYTE, _INTEGERS, _DOUBLE, _BINARY, _LISTS, STRUCT = 1, 2, 3, (4, 5, 6), 7, 8, (9, 10), 12
_MAX_DEPTH = 32


class Field(NamedTuple):
    """A value and its type in Thrift. A list has a list of fields; a structure has a dict of them."""

    kind: int
    value: Any


class _Decoder:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, size: int) -> bytes:
        if size > len(self.data) - self.at:
            raise ImageError("has a damaged footer")
        self.at += size
        return self.data[self.at - size : self.at]

    def varint(self) -> int:
        value = shift = 0
        while (byte := self.take(1)[0]) & 0x80:
            value |= (byte & 0x7F) << shift
            shift += 7
            if shift > 63:
                raise ImageError("has a damaged footer")
        return value | byte << shift

    def value(self, kind: int, depth: int) -> Any:  # noqa: ANN401
        if depth > _MAX_DEPTH:
            raise ImageError("has a damaged footer")
        if kind in (_TRUE, _FALSE, _BYTE):  # as an element of a list; a field has its truth value in its type
            return self.take(1)
        if kind in _INTEGERS:
            return self.varint()  # left as it is written, "zigzag"
        if kind in (_DOUBLE, _BINARY):
            return self.take(8 if kind == _DOUBLE else self.varint())
        if kind in _LISTS:
            head = self.take(1)[0]
            count = head >> 4 if head >> 4 < 15 else self.varint()
            if count > len(self.data):
                raise ImageError("has a damaged footer")
            return [Field(head & 15, self.value(head & 15, depth + 1)) for _ in range(count)]
        if kind == STRUCT:
            return self.structure(depth)
        raise ImageError("has a footer with a type that Parquet does not use")

    def structure(self, depth: int = 0) -> dict[int, Field]:
        fields, number = dict[int, Field](), 0
        while head := self.take(1)[0]:
            kind = head & 15
            number = number + (head >> 4) if head >> 4 else self.varint() >> 1
            fields[number] = Field(kind, None if kind in (_TRUE, _FALSE) else self.value(kind, depth + 1))
        return fields


def decode(data: bytes) -> dict[int, Field]:
    """Return the structure at the beginning of ``data``. Raises ImageError if it is damaged."""
    return decode_first(data)[0]


def decode_first(data: bytes) -> tuple[dict[int, Field], int]:
    """Return the structure at the beginning of ``data``, and its length in bytes."""
    decoder = _Decoder(data)
    return decoder.structure(), decoder.at


def encode(fields: dict[int, Field]) -> bytes:
    """Return the one encoding of a structure."""
    made, last = bytearray(), 0
    for number, field in sorted(fields.items()):
        if 0 < number - last < 16:
            made.append((number - last) << 4 | field.kind)
        else:
            made += bytes([field.kind]) + _varint(number << 1)
        made += b"" if field.value is None else _encode_value(field)
        last = number
    return bytes(made) + b"\0"


def _varint(value: int) -> bytes:
    made = bytearray()
    while value > 0x7F:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*made, value])


def _encode_value(field: Field) -> bytes:
    kind, value = field
    if kind in _INTEGERS:
        return _varint(value)
    if kind == _BINARY:
        return _varint(len(value)) + bytes(value)
    if kind in _LISTS:
        element = value[0].kind if value else STRUCT
        head = bytes([len(value) << 4 | element]) if len(value) < 15 else bytes([0xF0 | element]) + _varint(len(value))
        return head + b"".join(_encode_value(one) for one in value)
    return encode(value) if kind == STRUCT else bytes(value)


def text(value: bytes) -> Field:
    """Return a field that holds text or bytes."""
    return Field(_BINARY, value)


def signed(value: int) -> int:
    """Return the integer that is written as ``value``, "zigzag"."""
    return value >> 1 ^ -(value & 1)
