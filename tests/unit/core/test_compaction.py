"""What is cut off, what is kept, and how the checkpoint follows."""

from __future__ import annotations

from typing import Any

import story
from msgspec.structs import replace

from perdure.core.checkpoint import Checkpoint, Compacted
from perdure.core.entries import PrefixChanged, Rewritten
from perdure.core.evolve import evolve
from perdure.core.messages import Message, Text, ToolCall, ToolCallResponse
from perdure.core.reports import Finish
from perdure.runtime.shown import behind_notes, is_boundary, kept_ranges, notes_message, retained_from

BEGAN = 10


def said(text: str, position: int, *, seq: int) -> Message:
    return Message(role="user", parts=(Text(text),), position=position, seq=seq)


def note(text: str, seq: int) -> Message:
    return Message(role="user", parts=(Text(f"[note] {text}"),), seq=seq)


def answer(position: int, *, seq: int, call: str = "") -> Message:
    parts = (ToolCall("look", {}, call),) if call else (Text("so"),)
    return Message(role="assistant", parts=parts, position=position, seq=seq)


def result(position: int, *, seq: int, call: str) -> Message:
    return Message(role="tool", parts=(ToolCallResponse(id=call, name="look", response="x"),), position=position, seq=seq)


OLD = [said("old", 0, seq=3), answer(1, seq=5)]


class Looked(list[Message]):
    """Messages that know how many of them were looked at one by one."""

    count = 0

    def __getitem__(self, index: Any) -> Any:
        self.count += not isinstance(index, slice)
        return super().__getitem__(index)


def test_what_is_kept_is_found_without_a_look_at_all_that_came_before_the_turn() -> None:
    past = [said("old", position, seq=3) for position in range(500)]
    messages = Looked([*past, said("new", 500, seq=11), note("n", 12), answer(501, seq=13), said("steer", 502, seq=14)])
    assert kept_ranges(messages, 504, BEGAN) == ((500, 501), (502, 503))
    assert messages.count == 5


def test_what_a_branch_took_over_is_of_no_turn_of_its_own_whatever_its_numbers_are() -> None:
    taken = [replace(message, session="parent", seq=BEGAN + 90) for message in OLD]
    assert kept_ranges([*taken, said("new", 2, seq=11)], 3, BEGAN) == ((2, 3),)
    assert retained_from([*taken, said("new", 2, seq=11)], BEGAN) == 2
    assert retained_from([taken[0]], BEGAN) == 1


def test_what_people_said_last_in_the_running_turn_is_not_summarised() -> None:
    assert retained_from([*OLD, said("new", 2, seq=11)], BEGAN) == 2
    assert retained_from([*OLD, said("new", 2, seq=11), note("n", 12), said("steer", 3, seq=13)], BEGAN) == 2


def test_what_was_said_in_a_turn_that_is_over_may_be_summarised_though_nobody_answered_it() -> None:
    assert retained_from([*OLD, said("aborted", 2, seq=7), said("new", 3, seq=11)], BEGAN) == 3


def test_the_latest_batch_of_the_running_turn_is_not_summarised_and_no_other_one() -> None:
    batches = [said("new", 2, seq=11), answer(3, seq=12, call="a"), result(4, seq=14, call="a"), answer(5, seq=16, call="b")]
    messages = [*OLD, *batches, result(6, seq=18, call="b")]
    assert retained_from(messages, BEGAN) == 5
    assert retained_from([*messages, said("steer", 7, seq=19)], BEGAN) == 5
    assert retained_from([*messages, answer(7, seq=20)], BEGAN) == 8
    # Of a turn that is over nothing is retained: by hand, all of it is summarised.
    assert retained_from(messages, 100) == 7


def test_no_cut_separates_a_call_from_its_response() -> None:
    messages = [said("new", 0, seq=11), answer(1, seq=12, call="a"), result(2, seq=14, call="a")]
    assert [is_boundary(messages, index) for index in range(4)] == [True, True, False, True]


def test_the_running_turns_words_are_kept_behind_the_notes_and_named_by_position() -> None:
    batch = [answer(4, seq=14, call="a"), result(5, seq=16, call="a")]
    messages = [*OLD, said("new", 2, seq=11), said("more", 3, seq=13), *batch, said("steer", 6, seq=17), answer(7, seq=19)]
    notes = notes_message("so far")
    shown = behind_notes(messages, notes, 7, BEGAN)
    assert [message.text for message in shown[1:]] == ["new", "more", "steer", "so"]
    assert shown[0] is notes
    assert kept_ranges(messages, 7, BEGAN) == ((2, 4), (6, 7))
    assert kept_ranges(messages, 2, BEGAN) == ()


def compacted() -> Checkpoint:
    told = story.noted()
    told.do(told.notes_accepted())
    return told.checkpoint


def test_an_accepted_compaction_counts_and_forgets_the_last_usage_and_leaves_the_transcript() -> None:
    before, after = story.noted().checkpoint, compacted()
    assert (after.epoch, after.compactions, after.compacted) == (1, 1, Compacted(base=after.version, upto=2))
    assert before.input_tokens == 10
    assert after.input_tokens == 0
    assert after.revision == before.revision
    assert after.context != before.context
    assert after.turn is not None
    assert after.turn.compactions == ()


def test_several_writers_answers_are_one_change_that_counts_each() -> None:
    told = story.noted()
    told.do(told.notes_asked("other", upto=2))
    told.do(told.notes_end(story.saved("more")))
    told.do(told.notes_accepted())
    assert (told.checkpoint.epoch, told.checkpoint.compactions) == (1, 2)
    assert told.folds()


def rewrite(checkpoint: Checkpoint, start: int) -> Checkpoint:
    laid = {"pieces": (), "tail": checkpoint.number, "revision": "r" * 64}
    entry = Rewritten(expected="e" * 64, start=start, stop=start + 1, seq=99, number=checkpoint.number, **laid)
    return evolve(checkpoint, entry)


def test_an_edit_behind_the_notes_leaves_them_and_one_before_falls_back_to_the_transcript() -> None:
    behind, before = rewrite(compacted(), 2), rewrite(compacted(), 1)
    assert behind.compacted == compacted().compacted
    assert before.compacted is None
    assert before.context == before.revision != behind.context


def test_a_turn_that_only_compacts_is_over_behind_the_notes_unless_somebody_says_something() -> None:
    told = story.Story()
    told.says()
    told.steps()
    told.model_ends(Text(content="hello"))
    told.do(Finish(at=told.now()))
    told.compacts()
    assert told.phase == "model"
    told.do(told.notes_asked())
    told.do(told.notes_end(story.saved("notes")))
    [change] = told.do(told.notes_accepted())
    assert isinstance(change, PrefixChanged)
    assert told.phase == "completing"
    told.says("and now?", deliver="steer", submission="m3")
    assert told.phase == "model"
    assert told.folds()
