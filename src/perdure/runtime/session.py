"""A live view of one session, and a sender."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ..agent import Agent
from ..core import canonical
from ..core.commands import Deliver
from ..core.entries import Entry, OperationEnded, RequestOpened
from ..core.errors import UsageError
from ..core.journal import open_entry
from ..core.messages import Message, Source
from ..core.records import Decision, Identity, Limits
from ..models.base import Delta
from ..tools.moments import Moment
from .calls import misfit
from .content import Input
from .door import Submission
from .feed import Event, ResumeRequested, SessionOpened, Watch
from .halting import halted
from .messages import read_entries
from .requests import Request
from .scope import put_away

if TYPE_CHECKING:
    from .driver import Driver
    from .runtime import Runtime

__all__ = ["Session"]


class Session:
    """A handle on one session, made by `Runtime.session`.

    With an agent, this process does the session's work while the handle is open, unless another does; without, it only watches and
    sends. Everything that is sent is durable when the call returns. Closing the handle ends nothing that runs.
    """

    def __init__(
        self,
        runtime: Runtime,
        session_id: str,
        agent: Agent | None,
        *,
        identity: Identity | None = None,
        owner: str | None = None,
        labels: dict[str, str] | None = None,
        metadata: dict[str, Any] | None = None,
        route: str | None = None,
        deliver: Deliver = "turn",
    ) -> None:
        self.id = session_id
        self._runtime = runtime
        self._agent = agent
        self._owner = owner
        self._sessions = runtime.sessions if owner is None else runtime.sessions.owned_by(owner)
        self._identity = identity
        self._labels = labels
        self._metadata = metadata
        self._route = route
        self._deliver = deliver
        self._opened = SessionOpened(session_id=session_id, version=0, created=True)
        self._no: int | None = None
        self._unused: Watch | None = None
        self._watches: set[Watch] = set()
        self._driver: Driver | None = None

    async def __aenter__(self) -> Session:
        self._runtime.check_open()
        self._runtime.news.listen()
        if self._route is not None and self._agent is not None:
            self._runtime.models.router(self._agent).model(self._route)
        self._opened = await self._look()
        self._unused = self._new_watch()
        if self._agent is not None:
            try:
                self._driver = await self._runtime.work.engage(self.id, self._agent, route=self._route)
            except BaseException:
                watch, self._unused = self._unused, None
                self._leave(watch)
                raise
        return self

    async def _look(self) -> SessionOpened:
        """What the session is now. Metadata that the handle was opened with replaces what is stored."""
        if await self._number() is None:
            if await self._runtime.store.buried(self.id):
                await self._sessions.info(self.id)
            identity = self._sessions.new_identity(self._identity)
            return SessionOpened(
                session_id=self.id, version=0, created=True, identity=identity, metadata=self._metadata or {}, route=self._route or ""
            )
        if self._agent is not None:
            match (await self._sessions.info(self.id)).status:
                case "archived":
                    raise put_away(self.id)
                case "halted":
                    raise halted(self.id)
        given = self._metadata
        info = await (self._sessions.info(self.id) if given is None else self._sessions.ensure_metadata(self.id, given))
        return SessionOpened(
            session_id=self.id,
            version=info.version,
            created=False,
            identity=info.identity or Identity(owner=info.owner),
            metadata=info.metadata or {},
            route=self._route or info.route or "",
        )

    def _check_entered(self) -> None:
        """Raises `UsageError` where a handle that promises the session's work does none."""
        if self._agent is not None and self._driver is None:
            raise UsageError(
                f"the handle on {self.id!r} is not open, so that its agent would not run",
                hint="use it inside `async with runtime.session(…)`; sessions.send(…) only puts a message into the inbox",
            )

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for watch in [*self._watches]:
            watch.end()
            self._leave(watch)
        if self._driver is not None:
            self._runtime.work.disengage(self._driver)
            self._driver = None

    def _new_watch(self) -> Watch:
        watch = self._runtime.news.feed(self.id).watch()
        self._watches.add(watch)
        if self._no is not None:
            # It was forgotten when nobody watched any more, also if that was while this one looked.
            self._runtime.news.known(self._no, self.id)
        return watch

    def _leave(self, watch: Watch) -> None:
        self._watches.discard(watch)
        self._runtime.news.leave(self.id, watch)

    # ------------------------------------------------------------------------------------------------------------- sending

    async def send(
        self,
        content: Input,
        *,
        submission: str | None = None,
        deliver: Deliver | None = None,
        turn: str = "",
        reply_to: int | None = None,
        quote: str | None = None,
        source: Source | None = None,
        actor: str = "",
        author: str = "",
        not_before: Moment | None = None,
        notes: Iterable[str] = (),
        limits: Limits | None = None,
    ) -> Submission:
        """Send a message; see `Sessions.send`. Without ``deliver`` and ``turn`` it goes the way that the handle was opened with.

        Raises `UnknownRoute` too, and nothing is sent, where the handle's agent doesn't have the route that the session goes on with,
        `MissingRoute` where it has none, and `UsageError` where a handle with an agent is used outside of its ``async with``.
        """
        if deliver is None and not turn:
            deliver = self._deliver
        self._check_entered()
        if self._driver is not None and self._agent is not None and self._route is None:
            unrouted = not self._opened.created and not self._opened.route
            await self._runtime.work.check_routes(self.id, self._agent, submission or "", unrouted=unrouted)
        # It was said when the handle was opened; what was described since then stays.
        metadata, self._metadata = self._metadata if self._opened.created else None, None
        return await self._sessions.send(
            self.id,
            content,
            submission=submission,
            deliver=deliver,
            turn=turn,
            reply_to=reply_to,
            quote=quote,
            source=source,
            actor=actor,
            author=author,
            not_before=not_before,
            notes=notes,
            agent=self._agent.name if self._agent is not None else "",
            identity=self._identity,
            labels=self._labels,
            metadata=metadata,
            limits=limits,
        )

    async def resume(self, limits: Limits | None = None, **options: Any) -> Submission:
        """Go on with the turn that ended at a limit; see `Sessions.resume`. `UsageError` as in `send`."""
        self._check_entered()
        return await self._sessions.resume(self.id, limits, **options)

    async def answer(self, request_id: str, decision: Decision, **options: Any) -> Submission:
        """Close an open request; see `Sessions.answer`.

        Where the handle has an agent, edited arguments that don't fit its tool raise `UsageError`, and the request stays open; so does
        using it outside of its ``async with``.
        """
        self._check_entered()
        if self._agent is not None and isinstance(edited := options.get("arguments"), dict):
            canonical.check(edited, "arguments")
            for request in await self.requests():
                if request.request_id == request_id and (wrong := misfit(self._agent, request.name, edited)):
                    raise UsageError(wrong, hint="the request is still open")
        return await self._sessions.answer(self.id, request_id, decision, **options)

    async def approve(self, request_id: str, arguments: dict[str, Any] | None = None, **options: Any) -> Submission:
        """Let a call run, with other arguments if they are given."""
        return await self.answer(request_id, "approve", arguments=arguments, **options)

    async def grant(self, request_id: str, **options: Any) -> Submission:
        """Let a call run, and this very call again whenever the model asks for it in this session."""
        return await self.answer(request_id, "grant", **options)

    async def select_route(self, route: str, **options: Any) -> Submission:
        """Use another route for the next turns. Raises `UnknownRoute` if the handle's agent doesn't have it."""
        if self._agent is not None:
            self._runtime.models.router(self._agent).model(route)
        return await self._sessions.select_route(self.id, route, **options)

    async def deny(self, request_id: str, reason: str = "", **options: Any) -> Submission:
        """Refuse a call; the model reads the reason."""
        return await self.answer(request_id, "deny", reason=reason, **options)

    async def settle(self, request_id: str, result: Any = None, **options: Any) -> Submission:
        """Say what became of a call whose outcome is unknown."""
        return await self.answer(request_id, "settle", result=result, **options)

    async def reply(self, request_id: str, text: str, **options: Any) -> Submission:
        """Answer what the user was asked."""
        return await self.answer(request_id, "reply", result=text, **options)

    async def interrupt(self, *, reason: str = "", **options: Any) -> Submission:
        """Stop the running turn; the session stays usable."""
        return await self._sessions.interrupt(self.id, reason=reason, **options)

    async def request_resume(self, session_id: str, *, submission: str | None = None) -> ResumeRequested:
        """Ask to go on with another session: whose it is and where it stands, for the caller and all who watch this one here.

        Nothing is stored, and nothing is switched. Raises `UsageError` for a blank id and `SessionNotFound`.
        """
        asked = await self._sessions.resume_info(session_id, submission=submission)
        self._runtime.news.feed(self.id).publish([asked])
        return asked

    # ------------------------------------------------------------------------------------------------------------- reading

    async def requests(self) -> list[Request]:
        """The open requests, with their arguments."""
        return await self._sessions.requests(self.id)

    async def history(self, *, before: int | None = None, limit: int = 50) -> list[Message]:
        """A page of the transcript; see `Sessions.history`."""
        return await self._sessions.history(self.id, before=before, limit=limit)

    async def events(self, *, after: int | None = None) -> AsyncIterator[Event]:
        """Journal entries as they are committed, and deltas in between.

        The first is `SessionOpened`, then the open requests are announced; both are live. Entries follow with a seq beyond ``after``,
        by default from where the handle was opened: none is missed and none comes twice, whoever runs the session. Deltas are seen only
        in the process that runs it, and a reader that falls far behind loses them. The stream ends when the handle is closed, and
        raises what ended this process's work on the session.
        """
        watch, self._unused = self._unused or self._new_watch(), None
        if watch not in self._watches:
            raise UsageError("the handle is closed", hint="use it inside `async with runtime.session(…)`")
        cursor = self._opened.version if after is None else after
        try:
            yield self._opened
            for request in await self._open_requests():
                if request.seq <= cursor:
                    yield request
            while True:
                events = watch.take()
                if events and self._owner is not None and self._no is None:
                    # Somebody created it meanwhile, and it may be somebody else's.
                    await self._number()
                if watch.noticed:
                    # Nobody may say again what other processes committed.
                    watch.noticed = False
                    stored = await self._stored(cursor)
                    events = _woven(stored, [*events, *watch.take()], self._opened.version)
                for event in events:
                    if not isinstance(event, Entry):
                        yield event
                        continue
                    if event.seq > cursor + 1:
                        for entry in await self._stored(cursor, before=event.seq):
                            cursor = entry.seq
                            yield entry
                    if event.seq == cursor + 1:
                        cursor = event.seq
                        yield event
                if watch.pending or watch.noticed:
                    continue
                closed = watch.closed
                await watch.wait()
                if closed:
                    return
        finally:
            self._leave(watch)

    async def _number(self) -> int | None:
        if self._no is None:
            no = await self._sessions.number(self.id)
            if no is None:
                self._runtime.news.absent(self.id)
            else:
                self._no = no
                self._runtime.news.known(no, self.id)
        return self._no

    async def _stored(self, after: int, before: int | None = None) -> list[Entry]:
        no = await self._number()
        if no is None:
            return []
        return [open_entry(row) for row in await read_entries(self._runtime.store, no, after=after, before=before)]

    async def _open_requests(self) -> list[RequestOpened]:
        if await self._number() is None:
            return []
        return [request.entry for request in await self.requests()]


def _attempt(event: Event) -> tuple[str, int] | None:
    """The attempt whose words these are, if they are any's."""
    return (event.operation, event.attempt) if isinstance(event, Delta) else None


def _woven(stored: list[Entry], told: list[Event], since: int) -> list[Event]:
    """What was read, and what was told before and meanwhile, as it happened: news after the entries up to ``since``, when the handle was
    opened, and what an attempt says before it ends."""
    news = [event for event in told if not isinstance(event, Entry | Delta)]
    said: dict[tuple[str, int], list[Event]] = {}
    for event in told:
        if (attempt := _attempt(event)) is not None:
            said.setdefault(attempt, []).append(event)
    woven: list[Event] = []
    for entry in stored:
        if news and entry.seq > since:
            woven += news
            news = []
        if isinstance(entry, OperationEnded):
            woven += said.pop((entry.operation, entry.attempt), ())
        woven.append(entry)
    # Entries that were read are passed over when they come again.
    return woven + news + [event for event in told if isinstance(event, Entry) or _attempt(event) in said]
