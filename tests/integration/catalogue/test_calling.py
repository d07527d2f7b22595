"""A session's tool called outside of its conversation: once by its key, guarded like a model's call, and told to the model once."""

from __future__ import annotations

import asyncio
from typing import Any
from unittest.mock import patch

import pytest

from perdure import (
    Agent,
    ApprovalCall,
    Deny,
    FunctionModel,
    HookContext,
    InvalidMessage,
    LimitExceeded,
    Message,
    Middleware,
    ModelRequest,
    NoteAdded,
    Replace,
    Reply,
    SessionArchived,
    SessionBusy,
    SessionNotFound,
    StoreBroken,
    SubmissionConflict,
    Text,
    ToolCall,
    ToolCalled,
    ToolCallResponse,
    ToolContext,
    ToolPolicy,
    UsageError,
    tool,
)
from perdure.runtime.door import Door
from perdure.testing.faults import Fault, ProcessDied

from ..interactive.acting import UNKNOWN, Place, Process, eventually
from .talking import Payments, lines, paying, sound


class Till:
    """An agent with a payment that waits to be let go, and what its model was shown."""

    def __init__(self, effect: Any = "external", **options: Any) -> None:
        self.done: list[str] = []
        self.keys: list[str] = []
        self.asked: list[ModelRequest] = []
        self.begun = asyncio.Event()
        self.go = asyncio.Event()
        self.go.set()

        @tool(effect=effect, key=("order",))
        async def pay(ctx: ToolContext, order: str, cents: int) -> str:
            """Pay an order."""
            self.begun.set()
            await self.go.wait()
            self.done.append(f"{order} {cents}")
            self.keys.append(ctx.idempotency_key)
            return f"paid {order}"

        def answer(request: ModelRequest) -> Reply:
            self.asked.append(request)
            return Reply("ok")

        self.agent = Agent("till", model=FunctionModel(answer), tools=[pay], **options)

    def paying_first(self) -> Agent:
        """The agent with a model that has something paid before it answers."""

        def answer(request: ModelRequest) -> Reply:
            if len(request.messages) > 1:
                return Reply("done")
            return Reply(tool_calls=[ToolCall(name="pay", arguments={"order": "B", "cents": 1}, id="c1")])

        return self.agent.replace(model=FunctionModel(answer))

    async def call(self, process: Process, submission: str = "o1", *, order: str = "A", cents: int = 5, **more: Any) -> Any:
        arguments = {"order": order, "cents": cents}
        return await process.sessions.call_tool("s", self.agent, "pay", arguments, submission=submission, **more)

    def told(self) -> list[str]:
        return [message.text for message in self.asked[-1].messages if message.text.startswith("[note] ")]


TOLD = '[note] The tool pay was called outside of this conversation with {"cents":5,"order":"A"}. Result: paid A'


async def kinds(process: Process, *, after: int = 0) -> list[str]:
    return [entry.kind for entry in await process.sessions.entries("s", after=after)]


@pytest.mark.spec("B-B-103", "E-057")
async def test_a_tool_is_called_outside_of_the_conversation_and_the_model_is_told_once(place: Place) -> None:
    till = Till()
    async with place.process() as process:
        await process.run(till.agent, "hello", session="s", submission="m1")
        before = await process.sessions.checkpoint("s")
        # when somebody has a tool called
        outcome = await till.call(process, actor="ann")
        # then it ran once, under an operation outside of any turn with a model, intent before and receipt after
        assert (outcome.status, outcome.result, outcome.is_error, till.done) == ("succeeded", "paid A", False, ["A 5"])
        assert outcome.operation == f"s{before.version + 1}.0.0"
        assert await kinds(process, after=before.version) == [
            *("tool_called", "operation_started", "operation_ended", "note_added", "turn_completed")
        ]
        [called] = [entry for entry in await process.sessions.entries("s", kinds=("tool_called",)) if isinstance(entry, ToolCalled)]
        assert (called.author, called.submission, called.turn) == ("ann", "o1", f"s{called.seq}")
        # and no model was asked, and the transcript is what it was
        after = await process.sessions.checkpoint("s")
        assert len(till.asked) == 1
        assert (after.number, after.revision, after.usage) == (before.number, before.revision, before.usage)
        assert (after.tools, (await process.sessions.info("s")).tools) == (before.tools, ToolPolicy())
        assert (after.tools, after.grants, after.extensions) == (before.tools, before.grants, before.extensions)
    # after a restart too the next model call is told, and so is the one after that, once
    async with place.process() as process:
        for number in (2, 3):
            await process.run(till.agent, "and now?", session="s", submission=f"m{number}")
            assert till.told() == [TOLD]
        assert [message.text for message in till.asked[1].messages] == ["hello", "ok", TOLD, "and now?"]
        assert await lines(process) == ["user: hello", "assistant: ok", *["user: and now?", "assistant: ok"] * 2]
        await sound(process)


async def test_calling_again_under_the_same_id_is_calling_once_and_another_call_is_refused(place: Place) -> None:
    till = Till()
    async with place.process() as process:
        await process.run(till.agent, "hello", session="s", submission="m1")
        outcome = await till.call(process)
        assert await till.call(process) == outcome
        with pytest.raises(SubmissionConflict):
            await till.call(process, cents=6)
        with pytest.raises(SubmissionConflict):
            await till.call(process, "m1")
    async with place.process() as process:
        version = (await process.row()).version
        assert await till.call(process) == outcome
        # Not even while a turn runs is what is known refused.
        assert (await process.row()).version == version
        assert till.done == ["A 5"]


async def test_two_who_call_at_once_under_one_id_hear_the_same(place: Place) -> None:
    till = Till()
    async with place.process() as one, place.process() as other:
        await one.run(till.agent, "hello", session="s", submission="m1")
        outcomes = await asyncio.gather(till.call(one), till.call(other), till.call(one))
        assert outcomes[0] == outcomes[1] == outcomes[2]
        assert till.done == ["A 5"]


@pytest.mark.spec("E-058", "B-B-099", "B-B-100")
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("action", ["break", "die"])
async def test_a_call_whose_receipt_could_not_be_stored_is_an_error_and_never_repeated(place: Place, when: Any, action: Any) -> None:
    till = Till()
    async with place.process() as process:
        await process.run(till.agent, "hello", session="s", submission="m1")
    # when the store fails, or the process dies, at the receipt's commit, before or after it was durable
    async with place.process(Fault(kind="commit", nth=2, when=when, action=action)) as process:
        with pytest.raises((StoreBroken, ProcessDied)):
            await till.call(process)
        if action == "break":
            # A process that lives goes on knowing what became of it, and hands it in.
            await eventually(lambda: _known(process))
    # then whoever takes the session up next finds what is committed and nothing else: the effect happened once, known or not
    async with place.process() as process:
        outcome = await till.call(process)
        assert till.done == ["A 5"]
        if when == "after" or action == "break":
            assert (outcome.status, outcome.result) == ("succeeded", "paid A")
        else:
            assert (outcome.status, outcome.result, outcome.is_error) == ("uncertain", UNKNOWN, True)
            [open_effect] = await process.sessions.uncertain("s")
            assert (open_effect.operation, open_effect.arguments) == (outcome.operation, {"cents": 5, "order": "A"})
            # And once its outcome is known, whoever asks again hears that.
            await process.sessions.report_attempt("s", outcome.operation, 1, "paid A after all", False)
            assert (await till.call(process)).result == "paid A after all"
        await sound(process)


async def _known(process: Process) -> bool:
    return (await process.row()).status != "running"


async def test_a_call_that_may_be_repeated_goes_on_after_a_crash_under_its_key(place: Place) -> None:
    till = Till("idempotent")
    async with place.process() as process:
        await process.run(till.agent, "hello", session="s", submission="m1")
    async with place.process(Fault(kind="commit", nth=2, when="before", action="die")) as process:
        with pytest.raises((StoreBroken, ProcessDied)):
            await till.call(process)
    async with place.process() as process:
        assert (await till.call(process)).result == "paid A"
        assert till.done == ["A 5", "A 5"]
        assert len(set(till.keys)) == 1
        await sound(process)


async def test_a_call_is_refused_while_a_turn_runs_and_nothing_is_stored(place: Place) -> None:
    till = Till()
    till.go.clear()
    paying_first = till.paying_first()
    async with place.process() as holder, place.process() as other:
        running = asyncio.create_task(holder.run(paying_first, "pay", session="s", submission="m1"))
        await till.begun.wait()
        before = await other.everything()
        for process in (holder, other):
            with pytest.raises(SessionBusy):
                await process.sessions.call_tool("s", paying_first, "pay", {"order": "A", "cents": 5}, submission="o1")
        assert await other.everything() == before
        running.cancel()


async def test_a_call_that_meets_a_turn_that_just_began_is_refused_in_the_journal(place: Place) -> None:
    till = Till()
    till.go.clear()
    agent = till.paying_first()
    async with place.process() as process:
        running = asyncio.create_task(process.run(agent, "pay", session="s", submission="m1"))
        await till.begun.wait()
        # Whoever looked just before the turn began sends all the same.
        calling = asyncio.create_task(_late(process, agent))
        with pytest.raises(SessionBusy):
            await calling
        assert till.done == []
        [refused] = await process.sessions.entries("s", kinds=("submission_refused",))
        assert (refused.submission, refused.failure.code) == ("o1", "session_busy")  # type: ignore[attr-defined]
        till.go.set()
        assert (await running).ok


async def test_a_call_that_is_refused_before_its_sender_heard_that_it_was_sent_is_refused_to_them_too(place: Place) -> None:
    till = Till()
    till.go.clear()
    agent = till.paying_first()
    async with place.process() as process:

        async def refused() -> bool:
            return bool(await process.sessions.entries("s", kinds=("submission_refused",)))

        running = asyncio.create_task(process.run(agent, "pay", session="s", submission="m1"))
        await till.begun.wait()
        sent = process.sessions._send

        async def slowly(*given: Any, **named: Any) -> Any:
            answer = await sent(*given, **named)
            await eventually(refused)
            return answer

        with patch.object(Door, "_send", lambda sessions, *given, **named: slowly(*given, **named)), pytest.raises(SessionBusy):
            await _late(process, agent)
        running.cancel()


async def _late(process: Process, agent: Agent) -> Any:
    from perdure.runtime import calling

    looked = calling.check_idle
    calling.check_idle = lambda *given: None
    try:
        return await process.sessions.call_tool("s", agent, "pay", {"order": "A", "cents": 5}, submission="o1")
    finally:
        calling.check_idle = looked


@pytest.mark.spec("C-T3-030")
async def test_what_is_archived_or_not_there_has_no_tools_to_call(place: Place) -> None:
    till = Till()
    async with place.process() as process:
        with pytest.raises(SessionNotFound):
            await till.call(process)
        await process.run(till.agent, "hello", session="s", submission="m1")
        await process.sessions.archive("s")
        before = await process.everything()
        with pytest.raises(SessionArchived):
            await till.call(process)
        assert await process.everything() == before
        with pytest.raises(SessionNotFound):
            await process.sessions.owned_by("somebody else").call_tool("s", till.agent, "pay", {})
        assert till.done == []


async def test_archiving_a_session_in_the_middle_of_a_call_leaves_it_uncertain(place: Place) -> None:
    till = Till()
    async with place.process() as process, place.process() as other:
        await process.run(till.agent, "hello", session="s", submission="m1")
        till.go.clear()
        till.begun.clear()
        calling = asyncio.create_task(till.call(process))
        await till.begun.wait()
        await other.sessions.archive("s")
        await asyncio.wait([calling])
        outcome = calling.result()
        assert (outcome.status, outcome.failure.code) == ("uncertain", "taken")
        assert (await kinds(other))[-4:] == ["operation_ended", "note_added", "turn_aborted", "archived"]
        [effect] = await other.store.effects((await other.row()).no)
        assert effect.state == "uncertain"
        till.go.set()


async def test_a_person_is_asked_where_the_policy_says_so_and_sees_the_arguments(place: Place) -> None:
    till = Till(approve=["pay"])
    async with place.process() as process, place.process() as person:
        await process.run(till.agent, "hello", session="s", submission="m1")
        calling = asyncio.create_task(till.call(process))
        await eventually(lambda: _open(person))
        [request] = await person.sessions.requests("s")
        assert (request.kind, request.name, request.arguments) == ("approval", "pay", {"cents": 5, "order": "A"})
        # Meanwhile the session is busy: a message waits, another call is refused.
        with pytest.raises(SessionBusy):
            await till.call(person, "o2")
        await person.sessions.approve("s", request.request_id, {"order": "A", "cents": 4})
        assert (await calling).status == "succeeded"
        assert till.done == ["A 4"]
        calling = asyncio.create_task(till.call(process, "o3", order="B"))
        await eventually(lambda: _open(person))
        [request] = await person.sessions.requests("s")
        await person.sessions.deny("s", request.request_id, "not today")
        outcome = await calling
        assert (outcome.status, outcome.is_error, outcome.failure.code) == ("cancelled", True, "denied")
        assert outcome.result == "not executed: a person denied it: not today"
        assert till.done == ["A 4"]
        await sound(process)


async def _open(process: Process) -> bool:
    return bool(await process.sessions.requests("s"))


async def test_an_effect_of_unknown_outcome_is_not_repeated_from_outside_without_asking(place: Place) -> None:
    till = Till()
    async with place.process() as process:
        await process.run(till.agent, "hello", session="s", submission="m1")
    async with place.process(Fault(kind="commit", nth=2, when="before", action="die")) as process:
        with pytest.raises((StoreBroken, ProcessDied)):
            await till.call(process)
    async with place.process() as process, place.process() as person:
        assert (await till.call(process)).status == "uncertain"
        # when the same effect is wanted again, under another id
        calling = asyncio.create_task(till.call(process, "o2", cents=7))
        await eventually(lambda: _open(person))
        [request] = await person.sessions.requests("s")
        assert request.entry.match is not None  # type: ignore[attr-defined]
        await person.sessions.deny("s", request.request_id)
        assert (await calling).status == "cancelled"
        assert till.done == ["A 5"]


async def test_what_a_branch_left_behind_is_guarded_against_a_call_from_outside_too(place: Place) -> None:
    payments = Payments()
    agent = paying(payments)
    async with place.process() as process:
        await process.run(agent, "pay A 5 ref1", session="s", owner="acme")
        fork = await process.sessions.fork("s", at=0)
        assert fork.effects == 1
        arguments = {"order": "A", "cents": 5, "reference": "ref2"}
        calling = asyncio.create_task(process.sessions.call_tool(fork.session_id, agent, "pay", arguments))
        await eventually(lambda: _asked(process, fork.session_id))
        [request] = await process.sessions.requests(fork.session_id)
        await process.sessions.deny(fork.session_id, request.request_id)
        assert (await calling).status == "cancelled"
        assert payments.done == ["A 5 ref1"]


async def _asked(process: Process, session: str) -> bool:
    return bool(await process.sessions.requests(session))


async def test_middleware_has_its_say_in_a_call_from_outside(place: Place) -> None:
    class Careful(Middleware):
        name = "careful"

        async def before_tool(self, ctx: HookContext, call: ApprovalCall) -> Deny | None:
            return Deny("too much") if call.arguments["cents"] > 10 else None

        async def after_tool(self, ctx: HookContext, call: ApprovalCall, response: ToolCallResponse) -> Replace:
            return Replace(f"<{response.response}>")

        async def stop(self, ctx: HookContext, answer: str) -> None:
            raise AssertionError("no model stops here")

    till = Till(middleware=[Careful()])
    async with place.process() as process:
        await process.run(till.agent, "hello", session="s", submission="m1")
        outcome = await till.call(process)
        assert outcome.result == "<paid A>"
        refused = await till.call(process, "o2", cents=11)
        assert (refused.status, till.done) == ("failed", ["A 5"])
        assert "careful denies it: too much" in refused.result
    async with place.process() as process:
        await process.run(till.agent, "and now?", session="s", submission="m2")
        assert till.told()[0].endswith("Result: <paid A>")
        await sound(process)


async def test_a_call_that_can_not_be_made_says_why_and_runs_nothing(place: Place) -> None:
    till = Till()
    async with place.process() as process:
        await process.run(till.agent, "hello", session="s", submission="m1")
        nobody = await process.sessions.call_tool("s", till.agent, "refund", {}, submission="o1")
        assert (nobody.status, nobody.is_error, nobody.failure and nobody.failure.code) == ("failed", True, "unknown_tool")
        wrong = await till.call(process, "o2", cents="many")  # type: ignore[arg-type]
        assert (wrong.status, wrong.failure.code) == ("failed", "invalid_arguments")
        for given in ("text", [1], {"cents": float("nan")}, {"cents": 2**60}):
            with pytest.raises((UsageError, InvalidMessage)):
                await process.sessions.call_tool("s", till.agent, "pay", given)  # type: ignore[arg-type]
        with pytest.raises(UsageError):
            await process.sessions.call_tool("s", till.agent, "", {})
        with pytest.raises(UsageError):
            await process.sessions.call_tool("s", "till", "pay", {})  # type: ignore[arg-type]
        with pytest.raises((UsageError, LimitExceeded)):
            await process.sessions.call_tool("s", till.agent, "pay", {"order": "x" * 1_000_000, "cents": 1})
        assert till.done == []
        await sound(process)


async def test_long_arguments_and_results_are_set_aside_and_the_model_is_told_their_beginning(place: Place) -> None:
    asked: list[ModelRequest] = []

    @tool(effect="external")
    async def echo(text: str) -> str:
        """Say it twice."""
        return text + text

    def answer(request: ModelRequest) -> Reply:
        asked.append(request)
        return Reply("ok")

    agent = Agent("a", model=FunctionModel(answer), tools=[echo])
    text = "0123456789" * 8_000
    async with place.process() as process:
        await process.run(agent, "hello", session="s", submission="m1")
        outcome = await process.sessions.call_tool("s", agent, "echo", {"text": text}, submission="o1")
        assert outcome.result == text + text
        assert all(len(row.body or b"") < 8_000 for row in await process.store.entries((await process.row()).no))
    async with place.process() as process:
        assert (await process.sessions.call_tool("s", agent, "echo", {"text": text}, submission="o1")) == outcome
        await process.run(agent, "and now?", session="s", submission="m2")
        [note] = [message.text for message in asked[-1].messages if message.text.startswith("[note]")]
        assert len(note) < 5_000
        assert "characters more" in note
        await sound(process)


async def test_what_was_called_from_outside_can_be_redacted(place: Place) -> None:
    till = Till()
    async with place.process() as process:
        await process.run(till.agent, "hello", session="s", submission="m1")
        outcome = await till.call(process, order="secret")
        began = int(outcome.turn[1:])
        removed = await process.sessions.redact("s", entries=[began, outcome.seq])
        assert set(removed.entries) == {began, outcome.seq}
        await process.run(till.agent, "and now?", session="s", submission="m2")
        [note] = till.told()
        assert "secret" not in note
        assert "[redacted]" in note
        held = b"".join(row.body or b"" for row in await process.store.entries((await process.row()).no))
        assert b"secret" not in held
        await sound(process)


@pytest.mark.spec("B-B-101")
async def test_a_message_that_comes_meanwhile_begins_its_turn_afterwards(place: Place) -> None:
    till = Till()
    async with place.process() as process:
        await process.run(till.agent, "hello", session="s", submission="m1")
        till.go.clear()
        till.begun.clear()
        calling = asyncio.create_task(till.call(process))
        await till.begun.wait()
        async with process.session("s", till.agent) as session:
            await session.send("mind the step", submission="m2", deliver="steer")
            # Nobody who waits for a tool that takes hours gives it up.
            place.clock.advance(10_000_000)
            assert not calling.done()
            till.go.set()
            assert (await calling).result == "paid A"
            await eventually(lambda: _done(process, "m2"))
        # No model was there to be steered: it is a turn of its own, and its model knows of the call.
        assert [message.text for message in till.asked[-1].messages] == ["hello", "ok", TOLD, "mind the step"]
        await sound(process)


async def _done(process: Process, submission: str) -> bool:
    return await process.sessions.result("s", submission) is not None


async def test_a_call_from_outside_can_be_interrupted_and_goes_out_and_comes_in_with_its_session(place: Place, tmp_path: Any) -> None:
    till = Till()
    async with place.process() as process:
        await process.run(till.agent, "hello", session="s", submission="m1")
        till.go.clear()
        till.begun.clear()
        calling = asyncio.create_task(till.call(process))
        await till.begun.wait()
        await process.sessions.interrupt("s")
        outcome = await calling
        assert (outcome.status, outcome.failure.code) == ("uncertain", "interrupted")
        till.go.set()
        await process.sessions.export("s", tmp_path / "s.jsonl")
    elsewhere = Place(place.kind, tmp_path / "other.db")
    async with elsewhere.process() as process:
        await process.sessions.import_from(tmp_path / "s.jsonl")
        assert [entry.operation for entry in await process.sessions.entries("s") if isinstance(entry, NoteAdded)] == [outcome.operation]
        await process.run(till.agent, "and now?", session="s", submission="m2")
        assert [message.text for message in till.asked[-1].messages if isinstance(message, Message) and isinstance(message.parts[0], Text)][
            2
        ].startswith("[note] The tool pay was called outside of this conversation")
        await sound(process)
