"""The source scenario, step by step: a receipt is stored and its caller hears of an error; nothing is asked, counted or learned twice."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from perdure import ExtensionSet, OperationEnded, OperationStarted, Recovered, SessionMemory, TurnCompleted
from perdure.agent.definition import fingerprint
from perdure.runtime.verify import verify
from perdure.testing import find_all_problems
from tests.integration.interactive.acting import eventually

from .seed import ANSWER, MARKER, PHRASE, QUESTION, SESSION, ReceiptFailed, Seed, Stored, commits_of, ledger_of, plain


async def test_the_whole_scenario_with_its_exact_figures(seed: Seed) -> None:
    async with seed.interrupted() as (first, error):
        assert isinstance(error, ReceiptFailed)
        assert len(seed.asked) == 1
        assert not seed.file.exists()

        stored = await Stored.of(first)
        assert stored.ledger == [("memory", 15)]
        assert stored.checkpoint.turn is not None
        assert stored.checkpoint.turn.usage.total_tokens == 15
        assert stored.row.holder == first.runner_id

        await seed.expire(first)
        async with seed.process() as second:
            result = await seed.run(second)
            assert (result.status, result.output) == ("completed", ANSWER)
            assert len(seed.asked) == 2
            stored = await Stored.of(second)
            assert stored.ledger == [("memory", 15), ("model", 25)]
            assert ledger_of(result.model_calls) == stored.ledger
            assert result.usage.total_tokens == 40
            assert stored.checkpoint.usage.total_tokens == 40
            receipt = next(entry for entry in stored.all(OperationEnded) if entry.operation.endswith(".0.0"))
            assert [entry.receipts for entry in stored.all(Recovered)] == [(receipt.seq,)]

            assert [(fact["category"], fact["content"], fact["importance"]) for fact in seed.document["entries"]] == [
                ("key_fact", "Order A-1 is late", 9)
            ]
            assert seed.document["initialized"] is True
            assert seed.document["tokens_at_last_extraction"] > 0

            before, content = await second.everything(SESSION), seed.file.read_bytes()
            again = await seed.run(second)
            assert again == result
            assert len(seed.asked) == 2
            assert await second.everything(SESSION) == before
            assert seed.file.read_bytes() == content
            assert await find_all_problems(second.store) == []
            assert [problem async for problem in verify(second.store)] == []


# ------------------------------------------------------------------------------------------------- what a wrapped store sees


@pytest.mark.spec("S0-015", "S0-016", "S0-017")
async def test_a_store_around_the_store_reads_events_operations_and_usage_in_each_commit(seed: Seed) -> None:
    async with seed.interrupted() as (process, _):
        entries, checkpoint = commits_of(process)[-1]
        ended = entries[0]
        assert [entry.kind for entry in entries] == ["operation_ended", "extension_set"]
        assert checkpoint is not None
        assert checkpoint.turn is not None
        operation = checkpoint.operation(getattr(ended, "operation", ""))
        assert operation is not None
        assert (operation.plan.kind, operation.status) == ("memory", "ended")
        assert isinstance(ended, OperationEnded)
        assert ended.usage is not None
        assert (ended.usage.input_tokens, ended.usage.output_tokens) == (12, 3)


@pytest.mark.spec("S0-018")
async def test_the_first_commit_that_holds_the_receipt_holds_its_tokens_in_the_budget(seed: Seed) -> None:
    async with seed.interrupted() as (process, _):
        turns = [checkpoint.turn for _, checkpoint in commits_of(process) if checkpoint is not None]
        assert [turn.usage.total_tokens for turn in turns if turn is not None] == [0, 15]


# ------------------------------------------------------------------------------------------------------- the first invocation


@pytest.mark.spec("S0-012", "S0-019", "S0-020")
async def test_an_invocation_whose_store_fails_raises_what_the_store_said_code_and_words(seed: Seed) -> None:
    async with seed.interrupted() as (_, error):
        assert error is seed.failure
        assert error.code == "session_memory_receipt_failure"
        assert "its answer was lost" in str(error)


@pytest.mark.spec("S0-021", "S0-022")
async def test_after_the_stores_error_no_model_is_called_and_nothing_is_copied(seed: Seed) -> None:
    async with seed.interrupted() as (process, _):
        seed.place.clock.advance(60_000)
        assert not process.work.tasks
        assert len(seed.asked) == 1
        assert [*seed.workspace.rglob("*")] == []


@pytest.mark.spec("S0-014", "S0-023")
async def test_the_turn_stays_unfinished_and_held_and_only_the_lease_has_to_be_moved_to_take_it_over(seed: Seed) -> None:
    async with seed.interrupted() as (first, _):
        before = await Stored.of(first)
        assert before.checkpoint.turn is not None
        assert not before.all(TurnCompleted)
        assert (before.row.holder, before.row.fence) == (first.runner_id, 1)

        await seed.expire(first)

        after = await Stored.of(first)
        assert (after.row, after.entries) == (before.row, before.entries)
        assert await find_all_problems(first.store) == []
        head = await first.store.load(SESSION)
        assert head is not None
        assert not head.holder_alive


@pytest.mark.spec("S0-024", "S0-026", "S0-027")
async def test_the_ledger_holds_the_one_call_that_was_made_with_what_its_provider_reported(seed: Seed) -> None:
    async with seed.interrupted() as (process, _):
        stored = await Stored.of(process)
        assert stored.ledger == [("memory", 15)]
        (receipt,) = stored.all(OperationEnded)
        assert receipt.status == "succeeded"
        assert plain(receipt.usage) == {"input_tokens": 12, "output_tokens": 3}


@pytest.mark.spec("S0-025")
async def test_what_a_provider_does_not_report_is_unknown_and_not_zero(seed: Seed) -> None:
    async with seed.interrupted() as (process, _):
        (receipt,) = (await Stored.of(process)).all(OperationEnded)
        usage = receipt.usage
        assert (usage.cache_read_tokens, usage.cache_write_tokens, usage.reasoning_tokens) == (None, None, None)


# ------------------------------------------------------------------------------------------------------------- the extraction


@pytest.mark.spec("S0-028", "S0-032")
async def test_the_extraction_comes_before_the_model_call_and_goes_to_the_same_model(seed: Seed) -> None:
    async with seed.resumed() as (process, _):
        stored = await Stored.of(process)
        started = [(entry.plan.kind, entry.request.route) for entry in stored.all(OperationStarted) if entry.plan is not None]
        assert started == [("memory", "only"), ("model", "only")]
        assert [(request.purpose, request.route) for request in seed.asked] == [("memory", "only"), ("answer", "only")]


@pytest.mark.spec("S0-029", "S0-030", "S0-031")
async def test_the_extraction_is_one_message_with_the_words_and_no_tools(seed: Seed) -> None:
    async with seed.interrupted():
        (request,) = seed.asked
        assert request.tools == ()
        assert len(request.messages) == 1
        assert request.instructions == ""
        assert PHRASE in request.messages[0].text
        assert QUESTION in request.messages[0].text


@pytest.mark.spec("S0-054", "S0-068")
async def test_an_extraction_takes_no_step_of_the_limit_and_a_limit_that_is_not_reached_ends_nothing(seed: Seed) -> None:
    assert (seed.agent.limits.steps, seed.agent.limits.tokens) == (1, 1_000)
    async with seed.resumed() as (_, result):
        assert (result.status, result.steps) == ("completed", 1)


# ---------------------------------------------------------------------------------------------------------------- the resume


@pytest.mark.spec("S0-045", "S0-046", "S0-050")
async def test_the_same_call_again_goes_on_with_the_stored_turn_once_the_lease_is_over(seed: Seed) -> None:
    async with seed.resumed() as (process, result):
        stored = await Stored.of(process)
        assert len([entry for entry in stored.entries if entry.kind == "turn_started"]) == 1
        assert stored.row.fence == 2
        assert (result.status, result.output) == ("completed", ANSWER)


@pytest.mark.spec("S0-047", "S0-048", "S0-171")
async def test_the_stored_receipt_is_used_without_a_call_and_the_takeover_names_it(seed: Seed) -> None:
    async with seed.resumed() as (process, _):
        assert [request.purpose for request in seed.asked] == ["memory", "answer"]
        stored = await Stored.of(process)
        (recovered,) = stored.all(Recovered)
        receipt = stored.all(OperationEnded)[0]
        assert recovered.receipts == (receipt.seq,)
        assert recovered.attempts == ()
        # Its call was begun once, and counts once.
        assert [entry.attempt for entry in stored.all(OperationStarted) if entry.operation == receipt.operation] == [1]
        assert stored.checkpoint.usage.calls == 2
        # It is in the commit that takes the session over, as the wrapped store saw it.
        entries, _ = commits_of(process)[0]
        assert "recovered" in [entry.kind for entry in entries]


@pytest.mark.spec("S0-049")
async def test_the_facts_of_the_stored_receipt_are_learned_once_and_copied(seed: Seed) -> None:
    async with seed.resumed() as (process, _):
        assert len((await Stored.of(process)).all(ExtensionSet)) == 1
        assert len(seed.document["entries"]) == 1


@pytest.mark.spec("S0-044")
async def test_the_turn_that_learns_is_told_nothing_of_it_and_the_next_one_is(seed: Seed) -> None:
    async with seed.resumed() as (process, _):
        assert MARKER not in seed.asked[1].instructions + "".join(message.text for message in seed.asked[1].messages)
        seed.replies += [seed.replies[0], seed.replies[1]]
        result = await process.run(seed.agent, "And now?", session=SESSION, submission="run-2")
        assert result.ok
        assert seed.asked[-1].instructions.startswith("Be brief.\n\n" + MARKER)
        assert "Order A-1 is late" in seed.asked[-1].instructions


@pytest.mark.spec("S0-051", "S0-052", "S0-053")
async def test_both_calls_are_counted_once_in_the_order_in_which_they_were_made(seed: Seed) -> None:
    async with seed.resumed() as (process, result):
        stored = await Stored.of(process)
        assert stored.ledger == [("memory", 15), ("model", 25)]
        assert (result.usage.calls, result.usage.unknown_calls, result.usage.total_tokens) == (2, 0, 40)
        (ended,) = stored.all(TurnCompleted)
        assert ended.usage.total_tokens == stored.checkpoint.usage.total_tokens == 40


@pytest.mark.spec("S0-055")
async def test_an_answer_without_calls_completes_the_turn(seed: Seed) -> None:
    async with seed.resumed() as (process, result):
        assert (result.status, result.steps, result.tool_calls) == ("completed", 1, 0)
        assert [entry.kind for entry in (await Stored.of(process)).entries][-2:] == ["message", "turn_completed"]


# ------------------------------------------------------------------------------------------------------------------ the file


@pytest.mark.spec("S0-035", "S0-041")
async def test_the_copy_stands_where_others_look_for_it_in_the_form_that_they_read(seed: Seed) -> None:
    seed.fails = False
    async with seed.process() as process:
        await process.run(seed.agent, QUESTION, session="ticket-42", submission="run-1")
        file = seed.workspace / ".memory/session/ticket-42/session_memory.json"
        assert seed.file == file
        assert seed.document["entries"] == [
            {"category": "key_fact", "content": "Order A-1 is late", "importance": 9, "source_cycle": 1},
        ]


@pytest.mark.spec("S0-042", "S0-043")
async def test_the_copy_says_that_something_was_looked_for_and_how_large_the_context_was(seed: Seed) -> None:
    async with seed.resumed():
        assert seed.document["initialized"] is True
        assert type(seed.document["tokens_at_last_extraction"]) is int
        assert seed.document["tokens_at_last_extraction"] > 0


@pytest.mark.spec("S0-036", "S0-037", "S0-038")
async def test_facts_spread_over_lines_that_differ_in_case_alone_are_one(seed: Seed) -> None:
    async with seed.resumed():
        (fact,) = seed.document["entries"]
        assert fact["category"] == "key_fact"


@pytest.mark.spec("S0-039", "S0-040")
async def test_the_one_fact_has_its_first_spelling_and_its_largest_importance(seed: Seed) -> None:
    async with seed.resumed():
        (fact,) = seed.document["entries"]
        assert (fact["content"], fact["importance"]) == ("Order A-1 is late", 9)


# ------------------------------------------------------------------------------------------------------------ terminal replay


@pytest.mark.spec("S0-056", "S0-057", "S0-058")
async def test_a_finished_run_answers_the_same_without_a_model(seed: Seed) -> None:
    async with seed.resumed() as (process, result):
        assert await process.store.load(SESSION) is not None
        for _ in range(3):
            assert await seed.run(process) == result
        assert len(seed.asked) == 2
    async with seed.process() as process:
        assert await seed.run(process) == result
        assert await process.sessions.result(SESSION, result.submission) == result
    assert len(seed.asked) == 2


@pytest.mark.spec("S0-059", "S0-060", "S0-061")
async def test_asking_a_finished_run_again_changes_no_byte_of_file_ledger_and_budget(seed: Seed) -> None:
    async with seed.resumed() as (process, _):
        status, content, before = seed.file.stat(), seed.file.read_bytes(), await Stored.of(process)
        await seed.run(process)
        after = await Stored.of(process)
        assert seed.file.read_bytes() == content
        assert (seed.file.stat().st_mtime_ns, seed.file.stat().st_ino) == (status.st_mtime_ns, status.st_ino)
        assert after.ledger == before.ledger
        assert after.checkpoint.usage == before.checkpoint.usage


# ----------------------------------------------------------------------------------------------------------- several invocations


@pytest.mark.spec("S0-013", "S0-063", "S0-067")
async def test_one_agent_one_runtime_and_one_session_serve_all_invocations(seed: Seed) -> None:
    async with seed.interrupted() as (process, _):
        # What another handle on the same store sees is what this one wrote, and the same runtime may simply go on.
        async with seed.process() as probe:
            assert (await Stored.of(probe)).entries == (await Stored.of(process)).entries
        first = await seed.run(process)
        assert await seed.run(process) == first
        history = await process.sessions.history(SESSION)
        assert [(message.role, message.text) for message in history] == [("user", QUESTION), ("assistant", ANSWER)]
        assert len(seed.asked) == 2


async def test_a_living_process_lets_go_what_it_can_not_finish_and_the_next_one_waits_for_nothing(seed: Seed) -> None:
    seed.lets_go = True
    async with seed.interrupted() as (first, _):
        await eventually(lambda: not first.work.left_behind)
        assert (await Stored.of(first)).row.holder is None
        async with seed.process() as second:
            assert (await seed.run(second)).output == ANSWER
            stored = await Stored.of(second)
            assert stored.ledger == [("memory", 15), ("model", 25)]
            assert len(seed.asked) == 2
            assert not stored.all(Recovered)


@pytest.mark.spec("S0-033", "S0-064")
async def test_metadata_is_kept_and_neither_switches_the_memory_nor_keeps_a_run_from_being_durable(seed: Seed) -> None:
    assert seed.metadata["session_memory_enabled"] is False
    async with seed.resumed() as (process, result):
        assert result.ok
        assert (await process.sessions.info(SESSION)).metadata == seed.metadata
        assert [request.purpose for request in seed.asked] == ["memory", "answer"]


@pytest.mark.spec("S0-065")
async def test_where_the_copy_goes_is_no_part_of_what_an_agent_is(seed: Seed, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    memory = seed.agent.memory
    assert isinstance(memory, SessionMemory)
    moved = seed.agent.replace(memory=replace(memory, workspace=elsewhere))
    assert fingerprint(moved) == fingerprint(seed.agent)
    async with seed.interrupted() as (process, _):
        result = await process.run(moved, QUESTION, session=SESSION, submission="run-1", metadata=seed.metadata)
        assert result.ok
        assert [*elsewhere.rglob("session_memory.json")]
        assert not any(entry.kind == "definition_changed" for entry in (await Stored.of(process)).entries)


@pytest.mark.spec("S0-034")
@pytest.mark.parametrize(("tokens", "messages", "extracts"), [(1, 1, True), (10_000, 1, False), (1, 2, False)])
async def test_thresholds_are_set_for_a_run_and_both_have_to_be_met(seed: Seed, tokens: int, messages: int, extracts: bool) -> None:
    seed.fails = False
    if not extracts:
        del seed.replies[0]
    memory = seed.agent.memory
    assert isinstance(memory, SessionMemory)
    agent = seed.agent.replace(memory=replace(memory, min_tokens=tokens, min_text_messages=messages))
    async with seed.process() as process:
        result = await process.run(agent, QUESTION, session=SESSION, submission="run-1")
        assert result.output == ANSWER
        assert [request.purpose for request in seed.asked] == (["memory", "answer"] if extracts else ["answer"])
