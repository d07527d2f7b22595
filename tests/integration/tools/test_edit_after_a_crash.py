"""The process dies in the middle of an edit, before each system call that it makes. What does the reconcile say, and what comes of it?"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from perdure.tools import Done, NotDone, ToolError, Unknown, files

from .conftest import Place, context
from .test_files import has_marks

# One process that forks for each death: starting Python a few dozen times would be most of the test.
PROGRAM = """
import errno, json, os, sys
from perdure.tools import Done, NotDone, ToolContext
from perdure.tools.workspace import workspace_tools

root, marks, cases = sys.argv[1], sys.argv[2] == "marks", json.loads(sys.argv[3])
path = os.path.join(root, "f")
edit = {tool.name: tool for tool in workspace_tools(root, shell=False)}["edit_file"]
context = ToolContext(session_id="s", turn="t2", operation="t2.0.1", attempt=1, call="c", idempotency_key="pd_1")
calls = [0]

if not marks:
    def none(*_):
        raise OSError(errno.ENOTSUP, "no extended attributes here")
    os.setxattr = os.getxattr = none

def counted(function, at):
    def call(*args, **kwargs):
        calls[0] += 1
        if calls[0] == at:
            os._exit(9)
        return function(*args, **kwargs)
    return call

def look():
    with open(path) as file:
        return file.read()

def die(arguments, before, at):
    for name in os.listdir(root):
        os.unlink(os.path.join(root, name))
    with open(path, "w") as file:
        file.write(before)
    child = os.fork()
    if child == 0:
        for name in ("open", "read", "stat", "fstat", "write", "fsync", "rename", "fchmod", "close", "setxattr", "listdir"):
            setattr(os, name, counted(getattr(os, name), at))
        edit(context, **arguments)
        os._exit(0)
    died = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    content, leftovers = look(), len(os.listdir(root)) - 1
    answer = edit.reconcile(context, **arguments)
    result = answer.result if isinstance(answer, Done) else None
    if isinstance(answer, NotDone):
        result = edit(context, **arguments)
    return {"died": died, "content": content, "leftovers": leftovers, "answer": type(answer).__name__, "result": result,
        "then": look(), "left": len(os.listdir(root)) - 1}

for name, (arguments, before, _) in cases.items():
    arguments = edit.check({"path": "f", **arguments}).kwargs
    at, row = 0, {"died": True}
    while row["died"]:
        at += 1
        row = die(arguments, before, at)
        print(json.dumps([name, row]))
"""

CASES: dict[str, tuple[dict[str, Any], str, str]] = {
    "a word": ({"old": "two", "new": "2"}, "one two three\n", "one 2 three\n"),
    "an insertion": ({"old": "two", "new": "two and a half"}, "one two three\n", "one two and a half three\n"),
    "a deletion that makes the old text again": ({"old": "ab", "new": ""}, "aabb\n", "ab\n"),
    "all of them": ({"old": "o", "new": "0", "replace_all": True}, "foo o\n", "f00 0\n"),
}


@pytest.mark.parametrize("marks", ["marks", "no marks"])
def test_an_edit_is_made_once_wherever_the_process_dies(place: Place, marks: str) -> None:
    (place.root / "f").touch()
    if marks == "marks" and not has_marks(place.root / "f"):
        pytest.skip("this file system has no extended attributes")
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(place.root), marks, json.dumps(CASES)], capture_output=True, check=True, text=True
    )
    told = [json.loads(line) for line in ended.stdout.splitlines()]
    for case, (_, before, after) in CASES.items():
        rows = [row for name, row in told if name == case]
        assert len(rows) > 10
        assert {row["content"] for row in rows} == {before, after}
        assert any(row["leftovers"] for row in rows)
        results = [row["result"] for row in rows if row["result"]]
        assert all(result == results[0] for result in results)
        for row in rows:
            match row["answer"]:
                case "Done":
                    assert row["content"] == row["then"] == after
                case "NotDone":
                    assert row["content"] == before
                    assert row["then"] == after
                    assert not row["left"]
                case "Unknown":
                    # Only where nothing could be noted on the file; then nobody repeats anything.
                    assert marks == "no marks"
                    assert row["then"] == row["content"]
        assert {row["answer"] for row in rows} == ({"Done", "NotDone"} if marks == "marks" else {"NotDone", "Unknown"})


async def edited(place: Place, **arguments: Any) -> Any:
    operation = context("pd_edit")
    result = await place.call("edit_file", operation, path="f", **arguments)
    return operation, {"path": "f", **arguments}, result


async def test_an_edit_that_happened_is_known_even_if_the_file_was_changed_in_place_since(place: Place) -> None:
    (place.root / "f").write_text("one two\n")
    if not has_marks(place.root / "f"):
        pytest.skip("this file system has no extended attributes")
    operation, arguments, result = await edited(place, old="two", new="2")
    with (place.root / "f").open("a") as file:
        file.write("two\n")
    assert await place.reconcile("edit_file", operation, **arguments) == Done(result)
    assert await place.call("edit_file", operation, **arguments) == result
    assert (place.root / "f").read_text() == "one 2\ntwo\n"


async def test_an_edit_that_never_began_can_be_made(place: Place) -> None:
    (place.root / "f").write_text("one two\n")
    assert await place.reconcile("edit_file", context(), path="f", old="two", new="2") == NotDone()


async def test_the_version_decides_where_the_content_can_not(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: Any) -> Any:
        raise OSError(95, "no extended attributes here")

    monkeypatch.setattr(files.os, "setxattr", none)
    monkeypatch.setattr(files.os, "getxattr", none)
    (place.root / "f").write_text("2 two\n")
    version = files.version_of(b"2 two\n")
    ask = {"path": "f", "old": "two", "new": "2"}
    assert await place.reconcile("edit_file", context(), **ask) == Unknown()
    assert await place.reconcile("edit_file", context(), version=version, **ask) == NotDone()
    assert await place.reconcile("edit_file", context(), version="another", **ask) == Unknown()


@pytest.mark.parametrize("path", ["none", "none/f", "../outside/secret.txt", "d", "a\0"])
async def test_a_file_that_is_not_there_tells_nothing(place: Place, path: str) -> None:
    (place.root / "d").mkdir()
    assert await place.reconcile("edit_file", context(), path=path, old="a", new="b") == Unknown()


async def test_text_that_is_neither_old_nor_new_tells_nothing(place: Place) -> None:
    (place.root / "f").write_text("somebody wrote this\n")
    assert await place.reconcile("edit_file", context(), path="f", old="two", new="2") == Unknown()


async def test_what_the_disk_does_not_confirm_after_the_rename_is_uncertain_and_then_known(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place.root / "f").write_text("one\n")
    if not has_marks(place.root / "f"):
        pytest.skip("this file system has no extended attributes")
    fsync = os.fsync

    def failing(descriptor: int) -> None:
        if Path(f"/proc/self/fd/{descriptor}").is_dir():
            raise OSError(5, "Input/output error")
        fsync(descriptor)

    operation = context()
    with monkeypatch.context() as patched:
        patched.setattr(files.os, "fsync", failing)
        with pytest.raises(files.OutcomeUnknown) as caught:
            await place.call("edit_file", operation, path="f", old="one", new="two")
    assert not isinstance(caught.value, ToolError)
    assert isinstance(await place.reconcile("edit_file", operation, path="f", old="one", new="two"), Done)
