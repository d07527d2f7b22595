"""Whether what is stored is what was written: chain, fold, references, inbox, effects and catalogue of every session.

It reads in pages and keeps no transaction open, so a store may be checked while others work on it: what is compared is the journal up to
the version that the checkpoint had when the check of its session began, and what others changed meanwhile is looked at again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from ..core.entries import Redacted
from ..core.errors import SessionNotFound, UsageError
from ..core.journal import GENESIS
from ..store.audit import Auditable
from ..store.base import SessionQuery, SessionRow, Store
from .deleting import left_over, living_forks, needed_by_forks
from .scope import missing
from .verify_budgets import PoolCheck
from .verify_session import PAGE, RETRIES, UNREADABLE, Checked, Problem, SessionCheck

__all__ = ["Checked", "Problem", "head", "verify"]


async def head(store: Store, session_id: str) -> str:
    """The value to keep elsewhere: whoever has it can tell later that nothing up to here was changed or cut off.

    Raises `SessionNotFound`.
    """
    loaded = await store.load(session_id)
    if loaded is None:
        raise SessionNotFound(f"there is no session {session_id!r}", hint="`perdure sessions` lists them")
    return f"{loaded.row.version}:{loaded.chain.hex()}"


async def verify(
    store: Store, session_id: str | None = None, *, expected_head: str | None = None, checked: Checked | None = None
) -> AsyncIterator[Problem]:
    """Every problem of one session, or of all. ``expected_head`` is what `head` returned at some time for this session.

    Nothing that stands in the store makes it raise. Raises `SessionNotFound`, and `UsageError` for an ``expected_head`` that is none.
    """
    checked = checked if checked is not None else Checked()
    if session_id is not None:
        for problem in await _verify_session(store, session_id, _parse_head(expected_head), checked, None):
            yield problem
        return
    if expected_head is not None:
        raise UsageError("expected_head belongs to one session", hint="name the session too")
    try:
        pools = await PoolCheck.of(store)
    except UNREADABLE as error:
        pools = PoolCheck({})
        yield _unreadable_pools(error)
    if not isinstance(store, Auditable):
        # It doesn't show deleted sessions, which took something too.
        pools.miss()
    async for found in _heads(store):
        if isinstance(found, Problem):
            pools.miss()
            yield found
        elif found.status == "deleted":
            pools.miss()
            for problem in await _verify_deleted(store, found):
                yield problem
        else:
            try:
                problems = await _verify_session(store, found.session_id, None, checked, pools)
            except SessionNotFound:
                pools.miss()
                if await _buried(store, found.session_id):
                    problems = await _verify_deleted(store, found)
                else:
                    problems = [Problem(session_id=found.session_id, where="sessions", seq=0, what="the row can't be found by its id")]
            for problem in problems:
                yield problem
    async for problem in _strays(store):
        pools.miss()
        yield problem
    try:
        wrong = await pools.problems(store)
    except UNREADABLE as error:
        wrong = []
        yield _unreadable_pools(error)
    for owner, what in wrong:
        yield Problem(session_id=f"(owner {owner})", where="pools", seq=0, what=what)


def _unreadable_pools(error: Exception) -> Problem:
    return Problem(session_id="(pools)", where="pools", seq=0, what=f"they can't be read: {error}")


def _parse_head(text: str | None) -> tuple[int, bytes] | None:
    if text is None:
        return None
    seq, _, chain = text.partition(":")
    try:
        parsed = int(seq), bytes.fromhex(chain)
    except ValueError:
        parsed = 0, b""
    if parsed[0] < 1 or len(parsed[1]) != len(GENESIS):
        raise UsageError(f"{text!r:.100} is no head", hint="it looks like 16:5f0c…, as `perdure verify --head` prints it")
    return parsed


async def _heads(store: Store) -> AsyncIterator[SessionRow | Problem]:
    """Every session's row; where one can't be read, a problem in its place."""
    if not isinstance(store, Auditable):
        before = None
        while page := await store.sessions(SessionQuery(before=before, archived=True, limit=PAGE)):
            for row in page:
                yield row
            before = (page[-1].updated, page[-1].no)
        return
    # Numbers begin at 1; a damaged one may not.
    after, limit, missed = -1, PAGE, 0
    while missed < PAGE:
        try:
            page = await store.heads(after=after, limit=limit)
        except UNREADABLE as error:
            if limit == 1:
                yield Problem(session_id=f"(number {after + 1})", where="sessions", seq=0, what=f"the row can't be read: {error}")
                # Rows are never removed, so numbers have no gaps and the bad row is the next one.
                after, missed = after + 1, missed + 1
            limit = 1
            continue
        if not page:
            return
        for row in page:
            yield row
        after, limit, missed = max(after + 1, page[-1].no), PAGE, 0


async def _strays(store: Store) -> AsyncIterator[Problem]:
    """Sessions of which everything is there but the row that says so."""
    if not isinstance(store, Auditable):
        return
    try:
        numbers = await store.strays(limit=PAGE + 1)
    except UNREADABLE as error:
        yield Problem(session_id="(no session)", where="sessions", seq=0, what=f"rows without a session can't be looked for: {error}")
        return
    for no in numbers[:PAGE]:
        yield Problem(session_id=f"(number {no})", where="sessions", seq=0, what="its row is missing, and others of it are there")
    if len(numbers) > PAGE:
        yield Problem(session_id="(others)", where="sessions", seq=0, what=f"more than {PAGE} rows are missing; only the first are named")


async def _verify_session(
    store: Store, session_id: str, expected: tuple[int, bytes] | None, checked: Checked, pools: PoolCheck | None
) -> list[Problem]:
    checked.sessions += 1
    for _ in range(RETRIES):
        try:
            loaded = await store.load(session_id)
        except UNREADABLE as error:
            return [Problem(session_id=session_id, where="sessions", seq=0, what=f"the row can't be read: {error}")]
        if loaded is None:
            raise missing(session_id, deleted=False)
        seen = Checked()
        check = SessionCheck(store, loaded, expected, seen)
        problems = [*_row_problems(loaded.row), *await check.run()]
        # What doesn't fit together may do so only because content was removed meanwhile.
        if problems and await _buried(store, session_id):
            raise missing(session_id, deleted=True)
        if not problems or not await _redacted_since(store, loaded.row):
            break
    checked.add(seen)
    if pools is not None:
        if problems or check.fold is None or check.begins != 1:
            pools.miss()
        if check.fold is not None:
            check.budgets.finish(check.fold)
            pools.add(check.fold.identity.owner, check.budgets.charges)
    return problems


async def _buried(store: Store, session_id: str) -> bool:
    try:
        return await store.buried(session_id)
    except UNREADABLE:
        return False


async def _redacted_since(store: Store, row: SessionRow) -> bool:
    try:
        return bool(await store.entries(row.no, after=row.version, kinds=(Redacted.kind,), limit=1))
    except UNREADABLE:
        return False


def _row_problems(row: SessionRow) -> list[Problem]:
    return [Problem(session_id=row.session_id, where="sessions", seq=0, what=row.problem)] if row.problem else []


async def _verify_deleted(store: Store, row: SessionRow) -> list[Problem]:
    """Nothing of it is left but what its forks need."""
    try:
        left = await left_over(store, row, await needed_by_forks(store, row, living_forks(await store.tree(row.root))))
    except UNREADABLE as error:
        left = [f"something that can't be read ({error})"]
    told = [f"it is deleted, and {what} of it are left" for what in left]
    return [*_row_problems(row), *(Problem(session_id=row.session_id, where="sessions", seq=0, what=what) for what in told)]
