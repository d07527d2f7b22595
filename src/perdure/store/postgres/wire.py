"""PostgreSQL's binary form of the few kinds of values that we bind and read.

Values go as they are, without escapes: content is never part of a statement. A text that holds U+0000, which PostgreSQL can't keep,
is escaped with a character of the private use area, and read back as it was.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from ...core.errors import StoreCorrupt

__all__ = ["BOOL", "BOOLS", "BYTEA", "INT8", "INT8S", "TEXT", "TEXTS", "Shape", "array", "bind", "composite", "escape", "read", "unescape"]

_int8 = struct.Struct(">q")
_count = struct.Struct(">i")
_field = struct.Struct(">Ii")
_dimension = struct.Struct(">iiIii")
_empty = struct.Struct(">iiI")
_NULL = b"\xff\xff\xff\xff"

_ESCAPE = "\ue000"

Encode = Callable[[Any], bytes]


class Shape(NamedTuple):
    """A kind of value: its number in this database, that of arrays of it, and how one is written."""

    oid: int
    array_oid: int
    encode: Encode


def escape(value: str) -> str:
    """A text without U+0000."""
    if "\x00" in value or _ESCAPE in value:
        return value.replace(_ESCAPE, _ESCAPE * 2).replace("\x00", f"{_ESCAPE}0")
    return value


def unescape(value: str) -> str:
    """The text that `escape` was given."""
    if _ESCAPE in value:
        return _ESCAPE.join(part.replace(f"{_ESCAPE}0", "\x00") for part in value.split(_ESCAPE * 2))
    return value


INT8 = Shape(20, 1016, _int8.pack)
TEXT = Shape(25, 1009, lambda value: escape(value).encode())
BYTEA = Shape(17, 1001, bytes)
BOOL = Shape(16, 1000, lambda value: b"\x01" if value else b"\x00")


def array(of: Shape) -> Shape:
    """A list of values of one kind."""
    oid, encode = of.oid, of.encode

    def write(values: Sequence[Any]) -> bytes:
        if not values:
            return _empty.pack(0, 0, oid)
        parts = [_dimension.pack(1, 0, oid, len(values), 1)]
        for value in values:
            raw = encode(value)
            parts += (_count.pack(len(raw)), raw)
        return b"".join(parts)

    return Shape(of.array_oid, 0, write)


def composite(oid: int, array_oid: int, fields: Iterable[Shape]) -> Shape:
    """A row of values, as a tuple."""
    kinds = tuple((field.oid, field.encode) for field in fields)
    head = _count.pack(len(kinds))
    nulls = tuple(struct.pack(">I", number) + _NULL for number, _ in kinds)

    def write(values: Sequence[Any]) -> bytes:
        parts = [head]
        for value, (number, encode), null in zip(values, kinds, nulls, strict=True):
            if value is None:
                parts.append(null)
            else:
                raw = encode(value)
                parts += (_field.pack(number, len(raw)), raw)
        return b"".join(parts)

    return Shape(oid, array_oid, write)


def bind(value: Any) -> bytes | None:
    """A parameter. The statement says which kind it is; what was written by a `Shape` goes as it is."""
    match value:
        case None:
            return None
        case bool():
            return BOOL.encode(value)
        case int():
            return _int8.pack(value)
        case str():
            return escape(value).encode()
        case bytes():
            return value
        case _:
            raise AssertionError(f"{type(value)} is no parameter")


TEXTS = array(TEXT)
INT8S = array(INT8)
BOOLS = array(BOOL)

FIRST_OF_OURS = 16384
"""Types with a smaller number are PostgreSQL's; the only ones that we make are rows."""


def _row(raw: bytes) -> tuple[Any, ...]:
    (count,) = _count.unpack_from(raw)
    values: list[Any] = []
    at = _count.size
    for _ in range(count):
        oid, size = _field.unpack_from(raw, at)
        at += _field.size
        if size < 0:
            values.append(None)
        else:
            values.append(_reader(oid)(raw[at : at + size]))
            at += size
    if at != len(raw):
        raise _changed("a row is none")
    return tuple(values)


def _reader(oid: int) -> Callable[[bytes], Any]:
    reader = _READERS.get(oid) if oid < FIRST_OF_OURS else _row
    if reader is None:
        raise _changed(f"a value has an unknown kind: {oid}")
    return reader


def _changed(what: str) -> StoreCorrupt:
    return StoreCorrupt(what, hint="somebody changed the schema")


_READERS: dict[int, Callable[[bytes], Any]] = {
    INT8.oid: lambda raw: _int8.unpack(raw)[0],
    TEXT.oid: lambda raw: unescape(raw.decode()),
    BYTEA.oid: bytes,
    BOOL.oid: lambda raw: raw == b"\x01",
    # A function that returns nothing.
    2278: lambda raw: None,
}


def read(result: Any) -> list[tuple[Any, ...]]:
    """The rows of a result. Raises `StoreCorrupt` for values of kinds that we have none of."""
    columns = range(result.nfields)
    readers = [_reader(result.ftype(column)) for column in columns]
    get = result.get_value
    rows = []
    for row in range(result.ntuples):
        values = []
        for column in columns:
            raw = get(row, column)
            values.append(None if raw is None else readers[column](raw))
        rows.append(tuple(values))
    return rows
