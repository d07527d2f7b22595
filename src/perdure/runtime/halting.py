"""A session in which damage was found is stopped: visibly, durably and alone, until somebody has it checked again."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any

import msgspec

from ..core.commands import Halt, Repair
from ..core.entries import Halted
from ..core.errors import NothingChanged, PerdureError, SessionBusy, SessionHalted, SessionNotFound, StoreCorrupt, StoreError
from ..core.journal import link, open_entry
from ..store.base import Catalogue, Claim, Commit, Committed, Loaded, SessionRow, Store
from ..store.passing import PassingStore
from .names import submission_id

if TYPE_CHECKING:
    from .runtime import Runtime
    from .verify_session import Problem

__all__ = ["check_not_halted", "halt", "halt_damaged", "halted", "past", "repair", "why_halted"]

DAMAGE = "damage was found"
"""The reason that stands in the journal where nobody gave one."""

UNWRITTEN = "nothing could be written to its journal; `perdure verify` lists what is damaged"

SHOWN = 5
"""So many problems stand in a refusal's message; its facts have all of them."""

_log = logging.getLogger("perdure.runtime")


def halted(session_id: str, why: str = "") -> SessionHalted:
    return SessionHalted(
        f"the session {session_id!r} is halted" + (f": {why}" if why else ""),
        hint="what is whole can be read; sessions.repair(…) checks it, and lets it go on if nothing is wrong with it",
    )


def check_not_halted(row: SessionRow) -> None:
    """Raises `SessionHalted`."""
    if row.status == "halted":
        raise halted(row.session_id)


def past(look: Callable[[], Awaitable[Loaded]]) -> Callable[[], Awaitable[Loaded]]:
    """``look``, for who ends or stops a session whatever can't be read of its row: their commit writes it anew, as the checkpoint says."""

    async def looked() -> Loaded:
        head = await look()
        return msgspec.structs.replace(head, row=msgspec.structs.replace(head.row, problem=""))

    return looked


async def why_halted(store: Store, row: SessionRow) -> str:
    """What was said when a session was stopped."""
    try:
        rows = await store.entries(row.no, kinds=(Halted.kind,), newest_first=True, limit=1)
        entry = open_entry(rows[0]) if rows else None
    except PerdureError:
        entry = None
    if not isinstance(entry, Halted) or entry.released:
        return UNWRITTEN
    return ": ".join(filter(None, (entry.reason, entry.problem))) or "somebody stopped it"


async def halt(runtime: Runtime, look: Callable[[], Awaitable[Loaded]], reason: str, actor: str, problem: str = "") -> None:
    """Stop a session where it stands, in one commit, whoever holds it.

    The commit has an entry that says so, unless the checkpoint or the end of the hash chain is damaged: what would follow from them can't
    be trusted, so that the journal is left as it is and the catalogue's status alone says it. Raises `SessionHalted` if it is halted,
    `SessionBusy`, and what ``look`` raises.
    """
    from .archive import PERSISTENCE, put_away_or_back

    store, look = runtime.store, past(look)
    for _ in range(PERSISTENCE):
        head = await look()
        check_not_halted(head.row)
        problems = await _problems(store, head.row.session_id)
        if all(found.where != "checkpoint" for found in problems) and await _ends_whole(store, head):
            problem = problem or (f"{problems[0].where} {problems[0].seq}: {problems[0].what}" if problems else "")
            command = Halt(reason=reason or (DAMAGE if problem else ""), problem=problem, submission=submission_id(None), actor=actor)
            await put_away_or_back(runtime, look, command)
            return
        row = head.row
        commit = Commit(
            no=row.no,
            version=row.version,
            fence=row.fence,
            holder=None,
            at=max(runtime.clock.now(), head.now),
            catalogue=Catalogue(status="halted", wake_at=None, title=row.title, labels=row.labels, agent=row.agent),
            # The fence rises: whoever read the session before is too late to change it.
            claim=Claim(runner=runtime.runner_id, force=True),
            release=True,
            progress=True,
        )
        if isinstance(await store.commit(commit), Committed):
            runtime.news.notice(row.session_id, sure=True)
            return
    raise SessionBusy(f"{head.row.session_id!r} changes all the time", hint="interrupt it first, or try again")


async def halt_damaged(runtime: Runtime, session_id: str, error: StoreCorrupt) -> SessionHalted | None:
    """Stop a session that could not be taken up for what stands in it. None: it is whole, or can't even be stopped."""
    try:
        if not await _problems(runtime.store, session_id):
            return None
        await halt(runtime, partial(_look, runtime.store, session_id), DAMAGE, "", error.message)
    except SessionHalted:
        # Somebody else who met the damage was faster.
        pass
    except PerdureError as failure:
        _log.error("the session %s is damaged and could not be halted: %s", session_id, failure)
        return None
    _log.error("the session %s is halted: %s", session_id, error)
    return halted(session_id, f"{DAMAGE}: {error.message}")


async def repair(runtime: Runtime, look: Callable[[], Awaitable[Loaded]], reason: str, actor: str) -> None:
    """Check a halted session, and let it go on where it was. Nothing is mended here: what is damaged has to be restored before.

    Raises `SessionHalted` with the ``problems`` that are left, `NothingChanged` if the session isn't halted, and what ``look`` raises.
    """
    from .archive import put_away_or_back

    head = await look()
    session_id = head.row.session_id
    if head.row.status != "halted":
        raise NothingChanged(f"{session_id!r} is not halted", hint="it can be used as it is; `perdure verify` checks it")
    if problems := await _problems(runtime.store, session_id):
        told = [f"{found.where} {found.seq}: {found.what}" for found in problems]
        more = f"; and {len(told) - SHOWN} more" if len(told) > SHOWN else ""
        raise SessionHalted(
            f"the session {session_id!r} stays halted, for it is damaged: {'; '.join(told[:SHOWN])}{more}",
            hint="restore it from a backup and repair it again; or fork what stands before the damage, and delete it",
            problems=tuple(told),
        )

    async def still() -> Loaded:
        now = await look()
        if (now.row.status, now.row.version, now.row.fence) != ("halted", head.row.version, head.row.fence):
            raise NothingChanged(f"{session_id!r} was let go by somebody else", hint="it can be used as it is")
        return now

    await put_away_or_back(runtime, still, Repair(reason=reason, submission=submission_id(None), actor=actor))


async def _look(store: Store, session_id: str) -> Loaded:
    head = await store.load(session_id)
    if head is None:
        raise SessionNotFound(f"there is no session {session_id!r}", hint="`perdure sessions` lists them")
    return head


async def _problems(store: Store, session_id: str) -> list[Problem]:
    """What is damaged. Raises what kept the store from saying so: what could not be read this time is no damage."""
    # It reads with the eyes of a driver, which imports this.
    from .verify import verify

    reading = _Reading(store)
    found = [problem async for problem in verify(reading, session_id)]
    if reading.failure is not None:
        raise reading.failure
    return found


class _Reading(PassingStore):
    """A store that is read through, and how it failed."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.failure: StoreError | None = None
        # Whether the session was deleted is not read from it.
        for name in {*vars(PassingStore), *vars(self)} - {"buried"}:
            if iscoroutinefunction(method := getattr(inner, name, None)):
                setattr(self, name, partial(self._read, method))

    async def _read(self, method: Callable[..., Awaitable[Any]], *given: Any, **named: Any) -> Any:
        try:
            return await method(*given, **named)
        except StoreError as error:
            if error.retryable:
                self.failure = error
            raise


async def _ends_whole(store: Store, head: Loaded) -> bool:
    """Whether the last entry's chain follows from that of the one before: a new one can be told from then on."""
    row = head.row
    rows = await store.entries(row.no, after=row.version - 2)
    last = rows[-1] if rows else None
    if last is None or (last.seq, last.chain) != (row.version, head.chain):
        return False
    if len(rows) < 2:
        return row.version == 1
    return link(rows[0].chain, row.session_id, last.seq, last.number, last.kind, last.at, last.body_digest) == last.chain
