"""The sweep's scenarios of the catalogue: what is edited, taken elsewhere, described and read is once what it was asked to be."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import perdure
from perdure import (
    Agent,
    Entry,
    FunctionModel,
    ModelRequest,
    Reply,
    SessionExists,
    SessionNotFound,
    ToolCall,
    ToolContext,
    Usage,
    tool,
)
from perdure.store.memory import MemoryStore
from perdure.testing import Life, Scenario, World

USAGE = Usage(input_tokens=100, output_tokens=7)


def says(text: str) -> Reply:
    return Reply(text, usage=USAGE)


def paying(world: World | None) -> Any:
    """A payment that a provider makes once per key; what was paid before is told again."""

    @tool(effect="idempotent", guard="replay", key=("cents",))
    async def pay(ctx: ToolContext, cents: int) -> str:
        if world is not None:
            await world.act(ctx, "pay", cents, effect="idempotent")
        return f"paid {cents}"

    return pay


def payer(request: ModelRequest) -> Reply:
    """Pays when told to, and else says all that it is shown."""
    last = request.messages[-1]
    if last.role == "user" and last.text.startswith("pay"):
        return Reply("", tool_calls=[ToolCall("pay", {"cents": 5})], usage=USAGE)
    shown = [message.text or ",".join(str(getattr(part, "response", "call")) for part in message.parts) for message in request.messages]
    return says(f"{len(shown)} messages: {' / '.join(text[-60:] for text in shown[-4:])}")


def edited_behind_a_compaction() -> Scenario:
    """Notes stand for the beginning while what follows is edited, and no more once the beginning is; what was paid beyond is not again."""

    def agent(world: World) -> Agent:
        return Agent("a", model=world.model([payer] * 12, notes="It was paid for."), tools=[paying(world)])

    async def script(life: Life) -> None:
        sessions = life.runtime.sessions
        await life.run("pay", submission="m1")
        async with life.runtime.session("s", life.agent):
            await sessions.compact("s", submission="c1")
            await life.settled("m1", "c1")
        await life.run("and now?", submission="m2")
        edit = await sessions.rewrite("s", (4, 6), ["something else"], submission="edit-1")
        await life.run("what do you know?", submission="m3")
        assert (await sessions.rewrite("s", (1, 4), [], submission="edit-2")).effects == 1
        await life.run("pay again", submission="m4")
        await sessions.restore("s", edit.parent, submission="restore-1")
        await sessions.redact("s", 0, submission="redact-1")
        await life.run("what was that?", submission="m5")

    return Scenario(name="edited behind a compaction, with effects beyond", agent=agent, script=script)


async def _exported(life: Life) -> bytes:
    """A tree as another store has it: a session that paid, and a branch from before that."""
    if "file" not in life.world.memory:
        async with perdure.open(MemoryStore(life.clock.now, store_id="elsewhere"), clock=life.clock) as elsewhere:
            agent = Agent("a", model=FunctionModel(payer), tools=[paying(None)])
            await elsewhere.run(agent, "hello", session="far", submission="m1")
            await elsewhere.run(agent, "pay", session="far", submission="m2")
            await elsewhere.sessions.fork("far", at=2, session_id="farther", replacement="begin anew")
            file = io.BytesIO()
            await elsewhere.sessions.export("far", file, tree=True)
        life.world.memory["file"] = file.getvalue()
    return bytes(life.world.memory["file"])


def taken_elsewhere() -> Scenario:
    """A tree is taken in, goes on, is exported again and deleted: first what others still need, and then all of it."""

    def agent(world: World) -> Agent:
        return Agent("a", model=world.model([payer] * 12), tools=[paying(world)])

    async def script(life: Life) -> None:
        sessions = life.runtime.sessions
        file = await _exported(life)
        with suppress(SessionExists), life.clock.busy():
            await sessions.import_from(io.BytesIO(file))
        with suppress(SessionNotFound):
            # What its parent paid is told, and not paid again.
            assert "paid 5" in (await life.run("pay", submission="m3", session="farther")).output
            await sessions.fork("farther", session_id="farthest")
            assert (await sessions.export("farther", io.BytesIO(), tree=True)).sessions == ("far", "farther", "farthest")
            await sessions.delete("farther")
        with suppress(SessionNotFound):
            assert "paid 5" in (await life.run("and now?", submission="m4", session="farthest")).output
        with suppress(SessionNotFound):
            await sessions.delete("far", tree=True)
        await life.run("hello", submission="m5")
        assert [info.session_id for info in await sessions.list(archived=True)] == ["s"]
        assert [await life.runtime.store.entries(row.no) for row in await life.runtime.store.tree("far")] == [[]] * 3

    return Scenario(name="a tree is exported, imported and deleted", agent=agent, script=script)


def described_and_consumed() -> Scenario:
    """What a session is about changes once; a consumer gets every entry at least once, and none before its turn."""

    def agent(world: World) -> Agent:
        def knows(request: ModelRequest) -> Reply:
            return Reply("", tool_calls=[ToolCall("whose", {})], usage=USAGE)

        @tool(effect="pure")
        async def whose(ctx: ToolContext) -> Any:
            return ctx.metadata.get("order", "nobody's")

        return Agent("a", model=world.model([says("One."), knows, says("So it is.")]), tools=[whose])

    async def script(life: Life) -> None:
        sessions, got = life.runtime.sessions, life.world.memory.setdefault("got", {})

        async def project(session_id: str, entries: Sequence[Entry]) -> None:
            taken = got.setdefault(session_id, [])
            for entry in entries:
                assert entry.seq <= len(taken) + 1, "an entry was left out"
                taken[entry.seq - 1 : entry.seq] = [entry]

        consumer = sessions.consumer("audit")
        await life.run("one", submission="m1")
        await consumer.consume(project, follow=False)
        about: dict[str, Any] = {"title": "An order", "labels": {"kind": "order"}, "metadata": {"order": "A-1", "more": "x" * 70_000}}
        await sessions.describe("s", **about, submission="describe-1", actor="ann")
        await life.run("two", submission="m2")
        await consumer.consume(project, follow=False)
        info = await sessions.info("s")
        assert (info.title, info.labels, info.metadata) == (about["title"], about["labels"], about["metadata"])
        assert await consumer.position("s") == info.version == len(got["s"])
        assert await consumer.news() == []
        assert [entry.kind for entry in got["s"]].count("session_changed") == 1
        await consumer.delete()

    return Scenario(name="described, and read by a consumer", agent=agent, script=script)


ALL: tuple[Callable[[], Scenario], ...] = (edited_behind_a_compaction, taken_elsewhere, described_and_consumed)
