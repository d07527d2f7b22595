"""Hooks around tool calls: what is denied, rewritten, permitted and replaced, and what a hook does outside."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from perdure import (
    Agent,
    Allow,
    ApprovalCall,
    ApprovalRequested,
    Deny,
    EffectFailed,
    EffectUncertain,
    HookContext,
    Middleware,
    NotDone,
    OperationEnded,
    OperationStarted,
    Replace,
    Reply,
    Rewrite,
    ToolCall,
    ToolCallResponse,
    ToolContext,
    TurnEnded,
    tool,
)
from perdure.testing.faults import Call

from .acting import Place, counting, eventually, transcript, until
from .test_middleware_messages import sound


def hook(name: str = "guard", **hooks: Any) -> Middleware:
    """A middleware that has exactly these hooks; each is called with the context and what comes after it."""
    members: dict[str, Any] = {"name": name}
    for key, function in hooks.items():
        members[key] = function if not callable(function) else staticmethod(function)
    made: Middleware = type(f"Made{name}", (Middleware,), members)()
    return made


ran: list[str] = []


@tool(effect="external")
async def pay(order: str, cents: int) -> str:
    """Pay."""
    ran.append(f"pay {order} {cents}")
    return f"paid {order}"


@tool(effect="pure")
async def look(place: str) -> str:
    """Look."""
    ran.append(f"look {place}")
    return f"nothing at {place}"


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    ran.clear()


def asks(*calls: ToolCall) -> Reply:
    return Reply(tool_calls=list(calls))


PAY = ToolCall("pay", {"order": "A-1", "cents": 500}, "call-1")
LOOK = ToolCall("look", {"place": "here"}, "call-2")


@pytest.mark.spec("S2-203")
async def test_a_denied_call_becomes_a_result_that_says_why_and_guidance_stands_before_the_open_calls(place: Place) -> None:
    async def before_tool(ctx: HookContext, call: ApprovalCall) -> Deny | None:
        ctx.guide(f"{call.name} was looked at")
        return Deny("not on a Sunday") if call.name == "pay" else None

    model, asked = counting(asks(PAY, LOOK), Reply("I see."))
    agent = Agent("a", model=model, tools=[pay, look], middleware=[hook(before_tool=before_tool)])
    async with place.process() as process:
        await process.run(agent, "Please.", session="s", submission="m-1")
        await sound(process)
        history = await transcript(process)
    assert ran == ["look here"]
    assert history[2] == (
        "tool",
        ("call-1", "not executed: guard denies it: not on a Sunday", True),
        ("call-2", "nothing at here", False),
    )
    second = asked[1].messages
    assert [(message.role, message.text) for message in second] == [
        ("user", "Please."),
        ("user", "[note] pay was looked at"),
        ("user", "[note] look was looked at"),
        ("assistant", ""),
        ("tool", ""),
    ]
    # What was sent before is still what it was, to the byte.
    assert list(asked[0].messages) == list(second[:1])


async def test_a_rewritten_call_runs_as_it_was_rewritten_by_each_hook_in_turn(place: Place) -> None:
    seen: list[Any] = []

    def halve(ctx: HookContext, call: ApprovalCall) -> Rewrite | None:
        seen.append(("halve", call.name, dict(call.arguments)))
        if call.name != "pay":
            return None
        return Rewrite(arguments={**call.arguments, "cents": call.arguments["cents"] // 2})

    def divert(ctx: HookContext, call: ApprovalCall) -> Rewrite | None:
        seen.append(("divert", call.name, dict(call.arguments)))
        # What a hook does to what it was given changes nothing.
        call.arguments.clear()
        return Rewrite(name="look", arguments={"place": "elsewhere"}) if seen[-1][2].get("cents") == 3 else None

    small = ToolCall("pay", {"order": "B-2", "cents": 7}, "call-9")
    model, _ = counting(asks(PAY, small), Reply("Done."))
    agent = Agent("a", model=model, tools=[pay, look], middleware=[hook("halve", before_tool=halve), hook("divert", before_tool=divert)])
    async with place.process() as process:
        await process.run(agent, "Please.", session="s", submission="m-1")
        await sound(process)
        history = await transcript(process)
        started = [entry for entry in await process.sessions.entries("s") if entry.kind == "operation_planned"]
    assert sorted(ran) == ["look elsewhere", "pay A-1 250"]
    assert history[1][1:] == (("call-1", {"order": "A-1", "cents": 500}), ("call-9", {"order": "B-2", "cents": 7}))
    assert history[2][1:] == (("call-1", "paid A-1", False), ("call-9", "nothing at elsewhere", False))
    assert [(entry.arguments, entry.extension, entry.plan.name) for entry in started] == [  # type: ignore[attr-defined]
        ({"order": "A-1", "cents": 250}, "halve", "pay"),
        ({"place": "elsewhere"}, "divert", "look"),
    ]
    assert seen[:2] == [("halve", "pay", {"order": "A-1", "cents": 500}), ("divert", "pay", {"order": "A-1", "cents": 250})]


async def test_a_rewritten_call_that_waits_for_a_person_shows_and_runs_what_it_was_rewritten_to_after_a_restart(place: Place) -> None:
    def before_tool(ctx: HookContext, call: ApprovalCall) -> Rewrite:
        return Rewrite(arguments={"order": "A-1", "cents": 1})

    model, _ = counting(asks(PAY), Reply("Done."))
    agent = Agent("a", model=model, tools=[pay], approve=["pay"], middleware=[hook(before_tool=before_tool)])
    async with place.process() as process, process.session("s", agent) as handle:
        await handle.send("Please.", submission="m-1")
        await until(handle, ApprovalRequested, after=0)
        process.faulty.kill()
    async with place.process() as process:
        (request,) = await process.sessions.requests("s")
        assert request.arguments == {"order": "A-1", "cents": 1}
        await process.sessions.approve("s", request.request_id)
        await process.recover([agent])
        await sound(process)
    assert ran == ["pay A-1 1"]


async def test_a_rewrite_into_a_call_that_can_t_be_made_is_a_fault_of_the_hook(place: Place) -> None:
    for answer, told in (
        (Rewrite(name="vanish"), "it rewrote the call of pay into one that can't be made: there is no tool 'vanish'"),
        (Rewrite(arguments={"order": 5}), "it rewrote the call of pay into one that can't be made: "),
        ("rm -rf", "its outcome is 'rm -rf', not Deny or Rewrite or None"),
        (Deny(""), "the reason of a denial must say something"),
    ):
        session = f"s-{told[:30]}-{answer}"[:60]
        model, _ = counting(asks(PAY), Reply("Done."))
        agent = Agent("a", model=model, tools=[pay], middleware=[hook(before_tool=lambda ctx, call, answer=answer: answer)])
        async with place.process() as process:
            result = await process.run(agent, "Please.", session=session, submission="m-1")
            assert result.status == "failed"
            assert result.failure is not None
            assert result.failure.code == "hook_failed"
            assert result.failure.message.startswith(f"the hook before_tool of the middleware 'guard' failed: {told}")
            await sound(process, session)
    assert ran == []


@pytest.mark.spec("S2-200")
@pytest.mark.parametrize("order", [("allow", "deny"), ("deny", "allow"), ("deny", "deny 2")])
async def test_a_denial_of_permission_is_undone_by_no_allow_before_or_after_it(memory: Place, order: tuple[str, str]) -> None:
    def permission(word: str) -> Any:
        return lambda ctx, call: Allow() if word == "allow" else Deny(f"{word} it")

    model, _ = counting(asks(PAY), Reply("I see."))
    agent = Agent(
        *("a",),
        model=model,
        tools=[pay],
        approve=["pay"],
        middleware=[hook(f"m{n}", permission=permission(word)) for n, word in enumerate(order)],
    )
    async with memory.process() as process:
        await process.run(agent, "Please.", session="s", submission="m-1")
        history = await transcript(process)
        await sound(process)
    by = order.index("deny")
    assert history[2][1] == ("call-1", f"not executed: m{by} denies it: deny it", True)
    assert ran == []


async def test_permission_saves_asking_a_person_and_is_asked_only_where_a_person_would_be(memory: Place) -> None:
    asked_for: list[str] = []

    def permission(ctx: HookContext, call: ApprovalCall) -> Allow:
        asked_for.append(call.name)
        return Allow()

    model, _ = counting(asks(PAY, LOOK), Reply("Done."))
    agent = Agent("a", model=model, tools=[pay, look], approve=["pay"], middleware=[hook(permission=permission)])
    async with memory.process() as process:
        result = await process.run(agent, "Please.", session="s", submission="m-1")
        assert result.ok
        assert [entry.kind for entry in await process.sessions.entries("s") if entry.kind == "request_opened"] == []
    assert asked_for == ["pay"]
    assert sorted(ran) == ["look here", "pay A-1 500"]


async def test_without_an_outcome_a_person_is_asked_as_ever(memory: Place) -> None:
    model, _ = counting(asks(PAY), Reply("Done."))
    agent = Agent("a", model=model, tools=[pay], approve=["pay"], middleware=[hook(permission=lambda ctx, call: None)])
    async with memory.process() as process, process.session("s", agent) as handle:
        await handle.send("Please.", submission="m-1")
        await until(handle, ApprovalRequested, after=0)


@pytest.mark.spec("S2-193")
async def test_after_tool_sees_calls_that_really_ran_and_no_others(place: Place) -> None:
    seen: list[Any] = []

    @tool(effect="pure")
    async def fail() -> str:
        """Fail."""
        from perdure import ToolError

        raise ToolError("no")

    def after_tool(ctx: HookContext, call: ApprovalCall, response: ToolCallResponse) -> None:
        seen.append((call.name, call.call, call.arguments, response.response, response.is_error, ctx.operation))

    calls = [PAY, ToolCall("nothing", {}, "call-3"), ToolCall("look", {"place": 5}, "call-4"), ToolCall("fail", {}, "call-5"), LOOK]
    model, _ = counting(asks(*calls), Reply("Done."))
    agent = Agent("a", model=model, tools=[pay, look, fail], approve={"pay": "deny"}, middleware=[hook(after_tool=after_tool)])
    async with place.process() as process:
        await process.run(agent, "Please.", session="s", submission="m-1")
        await sound(process)
    assert seen == [
        ("fail", "call-5", {}, "no", True, "t2.0.4"),
        ("look", "call-2", {"place": "here"}, "nothing at here", False, "t2.0.5"),
    ]


@pytest.mark.spec("S2-196")
async def test_hooks_around_calls_run_in_the_order_of_their_declaration_for_each_call(place: Place) -> None:
    told: list[str] = []

    def noting(name: str) -> Middleware:
        def permission(ctx: HookContext, call: ApprovalCall) -> Allow:
            told.append(f"permission {name}")
            return Allow()

        def before_tool(ctx: HookContext, call: ApprovalCall) -> None:
            told.append(f"before_tool {name}")

        def after_tool(ctx: HookContext, call: ApprovalCall, response: ToolCallResponse) -> None:
            told.append(f"after_tool {name} {call.call}")

        return hook(name, permission=permission, before_tool=before_tool, after_tool=after_tool)

    model, _ = counting(asks(PAY, LOOK), Reply("Done."))
    agent = Agent("a", model=model, tools=[pay, look], approve=["pay"], middleware=[noting("one"), noting("two")])
    async with place.process() as process:
        await process.run(agent, "Please.", session="s", submission="m-1")
        await sound(process)
    assert told == [
        *["before_tool one", "before_tool two", "permission one", "permission two", "before_tool one", "before_tool two"],
        *["after_tool one call-1", "after_tool two call-1", "after_tool one call-2", "after_tool two call-2"],
    ]


@pytest.mark.spec("S2-193")
async def test_after_tool_does_not_see_a_call_that_its_tool_refused_when_it_was_started(place: Place) -> None:
    """The tool became another one while a person was asked, and can't take these arguments any more."""
    seen: list[str] = []

    def after_tool(ctx: HookContext, call: ApprovalCall, response: ToolCallResponse) -> None:
        seen.append(call.call)

    @tool(name="pay", effect="external")
    async def pay_in_euros(order: str, euros: int) -> str:
        """Pay."""
        ran.append(f"pay {order} {euros}")
        return f"paid {order}"

    model, _ = counting(asks(PAY, LOOK), Reply("Done."))
    then = Agent("a", model=model, tools=[pay, look], approve=["pay"], middleware=[hook(after_tool=after_tool)], on_change="any")
    async with place.process() as process, process.session("s", then) as handle:
        await handle.send("Please.", submission="m-1")
        request = (await until(handle, ApprovalRequested, after=0))[-1]
    async with place.process() as process:
        await process.sessions.approve("s", request.request_id)
        await process.recover([then.replace(tools=[pay_in_euros, look])])
        ended = [entry for entry in await process.sessions.entries("s") if isinstance(entry, OperationEnded) and entry.failure]
        assert [(entry.operation, entry.attempt, entry.failure and entry.failure.code) for entry in ended] == [
            ("t2.0.1", 1, "invalid_arguments")
        ]
        await sound(process)
    assert seen == ["call-2"]
    assert ran == ["look here"]


@pytest.mark.spec("S2-193")
async def test_after_tool_does_not_see_a_call_of_which_no_attempt_did_anything(memory: Place) -> None:
    seen: list[str] = []

    def after_tool(ctx: HookContext, call: ApprovalCall, response: ToolCallResponse) -> None:
        seen.append(call.call)

    def find_out(ctx: ToolContext) -> NotDone:
        return NotDone()

    @tool(effect="external", reconcile=find_out)
    async def connect() -> str:
        """Never get there."""
        ran.append("connect")
        raise OSError("the line is dead")

    model, asked = counting(asks(ToolCall("connect", {}, "call-1"), LOOK), Reply("Done."))
    agent = Agent("a", model=model, tools=[connect, look], middleware=[hook(after_tool=after_tool)])
    async with memory.process() as process:
        await process.run(agent, "Please.", session="s", submission="m-1")
        ended = [entry for entry in await process.sessions.entries("s") if isinstance(entry, OperationEnded) and entry.failure]
        await sound(process)
    assert (ended[-1].attempt, ended[-1].final, ended[-1].failure and ended[-1].failure.code) == (5, True, "not_done")
    assert ran.count("connect") == 5
    assert seen == ["call-2"]
    [refused, _] = asked[1].messages[2].parts
    assert refused.response == "not executed: 5 attempts had no effect"  # type: ignore[union-attr]


@pytest.mark.spec("S2-203")
async def test_a_replaced_result_is_what_the_model_reads_and_the_receipt_stays_and_guidance_comes_after(place: Place) -> None:
    def after_tool(ctx: HookContext, call: ApprovalCall, response: ToolCallResponse) -> Replace | None:
        ctx.guide("be brief")
        return Replace("x" * 40_000 if call.name == "look" else f"<{response.response}>") if call.name != "nothing" else None

    model, asked = counting(asks(PAY, LOOK), Reply("Done."))
    agent = Agent("a", model=model, tools=[pay, look], middleware=[hook("m1", after_tool=after_tool), hook("m2", after_tool=after_tool)])
    async with place.process() as process:
        await process.run(agent, "Please.", session="s", submission="m-1")
        await sound(process)
        entries = await process.sessions.entries("s")
        receipts = [entry.parts[0].response for entry in entries if isinstance(entry, OperationEnded) and entry.operation[-1] in "12"]  # type: ignore[union-attr]
    assert receipts == ["paid A-1", "nothing at here"]
    parts = asked[1].messages[2].parts
    assert [part.response for part in parts] == ["<<paid A-1>>", "x" * 40_000]  # type: ignore[union-attr]
    assert [message.role for message in asked[1].messages] == ["user", "assistant", "tool", *["user"] * 4]


async def test_a_receipt_never_waits_for_a_hook_and_a_crash_in_between_asks_it_again(place: Place) -> None:
    reviewing, seen = asyncio.Event(), []

    async def after_tool(ctx: HookContext, call: ApprovalCall, response: ToolCallResponse) -> Replace:
        seen.append(response.response)
        if len(seen) == 1:
            reviewing.set()
            await asyncio.Event().wait()
        return Replace("seen")

    model, _ = counting(asks(PAY), Reply("Done."))
    agent = Agent("a", model=model, tools=[pay], middleware=[hook(after_tool=after_tool)])
    async with place.process() as process, process.session("s", agent) as handle:
        await handle.send("Please.", submission="m-1")
        await reviewing.wait()
        async with place.process() as other:
            last = (await other.sessions.entries("s"))[-1]
            assert isinstance(last, OperationEnded)
            assert (last.operation, last.status) == ("t2.0.1", "succeeded")
        process.faulty.kill()
    async with place.process() as process:
        await process.recover([agent])
        assert (await transcript(process))[2] == ("tool", ("call-1", "seen", False))
        await sound(process)
    assert seen == ["paid A-1", "paid A-1"]
    assert ran == ["pay A-1 500"]


@pytest.mark.spec("S2-194")
async def test_a_hook_that_fails_on_results_fails_the_turn_and_leaves_every_result_known(place: Place) -> None:
    def after_tool(ctx: HookContext, call: ApprovalCall, response: ToolCallResponse) -> None:
        ctx.guide("unheard", once="k")
        ctx.state["x"] = 1
        raise ValueError("can't read this")

    model, _ = counting(asks(PAY, LOOK))
    agent = Agent("a", model=model, tools=[pay, look], middleware=[hook(after_tool=after_tool)])
    async with place.process() as process:
        result = await process.run(agent, "Please.", session="s", submission="m-1")
        assert (result.status, result.failure and result.failure.code) == ("failed", "hook_failed")
        assert (await transcript(process))[2] == ("tool", ("call-1", "paid A-1", False), ("call-2", "nothing at here", False))
        checkpoint = await process.sessions.checkpoint("s")
        assert (checkpoint.once, checkpoint.extensions) == ((), {})
        assert await process.sessions.uncertain("s") == []
        await sound(process)


async def test_a_hook_that_hangs_on_calls_can_be_interrupted_and_nothing_runs(place: Place) -> None:
    hanging = asyncio.Event()

    async def before_tool(ctx: HookContext, call: ApprovalCall) -> None:
        hanging.set()
        await asyncio.Event().wait()

    model, _ = counting(asks(PAY))
    agent = Agent("a", model=model, tools=[pay], middleware=[hook(before_tool=before_tool)])
    async with place.process() as process, process.session("s", agent) as handle:
        await handle.send("Please.", submission="m-1")
        await hanging.wait()
        await handle.interrupt(reason="stop that", submission="i-1")
        (*_, ended) = await until(handle, TurnEnded, after=0)
        assert (ended.kind, ended.reason, ended.interrupt) == ("turn_aborted", "stop that", "i-1")
        assert (await transcript(process))[2] == ("tool", ("call-1", "not executed", True))
        await sound(process)
    assert ran == []


# ------------------------------------------------------------------------------------------------------------ work outside


def charging(done: list[str], *, effect: Any = "external", fail: bool = False) -> Middleware:
    async def charge(cents: int) -> dict[str, int]:
        done.append(f"charge {cents}")
        if fail:
            raise OSError("the line is dead")
        return {"charged": cents}

    async def before_tool(ctx: HookContext, call: ApprovalCall) -> Deny | None:
        try:
            answer = await ctx.effect("charge", charge, 5, effect=effect)
        except EffectUncertain as error:
            return Deny(f"unknown: {error.message}")
        except EffectFailed as error:
            return Deny(f"failed: {error.message}")
        return None if answer == {"charged": 5} else Deny("what?")

    return hook("till", before_tool=before_tool)


async def test_what_a_hook_does_outside_has_its_intent_before_and_its_receipt_after(place: Place) -> None:
    done: list[str] = []
    model, _ = counting(asks(PAY), Reply("Done."))
    agent = Agent("a", model=model, tools=[pay], middleware=[charging(done)])
    async with place.process() as process:
        assert (await process.run(agent, "Please.", session="s", submission="m-1")).ok
        steps = [entry for entry in await process.sessions.entries("s") if "/" in getattr(entry, "operation", "")]
        assert [(entry.kind, entry.operation) for entry in steps] == [  # type: ignore[attr-defined]
            ("operation_started", "t2.0.1/till.before_tool.charge"),
            ("operation_ended", "t2.0.1/till.before_tool.charge"),
        ]
        assert isinstance(steps[0], OperationStarted)
        assert steps[0].plan is not None
        assert (steps[0].plan.kind, steps[0].plan.effect) == ("step", "external")
        await sound(process)
    assert done == ["charge 5"]
    assert ran == ["pay A-1 500"]


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("effect", ["external", "idempotent"])
async def test_a_crash_around_its_receipt_never_does_it_twice_unless_that_is_safe(memory: Place, effect: Any, when: Any) -> None:
    """``before``: the receipt is lost; ``after``: it is durable, and nobody heard."""
    done: list[str] = []
    model, _ = counting(asks(PAY), Reply("Done."))
    agent = Agent("a", model=model, tools=[pay], middleware=[charging(done, effect=effect)])
    async with memory.process() as process:

        async def gate(call: Call, moment: str) -> None:
            is_receipt = call.kind == "commit" and any(
                b"charge" in entry.body and entry.kind == "operation_ended" for entry in call.given.entries
            )
            if is_receipt and moment == when:
                process.faulty.kill()

        process.faulty.gate = gate
        async with process.session("s", agent) as handle:
            await handle.send("Please.", submission="m-1")
            await eventually(lambda: process.faulty.dead)
    async with memory.process() as process:
        await process.recover([agent])
        history = await transcript(process)
        await sound(process)
    if when == "after":
        assert (done, ran) == (["charge 5"], ["pay A-1 500"])
    elif effect == "idempotent":
        assert (done, ran) == (["charge 5", "charge 5"], ["pay A-1 500"])
    else:
        assert (done, ran) == (["charge 5"], [])
        assert history[2][1][1].startswith("not executed: till denies it: unknown: nobody knows what became of till.before_tool.charge")


async def test_what_failed_outside_fails_again_without_being_done_again(memory: Place) -> None:
    done: list[str] = []
    model, _ = counting(asks(PAY), Reply("Done."))
    agent = Agent("a", model=model, tools=[pay], middleware=[charging(done, effect="idempotent", fail=True)])
    async with memory.process() as process:
        await process.run(agent, "Please.", session="s", submission="m-1")
        assert (await transcript(process))[2][1][1].startswith(
            "not executed: till denies it: failed: till.before_tool.charge failed: OSError: the line"
        )
        await sound(process)
    assert done == ["charge 5"]


async def test_an_external_effect_that_raises_is_uncertain_and_one_that_is_interrupted_too(memory: Place) -> None:
    done: list[str] = []
    model, _ = counting(asks(PAY), Reply("Done."))
    async with memory.process() as process:
        agent = Agent("a", model=model, tools=[pay], middleware=[charging(done, fail=True)])
        await process.run(agent, "Please.", session="s", submission="m-1")
        assert "unknown: nobody knows" in (await transcript(process))[2][1][1]

        begun = asyncio.Event()

        async def forever() -> None:
            begun.set()
            await asyncio.Event().wait()

        async def before_model(ctx: HookContext) -> None:
            await ctx.effect("wait", forever)

        agent = Agent("a", model=model, tools=[pay], middleware=[hook("waiter", before_model=before_model)])
        async with process.session("t", agent) as handle:
            await handle.send("Please.", submission="m-1")
            await begun.wait()
            await handle.interrupt()
            await until(handle, TurnEnded, after=0)
        ended = [entry for entry in await process.sessions.entries("t") if isinstance(entry, OperationEnded)]
        assert [(entry.operation, entry.status) for entry in ended] == [("t2.0/waiter.before_model.wait", "uncertain")]
        await sound(process, "t")
