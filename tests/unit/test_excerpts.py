"""What models see of long results: a beginning, an end, and how to read the rest."""

from __future__ import annotations

import pytest

from perdure.core import canonical
from perdure.core.context import READ_LIMIT
from perdure.core.messages import ToolCallResponse, part_digest
from perdure.runtime.shown import excerpt, handle, handle_of, slice_of


def part(response: object) -> ToolCallResponse:
    return ToolCallResponse(id="call-1", name="fetch", response=response)


def test_an_excerpt_shows_both_ends_and_says_how_to_read_the_rest() -> None:
    text = "".join(f"line {number}\n" for number in range(5_000))

    shown = excerpt(part(text), "12.0").response

    head, _, rest = shown.partition("\n[… characters ")
    note, _, tail = rest.partition(" …]\n")
    assert text.startswith(head)
    assert text.endswith(tail)
    assert (len(head), len(tail)) == (2_000, 1_000)
    assert note.startswith(f"{len(head)} to {len(text) - len(tail)} of {len(text)} are left out")
    assert f'read_result(handle="12.0", offset={len(head)}' in note


def test_the_offset_that_an_excerpt_names_is_where_its_beginning_ends_whatever_the_characters() -> None:
    text = "€" * 1_999 + "äöü" * 3_000

    shown = excerpt(part(text), "0.0").response

    offset = int(shown.partition("offset=")[2].partition(",")[0])
    head = shown.partition("\n[…")[0]
    tail = shown.rpartition("…]\n")[2]
    assert head == text[:offset]
    assert len(head.encode()) <= 2_000
    assert text.endswith(tail)
    assert "�" not in shown


def test_an_excerpt_of_plain_data_cuts_its_canonical_text() -> None:
    rows = [{"id": number, "name": "x" * 20} for number in range(500)]

    shown = excerpt(part(rows), "3.1").response

    assert shown.startswith(canonical.encode(rows).decode()[:2_000])


def test_an_excerpt_is_the_same_for_ever() -> None:
    """Providers cache what they were sent; another version of perdure must send the same bytes."""
    assert part_digest(excerpt(part("abc\n" * 9_000), "7.2")) == "9f441be137e274c05236a9e38370b0692fd369c17cf28904b02c09d61ba81187"


def test_a_result_that_is_short_but_for_its_escapes_is_shown_whole() -> None:
    assert excerpt(part("\x00" * 2_000), "1.0").response == "\x00" * 2_000


def test_parts_of_a_result_put_together_are_the_result() -> None:
    text = "0123456789" * 2_500
    found, offset = "", 0
    while offset < len(text):
        piece = slice_of(text, offset, READ_LIMIT + 1_000)
        assert (piece["offset"], piece["total"]) == (offset, len(text))
        found, offset = found + piece["text"], piece["end"]
    assert found == text
    assert slice_of(text, 10**9, 5) == {"text": "", "offset": len(text), "end": len(text), "total": len(text)}
    assert slice_of(text, 3, 4)["text"] == "3456"


@pytest.mark.parametrize("text", ["", "1", "1.", ".1", "1.2.3", "-1.0", "1.x", "¹.0", "1" * 50 + ".0"])
def test_what_is_no_handle_names_nothing(text: str) -> None:
    assert handle_of(text) is None


def test_a_handle_names_a_message_and_a_place_in_it() -> None:
    assert handle_of(f" {handle(120, 3)} ") == (120, 3)
