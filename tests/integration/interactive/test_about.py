"""What a session says about itself: whose it is stays for ever, its metadata until somebody replaces it, and nobody else sees it."""

from __future__ import annotations

import inspect
import io
from typing import Any

import pytest

import perdure
from perdure import (
    Agent,
    FunctionModel,
    HookContext,
    Identity,
    Middleware,
    Reply,
    ResumeRequested,
    SessionChanged,
    SessionNotFound,
    SessionOpened,
    ToolCall,
    ToolContext,
    tool,
)
from perdure.core.phase import phase
from perdure.runtime import tokens
from perdure.runtime.about import METADATA_INLINE, METADATA_KEY_LIMIT, METADATA_KEYS, METADATA_LIMIT
from perdure.runtime.sessions import Sessions
from perdure.testing import find_problems

from .acting import Place, counting, eventually, until

NOTES = {"ticket": 42, "tags": ["vip", None], "nested": {"a": 1.5}}
LONG = {"long": "x" * METADATA_INLINE, "short": 1}


def reader(read: list[Any]) -> Agent:
    """An agent whose tool reads the metadata, and tries to change it, once a turn."""

    @tool(effect="pure")
    async def look(ctx: ToolContext) -> str:
        """Look."""
        read.append({**ctx.metadata})
        ctx.metadata["mine"] = "gone with the call"
        return "seen"

    def answer(request: Any) -> Reply:
        return Reply("done") if request.step else Reply(tool_calls=[ToolCall("look", {})])

    return Agent("reader", model=FunctionModel(answer), tools=[look])


@pytest.mark.spec("S2-138")
@pytest.mark.parametrize("notes", [NOTES, LONG], ids=["short", "long"])
async def test_metadata_stays_when_whoever_resumes_gives_none(place: Place, notes: dict[str, Any]) -> None:
    read: list[Any] = []
    async with place.process() as process:
        await process.run(reader(read), "one", session="s", metadata=notes)
    async with place.process() as process:
        await process.run(reader(read), "two", session="s")
        async with process.session("s", reader(read)) as handle:
            await handle.send("three")
            seen = await until(handle)
        await process.sessions.send("s", "four", submission="m-4")
        await process.recover([reader(read)])
        assert (await process.sessions.info("s")).metadata == notes
        assert [info.metadata for info in await process.sessions.list()] == [notes]
        assert await process.sessions.entries("s", kinds=["session_changed"]) == []
        assert await find_problems(process.store, "s") == []
    assert isinstance(seen[0], SessionOpened)
    assert seen[0].metadata == notes
    assert read == [notes] * 4


@pytest.mark.spec("S2-139", "D-006")
@pytest.mark.parametrize(("old", "new"), [(NOTES, {"b": 2}), (LONG, NOTES), (NOTES, LONG), (NOTES, {}), ({}, NOTES)])
async def test_metadata_that_is_given_replaces_the_whole_map_and_is_durable(place: Place, old: dict[str, Any], new: dict[str, Any]) -> None:
    read: list[Any] = []
    async with place.process() as process:
        await process.run(reader(read), "one", session="s", metadata=old)
    async with place.process() as process, process.session("s", reader(read), metadata=new) as handle:
        opened = await anext(handle.events())
        assert isinstance(opened, SessionOpened)
        assert opened.metadata == new
        (changed,) = await process.sessions.entries("s", kinds=["session_changed"])
        assert isinstance(changed, SessionChanged)
        assert (changed.title, changed.labels) == (None, None)
    async with place.process() as process:
        assert (await process.sessions.info("s")).metadata == new
        # The same again is no change.
        await process.run(reader(read), "two", session="s", metadata=new)
        assert len(await process.sessions.entries("s", kinds=["session_changed"])) == 1
        assert await find_problems(process.store, "s") == []
    assert read == [old, new]


async def test_a_handle_gives_its_metadata_once_and_what_was_described_since_then_stays(place: Place) -> None:
    agent, _ = Agent("helper", model=counting(Reply("done"))[0]), None
    async with place.process() as process, process.session("s", agent, metadata={"a": 1}) as handle:
        await handle.send("one")
        await until(handle)
        assert (await process.sessions.info("s")).metadata == {"a": 1}
        await process.sessions.describe("s", metadata={"b": 2}, actor="ann")
        await handle.send("two")
        await until(handle)
        assert (await process.sessions.info("s")).metadata == {"b": 2}


async def test_a_session_that_somebody_else_created_first_gets_the_metadata_that_was_given(place: Place) -> None:
    async with place.process() as process, process.session("s", metadata={"a": 1}) as handle:
        await process.sessions.send("s", "first", metadata={"b": 2})
        await handle.send("second")
        assert (await process.sessions.info("s")).metadata == {"a": 1}


@pytest.mark.spec("B-B-084", "E-013")
async def test_title_labels_and_metadata_change_one_by_one_with_whoever_did_it(place: Place) -> None:
    async with place.process() as process:
        await process.sessions.send("s", "hello", labels={"team": "blue"}, title="First", metadata=NOTES, actor="ann")
        sent = await process.sessions.describe("s", title="Second", actor="bob", submission="d-1")
        again = await process.sessions.describe("s", title="Second", actor="bob", submission="d-1")
        assert (sent.duplicate, again.duplicate) == (False, True)
        with pytest.raises(perdure.SubmissionConflict):
            await process.sessions.describe("s", title="Third", submission="d-1")
        info = await process.sessions.info("s")
        assert (info.title, info.labels, info.metadata) == ("Second", {"team": "blue"}, NOTES)
        await process.sessions.describe("s", labels={})
        assert (await process.sessions.info("s")).metadata == NOTES
        await process.sessions.describe("s", metadata={})
        changes: list[Any] = await process.sessions.entries("s", kinds=["session_changed"])
        assert [(change.title, change.labels, change.metadata and change.metadata.values) for change in changes] == [
            ("Second", None, None),
            (None, {}, None),
            (None, None, {}),
        ]
        assert (changes[0].actor, changes[0].submission) == ("bob", "d-1")
        info = await process.sessions.info("s")
        assert (info.title, info.labels, info.metadata) == ("Second", {}, {})
        row = await process.row()
        assert (row.title, row.labels, row.status) == ("Second", {}, "queued")
        # None of this is a turn, or has anything to do with one.
        assert [entry.kind for entry in await process.sessions.entries("s")] == ["session_created", *["session_changed"] * 3]
        assert (await process.sessions.checkpoint("s")).turns == 0
        with pytest.raises(perdure.UsageError):
            await process.sessions.describe("s")
        with pytest.raises(SessionNotFound):
            await process.sessions.describe("nowhere", title="x")
        assert await find_problems(process.store, "s") == []


@pytest.mark.hazard("J-13")
async def test_what_is_described_while_a_turn_runs_reaches_the_catalogue_and_the_next_call(place: Place) -> None:
    read: list[Any] = []
    began, go_on = [], []

    @tool(effect="pure", exclusive=True)
    async def look(ctx: ToolContext) -> str:
        """Look."""
        read.append({**ctx.metadata})
        began.append(1)
        await eventually(lambda: go_on)
        return "seen"

    def answer(request: Any) -> Reply:
        return Reply("done") if request.step else Reply(tool_calls=[ToolCall("look", {}), ToolCall("look", {})])

    agent = Agent("reader", model=FunctionModel(answer), tools=[look])
    async with place.process() as process, process.session("s", agent, metadata={"a": 1}) as handle:
        await handle.send("go")
        await eventually(lambda: began)
        await process.sessions.describe("s", metadata=LONG, title="Running")

        async def listed() -> bool:
            return (await process.sessions.info("s")).title == "Running"

        await eventually(listed)
        assert (await process.row()).status == "running"
        go_on.append(1)
        await until(handle)
        assert await find_problems(process.store, "s") == []
    assert read == [{"a": 1}, LONG]


@pytest.mark.spec("B-A-106")
@pytest.mark.parametrize(
    ("notes", "limit"),
    [
        ({"a": "x" * METADATA_LIMIT}, "metadata"),
        ({str(number): 1 for number in range(METADATA_KEYS + 1)}, "metadata_keys"),
        ({"x" * (METADATA_KEY_LIMIT + 1): 1}, "metadata_key"),
        ({" ": 1}, "metadata_key"),
    ],
)
async def test_metadata_beyond_a_limit_is_refused_by_its_name_with_nothing_touched(place: Place, notes: Any, limit: str) -> None:
    async with place.process() as process:
        with pytest.raises(perdure.LimitExceeded) as refused:
            await process.sessions.send("new", "hello", metadata=notes)
        assert refused.value.facts["limit"] == limit
        assert await process.store.load("new") is None
        await process.sessions.send("s", "hello", metadata={"a": 1})
        before = await process.everything()
        with pytest.raises(perdure.LimitExceeded):
            await process.sessions.describe("s", metadata=notes)
        assert await process.everything() == before
        for wrong in ({1: 2}, {"a": object()}, {"a": float("nan")}, ["a"], "a"):
            with pytest.raises(perdure.UsageError):
                await process.sessions.describe("s", metadata=wrong)  # type: ignore[arg-type]
        assert await process.everything() == before


async def test_the_checkpoint_stays_small_however_long_the_metadata_is(place: Place) -> None:
    async with place.process() as process:
        notes = {"a": "x" * (METADATA_LIMIT - 100)}
        await process.sessions.send("s", "hello", metadata=notes)
        assert len((await process.row()).checkpoint) < 4 * 1024
        assert (await process.sessions.info("s")).metadata == notes


async def test_labels_and_identity_that_are_too_long_together_are_refused_and_leave_no_trace(place: Place) -> None:
    async with place.process() as process:
        await process.sessions.send("s", "hello", identity=Identity(owner="x" * 4000))
        before = await process.sessions.entries("s")
        with pytest.raises(perdure.LimitExceeded) as raised:
            await process.sessions.describe("s", labels={str(number): "y" * 900 for number in range(6)})
        assert raised.value.facts["limit"] == "about"
        assert await process.sessions.entries("s") == before
        assert (await process.sessions.info("s")).labels == {}


# ------------------------------------------------------------------------------------------------------------------ identity


@pytest.mark.spec("S2-060")
async def test_a_blank_owner_is_refused_wherever_one_can_be_given(place: Place) -> None:
    agent = Agent("helper", model=counting(Reply("done"))[0])
    async with place.process() as process:
        for blank in ("", "  ", "\n"):
            for identity in (Identity(owner=blank), Identity(owner=blank, user="ann")):
                with pytest.raises(perdure.UsageError):
                    await process.sessions.send("s", "hello", identity=identity)
                with pytest.raises(perdure.UsageError):
                    await process.run(agent, "hello", session="s", identity=identity)
            with pytest.raises(perdure.UsageError):
                await process.run(agent, "hello", session="s", owner=blank)
            with pytest.raises(perdure.UsageError):
                process.session("s", agent, owner=blank)
            with pytest.raises(perdure.UsageError):
                await process.sessions.list(owner=blank)
            with pytest.raises(perdure.UsageError):
                process.sessions.owned_by(blank)
        assert await process.store.load("s") is None


WHOSE = Identity(owner="test-bot", tenant="acme", user="ann", workspace="the project", origin="terminal")


@pytest.mark.spec("S2-137")
async def test_every_view_of_a_resumed_session_reports_the_identity_of_its_creation(place: Place) -> None:
    agent = Agent("helper", model=counting(Reply("done"))[0])
    other = Identity(owner="somebody-else", tenant="other", user="eve")
    async with place.process() as process, process.session("s", agent, identity=WHOSE) as handle:
        opened: Any = await anext(handle.events())
        assert (opened.created, opened.identity) == (True, WHOSE)
        await handle.send("hello")
        await until(handle)
    async with place.process() as process:
        async with process.session("s", agent, identity=other) as handle:
            opened = await anext(handle.events())
            assert (opened.created, opened.identity) == (False, WHOSE)
        await process.run(agent, "more", session="s", identity=other)
        assert (await process.sessions.info("s")).identity == WHOSE
        assert [info.identity for info in await process.sessions.list(owner="test-bot")] == [WHOSE]


ARGUMENTS: dict[str, Any] = {
    "content": "hello",
    "step": "t2.0",
    "request_id": "0" * 16,
    "decision": "deny",
    "route": "a",
    "title": "x",
    "extension": "x",
    "command": "x",
    "message": "m-1",
    "text": "x",
    "grant": "g",
    "operation": "t2.0.1",
    "attempt": 1,
    "result": 1,
    "is_error": False,
    "submission": "m-9",
    "metadata": {"a": 1},
    "at": 1,
    "revision": "0" * 64,
    "old": "0" * 64,
    "expected": "0" * 64,
    "span": (0, 1),
    "replacement": (),
    "target": io.BytesIO(),
    "media": perdure.file(b"mine"),
    "blob": perdure.file(b"mine").blob,
    "messages": [{"role": "user", "content": "hello"}],
    "source": "openai",
    "agent": perdure.Agent("a", model=perdure.ScriptedModel([])),
    "name": "x",
    "tools": perdure.ToolPolicy(),
}


def names_a_session(signature: inspect.Signature) -> bool:
    named = [*signature.parameters.values()][1:2]
    return [item.name for item in named if item.default is item.empty] in (["session_id"], ["session"])


def verbs() -> list[str]:
    return [
        name
        for name, verb in inspect.getmembers(Sessions, inspect.iscoroutinefunction)
        if not name.startswith("_") and names_a_session(inspect.signature(verb))
    ]


@pytest.mark.parametrize("verb", verbs())
async def test_to_another_owner_a_session_is_not_there_and_nothing_of_it_is_touched(memory: Place, verb: str) -> None:
    async with memory.process() as process:
        await process.sessions.send("s", "secret", submission="m-1", identity=WHOSE)
        await process.sessions.send("t", "mine", submission="m-1", identity=Identity(owner="eve"))
        before = await process.everything()
        theirs = process.sessions.owned_by("eve")
        signature = inspect.signature(getattr(Sessions, verb))
        given = {
            name: ARGUMENTS[name]
            for name, parameter in signature.parameters.items()
            if name in ARGUMENTS and (parameter.default is parameter.empty or name in ("title", "expected"))
        }
        with pytest.raises(SessionNotFound) as wrong:
            await getattr(theirs, verb)("s", **given)
        with pytest.raises(SessionNotFound) as absent:
            await theirs.info("nowhere")
        # Not a hint that it exists.
        assert str(wrong.value).replace("'s'", "'nowhere'") == str(absent.value)
        assert wrong.value.facts == absent.value.facts
        assert await process.everything() == before


async def test_a_conversation_is_not_imported_into_another_owners_session(place: Place) -> None:
    async with place.process() as process:
        await process.sessions.send("s", "secret", submission="m-1", identity=WHOSE)
        before = await process.everything()
        with pytest.raises(perdure.SessionNotFound, match="there is no session 's'"):
            await process.sessions.owned_by("eve").import_messages("s", [{"role": "user", "content": "mine"}], source="openai")
        assert await process.everything() == before
        assert await process.sessions.owned_by("eve").list() == []


async def test_a_handle_and_a_run_of_another_owner_find_no_session(place: Place) -> None:
    model, asked = counting(Reply("done"))
    agent = Agent("helper", model=model)
    async with place.process() as process:
        await process.run(agent, "hello", session="s", owner="ann")
        before = await process.everything()
        for call in (
            process.run(agent, "hello", session="s", owner="eve"),
            process.run(agent, "hello", session="s", submission="m-9", owner="eve"),
            anext(process.stream(agent, "hello", session="s", owner="eve")),
        ):
            with pytest.raises(SessionNotFound):
                await call
        with pytest.raises(SessionNotFound):
            async with process.session("s", agent, owner="eve"):
                pass
        assert await process.everything() == before
        assert (await process.run(agent, "more", session="s", owner="ann")).output == "done"
        async with process.session("s", agent, owner="ann") as handle:
            await handle.send("and more")
            await until(handle)
        assert [info.session_id for info in await process.sessions.owned_by("ann").list()] == ["s"]
        assert await process.sessions.owned_by("eve").list() == []
        assert await process.sessions.owned_by("eve").list(owner="ann") == []
        await process.sessions.owned_by("eve").send("u", "mine")
        assert (await process.sessions.info("u")).identity == Identity(owner="eve")
        with pytest.raises(perdure.UsageError):
            await process.sessions.owned_by("eve").send("v", "mine", identity=Identity(owner="ann"))
        with pytest.raises(perdure.UsageError):
            process.sessions.owned_by("eve").owned_by("ann")
    assert len(asked) == 3


async def test_a_run_of_another_owner_is_not_told_that_a_turn_is_unfinished(place: Place) -> None:
    agent = Agent("helper", model=counting(Reply("done"))[0])
    async with place.process() as process:
        await process.sessions.send("s", "hello", identity=Identity(owner="ann"))
        before = await process.everything()
        with pytest.raises(perdure.TurnUnfinished):
            await process.run(agent, "more", session="s", owner="ann")
        with pytest.raises(SessionNotFound):
            await process.run(agent, "more", session="s", owner="eve")
        with pytest.raises(SessionNotFound):
            await anext(process.stream(agent, "more", session="s", owner="eve"))
        assert await process.everything() == before


async def test_what_is_about_all_sessions_is_not_for_one_owner_and_a_token_opens_nobody_elses(place: Place) -> None:
    async with place.process() as process:
        await process.sessions.send("s", "secret", identity=WHOSE)
        before = await process.everything()
        theirs = process.sessions.owned_by("eve")
        with pytest.raises(perdure.UsageError, match="reads all sessions"):
            theirs.consumer("mails")
        with pytest.raises(perdure.UsageError, match="whose its sessions are"):
            await theirs.import_from(io.BytesIO())
        with pytest.raises(perdure.UsageError, match="all sessions"):
            await theirs.sweep(grace=0)
        with pytest.raises(SessionNotFound):
            await theirs.report(tokens.issue(process.store.secret, "s", "t2.0.1", 1), "paid")
        assert await process.everything() == before


@pytest.mark.parametrize("after", [None, 1])
async def test_a_session_that_appears_under_another_owner_stays_unseen_by_a_handle_that_waited_for_it(
    place: Place, after: int | None
) -> None:
    agent = Agent("helper", model=counting(Reply("secret"))[0])
    async with place.process() as process, process.session("s", owner="eve") as handle:
        events = handle.events(after=after)
        assert isinstance(await anext(events), SessionOpened)
        # It has looked for the session, and goes on with what it is told.
        await process.sessions.owned_by("eve").send("t", "mine")
        await handle.request_resume("t")
        assert isinstance(await anext(events), ResumeRequested)
        await process.run(agent, "hello", session="s", owner="ann")
        with pytest.raises(SessionNotFound):
            await anext(events)
        with pytest.raises(SessionNotFound):
            await handle.send("hello")
        assert [entry.kind for entry in await process.sessions.entries("s")].count("turn_started") == 1


@pytest.mark.spec("S2-144")
async def test_what_an_agent_may_do_comes_from_its_declaration_and_from_nothing_that_is_stored(place: Place) -> None:
    """Metadata, labels and a title are the only things that callers can store, and none of them is asked what may run."""
    ran: list[str] = []

    @tool
    async def pay(cents: int) -> str:
        """Pay."""
        ran.append("paid")
        return "paid"

    model, _ = counting(Reply(tool_calls=[ToolCall("pay", {"cents": 5})]), Reply("done"))
    agent = Agent("payer", model=model, tools=[pay], approve=["pay"])
    stored = {"approve": [], "policy": "allow", "on_restart": "continue", "grants": [{"name": "pay"}]}
    async with place.process() as process:
        async with process.session("s", agent, metadata=stored, labels={"approve": "none"}) as handle:
            await handle.send("pay 5")
            await until(handle, perdure.ApprovalRequested)
        assert not ran
        assert phase(await process.sessions.checkpoint("s")) == "waiting"


@pytest.mark.spec("S2-140")
@pytest.mark.parametrize("notes", [NOTES, LONG], ids=["short", "long"])
async def test_middleware_reads_the_metadata_that_holds_from_its_first_hook_on(place: Place, notes: dict[str, Any]) -> None:
    seen: list[tuple[str, Any]] = []

    class Reader(Middleware):
        name = "reader"

        async def session_start(self, ctx: HookContext) -> None:
            seen.append(("start", {**ctx.metadata}))
            ctx.metadata["mine"] = "gone with the hook"

        async def message_submit(self, ctx: HookContext, message: Any) -> None:
            seen.append(("submit", {**ctx.metadata}))

    agent = Agent("helper", model=counting(Reply("done"))[0], middleware=[Reader()])
    async with place.process() as process:
        await process.run(agent, "one", session="s", metadata={"a": 1})
    async with place.process() as process:
        await process.run(agent, "two", session="s")
    async with place.process() as process, process.session("s", agent, metadata=notes) as handle:
        await handle.send("three")
        await until(handle)
        assert await find_problems(process.store, "s") == []
    assert seen == [(hook, metadata) for metadata in ({"a": 1}, {"a": 1}, notes) for hook in ("start", "submit")]
