"""People of a simulation: what they want of sessions, from whichever process, and what they are told.

Whoever doesn't know whether something arrived asks for it again, and whoever's process died does so in the next one. Each call is kept
with how its session stood when it began and when it ended, so that its answer can be compared with the journal.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ..core.entries import Entry, RequestOpened
from ..core.errors import PerdureError, SessionBusy, StoreError
from ..core.records import Identity, Limits
from .clock import START
from .stage import Life

__all__ = ["OWNER", "PLEASE", "WAITING", "Call", "People", "Standing", "Wish", "branch_of", "make_wishes"]

KINDS = {
    "turn": 3,
    "queue": 2,
    "steer": 3,
    "run": 5,
    "run a little": 2,
    "stream": 3,
    "resume": 2,
    "call": 4,
    "interrupt": 2,
    "edit": 2,
    "withdraw": 2,
    "note": 1,
    "route": 1,
    "compact": 1,
    "command": 1,
    "rewrite": 1,
    "restore": 1,
    "fork": 1,
    "redact": 2,
    "delete": 1,
    "archive": 1,
    "revive": 1,
    "halt": 1,
    "repair": 1,
    "follow": 2,
    "interrupt child": 1,
    "archive child": 1,
    "revive child": 1,
    "halt child": 1,
    "repair child": 1,
    "delete child": 1,
}
"""What people want, and how often."""

OWNER = "acme"
"""Whose the sessions are that have a pool."""

OWNED = ("s1", "s3")
"""The beginnings of their names."""

CHILD = " child"
"""The end of the name of what people want of the children of a session."""

MESSAGES = ("turn", "queue", "run", "stream")
"""What can be edited or withdrawn while it waits."""

TOOLS = ("charge", "pay", "ask", "look", "put", "alone", "refuse", "explode")
"""What people call themselves."""

WAITING = ("run", "run a little", "stream", "resume", "call")
"""What is answered once the submission is settled."""

PLEASE = ", please"
"""The end of what people say, which nobody writes but they."""

RIVALS = ("fork", "rewrite", "restore", "run", "call", "archive", "redact", "delete")
"""What somebody may want at the moment when another one wants to remove something."""

DELETED = 0.3
"""How many branches are deleted some day, which may be the last to need what they were forked from."""

REPEATED = 0.3
"""How much of it is asked for again, by anybody."""


@dataclass(frozen=True, eq=False)
class Wish:
    """Something that somebody wants at a time. ``about`` is the submission that it is about, if it is about one.

    What somebody wants of a child, they want of one of those that the session has by then.
    """

    at: int
    kind: str
    session: str
    submission: str
    about: str = ""


class Standing(NamedTuple):
    """How a session stands, how much was sent to it, and how often the store has failed the process that asks, or did ``just`` now."""

    version: int
    arrived: int
    fence: int
    status: str
    holder: str | None
    failures: int
    just: bool


@dataclass(eq=False)
class Call:
    """Something that a person called of a session: how it began and ended, with an answer or an error.

    ``settled`` is since when the journal has the answer that it still waits for, ``late`` whether that is too long.
    """

    wish: Wish
    session: str
    life: Life
    began: Standing
    ended: Standing | None = None
    answer: Any = None
    error: Exception | None = None

    settled: int | None = None
    late: bool = False

    @property
    def waits(self) -> bool:
        """Whether a living process still waits for the end of what it sent."""
        return self.ended is None and not self.life.store.dead and self.wish.kind in WAITING

    def __str__(self) -> str:
        return f"{self.session}: {self.wish.kind} {self.wish.submission!r} of {self.life.actor} {self.life.number}"


def make_wishes(chance: random.Random, *, people: int, wishes: int, sessions: int, storm: int) -> dict[str, list[Wish]]:
    """What each of the people will want, in order."""
    names = [f"person {number}" for number in range(people)]
    found: dict[str, list[Wish]] = {name: [] for name in names}
    for person, name in enumerate(names):
        at = START
        for number in range(wishes):
            at += chance.randrange(storm // wishes)
            kind = chance.choices([*KINDS], [*KINDS.values()])[0]
            session, submission = f"s{chance.randrange(sessions)}", f"{kind}-{person}-{number}"
            wish = Wish(at, kind, session, submission, f"said-{person}-{number}" if kind in ("edit", "withdraw") else "")
            if wish.about:
                found[name].append(Wish(at - chance.randrange(2000), chance.choice(MESSAGES), session, wish.about))
            if kind == "fork":
                found[name].append(Wish(at + chance.randrange(10_000), chance.choice(MESSAGES), branch_of(wish), f"said-{person}-{number}"))
                if chance.random() < DELETED:
                    later = at + 10_000 + chance.randrange(20_000)
                    found[chance.choice(names)].append(Wish(later, "delete", branch_of(wish), f"delete-{person}-{number}"))
            found[name].append(wish)
            if kind in ("redact", "delete"):
                if kind == "redact":
                    before = at - chance.randrange(5000)
                    found[name].append(Wish(before, chance.choice(MESSAGES), session, f"said-{person}-{number}"))
                rival = chance.choice(RIVALS)
                found[chance.choice(names)].append(Wish(at + chance.randrange(200), rival, session, f"{rival}-{person}-{number}-too"))
            if chance.random() < REPEATED and kind != "follow":
                found[chance.choice(names)].append(Wish(at + chance.choice((0, 100, 10_000)), kind, session, submission, wish.about))
    return {name: sorted(items, key=lambda item: item.at) for name, items in found.items()}


def branch_of(wish: Wish) -> str:
    """The session that a wish to fork is to begin."""
    return f"{wish.session}.{wish.submission}"


@dataclass(eq=False)
class People:
    """Everybody, and what they know, which outlives their processes.

    ``look`` tells how a session stands, ``children`` which were begun for it. ``unheard`` is what nobody was told yet, ``seen`` what
    followers saw, ``noted`` what was decided.
    """

    wishes: dict[str, list[Wish]]
    look: Callable[[Life, str], Awaitable[Standing]]
    children: Callable[[str], Awaitable[list[str]]]
    happened: Counter[str]
    over: bool = False
    calls: list[Call] = field(default_factory=list)
    seen: dict[Wish, list[Entry]] = field(default_factory=dict)
    unheard: dict[Wish, None] = field(default_factory=dict)
    noted: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.unheard = {wish: None for items in self.wishes.values() for wish in items if wish.kind != "follow"}

    @property
    def last(self) -> int:
        """When the last wish is made."""
        return max(wish.at for items in self.wishes.values() for wish in items)

    async def act(self, life: Life) -> None:
        """One life of one of them: their wishes are calls beside each other."""
        calls = []
        for wish in self.wishes[life.actor]:
            await life.clock.sleep_until(wish.at)
            if wish.kind == "follow":
                calls.append(asyncio.create_task(self._follow(life, wish)))
            elif wish in self.unheard:
                calls.append(asyncio.create_task(self._insist(life, wish)))
        while not self.over:
            await life.clock.sleep_until(life.clock.now() + 1000)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)

    async def _insist(self, life: Life, wish: Wish) -> None:
        session = await self._session(wish)
        while isinstance(await self._call(life, wish, session, lambda: self._ask(life, wish, session)), StoreError):
            await life.clock.sleep_until(life.clock.now() + 100)
        del self.unheard[wish]

    async def _session(self, wish: Wish) -> str:
        """The session that it is wanted of: always the same child, or its caller if that had none."""
        if not wish.kind.endswith(CHILD):
            return wish.session
        if wish.submission not in self.noted:
            found = await self.children(wish.session)
            self.noted.setdefault(wish.submission, random.Random(wish.submission).choice(found or [wish.session]))
        return str(self.noted[wish.submission])

    async def _call(self, life: Life, wish: Wish, session: str, action: Callable[[], Awaitable[Any]]) -> Exception | None:
        """One call, kept with what came of it; its error."""
        call = Call(wish, session, life, await self.look(life, session))
        self.calls.append(call)
        try:
            call.answer = await action()
        except Exception as error:
            call.error = error
        if life.store.dead:
            # Nobody is left who could have been told.
            await asyncio.Event().wait()
        call.ended = await self.look(life, session)
        told = call.error.code if isinstance(call.error, PerdureError) else type(call.error).__name__ if call.error else "answered"
        self.happened[f"{wish.kind}: {told}"] += 1
        return call.error

    async def _ask(self, life: Life, wish: Wish, session: str) -> Any:
        runtime, sessions, agent = life.runtime, life.runtime.sessions, life.agent
        submission, words = wish.submission, wish.submission + PLEASE
        pick = random.Random(submission)
        identity = Identity(owner=OWNER) if session.startswith(OWNED) else None
        match wish.kind.removesuffix(CHILD):
            case "turn" | "queue" | "steer":
                deliver: Any = wish.kind
                return await sessions.send(session, words, submission=submission, deliver=deliver, agent=agent.name, identity=identity)
            case "run":
                return await runtime.run(agent, words, session=session, submission=submission, identity=identity)
            case "run a little":
                return await runtime.run(agent, words, session=session, submission=submission, identity=identity, limits=Limits(steps=1))
            case "stream":
                return [event async for event in runtime.stream(agent, words, session=session, submission=submission, identity=identity)]
            case "resume":
                return await runtime.resume(agent, session, Limits(steps=20), submission=submission)
            case "call":
                given = {"cents": pick.randrange(100)}
                return await sessions.call_tool(session, agent, pick.choice(TOOLS), given, submission=submission)
            case "interrupt":
                return await sessions.interrupt(session, submission=submission)
            case "edit":
                return await sessions.edit(session, wish.about, words, submission=submission)
            case "withdraw":
                return await sessions.withdraw(session, wish.about, submission=submission)
            case "note":
                return await sessions.note(session, words, submission=submission)
            case "route":
                return await sessions.select_route(session, pick.choice(("fast", "deep")), submission=submission)
            case "compact":
                return await sessions.compact(session, submission=submission)
            case "command":
                return await sessions.command(session, "scribe", "write", {"what": words}, agents=[agent], submission=submission)
            case "rewrite":
                return await self._rewrite(life, wish, pick)
            case "restore":
                return await self._restore(life, wish, pick)
            case "fork":
                running = pick.random() < 0.5
                return await sessions.fork(session, session_id=branch_of(wish), while_running=running)
            case "redact":
                return await self._redact(life, wish, pick)
            case "delete":
                return await sessions.delete(session, tree=pick.random() < 0.3)
            case "archive":
                return await sessions.archive(session, submission=submission)
            case "revive":
                return await sessions.revive(session, submission=submission)
            case "halt":
                return await sessions.halt(session)
            case "repair":
                return await sessions.repair(session)
            case _:
                raise AssertionError(f"nobody knows how to {wish.kind}")

    async def _rewrite(self, life: Life, wish: Wish, pick: random.Random) -> Any:
        """Say something else from some message on; what was decided once is the same edit for ever."""
        sessions = life.runtime.sessions
        if wish.submission not in self.noted:
            revision = await sessions.revision(wish.session)
            shown = await sessions.history(wish.session, limit=1000)
            places = [message.position for message in shown if message.role == "user"]
            if not places or revision != await sessions.revision(wish.session):
                return None
            self.noted.setdefault(wish.submission, ((pick.choice(places), len(shown)), revision))
        span, revision = self.noted[wish.submission]
        return await sessions.rewrite(wish.session, span, wish.submission, expected=revision, submission=wish.submission)

    async def _restore(self, life: Life, wish: Wish, pick: random.Random) -> Any:
        sessions = life.runtime.sessions
        if wish.submission not in self.noted:
            earlier = [edit.parent for edit in await sessions.revisions(wish.session)]
            if not earlier:
                return None
            self.noted.setdefault(wish.submission, pick.choice(earlier))
        return await sessions.restore(wish.session, self.noted[wish.submission], submission=wish.submission)

    async def _redact(self, life: Life, wish: Wish, pick: random.Random) -> Any:
        """Remove one message, by its entry, with all that it says elsewhere, or what stands at a place by then."""
        sessions = life.runtime.sessions
        if wish.submission not in self.noted:
            shown = [message for message in await sessions.history(wish.session, limit=1000) if not message.session]
            if not shown:
                return None
            self.noted.setdefault(wish.submission, (pick.choice(shown), pick.random() < 0.7))
        message, named = self.noted[wish.submission]
        what = {"entries": message.seq} if named else {"positions": message.position}
        while True:
            try:
                return await sessions.redact(wish.session, **what, submission=wish.submission)
            except SessionBusy:
                await life.clock.sleep_until(life.clock.now() + 300)

    async def _follow(self, life: Life, wish: Wish) -> None:
        """See every entry once, over many connections, some of which take the session up."""
        seen = self.seen.setdefault(wish, [])
        pick = random.Random(f"{wish.submission} {life.number}")

        async def listen() -> None:
            agent = life.agent if pick.random() < 0.5 else None
            async with life.runtime.session(wish.session, agent) as handle:
                async for event in handle.events(after=len(seen)):
                    announced = isinstance(event, RequestOpened) and event.seq <= len(seen)
                    if isinstance(event, Entry) and not announced:
                        seen.append(event)

        async def connect() -> None:
            listening = asyncio.create_task(listen())
            hanging_up = asyncio.create_task(life.clock.sleep_until(life.clock.now() + pick.randrange(500, 30_000)))
            try:
                await asyncio.wait([listening, hanging_up], return_when=asyncio.FIRST_COMPLETED)
                if listening.done():
                    await listening
                    raise AssertionError("the stream ended without a reason")
            finally:
                for task in (listening, hanging_up):
                    task.cancel()
                with suppress(asyncio.CancelledError, PerdureError):
                    await listening

        while not self.over:
            await self._call(life, wish, wish.session, connect)
            await life.clock.sleep_until(life.clock.now() + pick.randrange(500))
