"""Cursors that ask, before each statement that they begin, whether they still may."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import psycopg

from ...core.errors import TransactionLost

__all__ = ["NamedCursor", "PlainCursor", "watched"]

_ROLLBACK = re.compile(r"(?:^|;)\s*(?:rollback|abort)\b(?!\s+(?:(?:work|transaction)\s+)?to\b)", re.IGNORECASE)

C = TypeVar("C", bound="PlainCursor")


class PlainCursor(psycopg.Cursor[Any]):
    """``may_begin`` raises if nothing may begin any more."""

    may_begin: Callable[[], None]

    def execute(self, query: Any, *arguments: Any, **options: Any) -> Any:
        self.may_begin()
        self._leaves_open(query)
        with self._noticed():
            return super().execute(query, *arguments, **options)

    def executemany(self, query: Any, params_seq: Iterable[Any], **options: Any) -> None:
        with self._noticed():
            super().executemany(query, self._in_time(params_seq), **options)

    def stream(self, query: Any, *arguments: Any, **options: Any) -> Any:
        self.may_begin()
        self._leaves_open(query)
        return super().stream(query, *arguments, **options)

    def copy(self, *arguments: Any, **options: Any) -> Any:
        self.may_begin()
        return super().copy(*arguments, **options)

    @contextmanager
    def _noticed(self) -> Iterator[None]:
        """That the server ended a statement for its time is known, even if the function goes on."""
        try:
            yield
        except psycopg.errors.QueryCanceled:
            with suppress(TransactionLost):
                self.may_begin()
            raise

    def _leaves_open(self, query: Any) -> None:
        text = query.as_string(self) if isinstance(query, psycopg.sql.Composable) else query
        if _ROLLBACK.search(text.decode(errors="replace") if isinstance(text, bytes) else str(text)):
            # The server refuses the other end of a transaction, and this one to nobody.
            raise TransactionLost("the function asked to end the transaction that it runs in", hint="raise, and it is rolled back")

    def _in_time(self, parameters: Iterable[Any]) -> Iterator[Any]:
        for each in parameters:
            self.may_begin()
            yield each


class NamedCursor(PlainCursor, psycopg.ServerCursor[Any]):
    """Each fetch is a statement, too."""

    def _fetch_gen(self, num: int | None) -> Any:
        self.may_begin()
        return super()._fetch_gen(num)


def watched(kind: type[C], may_begin: Callable[[], None]) -> Any:
    """What stands for the class of a connection's cursors."""

    def made(*arguments: Any, **options: Any) -> C:
        cursor = kind(*arguments, **options)
        cursor.may_begin = may_begin
        return cursor

    return made
