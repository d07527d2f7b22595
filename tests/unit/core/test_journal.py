"""The stored form of entries and checkpoints: sealed, chained, limited, refused where they are not understood."""

from __future__ import annotations

import hashlib
import re
import sys
import types
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import story
from msgspec.structs import replace
from story import Story, call, lines, planned

from perdure.core import canonical, commands, entries
from perdure.core import checkpoint as checkpoints
from perdure.core.checkpoint import Checkpoint
from perdure.core.decider import apply
from perdure.core.draft import Draft
from perdure.core.entries import Entry, MessageAdded, NoteAdded, Rebased, SessionCreated, TurnCompleted
from perdure.core.errors import CheckpointTooLarge, FormatUnknown, LimitExceeded, NewerRules, Refused, StoreCorrupt
from perdure.core.evolve import evolve, fold
from perdure.core.journal import BODY_LIMIT, GENESIS, Sealed, body_digest, link, open_entry, seal
from perdure.core.messages import TITLE_LENGTH, Text
from perdure.core.records import ALL_TOOLS, EffectMatch, Plan
from perdure.core.reports import Finish

SALT = b"0123456789abcdef"


def sealed(written: list[Entry], session_id: str = "s1") -> list[Sealed]:
    chain, rows = GENESIS, []
    for entry in written:
        rows.append(seal(entry, chain=chain, session_id=session_id, salt=SALT))
        chain = rows[-1].chain
    return rows


def intact(rows: list[Sealed], session_id: str = "s1") -> bool:
    """What a verifier checks, from the design's formula and nothing else."""
    chain = GENESIS
    for place, row in enumerate(rows):
        header = canonical.encode([session_id, row.seq, row.number, row.kind, row.at])
        chain = hashlib.sha256(chain + header + row.body_digest).digest()
        if chain != row.chain or row.seq != place + 1:
            return False
        if row.body is not None and hashlib.sha256((row.salt or b"") + row.body).digest() != row.body_digest:
            return False
    return True


def told() -> Story:
    s = story.completing()
    s.do(Finish(at=s.now()))
    return s


def test_a_sealed_entry_is_opened_as_it_was() -> None:
    s = told()

    assert [open_entry(row) for row in sealed(s.entries)] == s.entries


def test_the_body_holds_what_the_header_does_not() -> None:
    row = sealed(told().entries)[1]

    assert row.body is not None
    body = canonical.decode(row.body)
    assert {"submission", "agent", "definition"} <= set(body)
    assert not {"seq", "number", "kind", "at"} & set(body)
    assert (row.seq, row.number, row.kind) == (2, 0, "turn_started")


def test_an_untouched_journal_is_intact() -> None:
    assert intact(sealed(told().entries))


@pytest.mark.parametrize("field", Sealed.__struct_fields__)
@pytest.mark.parametrize("place", [0, 3, 6])
def test_any_changed_field_of_any_row_breaks_the_chain(field: str, place: int) -> None:
    rows = sealed(told().entries)
    row = rows[place]
    value: Any = getattr(row, field)
    changed = value + 1 if isinstance(value, int) else value + "x" if isinstance(value, str) else value[:-1] + bytes([value[-1] ^ 1])

    rows[place] = replace(row, **{field: changed})

    assert not intact(rows)


@pytest.mark.parametrize("change", ["removed", "swapped", "doubled", "of another session"])
def test_rows_can_not_be_moved_or_left_out(change: str) -> None:
    rows = sealed(told().entries)
    match change:
        case "removed":
            del rows[2]
        case "swapped":
            rows[2], rows[3] = rows[3], rows[2]
        case "doubled":
            rows.insert(2, rows[2])
        case _:
            assert not intact(rows, "s2")
            return
    assert not intact(rows)


def test_a_redacted_row_leaves_the_chain_intact_and_can_not_be_read() -> None:
    rows = sealed(told().entries)
    rows[2] = replace(rows[2], body=None, salt=None)

    assert intact(rows)
    with pytest.raises(StoreCorrupt, match="entry 3 has no body"):
        open_entry(rows[2])


def test_a_salt_keeps_equal_bodies_from_being_recognised() -> None:
    assert body_digest(SALT, b"{}") != body_digest(b"another salt 16b", b"{}")
    assert link(GENESIS, "s1", 1, 0, "message", 5, b"d") != link(GENESIS, "s1", 1, 0, "message", 6, b"d")


def test_a_body_has_at_most_one_mebibyte() -> None:
    overhead = len(entries.encode(NoteAdded(text="")))
    longest = NoteAdded(text="x" * (BODY_LIMIT - overhead), seq=1, at=1)

    assert len(seal(longest, chain=GENESIS, session_id="s1", salt=SALT).body or b"") == BODY_LIMIT
    with pytest.raises(LimitExceeded, match=f"has {BODY_LIMIT + 1} bytes; at most {BODY_LIMIT}") as refused:
        seal(replace(longest, text=longest.text + "x"), chain=GENESIS, session_id="s1", salt=SALT)
    assert refused.value.facts == {"limit": "entry_body"}


# ----------------------------------------------------------------------------------------------------- what is not understood


@pytest.mark.spec("S0-216")
def test_an_entry_of_an_unknown_kind_is_refused() -> None:
    row = replace(sealed(told().entries)[1], kind="teleported")

    with pytest.raises(FormatUnknown, match="'teleported'") as refused:
        open_entry(row)
    assert "upgrade" in refused.value.hint


@pytest.mark.spec("S0-215", "S0-216", "S0-106")
@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b'{"submission":1}', b'{"unknown":1}', b'{"submission":"\xff"}', b"{}"])
def test_bytes_that_are_no_entry_of_their_kind_are_corrupt(body: bytes) -> None:
    row = replace(sealed(told().entries)[1], body=body, body_digest=body_digest(SALT, body))

    with pytest.raises(StoreCorrupt, match="entry 2 can't be read"):
        open_entry(row)


def test_a_request_of_an_unknown_kind_is_corrupt() -> None:
    asked = story.waiting().entries[-1]
    row = seal(asked, chain=GENESIS, session_id="s1", salt=SALT)
    assert row.body is not None

    body = row.body.replace(b'"approval"', b'"telepathy"')
    with pytest.raises(StoreCorrupt, match="can't be read"):
        open_entry(replace(row, body=body, body_digest=body_digest(SALT, body)))


def test_a_body_that_is_not_what_was_written_is_not_read() -> None:
    first, second = sealed(told().entries)[1:3]

    with pytest.raises(StoreCorrupt, match="entry 2 is not what was written"):
        open_entry(replace(first, body=second.body))


@pytest.mark.spec("S0-106", "S0-112")
@pytest.mark.parametrize(
    ("field", "fits"),
    [
        (b'"memory":3', True),
        *((b'"memory":' + number, False) for number in (b"true", b"1.5", b'"1"', b"null")),
        (b'"unheard_of":3', False),
    ],
)
def test_a_field_that_nobody_knows_and_a_number_that_is_none_make_an_entry_corrupt(field: bytes, fits: bool) -> None:
    body = b'{"agent":"a","definition":"d",%b,"submission":"m"}' % field
    row = replace(sealed(told().entries)[1], body=body, body_digest=body_digest(SALT, body))

    with nullcontext() if fits else pytest.raises(StoreCorrupt, match="entry 2 can't be read"):
        open_entry(row)


@pytest.mark.spec("S0-093")
def test_a_turn_that_would_end_with_open_calls_is_corrupt() -> None:
    s = story.tools()
    assert s.checkpoint.turn is not None
    impossible = replace(s.checkpoint, turn=replace(s.checkpoint.turn, completing=True))

    with pytest.raises(StoreCorrupt, match="is completing while something of it is open"):
        checkpoints.decode(checkpoints.encode(impossible))


@pytest.mark.spec("B-A-107")
@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b'{"version":"1"}', b'{"unknown":1}', b'{"title":"\xff"}', b'{"turn":{}}', b'{"tools":{"never":7}}']
)
def test_bytes_that_are_no_checkpoint_are_corrupt(data: bytes) -> None:
    assert checkpoints.decode(b"{}").tools == ALL_TOOLS
    with pytest.raises(StoreCorrupt, match="the checkpoint can't be read"):
        checkpoints.decode(data)


@pytest.mark.spec("B-A-051")
@pytest.mark.parametrize(
    ("counter", "value"),
    [("number", -1), ("number", 99), ("number", 2**70), ("version", -1), ("version", 2**70), ("base", -1), ("base", 99), ("tail", 2)],
)
def test_a_checkpoint_whose_counters_no_journal_can_have_is_corrupt(counter: str, value: int) -> None:
    sound = checkpoints.encode(Checkpoint(session_id="s", version=6, number=1, transcript=checkpoints.Place(base=2, count=1, tail=1)))
    assert checkpoints.decode(sound).number == 1
    there = re.compile(rb'"%b":\d+' % counter.encode())
    with pytest.raises(StoreCorrupt, match="the checkpoint counts"):
        checkpoints.decode(there.sub(b'"%b":%d' % (counter.encode(), value), sound))


def test_a_submission_of_an_unknown_kind_is_refused() -> None:
    with pytest.raises(FormatUnknown, match="'teleport'"):
        commands.decode("teleport", b"{}", submission="a", at=1, actor="")


# ----------------------------------------------------------------------------------------------------------------- commands


@pytest.mark.parametrize(
    "command",
    [
        commands.PostMessage(parts=(Text(content="hi"),), deliver="steer", author="bob"),
        commands.Interrupt(turn="t2", reason="enough"),
        commands.Answer(request_id="r", decision="approve", arguments={}),
        commands.Answer(request_id="r", decision="settle", result={"a": 1}, is_error=True),
        commands.ReportResult(operation="t2.0.1", attempt=1, result=None),
    ],
    ids=lambda command: command.kind,
)
def test_a_command_is_read_back_from_its_row(command: commands.Command) -> None:
    sent = replace(command, submission="s-1", at=5, actor="ann")

    assert commands.decode(sent.kind, commands.encode(sent), submission="s-1", at=5, actor="ann") == sent


def test_who_sent_a_command_and_when_is_not_part_of_what_it_is() -> None:
    first = commands.Interrupt(turn="t2", submission="a", at=1, actor="ann")
    second = commands.Interrupt(turn="t2", submission="b", at=2, actor="bob")

    assert commands.digest(first) == commands.digest(second)
    assert commands.digest(first) != commands.digest(replace(first, turn="t3"))


def test_commands_of_two_kinds_are_never_the_same() -> None:
    digests = {
        commands.digest(commands.Interrupt()),
        commands.digest(commands.PostMessage(parts=())),
        commands.digest(commands.Answer(request_id="", decision="deny")),
    }

    assert len(digests) == 3


# --------------------------------------------------------------------------------------------------------------- checkpoints


def _step_of(count: int, name: str, **facts: Any) -> Story:
    calls = [call(f"call_{index:024d}", name) for index in range(count)]
    s = story.unplanned(*calls)
    s.plans(*(planned(item, **facts) for item in calls))
    return s


def test_the_checkpoint_of_an_ordinary_step_is_small() -> None:
    assert len(checkpoints.encode(_step_of(8, "search_the_whole_company", effect_key="a" * 64).checkpoint)) <= 8 * 1024


def _fits(s: Story) -> None:
    data = checkpoints.encode(s.checkpoint)
    assert len(data) <= checkpoints.SIZE_LIMIT
    assert checkpoints.decode(data) == s.checkpoint


@pytest.mark.parametrize("name", ["refund", "search_the_whole_company_wiki_and_mail"])
@pytest.mark.parametrize("facts", [{}, {"ask_when_uncertain": True}, {"reconcile": True}, {"exclusive": True}], ids=str)
def test_a_step_of_as_many_calls_as_are_allowed_fits_whatever_becomes_of_them(name: str, facts: dict[str, Any]) -> None:
    """What was started must be able to end: a receipt that the checkpoint had no room for would be lost."""
    s = _step_of(checkpoints.CALLS_LIMIT, name, effect_key="a" * 64, **facts)
    _fits(s)
    s.do(s.claim())
    _fits(s)
    while s.phase in ("tools", "waiting"):
        assert s.checkpoint.turn is not None
        for index, item in enumerate(s.checkpoint.turn.tools):
            if item.status == "asking":
                s.do(s.answer(item.id, "settle", result="told"))
            elif item.status == "unknown":
                s.do(s.reconciled(item.id, "done"))
            elif item.status == "started":
                s.tool_ends(item.id)
            if index % 16 == 0:
                _fits(s)
        if s.phase == "tools":
            s.starts()
    assert "message" in {entry.kind for entry in s.entries[-2:]}, "every call has its response"


def test_a_step_of_as_many_approvals_as_are_allowed_fits() -> None:
    name = "search_the_whole_company_wiki_and_mail"
    calls = [call(f"call_{index:024d}", name) for index in range(checkpoints.CALLS_LIMIT)]
    s = story.unplanned(*calls)
    s.plans(*(planned(item, verdict="ask", deadline=1_800_000_000_000, effect_key="a" * 64) for item in calls))
    _fits(s)
    for index, _ in enumerate(calls, 1):
        s.do(s.answer(f"t2.0.{index}", "approve", arguments={"n": index}))
        if index % 16 == 0:
            _fits(s)
    s.starts()
    _fits(s)


def test_of_a_call_that_ended_only_its_name_and_its_receipt_are_kept() -> None:
    s = story.batch(planned(call("c1"), effect_key="a" * 64, reconcile=True), planned(call("c2")))
    s.tool_ends("t2.0.1")

    item = s.operation("t2.0.1")
    assert item.plan == Plan(kind="tool", name="refund", call="c1")
    assert (item.status, item.receipt) == ("ended", s.checkpoint.version)


def test_a_checkpoint_beyond_its_limit_is_refused_by_name() -> None:
    s = _step_of(checkpoints.CALLS_LIMIT, "a_name_that_is_" + "very_" * 60 + "long")

    with pytest.raises(CheckpointTooLarge, match="at most 49152 are kept") as refused:
        checkpoints.encode(s.checkpoint)
    assert isinstance(refused.value, LimitExceeded)
    assert refused.value.facts == {"limit": "checkpoint"}


def test_a_checkpoint_has_at_most_48_kib() -> None:
    overhead = len(checkpoints.encode(Checkpoint(title="x"))) - 1

    assert len(checkpoints.encode(Checkpoint(title="x" * (48 * 1024 - overhead)))) == 48 * 1024
    with pytest.raises(CheckpointTooLarge):
        checkpoints.encode(Checkpoint(title="x" * (48 * 1024 - overhead + 1)))


def test_a_checkpoint_holds_no_content() -> None:
    s = Story()
    # The first words of the first message are the session's title.
    s.says("t" * TITLE_LENGTH + " a secret question")
    s.steps()
    s.model_ends(Text(content="a secret answer"), call("c1", note="a secret argument"))
    s.plans(planned(call("c1", note="a secret argument"), effect_key="a" * 64))

    assert b"secret" not in checkpoints.encode(s.checkpoint)


def test_a_checkpoint_does_not_grow_with_its_history() -> None:
    s = Story()
    sizes = []
    for turn in range(40):
        s.says(submission=f"m{turn}")
        s.steps()
        s.model_ends(Text(content="so"))
        s.do(Finish(at=s.now()))
        sizes.append(len(checkpoints.encode(s.checkpoint)))

    assert max(sizes) - min(sizes) < 32, "counters may become longer, nothing else"


# --------------------------------------------------------------------------------------------------------------------- rules


@pytest.fixture
def newer(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(checkpoints, "RULES", checkpoints.RULES + 1)
    return checkpoints.RULES


def test_the_first_write_of_newer_rules_on_an_older_session_says_so_and_folding_starts_there(newer: int) -> None:
    older = replace(story.model().checkpoint, rules=newer - 1)
    draft = Draft(older)

    draft.write(NoteAdded(text="one"), 5000)
    draft.write(NoteAdded(text="two"), 5000)

    assert lines(draft.entries) == [f"rebased {newer - 1} → {newer}", "note_added", "note_added"]
    rebased = draft.entries[0]
    assert isinstance(rebased, Rebased)
    assert (rebased.old, rebased.new, rebased.seq) == (newer - 1, newer, older.version + 1)
    assert draft.checkpoint.rules == newer
    assert fold(draft.entries) == draft.checkpoint, "what stands before is not needed"
    assert fold(draft.entries[:1]) == replace(older, rules=newer, version=rebased.seq, number=rebased.number, at=rebased.at)


def test_a_rebased_session_goes_on_where_it_was(newer: int) -> None:
    s = story.model()
    s.checkpoint = checkpoints.decode(checkpoints.encode(replace(s.checkpoint, rules=newer - 1)))

    written = s.model_ends(Text(content="hi"))

    assert lines(written) == [f"rebased {newer - 1} → {newer}", "operation_ended t2.0.0#1 succeeded", "message assistant → 6"]
    assert lines(s.do(Finish(at=s.now()))) == ["turn_completed t2"]
    read = [entries.decode(entry.kind, entries.encode(entry), seq=entry.seq, number=entry.number, at=entry.at) for entry in s.entries]
    assert fold(read[4:]) == s.checkpoint


def test_a_refused_command_does_not_rebase(newer: int) -> None:
    draft = Draft(replace(story.idle().checkpoint, rules=newer - 1))
    with pytest.raises(Refused):
        apply(draft, commands.Interrupt(at=1))

    assert draft.entries == []


def test_a_checkpoint_that_was_written_before_rules_changed_is_known_to_be_older(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = checkpoints.encode(story.model().checkpoint)

    monkeypatch.setattr(checkpoints, "RULES", checkpoints.RULES + 1)

    assert checkpoints.decode(stored).rules == checkpoints.RULES - 1


def test_a_session_that_newer_rules_created_is_refused_by_older_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    known = checkpoints.RULES
    monkeypatch.setattr(checkpoints, "RULES", known + 1)
    stored = checkpoints.encode(story.model().checkpoint)
    monkeypatch.setattr(checkpoints, "RULES", known)

    with pytest.raises(NewerRules, match=f"follows rules {known + 1}; this process knows {known}"):
        checkpoints.decode(stored)


def test_a_session_that_newer_rules_wrote_last_is_refused_by_older_ones() -> None:
    stored = checkpoints.encode(replace(story.model().checkpoint, rules=checkpoints.RULES + 1))

    with pytest.raises(NewerRules):
        checkpoints.decode(stored)


def test_newer_rules_are_refused_before_anything_else_is_read() -> None:
    with pytest.raises(NewerRules):
        checkpoints.decode(b'{"rules":99,"a_field_of_the_future":1}')


@pytest.fixture
def next_version(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """The module of checkpoints as the next version will have it: the same source, with the number of its rules raised."""
    source = Path(checkpoints.__file__).read_text(encoding="utf-8")
    number = f"\nRULES = {checkpoints.RULES}\n"
    assert source.count(number) == 1
    module = types.ModuleType("perdure.core.checkpoint_of_the_next_version")
    module.__dict__["__package__"] = "perdure.core"
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(compile(source.replace(number, f"\nRULES = {checkpoints.RULES + 1}\n"), module.__name__, "exec"), module.__dict__)
    return module


def test_the_next_version_knows_an_old_checkpoint_as_old(next_version: types.ModuleType) -> None:
    """A default that follows RULES would make an old checkpoint claim to be new, and never be rebased."""
    stored = checkpoints.encode(story.model().checkpoint)

    assert next_version.decode(stored).rules == checkpoints.RULES


def test_this_version_knows_a_checkpoint_of_the_next_as_new(next_version: types.ModuleType) -> None:
    """A default that follows RULES would make a new checkpoint look old, and be changed by who doesn't understand it."""
    stored = next_version.encode(next_version.Checkpoint(rules=next_version.RULES, session_id="s"))

    with pytest.raises(NewerRules):
        checkpoints.decode(stored)


def test_a_session_is_created_under_the_rules_of_its_process() -> None:
    created = SessionCreated(session_id="s", root="s", seq=1, at=1)

    assert evolve(Checkpoint(), created).rules == checkpoints.RULES


# ------------------------------------------------------------------------------------------------------------------- entries


def test_every_kind_has_one_name_and_one_body() -> None:
    assert all(shape.kind == kind for kind in entries.KINDS for shape in entries.shapes(kind))
    assert len({shape for kind in entries.KINDS for shape in entries.shapes(kind)}) == len(entries.KINDS) + 2, "requests have three"


def test_an_entry_is_frozen() -> None:
    with pytest.raises(AttributeError):
        story.idle().entries[0].seq = 5  # type: ignore[misc]


def test_a_body_leaves_out_what_is_as_usual() -> None:
    completed = told().entries[-1]
    assert isinstance(completed, TurnCompleted)

    assert set(canonical.decode(entries.encode(completed))) == {"turn", "submission", "steps", "usage", "output"}


def test_a_match_is_stored_with_the_request_and_with_the_plan() -> None:
    match = EffectMatch(operation="t1.0.1", seq=5, state="uncertain")
    planned_entry, asked = story.waiting(match=match).entries[-2:]

    for entry in (planned_entry, asked):
        read = entries.decode(entry.kind, entries.encode(entry), seq=entry.seq, number=entry.number, at=entry.at)
        assert read == entry


def test_message_numbers_count_messages_up_to_and_including_the_entry() -> None:
    s = told()

    assert [entry.number for entry in s.entries if isinstance(entry, MessageAdded)] == [1, 2]
