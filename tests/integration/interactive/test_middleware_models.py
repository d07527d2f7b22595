"""Hooks around model calls: order, guidance, requests of their own, values that are kept, and commands."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from perdure import (
    Agent,
    ExtensionCommand,
    FunctionModel,
    HookContext,
    Identity,
    InvalidAgent,
    Message,
    Middleware,
    ModelRequest,
    NoteAdded,
    OperationStarted,
    RateLimited,
    Reply,
    Stop,
    SubmissionRefused,
    SubmissionRejected,
    Text,
    ToolSpec,
    TurnAborted,
    TurnEnded,
    Usage,
    UsageError,
    tool,
)
from perdure.agent.definition import describe, difference

from .acting import Place, counting, eventually, transcript, until
from .test_middleware_calls import LOOK, hook, look
from .test_middleware_messages import sound


@pytest.mark.spec("S2-196", "S2-197")
async def test_hooks_run_in_the_order_of_their_declaration_and_requests_only_after_every_before_model(place: Place) -> None:
    ran: list[str] = []

    def noting(name: str) -> Middleware:
        def note(which: str) -> Any:
            async def run(ctx: HookContext, *args: Any) -> None:
                await asyncio.sleep(0)
                ran.append(f"{which} {name}")

            return run

        kinds = ("session_start", "session_end", "message_submit", "before_model", "model_request", "stop", "turn_end")
        return hook(name, **{kind: note(kind) for kind in kinds})

    model, _ = counting(Reply("hello"))
    async with place.process() as process:
        await process.run(Agent("a", model=model, middleware=[noting("one"), noting("two")]), "hi", session="s", submission="m-1")
        await eventually(lambda: len(ran) == 14)
        await sound(process)
    assert ran == [
        *["session_start one", "session_start two", "message_submit one", "message_submit two"],
        *["before_model one", "before_model two", "model_request one", "model_request two"],
        *["stop one", "stop two", "turn_end one", "turn_end two", "session_end two", "session_end one"],
    ]


@pytest.mark.spec("S2-205", "S2-206")
async def test_names_are_told_apart_and_what_middleware_adds_is_read_once(memory: Place) -> None:
    reads: list[str] = []

    class Counted(Middleware):
        name = "counted"

        @property
        def instructions(self) -> str:  # type: ignore[override]
            reads.append("instructions")
            return "Be kind."

        @property
        def tools(self) -> Any:  # type: ignore[override]
            reads.append("tools")
            return [look]

    model, asked = counting(Reply(tool_calls=[LOOK]), Reply("done"))
    with pytest.raises(InvalidAgent, match="two middlewares named 'guard'"):
        Agent("a", model=model, middleware=[hook("guard"), hook("guard")])
    for wrong in ("guard", [object()], [hook("")], [hook("a", timeout=0)], [hook("a", commands={"": print})], hook("a")):
        with pytest.raises(InvalidAgent):
            Agent("a", model=model, middleware=wrong)  # type: ignore[arg-type]
    agent = Agent("a", instructions="Be brief.", model=model, middleware=[Counted()])
    before = [*reads]
    async with memory.process() as process:
        await process.run(agent, "hi", session="s", submission="m-1")
        await process.run(agent, "hi", session="t", submission="m-1")
    assert reads == before
    assert {request.instructions for request in asked} == {"Be brief.\n\nBe kind."}
    assert [spec.name for spec in asked[0].tools][:1] == ["look"]
    # A changed copy has them once, too.
    assert [item.name for item in agent.replace(instructions="Be long.").toolset] == ["look"]


def test_what_middleware_there_is_belongs_to_the_definition() -> None:
    one = Agent("a", middleware=[hook("guard", stop=lambda ctx, answer: None)])
    other = Agent("a", middleware=[hook("guard", before_model=lambda ctx: None, commands={"raise": print}), hook("log")])
    assert difference(describe(one), describe(other)) == (
        "the middleware 'log' was added",
        "of the middleware 'guard', the commands changed from [] to [\"raise\"]",
        'of the middleware \'guard\', the hooks changed from ["stop"] to ["before_model"]',
    )
    assert difference(describe(other), describe(one))[0] == "the middleware 'log' was removed"


@pytest.mark.spec("S2-198")
async def test_what_a_hook_puts_into_one_request_reaches_the_model_and_stays_out_of_the_session(place: Place) -> None:
    def model_request(ctx: HookContext, request: ModelRequest) -> ModelRequest | None:
        if ctx.step:
            return None
        more = Message(role="user", parts=(Text("[weather: violet rain]"),))
        return msgspec.structs.replace(request, messages=[*request.messages, more], instructions="Mind the weather.")

    model, asked = counting(Reply(tool_calls=[LOOK]), Reply("done"))
    agent = Agent("a", instructions="Be brief.", model=model, tools=[look], middleware=[hook(model_request=model_request)])
    async with place.process() as process:
        await process.run(agent, "hi", session="s", submission="m-1")
        row = await process.row()
        assert b"violet" not in row.checkpoint
        assert not any(b"violet" in (entry.body or b"") for entry in await process.store.entries(row.no))
        assert "violet" not in str(await process.sessions.history("s"))
        started = [entry for entry in await process.sessions.entries("s") if isinstance(entry, OperationStarted) and entry.request]
        assert [bool(entry.request and entry.request.additions) for entry in started] == [True, False]
        # What this request said otherwise is kept beside it, so that it can be printed again.
        blob = await process.store.blob(row.root, started[0].request.additions)  # type: ignore[union-attr]
        assert blob is not None
        assert b"violet rain" in blob.data
        assert len(blob.data) < 300
        await sound(process)
    assert [message.text for message in asked[0].messages] == ["hi", "[weather: violet rain]"]
    assert asked[0].instructions == "Mind the weather."
    assert [message.text for message in asked[1].messages] == ["hi", "", ""]
    assert asked[1].instructions == "Be brief."


@pytest.mark.spec("S0-162")
async def test_a_retried_attempt_sends_the_same_request_and_asks_no_hook_again_here_and_after_a_restart(memory: Place) -> None:
    calls: list[str] = []

    def before_model(ctx: HookContext) -> None:
        calls.append("before_model")
        ctx.guide("think first")

    def model_request(ctx: HookContext, request: ModelRequest) -> ModelRequest:
        calls.append("model_request")
        return msgspec.structs.replace(request, instructions=f"asked {len(calls)}")

    asked: list[tuple[str, list[str]]] = []
    dying = asyncio.Event()

    async def answer(request: ModelRequest) -> Any:
        asked.append((request.instructions, [message.text for message in request.messages]))
        if len(asked) < 3:
            raise RateLimited("slowly", retry_after=0.2)
        if len(asked) == 3:
            dying.set()
            await asyncio.Event().wait()
        return Reply("hello")

    agent = Agent("a", model=FunctionModel(answer), middleware=[hook(before_model=before_model, model_request=model_request)])
    async with memory.process() as process, process.session("s", agent) as handle:
        await handle.send("hi", submission="m-1")
        await dying.wait()
        process.faulty.kill()
    async with memory.process() as process:
        await process.recover([agent])
        assert (await process.sessions.result("s", "m-1")).output == "hello"  # type: ignore[union-attr]
        started = [entry for entry in await process.sessions.entries("s") if isinstance(entry, OperationStarted)]
        assert [(entry.operation, entry.attempt) for entry in started] == [("t2.0.0", n) for n in (1, 2, 3, 4)]
        await sound(process)
    assert calls == ["before_model", "model_request"]
    assert asked == [("asked 2", ["hi", "[note] think first"])] * 4


async def test_a_hook_can_t_change_who_is_asked_or_which_tools_there_are(memory: Place) -> None:
    nothing = (ToolSpec(name="rm", description="", parameters={}),)
    for change in (
        {"route": "other"},
        {"tools": nothing},
        {"step": 7},
        {"session_id": "t"},
        {"messages": [Message(role="user", parts=(5,))]},
    ):  # type: ignore[arg-type]

        def model_request(ctx: HookContext, request: ModelRequest, change: Any = change) -> ModelRequest:
            return msgspec.structs.replace(request, **change)

        model, asked = counting(Reply("hello"))
        async with memory.process() as process:
            agent = Agent("a", model=model, middleware=[hook(model_request=model_request)])
            result = await process.run(agent, "hi", session=f"s-{next(iter(change))}", submission="m-1")
            assert result.failure is not None
            assert result.failure.message.startswith("the hook model_request of the middleware 'guard' failed: ")
        assert asked == []


@pytest.mark.spec("S2-202")
async def test_the_first_reason_to_stop_is_kept_and_no_model_is_called(place: Place) -> None:
    model, asked = counting(Reply("hello"))
    agent = Agent(
        *("a",), model=model, middleware=[hook(f"m{n}", before_model=lambda ctx, n=n: Stop(f"reason {n}") if n else None) for n in range(3)]
    )
    async with place.process() as process:
        result = await process.run(agent, "hi", session="s", submission="m-1")
        assert (result.status, result.reason) == ("aborted", "reason 1")
        ended = (await process.sessions.entries("s"))[-1]
        assert isinstance(ended, TurnAborted)
        assert ended.extension == "m1"
        await sound(process)
    assert asked == []


@pytest.mark.spec("S2-199")
async def test_a_preparation_that_fails_leaves_nothing_of_what_hooks_told_or_kept_and_usage_as_it_was(place: Place) -> None:
    def first(ctx: HookContext) -> None:
        ctx.guide("provisional", once="k")
        ctx.state["n"] = 1

    def second(ctx: HookContext) -> None:
        if ctx.step:
            raise ValueError("no")

    model, asked = counting(Reply(tool_calls=[LOOK], usage=Usage(input_tokens=10, output_tokens=2)))
    agent = Agent(
        "a",
        model=model,
        tools=[look],
        middleware=[hook("one", before_model=lambda ctx: first(ctx) if ctx.step else None), hook("two", before_model=second)],
    )
    async with place.process() as process:
        before = await process.run(agent, "hi", session="s", submission="m-1")
        assert before.failure is not None
        assert before.failure.message == "the hook before_model of the middleware 'two' failed: ValueError: no"
        checkpoint = await process.sessions.checkpoint("s")
        assert (checkpoint.once, checkpoint.extensions, checkpoint.epoch) == ((), {}, 0)
        assert (checkpoint.usage.input_tokens, before.usage.input_tokens) == (10, 10)
        assert not any(isinstance(entry, NoteAdded) for entry in await process.sessions.entries("s"))
        await sound(process)
    assert len(asked) == 1


@pytest.mark.spec("S2-097")
async def test_an_interrupt_while_a_hook_prepares_discards_what_it_told(place: Place) -> None:
    hanging = asyncio.Event()

    async def before_model(ctx: HookContext) -> None:
        ctx.guide("provisional", once="k")
        hanging.set()
        await asyncio.Event().wait()

    model, asked = counting(Reply("hello"))
    agent = Agent("a", model=model, middleware=[hook(before_model=before_model)])
    async with place.process() as process, process.session("s", agent) as handle:
        await handle.send("hi", submission="m-1")
        await hanging.wait()
        await handle.interrupt()
        await until(handle, TurnEnded, after=0)
        assert [entry.kind for entry in await process.sessions.entries("s")][-2:] == ["message", "turn_aborted"]
        assert (await process.sessions.checkpoint("s")).once == ()
        await sound(process)
    assert asked == []


@pytest.mark.spec("S2-029", "S2-030")
async def test_a_steer_is_durable_while_a_hook_before_the_model_hangs_and_is_in_the_call_after_it(place: Place) -> None:
    hanging, go_on = asyncio.Event(), asyncio.Event()
    seen: list[int] = []

    async def before_model(ctx: HookContext) -> None:
        seen.append(ctx.step)
        ctx.guide(f"note {len(seen)}", once="only")
        hanging.set()
        await go_on.wait()

    model, asked = counting(Reply("hello"))
    agent = Agent("a", model=model, middleware=[hook(before_model=before_model)])
    async with place.process() as process, process.session("s", agent) as handle:
        await handle.send("hi", submission="m-1")
        await hanging.wait()
        await handle.send("and quickly", submission="m-2", deliver="steer")
        async with place.process() as other:
            assert [row.submission_id for row in await other.pending()] == ["m-2"]
        go_on.set()
        await until(handle, TurnEnded, after=0)
        await sound(process)
    # It was asked again with the steer in the context, and what it had said before was no fact.
    assert seen == [0, 0]
    assert [[message.text for message in request.messages] for request in asked] == [["hi", "and quickly", "[note] note 2"]]


async def test_a_flood_of_steers_can_t_have_the_same_call_prepared_for_ever(memory: Place) -> None:
    prepared: list[int] = []
    model, asked = counting(Reply("hello"))
    async with memory.process() as process:

        async def before_model(ctx: HookContext) -> None:
            prepared.append(ctx.step)
            if len(prepared) < 9:
                await process.sessions.send("s", f"steer {len(prepared)}", deliver="steer")

        await process.run(Agent("a", model=model, middleware=[hook(before_model=before_model)]), "hi", session="s", submission="m-1")
        await sound(process)
    # Three times with what came in between, then as it is: the model is called, and the rest is in the next call.
    assert prepared[:5] == [0, 0, 0, 0, 1]
    assert [message.text for message in asked[0].messages] == ["hi", "steer 1", "steer 2", "steer 3"]
    assert [message.text for message in asked[-1].messages if message.role == "user"] == ["hi", *(f"steer {n}" for n in range(1, 9))]


@pytest.mark.spec("S2-204", "S0-220")
async def test_guidance_that_is_given_once_is_given_once_whatever_restarts_and_rolls_back(place: Place) -> None:
    told: list[tuple[str, bool]] = []

    def before_model(ctx: HookContext) -> None:
        told.append((ctx.extension, ctx.guide("Only ever once.", once="welcome")))
        ctx.guide(f"every time, {ctx.state.get('n', 0)}")
        ctx.state["n"] = ctx.state.get("n", 0) + 1

    model, _ = counting(Reply("hello"))
    first, second = hook("one", before_model=before_model), hook("two", before_model=before_model)
    agent = Agent("a", model=model, middleware=[first, second])
    async with place.process() as process:

        async def gate(call: Any, when: str) -> None:
            # The commit that holds the guidance doesn't come to be.
            if call.kind == "commit" and when == "before" and any(entry.kind == "note_added" for entry in call.given.entries):
                process.faulty.kill()

        process.faulty.gate = gate
        async with process.session("s", agent) as handle:
            await handle.send("hi", submission="m-1")
            await eventually(lambda: process.faulty.dead)
    async with place.process() as process:
        await process.recover([agent])
        await process.run(agent, "again", session="s", submission="m-2")
    async with place.process() as process:
        await process.run(agent, "and again", session="s", submission="m-3")
        notes = [entry for entry in await process.sessions.entries("s") if isinstance(entry, NoteAdded)]
        assert [(note.extension, note.text) for note in notes if note.once] == [("one", "Only ever once."), ("two", "Only ever once.")]
        # What is kept outlives the process, and each has its own.
        assert [note.text for note in notes if not note.once] == [f"every time, {n}" for n in (0, 0, 1, 1, 2, 2)]
        checkpoint = await process.sessions.checkpoint("s")
        assert len(checkpoint.once) == 2
        # Whoever asks learns whether it was told; what was rolled back was not.
        assert told == [("one", True), ("two", True), *[("one", True), ("two", True)], *[("one", False), ("two", False)] * 2]
        assert {name: [*values] for name, values in checkpoint.extensions.items()} == {"one": ["n"], "two": ["n"]}
        await sound(process)


@pytest.mark.spec("S0-223")
async def test_what_a_hook_keeps_is_limited_by_name_and_too_much_is_a_fault(memory: Place) -> None:
    cases: list[tuple[Any, str]] = [
        (lambda ctx: ctx.state.__setitem__("x", "y" * 40_000), "the value of 'x' is too long"),
        (lambda ctx: ctx.state.__setitem__("x", float("nan")), "NotCanonical"),
        (lambda ctx: ctx.state.__setitem__("", 1), "can't be a key"),
        (lambda ctx: ctx.guide(" "), "guidance must say something"),
        (lambda ctx: ctx.guide("x" * 70_000), "guidance is too long"),
        (lambda ctx: [ctx.state.__setitem__(f"k{n}", n) for n in range(65)] and None, "64 values of extensions are kept"),
        (lambda ctx: [ctx.guide("x", once=f"k{n}") for n in range(257)] and None, "256 keys of guidance"),
    ]
    for number, (before_model, told) in enumerate(cases):
        model, asked = counting(Reply("hello"))
        async with memory.process() as process:
            agent = Agent("a", model=model, middleware=[hook(before_model=before_model)])
            result = await process.run(agent, "hi", session=f"s{number}", submission="m-1")
            assert result.failure is not None
            assert result.failure.code == "hook_failed"
            assert told in result.failure.message
            await sound(process, f"s{number}")
        assert asked == []


@pytest.mark.spec("S2-131")
async def test_a_resumed_turn_keeps_who_began_it_for_every_hook_and_tool(place: Place) -> None:
    told: list[Any] = []
    dying = asyncio.Event()

    @tool(effect="pure")
    async def whose(ctx: Any) -> str:
        """Say whose."""
        return "unused"

    def before_model(ctx: HookContext) -> None:
        told.append((ctx.author, ctx.turn, ctx.step, ctx.session_id, ctx.agent, ctx.identity.owner, ctx.metadata))

    async def think(request: ModelRequest) -> Reply:
        if not dying.is_set():
            dying.set()
            await asyncio.Event().wait()
        return Reply("done")

    agent = Agent(
        "a", model=FunctionModel(think), middleware=[hook(before_model=before_model, stop=lambda ctx, answer: told.append(ctx.author))]
    )
    async with place.process() as process, process.session("s", agent, identity=Identity(owner="acme")):
        await process.sessions.send(
            "s", "hi", submission="m-1", actor="ann", agent="a", identity=Identity(owner="acme"), metadata={"plan": "gold"}
        )
        await dying.wait()
        process.faulty.kill()
    async with place.process() as process:
        await process.sessions.send("s", "and a steer", submission="m-2", actor="bob", deliver="steer")
        await process.recover([agent])
        await sound(process)
    expected = ("ann", "t2", 0, "s", "a", "acme", {"plan": "gold"})
    assert told == [expected, expected, "ann"]


# ---------------------------------------------------------------------------------------------------------------- commands


def budget(**more: Any) -> Middleware:
    async def raise_limit(ctx: HookContext, arguments: dict[str, Any]) -> None:
        if arguments.get("to", 0) < 0:
            raise ValueError("less than nothing")
        ctx.state["limit"] = arguments["to"]
        ctx.guide(f"The limit is {arguments['to']} now, says {ctx.submission}.")

    return hook("budget", commands={"raise": raise_limit}, **more)


def raise_nothing(ctx: HookContext, arguments: dict[str, Any]) -> None:
    """A command that does nothing."""


async def test_a_command_is_carried_out_where_the_agent_runs_and_told_in_the_journal(place: Place) -> None:
    model, asked = counting(Reply("hello"))
    agent = Agent("a", model=model, middleware=[budget()])
    async with place.process() as process:
        await process.run(agent, "hi", session="s", submission="m-1")
        sent = await process.sessions.command("s", "budget", "raise", {"to": 5}, submission="c-1", actor="ann")
        assert (await process.sessions.command("s", "budget", "raise", {"to": 5}, submission="c-1")).duplicate
        # Nobody runs the agent now: it waits, and whoever looks for work finds it.
        assert [row.submission_id for row in await process.pending()] == [sent.id]
        assert (await process.row()).status == "queued"
    async with place.process() as process:
        await process.recover([agent])
        done = [entry for entry in await process.sessions.entries("s") if isinstance(entry, ExtensionCommand)]
        assert [(entry.extension, entry.command, entry.arguments, entry.submission, entry.actor) for entry in done] == [
            ("budget", "raise", {"to": 5}, "c-1", "ann")
        ]
        assert (await process.row()).status == "idle"
        await process.run(agent, "again", session="s", submission="m-2")
        await sound(process)
    assert [message.text for message in asked[1].messages] == ["hi", "hello", "[note] The limit is 5 now, says c-1.", "again"]


async def test_a_command_that_was_sent_before_a_message_is_carried_out_before_its_turn_begins(place: Place) -> None:
    seen: list[int] = []
    model, _ = counting(Reply("hello"))
    agent = Agent("a", model=model, middleware=[budget(before_model=lambda ctx: seen.append(ctx.state.get("limit", 0)))])
    async with place.process() as process:
        await process.run(agent, "hi", session="s", submission="m-1")
        await process.sessions.command("s", "budget", "raise", {"to": 5}, submission="c-1")
        await process.run(agent, "again", session="s", submission="m-2")
        await sound(process)
    assert seen == [0, 5]


async def test_a_command_that_nobody_declares_or_that_fails_is_refused_and_changes_nothing(place: Place) -> None:
    model, _ = counting(Reply("hello"))
    agent = Agent("a", model=model, middleware=[budget()])
    async with place.process() as process:
        # Before its first turn nobody knows what the agent has.
        await process.sessions.send("s", "hi", submission="m-1", agent="a")
        await process.sessions.command("s", "budget", "lower", submission="c-1")
        await process.sessions.command("s", "nobody", "raise", submission="c-2")
        await process.sessions.command("s", "budget", "raise", {"to": -1}, submission="c-3")
        await process.recover([agent])
        refused = {entry.submission: entry.failure for entry in await process.sessions.entries("s") if isinstance(entry, SubmissionRefused)}
        assert {name: failure.code for name, failure in refused.items()} == {
            "c-1": "unknown_command",
            "c-2": "unknown_command",
            "c-3": "hook_failed",
        }
        assert refused["c-3"].message == "the hook raise of the middleware 'budget' failed: ValueError: less than nothing"
        with pytest.raises(SubmissionRejected, match="no middleware 'nobody'"):
            await process.sessions.result("s", "c-2")
        assert (await process.sessions.checkpoint("s")).extensions == {}
        for wrong in ({"arguments": [1]}, {"arguments": {"x": "y" * 40_000}}, {"arguments": {"x": float("inf")}}):
            with pytest.raises(UsageError):
                await process.sessions.command("s", "budget", "raise", **wrong)  # type: ignore[arg-type]
        await sound(process)


async def test_a_command_with_a_slip_in_a_name_is_refused_before_it_is_sent_unless_the_code_has_it_by_now(place: Place) -> None:
    model, _ = counting(Reply("hello"))
    agent = Agent("a", model=model, middleware=[budget()])
    later = agent.replace(middleware=[budget(), hook("clerk", commands={"note": raise_nothing})])
    async with place.process() as process:
        await process.run(agent, "hi", session="s", submission="m-1")
        before = await process.everything()
        for names, meant in ((("budget", "rise"), "did you mean raise?"), (("budge", "raise"), "did you mean budget?")):
            with pytest.raises(UsageError, match="has no") as refused:
                await process.sessions.command("s", *names)
            assert meant in refused.value.hint
        with pytest.raises(UsageError, match="no middleware 'clerk'"):
            await process.sessions.command("s", "clerk", "note")
        assert await process.everything() == before
        await process.sessions.command("s", "clerk", "note", agents=[later], submission="c-1")
        # What was sent is not judged anew.
        assert (await process.sessions.command("s", "clerk", "note", submission="c-1")).duplicate
        await process.recover([later])
        assert [entry.command for entry in await process.sessions.entries("s") if isinstance(entry, ExtensionCommand)] == ["note"]
        await sound(process)


async def test_a_command_is_carried_out_beside_a_running_turn(place: Place) -> None:
    thinking, go_on = asyncio.Event(), asyncio.Event()

    async def think(request: ModelRequest) -> Reply:
        thinking.set()
        await go_on.wait()
        return Reply("done")

    agent = Agent("a", model=FunctionModel(think), middleware=[budget()])
    async with place.process() as process, process.session("s", agent) as handle:
        await handle.send("hi", submission="m-1")
        await thinking.wait()
        await process.sessions.command("s", "budget", "raise", {"to": 7}, submission="c-1")
        await until(handle, ExtensionCommand, after=0)
        go_on.set()
        await until(handle, TurnEnded, after=0)
        assert await transcript(process) == [("user", "hi"), ("assistant", "done")]
        await sound(process)


@pytest.mark.spec("S2-204")
async def test_guidance_of_a_preparation_that_was_rolled_back_is_given_by_the_same_process_the_next_time(place: Place) -> None:
    given: list[bool] = []

    def second(ctx: HookContext) -> None:
        if len(given) == 1:
            raise ValueError("no")

    model, asked = counting(Reply("hello"))
    first = hook("one", before_model=lambda ctx: given.append(ctx.guide("Only ever once.", once="welcome")))
    agent = Agent("a", model=model, middleware=[first, hook("two", before_model=second)])
    async with place.process() as process, process.session("s", agent) as handle:
        for number in range(3):
            await handle.send(f"message {number}")
            await until(handle, after=0, count=number + 1)
        await sound(process)
    assert given == [True, True, False]
    assert [[message.text for message in request.messages if message.text.startswith("[note]")] for request in asked] == [
        ["[note] Only ever once."],
        ["[note] Only ever once."],
    ]
