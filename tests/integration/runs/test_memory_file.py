"""The copy of a memory in a directory: whole or not there, for its owner alone, never outside, and never in the way of a turn."""

from __future__ import annotations

import json
import os
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from perdure import HookFailed
from perdure.runtime import memory_file
from perdure.runtime.memory_file import MemoryFile, scope_of
from perdure.testing.faults import Fault, ProcessDied
from tests.integration.interactive.acting import Place, until

from .test_session_memory import EAGER, Talker, facts, remembered


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("session", ["s", "ticket-42", "a.b_c-d", "0", "Ab9"])
def test_a_plain_id_is_its_own_name(session: str) -> None:
    assert scope_of(session) == session


def test_every_other_id_has_a_name_of_its_own_that_is_safe_to_use() -> None:
    odd = [
        "a/b",
        "a_b/",
        "a b",
        "..",
        ".",
        "../../etc",
        "",
        ".hidden",
        "-rf",
        "ä",
        "Ä",
        "a\0b",
        "x" * 500,
        "y" * 500,
        "日本",
        "a:b",
        "a\\b",
    ]
    names = [scope_of(session) for session in odd]

    assert len(set(names)) == len(names)
    for name in names:
        assert name == os.path.basename(name)
        assert name not in (".", "..")
        assert not name.startswith((".", "-"))
        assert len(name.encode()) <= 255
    # An id that looks like the name of another one is not taken for it.
    assert scope_of(scope_of("a/b")) != scope_of("a/b")


@pytest.mark.spec("S0-251")
def test_it_is_replaced_at_once_for_its_owner_alone_and_left_as_it_is_if_it_is_right(workspace: Path) -> None:
    file = MemoryFile(workspace, ".memory/session", "s")
    file.write(b"one")
    path = Path(file.path)
    assert path == workspace / ".memory/session/s/session_memory.json"
    assert (path.read_bytes(), mode(path)) == (b"one", 0o600)
    assert {mode(directory) for directory in (path.parent, path.parent.parent, workspace / ".memory")} == {0o700}

    with path.open("rb") as reader:
        file.write(b"two")
        # Who had it open goes on reading what it was.
        assert reader.read() == b"one"
    before = path.stat()
    file.write(b"two")
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    path.chmod(0o644)
    file.write(b"two")
    assert mode(path) == 0o600
    assert [item.name for item in path.parent.iterdir()] == ["session_memory.json"]


@pytest.mark.spec("S0-251")
@pytest.mark.parametrize("step", ["fsync", "rename"])
def test_a_write_that_fails_leaves_the_old_content_and_nothing_else(workspace: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    file = MemoryFile(workspace, ".memory/session", "s")
    file.write(b"one")

    def fails(*args: Any, **options: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(memory_file.os, step, fails)
        with pytest.raises(OSError, match="No space"):
            file.write(b"two")
    path = Path(file.path)
    assert path.read_bytes() == b"one"
    assert [item.name for item in path.parent.iterdir()] == ["session_memory.json"]


def test_what_a_killed_writer_left_is_swept_away(workspace: Path) -> None:
    file = MemoryFile(workspace, ".memory/session", "s")
    file.write(b"one")
    left = Path(file.path).with_name(f".session_memory-{'0' * 16}.tmp")
    left.write_bytes(b"half")
    other = Path(file.path).with_name("notes.tmp")
    other.write_bytes(b"somebody's")
    file.write(b"two")
    assert not left.exists()
    assert other.exists()


@pytest.mark.spec("S0-249")
@pytest.mark.parametrize("link", [".memory", ".memory/session", ".memory/session/s"])
def test_a_link_on_the_way_is_not_followed(workspace: Path, tmp_path: Path, link: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    path = workspace / link
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(outside, target_is_directory=True)
    with pytest.raises(NotADirectoryError):
        MemoryFile(workspace, ".memory/session", "s").write(b"one")
    assert [*outside.iterdir()] == []


def test_a_link_in_its_place_is_replaced_and_not_written_through(workspace: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"mine")
    directory = workspace / ".memory/session/s"
    directory.mkdir(parents=True)
    (directory / "session_memory.json").symlink_to(victim)
    MemoryFile(workspace, ".memory/session", "s").write(b"one")
    assert victim.read_bytes() == b"mine"
    assert not (directory / "session_memory.json").is_symlink()


def test_a_workspace_may_itself_be_a_link(workspace: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(workspace, target_is_directory=True)
    MemoryFile(tmp_path / "link", ".memory/session", "s").write(b"one")
    assert (workspace / ".memory/session/s/session_memory.json").read_bytes() == b"one"


# -------------------------------------------------------------------------------------------------------------- in a session


def read(workspace: Path, session: str = "s") -> list[str]:
    path = workspace / ".memory/session" / scope_of(session) / "session_memory.json"
    return [fact["content"] for fact in json.loads(path.read_bytes())["entries"]]


async def test_it_is_there_before_the_turns_model_is_asked_and_when_the_turn_is_over(place: Place, workspace: Path) -> None:
    seen: list[list[str]] = []

    def answer(request: Any) -> str:
        seen.append(read(workspace))
        return "ok"

    talker = Talker(answer, memory=facts("x"))
    async with place.process() as process:
        await process.run(talker.agent(replace(EAGER, workspace=workspace)), "Hi.", session="s", submission="m")
        assert seen == [["x"]]
        assert read(workspace) == ["x"]


async def test_one_that_was_lost_is_written_again_by_the_next_turn_that_learns_nothing(place: Place, workspace: Path) -> None:
    talker = Talker(memory=facts("x"))
    agent = talker.agent(replace(EAGER, workspace=workspace, growth_ratio=1_000))
    async with place.process() as process:
        await process.run(agent, "Hi.", session="s", submission="m1")
        path = workspace / ".memory/session/s/session_memory.json"
        content = path.read_bytes()
        for spoil in (path.unlink, lambda: path.write_text("{"), lambda: path.write_bytes(b"\xff" * len(content))):
            spoil()
            await process.run(agent, "Again.", session="s", submission=f"m{spoil}")
            assert path.read_bytes() == content
        assert talker.purposes().count("memory") == 1


@pytest.mark.parametrize("nth", [2, 3, 4])
@pytest.mark.parametrize("when", ["before", "after"])
async def test_wherever_the_process_dies_the_copy_is_right_when_the_turn_is_over(
    place: Place, workspace: Path, nth: int, when: Any
) -> None:
    talker = Talker(memory=facts("x"))
    agent = talker.agent(replace(EAGER, workspace=workspace))
    async with place.process(Fault(nth=nth, when=when, action="die")) as process:
        with pytest.raises(ProcessDied):
            await process.run(agent, "Hi.", session="s", submission="m")
    async with place.process() as process:
        assert (await process.run(agent, "Hi.", session="s", submission="m")).ok
        assert read(workspace) == await remembered(process) == ["x"]


async def test_sessions_have_files_of_their_own_whatever_they_are_called(place: Place, workspace: Path) -> None:
    talker = Talker(memory=lambda request: facts("a" if "slash" in request.messages[0].text else "b"))
    agent = talker.agent(replace(EAGER, workspace=workspace))
    async with place.process() as process:
        await process.run(agent, "slash", session="a/b", submission="m1")
        await process.run(agent, "underscore", session="a_b", submission="m2")
        await process.run(agent, "dots", session="../../../x", submission="m3")
        assert (read(workspace, "a/b"), read(workspace, "a_b")) == (["a"], ["b"])
        assert {path.parent.parent for path in workspace.rglob("*.json")} == {workspace / ".memory/session"}
        assert [item.name for item in workspace.parent.iterdir() if item.name == "x"] == []


@pytest.mark.parametrize("obstacle", ["a file in the way", "no workspace", "a link out"])
async def test_one_that_can_not_be_written_is_told_and_ends_no_turn(place: Place, workspace: Path, tmp_path: Path, obstacle: str) -> None:
    if obstacle == "a file in the way":
        (workspace / ".memory").write_text("mine")
    elif obstacle == "a link out":
        (workspace / ".memory").symlink_to(tmp_path, target_is_directory=True)
    else:
        workspace = workspace / "missing"
    talker = Talker(memory=facts("x"))
    async with place.process() as process:
        async with process.session("s", talker.agent(replace(EAGER, workspace=workspace))) as handle:
            await handle.send("Hi.", submission="m")
            events = await until(handle)
        told = [event for event in events if isinstance(event, HookFailed)]
        assert {(event.extension, event.hook) for event in told} == {("memory", "export")}
        assert "session_memory.json" in told[0].message
        result = await process.sessions.result("s", "m")
        assert result is not None
        assert result.ok
        assert await remembered(process) == ["x"]
    assert not [*tmp_path.rglob("session_memory.json")]
