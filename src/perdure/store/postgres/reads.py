"""What changes nothing: each a statement, which sees what was committed before it was asked for."""

from __future__ import annotations

from collections.abc import Sequence

from ...core import canonical
from ...core.errors import StoreCorrupt
from ...core.journal import GENESIS, Sealed
from ...core.records import Pool
from .. import rules
from ..base import EffectRow, InboxRow, Loaded, News, Runner, SessionQuery, SessionRow, StoredBlob
from ..figures import COUNTED, PARKED, Figures
from ..pools import OwnersPool, Share
from . import shapes
from .database import LONG, Database
from .line import Line
from .wire import INT8S, TEXTS

__all__ = [
    "blob",
    "blobs",
    "buried",
    "cursor",
    "cursors",
    "effects",
    "entries",
    "figures",
    "heads",
    "inbox",
    "load",
    "news",
    "next_wake",
    "outside",
    "place",
    "pool",
    "pools",
    "runnable",
    "runners",
    "seek",
    "sessions",
    "strays",
    "submission",
    "submissions",
    "tree",
]

LAST = 2**63 - 1


def load(line: Line, database: Database, session_id: str, hidden: bool) -> Loaded | None:
    for row in line.run("load", session_id, hidden, database.given()):
        *columns, chain, number, alive, now, owned = row
        database.told(now)
        pool = None if owned is None else shapes.pool(owned)
        found = shapes.session(tuple(columns))
        now = max(now, database.now())
        return Loaded(row=found, chain=chain or GENESIS, number=number or 0, holder_alive=alive, now=now, pool=pool)
    return None


def pool(line: Line, owner: str) -> Pool | None:
    return next((shapes.pool(row) for row in line.run("pool_get", owner)), None)


def share(line: Line, no: int) -> Share | None:
    return next((shapes.share(row) for row in line.run("share_get", no)), None)


def pools(line: Line, after: str, limit: int) -> list[OwnersPool]:
    return [OwnersPool(owner=owner, pool=shapes.pool(tuple(rest))) for owner, *rest in line.run("pools", after, limit)]


def buried(line: Line, session_id: str) -> bool:
    return bool(line.run("buried", session_id)[0][0])


def tree(line: Line, root: str) -> list[SessionRow]:
    return [shapes.session(row) for row in line.run("tree", root)]


def heads(line: Line, after: int, limit: int) -> list[SessionRow]:
    return [shapes.session(row) for row in line.run("heads", after, limit)]


def strays(line: Line, limit: int) -> list[int]:
    # It looks at every row, as whoever audits a store does anyway.
    return [no for (no,) in line.run("strays", limit, timeout=LONG)]


def runners(line: Line, database: Database) -> list[Runner]:
    found = []
    for name, host, pid, started, expires, told_agents, told_refused, alive in line.run("runners", database.given()):
        agents, refused = rules.decode_told(told_agents, told_refused)
        found.append(Runner(id=name, host=host, pid=pid, started=started, expires=expires, agents=agents, refused=refused, alive=alive))
    return found


def runnable(line: Line, database: Database, limit: int, agents: Sequence[str] | None, left: bool) -> list[str]:
    wanted = None if agents is None else TEXTS.encode(agents)
    return [session_id for (session_id,) in line.run("runnable", database.given(), wanted, limit, left)]


def figures(line: Line, database: Database) -> Figures:
    ((now, *found),) = line.run("figures", database.given(), COUNTED)
    parked = dict(line.run("figures_parked", TEXTS.encode(PARKED), COUNTED))
    return Figures.of(now, found, parked, line.run("figures_working", COUNTED))


def next_wake(line: Line, after: int) -> int | None:
    found: int | None = line.run("next_wake", after)[0][0]
    return found


def inbox(line: Line, no: int) -> list[InboxRow]:
    return [shapes.inbox(row) for row in line.run("inbox_waiting", no)]


def submission(line: Line, no: int, submission_id: str) -> InboxRow | None:
    return next((shapes.inbox(row) for row in line.run("inbox_one", no, submission_id)), None)


def submissions(line: Line, no: int, after: str, limit: int) -> list[InboxRow]:
    return [shapes.inbox(row) for row in line.run("inbox_page", no, after, limit)]


def entries(
    line: Line, no: int, after: int, before: int | None, kinds: list[str] | None, limit: int | None, newest_first: bool
) -> list[Sealed]:
    name = "entries_newest_first" if newest_first else "entries"
    wanted = None if kinds is None else TEXTS.encode(kinds)
    end = LAST if before is None else before
    return [Sealed(*row) for row in line.run(name, no, after, end, None if limit is None else max(0, limit), wanted)]


def spans(line: Line, no: int, wanted: Sequence[tuple[int, int]], kinds: list[str] | None, limit: int | None) -> list[Sealed]:
    found: list[Sealed] = []
    for after, before in wanted:
        if limit is not None and len(found) >= limit:
            break
        found += entries(line, no, after, before, kinds, None if limit is None else limit - len(found), False)
    return found


def seek(line: Line, no: int, numbers: Sequence[int]) -> list[int | None]:
    return [found for (found,) in line.run("seek", no, INT8S.encode(numbers))]


def effects(line: Line, no: int, key: bytes, state: str | None, after: int) -> list[EffectRow]:
    rows = line.run("effects", no, key, rules.behind(key), state, after)
    return [EffectRow(effect_key=found, seq=seq, state=stored) for found, seq, stored in rows]


def sessions(line: Line, query: SessionQuery) -> list[SessionRow]:
    updated, no = query.before or (LAST, LAST)
    values = (
        no,
        -LAST if query.since is None else query.since,
        LAST if query.until is None else query.until,
        query.owner,
        query.agent,
        query.archived,
        TEXTS.encode(query.status) if query.status else None,
        TEXTS.encode([rules.pattern(word.casefold()) for word in query.words]) if query.words else None,
        shapes.labels(query.labels) if query.labels else None,
        max(0, query.limit),
    )
    if query.order == "created":
        rows = line.run("sessions_created", *values, query.children)
    else:
        rows = line.run("sessions_updated", *values, updated, query.children)
    return [shapes.listed(row) for row in rows]


def blob(line: Line, root: str, digest: str) -> StoredBlob | None:
    for found, media_type, data, size in line.run("blob_get", root, digest):
        if data is None:
            raise rules.elsewhere(digest, media_type, size)
        if canonical.digest(data) != digest or len(data) != size:
            raise StoreCorrupt(f"blob {digest} was altered", hint="run `perdure verify`")
        return StoredBlob(digest=found, media_type=media_type, data=data)
    return None


def outside(line: Line, digests: Sequence[str]) -> set[str]:
    return {digest for (digest,) in line.run("blobs_outside", TEXTS.encode(digests))}


def blobs(line: Line, root: str) -> list[str]:
    return [digest for (digest,) in line.run("blobs", root)]


def place(line: Line) -> str:
    known: bytes = dict(line.run("meta")).get("place", b"")
    return known.decode()


def cursor(line: Line, no: int, consumer: str) -> int:
    return next((seq for (seq,) in line.run("cursor_get", no, consumer)), 0)


def cursors(line: Line, no: int) -> list[tuple[str, int]]:
    return [(consumer, seq) for consumer, seq in line.run("cursors", no)]


def news(line: Line, consumer: str, after: int, limit: int, no: int | None) -> list[News]:
    first, last = (after, LAST) if no is None else (max(after, no - 1), no)
    return [News(*row) for row in line.run("news", consumer, first, last, limit)]
