"""A session's own memory, in whatever goes wrong around it: found again, counted once, never in the way of a turn."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from perdure import (
    Agent,
    Compaction,
    ExtensionSet,
    FunctionModel,
    InvalidAgent,
    Limits,
    Middleware,
    ModelRequest,
    ModelSettings,
    OperationEnded,
    OperationStarted,
    ProviderRefused,
    ProviderUnavailable,
    Recovered,
    Reply,
    Router,
    SessionMemory,
    StoreBroken,
    ToolCall,
    UnknownRoute,
    Usage,
    tool,
)
from perdure.core import canonical
from perdure.core.memory import MEMORY
from perdure.runtime.memory_file import scope_of
from perdure.runtime.verify import verify
from perdure.testing import find_all_problems
from perdure.testing.faults import Fault, ProcessDied
from tests.integration.interactive.acting import Place, Process, eventually

from .seed import MARKER, SESSION, Seed, Stored

EAGER = SessionMemory(min_tokens=1, min_text_messages=1)


def facts(*contents: str, importance: int = 5) -> str:
    found = [{"category": "key_fact", "content": content, "importance": importance} for content in contents]
    return json.dumps(found, ensure_ascii=False)


class Talker:
    """A model whose answers and extractions a test writes, and what it was asked."""

    def __init__(self, answer: Any = "ok", memory: Any = "[]") -> None:
        self.answer, self.memory = answer, memory
        self.asked: list[ModelRequest] = []
        self.model = FunctionModel(self._play, name="talker")

    def _play(self, request: ModelRequest) -> Any:
        self.asked.append(request)
        said = {"answer": self.answer, "memory": self.memory}[request.purpose]
        said = said(request) if callable(said) else said
        if isinstance(said, Exception):
            raise said
        return Reply(said, usage=Usage(input_tokens=10, output_tokens=1)) if isinstance(said, str) else said

    def agent(self, memory: SessionMemory | None = EAGER, **options: Any) -> Agent:
        return Agent("a", model=self.model, memory=memory, **options)

    def purposes(self) -> list[str]:
        return [request.purpose for request in self.asked]


async def state(process: Process, session: str = "s") -> dict[str, Any]:
    """What a session keeps of its memory now."""
    rows = await process.sessions.entries(session)
    states = [entry.value for entry in rows if isinstance(entry, ExtensionSet) and entry.extension == MEMORY]
    return states[-1] if states else {}


async def remembered(process: Process, session: str = "s") -> list[str]:
    """The facts that a session remembers now."""
    return [fact["content"] for fact in (await state(process, session)).get("entries", [])]


async def sound(process: Process) -> None:
    assert await find_all_problems(process.store) == []
    assert [str(problem) async for problem in verify(process.store)] == []


# ------------------------------------------------------------------------------------------------------------------ the switch


@pytest.mark.spec("S0-226", "S0-228")
async def test_without_it_nothing_is_looked_for_shown_read_or_written(place: Place, workspace: Path) -> None:
    there = workspace / ".memory/session/s/session_memory.json"
    there.parent.mkdir(parents=True)
    there.write_text(json.dumps({"entries": [{"category": "key_fact", "content": "planted", "importance": 9, "source_cycle": 1}]}))
    talker = Talker()
    async with place.process() as process:
        for number in range(3):
            await process.run(talker.agent(None), "x" * 50_000, session="s", submission=f"m{number}")
        assert talker.purposes() == ["answer"] * 3
        assert all(MARKER not in request.instructions for request in talker.asked)
        assert "planted" in there.read_text()
        kinds = {entry.kind for entry in await process.sessions.entries("s")}
        assert "extension_set" not in kinds


@pytest.mark.spec("S0-227")
async def test_neither_metadata_nor_a_file_switches_it_on(place: Place) -> None:
    talker = Talker()
    metadata = {"session_memory_enabled": True, "session_memory_seed": ["x"], "session_memory_storage_dir": "."}
    async with place.process() as process:
        await process.run(talker.agent(None), "x" * 50_000, session="s", submission="m", metadata=metadata)
        assert talker.purposes() == ["answer"]


@pytest.mark.spec("S0-250")
async def test_a_file_is_never_believed_whatever_stands_in_it(place: Place, workspace: Path) -> None:
    there = workspace / ".memory/session/s/session_memory.json"
    there.parent.mkdir(parents=True)
    there.write_text('{"entries": [{"category": "key_fact", "content": "planted", "impor')
    talker = Talker(memory=facts("Learned"))
    async with place.process() as process:
        for number in range(2):
            await process.run(talker.agent(replace(EAGER, workspace=workspace)), "Hi.", session="s", submission=f"m{number}")
        assert "planted" not in talker.asked[-1].instructions
        assert [fact["content"] for fact in json.loads(there.read_text())["entries"]] == ["Learned"]


@pytest.mark.spec("S0-230")
@pytest.mark.parametrize(
    "options",
    [
        {"min_tokens": 0},
        {"min_tokens": True},
        {"min_text_messages": "5"},
        {"growth_ratio": float("nan")},
        {"growth_ratio": -1},
        {"max_tokens": 1.5},
        {"storage": "/etc"},
        {"storage": "a/../../b"},
        {"storage": ""},
        {"storage": "a\0b"},
        {"workspace": 7},
        {"route": " "},
        {"instructions": ""},
        {"instructions": "\ud800"},
        {"settings": {}},
    ],
)
def test_a_control_that_makes_no_sense_is_refused(options: Any) -> None:
    with pytest.raises(InvalidAgent):
        SessionMemory(**options)


@pytest.mark.parametrize("memory", [True, "session", object(), SessionMemory])
def test_what_is_no_memory_is_refused_and_its_name_is_taken(memory: Any) -> None:
    with pytest.raises(InvalidAgent):
        Agent("a", memory=memory)

    class Mine(Middleware):
        name = MEMORY

    with pytest.raises(InvalidAgent, match="is taken"):
        Agent("a", middleware=[Mine()])


# ----------------------------------------------------------------------------------------------------------------- when, and what


@pytest.mark.spec("S0-239", "S0-237")
async def test_the_next_extraction_waits_for_growth_and_sees_only_what_is_new(place: Place) -> None:
    talker = Talker(memory=facts("x"))
    memory = SessionMemory(min_tokens=100, min_text_messages=2, growth_ratio=2)
    assert memory.growth == 200
    async with place.process() as process:
        for number, size in enumerate((300, 40, 400, 400, 400)):
            text = f"<{number}>" + "y" * size
            await process.run(talker.agent(memory), text, session="s", submission=f"m{number}")
    # One message alone is not enough; then the second and, about 200 tokens later, the fourth turn look.
    assert talker.purposes() == ["answer", "memory", "answer", "answer", "memory", "answer", "answer"]
    first, second = [request.messages[0].text for request in talker.asked if request.purpose == "memory"]
    assert [f"<{number}>" in first for number in range(5)] == [True, True, False, False, False]
    assert [f"<{number}>" in second for number in range(5)] == [False, False, True, True, False]
    assert "Talk" not in second


async def test_results_of_tools_are_looked_through_in_a_long_turn_and_take_no_step(place: Place) -> None:
    @tool(effect="pure")
    def look(place: str) -> str:
        return f"<{place}>" + "z" * 1_000

    def answer(request: ModelRequest) -> Any:
        if request.step < 3:
            return Reply(tool_calls=[ToolCall(name="look", arguments={"place": f"p{request.step}"})], usage=Usage(input_tokens=1))
        return "done"

    talker = Talker(answer, memory=lambda request: facts(f"saw {len(talker.asked)}"))
    agent = talker.agent(SessionMemory(min_tokens=200, min_text_messages=1), tools=[look], limits=Limits(steps=4))
    async with place.process() as process:
        result = await process.run(agent, "Look around.", session="s", submission="m1")
        assert (result.status, result.steps) == ("completed", 4)
        assert talker.purposes() == ["answer", "memory", "answer", "memory", "answer", "memory", "answer"]
        assert all(request.instructions == "" for request in talker.asked)
        second = talker.asked[3].messages[0].text
        assert "<p1>" in second
        assert "<p0>" not in second
        await sound(process)


@pytest.mark.spec("S0-248", "S0-247")
async def test_what_a_turn_learns_is_told_to_the_next_one_in_the_order_of_the_categories(place: Place) -> None:
    found = [
        {"category": "key_fact", "content": "F"},
        {"category": "user_intent", "content": "W"},
        {"category": "file_change", "content": "C"},
    ]
    talker = Talker(memory=json.dumps(found))
    async with place.process() as process:
        agent = talker.agent(instructions="Be kind.")
        await process.run(agent, "one", session="s", submission="m1")
        await process.run(agent, "two", session="s", submission="m2")
        first, second = [request.instructions for request in talker.asked if request.purpose == "answer"]
        assert first == "Be kind."
        assert second.startswith(f"Be kind.\n\n{MARKER}\n")
        assert [line for line in second.splitlines() if line.startswith("- ")] == ["- W", "- C", "- F"]


async def test_a_request_names_the_entry_that_its_instructions_end_with(place: Place) -> None:
    talker = Talker(memory=facts("x"))
    async with place.process() as process:
        for number in range(2):
            await process.run(talker.agent(), "Hi.", session="s", submission=f"m{number}")
        entries = await process.sessions.entries("s")
        states = [entry.seq for entry in entries if isinstance(entry, ExtensionSet)]
        started = [entry for entry in entries if isinstance(entry, OperationStarted) and entry.request is not None]
        assert [(entry.plan.kind if entry.plan else "", entry.request.memory) for entry in started if entry.request] == [
            ("memory", 0),
            ("model", 0),
            ("memory", 0),
            ("model", states[0]),
        ]
        records = [entry.request for entry in started if entry.request is not None]
        assert len({record.digest for record in records}) == len(records)
        other = msgspec.structs.replace(records[-1], memory=states[0] + 1)
        assert other.with_digest().digest != records[-1].digest == records[-1].with_digest().digest
        root = (await process.row()).root
        blob = await process.store.blob(root, records[0].additions)
        assert blob is not None
        assert blob.data.decode() == EAGER.instructions


@pytest.mark.spec("S0-240")
async def test_the_least_important_is_forgotten_when_there_is_no_room(place: Place) -> None:
    def found(request: ModelRequest) -> str:
        turn = sum(asked.purpose == "memory" for asked in talker.asked)
        return facts(f"fact {turn} " + "x" * 60, importance=10 - turn)

    talker = Talker(memory=found)
    async with place.process() as process:
        for number in range(5):
            await process.run(talker.agent(replace(EAGER, max_tokens=75)), "Hi.", session="s", submission=f"m{number}")
        assert [text[:6] for text in await remembered(process)] == ["fact 1", "fact 2"]


async def test_an_extraction_has_settings_of_its_own_and_not_the_turns(place: Place) -> None:
    talker = Talker()
    settings = ModelSettings(temperature=1.0, max_output_tokens=5, extra={"seed": 1})
    memory = replace(EAGER, settings=ModelSettings(max_output_tokens=900))
    async with place.process() as process:
        await process.run(talker.agent(memory, settings=settings), "Hi.", session="s", submission="m")
        assert talker.asked[0].settings == memory.settings
        assert talker.asked[1].settings == settings


@pytest.mark.spec("S0-252")
async def test_another_route_is_asked_and_named_in_the_ledger(place: Place) -> None:
    main, small = Talker(), Talker(memory=facts("x"))
    router = Router({"main": main.model, "small": small.model})
    async with place.process() as process:
        agent = Agent("a", model=router, memory=replace(EAGER, route="small"))
        await process.run(agent, "Hi.", session="s", submission="m")
        assert (main.purposes(), small.purposes()) == (["answer"], ["memory"])
        assert [(call.kind, call.route) for call in await process.sessions.model_calls("s")] == [("memory", "small"), ("model", "main")]
        lost = Agent("a", model=router, memory=replace(EAGER, route="gone"))
        before = await process.everything()
        with pytest.raises(UnknownRoute):
            await process.run(lost, "Hi.", session="s", submission="m2")
        assert (await process.everything())[1] == before[1]


# ----------------------------------------------------------------------------------------------------------------- what goes wrong


@pytest.mark.spec("S0-243", "S0-244", "S0-241")
@pytest.mark.parametrize(
    ("output", "reason"), [("\n \n", "empty_output"), ("I found 3 secrets.", "json_array_missing"), ("[{}, 7]", "no_valid_entries")]
)
async def test_output_of_no_use_is_told_without_a_word_of_it_and_asked_for_once(place: Place, output: str, reason: str) -> None:
    talker = Talker(memory=output)
    memory = SessionMemory(min_tokens=1, min_text_messages=1, growth_ratio=1_000)
    async with place.process() as process:
        for number in range(3):
            assert (await process.run(talker.agent(memory), "Hi.", session="s", submission=f"m{number}")).ok
        assert talker.purposes() == ["memory", "answer", "answer", "answer"]
        (ended,) = [
            entry for entry in await process.sessions.entries("s") if isinstance(entry, OperationEnded) and entry.failure is not None
        ]
        assert (ended.status, ended.failure.code, ended.failure.message) == ("failed", "session_memory_output_invalid", reason)  # type: ignore[union-attr]
        assert (ended.parts, ended.partial) == ((), "")
        assert not output.strip() or output.encode() not in canonical.encode([str(entry) for entry in await process.sessions.entries("s")])
        calls = await process.sessions.model_calls("s")
        assert (calls[0].kind, calls[0].route, calls[0].error) == ("memory", "talker", "session_memory_output_invalid")
        assert calls[0].usage is not None
        await sound(process)


async def test_a_provider_that_refuses_is_passed_over_and_asked_again_once_more_was_said(place: Place) -> None:
    said: list[Any] = [ProviderRefused("not today"), facts("x")]
    talker = Talker(memory=lambda request: said.pop(0))
    memory = SessionMemory(min_tokens=20, min_text_messages=1, growth_ratio=5)
    async with place.process() as process:
        for number in range(4):
            assert (await process.run(talker.agent(memory), f"<{number}>" + "x" * 160, session="s", submission=f"m{number}")).ok
        assert talker.purposes() == ["memory", "answer", "answer", "memory", "answer", "answer"]
        # What the failed one should have seen is looked through by the next.
        assert "<0>" in talker.asked[3].messages[0].text
        assert await remembered(process) == ["x"]
        assert (await state(process))["extractions"] == 2


async def test_a_provider_that_is_busy_is_tried_again_and_every_attempt_is_in_the_ledger(place: Place, tmp_path: Path) -> None:
    auto = Place(place.kind, tmp_path / "auto.db", auto=True)
    said: list[Any] = [ProviderUnavailable("busy"), ProviderUnavailable("busy"), facts("x")]
    talker = Talker(memory=lambda request: said.pop(0))
    async with auto.process() as process:
        assert (await process.run(talker.agent(), "Hi.", session="s", submission="m")).ok
        calls = await process.sessions.model_calls("s")
        assert [(call.kind, call.attempt, call.status) for call in calls] == [
            ("memory", 1, "failed"),
            ("memory", 2, "failed"),
            ("memory", 3, "succeeded"),
            ("model", 1, "succeeded"),
        ]
        assert await remembered(process) == ["x"]


@pytest.mark.spec("S0-245", "S0-246")
async def test_tokens_that_an_extraction_takes_count_and_end_the_turn_before_its_model_is_called(place: Place) -> None:
    talker = Talker(memory=Reply(facts("x"), usage=Usage(input_tokens=90, output_tokens=20)))
    async with place.process() as process:
        result = await process.run(talker.agent(limits=Limits(tokens=100)), "Hi.", session="s", submission="m")
        assert (result.status, result.steps, result.usage.total_tokens) == ("limited", 0, 110)
        assert talker.purposes() == ["memory"]
        # What was paid for is kept.
        assert await remembered(process) == ["x"]
        await sound(process)


@pytest.mark.spec("S0-245")
async def test_an_interrupt_ends_an_extraction_and_its_turn(place: Place) -> None:
    never = asyncio.Event()

    async def waits(request: ModelRequest) -> str:
        talker.asked.append(request)
        await never.wait()
        return "[]"

    talker = Talker()
    agent = Agent("a", model=FunctionModel(waits), memory=EAGER)
    async with place.process() as process:
        running = asyncio.create_task(process.run(agent, "Hi.", session="s", submission="m"))
        await eventually(lambda: talker.asked)
        await process.sessions.interrupt("s", submission="i")
        assert (await running).status == "aborted"
        assert talker.purposes() == ["memory"]
        assert await remembered(process) == []
        await sound(process)


@pytest.mark.spec("S0-181", "S0-182", "S0-245")
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("nth", [1, 2, 3, 4])
async def test_no_error_of_the_store_becomes_one_of_the_memory_the_model_or_the_run(place: Place, nth: int, when: Any) -> None:
    """An error of a commit, whichever, ends the invocation and nothing else: the next one comes to the same end."""
    talker = Talker(memory=facts("x"))
    failure = StoreBroken("the disk is on fire")
    async with place.process(Fault(nth=nth, when=when, error=failure)) as process:
        with pytest.raises(StoreBroken) as raised:
            await process.run(talker.agent(), "Hi.", session="s", submission="m")
        assert raised.value is failure
        asked = len(talker.asked)
        entries = await process.sessions.entries("s")
        assert not [entry for entry in entries if entry.kind in ("turn_failed", "turn_aborted", "turn_limited")]
        assert not [entry for entry in entries if isinstance(entry, OperationEnded) and entry.failure is not None]
        assert asked <= 2
        result = await process.run(talker.agent(), "Hi.", session="s", submission="m")
        assert (result.status, result.output) == ("completed", "ok")
        assert await remembered(process) == ["x"]
        await sound(process)


@pytest.mark.spec("S0-176")
async def test_a_model_call_that_was_under_way_at_a_takeover_is_an_accounted_attempt_of_unknown_usage(place: Place) -> None:
    """For each of the two kinds of call, on the way that a run is resumed by, and by recovery."""
    for nth, kind in ((1, "memory"), (3, "model")):
        for resumed in (True, False):
            session = f"{kind} {resumed}"
            talker = Talker(memory=facts("x"))
            async with place.process(Fault(nth=nth, when="after", action="die")) as process:
                with pytest.raises(ProcessDied):
                    await process.run(talker.agent(), "Hi.", session=session, submission="m")
            async with place.process() as process:
                if resumed:
                    await process.run(talker.agent(), "Hi.", session=session, submission="m")
                else:
                    await process.recover([talker.agent()], session=session)
                result = await process.sessions.result(session, "m")
                assert result is not None
                assert result.ok
                lost = [call for call in await process.sessions.model_calls(session) if call.status == "uncertain"]
                assert [(call.kind, call.attempt, call.usage) for call in lost] == [(kind, 1, None)]
                assert (result.usage.calls, result.usage.unknown_calls) == (3, 1)
                recovered = [entry for entry in await process.sessions.entries(session) if isinstance(entry, Recovered)]
                assert [(item.status, item.attempt) for entry in recovered for item in entry.attempts] == [("uncertain", 1)]
                assert await remembered(process, session) == ["x"]


@pytest.mark.spec("S0-242")
@pytest.mark.parametrize("content", ["", "{", '{"entries": [], "initialized": true, "tokens_at_last_extraction": 99999}'])
async def test_whatever_stands_in_the_copy_between_crash_and_resume_makes_no_difference(seed: Seed, content: str) -> None:
    async with seed.interrupted() as (first, _):
        planted = seed.workspace / ".memory/session" / scope_of(SESSION) / "session_memory.json"
        planted.parent.mkdir(parents=True)
        planted.write_text(content)
        await seed.expire(first)
        async with seed.process() as second:
            assert (await seed.run(second)).usage.total_tokens == 40
            assert await remembered(second, SESSION) == ["Order A-1 is late"]
            assert (await Stored.of(second)).ledger == [("memory", 15), ("model", 25)]
            assert [fact["content"] for fact in seed.document["entries"]] == ["Order A-1 is late"]


async def test_an_agent_that_forgets_between_crash_and_resume_goes_on_without(place: Place) -> None:
    talker = Talker(memory=facts("x"))
    async with place.process(Fault(nth=1, when="after", action="die")) as process:
        with pytest.raises(ProcessDied):
            await process.run(talker.agent(), "Hi.", session="s", submission="m")
    talker.asked.clear()
    async with place.process() as process:
        result = await process.run(talker.agent(None), "Hi.", session="s", submission="m")
        assert result.ok
        assert talker.purposes() == ["answer"]
        ended = [entry for entry in await process.sessions.entries("s") if isinstance(entry, OperationEnded) and entry.failure]
        assert [entry.failure.code for entry in ended if entry.failure] == ["restart", "forgotten"]
        await sound(process)


async def test_a_restart_that_stops_turns_stops_one_that_looks_for_something_to_remember(place: Place) -> None:
    talker = Talker(memory=facts("x"))
    agent = talker.agent(on_restart="stop")
    async with place.process(Fault(nth=1, when="after", action="die")) as process:
        with pytest.raises(ProcessDied):
            await process.run(agent, "Hi.", session="s", submission="m")
    async with place.process() as process:
        assert (await process.run(agent, "Hi.", session="s", submission="m")).status == "aborted"
        assert await remembered(process) == []


async def test_an_answer_too_large_to_keep_is_passed_over_and_the_turn_goes_on(place: Place) -> None:
    talker = Talker(memory="[" + " " * 900_000 + "]")
    async with place.process() as process:
        result = await process.run(talker.agent(), "Hi.", session="s", submission="m")
        assert result.ok
        assert await remembered(process) == []
        ended = [entry for entry in await process.sessions.entries("s") if isinstance(entry, OperationEnded)]
        assert ended[0].failure is not None
        assert ended[0].failure.message == "output_too_long"
        await sound(process)


async def test_many_long_facts_are_kept_without_a_byte_more_in_the_checkpoint(place: Place) -> None:
    talker = Talker(memory=facts(*(f"{index} " + "ä" * 300 for index in range(300))))
    async with place.process() as process:
        await process.run(talker.agent(), "Hi.", session="s", submission="m")
        row = await process.row()
        assert len(row.checkpoint) < 2_000
        assert 150 < len(await remembered(process)) < 300
        await process.run(talker.agent(), "Hi.", session="s", submission="m2")
        await sound(process)


# ---------------------------------------------------------------------------------------------------------- beside other things


@pytest.mark.spec("S0-254")
async def test_after_a_compaction_the_next_extraction_sees_what_is_new_and_no_notes(place: Place) -> None:
    seen: list[str] = []

    def memory(request: ModelRequest) -> str:
        seen.append(request.messages[0].text)
        return "[]"

    def play(request: ModelRequest) -> Any:
        if request.purpose == "notes":
            return Reply(tool_calls=[ToolCall(name="save_notes", arguments={"notes": "THE NOTES"})])
        return memory(request) if request.purpose == "memory" else "ok"

    model = FunctionModel(play, window=2_000)
    agent = Agent("a", model=model, compaction=Compaction(threshold=500), memory=SessionMemory(min_tokens=50, min_text_messages=1))
    async with place.process() as process:
        for number in range(12):
            await process.run(agent, f"<{number}>" + "x" * 400, session="s", submission=f"m{number}")
        kinds = [call.kind for call in await process.sessions.model_calls("s")]
        assert "compaction" in kinds
        said = [f"<{number}>" for number in range(12)]
        # Each message was looked through exactly once, whatever notes came to stand for.
        assert [sum(name in text for text in seen) for name in said] == [1] * 12
        assert not any("THE NOTES" in text for text in seen)
        await sound(process)


async def test_what_a_rewrite_put_in_place_is_looked_through_and_what_was_learned_stays(place: Place) -> None:
    seen: list[str] = []

    def memory(request: ModelRequest) -> str:
        seen.append(request.messages[0].text)
        return facts(f"fact {len(seen)}")

    talker = Talker(memory=memory)
    async with place.process() as process:
        await process.run(talker.agent(), "first", session="s", submission="m1")
        await process.sessions.rewrite("s", (0, 1), "another beginning")
        await process.run(talker.agent(), "second", session="s", submission="m2")
        assert "another beginning" in seen[-1]
        assert await remembered(process) == ["fact 1", "fact 2"]
        await sound(process)


async def test_a_branch_begins_without_and_learns_from_what_it_took_over(place: Place) -> None:
    seen: list[str] = []

    def memory(request: ModelRequest) -> str:
        seen.append(request.messages[0].text)
        return facts("learned")

    talker = Talker(memory=memory)
    async with place.process() as process:
        await process.run(talker.agent(), "first", session="s", submission="m1")
        await process.sessions.fork("s", at=2, session_id="branch")
        await process.run(talker.agent(), "second", session="branch", submission="m2")
        assert MARKER not in talker.asked[-1].instructions
        assert "first" in seen[-1]
        assert await remembered(process, "branch") == ["learned"]
        await sound(process)


async def test_a_redaction_takes_what_was_learned_since_and_the_rest_is_learned_again(place: Place, workspace: Path) -> None:
    talker = Talker(memory=lambda request: facts("It is 4711") if "4711" in request.messages[0].text else facts("Nice weather"))
    agent = talker.agent(replace(EAGER, workspace=workspace))
    async with place.process() as process:
        await process.run(agent, "Nice weather today.", session="s", submission="m1")
        await process.run(agent, "My number is 4711.", session="s", submission="m2")
        assert await remembered(process) == ["Nice weather", "It is 4711"]
        removed = await process.sessions.redact("s", 2)
        rows = b"".join(row.body or b"" for row in await process.store.entries((await process.row()).no))
        assert b"4711" not in rows
        assert len(removed.entries) == 3
        await sound(process)
        await process.run(agent, "Hello?", session="s", submission="m3")
        assert "4711" not in talker.asked[-1].instructions
        assert MARKER not in talker.asked[-1].instructions
        assert await remembered(process) == ["Nice weather"]
        assert b"4711" not in next(workspace.rglob("session_memory.json")).read_bytes()
        await sound(process)


async def test_a_redaction_of_what_came_later_leaves_it_alone(place: Place) -> None:
    talker = Talker(memory=facts("x"))
    memory = replace(EAGER, growth_ratio=1_000)
    async with place.process() as process:
        await process.run(talker.agent(memory), "one", session="s", submission="m1")
        await process.run(talker.agent(memory), "two", session="s", submission="m2")
        await process.sessions.redact("s", 2)
        assert await remembered(process) == ["x"]
        await sound(process)


async def test_verify_finds_a_memory_that_is_none(place: Place) -> None:
    talker = Talker(memory=facts("x"))
    async with place.process() as process:
        await process.run(talker.agent(), "one", session="s", submission="m1")
        await sound(process)
        batch = await process.batch()
        batch.write(ExtensionSet(extension=MEMORY, key="state", value={"entries": 7}), batch.now)
        await process.store.commit(batch.commit(holder=None))
        found = [str(problem) async for problem in verify(process.store)]
        assert any("memory can't be read" in problem for problem in found)


async def test_extensions_of_the_agents_own_have_as_much_room_as_ever(place: Place) -> None:
    class Hoards(Middleware):
        name = "hoards"

        def before_model(self, ctx: Any) -> None:
            for index in range(64):
                ctx.state[f"k{index}"] = ctx.step

    talker = Talker(memory=facts("x"))
    async with place.process() as process:
        for number in range(2):
            assert (await process.run(talker.agent(middleware=[Hoards()]), "Hi.", session="s", submission=f"m{number}")).ok


async def test_a_receipt_is_committed_alone_before_the_turn_goes_on(place: Place) -> None:
    talker = Talker(memory=facts("x"))
    async with place.process() as process:
        await process.run(talker.agent(), "Hi.", session="s", submission="m")
        assert [[entry.kind for entry in commit.entries] for commit in process.faulty.commits] == [
            ["turn_started", "message", "operation_started"],
            ["operation_ended", "extension_set"],
            ["operation_started"],
            ["operation_ended", "message", "turn_completed"],
        ]
