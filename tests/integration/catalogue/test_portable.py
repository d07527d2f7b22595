"""A session as a file: what comes back is what was written, to the byte, and what is not whole is refused before anything is kept."""

from __future__ import annotations

import asyncio
import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import (
    Agent,
    Foreign,
    FormatUnknown,
    FunctionModel,
    ImportRefused,
    Message,
    SessionBusy,
    SessionExists,
    SessionNotFound,
    StoreCorrupt,
    Text,
    UsageError,
)
from perdure.runtime import portable
from perdure.runtime.verify import verify
from perdure.testing.faults import Fault

from ..interactive.acting import Place, counting, transcript
from ..runtime.test_verify import AGENT, write_rich_session
from .talking import line, talk
from .test_archive import PLAIN, Charging


class Bomb:
    """A binary stream that tells how much was read of it, and is as long as it is asked for."""

    def __init__(self, head: bytes, length: int) -> None:
        self.head, self.left, self.most = head, length, 0

    def seekable(self) -> bool:
        return True

    def seek(self, place: int, whence: int = 0) -> int:
        assert place == 0
        return 0

    def readline(self, limit: int) -> bytes:
        if self.head:
            head, self.head = self.head, b""
            return head
        assert 0 < limit < 2**26
        self.most = max(self.most, limit)
        taken = min(limit, self.left)
        self.left -= taken
        return b"x" * taken


async def everything(runtime: Any, session: str) -> tuple[Any, ...]:
    """All that is stored, but for the local number and when somebody looks at it."""
    head = await runtime.store.load(session)
    row = head.row
    blobs = [await runtime.store.blob(row.root, digest) for digest in await runtime.store.blobs(row.root)]
    return (
        {name: getattr(row, name) for name in row.__struct_fields__ if name != "no"},
        await runtime.store.entries(row.no),
        await runtime.store.submissions(row.no, after="", limit=1000),
        await runtime.store.effects(row.no),
        blobs,
    )


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, Any]:
    """A rich session as a file, and everything that it was."""
    path = tmp_path_factory.mktemp("portable") / "rich.jsonl"

    async def write() -> Any:
        async with perdure.open("memory://") as runtime:
            await write_rich_session(runtime)
            told = await runtime.sessions.export("rich", path)
            assert told.sessions == ("rich",)
            return await everything(runtime, "rich")

    stored = asyncio.run(write())
    return path.read_bytes(), stored


async def test_an_export_goes_through_what_is_no_file_and_to_where_a_link_leads(place: Place, tmp_path: Path) -> None:
    pipe, link, target = tmp_path / "pipe", tmp_path / "link", tmp_path / "target"
    os.mkfifo(pipe)
    link.symlink_to(target)
    async with place.process() as process:
        await talk(process, "hello")
        reading = asyncio.create_task(asyncio.to_thread(pipe.read_bytes))
        await process.sessions.export("s", pipe)
        await process.sessions.export("s", link)
        assert b"hello" in await reading
        assert b"hello" in target.read_bytes()
        assert pipe.is_fifo()
        assert link.is_symlink()


async def test_an_export_into_a_pipe_that_nobody_reads_ends_with_whoever_waits_for_it(place: Place, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    async def give_up() -> None:
        async with place.process() as process:
            await talk(process, "hello")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0):
                    await process.sessions.export("s", pipe)

    # An event loop ends once none of its threads waits for anything.
    ended = asyncio.ensure_future(asyncio.to_thread(asyncio.run, give_up()))
    try:
        await asyncio.wait([ended], timeout=20)
        assert ended.done()
    finally:
        os.close(os.open(pipe, os.O_RDONLY | os.O_NONBLOCK))
        await ended
    assert pipe.is_fifo()


async def test_a_round_trip_leaves_nothing_out_and_changes_nothing(exported: tuple[bytes, Any], place: Place) -> None:
    data, stored = exported
    async with place.process() as process:
        told = await process.sessions.import_from(io.BytesIO(data))
        assert (told.sessions, told.entries) == (("rich",), len(stored[1]))
        assert await everything(process, "rich") == stored
        assert [str(problem) async for problem in verify(process.store)] == []
        # It is the session that it was: finished work has its stored result, and what waits goes on.
        version = (await process.row("rich")).version
        assert (await process.run(AGENT, "refund", session="rich", submission="mail-1")).ok
        assert (await process.row("rich")).version == version
        again = io.BytesIO()
        await process.sessions.export("rich", again)
        first, *rest = again.getvalue().splitlines()
        assert json.loads(first)["store"] == process.store.store_id
        assert rest[:-1] == data.splitlines()[1:-1]


@pytest.mark.spec("B-A-053")
@pytest.mark.parametrize("name", ["s", "t"], ids=["under its id", "under another"])
async def test_an_edited_session_comes_with_all_its_edits_and_every_revision_that_it_had(place: Place, tmp_path: Path, name: str) -> None:
    held = io.BytesIO()
    elsewhere = Place("memory", tmp_path / "elsewhere.db")
    async with elsewhere.process() as process:
        await talk(process, "hello", "follow up")
        parent = await process.sessions.revision("s")
        await process.sessions.rewrite("s", (1, 2), [Message(role="assistant", parts=(Text("rather"),))], reason="tone", actor="ann")
        await talk(process, "more")
        await process.sessions.restore("s", parent)
        await process.sessions.rewrite("s", (2, 4), [])
        edits = await process.sessions.revisions("s")
        was = {
            item: [line(m) for m in await process.sessions.history("s", revision=item)] for item in (parent, *(e.revision for e in edits))
        }
        await process.sessions.export("s", held)
    async with place.process() as process:
        await process.sessions.import_from(io.BytesIO(held.getvalue()), session_id=None if name == "s" else name)
        there = await process.sessions.revisions(name)
        assert (there.head, [(e.parent, e.revision, e.reason, e.actor, e.restored) for e in there]) == (
            edits.head,
            [(e.parent, e.revision, e.reason, e.actor, e.restored) for e in edits],
        )
        for revision, messages in was.items():
            assert [line(m) for m in await process.sessions.history(name, revision=revision)] == messages
        await process.sessions.restore(name, edits[0].revision)
        await talk(process, "and on", session=name)
        assert [str(problem) async for problem in verify(process.store)] == []


async def test_a_session_that_says_nothing_of_itself_any_more_can_have_another_id(place: Place) -> None:
    async with place.process() as process:
        await process.run(PLAIN, "hello", session="s", submission="m1", metadata={"mail": "ann@example.org"})
        await process.sessions.redact("s", entries=[1])
        held = io.BytesIO()
        await process.sessions.export("s", held)
        await process.sessions.import_from(io.BytesIO(held.getvalue()), session_id="t")
        assert (await process.sessions.info("t")).metadata == {}
        assert (await process.run(PLAIN, "and now?", session="t", submission="m2")).ok
        assert [str(problem) async for problem in verify(process.store)] == []


async def test_an_imported_session_goes_on(exported: tuple[bytes, Any], tmp_path: Path) -> None:
    place = Place("sqlite", tmp_path / "agents.db")
    model, asked = counting("as before")
    async with place.process() as process:
        await process.run(Agent("a", model=model), "hello", session="s", submission="m1")
        await process.sessions.archive("s", submission="x1")
        await process.sessions.export("s", tmp_path / "s.jsonl")
        await process.sessions.delete("s")
        with pytest.raises(SessionExists):
            await process.sessions.import_from(tmp_path / "s.jsonl")
        told = await process.sessions.import_from(tmp_path / "s.jsonl", session_id="t")
        assert told.sessions == ("t",)
        await process.sessions.revive("t")
        assert (await process.run(Agent("a", model=model), "and now?", session="t", submission="m2")).ok
        assert [message.text for message in asked[-1].messages] == ["hello", "as before", "and now?"]
        assert [str(problem) async for problem in verify(process.store)] == []


async def test_under_another_id_the_history_is_the_same_and_the_proof_is_a_new_one(exported: tuple[bytes, Any], place: Place) -> None:
    data, stored = exported
    async with place.process() as process:
        await process.sessions.import_from(io.BytesIO(data))
        before = await process.sessions.checkpoint("rich")
        with pytest.raises(SessionExists):
            await process.sessions.import_from(io.BytesIO(data))
        await process.sessions.import_from(io.BytesIO(data), session_id="copy")
        assert await everything(process, "rich") == stored
        after = await process.sessions.checkpoint("copy")
        assert (after.revision, after.context, after.usage, after.number) == (before.revision, before.context, before.usage, before.number)
        assert await transcript(process, "copy") == await transcript(process, "rich")
        *copied, foreign = await process.sessions.entries("copy")
        assert isinstance(foreign, Foreign)
        assert (foreign.source, foreign.session, foreign.head) == ("perdure", "rich", stored[1][-1].chain.hex())
        assert copied[1:] == (await process.sessions.entries("rich"))[1:]
        row = await process.row("copy")
        assert await process.store.effects(row.no) == stored[3]
        assert await process.store.blobs("copy") == await process.store.blobs("rich")
        assert [str(problem) async for problem in verify(process.store)] == []


def lines(data: bytes) -> list[Any]:
    return [json.loads(line) for line in data.splitlines()]


def joined(rows: list[Any]) -> bytes:
    return b"".join(json.dumps(row, separators=(",", ":")).encode() + b"\n" for row in rows)


def sealed_again(rows: list[Any]) -> bytes:
    """The file with a last line that fits: only the rows themselves can give it away."""
    import hashlib

    counts = {kind: sum(row["type"] == kind for row in rows) for kind in ("submission", "effect", "blob", "session", "entry")}
    rows[0] |= {"sessions": counts["session"], "entries": counts["entry"]}
    body = joined(rows[:-1])
    end = {"type": "end", "submissions": counts["submission"], "effects": counts["effect"], "blobs": counts["blob"]}
    return body + joined([end | {"digest": hashlib.sha256(body).hexdigest()}])


def at(rows: list[Any], kind: str, number: int = 0) -> int:
    return [index for index, row in enumerate(rows) if row["type"] == kind][number]


def change(of: str, nth: int, **values: Any) -> Callable[[list[Any]], None]:
    return lambda rows: rows[at(rows, of, nth)].update(values)


def swap(rows: list[Any]) -> None:
    first = at(rows, "entry", 3)
    rows[first], rows[first + 1] = rows[first + 1], rows[first]


def effects_first(rows: list[Any]) -> None:
    place = at(rows, "effect")
    rows.insert(at(rows, "entry"), rows.pop(place))


def twice(rows: list[Any]) -> None:
    place = at(rows, "blob")
    rows[place:place] = rows[1:place]


DAMAGES: dict[str, Callable[[list[Any]], None]] = {
    "a body was changed": lambda rows: rows[at(rows, "entry", 2)]["body"].update(submission="mail-9"),
    "a chain link was changed": change("entry", 4, chain="00" * 32),
    "an entry's time was changed": change("entry", 4, at=1),
    "a salt was changed": change("entry", 4, salt="00" * 16),
    "a body is missing": change("entry", 4, body=None, salt=None),
    "entries in the wrong order": swap,
    "an entry is missing": lambda rows: rows.pop(at(rows, "entry", 5)),
    "the last entries are missing": lambda rows: rows.pop(at(rows, "entry", -1)),
    "an unknown kind": change("entry", 4, kind="dreamed"),
    "rows in the wrong order": effects_first,
    "an unknown type of line": lambda rows: rows.insert(3, {"type": "wish"}),
    "an unknown field": change("entry", 3, extra=1),
    "a second first line": lambda rows: rows.insert(2, rows[0]),
    "the checkpoint was changed": lambda rows: rows[1]["checkpoint"].update(turns=99),
    "the checkpoint is none": change("session", 0, checkpoint=7),
    "another status": change("session", 0, status="waiting"),
    "a holder's status": change("session", 0, status="running"),
    "another owner": change("session", 0, owner="mallory"),
    "another id": change("session", 0, session_id="else"),
    "an effect forgotten": lambda rows: rows.pop(at(rows, "effect")),
    "an effect made up": change("effect", 0, state="failed"),
    "an effect key that is no base64": change("effect", 0, effect_key="***"),
    "a submission forgotten": lambda rows: rows.pop(at(rows, "submission")),
    "a submission another's": change("submission", 0, actor="mallory"),
    "content changed": lambda rows: rows[at(rows, "piece")].update(data="AAAA"),
    "content forgotten": lambda rows: [rows.pop(at(rows, "piece")), rows.pop(at(rows, "blob"))],
    "content of another digest": change("blob", 0, digest="ab" * 32),
    "a session twice": twice,
    "a version that is none": change("session", 0, version=2**70),
}


@pytest.mark.spec("B-A-085")
@pytest.mark.parametrize("damage", DAMAGES)
async def test_a_file_that_is_not_what_was_written_is_refused_and_nothing_of_it_is_kept(exported: tuple[bytes, Any], damage: str) -> None:
    rows = lines(exported[0])
    assert sealed_again(lines(exported[0])) == exported[0]
    DAMAGES[damage](rows)
    async with perdure.open("memory://") as runtime:
        await runtime.run(PLAIN, "hello", session="other", submission="m1")
        with pytest.raises(ImportRefused) as told:
            await runtime.sessions.import_from(io.BytesIO(sealed_again(rows)))
        assert "nothing was imported" in told.value.hint or told.value.facts.get("line")
        assert [info.session_id for info in await runtime.sessions.list(archived=True)] == ["other"]
        assert await runtime.store.blobs("rich") == []


FORMS: dict[str, Callable[[bytes], bytes]] = {
    "nothing": lambda data: b"",
    "cut in a line": lambda data: data[: len(data) // 2],
    "cut between lines": lambda data: b"\n".join(data.split(b"\n")[:9]) + b"\n",
    "without its last line": lambda data: b"".join(line + b"\n" for line in data.splitlines()[:-1]),
    "more behind the end": lambda data: data + data,
    "UTF-16": lambda data: data.decode().encode("utf-16"),
    "a byte order mark": lambda data: b"\xef\xbb\xbf" + data,
    "Latin-1": lambda data: data.replace(b'"title":"refund"', '"title":"réfund"'.encode("latin-1")),
    "a database": lambda data: b"SQLite format 3\x00" + os.urandom(4096),
    "deep nesting": lambda data: b"[" * 100_000 + b"\n",
    "an array": lambda data: b"[1]\n",
    "empty lines": lambda data: data.replace(b"\n", b"\n\n"),
    "one bit": lambda data: data.replace(b"refund", b"refunt", 1),
}


@pytest.mark.parametrize("form", FORMS)
async def test_what_no_export_looks_like_is_refused(exported: tuple[bytes, Any], form: str, tmp_path: Path) -> None:
    path = tmp_path / "file.jsonl"
    path.write_bytes(FORMS[form](exported[0]))
    async with perdure.open("memory://") as runtime:
        with pytest.raises(ImportRefused):
            await runtime.sessions.import_from(path)
        assert await runtime.sessions.list(archived=True) == []


async def test_a_line_of_a_gigabyte_is_refused_without_being_read(exported: tuple[bytes, Any]) -> None:
    bomb = Bomb(exported[0].splitlines(keepends=True)[0], 2**30)
    async with perdure.open("memory://") as runtime:
        with pytest.raises(ImportRefused, match="line 2: it has more than"):
            await runtime.sessions.import_from(bomb)  # type: ignore[arg-type]
    assert bomb.most == portable.LINE_LIMIT + 1
    assert bomb.left == 2**30 - bomb.most


async def test_a_newer_format_is_not_guessed_at(exported: tuple[bytes, Any]) -> None:
    rows = lines(exported[0])
    rows[0]["format"] = 2
    async with perdure.open("memory://") as runtime:
        with pytest.raises(FormatUnknown):
            await runtime.sessions.import_from(io.BytesIO(sealed_again(rows)))


@pytest.mark.hazard("J-6")
@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE journal SET body = CAST(replace(CAST(body AS TEXT), 'hello', 'jello') AS BLOB) WHERE kind = 'message'",
        "DELETE FROM journal WHERE seq = 4",
        "UPDATE sessions SET checkpoint = CAST(replace(CAST(checkpoint AS TEXT), '\"turns\":1', '\"turns\":2') AS BLOB)",
    ],
    ids=["other words", "a missing entry", "another checkpoint"],
)
async def test_what_no_import_would_take_is_not_written(tmp_path: Path, damage: str) -> None:
    place, target = Place("sqlite", tmp_path / "agents.db"), tmp_path / "s.jsonl"
    async with place.process() as process:
        await process.run(PLAIN, "hello", session="s", submission="m1")
        await process.sessions.export("s", target)
    before = target.read_bytes()
    place.execute(damage)
    async with place.process() as process:
        stored = await process.everything()
        with pytest.raises(StoreCorrupt, match="the session 's' is damaged at"):
            await process.sessions.export("s", target)
        assert await process.everything() == stored
    assert target.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir() if "export" in path.name] == []


async def test_a_session_that_is_worked_on_is_not_written(place: Place, tmp_path: Path) -> None:
    charging = Charging()
    target = tmp_path / "s.jsonl"
    target.write_text("what was there before")
    async with place.process() as process:
        running = asyncio.create_task(process.run(charging.agent, "charge", session="s", submission="m1"))
        await charging.begun.wait()
        with pytest.raises(SessionBusy):
            await process.sessions.export("s", target)
        with pytest.raises(SessionNotFound):
            await process.sessions.export("never", target)
        assert target.read_text() == "what was there before"
        assert [path.name for path in tmp_path.iterdir() if "export" in path.name] == []
        charging.go_on.set()
        await running


async def test_a_session_that_changes_meanwhile_is_written_again_as_one_moment_of_it(place: Place, tmp_path: Path) -> None:
    async with place.process() as other:
        await other.run(PLAIN, "hello", session="s", submission="m1")
        changed = 0

        async def gate(call: Any, when: str) -> None:
            nonlocal changed
            if call.kind == "effects" and when == "before" and changed < 2:
                changed += 1
                await other.sessions.note("s", f"note {changed}")

        async with place.process(gate=gate) as process:
            told = await process.sessions.export("s", tmp_path / "s.jsonl")
        assert changed == 2
        assert told.entries == (await other.row()).version
        stored = await everything(other, "s")
    async with perdure.open("memory://") as runtime:
        await runtime.sessions.import_from(tmp_path / "s.jsonl")
        assert await everything(runtime, "s") == stored


async def test_an_import_that_the_store_fails_leaves_nothing_and_can_be_repeated(exported: tuple[bytes, Any], place: Place) -> None:
    async with place.process(Fault(kind="adopt")) as process:
        with pytest.raises(perdure.StoreBroken):
            await process.sessions.import_from(io.BytesIO(exported[0]))
        assert await process.sessions.list(archived=True) == []
        assert (await process.sessions.import_from(io.BytesIO(exported[0]))).sessions == ("rich",)
        assert await everything(process, "rich") == exported[1]


async def test_two_imports_at_once_are_one(exported: tuple[bytes, Any], place: Place) -> None:
    async with place.process() as process, place.process() as other:
        answers = await asyncio.gather(
            *(one.sessions.import_from(io.BytesIO(exported[0])) for one in (process, other)), return_exceptions=True
        )
        assert sorted(type(answer).__name__ for answer in answers) == ["Imported", "SessionExists"]
        assert await everything(process, "rich") == exported[1]


async def test_only_a_session_alone_can_have_another_id(exported: tuple[bytes, Any]) -> None:
    async with perdure.open("memory://") as runtime:
        for wrong in ("", "\n", "x" * 600):
            with pytest.raises(UsageError):
                await runtime.sessions.import_from(io.BytesIO(exported[0]), session_id=wrong)
        with pytest.raises(FileNotFoundError):
            await runtime.sessions.import_from("/nowhere/at/all")


async def test_content_of_other_sessions_of_the_tree_is_not_given_away(place: Place, tmp_path: Path) -> None:
    async with place.process() as process:
        await process.run(Agent("a", model=FunctionModel(lambda request: "x" * 50_000)), "hello", session="s", submission="m1")
        row = await process.row()
        secret = b"another session's secret"
        await process.store.put_blob(row.root, perdure.store.base.StoredBlob(digest=_sha(secret), media_type="text/plain", data=secret))
        await process.sessions.export("s", tmp_path / "s.jsonl")
        assert _sha(secret) not in (tmp_path / "s.jsonl").read_text()
        assert len(await process.store.blobs(row.root)) > 1


def _sha(data: bytes) -> str:
    import hashlib

    return hashlib.sha256(data).hexdigest()
