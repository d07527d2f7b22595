"""What a model saw, printed again and verified; a session played again to another agent; an incident as a test."""

from __future__ import annotations

import asyncio
import io
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import perdure
from perdure import (
    Agent,
    AnswerRequested,
    ApprovalRequested,
    ContentRedacted,
    FunctionModel,
    HookContext,
    Middleware,
    ModelRequest,
    Price,
    Reply,
    Runtime,
    ScriptedModel,
    ToolCall,
    ToolError,
    Usage,
    UsageError,
    ask_user,
    tool,
)
from perdure.core import entries
from perdure.core.errors import ImportRefused, StoreCorrupt
from perdure.core.journal import GENESIS, seal
from perdure.runtime.replay import replay
from perdure.testing import Incident, from_session

SPENT = Usage(input_tokens=10, output_tokens=5)


@pytest.fixture
async def runtime(tmp_path: Path) -> AsyncIterator[Runtime]:
    async with perdure.open(str(tmp_path / "agents.db")) as opened:
        yield opened


def calls(name: str, **arguments: Any) -> Reply:
    return Reply(tool_calls=[ToolCall(name, arguments)], usage=SPENT)


def shown(request: ModelRequest) -> Any:
    """What a request says, without what only readers of a session see."""
    return msgspec.structs.replace(request, messages=[(message.role, message.parts) for message in request.messages], content={})


def watching(replies: list[Any], **options: Any) -> tuple[FunctionModel, dict[str, list[ModelRequest]]]:
    """A model that plays replies, and what it was asked for which purpose."""
    asked: dict[str, list[ModelRequest]] = {}

    def answer(request: ModelRequest) -> Any:
        asked.setdefault(request.purpose, []).append(request)
        match request.purpose:
            case "repair":
                return Reply('{"value": 5}', usage=SPENT)
            case "notes":
                return Reply(tool_calls=[ToolCall("save_notes", {"notes": "what was said"})])
            case "memory":
                return '[{"category": "key_fact", "content": "Blue", "importance": 5}]'
        return replies[request.answers]

    return FunctionModel(answer, **options), asked


@tool(effect="external", key="order")
async def pay(order: str) -> str:
    """Pay for an order."""
    if order == "none":
        raise ToolError("no such order")
    return f"paid {order} " + "." * 30_000


class Reminds(Middleware):
    """Changes every request, and adds to what models are told."""

    name = "reminds"
    instructions = "Be careful."

    async def model_request(self, ctx: HookContext, request: ModelRequest) -> ModelRequest:
        return msgspec.structs.replace(request, instructions=f"{request.instructions} It is step {ctx.step}.")


# ---------------------------------------------------------------------------------------------------------------- requests


async def test_every_request_of_a_session_is_printed_again_as_it_was(runtime: Runtime) -> None:
    replies = [
        Reply("Let me pay.", tool_calls=[ToolCall("pay", {"order": "A-1"})], private="sealed", reasoning="hm"),
        Reply("about five"),
        Reply('{"value": 6}'),
    ]
    model, asked = watching(replies)
    agent = Agent("a", instructions="Pay.", model=model, tools=[pay], output_type=int, middleware=[Reminds()])
    await runtime.run(agent, "Pay A-1.", session="s", submission="m1")
    await runtime.sessions.rewrite("s", (0, 1), [perdure.Message(role="user", parts=(perdure.Text("Pay A-1, please."),))])
    await runtime.run(agent.replace(instructions="Pay twice."), "And now?", session="s", submission="m2")
    turns = [entry.turn for entry in await runtime.sessions.entries("s") if entry.kind == "turn_started"]

    steps = [f"{turns[0]}.0", f"{turns[0]}.1", f"{turns[1]}.0"]
    for step, request in zip(steps, asked["answer"], strict=True):
        again = await runtime.sessions.request("s", step)
        assert again.verified, again.problems
        assert shown(again.request) == shown(request)
    repair = await runtime.sessions.request("s", f"{turns[0]}.1.1")
    assert (repair.kind, shown(repair.request)) == ("repair", shown(asked["repair"][0]))
    assert repair.verified


async def test_the_requests_of_notes_and_memory_are_printed_again_too(runtime: Runtime) -> None:
    long = "word " * 900
    model, asked = watching([Reply(long)] * 4, window=3_000)
    agent = Agent("a", model=model, memory=perdure.SessionMemory(min_tokens=1, min_text_messages=1))
    for number in range(4):
        await runtime.run(agent, f"question {number}", session="s", submission=f"m{number}")
    entries = await runtime.sessions.entries("s", kinds=("operation_started",))
    seen = {"model": "answer", "compaction": "notes", "memory": "memory"}
    counts: dict[str, int] = {}
    for entry in entries:
        plan = getattr(entry, "plan", None)
        if plan is None or plan.kind not in seen:
            continue
        purpose = seen[plan.kind]
        again = await runtime.sessions.request("s", entry.operation)  # type: ignore[attr-defined]
        assert again.verified, again.problems
        assert shown(again.request) == shown(asked[purpose][counts.get(purpose, 0)])
        counts[purpose] = counts.get(purpose, 0) + 1
    assert all(counts.get(purpose, 0) for purpose in seen.values()), counts


async def test_a_request_with_redacted_content_says_what_is_gone(runtime: Runtime) -> None:
    model, _ = watching([Reply("One."), Reply("Two.")])
    agent = Agent("a", model=model)
    await runtime.run(agent, "My number is 4711.", session="s", submission="m1")
    await runtime.run(agent, "And now?", session="s", submission="m2")
    await runtime.sessions.redact("s", 0)
    turn = [entry.turn for entry in await runtime.sessions.entries("s") if entry.kind == "turn_started"][1]

    again = await runtime.sessions.request("s", f"{turn}.0")
    assert (again.verified, again.redacted, again.problems) == (False, (3,), ())
    assert "4711" not in str(again.request.messages)


async def test_a_request_whose_content_was_changed_is_not_verified(tmp_path: Path) -> None:
    url = str(tmp_path / "agents.db")
    async with perdure.open(url) as runtime:
        await runtime.run(Agent("a", instructions="Be kind.", model=ScriptedModel(["Hi."])), "Hello.", session="s")
    with sqlite3.connect(url) as connection:
        changed = connection.execute("UPDATE blobs SET data = ? WHERE data = ?", (b"Be rude!", b"Be kind.")).rowcount
    assert changed == 1
    async with perdure.open(url) as runtime:
        try:
            problems = (await runtime.sessions.request("s", "t2.0")).problems
        except StoreCorrupt as error:
            problems = (str(error),)
        assert problems


async def test_a_message_that_was_changed_is_named_even_if_the_chain_was_forged_too(tmp_path: Path) -> None:
    url = str(tmp_path / "agents.db")
    async with perdure.open(url) as runtime:
        await runtime.run(Agent("a", model=ScriptedModel(["Hi."])), "Hello.", session="s")
    with sqlite3.connect(url) as connection:
        chain = GENESIS
        rows = connection.execute("SELECT seq, number, kind, at, salt, body FROM journal ORDER BY seq").fetchall()
        for seq, number, kind, at, salt, body in rows:
            entry = entries.decode(kind, body.replace(b"Hello.", b"Jello."), seq=seq, number=number, at=at)
            sealed = seal(entry, chain=chain, session_id="s", salt=salt)
            chain = sealed.chain
            columns = (sealed.body, sealed.body_digest, chain, seq)
            connection.execute("UPDATE journal SET body = ?, body_digest = ?, chain = ? WHERE seq = ?", columns)
    async with perdure.open(url) as runtime:
        asked = await runtime.sessions.request("s", "t2.0")
    assert asked.problems == ("message 0 (entry 3) is not what its digest says",)
    assert not asked.verified


@pytest.mark.parametrize("step", ["", "t2", "2.0", "t2.9", "t999.0", "t2.0.7", "t2.0#9", "t0.0", None])
async def test_a_step_where_no_model_was_asked_is_none(runtime: Runtime, step: Any) -> None:
    await runtime.run(Agent("a", model=ScriptedModel(["Hi."])), "Hello.", session="s")
    with pytest.raises(UsageError):
        await runtime.sessions.request("s", step)


# ------------------------------------------------------------------------------------------------------------------ replay


def payer(replies: list[Any], **options: Any) -> Agent:
    return Agent("payer", **{"model": ScriptedModel(replies), "tools": [pay], "approve": ["pay"], "instructions": "Pay.", **options})


async def paid(runtime: Runtime, agent: Agent) -> None:
    """A session of two turns, with an approval in each."""
    async with runtime.session("s", agent) as session:
        after = 0
        for number, text in enumerate(("Pay A-1.", "Pay none.")):
            await session.send(text, submission=f"m{number}")
            async for event in session.events(after=after):
                if isinstance(event, ApprovalRequested):
                    await session.approve(event.request_id)
                if isinstance(event, perdure.TurnEnded):
                    after = event.seq
                    break


THEN = [calls("pay", order="A-1"), Reply("Paid.", usage=SPENT), calls("pay", order="none"), Reply("There is no such order.", usage=SPENT)]


async def test_the_same_answers_come_out_the_same_and_no_tool_runs(runtime: Runtime) -> None:
    ran: list[str] = []

    @tool(name="pay", effect="external", key="order")
    async def real(order: str) -> str:
        """Pay for an order."""
        ran.append(order)
        return "really"

    await paid(runtime, payer(THEN))
    recording = await runtime.sessions.recording("s")
    version = (await runtime.sessions.info("s")).version
    found = await replay(recording, payer(THEN, tools=[real]))

    assert found.same, found
    assert (found.answered, found.refused, found.missing, ran) == (2, (), (), [])
    assert found.usage[0] == found.usage[1]
    assert found.effects == found.again == {"pay (external)": 2}
    assert [turn.status for turn in found.turns] == [("completed", "completed")] * 2
    assert (await runtime.sessions.info("s")).version == version


async def test_other_answers_are_told_by_transcript_usage_and_effects(runtime: Runtime) -> None:
    await paid(runtime, payer(THEN))
    now = [calls("pay", order="B-2"), Reply("I could not.", usage=SPENT), Reply("No.", usage=SPENT)]
    found = await replay(await runtime.sessions.recording("s"), payer(now))

    assert not found.same
    assert found.refused == (("pay", {"order": "B-2"}),)
    assert found.missing == (("pay", {"order": "A-1"}), ("pay", {"order": "none"}))
    assert (found.effects, found.again) == ({"pay (external)": 2}, {})
    assert "-assistant: Paid." in found.turns[0].difference
    assert "+assistant: I could not." in found.turns[0].difference
    assert (found.usage[0].calls, found.usage[1].calls) == (4, 3)


async def test_receipts_are_given_in_order_and_each_of_them_once(runtime: Runtime) -> None:
    count = iter(range(10))

    @tool(effect="pure")
    async def roll() -> int:
        """Roll the dice."""
        return next(count)

    twice = Reply(tool_calls=[ToolCall("roll", {}), ToolCall("roll", {})])
    await runtime.run(Agent("a", model=ScriptedModel([twice, "Done."]), tools=[roll]), "Roll.", session="s")
    recording = await runtime.sessions.recording("s")
    thrice = Reply(tool_calls=[ToolCall("roll", {})] * 3)
    found = await replay(recording, Agent("a", model=ScriptedModel([thrice, "Done."]), tools=[roll]))
    assert '+roll fails with "not executed: the recorded session has no such call"' in found.turns[0].difference
    assert not any(line.startswith("-roll") for line in found.turns[0].difference)


async def test_questions_and_steers_are_said_again_where_they_were_said(runtime: Runtime) -> None:
    steered = asyncio.Event()

    @tool(effect="pure")
    async def look() -> str:
        """Look."""
        await steered.wait()
        return "a wall"

    def answer(request: ModelRequest) -> Reply:
        said = [message.text for message in request.messages if message.role == "user"]
        match request.answers:
            case 0:
                return calls("look")
            case 1:
                return calls("ask_user", question="Which colour?")
            case 2:
                return Reply("And the door?")
            case _:
                return calls("finish", answer=" / ".join(said))

    agent = Agent("painter", model=FunctionModel(answer), tools=[look, ask_user()], finish="ask")
    replies = iter(["blue", "red"])
    async with runtime.session("s", agent) as session:
        await session.send("Paint it.", submission="m1")
        async for event in session.events():
            if isinstance(event, perdure.OperationStarted) and event.plan is not None and event.plan.name == "look":
                await session.send("quickly", deliver="steer")
                steered.set()
            if isinstance(event, AnswerRequested):
                await session.reply(event.request_id, next(replies))
            if isinstance(event, perdure.TurnEnded):
                break
    recording = await runtime.sessions.recording("s")
    assert [(said.step, said.answers) for said in recording.turns[0].said] == [(0, False), (1, False), (3, True)]
    found = await replay(recording, agent)
    assert found.same, found
    assert found.turns[0].output == "Paint it. / quickly / red"


async def test_a_branch_and_a_session_with_redacted_words_can_not_be_played(runtime: Runtime) -> None:
    await runtime.run(Agent("a", model=ScriptedModel(["One."])), "My number is 4711.", session="s")
    fork = await runtime.sessions.fork("s")
    with pytest.raises(UsageError, match="is a branch of 's'"):
        await runtime.sessions.recording(fork.session_id)
    await runtime.sessions.redact("s", 0)
    with pytest.raises(ContentRedacted) as gone:
        await runtime.sessions.recording("s")
    assert gone.value.facts["entry"] == 3


# ---------------------------------------------------------------------------------------------------------------- incident


async def exported(runtime: Runtime, session: str = "s") -> list[bytes]:
    file = io.BytesIO()
    await runtime.sessions.export(session, file)
    return file.getvalue().splitlines(keepends=True)


async def test_an_export_is_a_test_of_what_happened(runtime: Runtime, tmp_path: Path) -> None:
    await paid(runtime, payer(THEN))
    path = tmp_path / "incident.jsonl"
    await runtime.sessions.export("s", str(path))
    for incident in (await from_session(path), await from_session(await exported(runtime))):
        assert (await incident.replay(payer([]))).same
        assert [(call.name, call.arguments, call.ran, call.response.is_error) for call in incident.calls] == [
            ("pay", {"order": "A-1"}, True, False),
            ("pay", {"order": "none"}, True, True),
        ]
        async with perdure.open("memory://") as other:
            result = await other.run(incident.stand_in(payer([])), "Pay A-1.", session="new")
            assert result.output == "Paid."


async def test_a_corrected_answer_and_notes_are_played_as_they_were(runtime: Runtime) -> None:
    model, _ = watching([Reply("about five"), Reply('{"value": 6}')])
    agent = Agent("a", model=model, output_type=int)
    for number in range(2):
        await runtime.run(agent, "How many?", session="s", submission=f"m{number}")
    incident = await from_session(await exported(runtime))
    found = await incident.replay(agent)
    assert found.same, found
    assert [turn.output for turn in found.turns] == [5, 6]
    # What changed since is what the test is for.
    changed = await incident.replay(agent.replace(output_validators=[lambda output: "too few" if output < 6 else None]))
    assert changed.turns[0].status == ("completed", "failed")
    assert not changed.same


async def test_an_agent_that_asks_for_more_than_was_recorded_is_told_so(runtime: Runtime) -> None:
    await runtime.run(Agent("a", model=ScriptedModel(["Done."])), "Go.", session="s")
    incident: Incident = await from_session(await exported(runtime))
    found = await incident.replay(Agent("a", finish="tool"))
    assert found.turns[0].status == ("completed", "failed")
    assert "holds no answer number 2" in found.turns[0].failure


@pytest.mark.parametrize("cut", [0, 1, -1])
async def test_lines_that_are_no_whole_export_are_none(runtime: Runtime, cut: int) -> None:
    await runtime.run(Agent("a", model=ScriptedModel(["Done."])), "Go.", session="s")
    lines = await exported(runtime)
    broken = [[], lines[:-1], [*lines[:2], lines[2].replace(b'"at":', b'"at" :'), *lines[3:]]][cut]
    with pytest.raises(ImportRefused):
        await from_session(broken)


async def test_a_replay_says_what_the_same_words_cost_now(runtime: Runtime) -> None:
    def agent(tokens: int) -> Agent:
        return Agent("a", model=ScriptedModel([Reply("hi", usage=Usage(input_tokens=tokens, output_tokens=0))], name="m"))

    prices = {"m": Price(input=2, output=1)}
    await runtime.run(agent(1_000_000), "hello", session="s")
    recording = await runtime.sessions.recording("s")

    found = await replay(recording, agent(3_000_000), prices=prices)
    [turn] = found.turns
    assert [used.total_tokens for used in turn.usage] == [1_000_000, 3_000_000]
    assert found.usage[1].cost == perdure.usd(6)
    assert found.same
    assert (await replay(recording, agent(3_000_000))).usage[1].cost == 0


async def test_a_replay_says_that_a_turn_was_handed_over(runtime: Runtime) -> None:
    billing = Agent("billing", model=ScriptedModel(["It is paid."]))
    first = [Reply(tool_calls=[ToolCall("transfer_to_billing", {"reason": "money"})]), "It is paid."]
    support = Agent("support", model=ScriptedModel(first), handoffs=[billing])
    await runtime.run(support, "Is it paid?", session="s")

    found = await replay(await runtime.sessions.recording("s"), support.replace(model=ScriptedModel(first)))
    assert found.notes == ("t2 was handed over to 'billing', which is not played: one agent answers it all",)
