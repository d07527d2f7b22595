"""A transactional tool: what it writes is in the commit of its receipt, whatever happens."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

import perdure
from perdure import Agent, Reply, Runtime, ScriptedModel, ToolCall, ToolCallResponse, ToolContext, ToolError, UsageError, tool
from perdure.core.entries import OperationEnded, OperationStarted
from perdure.runtime.verify import Problem, verify
from perdure.store.base import Commit, Committed
from perdure.store.sqlite import SQLiteStore
from perdure.store.sqlite import within as within_module
from perdure.testing import FaultStore
from perdure.testing.faults import Call

SEATS = "CREATE TABLE IF NOT EXISTS seats (name TEXT PRIMARY KEY, whose TEXT)"


def reserve(connection: Any, seat: str, whose: str) -> dict[str, Any]:
    connection.execute(SEATS)
    connection.execute("INSERT INTO seats VALUES (?, ?)", (seat, whose))
    return {"seat": seat, "taken": connection.execute("SELECT count(*) FROM seats").fetchone()[0]}


@tool(effect="transactional")
async def book(ctx: ToolContext, seat: str) -> Any:
    """Book a seat."""
    return ctx.transaction(reserve, seat, ctx.session_id)


def booking(*calls: list[ToolCall], tools: Any = (book,)) -> Agent:
    return Agent("a", model=ScriptedModel([*(Reply(tool_calls=asked) for asked in calls), Reply("Done.")]), tools=list(tools))


def seat(name: str, tool: str = "book") -> ToolCall:
    return ToolCall(name=tool, arguments={"seat": name})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "agents.db"


@pytest.fixture(params=["sqlite", "memory"])
async def runtime(request: pytest.FixtureRequest, path: Path) -> AsyncIterator[Runtime]:
    async with perdure.open(str(path) if request.param == "sqlite" else "memory://") as opened:
        yield opened


def stored(path: Path) -> list[str]:
    connection = apsw.Connection(str(path))
    try:
        return [name for (name,) in connection.execute("SELECT name FROM seats ORDER BY name")]
    except apsw.SQLError:
        return []
    finally:
        connection.close()


async def problems(runtime: Runtime) -> list[Problem]:
    return [problem async for problem in verify(runtime.store)]


async def responses(runtime: Runtime, session: str = "s") -> list[Any]:
    """What the calls came to, as the model reads it."""
    messages = await runtime.sessions.history(session)
    return [part.response for message in messages for part in message.parts if isinstance(part, ToolCallResponse)]


async def ended(runtime: Runtime, session: str = "s") -> list[tuple[str, str]]:
    """How the calls ended, and why."""
    entries = [entry for entry in await runtime.sessions.entries(session, kinds=["operation_ended"]) if isinstance(entry, OperationEnded)]
    return [(entry.status, entry.failure.code if entry.failure else "") for entry in entries if not entry.operation.endswith(".0")]


async def test_what_the_function_returns_is_the_result_and_what_it_wrote_is_stored(runtime: Runtime) -> None:
    result = await runtime.run(booking([seat("12A")], [seat("12B")]), "Two seats, please.", session="s")

    assert result.output == "Done."
    assert await responses(runtime) == [{"seat": "12A", "taken": 1}, {"seat": "12B", "taken": 2}]
    assert await ended(runtime) == [("succeeded", ""), ("succeeded", "")]
    assert await problems(runtime) == []


async def test_a_row_is_there_exactly_when_its_receipt_is(path: Path) -> None:
    """Seen from outside, before and after every write of the store."""
    seen: list[tuple[int, int]] = []

    async def look(call: Call, when: str) -> None:
        if call.kind in ("commit", "send"):
            connection = apsw.Connection(str(path))
            entries = connection.execute("SELECT body FROM journal WHERE kind = 'operation_ended'").fetchall()
            connection.close()
            seen.append((len(stored(path)), sum(b'"taken"' in body for (body,) in entries)))

    async with perdure.Runtime(FaultStore(SQLiteStore(path), gate=look)) as runtime:
        await runtime.run(booking([seat("12A"), seat("12B")], [seat("12C")]), "Seats, please.", session="s")

    assert all(rows == receipts for rows, receipts in seen)
    assert {rows for rows, _ in seen} == {0, 1, 2, 3}


async def test_a_tool_may_await_it_and_may_be_sync_and_one_that_leaves_it_out_is_warned_of(
    runtime: Runtime, caplog: pytest.LogCaptureFixture
) -> None:
    @tool(effect="transactional")
    async def awaits(ctx: ToolContext, seat: str) -> Any:
        return await ctx.transaction(reserve, seat, "me")

    @tool(effect="transactional")
    def sync(ctx: ToolContext, seat: str) -> Any:
        return ctx.transaction(reserve, seat, "me")

    @tool(effect="transactional")
    async def idle(ctx: ToolContext, seat: str) -> Any:
        return f"nothing to do for {seat}"

    agent = booking([seat("1", "awaits")], [seat("2", "sync")], [seat("3", "idle")], tools=[awaits, sync, idle])
    await runtime.run(agent, "Please.", session="s")

    assert await responses(runtime) == [{"seat": "1", "taken": 1}, {"seat": "2", "taken": 2}, "nothing to do for 3"]
    [warning] = [record.getMessage() for record in caplog.records if "transaction" in record.getMessage()]
    assert warning.startswith("the transactional tool idle ended without its transaction")


def raising(connection: Any, seat: str) -> None:
    reserve(connection, seat, "me")
    raise ToolError("the seat is broken")


def twice(connection: Any, seat: str) -> None:
    reserve(connection, seat, "me")
    reserve(connection, seat, "me")


def unkept(connection: Any, seat: str) -> Any:
    reserve(connection, seat, "me")
    return object()


def huge(connection: Any, seat: str) -> Any:
    reserve(connection, seat, "me")
    return "x" * 17_000_000


def rolls_back(connection: Any, seat: str) -> Any:
    reserve(connection, seat, "me")
    connection.execute("INSERT OR ROLLBACK INTO seats VALUES (?, '')", (seat,))


def endless(connection: Any, seat: str) -> Any:
    reserve(connection, seat, "me")
    sql = "WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) INSERT INTO seats SELECT x, x FROM n"
    return connection.execute(sql).fetchall()


def meddles(connection: Any, seat: str) -> Any:
    reserve(connection, seat, "me")
    connection.execute("CREATE TABLE sessions (mine)")


def commits(connection: Any, seat: str) -> Any:
    reserve(connection, seat, "me")
    connection.execute("COMMIT")


def exits(connection: Any, seat: str) -> Any:
    reserve(connection, seat, "me")
    raise SystemExit(3)


async def not_plain(connection: Any, seat: str) -> Any:
    reserve(connection, seat, "me")


@pytest.mark.parametrize(
    ("function", "code", "told"),
    [
        (raising, "tool_error", "the seat is broken"),
        (twice, "tool_raised", "ConstraintError: UNIQUE constraint failed"),
        (unkept, "result_invalid", "what it did was undone"),
        (huge, "tool_raised", "LimitExceeded"),
        (rolls_back, "tool_raised", "TransactionLost: the function ended the transaction"),
        (endless, "tool_raised", "TransactionLost: its SQL worked for longer than"),
        (meddles, "tool_raised", "AuthError"),
        (commits, "tool_raised", "AuthError"),
        (exits, "tool_raised", "SystemExit: 3"),
        (not_plain, "tool_raised", "UsageError: a function in a transaction can't be async"),
    ],
)
async def test_a_function_that_comes_to_nothing_is_a_failed_call_and_nothing_of_it_stays(
    runtime: Runtime, function: Callable[..., Any], code: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(within_module, "SECONDS", 0.05 if function is endless else 60.0)

    @tool(effect="transactional")
    async def fail(ctx: ToolContext, seat: str) -> Any:
        return ctx.transaction(function, seat)

    agent = booking([seat("12A")], [seat("12B", "fail"), seat("12C")], tools=[book, fail])
    result = await runtime.run(agent, "Please.", session="s")

    first, second, third = await responses(runtime)
    assert result.ok
    assert (first, third) == ({"seat": "12A", "taken": 1}, {"seat": "12C", "taken": 2})
    assert told in str(second)
    assert sorted(await ended(runtime)) == [("failed", code), ("succeeded", ""), ("succeeded", "")]
    assert await problems(runtime) == []


async def test_one_sessions_failure_harms_no_other_in_the_same_group(path: Path) -> None:
    @tool(effect="transactional")
    async def maybe(ctx: ToolContext, seat: str) -> Any:
        match seat[-1]:
            case "3":
                return ctx.transaction(rolls_back, seat)
            case "7":
                return ctx.transaction(twice, seat)
            case _:
                return ctx.transaction(reserve, seat, "me")

    async with perdure.open(str(path)) as runtime:
        runs = [runtime.run(booking([seat(f"{number}", "maybe")], tools=[maybe]), "Please.", session=f"s{number}") for number in range(20)]
        await asyncio.gather(*runs)
        told = [await ended(runtime, f"s{number}") for number in range(20)]

    bad = [number for number in range(20) if number % 10 in (3, 7)]
    assert [number for number in range(20) if told[number] != [("succeeded", "")]] == bad
    assert stored(path) == sorted(f"{number}" for number in range(20) if number not in bad)


async def test_a_tool_that_returns_something_else_than_its_transaction_did_nothing(runtime: Runtime) -> None:
    @tool(effect="transactional")
    async def forgets(ctx: ToolContext, seat: str) -> Any:
        taken = await ctx.transaction(reserve, seat, "me")
        return f"seat {taken}"

    @tool(effect="transactional")
    async def doubles(ctx: ToolContext, seat: str) -> Any:
        ctx.transaction(reserve, seat, "me")
        return ctx.transaction(reserve, seat + "2", "me")

    agent = booking([seat("1", "forgets"), seat("2", "doubles"), seat("3")], tools=[forgets, doubles, book])
    await runtime.run(agent, "Please.", session="s")

    first, second, third = await responses(runtime)
    assert first == second
    assert "nothing was done: the tool asked for a transaction and returned something else" in str(first)
    assert third == {"seat": "3", "taken": 1}


@pytest.mark.parametrize(("effect", "status"), [("external", "uncertain"), ("idempotent", "failed"), ("pure", "failed")])
async def test_only_transactional_tools_have_a_transaction(runtime: Runtime, effect: Any, status: str) -> None:
    caught: list[UsageError] = []

    @tool(effect=effect)
    async def other(ctx: ToolContext, seat: str) -> Any:
        try:
            return ctx.transaction(reserve, seat, "me")
        except UsageError as error:
            caught.append(error)
            raise

    await runtime.run(booking([seat("1", "other")], tools=[other]), "Please.", session="s")

    assert caught[0].hint == 'declare the tool with effect="transactional"'
    assert await ended(runtime) == [(status, "tool_raised")]


async def test_a_call_that_is_interrupted_or_too_late_before_its_commit_did_nothing(runtime: Runtime) -> None:
    entered = asyncio.Event()

    @tool(effect="transactional", timeout=0.05)
    async def slow(ctx: ToolContext, seat: str) -> Any:
        await asyncio.sleep(60)
        return ctx.transaction(reserve, seat, "me")

    @tool(effect="transactional")
    async def waits(ctx: ToolContext, seat: str) -> Any:
        entered.set()
        await asyncio.sleep(60)
        return ctx.transaction(reserve, seat, "me")

    agent = booking([seat("1", "slow")], [seat("2", "waits")], tools=[slow, waits])
    running = asyncio.ensure_future(runtime.run(agent, "Go.", session="s"))
    await entered.wait()
    await runtime.sessions.interrupt("s")
    assert (await running).status == "aborted"
    assert await ended(runtime) == [("cancelled", "timeout"), ("cancelled", "interrupted")]

    await runtime.run(booking([seat("3")]), "Go.", session="t")
    assert await responses(runtime, "t") == [{"seat": "3", "taken": 1}]


async def test_a_holder_that_was_fenced_off_runs_nothing_and_leaves_nothing(path: Path) -> None:
    """Version and fence are compared before the function runs."""
    ran: list[str] = []
    taken: list[Any] = []

    def noted(connection: Any, seat: str) -> Any:
        ran.append(seat)
        return reserve(connection, seat, "me")

    @tool(effect="transactional")
    async def noting(ctx: ToolContext, seat: str) -> Any:
        return ctx.transaction(noted, seat)

    async def take_over(call: Call, when: str) -> None:
        if when == "before" and isinstance(call.given, Commit) and call.given.within is not None and not taken:
            taken.append(await other.claim(call.given.no, "somebody else", force=True))

    other = SQLiteStore(path)
    await other.open()
    async with perdure.Runtime(FaultStore(SQLiteStore(path), gate=take_over)) as runtime:
        await runtime.run(booking([seat("12A", "noting")], tools=[noting]), "Please.", session="s")

        assert isinstance(taken[0], Committed)
        assert (ran, stored(path)) == (["12A"], ["12A"])
        assert await responses(runtime) == [{"seat": "12A", "taken": 1}]
        started = await runtime.sessions.entries("s", kinds=["operation_started"])
        assert [entry.attempt for entry in started if isinstance(entry, OperationStarted) and entry.operation.endswith(".1")] == [1, 2]
        assert await ended(runtime) == [("cancelled", "restart"), ("succeeded", "")]
    await other.close()


@pytest.mark.spec("S0-115")
async def test_tables_of_the_users_own_upset_nothing(path: Path) -> None:
    """Neither the check of a file's format, nor verify, the catalogue, or a deletion."""
    async with perdure.open(str(path)) as runtime:
        await runtime.run(booking([seat("12A")]), "Please.", session="s")
    connection = apsw.Connection(str(path))
    connection.execute(
        "CREATE TABLE mine (x INTEGER PRIMARY KEY, y TEXT); CREATE VIEW seen AS SELECT * FROM sessions; CREATE INDEX by_y ON mine (y);"
        "INSERT INTO mine (y) VALUES ('a'); CREATE TRIGGER t AFTER INSERT ON mine BEGIN UPDATE mine SET y = 'b'; END"
    )
    connection.close()

    async with perdure.open(str(path)) as runtime:
        assert await problems(runtime) == []
        assert [info.session_id async for info in runtime.sessions.each()] == ["s"]
        await runtime.run(booking([seat("12B")]), "One more.", session="t")
        await runtime.sessions.delete("s")
        await runtime.store.vacuum()
        assert await problems(runtime) == []
    assert stored(path) == ["12A", "12B"]


async def test_python_that_holds_the_writer_up_is_told_in_the_log(
    path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(within_module, "SECONDS", 0.01)

    def dawdles(connection: Any, seat: str) -> Any:
        taken = reserve(connection, seat, "me")
        until = time.monotonic() + 0.03
        while time.monotonic() < until:
            pass
        return taken

    @tool(effect="transactional")
    async def slow(ctx: ToolContext, seat: str) -> Any:
        return ctx.transaction(dawdles, seat)

    async with perdure.open(str(path)) as runtime:
        await runtime.run(booking([seat("12A", "slow")], tools=[slow]), "Please.", session="s")
        assert await ended(runtime) == [("succeeded", "")]
    assert "nobody else could write" in caplog.text
