"""The catalogue: everything about sessions that works whoever holds them, and all but one needs no agent."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import aclosing
from typing import Any

from ..agent import Agent
from ..agent.agent import check_agents
from ..core import canonical, ids
from ..core.commands import Interrupt, RunCommand, SelectRoute
from ..core.entries import TERMINALS, Entry, ToolCalled, TurnStarted
from ..core.errors import UsageError
from ..core.journal import open_entry
from .about import check_owner, check_text
from .asked import AskedRequests
from .branches import Branches
from .calling import Calling
from .consumers import Consumer
from .declared import check_command
from .door import Submission
from .keeping import Keeping
from .messages import read_entries
from .model_calls import ModelCall, read_calls
from .names import check_id, check_limit, submission_id
from .open_requests import OpenRequests
from .redaction import Redaction
from .results import Results
from .sending import NOTE_LIMIT

__all__ = ["Sessions"]


class Sessions(Keeping, Results, AskedRequests, OpenRequests, Branches, Redaction, Calling):
    """Commands and views of any session in the store. Nothing here runs agent code but `call_tool`."""

    def owned_by(self, owner: str) -> Sessions:
        """The same, for one owner: sessions of anybody else are not there, and new ones belong to them. Raises `UsageError` if blank."""
        owner = check_owner(owner)
        if self._owner not in (None, owner):
            raise UsageError("these are one owner's sessions already", hint="runtime.sessions are everybody's")
        return Sessions(self._runtime, owner)

    async def interrupt(
        self, session_id: str, *, reason: str = "", turn: str = "", submission: str | None = None, actor: str = ""
    ) -> Submission:
        """Stop the session's running turn. The session stays usable.

        Raises `SessionNotFound`, and `SubmissionRejected` (*idle*, *stale_turn*) if it doesn't run; where a process holds the session,
        that is in the journal.
        """
        command = Interrupt(turn=check_text(turn, "turn"), reason=reason, submission=submission_id(submission), actor=actor)
        return await self._control(session_id, command)

    async def select_route(self, session_id: str, route: str, *, submission: str | None = None, actor: str = "") -> Submission:
        """Use another route for the next turns.

        Raises `SubmissionRejected` (*busy*) while a turn runs; where a process holds the session, that is in the journal.
        Which routes exist is known where the agent is: a session whose route is unknown there is refused until another is selected.
        """
        check_id(route, "a route")
        return await self._control(session_id, SelectRoute(route=route, submission=submission_id(submission), actor=actor))

    async def command(
        self,
        session_id: str,
        extension: str,
        command: str,
        arguments: dict[str, Any] | None = None,
        *,
        agents: Iterable[Agent] = (),
        submission: str | None = None,
        actor: str = "",
    ) -> Submission:
        """Have a middleware of the session's agent carry out one of its commands, wherever the agent runs next.

        Raises `UsageError`, and nothing is sent, for a name that the agent didn't have when its last turn ran, or of the agents here,
        where they are given (as for `recover`), the session's doesn't have now. Refused in the journal where it has no such command when
        it gets to that, or carrying it out fails.
        """
        arguments = {} if arguments is None else arguments
        if not isinstance(arguments, dict):
            raise UsageError(f"arguments must be an object, not {type(arguments).__name__}")
        arguments = canonical.check(arguments, "arguments")
        if len(canonical.encode(arguments)) > NOTE_LIMIT:
            raise UsageError("the arguments are too long", hint=f"at most {NOTE_LIMIT} bytes")
        extension, command = check_id(extension, "the name of a middleware"), check_id(command, "a command")
        given = check_agents(agents)
        if (head := await self._first_sent(session_id, submission)) is not None:
            await check_command(self._runtime, session_id, head.row.agent, extension, command, given)
        run = RunCommand(extension=extension, command=command, arguments=arguments, submission=submission_id(submission), actor=actor)
        return await self._control(session_id, run)

    async def entries(
        self, session_id: str, *, after: int = 0, limit: int | None = None, kinds: Iterable[str] | None = None
    ) -> list[Entry]:
        """The journal's entries with a seq beyond ``after``."""
        if limit is not None:
            check_limit(limit)
        head = await self._head(session_id)
        rows = await read_entries(self._runtime.store, head.row.no, after=after, limit=limit, kinds=kinds)
        return [open_entry(row) for row in rows]

    async def turn(self, session_id: str, turn: str | None = None) -> list[Entry]:
        """The entries of one turn, however many, from its first to its end, or so far; None is the newest turn.

        What was written while it ran and belongs to no turn (notes, grants) is among them. Raises `UsageError` for what is no turn of
        this session.
        """
        head = await self._head(session_id)
        store, no = self._runtime.store, head.row.no
        if turn is None:
            newest = await store.entries(no, kinds=(TurnStarted.kind, ToolCalled.kind), newest_first=True, limit=1)
            if not newest:
                return []
            began = newest[0].seq
        else:
            began = ids.began(check_text(turn, "turn"))
            started = await self._entry(head, began) if 0 < began <= head.row.version else None
            if not isinstance(started, TurnStarted) or started.turn != turn:
                raise UsageError(f"{session_id!r} has no turn {turn!r:.40}", hint="turns are named t2, t14, …")
        ends = await store.entries(no, after=began, kinds=TERMINALS, limit=1)
        rows = await read_entries(store, no, after=began - 1, before=ends[0].seq + 1 if ends else None)
        return [open_entry(row) for row in rows]

    async def model_calls(self, session_id: str, *, after: int = 0, limit: int | None = None) -> list[ModelCall]:
        """The ledger: every call that was sent to a model and has ended, with a seq beyond ``after``; the next page begins behind the last.

        Retries, calls that failed and calls that a crash cut off are records too, of every kind. Raises `SessionNotFound`.
        """
        if limit is not None:
            check_limit(limit)
        head = await self._head(session_id)
        found: list[ModelCall] = []
        async with aclosing(read_calls(self._runtime.store, head.row.no, after=after)) as calls:
            async for call in calls:
                found.append(call)
                if len(found) == limit:
                    break
        return found

    def consumer(self, name: str) -> Consumer:
        """Somebody who reads the journals of all sessions and says how far; see `Consumer`."""
        if self._owner is not None:
            raise UsageError("a consumer reads all sessions", hint="use runtime.sessions.consumer(…)")
        return Consumer(self._runtime, name)
