"""A store that can't be used, met by a program: a typed error, and once it is mended everything goes on, once."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Awaitable, Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import apsw
import msgspec
import pytest

import perdure
from perdure import Agent, FunctionModel, ModelRequest, Reply, ScriptedModel, ToolCall, tool
from perdure.core import checkpoint as checkpoints
from perdure.core.journal import Sealed
from perdure.runtime.verify import verify
from perdure.store.memory import MemoryStore
from perdure.store.passing import PassingStore
from perdure.store.sqlite import SQLiteStore
from perdure.testing.crash import kind_of
from perdure.testing.faults import Call, FaultStore, When

T = TypeVar("T")

SOURCE = Path(next(iter(perdure.__path__))).parent

LONG = "x" * 40_000
"""What no page that is there already has room for."""

ANSWER = "y" * 40_000
"""Other words as long: the same ones would stand there already."""


class Shop:
    """An agent that pays once and says so, and what was done and asked."""

    def __init__(self) -> None:
        self.paid: list[str] = []
        self.asked = 0

        @tool(effect="external")
        async def pay(order: str) -> str:
            """Pay."""
            self.paid.append(order)
            return f"paid {order} {LONG}"

        def answer(request: ModelRequest) -> Reply:
            self.asked += 1
            return Reply(ANSWER) if request.step else Reply(LONG, tool_calls=[ToolCall("pay", {"order": "A-1"})])

        self.agent = Agent("shop", model=FunctionModel(answer), tools=[pay])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "agents.db"


async def ran(runtime: perdure.Runtime, shop: Shop) -> perdure.Result:
    return await runtime.run(shop.agent, f"pay {LONG}", session="s", submission="mail-1")


async def sound(runtime: perdure.Runtime) -> None:
    assert [str(problem) async for problem in verify(runtime.store)] == []


def moment_of(call: Call) -> str:
    return kind_of(call.given) if call.kind == "commit" else call.kind


def faulty(store: SQLiteStore, moment: str, break_it: Callable[[], Awaitable[None]]) -> FaultStore:
    """A store that something happens to once, just before what is written then."""
    left = [moment]

    async def gate(call: Call, when: When) -> None:
        if left and when == "before" and moment_of(call) == left[0]:
            left.clear()
            await break_it()

    return FaultStore(store, gate=gate, keep=False)


@pytest.mark.spec("B-B-091")
@pytest.mark.parametrize("moment", ["send", "start", "receipt", "end"])
async def test_a_full_disk_loses_nothing_and_the_same_call_goes_on_once_there_is_room(path: Path, moment: str) -> None:
    store, shop = SQLiteStore(path), Shop()

    def limit(pages: int) -> None:
        writer = store._writer
        assert writer is not None
        writer._queue.put(lambda: writer._tx.connection.pragma("max_page_count", pages))

    async def fill() -> None:
        # It is never less than what there is.
        limit(1)

    async with perdure.open(faulty(store, moment, fill)) as runtime:
        with pytest.raises(perdure.StoreFull) as refused:
            await ran(runtime, shop)
        assert refused.value.retryable
        limit(1 << 30)
        result = await ran(runtime, shop)
        assert (result.status, result.output) == ("completed", ANSWER)
        assert shop.paid == ["A-1"]
        await sound(runtime)


@pytest.mark.parametrize("moment", ["send", "start", "receipt", "end"])
async def test_a_database_that_another_program_holds_is_told_and_waited_for_by_the_next_call(path: Path, moment: str) -> None:
    store, shop = SQLiteStore(path, busy_timeout=0.05), Shop()
    others: list[apsw.Connection] = []

    async def hold() -> None:
        others.append(apsw.Connection(str(path)))
        others[0].execute("BEGIN IMMEDIATE")

    async with perdure.open(faulty(store, moment, hold)) as runtime:
        with pytest.raises(perdure.StoreBusy, match="another program") as refused:
            await ran(runtime, shop)
        assert refused.value.retryable
        others[0].execute("ROLLBACK")
        others[0].close()
        assert (await ran(runtime, shop)).output == ANSWER
        assert shop.paid == ["A-1"]
        await sound(runtime)


async def write(path: Path) -> Shop:
    """A store with one turn that has ended."""
    shop = Shop()
    async with perdure.open(path) as runtime:
        assert (await ran(runtime, shop)).ok
    return shop


async def again(path: Path, shop: Shop) -> None:
    """Mended, it is what it was: the stored result comes back."""
    asked = shop.asked
    async with perdure.open(path) as runtime:
        assert (await ran(runtime, shop)).output == ANSWER
        assert (shop.asked, shop.paid) == (asked, ["A-1"])
        await sound(runtime)


@pytest.mark.parametrize("rest", [0.9, 0.5, 0.1])
async def test_a_file_that_was_cut_off_is_an_error_of_the_store_and_stays_as_it_is(path: Path, rest: float) -> None:
    shop = await write(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * rest)])
    with pytest.raises(perdure.StoreCorrupt):
        async with perdure.open(path) as runtime:
            await runtime.run(shop.agent, "more", session="t", submission="mail-2")
    assert shop.paid == ["A-1"]
    path.write_bytes(whole)
    await again(path, shop)


async def test_a_file_of_a_later_format_is_refused_untouched(path: Path) -> None:
    shop = await write(path)
    whole = path.read_bytes()
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA user_version = 999; PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    later = path.read_bytes()
    with pytest.raises(perdure.FormatUnknown):
        async with perdure.open(path):
            pass
    assert path.read_bytes() == later
    path.write_bytes(whole)
    await again(path, shop)


async def test_a_session_of_newer_rules_takes_no_message_with_a_call_that_is_refused(path: Path) -> None:
    shop = await write(path)
    rules = f'"rules":{checkpoints.RULES + 1},'.encode()
    async with perdure.open(path) as runtime:
        head = await runtime.store.load("s")
        assert head is not None
        older = head.row.checkpoint
    put(path, older.replace(b'"root"', rules + b'"root"', 1))
    async with perdure.open(path) as runtime:
        for submission in ("mail-2", None):
            with pytest.raises(perdure.NewerRules, match="upgrade"):
                await runtime.run(shop.agent, "more", session="s", submission=submission)
        after = await runtime.store.load("s")
        assert after is not None
        assert (after.row.inbox_head, after.row.status) == (head.row.inbox_head, "idle")
        assert [info.session_id for info in await runtime.sessions.list()] == ["s"]
    put(path, older)
    await again(path, shop)


def put(path: Path, checkpoint: bytes) -> None:
    connection = apsw.Connection(str(path))
    connection.execute("UPDATE sessions SET checkpoint = ? WHERE session_id = 's'", (checkpoint,))
    connection.close()


READ_ONLY = """
import asyncio, os, sys, tempfile
import perdure
from perdure import Agent, ScriptedModel

agent = Agent("shop", model=ScriptedModel(["never"]))

async def warm(path):
    # What is imported later, others may not be allowed to read.
    async with perdure.open(path) as runtime:
        await runtime.run(agent, "hello", session="s")
        await runtime.sessions.history("s")
        await runtime.pools.set("acme", perdure.Limits(steps=1))

with tempfile.TemporaryDirectory() as directory:
    asyncio.run(warm(directory + "/agents.db"))
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)

async def main(path):
    async with perdure.open(path) as runtime:
        print((await runtime.sessions.info("s")).status, len(await runtime.sessions.history("s")))
        for call in (
            lambda: runtime.run(agent, "more", session="s", submission="mail-2"),
            lambda: runtime.sessions.send("s", "more"),
            lambda: runtime.sessions.interrupt("s", turn="t2"),
            lambda: runtime.pools.set("acme", perdure.Limits(steps=1)),
        ):
            try:
                await call()
            except perdure.PerdureError as error:
                print(error.code)
    print("closed")

asyncio.run(main(sys.argv[1]))
"""


@pytest.fixture
def shelf() -> Iterator[Path]:
    # Not below pytest's own directory, which other users can't enter.
    directory = Path(tempfile.mkdtemp())
    yield directory
    directory.chmod(0o700)
    shutil.rmtree(directory)


async def test_a_file_that_may_only_be_read_is_read_and_every_write_says_so(shelf: Path) -> None:
    path = shelf / "agents.db"
    shop = await write(path)
    path.chmod(0o444)
    shelf.chmod(0o555)
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(READ_ONLY), str(path)],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    first, *codes, last = done.stdout.splitlines()
    assert (first, last) == ("idle 4", "closed")
    assert set(codes) <= {"store_read_only", "submission_rejected"}
    assert codes.count("store_read_only") == 3
    shelf.chmod(0o700)
    path.chmod(0o600)
    await again(path, shop)


@pytest.mark.parametrize("kept", ["sqlite", "memory"])
async def test_a_message_that_cannot_be_read_is_damage_in_every_store_and_changes_nothing(path: Path, kept: str) -> None:
    class Damaged(PassingStore):
        broken = False

        async def scan(self, no: int, take: Callable[[Iterable[Sealed]], T], spans: Any, **named: Any) -> T:
            def damaged(rows: Iterable[Sealed]) -> T:
                return take([msgspec.structs.replace(row, body=b"{") for row in rows] if self.broken else rows)

            return await self.inner.scan(no, damaged, spans, **named)

    async with perdure.open(Damaged(SQLiteStore(path) if kept == "sqlite" else MemoryStore())) as runtime:
        await ran(runtime, Shop())
        revision = await runtime.sessions.revision("s")
        runtime.store.broken = True  # type: ignore[attr-defined]
        with pytest.raises(perdure.StoreCorrupt, match="can't be read"):
            await runtime.sessions.rewrite("s", (0, 1), "other", expected=revision)
        runtime.store.broken = False  # type: ignore[attr-defined]
        assert await runtime.sessions.revision("s") == revision
        await sound(runtime)


@pytest.mark.spec("S0-290")
@pytest.mark.parametrize("body", [b"{", b"{}", b'{"parts":[],"unheard_of":1}', b'{"parts":[{"content":1,"type":"text"}]}', None])
async def test_a_waiting_message_that_cannot_be_read_halts_its_session_and_is_left_as_it_is(body: bytes | None) -> None:
    store = MemoryStore()
    async with perdure.open(store) as runtime:
        await runtime.sessions.send("s", "hello", submission="m", agent="a")
        inbox = store._content.by_id["s"].inbox
        inbox["m"] = damaged = msgspec.structs.replace(inbox["m"], body=body)
        with pytest.raises(perdure.SessionHalted, match="the waiting submission 'm'"):
            await runtime.run(Agent("a", model=ScriptedModel(["never asked"])), "hello", session="s", submission="m")
        assert inbox["m"] == damaged
        assert (await runtime.run(Agent("a", model=ScriptedModel(["others go on"])), "hello", session="t")).ok
