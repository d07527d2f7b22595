"""What only one call of an owner may do, in whatever session and process."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import perdure
from perdure import (
    Agent,
    AlreadyDone,
    ApprovalCall,
    HookContext,
    Identity,
    InvalidTool,
    Middleware,
    Reply,
    Rewrite,
    Runtime,
    ScriptedModel,
    ToolCall,
    ToolCallResponse,
    ToolContext,
    ToolError,
    tool,
)
from perdure.core.entries import OperationEnded
from perdure.runtime.verify import Problem, verify
from perdure.store.base import Commit, UniqueRow
from perdure.store.memory import MemoryStore
from perdure.testing import FaultStore
from perdure.testing.faults import Call

UNKNOWN = "execution interrupted; result unknown"


class Till:
    """A tool that refunds an order once for an owner, and what it did."""

    def __init__(self, **options: Any) -> None:
        self.done: list[str] = []
        self.fails: Any = None
        self.entered, self.go = asyncio.Event(), asyncio.Event()
        self.go.set()

        @tool(**{"effect": "external", "unique": "refund:{order}", "guard": "allow", **options})
        async def refund(ctx: ToolContext, order: str, cents: int = 5) -> str:
            self.entered.set()
            await self.go.wait()
            if self.fails is not None:
                raise self.fails
            self.done.append(f"{ctx.session_id}:{order}")
            return f"refunded {order}"

        self.tool = refund

    def agent(self, *orders: str | dict[str, Any], **options: Any) -> Agent:
        calls = [ToolCall(name="refund", arguments={"order": order} if isinstance(order, str) else order) for order in orders]
        model = ScriptedModel([*(Reply(tool_calls=[call]) for call in calls), Reply("Done.")])
        return Agent("a", model=model, tools=[self.tool], **options)

    def at_once(self, *orders: str) -> Agent:
        calls = [ToolCall(name="refund", arguments={"order": order}) for order in orders]
        return Agent("a", model=ScriptedModel([Reply(tool_calls=calls), Reply("Done.")]), tools=[self.tool])


@pytest.fixture(params=["sqlite", "memory"])
async def runtime(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Runtime]:
    async with perdure.open(str(tmp_path / "agents.db") if request.param == "sqlite" else "memory://") as opened:
        yield opened


async def problems(runtime: Runtime) -> list[Problem]:
    return [problem async for problem in verify(runtime.store)]


async def responses(runtime: Runtime, session: str) -> list[Any]:
    messages = await runtime.sessions.history(session, limit=500)
    found = [part for message in messages for part in message.parts if isinstance(part, ToolCallResponse)]
    return [AlreadyDone.of(part.response) or part.response for part in found]


async def held(runtime: Runtime, session: str) -> list[UniqueRow]:
    head = await runtime.store.load(session, hidden=True)
    assert head is not None
    return await runtime.store.uniques(head.row.no)


async def test_a_second_session_is_told_what_the_first_one_did(runtime: Runtime) -> None:
    till = Till()

    await runtime.run(till.agent("A-1"), "Please.", session="s")
    await runtime.run(till.agent("A-1", "A-2"), "Please.", session="t")

    assert till.done == ["s:A-1", "t:A-2"]
    assert await responses(runtime, "s") == ["refunded A-1"]
    first, second = await responses(runtime, "t")
    assert first == AlreadyDone(session="s", operation="t2.0.1", state="succeeded", result="refunded A-1")
    assert second == "refunded A-2"
    assert [(row.operation, row.state) for row in await held(runtime, "s")] == [("t2.0.1", "succeeded")]
    assert await problems(runtime) == []


class Cheaper(Middleware):
    """Has every call refund less."""

    name = "cheaper"

    def before_tool(self, ctx: HookContext, call: ApprovalCall) -> Rewrite:
        return Rewrite(arguments={**call.arguments, "cents": 1})


async def test_a_call_that_a_hook_rewrote_takes_what_it_does_as_any_other(runtime: Runtime) -> None:
    till = Till()

    for session in ("s", "t"):
        await runtime.run(till.agent("A-1", middleware=[Cheaper()]), "Please.", session=session)

    assert till.done == ["s:A-1"]
    assert [(row.operation, row.state) for row in await held(runtime, "s")] == [("t2.0.1", "succeeded")]
    assert await responses(runtime, "t") == [AlreadyDone(session="s", operation="t2.0.1", state="succeeded", result="refunded A-1")]
    assert await problems(runtime) == []


async def test_what_it_names_is_the_owners_and_made_of_the_arguments_that_it_names(runtime: Runtime) -> None:
    till = Till()
    for session, owner in (("s", "ann"), ("t", "bob"), ("u", "ann"), ("v", "")):
        agent = till.agent({"order": "A-1", "cents": len(till.done)})
        await runtime.run(agent, "Please.", session=session, identity=Identity(owner=owner) if owner else None)

    assert till.done == ["s:A-1", "t:A-1", "v:A-1"]
    assert await responses(runtime, "u") == [AlreadyDone(session="s", operation="t2.0.1", state="succeeded", result="refunded A-1")]


async def test_whoever_is_first_in_the_store_does_it_and_the_other_finds_out_by_its_own_commit() -> None:
    """Both have looked, and found it free."""
    till, other, place = Till(), Till(), MemoryStore()

    async def overtake(call: Call, when: str) -> None:
        if when == "before" and isinstance(call.given, Commit) and call.given.taken and not other.done:
            await second.run(other.agent("A-1"), "Please.", session="t")

    async with Runtime(FaultStore(place.peer(), gate=overtake)) as first, Runtime(place.peer()) as second:
        await first.run(till.agent("A-1"), "Please.", session="s")

        assert (till.done, other.done) == ([], ["t:A-1"])
        assert await responses(first, "s") == [AlreadyDone(session="t", operation="t2.0.1", state="succeeded", result="refunded A-1")]
        assert await problems(first) == []


async def test_two_calls_of_one_answer_are_one_and_the_other_is_pending(runtime: Runtime) -> None:
    till = Till()

    await runtime.run(till.at_once("A-1", "A-1", "A-2"), "Please.", session="s")

    assert sorted(till.done) == ["s:A-1", "s:A-2"]
    one, other, two = await responses(runtime, "s")
    assert (one, two) == ("refunded A-1", "refunded A-2")
    assert other == AlreadyDone(session="s", operation="t2.0.1", state="pending")
    assert await problems(runtime) == []


async def test_a_call_that_runs_elsewhere_is_pending(runtime: Runtime) -> None:
    till, other = Till(), Till()
    till.go.clear()

    running = asyncio.ensure_future(runtime.run(till.agent("A-1"), "Please.", session="s"))
    await till.entered.wait()
    await runtime.run(other.agent("A-1"), "Please.", session="t")
    assert await responses(runtime, "t") == [AlreadyDone(session="s", operation="t2.0.1", state="pending")]

    till.go.set()
    await running
    assert (till.done, other.done) == (["s:A-1"], [])
    assert await problems(runtime) == []


@pytest.mark.parametrize(
    ("effect", "error", "state"),
    [
        ("external", ToolError("no"), None),
        ("external", OSError("the line is dead"), "uncertain"),
        ("idempotent", ToolError("no"), None),
        ("idempotent", OSError("the line is dead"), "uncertain"),
        ("transactional", OSError("the disk is full"), None),
    ],
)
async def test_it_is_free_again_if_the_call_did_certainly_not_take_effect(runtime: Runtime, effect: Any, error: Any, state: Any) -> None:
    till, other = Till(effect=effect), Till(effect=effect)
    till.fails = error

    await runtime.run(till.agent("A-1"), "Please.", session="s")
    await runtime.run(other.agent("A-1"), "Please.", session="t")

    if state is None:
        assert await held(runtime, "s") == []
        assert await responses(runtime, "t") == ["refunded A-1"]
    else:
        assert [row.state for row in await held(runtime, "s")] == ["uncertain"]
        assert await responses(runtime, "t") == [AlreadyDone(session="s", operation="t2.0.1", state="uncertain")]
        assert other.done == []
    assert await problems(runtime) == []


@pytest.mark.parametrize("is_error", [False, True])
async def test_whoever_settles_an_uncertain_call_settles_what_it_took(runtime: Runtime, is_error: bool) -> None:
    till, other = Till(), Till()
    till.fails = OSError("the line is dead")
    await runtime.run(till.agent("A-1"), "Please.", session="s")

    await runtime.sessions.report_attempt("s", "t2.0.1", 1, "it went through", is_error, "ann")
    await runtime.run(other.agent("A-1"), "Please.", session="t")

    if is_error:
        assert await responses(runtime, "t") == ["refunded A-1"]
    else:
        assert await responses(runtime, "t") == [AlreadyDone(session="s", operation="t2.0.1", state="succeeded", result="it went through")]
        assert other.done == []
    assert await problems(runtime) == []


async def test_a_call_that_nobody_approved_took_nothing_and_one_that_was_done_meanwhile_is_told(runtime: Runtime) -> None:
    till = Till()
    async with runtime.session("s", till.agent("A-1", approve=["refund"])) as session:
        await session.send("Please.", submission="m1")
        while not await session.requests():
            await asyncio.sleep(0)
        assert await held(runtime, "s") == []
        await runtime.run(till.agent("A-1"), "Please.", session="t")
        [request] = await session.requests()
        await session.approve(request.request_id)
    await runtime.run(till.agent("A-1", approve=["refund"]), "Please.", session="s", submission="m1")

    assert till.done == ["t:A-1"]
    assert await responses(runtime, "s") == [AlreadyDone(session="t", operation="t2.0.1", state="succeeded", result="refunded A-1")]
    assert await problems(runtime) == []


async def test_it_outlives_archive_fork_rewrite_and_deletion(runtime: Runtime) -> None:
    till = Till()
    await runtime.run(till.agent("A-1"), "Please.", session="s")
    done = AlreadyDone(session="s", operation="t2.0.1", state="succeeded", result="refunded A-1")

    await runtime.sessions.fork("s", session_id="f", at=1)
    await runtime.run(till.agent("A-1"), "Again.", session="f")
    assert (await responses(runtime, "f"))[-1] == done

    await runtime.sessions.archive("s")
    await runtime.run(till.agent("A-1"), "Please.", session="t")
    assert await responses(runtime, "t") == [done]

    await runtime.sessions.delete("s", tree=True)
    await runtime.run(till.agent("A-1"), "Please.", session="u")
    assert await responses(runtime, "u") == [AlreadyDone(session="s", operation="t2.0.1", state="succeeded")]
    assert till.done == ["s:A-1"]
    assert [(row.state, row.deleted) for row in await held(runtime, "s")] == [("succeeded", True)]
    assert await problems(runtime) == []


async def test_a_session_that_is_deleted_while_its_call_runs_leaves_it_uncertain(runtime: Runtime) -> None:
    till, other = Till(), Till()
    till.go.clear()
    running = asyncio.ensure_future(runtime.run(till.agent("A-1"), "Please.", session="s"))
    await till.entered.wait()
    await runtime.sessions.delete("s")
    with pytest.raises(perdure.PerdureError):
        await running

    await runtime.run(other.agent("A-1"), "Please.", session="t")

    assert await responses(runtime, "t") == [AlreadyDone(session="s", operation="t2.0.1", state="uncertain")]
    till.go.set()


async def test_a_copy_of_a_session_takes_what_is_free_where_it_comes_to(runtime: Runtime, tmp_path: Path) -> None:
    till = Till()
    await runtime.run(till.agent("A-1", "A-2"), "Please.", session="s")
    await runtime.sessions.export("s", tmp_path / "s.jsonl")

    async with perdure.open("memory://") as other:
        await other.run(till.agent("A-1"), "Please.", session="first")
        await other.sessions.import_from(tmp_path / "s.jsonl")
        assert [row.operation for row in await held(other, "s")] == ["t2.1.1"]
        await other.run(till.agent("A-1", "A-2"), "Please.", session="t")
        one, two = await responses(other, "t")
        assert (one.session, two.session, two.result) == ("first", "s", "refunded A-2")
        assert await problems(other) == []


async def test_redacting_the_result_leaves_the_fact(runtime: Runtime) -> None:
    till = Till()
    await runtime.run(till.agent("A-1"), "Please.", session="s")
    [receipt] = [
        entry.seq
        for entry in await runtime.sessions.entries("s", kinds=["operation_ended"])
        if isinstance(entry, OperationEnded) and entry.operation == "t2.0.1"
    ]
    await runtime.sessions.redact("s", entries=[receipt])

    await runtime.run(till.agent("A-1"), "Please.", session="t")

    assert await responses(runtime, "t") == [AlreadyDone(session="s", operation="t2.0.1", state="succeeded")]
    assert await problems(runtime) == []


async def test_verify_finds_rows_that_the_journal_does_not_tell_of(runtime: Runtime) -> None:
    till = Till()
    await runtime.run(till.agent("A-1"), "Please.", session="s")
    head = await runtime.store.load("s")
    assert head is not None
    [row] = await held(runtime, "s")
    bare = Commit(no=row.no, version=head.row.version, fence=head.row.fence, holder=None, at=1)

    async def changed(**facts: Any) -> list[str]:
        await runtime.store.commit(msgspec.structs.replace(bare, **facts))
        return [f"{problem.where}: {problem.what}" for problem in await problems(runtime)]

    assert await changed(decided=(("t2.0.1", "uncertain", 1),)) == ["uniques: what t2.0.1 took is not recorded as succeeded"]
    assert await changed(decided=(("t2.0.1", None, 0),)) == ["uniques: t2.0.1 took what only one call may do, and it is free"]
    assert await changed(taken=((row.key, "t2.0.1"),), decided=(("t2.0.1", "succeeded", row.seq),)) == []
    assert await changed(taken=(("other", "t9.0.1"),)) == ["uniques: t9.0.1 took nothing that only one call may do, or gave it back"]


TEMPLATES = ("", "x" * 201, 5, "refund:{nobody}", "refund:{order", "refund:{order!r}", "refund:{order:>9}", "refund:{order.x}", "refund:{}")


@pytest.mark.parametrize(("template", "options"), [*((template, {}) for template in TEMPLATES), ("refund:{order}", {"effect": "pure"})])
def test_what_can_not_name_it_is_refused_when_the_tool_is_declared(template: Any, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidTool, match=r"unique=|is pure"):

        @tool(unique=template, **options)
        async def refund(order: str) -> None: ...


def test_values_that_only_look_the_same_together_are_not_the_same() -> None:
    @tool(unique="{a}:{b}")
    async def one(a: str, b: str) -> None: ...

    @tool(unique="{x}:{y}", name="other")
    async def other(x: str, y: str) -> None: ...

    assert one.claims({"a": "x:y", "b": "z"}, "") != one.claims({"a": "x", "b": "y:z"}, "")
    assert one.claims({"a": "x", "b": "y"}, "") == other.claims({"x": "x", "y": "y"}, "")
    assert one.claims({"a": "x", "b": "y"}, "ann") != one.claims({"a": "x", "b": "y"}, "bob")


PROGRAM = """
import asyncio, json, sys
import perdure
from perdure import Agent, Reply, ScriptedModel, ToolCall, ToolContext, tool

async def main(path, name):
    done = []

    @tool(effect="external", unique="refund:{order}", guard="allow")
    async def refund(ctx: ToolContext, order: int) -> str:
        done.append(order)
        return f"refunded {order} by {ctx.session_id}"

    calls = [Reply(tool_calls=[ToolCall(name="refund", arguments={"order": order})]) for order in range(40)]
    agent = Agent("a", model=ScriptedModel([*calls, Reply("Done.")]), tools=[refund])
    async with perdure.open(path) as runtime:
        print("ready", flush=True)
        sys.stdin.readline()
        await asyncio.gather(*(runtime.run(agent, "Please.", session=f"{name}-{number}") for number in range(3)))
        print(json.dumps(done))

asyncio.run(main(*sys.argv[1:]))
"""


async def test_two_processes_with_many_sessions_do_each_thing_once(tmp_path: Path) -> None:
    path = str(tmp_path / "agents.db")
    async with perdure.open(path):
        pass
    program = textwrap.dedent(PROGRAM)
    both = [
        subprocess.Popen([sys.executable, "-c", program, path, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for name in ("left", "right")
    ]
    for process in both:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    told = [asyncio.to_thread(process.communicate, "\n", 60) for process in both]
    done = [order for out, _ in await asyncio.gather(*told) for order in json.loads(out)]

    assert sorted(done) == [*range(40)]
    async with perdure.open(path) as runtime:
        assert await problems(runtime) == []
        found = [await responses(runtime, f"{name}-{number}") for name in ("left", "right") for number in range(3)]
        assert sum(isinstance(item, str) for session in found for item in session) == 40
        settled = [item for session in found for item in session if isinstance(item, AlreadyDone) and item.state == "succeeded"]
        assert all(item.result.endswith(f"by {item.session}") for item in settled)
