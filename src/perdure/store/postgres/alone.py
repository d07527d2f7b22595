"""The writes that share no statement with others: rare ones, long ones, and those in which somebody else's statements run.

All but `vacuum` may run again after their answer was lost: the store knows what it has.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, TypeVar

from ...core.errors import StoreBroken, TransactionLost
from ...core.records import Limits, Pool
from .. import rules
from ..base import (
    Adopted,
    Adoption,
    Catalogue,
    Commit,
    CommitAnswer,
    Committed,
    Created,
    Held,
    IdTaken,
    InboxMoved,
    NewSession,
    NoSession,
    OutsideBlob,
    ParentRedacted,
    Run,
    Runner,
    Stale,
    StoredBlob,
)
from ..pools import changed
from . import reads, shapes
from .answers import Answer, committed
from .database import LONG, Database
from .line import Line, Lost
from .wire import INT8S, TEXTS
from .within import run_within

__all__ = [
    "ack",
    "adopt",
    "change_pool",
    "claim",
    "commit",
    "commit_within",
    "create",
    "delete",
    "end_runners",
    "forget",
    "free",
    "heartbeat",
    "put_blob",
    "release",
    "remove_pool",
    "retire",
    "take_place",
    "vacuum",
]

T = TypeVar("T")

FORGOTTEN_AFTER = 24 * 3600 * 1000
"""How long a dead runner's row stays to be seen (ms)."""

VACUUM_PAUSE = 0.05
"""How often a vacuum looks whether those have ended who may still see what was deleted (seconds)."""

LOSSES = 3
"""How often a function may lose the connection that it was lent: it may be at fault, and no more of them would show."""

CHUNK = 500
"""How many rows of a session that is taken over go at once."""


def commit(line: Line, database: Database, token: int, commit: Commit, again: bool) -> CommitAnswer:
    return committed(_apply(line, database, token, commit, again))


def change_pool(line: Line, database: Database, owner: str, limits: Limits, fresh: str, add: bool, again: bool, made: list[Pool]) -> Pool:
    """``made`` is what it came to, for whoever asks again."""
    line.run("begin")
    try:
        line.run("pool_maker", owner)
        stored = next((shapes.pool(row) for row in line.run("pool_lock", owner)), None)
        if again and made and stored is not None and (stored.id, stored.limits) == (made[0].id, made[0].limits):
            return stored
        made[:] = [changed(stored, limits, fresh=fresh, add=add)]
        values = owner, made[0].id, shapes.limits(made[0].limits), database.shapes.amounts(made[0].drawn)
        if line.run("pool_put", *values) != [(True,)]:
            raise StoreBroken("the database left out a row of the pools", hint="look for a trigger that ignores rows")
        line.run("commit")
        return made[0]
    finally:
        _leave(line)


def remove_pool(line: Line, owner: str) -> bool:
    return bool(line.run("pool_remove", owner))


def commit_within(
    line: Line,
    database: Database,
    token: int,
    commit: Commit,
    within: Callable[[Run], Commit],
    again: bool,
    made: list[Commit],
    losses: list[Lost],
) -> CommitAnswer:
    """``made`` is what ``within`` returned, and ``losses`` are connections that were lost while it ran, for whoever asks again."""

    def run(function: Callable[[Any], T]) -> T:
        try:
            return run_within(line, database, function)
        except Lost as error:
            losses.append(error)
            if len(losses) < LOSSES:
                raise
            raise TransactionLost(f"{error}, {LOSSES} times", hint="leave the connection open; nothing of it was kept") from error

    line.run("begin")
    try:
        line.run("compare")
        bare = {name: getattr(commit, name) for name in ("no", "version", "fence", "holder", "at", "claim", "received", "inbox_head")}
        answer = _apply(line, database, token, Commit(**bare), again)
        if answer.code == "there" and made:
            # It brought the function's writes with it.
            last = made[0].entries[-1].seq if made[0].entries else commit.version
            return Committed(last, answer.fence, answer.inbox_head)
        if answer.code != "done":
            return committed(answer)
        # What was changed only to compare goes again; the row stays locked where nothing was.
        line.run("compare_undo" if commit.claim is not None or commit.received else "compare_done")
        made[:] = [rules.check_within(commit, within(run))]
        answer = _apply(line, database, token, made[0], False)
        if answer.code == "done":
            line.run("commit")
        return committed(answer)
    finally:
        _leave(line)


def _apply(line: Line, database: Database, token: int, commit: Commit, again: bool) -> Answer:
    (row,) = line.run("commit_alone", database.shapes.commit(token, commit), database.given(), again)
    return Answer.of(row)


def create(
    line: Line, database: Database, session_id: str, new: NewSession, at: int, again: bool
) -> Created | IdTaken | NoSession | ParentRedacted:
    ((code, no),) = line.run("create", session_id, database.shapes.beginning(new, at), new.parent_version, again)
    match code:
        case "done" | "there":
            return Created(no)
        case "orphan" | "orphaned":
            return NoSession(deleted=code == "orphaned")
        case "redacted":
            return ParentRedacted()
        case _:
            return IdTaken(deleted=code == "deleted")


def adopt(line: Line, database: Database, token: int, sessions: Sequence[Adoption], again: bool) -> Adopted | IdTaken:
    line.run("begin")
    try:
        known = [row for given in sessions for row in line.run("adopted", given.row.session_id, token)]
        if again and known and all(ours for _, _, ours in known):
            # All of them are there or none.
            return Adopted(tuple(no for no, _, _ in known))
        if known:
            return IdTaken(deleted=known[0][1] == "deleted")
        numbers = []
        for given in sessions:
            no = _adopt_head(line, token, given)
            if no is None:
                return IdTaken()
            _adopt_content(line, database, no, given)
            numbers.append(no)
        line.run("commit")
        return Adopted(tuple(numbers))
    finally:
        _leave(line)


def _adopt_head(line: Line, token: int, given: Adoption) -> int | None:
    row = given.row
    found = line.run(
        "adopt",
        *(row.session_id, row.root, row.parent, row.parent_kind, row.agent, row.version, row.fence, row.claims, row.inbox_head),
        *(row.wake_at, row.status, row.owner, row.title, row.title.casefold(), shapes.labels(row.labels), row.created, row.updated),
        *(row.checkpoint, token),
    )
    return found[0][0] if found else None


def _adopt_content(line: Line, database: Database, no: int, given: Adoption) -> None:
    root, kinds = given.row.root, database.shapes
    for entries in _chunks(rules.whole(given.row.version, given.entries())):
        line.run("adopt_entries", root, no, kinds.entries(entries))
    for rows in _chunks(given.submissions()):
        line.run("adopt_submissions", root, no, kinds.submissions(rows))
    for effects in _chunks(given.effects()):
        line.run("adopt_effects", root, no, kinds.effects(effects))
    for taken in given.uniques():
        line.run("unique_take", taken.key, no, taken.operation, taken.state, taken.seq)
    for blob in given.blobs():
        rules.check_blob(blob)
        line.run("adopt_blobs", root, kinds.blobs((blob,)))


def claim(line: Line, database: Database, token: int, no: int, runner: str, force: bool) -> Committed | Held | NoSession:
    ((code, version, fence, head, holder),) = line.run("claim", token, no, runner, force, database.given())
    match code:
        case "done" | "there":
            return Committed(version, fence, head)
        case "held":
            return Held(holder)
        case _:
            return NoSession(deleted=code == "deleted")


def release(
    line: Line, database: Database, token: int, no: int, runner: str, fence: int, catalogue: Catalogue, inbox_head: int, at: int
) -> Committed | Stale | InboxMoved:
    listing = database.shapes.listing(catalogue)
    ((code, version, stands, head, holder),) = line.run("release", token, no, runner, fence, listing, inbox_head, at)
    match code:
        case "done" | "there":
            return Committed(version, stands, head)
        case "stale":
            return Stale(version, stands, holder)
        case "moved":
            return InboxMoved(head)
        case _:
            return Stale(0, 0, None)


def heartbeat(line: Line, database: Database, runner: Runner, lease_ms: int) -> int:
    values = (runner.id, runner.host, runner.pid, runner.started, *rules.encode_told(runner), lease_ms, FORGOTTEN_AFTER, database.given())
    expires: int = line.run("heartbeat", *values)[0][0]
    return expires


def end_runners(line: Line, database: Database, names: Sequence[str]) -> None:
    line.run("runners_end", TEXTS.encode(names), database.given())


def retire(line: Line, runner: str) -> None:
    line.run("retire", runner)
    if line.run("retired", runner) != [(True,)]:
        raise StoreBroken("the database kept a runner that should go", hint="look for a trigger that ignores rows")


def put_blob(line: Line, database: Database, root: str, blob: StoredBlob | OutsideBlob) -> bool:
    ((kept,),) = line.run("put_blob", root, database.shapes.blob(blob))
    return bool(kept)


def ack(line: Line, no: int, consumer: str, seq: int) -> int:
    stands: int = line.run("ack", no, consumer, seq)[0][0]
    return stands


def take_place(line: Line, place: str) -> str:
    line.run("meta_first", "place", place.encode())
    return reads.place(line)


def forget(line: Line, consumer: str) -> None:
    line.run("forget", consumer)
    if line.run("forgotten", consumer) != [(True,)]:
        raise StoreBroken("the database kept a consumer that should go", hint="look for a trigger that ignores rows")


def delete(line: Line, no: int, keep: int, receipts: Sequence[int], erased: Sequence[str], tree: int | None) -> bool | None:
    """None: there is no such session."""
    line.run("begin")
    try:
        # Whoever holds it is waited for as by any other write; the work itself takes as long as the session is large.
        line.run("hold_tree" if erased else "bury_lock", no)
        ((done,),) = line.run("bury", no, keep, INT8S.encode(receipts), TEXTS.encode(erased), tree, timeout=LONG)
        line.run("commit")
        return None if done is None else bool(done)
    finally:
        _leave(line)


def free(line: Line, no: int) -> int:
    ((freed,),) = line.run("free", no)
    return int(freed)


def vacuum(line: Line, timeout: float) -> None:
    end = time.monotonic() + timeout
    try:
        # What an open transaction may still see would be written anew, too.
        ((mark,),) = line.run("mark")
        while line.run("older", mark) != [(False,)]:
            if time.monotonic() > end:
                raise StoreBroken("somebody kept a transaction open all the time", hint="try again when less is going on")
            time.sleep(VACUUM_PAUSE)
        line.run("vacuum", timeout=max(1.0, end - time.monotonic()))
    except Lost as error:
        raise StoreBroken(f"the tables were not all written anew: {error}", hint="try again when less is going on") from error


def _chunks(rows: Iterable[T]) -> Iterator[list[T]]:
    rest = iter(rows)
    while chunk := list(islice(rest, CHUNK)):
        yield chunk


def _leave(line: Line) -> None:
    if not line.closed and line.in_transaction:
        line.run("rollback")
