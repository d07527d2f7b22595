"""`verify` finds nothing in a store that perdure wrote, and something wherever a byte of it was changed."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import perdure
from perdure import (
    Agent,
    ApprovalCall,
    Continue,
    FunctionModel,
    HookContext,
    Identity,
    Limits,
    Message,
    Middleware,
    ModelRequest,
    Reject,
    Replace,
    Reply,
    Rewrite,
    Runtime,
    ToolCall,
    ToolCallResponse,
    ToolContext,
    TurnEnding,
    Usage,
    tool,
)
from perdure.core import checkpoint as checkpoints
from perdure.core.entries import Entry
from perdure.core.errors import SessionNotFound, UsageError
from perdure.core.evolve import fold
from perdure.core.journal import GENESIS, open_entry, seal
from perdure.runtime.backup import backup
from perdure.runtime.verify import Checked, Problem, head, verify
from perdure.store.memory import MemoryStore
from perdure.store.sqlite import SQLiteStore
from perdure.store.sqlite.reads import Reader
from perdure.testing.clock import START, VirtualClock

FAR = 4_000_000_000_000


@tool(effect="idempotent")
async def fetch(page: int) -> str:
    """Fetch a page, longer than what the journal keeps inline."""
    return f"{page:06d}" * 8_000


@tool(effect="external", key=("order",))
async def refund(ctx: ToolContext, order: str, cents: int) -> str:
    """Pay somebody back."""
    return f"refunded {order}"


@tool(effect="external", key=("order",))
async def charge(order: str) -> str:
    """Take money, and fall over."""
    raise OSError("the line went dead")


@tool(effect="pure")
async def hang() -> str:
    """Never end."""
    await asyncio.Event().wait()
    return ""


SCRIPT: dict[str, list[Reply]] = {
    "refund": [
        Reply("Let me look.", tool_calls=[ToolCall("fetch", {"page": 1}), ToolCall("refund", {"order": "A-1", "cents": 5})]),
        Reply("Refunded.", usage=Usage(input_tokens=10, output_tokens=3)),
    ],
    "charge": [Reply("", tool_calls=[ToolCall("charge", {"order": "B-2"})]), Reply("I don't know whether it worked.")],
    "hang": [Reply("", tool_calls=[ToolCall("hang", {})])],
}


def answer(request: ModelRequest) -> Reply:
    said = next(message.text for message in reversed(request.messages) if message.role == "user" and not message.text.startswith("[note]"))
    script = SCRIPT.get(said, [])
    return script[request.step] if request.step < len(script) else Reply("Understood.")


class Clerk(Middleware):
    """Leaves every kind of fact that middleware can leave."""

    name = "clerk"

    def __init__(self) -> None:
        self.commands = {"note": lambda ctx, arguments: ctx.state.__setitem__("noted", arguments["what"])}

    def message_submit(self, ctx: HookContext, message: Message) -> Reject | None:
        ctx.guide("They are in a hurry.", once="welcome")
        return Reject("no") if message.text == "rob" else None

    async def before_model(self, ctx: HookContext) -> None:
        await ctx.effect("count", lambda: ctx.step)

    def model_request(self, ctx: HookContext, request: ModelRequest) -> ModelRequest | None:
        return None if ctx.step else replace(request, instructions="Be very kind.")

    def before_tool(self, ctx: HookContext, call: ApprovalCall) -> Rewrite | None:
        return Rewrite(arguments={"page": 2}) if call.name == "fetch" else None

    def after_tool(self, ctx: HookContext, call: ApprovalCall, response: ToolCallResponse) -> Replace | None:
        return Replace("page " * 8_000) if call.name == "fetch" else None

    def stop(self, ctx: HookContext, answer: str) -> Continue | None:
        return Continue("Are you sure?") if answer == "Refunded." else None

    def turn_end(self, ctx: HookContext, outcome: TurnEnding) -> None:
        ctx.state["turns"] = ctx.state.get("turns", 0) + 1


AGENT = Agent(
    "clerk",
    instructions="Be kind.",
    model=FunctionModel(answer),
    tools=[fetch, refund, charge, hang],
    approve=["refund"],
    middleware=[Clerk()],
)


async def write_rich_session(runtime: Runtime, session_id: str = "rich") -> None:
    """Tools, an edited approval, an effect settled late, a stored part, a steer, an interrupt, a refused command, middleware, a row that
    waits."""
    sessions = runtime.sessions
    identity = Identity(owner="acme", user="ann")
    running = asyncio.create_task(
        runtime.run(AGENT, "refund", session=session_id, submission="mail-1", identity=identity, labels={"desk": "3"})
    )
    while not (await _requests(runtime, session_id)):
        await asyncio.sleep(0.001)
    [request] = await sessions.requests(session_id)
    await sessions.approve(session_id, request.request_id, {"order": "A-1", "cents": 4}, actor="ben")
    assert (await running).ok
    assert (await runtime.run(AGENT, "charge", session=session_id, submission="mail-2")).ok
    [unknown] = await sessions.uncertain(session_id)
    await sessions.report_attempt(session_id, unknown.operation, unknown.attempt, "charged", False, actor="the bank")
    async with runtime.session(session_id, AGENT) as session:
        stuck = await session.send("hang", submission="mail-3", actor="ann")
        async for event in session.events():
            if isinstance(event, perdure.OperationStarted) and event.plan is not None and event.plan.name == "hang":
                await session.send("and be quick", deliver="steer", submission="steer-1")
                await session.interrupt(turn="t99", submission="stop-0")
                await session.interrupt(reason="enough", submission="stop-1", actor="cleo")
            if isinstance(event, perdure.TurnEnded) and event.submission == stuck.id:
                break
        async for event in session.events():
            if isinstance(event, perdure.TurnCompleted) and event.submission == "steer-1":
                break
    while (await sessions.info(session_id)).holder is not None:
        await asyncio.sleep(0.001)
    assert (await runtime.run(AGENT, "rob", session=session_id, submission="mail-5")).status == "aborted"
    await sessions.command(session_id, "clerk", "note", {"what": "all well"}, submission="note-1", actor="dan")
    await runtime.recover([AGENT], session=session_id)
    await sessions.send(session_id, "later", submission="mail-4", not_before=FAR)


async def _requests(runtime: Runtime, session_id: str) -> list[Any]:
    try:
        return await runtime.sessions.requests(session_id)
    except SessionNotFound:
        return []


async def problems_in(store: Any, session_id: str | None = None, **options: Any) -> list[Problem]:
    return [problem async for problem in verify(store, session_id, **options)]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("verify") / "agents.db"

    async def write() -> None:
        async with perdure.open(str(path)) as runtime:
            await write_rich_session(runtime)

    asyncio.run(write())
    return path


@pytest.fixture
async def store(written: Path, tmp_path: Path) -> AsyncIterator[SQLiteStore]:
    copy = tmp_path / "agents.db"
    shutil.copy(written, copy)
    opened = SQLiteStore(copy)
    await opened.open()
    yield opened
    await opened.close()


@pytest.fixture
def inline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of reads are faster without a thread for each."""

    async def run(self: Reader, read: Callable[..., Any], *arguments: Any) -> Any:
        return self._guarded(read, arguments)

    monkeypatch.setattr(Reader, "run", run)


@pytest.mark.parametrize("url", ["memory://", "sqlite"])
async def test_what_perdure_wrote_has_no_problem(url: str, tmp_path: Path) -> None:
    async with perdure.open(url if "://" in url else str(tmp_path / "agents.db")) as runtime:
        await write_rich_session(runtime)
        await runtime.run(AGENT, "charge", session="other")
        checked = Checked()
        assert await problems_in(runtime.store, checked=checked) == []
        assert checked.sessions == 2
        assert checked.entries > 50
        assert checked.submissions == 12
        assert checked.blobs > 4


async def test_a_session_can_be_checked_while_it_is_worked_on(tmp_path: Path) -> None:
    async with perdure.open(str(tmp_path / "agents.db")) as runtime:
        rounds = 0

        async def work() -> None:
            written = 0
            while rounds < 4:
                await write_rich_session(runtime, f"rich {written}")
                written += 1

        working = asyncio.create_task(work())
        while not working.done():
            assert await problems_in(runtime.store) == []
            rounds += 1
        await working
        assert await problems_in(runtime.store) == []


async def test_a_waiting_and_a_running_session_have_no_problem(tmp_path: Path) -> None:
    asking = AGENT.replace(approval_timeout=3600)
    async with perdure.open(str(tmp_path / "agents.db")) as runtime:
        async with runtime.session("asks", asking) as session:
            await session.send("refund")
            async for event in session.events():
                if isinstance(event, perdure.ApprovalRequested):
                    break
        async with runtime.session("hangs", AGENT) as session:
            await session.send("hang")
            async for event in session.events():
                if isinstance(event, perdure.OperationStarted) and event.plan is not None and event.plan.name == "hang":
                    break
            assert (await runtime.sessions.info("hangs")).status == "running"
            assert await problems_in(runtime.store) == []
        await runtime.close(grace=0)
    async with perdure.open(str(tmp_path / "agents.db")) as runtime:
        assert {info.status for info in await runtime.sessions.list()} == {"waiting", "queued"}
        assert await problems_in(runtime.store) == []


async def test_a_head_kept_elsewhere_notices_what_was_cut_off_or_rewritten(store: SQLiteStore) -> None:
    kept = await head(store, "rich")
    version, _, chain = kept.partition(":")
    assert await problems_in(store, "rich", expected_head=kept) == []
    longer = await problems_in(store, "rich", expected_head=f"{int(version) + 1}:{chain}")
    assert [problem.seq for problem in longer] == [int(version)]
    other = await problems_in(store, "rich", expected_head=f"3:{chain}")
    assert [(problem.where, problem.seq) for problem in other] == [("journal", 3)]
    with pytest.raises(UsageError):
        await problems_in(store, "rich", expected_head="three")
    with pytest.raises(SessionNotFound):
        await problems_in(store, "nobody")


@pytest.mark.parametrize("later", [False, True], ids=["created before", "sent before"])
async def test_a_clock_that_was_set_back_damages_nothing(tmp_path: Path, later: bool) -> None:
    clock, agent = VirtualClock(), Agent("a", model=FunctionModel(lambda request: "ok"))
    async with perdure.open(tmp_path / "b.db", clock=clock) as runtime:
        await runtime.run(agent, "first", session="s")
        if later:
            clock.advance(86_400_000)
            await runtime.sessions.send("s", "second", submission="m-2")
    async with perdure.open(tmp_path / "b.db", clock=VirtualClock(START - (0 if later else 86_400_000))) as runtime:
        await runtime.sessions.send("s", "third", submission="m-3")
        assert [problem.what async for problem in verify(runtime.store)] == []
        await runtime.recover([agent])
        assert [problem.what async for problem in verify(runtime.store)] == []


def behind(past: Sequence[Entry], kind: str, *more: Entry) -> list[Entry]:
    """The journal up to the first entry of a kind, and what somebody wrote behind it."""
    last = first(past, kind)
    return [*past[: last.seq], *(replace(entry, number=last.number, at=last.at) for entry in more)]


def first(past: Sequence[Entry], kind: str) -> Any:
    return next(entry for entry in past if entry.kind == kind)


@pytest.mark.spec("S0-111")
@pytest.mark.parametrize(
    ("rewrite", "words"),
    [
        (lambda past: behind(past, "turn_completed", first(past, "turn_started")), "which the turn began with, was taken up by entry 3"),
        (lambda past: behind(past, "operation_ended", replace(first(past, "operation_started"), attempt=2)), "has ended"),
        (
            lambda past: behind(past, "operation_started", *2 * [replace(first(past, "operation_ended"), status="failed", final=False)]),
            "has its receipt",
        ),
        (lambda past: behind(past, "request_opened", first(past, "request_opened")), "is open"),
        (lambda past: behind(past, "request_opened", first(past, "turn_completed")), "waits for an answer"),
        (
            lambda past: [*past[: first(past, "turn_completed").seq - 1], replace(first(past, "turn_completed"), steps=99)],
            "says of the turn",
        ),
    ],
)
async def test_what_happened_twice_or_too_early_is_noticed_though_every_digest_is_right(
    rewrite: Callable[[list[Entry]], list[Entry]], words: str
) -> None:
    store = MemoryStore()
    async with perdure.open(store.peer()) as runtime:
        await write_rich_session(runtime)
        session = store._content.by_id["rich"]
        forged = rewrite([open_entry(row) for row in session.journal])
        session.journal, chain = [], GENESIS
        for seq, entry in enumerate(forged, 1):
            session.journal.append(seal(replace(entry, seq=seq), chain=chain, session_id="rich", salt=bytes(16)))
            chain = session.journal[-1].chain
        checkpoint = checkpoints.encode(fold([open_entry(row) for row in session.journal]))
        session.row = replace(session.row, version=len(forged), checkpoint=checkpoint)
        assert any(problem.seq >= len(forged) - 1 and words in problem.what for problem in await problems_in(runtime.store))


async def test_content_that_nobody_refers_to_is_no_problem(store: SQLiteStore) -> None:
    from perdure.core import canonical
    from perdure.store.base import StoredBlob

    await store.put_blob("rich", StoredBlob(digest=canonical.digest(b"left over"), media_type="text/plain", data=b"left over"))
    assert await problems_in(store) == []


async def test_one_row_that_cannot_be_read_hides_no_other(store: SQLiteStore, tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "agents.db") as raw:
        raw.execute("UPDATE journal SET kind = CAST(x'ff' AS TEXT) WHERE seq = 5")
        raw.execute("UPDATE journal SET body = x'00' WHERE seq = 9")
    raw.close()
    found = [problem.seq for problem in await problems_in(store, "rich") if problem.where == "journal"]
    assert {5, 9} <= set(found)
    assert found[0] == 5


async def test_any_row_that_is_gone_is_noticed(store: SQLiteStore, tmp_path: Path, inline: None) -> None:
    raw = sqlite3.connect(tmp_path / "agents.db", isolation_level=None)
    tried: dict[str, int] = {}
    for table in ("sessions", "journal", "inbox", "effects", "blobs"):
        for row in raw.execute(f"SELECT * FROM {table}").fetchall():
            key = [item[1] for item in raw.execute(f"PRAGMA table_info({table})")].index(KEYS[table])
            raw.execute(f"DELETE FROM {table} WHERE {KEYS[table]} = ?", (row[key],))
            found = await problems_in(store)
            assert found, f"{table} {row!s:.80}"
            raw.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row)
            tried[table] = tried.get(table, 0) + 1
    assert len(tried) == 5
    raw.close()


# What follows from nothing else that is stored, so that only a change by more than a minute is noticed.
ROUGH = {("inbox", "at"), ("sessions", "wake_at")}

# Not part of what was written: where SQLite keeps a row. The fence only ever has to be large enough, and a consumer's place no larger than
# its session. What somebody set as a pool's limits stands there alone.
UNCHECKED = {
    *(("journal", "id"), ("inbox", "id"), ("blobs", "id"), ("sessions", "fence")),
    *(("cursors", "no"), ("cursors", "consumer"), ("pools", "limits")),
}

# Nothing but the row itself knows who sent a message that still waits, and under which id: the digest is that of what was said.
OWN = ("submission_id", "actor")

# Nor who holds a session, and how often it was taken over before something of it succeeded.
HELD = ("holder", "claims")

KEYS = {
    "journal": "id",
    "inbox": "id",
    "blobs": "id",
    "sessions": "no",
    "effects": "seq",
    "uniques": "key",
    "pools": "owner",
    "shares": "no",
    "cursors": "no",
}

UNTOUCHED = {
    "meta": "the store's id and secret are in no session: both are random, and whoever changes them changes keys and tokens from then on",
    "runners": "who works here now is true for seconds, and says nothing of what was done",
}
"""Tables that `verify` doesn't compare with anything, and why."""

LONG_VALUES = ("body", "data", "checkpoint")

Bound = tuple[bytes, str] | int
"""A value as it is written: text as bytes, since what stands in a damaged file need not be text."""


def bound(value: Bound) -> tuple[str, bytes | int]:
    return (f"CAST(? AS {value[1]})", value[0]) if isinstance(value, tuple) else ("?", value)


def flips(raw: sqlite3.Connection, *, every: Collection[str]) -> Iterator[tuple[str, str, Bound, Bound, Bound]]:
    """(table, column, key, value, value with one byte changed) for every value of every row; in the tables ``every`` each of its bytes."""
    whole: set[str] = set()
    for table, key in KEYS.items():
        names = [row[1] for row in raw.execute(f"PRAGMA table_info({table})")]
        columns = ", ".join(f"CASE typeof({name}) WHEN 'text' THEN CAST({name} AS BLOB) ELSE {name} END, typeof({name})" for name in names)
        for row in raw.execute(f"SELECT {columns} FROM {table}").fetchall():
            values: dict[str, Any] = {
                name: row[2 * position] if isinstance(row[2 * position], int | None) else (row[2 * position], row[2 * position + 1])
                for position, name in enumerate(names)
            }
            for name, value in values.items():
                waits = table == "inbox" and values["consumed_seq"] is None
                held = table == "sessions" and values["holder"] is not None
                if value is None or (table, name) in UNCHECKED or (waits and name in OWN) or (held and name in HELD):
                    continue
                if isinstance(value, int):
                    highest = 1 << max(8, value.bit_length() - 1 - (value.bit_length() - 1) % 8)
                    # A consumer may have read less than it did, and a session that is held be listed with any commit since it was.
                    rough = (table, name) in ROUGH or table == "cursors" or (held and name == "updated")
                    for bit in (highest,) if rough else (1, highest):
                        yield table, name, values[key], value, value ^ bit
                    continue
                data, kind = value
                if not data:
                    yield table, name, values[key], value, (b"x", kind)
                    continue
                full = (table in every and name != "data") or (
                    table == "journal" and name == "body" and table not in whole and len(data) > 150
                )
                if full:
                    whole.add(table)
                middle = len(data) // 2 if name in LONG_VALUES else 0
                for index in range(len(data)) if full else sorted({0, middle, len(data) - 1}):
                    changed = bytearray(data)
                    # The first by its lowest bit, which mostly leaves text that can be read; the last by its highest, which doesn't.
                    changed[index] ^= 0x80 if index and index == len(data) - 1 else 0x01
                    yield table, name, values[key], value, (bytes(changed), kind)


def write(raw: sqlite3.Connection, table: str, name: str, key: Bound, value: Bound) -> None:
    (new, given), (row, named) = bound(value), bound(key)
    raw.execute(f"UPDATE {table} SET {name} = {new} WHERE {KEYS[table]} = {row}", (given, named))


async def flipped(store: SQLiteStore, path: Path, *, every: Collection[str] = ()) -> dict[tuple[str, str], int]:
    """How many bytes of each column were changed, one after the other; each must have been noticed."""
    raw = sqlite3.connect(path, isolation_level=None)
    raw.execute("PRAGMA synchronous = OFF")
    tried: dict[tuple[str, str], int] = {}
    unnoticed: list[str] = []
    for table, name, key, value, changed in list(flips(raw, every=every)):
        term, given = bound(changed)
        if name == KEYS[table] and raw.execute(f"SELECT 1 FROM {table} WHERE {name} = {term}", (given,)).fetchone():
            # Two rows with one key could not be told apart afterwards.
            continue
        try:
            write(raw, table, name, key, changed)
        except sqlite3.IntegrityError:
            continue
        tried[table, name] = tried.get((table, name), 0) + 1
        if not await problems_in(store):
            unnoticed.append(f"{table}.{name} of row {key!r}: {str(value)[:60]} -> {str(changed)[:60]}")
        # A key that was changed is found under its new value.
        write(raw, table, name, changed if name == KEYS[table] else key, value)
    assert await problems_in(store) == []
    raw.close()
    assert unnoticed == []
    return tried


def test_every_table_is_checked_or_named_with_the_reason_why_not(written: Path) -> None:
    with sqlite3.connect(written) as raw:
        tables = {name for (name,) in raw.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")}
    raw.close()
    assert set(KEYS) | set(UNTOUCHED) == tables


async def test_any_byte_that_was_changed_in_the_file_is_noticed(store: SQLiteStore, tmp_path: Path, inline: None) -> None:
    tried = await flipped(store, tmp_path / "agents.db")
    assert {table for table, _ in tried} == {"journal", "inbox", "blobs", "sessions", "effects"}
    assert sum(tried.values()) > 1000
    for name in ("checkpoint", "status", "title", "labels", "owner", "agent", "updated", "created", "wake_at", "version"):
        assert tried["sessions", name]


@pytest.mark.long
async def test_any_byte_at_all_that_was_changed_in_the_file_is_noticed(store: SQLiteStore, tmp_path: Path, inline: None) -> None:
    tried = await flipped(store, tmp_path / "agents.db", every=KEYS)
    assert sum(tried.values()) > 10_000


@tool(effect="external", unique="seat:{number}")
async def book(number: int) -> str:
    """Take a seat."""
    return f"seat {number} is yours"


async def write_busy_store(path: Path, copy: Path) -> None:
    """A turn that drew from its owner's pool, holds a seat, and runs; and a consumer who read some of it. The copy is of that moment."""
    steps = [Reply(tool_calls=[ToolCall("book", {"number": 7})]), Reply(tool_calls=[ToolCall("hang", {})])]
    agent = Agent("busy", model=FunctionModel(lambda request: steps[request.step]), tools=[book, hang])
    async with perdure.open(path) as runtime:
        await runtime.pools.set("acme", Limits(tokens=1_000_000, steps=100))
        async with runtime.session("busy", agent, identity=Identity(owner="acme")) as session:
            await session.send("go", submission="mail-1")
            async for event in session.events():
                if isinstance(event, perdure.OperationStarted) and event.plan is not None and event.plan.name == "hang":
                    break
            await runtime.sessions.consumer("mirror").ack("busy", 2)
            await backup(str(path), copy)
            await runtime.close(grace=0)


async def test_any_byte_of_a_running_turns_checkpoint_pool_share_and_seat_is_noticed(tmp_path: Path, inline: None) -> None:
    await write_busy_store(tmp_path / "first.db", tmp_path / "copy.db")
    store = SQLiteStore(tmp_path / "copy.db")
    await store.open()
    tried = await flipped(store, tmp_path / "copy.db", every=("sessions", "pools", "shares", "uniques", "cursors"))
    await store.close()
    assert {table for table, _ in tried} == set(KEYS)
    assert tried["sessions", "checkpoint"] > 1000
    assert tried["shares", "drawn"] > 10
