"""One commit, one truth: what belongs together is stored together or not at all, and nobody hears of it before."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import apsw
import pytest

import perdure
from perdure import Agent, Entry, MessageAdded, OperationEnded, Reply, SessionOpened, ToolCall, TurnEnded, TurnStarted, tool
from perdure.core import checkpoint as checkpoints
from perdure.core.checkpoint import Checkpoint
from perdure.core.evolve import fold
from perdure.core.journal import open_entry
from perdure.core.phase import phase
from perdure.store.base import Claim, Committed, Stale
from perdure.store.sqlite.database import FORMAT
from perdure.testing import find_problems
from perdure.testing.faults import Call, Fault

from .acting import UNKNOWN, Past, Place, counting, drain, eventually, lived, restarted, told, transcript, until


@tool
async def pay(cents: int) -> str:
    """Pay."""
    return f"paid {cents}"


PAY, PAY_TOO = ToolCall("pay", {"cents": 1}, "call-1"), ToolCall("pay", {"cents": 2}, "call-2")


def payer(*replies: Any, ask: bool = False) -> tuple[Agent, list[Any]]:
    model, asked = counting(*(replies or (Reply(tool_calls=[PAY, PAY_TOO]), Reply("done"))))
    return Agent("payer", model=model, tools=[pay], approve=["pay"] if ask else []), asked


def calls_open(past: Past) -> None:
    past.accept("m-1")
    past.ask_model()
    past.answered(PAY)
    past.plan()


GO = ("m-1", "go", "turn")


@pytest.mark.spec("S2-044")
async def test_a_commit_may_hold_messages_and_no_end_of_a_turn(place: Place) -> None:
    agent, _ = payer()
    past = await lived(place, agent, calls_open, GO)
    assert not any(isinstance(entry, TurnEnded) for entry in past.batch.entries)
    async with place.process() as process:
        assert await process.sessions.entries("s", after=1) == past.batch.entries
        assert await process.sessions.checkpoint("s") == past.checkpoint
        assert [message[0] for message in await transcript(process)] == ["user", "assistant"]


@pytest.mark.spec("S2-041", "S2-047", "B-A-045")
async def test_a_commit_on_a_version_that_is_not_the_stored_one_is_refused_and_changes_nothing(place: Place) -> None:
    agent, _ = payer()
    await lived(place, agent, calls_open, GO)
    async with place.process() as process:
        old, older = await process.batch(), await process.batch()
        old.note("first")
        older.note("second")
        mine = old.commit(holder=None, claim=Claim(runner="a", force=True))
        theirs = older.commit(holder=None, claim=Claim(runner="b", force=True))
        assert isinstance(await process.store.commit(mine), Committed)
        won = await process.everything()
        for late in (theirs, mine):
            answer = await process.store.commit(late)
            assert isinstance(answer, Stale)
            assert (answer.version, answer.fence, answer.holder) == (won[0].version, won[0].fence, "a")
        # A fence that was never given is as bad as an old one.
        from msgspec.structs import replace

        assert isinstance(await process.store.commit(replace(theirs, version=won[0].version, entries=(), checkpoint=None)), Stale)
        assert await process.everything() == won


@pytest.mark.spec("S2-048", "B-A-067")
async def test_a_commit_can_not_rewrite_or_leave_out_what_the_journal_holds(place: Place) -> None:
    from msgspec.structs import replace

    agent, _ = payer()
    await lived(place, agent, calls_open, GO)
    async with place.process() as process:
        before = await process.everything()
        batch = await process.batch()
        batch.note("after")
        commit = batch.commit(holder=None, claim=Claim(runner="a", force=True))
        for entries in (
            (before[1][2], *commit.entries),  # an entry that is there already
            (before[1][-1],),
            tuple(replace(entry, seq=entry.seq + 1) for entry in commit.entries),  # a gap
            (commit.entries[0], commit.entries[0]),
        ):
            with pytest.raises(perdure.UsageError):
                await process.store.commit(replace(commit, entries=entries))
        assert await process.everything() == before


KINDS = ["operation_ended", "message", "operation_planned", "operation_started", "request_opened"]


def written(everything: tuple[Any, ...]) -> tuple[Any, ...]:
    """All of it but who holds the session: what failed lets it go in its own time."""
    row, *rest = everything
    return (row.version, row.fence, row.inbox_head, row.checkpoint, *rest)


@pytest.mark.spec("S2-052", "S2-184", "B-A-003")
@pytest.mark.parametrize("kind", KINDS)
async def test_one_entry_that_can_not_be_written_takes_the_whole_commit_with_it(disk: Place, kind: str) -> None:
    """The commit that holds the answer of the model, its calls and the question about one of them."""
    model, _ = counting(Reply(tool_calls=[PAY, PAY_TOO], text="x" * 40_000))
    agent = Agent("payer", model=model, tools=[pay], approve=["pay"])
    thinking: list[Any] = []

    async def gate(call: Call, when: str) -> None:
        if call.kind == "commit" and call.nth == 2 and when == "before":
            # An approval holds its batch, so the rejected kind of a start can only be that of the next commit.
            thinking.append((await process.everything(), [entry.kind for entry in call.given.entries], call.given))
            number = len(await process.sessions.entries("s"))
            disk.execute(
                f"CREATE TRIGGER reject BEFORE INSERT ON journal WHEN NEW.kind = '{kind}' AND NEW.seq > {number} "
                "BEGIN SELECT RAISE(ABORT, 'rejected'); END"
            )

    async with disk.process(gate=gate) as process:
        await process.sessions.send("s", "go", submission="m-1", agent="payer")
        if kind == "operation_started":
            await process.recover([agent], session="s")
            request = (await process.sessions.requests("s"))[0]
            before = await process.everything()
            await process.sessions.send("s", "and then", submission="m-2")
            await process.sessions.approve("s", request.request_id)
            await process.sessions.approve("s", (await process.sessions.requests("s"))[0].request_id)
            before = await process.everything()
            with pytest.raises(perdure.StoreError):
                await process.recover([agent], session="s")
        else:
            with pytest.raises(perdure.StoreError):
                await process.recover([agent], session="s")
            before, kinds, commit = thinking[0]
            assert kind in kinds
            assert commit.blobs
            assert commit.checkpoint is not None
            assert {"operation_ended", "message", "operation_planned", "request_opened"} <= {*kinds}
        assert written(await process.everything()) == written(before)
        assert await find_problems(process.store, "s") == []


@pytest.mark.spec("S2-053", "B-B-035", "B-B-081")
async def test_an_end_that_can_not_be_written_takes_the_answer_with_it(disk: Place) -> None:
    agent, _ = payer(Reply("the answer"))
    async with disk.process() as process:
        await process.sessions.send("s", "go", submission="m-1", agent="payer")
        disk.execute(
            "CREATE TRIGGER reject BEFORE INSERT ON journal WHEN NEW.kind = 'turn_completed' BEGIN SELECT RAISE(ABORT, 'rejected'); END",
        )
        with pytest.raises(perdure.StoreError):
            await process.recover([agent], session="s")
        assert await process.told() == ["session_created", "turn_started t2", "message user turn", "started t2.0.0#1"]
        assert await transcript(process) == [("user", "go")]
        assert (await process.sessions.checkpoint("s")).usage.calls == 0
        receipt = await process.store.submission((await process.row()).no, "m-1")
        assert receipt is not None
        assert receipt.settled_seq is None
        disk.execute("DROP TRIGGER reject")
        await process.recover([agent], session="s")
        assert await transcript(process) == [("user", "go"), ("assistant", "the answer")]


@pytest.mark.spec("S2-180")
async def test_an_answer_its_calls_the_next_step_and_the_end_of_the_model_call_are_one_commit(place: Place) -> None:
    agent, _ = payer()
    async with place.process() as process:
        await process.run(agent, "go", session="s", submission="m-1")
        (commit,) = [
            commit
            for commit in process.faulty.commits
            if any(isinstance(entry := open_entry(row), OperationEnded) and entry.operation == "t2.0.0" for row in commit.entries)
        ]
        assert [told(open_entry(row)) for row in commit.entries] == [
            *["ended t2.0.0#1 succeeded", "message assistant", "started t2.0.1#1", "started t2.0.2#1"],
        ]
        assert commit.checkpoint is not None
        after = checkpoints.decode(commit.checkpoint)
        assert after.turn is not None
        assert ([item.plan.call for item in after.turn.tools], after.turn.unplanned) == (["call-1", "call-2"], ())
        assert (after.usage.calls, after.number) == (1, 2)
    # And it dies as one: before it there is neither answer nor call.
    here = Place(place.kind, place.path.with_name("again.db"))
    async with here.process(Fault(nth=2, when="before", action="die")) as process:
        with pytest.raises(perdure.StoreError):
            await process.run(agent, "go", session="s", submission="m-1")
    async with here.process() as process:
        assert (await process.told())[-1] == "started t2.0.0#1"
        assert phase(await process.sessions.checkpoint("s")) == "model"


@pytest.mark.spec("S2-194", "B-B-193", "B-B-199")
async def test_a_result_that_can_not_be_committed_leaves_the_call_as_it_was(place: Place) -> None:
    agent, asked = payer(Reply(tool_calls=[PAY]), Reply("done"))
    stored: list[Any] = []

    async def gate(call: Call, when: str) -> None:
        if call.kind == "commit" and call.nth == 3 and when == "before":
            stored.append(await process.everything())
            process.faulty.kill()

    async with place.process(gate=gate) as process:
        with pytest.raises(perdure.StoreBroken):
            await process.run(agent, "go", session="s", submission="m-1")
    async with place.process() as process:
        assert await process.everything() == stored[0]
        checkpoint = await process.sessions.checkpoint("s")
        assert checkpoint.turn is not None
        assert [(item.plan.call, item.status, item.attempt) for item in checkpoint.turn.tools] == [("call-1", "started", 1)]
        assert (checkpoint.turn.tool_calls, checkpoint.usage.calls, checkpoint.turn.step) == (1, 1, 0)
        assert await process.store.effects(1) == []
    async with place.process() as process:
        await restarted(process, agent)
        assert (await transcript(process))[2] == ("tool", ("call-1", UNKNOWN, True))
        assert await find_problems(process.store, "s") == []
    assert len(asked) == 2


@pytest.mark.spec("S2-079", "S2-080", "B-A-010")
@pytest.mark.hazard("J-3", "H10")
async def test_nothing_is_told_before_it_is_durable_nor_after_the_store_failed(place: Place) -> None:
    agent, _ = payer()
    told_early: list[Any] = []
    seen: list[Any] = []

    async def gate(call: Call, when: str) -> None:
        if call.kind == "commit" and when == "before":
            seqs = {entry.seq for entry in call.given.entries}
            told_early.extend(event for event in seen if isinstance(event, Entry) and event.seq in seqs)
            await asyncio.sleep(0)

    async def compare(handle: perdure.Session) -> None:
        async for event in handle.events():
            seen.append(event)
            if isinstance(event, Entry):
                # What is told is what another process reads, at that moment.
                async with place.process() as other:
                    assert (await other.sessions.entries("s", after=event.seq - 1, limit=1))[0] == event

    async with place.process(Fault(nth=4, when="before"), gate=gate) as process, process.session("s", agent) as handle:
        await handle.send("go", submission="m-1")
        with pytest.raises(perdure.StoreBroken):
            await compare(handle)
        entries = await process.sessions.entries("s")
        assert [event for event in seen if isinstance(event, Entry)] == entries
        assert not any(isinstance(entry, TurnEnded) for entry in entries)
        assert not told_early
        more: list[Any] = []
        async with process.session("s") as again:
            watching = asyncio.create_task(drain(again, more))
            await eventually(lambda: more)
        await watching
        assert [type(event) for event in more] == [SessionOpened]


@pytest.mark.spec("S2-061")
@pytest.mark.hazard("H20")
async def test_readers_are_served_while_somebody_else_writes(disk: Place) -> None:
    agent, _ = payer(Reply("done"))
    async with disk.process() as process:
        await process.run(agent, "go", session="s")
        connection = apsw.Connection(str(disk.path))
        try:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("UPDATE sessions SET title = 'not yet'")
            async with asyncio.timeout(5):
                assert len(await process.sessions.history("s")) == 2
                assert (await process.sessions.info("s")).title == "go"
                assert [row.title for row in await process.sessions.list()] == ["go"]
                assert len(await process.sessions.entries("s")) == 7
                async with process.session("s") as handle:
                    assert isinstance(await anext(handle.events()), SessionOpened)
        finally:
            connection.execute("ROLLBACK")
            connection.close()


# ------------------------------------------------------------------------------------------------- states that can't be


@pytest.mark.spec("S2-055")
async def test_a_session_of_newer_rules_and_a_file_of_another_format_are_refused_and_not_touched(disk: Place) -> None:
    """RS-16."""
    agent, asked = payer()
    await lived(disk, agent, calls_open, GO)
    newer = f'"rules":{checkpoints.RULES + 1}'
    disk.execute(f"UPDATE sessions SET checkpoint = CAST(replace(CAST(checkpoint AS TEXT), '\"root\"', '{newer},\"root\"') AS BLOB)")
    async with disk.process() as process:
        before = await process.everything()
        with pytest.raises(perdure.NewerRules):
            await process.recover([agent], session="s")
        with pytest.raises(perdure.NewerRules):
            async with process.session("s", agent):
                pass
        with pytest.raises(perdure.NewerRules):
            await process.run(agent, "more", session="s", submission="m-2")
        with pytest.raises(perdure.NewerRules):
            await process.run(agent, "more", session="s")
        assert await process.everything() == before
    for never in (0, -1):
        with pytest.raises(perdure.StoreCorrupt):
            checkpoints.decode(before[0].checkpoint.replace(newer.encode(), f'"rules":{never}'.encode()))
    for other in (FORMAT + 1, 999, 0, -1):
        disk.execute(f"PRAGMA user_version = {other}", "PRAGMA wal_checkpoint(TRUNCATE)")
        bytes_before = disk.path.read_bytes()
        with pytest.raises(perdure.FormatUnknown):
            async with disk.process():
                pass
        assert disk.path.read_bytes() == bytes_before
    assert not asked


def _mangled(name: str) -> tuple[str, ...]:
    renumber = "UPDATE journal SET seq = 900 WHERE seq = 3"
    return {
        "checkpoint that is no JSON": ("UPDATE sessions SET checkpoint = CAST('{' AS BLOB)",),
        "checkpoint of another session": (
            'UPDATE sessions SET checkpoint = CAST(replace(CAST(checkpoint AS TEXT), \'"session_id":"s"\', \'"session_id":"z"\') AS BLOB)',
        ),
        "checkpoint of another entry": (
            "UPDATE sessions SET checkpoint = CAST(replace(CAST(checkpoint AS TEXT), '\"version\":', '\"version\":1') AS BLOB)",
        ),
        "missing message": ("DELETE FROM journal WHERE seq = 3",),
        "missing receipt": ("DELETE FROM journal WHERE kind = 'operation_ended'",),
        "misnumbered message": (renumber,),
        "body that is no entry": ("UPDATE journal SET body = CAST('{}' AS BLOB) WHERE seq = 3",),
        "message with other words": ("UPDATE journal SET body = CAST(replace(CAST(body AS TEXT), 'go', 'no') AS BLOB) WHERE seq = 3",),
        "message that another's row replaced": ("UPDATE journal SET body = (SELECT body FROM journal WHERE seq = 6) WHERE seq = 3",),
    }[name]


@pytest.mark.spec("S2-054", "B-A-048", "B-B-089")
@pytest.mark.parametrize(
    "name",
    [
        *["checkpoint that is no JSON", "checkpoint of another session", "checkpoint of another entry"],
        *["missing message", "missing receipt", "misnumbered message"],
        *["body that is no entry", "message with other words", "message that another's row replaced"],
    ],
)
async def test_a_session_whose_rows_are_not_what_its_head_says_is_refused_and_halted(disk: Path, name: str) -> None:
    """RS-16."""
    place: Any = disk
    agent, asked = payer(Reply("unreachable"))
    await lived(place, agent, between_steps, GO)
    place.execute(*_mangled(name))
    async with place.process() as process:
        _, journal, inbox, effects, *_ = await process.everything()
        with pytest.raises(perdure.SessionHalted) as refused:
            await process.recover([agent], session="s")
        assert isinstance(refused.value.__cause__, perdure.StoreCorrupt)
        # It is halted, and nothing that it held is another than before.
        after = await process.everything()
        assert after[0].status == "halted"
        assert [entry for entry in after[1] if entry.kind != "halted"] == list(journal)
        assert after[2:4] == (inbox, effects)
        # No other session is harmed.
        assert (await process.run(payer(Reply("fine"))[0], "hello", session="t")).output == "fine"
    assert not asked


def between_steps(past: Past) -> None:
    past.accept("m-1")
    past.step(PAY, "paid")


@pytest.mark.spec("S2-057")
@pytest.mark.parametrize("stray", ["operations", "unplanned", "request", "step"])
def test_a_checkpoint_with_work_and_no_turn_can_not_be_read(stray: str) -> None:
    """Whatever a turn has open stands inside it, so that nothing can be open without one."""
    sound = checkpoints.encode(Checkpoint(session_id="s", root="s"))
    assert checkpoints.decode(sound).turn is None
    with pytest.raises(perdure.StoreCorrupt):
        checkpoints.decode(sound.replace(b'{"', f'{{"{stray}":[],"'.encode(), 1))


@pytest.mark.spec("S2-056", "S0-105")
async def test_a_checkpoint_that_is_completing_with_something_open_is_refused_and_never_written(place: Place) -> None:
    from msgspec.structs import replace

    agent, _ = payer(Reply("done"))
    past = await lived(place, agent, calls_open, GO)
    turn = past.turn
    assert turn.tools
    sound = checkpoints.encode(past.checkpoint)
    assert checkpoints.decode(sound) == past.checkpoint
    with pytest.raises(perdure.StoreCorrupt, match="completing"):
        checkpoints.decode(checkpoints.encode(replace(past.checkpoint, turn=replace(turn, completing=True))))
    # Of a whole turn, no state in between is one.
    async with place.process() as process:
        await process.recover([agent])
        entries = await process.sessions.entries("s")
        states = [fold(entries[:length]) for length in range(1, len(entries) + 1)]
        assert any(state.turn is not None and state.turn.completing for state in states)
        for state in states:
            if state.turn is not None and state.turn.completing:
                assert (state.turn.operations, state.turn.unplanned, state.turn.requests) == ((), (), ())


@pytest.mark.spec("S2-058", "S0-092", "S0-094")
async def test_a_turns_end_is_stored_with_an_idle_checkpoint_of_the_same_session(place: Place) -> None:
    agent, _ = payer(Reply("one"), Reply("two"))
    async with place.process() as process:
        for session in ("s", "t"):
            await process.sessions.send(session, "go", submission="m-1", agent="payer")
            await process.sessions.send(session, "again", submission="m-2")
        await process.recover([agent])
        ends = 0
        for commit in process.faulty.commits:
            entries = [open_entry(row) for row in commit.entries]
            for entry in entries:
                if isinstance(entry, TurnEnded):
                    ends += 1
                    assert commit.checkpoint is not None
                    after = checkpoints.decode(commit.checkpoint)
                    begun = [later for later in entries if isinstance(later, TurnStarted) and later.seq > entry.seq]
                    running = after.turn.id if after.turn is not None else None
                    assert running == (begun[0].turn if begun else None)
                    assert after.version == entries[-1].seq
                    # Nobody holds a session in which nothing is left to do, from that very commit on.
                    assert commit.release == (not begun)
        assert ends == 4
        for session in ("s", "t"):
            checkpoint = await process.sessions.checkpoint(session)
            assert (checkpoint.session_id, checkpoint.turn, checkpoint.turns) == (session, None, 2)
            journal = await process.sessions.entries(session)
            for index, entry in enumerate(journal):
                if isinstance(entry, TurnEnded):
                    turn = fold(journal[:index]).turn
                    assert turn is not None
                    assert (turn.id, turn.submission) == (entry.turn, entry.submission)
                    assert fold(journal[: index + 1]).turn is None


@pytest.mark.spec("B-B-054")
async def test_what_a_message_says_is_what_was_sent(place: Place) -> None:
    agent, _ = payer(Reply("done"))
    async with place.process() as process, process.session("s", agent) as handle:
        name = " M-1/ü: {} "
        await handle.send("go", submission=name)
        seen = await until(handle)
        (message,) = [event for event in seen if isinstance(event, MessageAdded) and event.role == "user"]
        assert (message.submission, message.deliver) == (name, "turn")
        assert [event.submission for event in seen if isinstance(event, TurnStarted | TurnEnded)] == [name, name]
