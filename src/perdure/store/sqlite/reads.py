"""The reads: on connections of their own, in threads of their own, so that no writer is waited for and the loop goes on."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice, starmap
from typing import Any, TypeVar

import apsw
import msgspec

from ...core import canonical
from ...core.errors import StoreCorrupt
from ...core.journal import GENESIS, Sealed
from ...core.records import Pool
from .. import rules
from ..base import EffectRow, InboxRow, Loaded, News, Runner, SessionQuery, SessionRow, StoredBlob, UniqueRow
from ..figures import COUNTED, PARKED, Figures
from ..pools import OwnersPool, Share
from . import rows
from .database import Database, translate
from .sql import QUERIES

__all__ = ["Reader"]

T = TypeVar("T")

NO_LIMIT = -1
LAST = 2**63 - 1


class Reader:
    """Statements that change nothing. Each sees what was committed before it was asked for."""

    def __init__(self, database: Database, threads: int) -> None:
        self._database = database
        self._local = threading.local()
        self._connecting = threading.Lock()
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="perdure-reader")

    async def run(self, read: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._guarded, read, arguments)

    def shut(self) -> None:
        """Wait for the reads that have begun."""
        self._pool.shutdown()

    def _guarded(self, read: Callable[..., T], arguments: tuple[Any, ...]) -> T:
        with self._reading():
            return read(*arguments)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        self._database.check_place()
        try:
            yield
        except apsw.Error as error:
            raise translate(error, "reading") from error
        except (UnicodeError, msgspec.MsgspecError, AttributeError, TypeError) as error:
            raise StoreCorrupt(f"a row holds what can't be read: {error}", hint="run `perdure verify`") from error

    def _rows(self, name: str, values: Any = None) -> Any:
        connection: apsw.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            with self._connecting:
                connection = self._local.connection = self._database.connect_reader()
        return connection.execute(QUERIES[name], values)

    def _one(self, name: str, values: Any = None) -> Any:
        return self._rows(name, values).fetchone()

    def _alive(self, runner: str, now: int) -> bool:
        row = self._one("runner_one", {"id": runner})
        return row is not None and row[0] > now and not self._database.lives.ended(runner)

    def load(self, session_id: str, now: int, hidden: bool) -> Loaded | None:
        found = self._one("load", {"session_id": session_id, "hidden": hidden})
        if found is None:
            return None
        *columns, chain, number = found
        row = rows.session(columns)
        alive = row.holder is not None and self._alive(row.holder, now)
        pool = self.pool(row.owner) if row.owner else None
        return Loaded(row=row, chain=chain or GENESIS, number=number or 0, holder_alive=alive, now=now, pool=pool)

    def pool(self, owner: str) -> Pool | None:
        found = self._one("pool_get", {"owner": owner})
        return None if found is None else rows.pool(found)

    def share(self, no: int) -> Share | None:
        found = self._one("share_get", {"no": no})
        return None if found is None else rows.share(found)

    def pools(self, after: str, limit: int) -> list[OwnersPool]:
        found = self._rows("pools", {"after": after, "limit": limit})
        return [OwnersPool(owner=owner, pool=rows.pool(rest)) for owner, *rest in found]

    def buried(self, session_id: str) -> bool:
        return self._one("buried", {"session_id": session_id}) is not None

    def tree(self, root: str) -> list[SessionRow]:
        return [rows.session(row) for row in self._rows("tree", {"root": root})]

    def runners(self, now: int) -> list[Runner]:
        found = []
        for name, host, pid, started, expires, *told in self._rows("runners").fetchall():
            alive = expires > now and not self._database.lives.ended(name)
            agents, refused = rules.decode_told(*told)
            found.append(Runner(id=name, host=host, pid=pid, started=started, expires=expires, agents=agents, refused=refused, alive=alive))
        return found

    def runnable(self, limit: int, agents: list[str] | None, left: bool, now: int) -> list[str]:
        wanted = None if agents is None else rows.names(agents)
        values = {"now": now, "limit": limit, "agents": wanted, "left": left, "alive": self._living(now)}
        return [session_id for (session_id,) in self._rows("runnable", values)]

    def _living(self, now: int) -> str:
        # Only what it takes: a runner's row that can't be read in other respects must not keep anybody from working.
        found = self._rows("runners_living", {"now": now}).fetchall()
        return rows.names([name for (name,) in found if not self._database.lives.ended(name)])

    def figures(self, now: int) -> Figures:
        values = {"now": now, "limit": COUNTED, "alive": self._living(now)}
        parked = {status: self._one("figures_parked", {"status": status, "limit": COUNTED})[0] for status in PARKED}
        return Figures.of(now, self._one("figures", values), parked, self._rows("figures_working", {"limit": COUNTED}))

    def next_wake(self, after: int) -> int | None:
        found: int | None = self._one("next_wake", {"after": after})[0]
        return found

    def inbox(self, no: int) -> list[InboxRow]:
        return [rows.inbox(row) for row in self._rows("inbox_waiting", {"no": no})]

    def submission(self, no: int, submission_id: str) -> InboxRow | None:
        row = self._one("inbox_one", {"no": no, "submission_id": submission_id})
        return None if row is None else rows.inbox(row)

    def entries(
        self, no: int, after: int, before: int | None, kinds: list[str] | None, limit: int | None, newest_first: bool
    ) -> list[Sealed]:
        return [Sealed(*row) for row in self._entries(no, after, before, kinds, limit, newest_first)]

    async def scan(
        self,
        take: Callable[[Iterable[Sealed]], T],
        no: int,
        spans: Sequence[tuple[int, int]],
        kinds: list[str] | None,
        limit: int | None,
    ) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._scan, take, no, spans, kinds, limit)

    def _scan(
        self,
        take: Callable[[Iterable[Sealed]], T],
        no: int,
        spans: Sequence[tuple[int, int]],
        kinds: list[str] | None,
        limit: int | None,
    ) -> T:
        opened: list[Any] = []

        def rows() -> Iterator[Sealed]:
            # Around the reading alone: what goes wrong in `take` is no damaged row.
            with self._reading():
                for after, before in spans:
                    opened.append(self._entries(no, after, before, kinds, limit, False))
                    yield from starmap(Sealed, opened[-1])

        try:
            return take(islice(rows(), limit))
        finally:
            # Whoever has enough must not leave a read transaction behind.
            for cursor in opened:
                cursor.close()

    def _entries(self, no: int, after: int, before: int | None, kinds: list[str] | None, limit: int | None, newest_first: bool) -> Any:
        name = ("entries" if kinds is None else "entries_of_kinds") + ("_newest_first" if newest_first else "")
        values: dict[str, Any] = {
            "no": no,
            "after": after,
            "before": LAST if before is None else before,
            "limit": NO_LIMIT if limit is None else max(0, limit),
        }
        if kinds is not None:
            values["kinds"] = rows.names(kinds)
        return self._rows(name, values)

    def seek(self, no: int, numbers: Sequence[int]) -> list[int | None]:
        last = self._one("entry_last", {"no": no})
        return [None if last is None or last[1] < number else self._seek(no, number, *last) for number in numbers]

    def _seek(self, no: int, number: int, last: int, count: int) -> int:
        # Each message that follows is an entry, too, but for those that a fork's second entry takes over.
        low, high = 1, min(last, max(2, last - (count - number)))
        while low < high:
            middle = (low + high) // 2
            found = self._one("entry_number", {"no": no, "seq": middle})
            if found is None and self._one("head", (no,))[6] != "deleted":
                raise StoreCorrupt(f"entry {middle} is missing", hint="run `perdure verify`")
            # Of a deleted session the beginning is left, and single entries behind it.
            if found is not None and found[0] < number:
                low = middle + 1
            else:
                high = middle
        return low

    def effects(self, no: int, key: bytes, state: str | None, after: int) -> list[EffectRow]:
        values = {"no": no, "low": key, "high": rules.behind(key), "state": state, "after": after}
        return [EffectRow(effect_key=found, seq=seq, state=stored) for found, seq, stored in self._rows("effects", values)]

    def unique(self, key: str) -> UniqueRow | None:
        return next((rows.unique(row) for row in self._rows("unique_one", {"key": key})), None)

    def uniques(self, no: int) -> list[UniqueRow]:
        return [rows.unique(row) for row in self._rows("uniques", {"no": no})]

    def sessions(self, query: SessionQuery) -> list[SessionRow]:
        updated, no = query.before or (LAST, LAST)
        values = {
            "no": no,
            "since": -LAST if query.since is None else query.since,
            "until": LAST if query.until is None else query.until,
            "owner": query.owner,
            "agent": query.agent,
            "archived": query.archived,
            "children": query.children,
            "statuses": rows.names(query.status) if query.status else None,
            "words": rows.names([word.casefold() for word in query.words]) if query.words else None,
            "like": rows.likely(query.words) if query.words else None,
            "labels": rows.labels(query.labels) if query.labels else None,
            "label": rows.fragment(query.labels) if query.labels else None,
            "limit": max(0, query.limit),
        }
        if query.order == "created":
            found = self._rows("sessions_created", values)
        else:
            found = self._rows("sessions_updated", {**values, "updated": updated})
        return [self._listed(number) for (number,) in found.fetchall()]

    def _listed(self, no: int) -> SessionRow:
        """One row of a list, or what can be said of it."""
        try:
            return rows.listed(self._one("session_by_no", {"no": no}))
        except (UnicodeError, msgspec.MsgspecError, apsw.Error) as error:
            return rows.broken(no, self._one("session_broken", {"no": no}), str(error))

    def blob(self, root: str, digest: str) -> StoredBlob | None:
        row = self._one("blob_get", {"root": root, "digest": digest})
        if row is None:
            return None
        if row[2] is None:
            raise rules.elsewhere(digest, row[1], row[3])
        blob = StoredBlob(digest=row[0], media_type=row[1], data=row[2])
        if canonical.digest(blob.data) != digest or len(blob.data) != row[3]:
            raise StoreCorrupt(f"blob {digest} was altered", hint="run `perdure verify`")
        return blob

    def outside(self, digests: Sequence[str]) -> set[str]:
        return {digest for (digest,) in self._rows("blobs_outside", {"digests": rows.names(tuple(digests))})}

    def blobs(self, root: str) -> list[str]:
        return [digest for (digest,) in self._rows("blobs", {"root": root})]

    def place(self) -> str:
        row = self._one("meta_get", {"key": "place"})
        return "" if row is None else row[0]

    def cursor(self, no: int, consumer: str) -> int:
        row = self._one("cursor_get", {"no": no, "consumer": consumer})
        return 0 if row is None else row[0]

    def news(self, consumer: str, after: int, limit: int, no: int | None) -> list[News]:
        first, last = (after, LAST) if no is None else (max(after, no - 1), no)
        return [News(*row) for row in self._rows("news", {"consumer": consumer, "after": first, "last": last, "limit": limit})]

    def heads(self, after: int, limit: int) -> list[SessionRow]:
        return [rows.session(row) for row in self._rows("heads", {"after": after, "limit": limit})]

    def strays(self, limit: int) -> list[int]:
        return [no for (no,) in self._rows("strays", {"limit": limit})]

    def submissions(self, no: int, after: str, limit: int) -> list[InboxRow]:
        return [rows.inbox(row) for row in self._rows("inbox_page", {"no": no, "after": after, "limit": limit})]

    def cursors(self, no: int) -> list[tuple[str, int]]:
        return [(consumer, seq) for consumer, seq in self._rows("cursors", {"no": no})]
