"""One byte form for every record: what is hashed, stored and compared."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from typing import Any, TypeGuard, get_args

import msgspec

from .errors import NotCanonical

__all__ = ["MAX_DEPTH", "MAX_INTEGER", "as_text", "check", "decode", "digest", "encode", "is_whole", "known", "length", "short_digest"]

MAX_INTEGER = 2**53
"""The largest integer that every JSON reader keeps exactly."""

MAX_DEPTH = 128
"""How deep values may be nested, so that whoever reads them back can."""

_unsorted = msgspec.json.Encoder()

encode: Callable[[Any], bytes] = msgspec.json.Encoder(order="sorted").encode
"""The canonical bytes of a record whose free-form values have passed `check`."""

decode: Callable[[bytes], Any] = msgspec.json.Decoder().decode
"""Plain values from canonical bytes."""


def length(value: Any) -> int:
    """How many bytes `encode` makes of a record: the order of its fields makes no difference."""
    return len(_unsorted.encode(value))


def as_text(value: Any) -> str:
    """A free-form value as text: itself if it is one, else its canonical JSON."""
    return value if isinstance(value, str) else encode(value).decode()


def digest(data: bytes) -> str:
    """SHA-256 as 64 hexadecimal characters."""
    return hashlib.sha256(data).hexdigest()


def short_digest(*fields: str | int) -> str:
    """SHA-256 over a list of fields, unambiguous whatever they contain."""
    return digest(encode(list(fields)))


def is_whole(value: object, least: int, most: int = MAX_INTEGER) -> TypeGuard[int]:
    """Whether it is a whole number in these bounds; True and False are none."""
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def known(word: object, words: Any) -> Any:
    """The very object that a word of a ``Literal`` is in this program, or None: msgspec omits a default only then, and stored bytes must
    not depend on it."""
    return next((known for known in get_args(words) if known == word), None)


class _Unfit(Exception):
    """What JSON can't hold, and where: the way to it, from the inside out. Most values are fit, so no way is written down before."""

    def __init__(self, problem: str, hint: str, *, short: bool = False) -> None:
        super().__init__(problem)
        self.problem = problem
        self.hint = hint
        self.short = short
        self.is_key = False
        self.way: list[str] = []

    def told(self, where: str) -> NotCanonical:
        """The same for whoever gave the value, which they know as ``where``."""
        where += "".join(reversed(self.way))
        where = f"{where[:80]}…" if self.short else f"a key of {where}" if self.is_key else where
        return NotCanonical(f"{where} {self.problem}", hint=self.hint)


def check(value: Any, where: str = "value") -> Any:
    """Return ``value`` as plain JSON data, or raise `NotCanonical` and say which part JSON can't hold.

    NaN and infinities have no JSON form, and integers beyond ±2⁵³ change in other readers; keys must be strings.
    """
    try:
        return _plain(value, 0)
    except _Unfit as unfit:
        raise unfit.told(where) from None


def _plain(value: Any, depth: int) -> Any:
    if depth > MAX_DEPTH:
        raise _Unfit(f"is nested deeper than {MAX_DEPTH} levels", "keep less structure in one value", short=True)
    if type(value) is str and value.isascii():
        # Most values and all keys; the rest of the way is several times as long.
        return value
    match value:
        case None | bool():
            return value
        case str():
            try:
                value.encode()
            except UnicodeEncodeError:
                raise _Unfit("holds text that is not valid Unicode", "replace lone surrogates") from None
            return str.__str__(value)
        case int():
            if not -MAX_INTEGER <= value <= MAX_INTEGER:
                raise _Unfit("is an integer beyond ±2^53", "pass it as a string")
            return int(value)
        case float():
            if not math.isfinite(value):
                raise _Unfit(f"is {value}, which JSON can't hold", "use null or a string")
            return float(value)
        case dict():
            return _plain_object(value, depth)
        case list() | tuple():
            items: list[Any] = []
            try:
                for item in value:
                    # Not all at once: how many there are says which one is unfit.
                    items.append(_plain(item, depth + 1))
            except _Unfit as unfit:
                unfit.way.append(f"[{len(items)}]")
                raise
            return items
        case _:
            raise _Unfit(f"is of the type {type(value).__name__}, which JSON can't hold", "return plain data")


def _plain_object(value: dict[Any, Any], depth: int) -> dict[str, Any]:
    plain: dict[str, Any] = {}
    for key, item in value.items():
        name = key if type(key) is str and key.isascii() else _plain_key(key)
        try:
            plain[name] = _plain(item, depth + 1)
        except _Unfit as unfit:
            unfit.way.append(f".{key}")
            raise
    return plain


def _plain_key(key: Any) -> str:
    if not isinstance(key, str):
        raise _Unfit(f"has a key that is not a string: {key!r}", "use string keys")
    try:
        plain: str = _plain(key, 0)
    except _Unfit as unfit:
        unfit.is_key = True
        raise
    return plain
