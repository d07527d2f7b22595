"""What the catalogue knows of sessions: looked up, listed and replaced."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Any, Literal

import msgspec

from ..agent import Agent
from ..agent.agent import check_agents
from ..core import checkpoint as checkpoints
from ..core.commands import Describe
from ..core.errors import NewerRules, StoreBroken, StoreClosed, StoreCorrupt, StoreError, StoreForked, UsageError
from ..core.records import Identity, ToolPolicy
from ..store.base import SessionRow
from . import listing
from .about import check_labels, check_owner, check_title, check_tools, keep_metadata, read_metadata
from .declared import check_policy
from .door import Door, Submission
from .feed import ResumeRequested
from .halting import why_halted
from .names import submission_id

__all__ = ["Infos", "Page", "SessionInfo"]


class SessionInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What the catalogue knows of one session. Times are milliseconds since 1970.

    ``route`` is the selected one, ``tools`` what the session may use of its agent's. ``problem`` says why it is halted. ``identity``,
    ``metadata``, ``tools`` and ``route`` are None where they can't be read, and ``problem`` says why: the session is listed all the same,
    and `perdure verify` tells more.
    ``parent`` is what it was forked from (``parent_kind`` *fork*), or who called its agent (*child*).
    """

    session_id: str
    status: str
    agent: str
    owner: str
    title: str
    labels: dict[str, str]
    version: int
    holder: str | None
    wake_at: int | None
    created: int
    updated: int
    identity: Identity | None = None
    metadata: dict[str, Any] | None = None
    tools: ToolPolicy | None = None
    route: str | None = None
    problem: str = ""
    parent: str | None = None
    parent_kind: str | None = None


class Page(list[SessionInfo]):
    """A page of sessions. ``next`` is what `Sessions.list` goes on after; None: there are no more."""

    def __init__(self, infos: Iterable[SessionInfo] = (), following: str | None = None) -> None:
        super().__init__(infos)
        self.next = following


class Infos(Door):
    """The part of `Sessions` that is about what the catalogue knows."""

    async def info(self, session_id: str) -> SessionInfo:
        """What the catalogue knows of a session, whether or not its route and agent are known here. Raises `SessionNotFound`."""
        return await self._info((await self._head(session_id)).row)

    async def _info(self, row: SessionRow) -> SessionInfo:
        info = SessionInfo(
            session_id=row.session_id,
            status=row.status,
            agent=row.agent,
            owner=row.owner,
            title=row.title,
            labels=row.labels,
            version=row.version,
            holder=row.holder,
            wake_at=row.wake_at,
            created=row.created,
            updated=row.updated,
            problem=row.problem,
            parent=row.parent,
            parent_kind=row.parent_kind,
        )
        if row.status == "halted" and not row.problem:
            info = msgspec.structs.replace(info, problem=f"halted: {await why_halted(self._runtime.store, row)}")
        try:
            about = checkpoints.about(row.checkpoint)
        except (StoreCorrupt, NewerRules) as error:
            # What is broken in one session must not hide the others.
            return msgspec.structs.replace(info, problem=info.problem or error.message)
        metadata: dict[str, Any] | None = None
        try:
            metadata = await read_metadata(about.metadata, self._fetcher(row))
        except (StoreClosed, StoreForked):
            raise
        except StoreError as error:
            if isinstance(error, StoreBroken):
                # A file of this session's is out of reach, unless the database doesn't answer either: that is no session's, and raises.
                await self._runtime.store.load(row.session_id)
            # The row itself was read, so what fails here is this session's content: altered, missing, or kept where nobody looks.
            info = msgspec.structs.replace(info, problem=info.problem or error.message)
        return msgspec.structs.replace(info, identity=about.identity, metadata=metadata, tools=about.tools, route=about.route)

    async def resume_info(self, session_id: str, *, submission: str | None = None) -> ResumeRequested:
        """What somebody must know who is to go on with a session, under the id of their request; see `Session.request_resume`.

        Raises `SessionNotFound`, and `StoreCorrupt` if the session's checkpoint can't be read.
        """
        submission = submission_id(submission)
        row = (await self._head(session_id)).row
        about = checkpoints.about(row.checkpoint)
        return ResumeRequested(
            session_id=session_id,
            identity=about.identity,
            metadata=await read_metadata(about.metadata, self._fetcher(row)),
            agent=row.agent,
            route=about.route,
            status=row.status,
            submission=submission,
        )

    async def describe(
        self,
        session_id: str,
        *,
        title: str | None = None,
        labels: dict[str, str] | None = None,
        metadata: dict[str, Any] | None = None,
        submission: str | None = None,
        actor: str = "",
    ) -> Submission:
        """Replace a session's title, labels or metadata, each as a whole; ``None`` leaves it as it is, an empty value empties it.

        Tools read the new metadata from their next call on. Raises `UsageError` and `LimitExceeded` for what can't be kept.
        """
        if title is None and labels is None and metadata is None:
            raise UsageError("nothing is to change", hint="give title=, labels= or metadata=")
        title = None if title is None else check_title(title)
        labels = None if labels is None else check_labels(labels)
        kept, blobs = (None, ()) if metadata is None else keep_metadata(metadata)
        command = Describe(title=title, labels=labels, metadata=kept, submission=submission_id(submission), actor=actor)
        return await self._control(session_id, command, blobs=blobs)

    async def restrict(
        self,
        session_id: str,
        tools: ToolPolicy,
        *,
        agents: Iterable[Agent] = (),
        submission: str | None = None,
        actor: str = "",
    ) -> Submission:
        """Say which of its agent's tools a session may use from now on, and which calls a person is asked about. One commit.

        It replaces what was said before; `ToolPolicy()` is no policy of its own. Models are told of the tools that are left from their next
        request on, and a call that was planned before and has not started is answered as not executed. What runs goes on.

        A name that the agent doesn't have would forbid nothing: it raises `UsageError`, and what stood stays. What it has is what its last
        turn ran with, or of ``agents`` (as for `recover`) what the session's has now; before its first turn nobody knows. Raises
        `UsageError` and `LimitExceeded` for what can't be kept, `SessionArchived` and `SessionNotFound`.
        """
        tools, given = check_tools(tools), check_agents(agents)
        if (head := await self._first_sent(session_id, submission)) is not None:
            await check_policy(self._runtime, session_id, head.row.agent, tools, given)
        command = Describe(tools=tools, submission=submission_id(submission), actor=actor)
        return await self._control(session_id, command)

    async def ensure_metadata(self, session_id: str, metadata: dict[str, Any]) -> SessionInfo:
        """Replace a session's metadata unless it is that already; returns what the catalogue knows then."""
        info = await self.info(session_id)
        if metadata != info.metadata:
            await self.describe(session_id, metadata=metadata)
            info = msgspec.structs.replace(await self.info(session_id), metadata=metadata)
        return info

    async def list(
        self,
        *,
        owner: str | None = None,
        status: str | Iterable[str] | None = None,
        agent: str | None = None,
        labels: dict[str, str] | None = None,
        words: str | Iterable[str] = (),
        since: int | None = None,
        until: int | None = None,
        archived: bool = False,
        children: bool = False,
        order: Literal["updated", "created"] = "updated",
        limit: int = 50,
        after: str | None = None,
    ) -> Page:
        """A page of the sessions: the latest change first, or with ``order="created"`` the latest made first. Reading changes nothing.

        Archived ones are shown only if ``archived`` or ``status`` says so, and those of agents that others called only if ``children``.
        ``labels`` must all be there; the title must hold all ``words``, whatever their case; ``since`` and ``until`` (ms since 1970) say
        when they changed last. ``after`` is ``next`` of the page before, with the same filters. Nothing is shown twice; by ``"created"``
        nothing is left out either, whatever changes meanwhile, while by ``"updated"`` what changes moves to the front, before the page that
        was read. A session that can't be read is listed with its ``problem``. The owner's are counted, not everybody's: a page is short
        only if there are no more.

        Raises `UsageError` for a blank owner, for filters that are none, and for an ``after`` that no list of these filters gave.
        """
        owner = self._owner if owner is None else check_owner(owner)
        if self._owner not in (None, owner):
            return Page()
        query = listing.query(
            owner=owner,
            status=status,
            agent=agent,
            labels=labels,
            words=words,
            since=since,
            until=until,
            archived=archived,
            children=children,
            order=order,
            limit=limit,
        )
        secret = self._runtime.store.secret
        # One more than is shown tells whether there is a page after this one.
        asked = msgspec.structs.replace(listing.continued(query, secret, after), limit=limit + 1)
        rows = await self._runtime.store.sessions(asked)
        shown = rows[:limit]
        return Page([await self._info(row) for row in shown], listing.token(query, secret, shown[-1]) if len(rows) > limit else None)

    async def each(self, **filters: Any) -> AsyncIterator[SessionInfo]:
        """Every session that `list` shows with these filters, page by page; archived ones too if ``archived`` says so."""
        after: str | None = None
        while True:
            page = await self.list(**filters, after=after)
            for info in page:
                yield info
            if (after := page.next) is None:
                return
