"""What a message's identity is made of: digests that don't depend on where content is kept, and revisions that don't depend on the path."""

from __future__ import annotations

from typing import Any

import pytest
import story
from hypothesis import given, settings
from hypothesis import strategies as st
from story import Story, call, planned

from perdure.core import canonical
from perdure.core.entries import MessageAdded, OperationEnded
from perdure.core.evolve import calls_in
from perdure.core.messages import (
    INLINE_LIMIT,
    Blob,
    Message,
    Part,
    Private,
    Reasoning,
    StoredPart,
    Text,
    ToolCall,
    ToolCallResponse,
    Uri,
    decode_part,
    digest_of,
    part_digest,
    set_aside,
    visible,
)
from perdure.core.records import Failure

PARTS: list[Part] = [
    Text(content="hi"),
    Reasoning(content="hm"),
    ToolCall(id="c1", name="refund", arguments={"b": 1, "a": 2}),
    ToolCallResponse(id="c1", name="refund", response=None, is_error=True),
    Blob(mime_type="image/png", digest="d", size=3),
    Uri(uri="https://example.org/a.png"),
    Private(group="g", data={"signature": "s"}),
]


@pytest.mark.parametrize("part", PARTS, ids=lambda part: type(part).__name__)
def test_a_part_is_read_back_from_its_canonical_bytes(part: Part) -> None:
    assert decode_part(canonical.encode(part)) == part


def test_parts_are_named_as_in_the_open_telemetry_conventions() -> None:
    types = [canonical.decode(canonical.encode(part))["type"] for part in PARTS]

    assert types == ["text", "reasoning", "tool_call", "tool_call_response", "blob", "uri", "private"]


@pytest.mark.parametrize("size", [0, INLINE_LIMIT // 2, INLINE_LIMIT * 3])
@pytest.mark.parametrize(
    "make",
    [
        lambda text: Text(content=text),
        lambda text: ToolCall(id="c1", name="refund", arguments={"note": text}),
        lambda text: ToolCallResponse(id="c1", name="refund", response=text),
        lambda text: Private(group="g", data=text),
    ],
    ids=["text", "call", "response", "private"],
)
def test_the_digest_of_a_part_is_the_same_inline_and_set_aside(make: Any, size: int) -> None:
    part = make("x" * size)

    kept, data = set_aside(part)

    assert part_digest(kept) == part_digest(part)
    assert (data is None) == isinstance(kept, type(part))
    if data is not None:
        assert isinstance(kept, StoredPart)
        assert kept.size == len(data)
        assert canonical.digest(data) == kept.digest
        assert decode_part(data) == part


def test_a_part_goes_aside_one_byte_beyond_the_limit() -> None:
    overhead = len(canonical.encode(Text(content="")))

    assert set_aside(Text(content="x" * (INLINE_LIMIT - overhead)))[1] is None
    assert set_aside(Text(content="x" * (INLINE_LIMIT - overhead + 1)))[1] is not None


def test_a_call_that_was_set_aside_is_still_a_call() -> None:
    kept, _ = set_aside(call("c7", "refund", note="x" * INLINE_LIMIT))

    assert [(item.id, item.name) for item in calls_in((Text(content=""), kept, call("c8")))] == [("c7", "refund"), ("c8", "refund")]


def test_the_text_of_a_message_is_all_that_was_said_and_nothing_that_was_thought() -> None:
    message = Message(role="assistant", parts=(Text(content="a"), Reasoning(content="b"), call("c1"), Text(content="c")))

    assert message.text == "ac"
    assert [item.id for item in message.tool_calls] == ["c1"]


def test_the_role_and_the_order_of_parts_are_part_of_a_message() -> None:
    a, b = part_digest(Text(content="a")), part_digest(Text(content="b"))

    assert len({digest_of("user", [a, b]), digest_of("user", [b, a]), digest_of("assistant", [a, b]), digest_of("user", [a])}) == 4


def test_private_parts_do_not_count_wherever_they_are_kept() -> None:
    private = Private(group="g", data="x" * INLINE_LIMIT)
    aside, data = set_aside(private)
    assert data is not None

    assert visible((Text(content="a"), private, aside)) == (Text(content="a"),)


# --------------------------------------------------------------------------------------------------------------- revisions


def _conversation(s: Story, *, private: bool = False, retries: int = 0, crash: bool = False, aside: bool = False) -> str:
    """The same three messages, however many detours it took to get there."""
    s.says("Refund A-1", submission=f"m-{s.checkpoint.session_id}")
    s.steps()
    for _ in range(retries):
        s.model_ends(status="failed", retryable=True, failure=Failure(code="rate_limited"))
        s.steps()
    asked = call("c1", "refund", order="A-1", note="n" * (INLINE_LIMIT if aside else 10))
    kept = set_aside(asked)[0] if aside else asked
    s.model_ends(Text(content="one moment"), kept, *([Private(group="g", data=s.at)] if private else []))
    s.plans(planned(asked, "idempotent"))
    if crash:
        s.do(s.claim())
        s.starts()
    s.tool_ends("t2.0.1", response="done")
    return s.checkpoint.revision


def test_the_same_messages_are_the_same_revision_whatever_the_path() -> None:
    plain = _conversation(Story())
    others = [
        _conversation(Story("another-session")),
        _conversation(Story(at=987_654_321)),
        _conversation(Story(fence=40), retries=3),
        _conversation(Story(), crash=True),
        _conversation(Story(), private=True),
    ]

    assert set(others) == {plain}
    assert plain != Story().checkpoint.revision


def test_content_that_is_kept_aside_makes_no_other_revision() -> None:
    inline = Story()
    inline.says()
    inline.steps()
    long = Text(content="x" * INLINE_LIMIT)
    inline.model_ends(long)
    aside = Story()
    aside.says()
    aside.steps()
    aside.model_ends(set_aside(long)[0])

    assert inline.checkpoint.revision == aside.checkpoint.revision


def test_an_approval_is_no_message_so_it_makes_no_other_revision() -> None:
    asked, allowed = story.waiting(), story.tools()
    asked.do(asked.answer("t2.0.1", "approve"))
    asked.starts()
    asked.tool_ends("t2.0.1")
    allowed.tool_ends("t2.0.1")

    assert asked.checkpoint.revision == allowed.checkpoint.revision


def test_a_settled_effect_counts_like_a_receipt() -> None:
    settled, returned = story.asking(), story.tools()
    settled.do(settled.answer("t2.0.1", "settle", result="done"))
    returned.tool_ends("t2.0.1", response="done")

    assert settled.checkpoint.revision == returned.checkpoint.revision


@pytest.mark.parametrize("change", ["text", "arguments", "response", "error"])
def test_another_content_is_another_revision(change: str) -> None:
    def told(changed: bool) -> str:
        s = Story()
        s.says("bye" if changed and change == "text" else "hello")
        s.steps()
        s.model_ends(call("c1", n=2 if changed and change == "arguments" else 1))
        s.plans(planned(call("c1")))
        failed = changed and change == "error"
        s.tool_ends("t2.0.1", "failed" if failed else "succeeded", 2 if changed and change == "response" else 1)
        return s.checkpoint.revision

    assert told(changed=True) != told(changed=False)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.text(max_size=8), min_size=1, max_size=6), st.lists(st.text(max_size=8), min_size=1, max_size=6))
def test_two_transcripts_have_one_revision_exactly_if_they_are_the_same(first: list[str], second: list[str]) -> None:
    def told(texts: list[str], session_id: str) -> str:
        s = Story(session_id)
        s.says("begin")
        for text in texts:
            s.says(text, deliver="steer", submission=session_id)
        return s.checkpoint.revision

    assert (told(first, "a") == told(second, "b")) == (first == second)


def test_what_models_see_differs_from_the_transcript_only_by_notes() -> None:
    s = story.tools()
    assert s.checkpoint.context == s.checkpoint.revision
    s.tool_ends("t2.0.1", "uncertain")
    assert s.checkpoint.context == s.checkpoint.revision
    s.do(s.report("t2.0.1"))
    assert s.checkpoint.context != s.checkpoint.revision


def test_the_digest_of_a_stored_message_is_that_of_what_a_reader_sees() -> None:
    s = story.tools()
    s.tool_ends("t2.0.1")
    receipts = {entry.seq: entry for entry in s.entries if isinstance(entry, OperationEnded)}
    for message in (entry for entry in s.entries if isinstance(entry, MessageAdded)):
        parts = message.parts or (receipts[message.receipt].parts if message.receipt else ())
        for response in message.responses:
            parts += receipts[response.receipt].parts
        assert message.digest == digest_of(message.role, map(part_digest, visible(parts)))
