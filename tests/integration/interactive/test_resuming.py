"""On which route a session goes on, and what whoever wants to go on with it is told."""

from __future__ import annotations

from typing import Any

import pytest

import perdure
from perdure import Agent, ApprovalRequested, Entry, FunctionModel, Identity, Reply, ResumeRequested, Router, RouteSelected, ToolCall, tool
from perdure.core.messages import Private
from perdure.testing import find_problems

from .acting import Past, Place, counting, drain, lived, restarted, told, until

WHOSE = Identity(owner="test-bot", tenant="acme", user="ann", workspace="the project", origin="terminal")


class Thinker(FunctionModel):
    """A model that thinks privately and remembers which private parts it was sent."""

    def __init__(self, name: str, group: str | None = None) -> None:
        super().__init__(self._answer, name=name, group=group)
        self.sent: list[list[str]] = []

    def _answer(self, request: perdure.ModelRequest) -> Reply:
        self.sent.append([part.data for message in request.messages for part in message.parts if isinstance(part, Private)])
        return Reply(f"{self.name} answers", private=self.name)


def helper(**models: Thinker) -> Agent:
    return Agent("helper", model=Router(models))


def routes(entries: list[Any]) -> list[str]:
    return [entry.route for entry in entries if isinstance(entry, RouteSelected)]


# ------------------------------------------------------------------------------------------------------------------- routes


def without_a_route(past: Past) -> None:
    past.accept("m-1", route="")
    past.ask_model()


def finished_without_a_route(past: Past) -> None:
    from perdure.core.reports import Finish

    without_a_route(past)
    past.answered("so")
    past.batch.apply(Finish(at=past.now))


@pytest.mark.spec("S2-145")
@pytest.mark.parametrize("story", [without_a_route, finished_without_a_route])
async def test_rs_13_a_stored_session_without_a_route_is_refused_in_these_words_until_one_is_given(place: Place, story: Any) -> None:
    model, asked = counting(Reply("done"))
    agent = Agent("helper", model=model)
    await lived(place, agent, story, ("m-1", "go", "turn"), ("m-2", "more", "queue"))
    async with place.process() as process:
        before = await process.everything()
        with pytest.raises(perdure.MissingRoute) as refused:
            await process.recover([agent], session="s")
        assert refused.value.message == "saved session has no model route"
        async with process.session("s", agent) as handle:
            with pytest.raises(perdure.MissingRoute):
                await handle.send("not without a route")
            with pytest.raises(perdure.MissingRoute):
                await drain(handle, [])
        after = await process.everything()
        # That its holder died is all that may have been noted.
        assert after[1:] == before[1:]
        assert not asked
        result = await process.run(agent, "and more", session="s", submission="m-3", route="function")
        assert result.output == "done"
        assert routes(await process.sessions.entries("s")) == ["function"]
        assert await find_problems(process.store, "s") == []


@pytest.mark.spec("S2-147", "S2-148")
async def test_rs_15_a_route_that_is_given_replaces_a_saved_one_that_is_still_registered_and_owns_nothing_yet(place: Place) -> None:
    async with place.process() as process:
        await process.run(helper(a=Thinker("a"), b=Thinker("b")), "one", session="s")
        saved = await process.sessions.checkpoint("s")
        assert (saved.route, saved.owner) == ("a", "a")
    b = Thinker("b")
    agent = helper(a=Thinker("a"), b=b)
    async with place.process() as process:
        async with process.session("s", agent, route="b") as handle:
            opened: Any = await anext(handle.events())
            assert opened.route == "b"
            # Nothing is written for somebody who only looks.
            assert await process.sessions.checkpoint("s") == saved
            sent = await handle.send("two")
            seen = await until(handle)
        selected = next(index for index, event in enumerate(seen) if isinstance(event, RouteSelected))
        assert told(seen[selected + 1]).startswith("turn_started")
        # In the commit that takes the session up, before anything is sent to the new route.
        commits = [call for call in process.faulty.calls if call.kind == "commit"]
        assert [entry.kind for entry in commits[0].given.entries][:2] == ["route_selected", "turn_started"]
        at_selection = checkpoint_at(await process.sessions.entries("s"), seen[selected].seq)
        assert (at_selection.route, at_selection.owner) == ("b", "a")
        assert (await process.sessions.checkpoint("s")).route == "b"
        assert sent.id
        # Once: what is selected later stays selected.
        await process.sessions.select_route("s", "a")
        await process.run(agent, "three", session="s")
        assert (await process.sessions.checkpoint("s")).route == "a"
        assert await find_problems(process.store, "s") == []
    assert len(b.sent) == 1


def checkpoint_at(entries: list[Any], seq: int) -> Any:
    from perdure.core.evolve import fold

    return fold(entry for entry in entries if entry.seq <= seq)


async def test_a_route_that_is_given_replaces_one_that_is_unknown_here_and_a_new_session_begins_with_it(place: Place) -> None:
    async with place.process() as process:
        await process.run(
            helper(gone=Thinker("gone")).replace(model=Router({"gone": Thinker("gone"), "b": Thinker("b")})), "one", session="s"
        )
    agent = helper(a=Thinker("a"), b=Thinker("b"))
    async with place.process() as process:
        with pytest.raises(perdure.UnknownRoute):
            await process.run(agent, "two", session="s", submission="m-2")
        with pytest.raises(perdure.UnknownRoute):
            await process.run(agent, "two", session="s", submission="m-2", route="nowhere")
        with pytest.raises(perdure.UnknownRoute):
            async with process.session("s", agent, route="nowhere"):
                pass
        with pytest.raises(perdure.UsageError):
            process.session("s", route="b")
        assert (await process.run(agent, "two", session="s", submission="m-2", route="b")).output == "b answers"
        assert (await process.run(agent, "one", session="new", route="b")).output == "b answers"
        assert routes(await process.sessions.entries("new")) == []
        assert (await process.sessions.checkpoint("new")).route == "b"


async def test_rs_15_a_turn_that_was_cut_off_goes_on_on_the_route_that_is_given(place: Place) -> None:
    def step_open(past: Past) -> None:
        past.accept("m-1", route="a")
        past.ask_model()

    model, asked = counting(Reply("unreachable"))
    await lived(place, Agent("helper", model=model), step_open, ("m-1", "go", "turn"))
    a, b = Thinker("a"), Thinker("b")
    agent = helper(a=a, b=b).replace(on_change="any")
    async with place.process() as process:
        async with process.session("s", agent, route="b") as handle:
            seen = await until(handle)
        assert [told(event) for event in seen if isinstance(event, Entry)] == [
            *["definition_changed", "ended t2.0.0#1 uncertain open", "recovered t2", "route_selected", "ended t2.0.0#0 cancelled"],
            *["started t2.0.1#1", "ended t2.0.1#1 succeeded", "message assistant", "turn_completed t2"],
        ]
        assert await find_problems(process.store, "s") == []
    assert (asked, len(a.sent), len(b.sent)) == ([], 0, 1)


@pytest.mark.spec("S2-064", "S2-078")
async def test_the_newest_entry_after_a_route_change_is_that_change_under_its_submission(place: Place) -> None:
    agent = helper(a=Thinker("a"), b=Thinker("b"))
    async with place.process() as process, process.session("s", agent) as handle:
        await handle.send("one")
        await until(handle)
        events = handle.events(after=(await process.row()).version)
        sent = await handle.select_route("b", submission="select-1", actor="ann")
        newest: Any = (await process.sessions.entries("s"))[-1]
        assert isinstance(newest, RouteSelected)
        assert (newest.route, newest.submission, newest.actor) == ("b", "select-1", "ann")
        assert sent.id == "select-1"
        while not isinstance(event := await anext(events), RouteSelected):
            pass
        assert event == newest
        target = await handle.request_resume("s", submission="resume-1")
        while not isinstance(event := await anext(events), ResumeRequested):
            pass
        assert (event, event.submission) == (target, "resume-1")


@pytest.mark.spec("S2-165")
async def test_who_shares_private_reasoning_depends_on_the_models_group_and_never_on_a_routes_name(place: Place) -> None:
    first, renamed = Thinker("m", "g"), Thinker("m", "g")
    async with place.process() as process:
        await process.run(helper(fast=first), "one", session="s")
        # The same name for another model's route shares nothing; another name for the same model everything.
        stranger = Thinker("m", "other")
        await process.run(helper(fast=stranger, spare=Thinker("x")), "two", session="s")
        assert stranger.sent == [[]]
        await process.run(helper(fast=Thinker("m", "other"), display=renamed), "three", session="s", route="display")
        assert renamed.sent == [[]]
    async with place.process() as process:
        # What was accepted from the other group owns the context; it comes back to whatever is of that group.
        sibling = Thinker("m", "g")
        both = Router({"display": renamed, "deep": sibling})
        await process.run(Agent("helper", model=both), "four", session="s", route="deep")
        assert sibling.sent == [["m"]]


@pytest.mark.spec("S2-165")
async def test_a_route_that_was_removed_shares_its_private_reasoning_with_nobody_not_even_with_itself_again(place: Place) -> None:
    async with place.process() as process:
        await process.run(helper(a=Thinker("a", "g"), b=Thinker("b", "g")), "one", session="s")
        sibling = Thinker("b", "g")
        agent = helper(b=sibling, c=Thinker("c"))
        await process.run(agent, "two", session="s", route="b")
        assert sibling.sent == [[]]
        checkpoint = await process.sessions.checkpoint("s")
        assert (checkpoint.owner, checkpoint.epoch) == ("b", 1)
        back = Thinker("a", "g")
        await process.run(helper(a=back, b=sibling), "three", session="s", route="a")
        assert back.sent == [["b"]]
        assert await find_problems(process.store, "s") == []


# ----------------------------------------------------------------------------------------------------------- resume requests


@tool
async def pay(cents: int) -> str:
    """Pay."""
    return "paid"


@pytest.mark.spec("S2-141", "S2-142")
async def test_11_12_a_resume_request_is_answered_with_the_targets_own_identity_whatever_its_route_is(place: Place) -> None:
    model, _ = counting(Reply(tool_calls=[ToolCall("pay", {"cents": 5})]), Reply("done"))
    elsewhere = Agent("payer", model=Router({"somewhere-else": model}), tools=[pay], approve=["pay"])
    async with place.process() as process, process.session("target", elsewhere, identity=WHOSE, metadata={"ticket": 42}) as handle:
        await handle.send("pay 5")
        await until(handle, ApprovalRequested)
    agent = helper(a=Thinker("a"))
    async with place.process() as process, process.session("current", agent, identity=Identity(owner="somebody-else")) as handle:
        await handle.send("hello")
        await until(handle)
        before, there = await process.everything("current"), await process.everything("target")
        async with process.session("current") as watcher, process.session("current", agent) as mine:
            answered = await handle.request_resume("target", submission="r-1")
            assert answered == ResumeRequested(
                session_id="target",
                identity=WHOSE,
                metadata={"ticket": 42},
                agent="payer",
                route="somewhere-else",
                status="waiting",
                submission="r-1",
            )
            for watching in (mine, watcher):
                events = watching.events()
                while not isinstance(event := await anext(events), ResumeRequested):
                    pass
                assert event == answered
        # It answers, and switches nothing: neither session knows of it.
        assert await process.everything("current") == before
        assert await process.everything("target") == there


@pytest.mark.spec("S2-143")
@pytest.mark.parametrize(("target", "error"), [("", perdure.UsageError), ("\n", perdure.UsageError), ("nowhere", perdure.SessionNotFound)])
async def test_a_resume_request_for_a_blank_or_unknown_session_is_refused_and_nothing_happens(
    place: Place, target: str, error: type[Exception]
) -> None:
    agent = helper(a=Thinker("a"))
    async with place.process() as process, process.session("s", agent, owner="ann") as handle:
        await handle.send("hello")
        await until(handle)
        await process.sessions.send("t", "hello", identity=Identity(owner="eve"))
        before = await process.everything()
        events = handle.events(after=before[0].version)
        with pytest.raises(error):
            await handle.request_resume(target)
        with pytest.raises(perdure.SessionNotFound):
            await handle.request_resume("t")
        assert await process.everything() == before
        # The session goes on, and its watchers were told nothing.
        await handle.send("more")
        kinds = [told(await anext(events)) for _ in range(2)]
        assert kinds == ["opened", f"turn_started t{before[0].version + 1}"]


async def test_an_unchanged_route_writes_nothing(place: Place) -> None:
    agent = helper(a=Thinker("a"), b=Thinker("b"))
    async with place.process() as process:
        await process.run(agent, "one", session="s", route="a")
        await process.run(agent, "two", session="s", route="a")
        assert routes(await process.sessions.entries("s")) == []
        assert [told(event) for event in await restarted(process, agent)] == ["opened"]
