from __future__ import annotations

import os
import re
import stat
import threading
from pathlib import Path

import pytest

from perdure.core.errors import UsageError
from perdure.tools import ToolError, files
from perdure.tools.files import Glob, shown
from perdure.tools.workspace import LIST_LIMIT, READ_LINES, mutating, workspace_tools

from .conftest import Place, context

# Reading


async def test_a_file_is_read_with_line_numbers_and_its_version(place: Place) -> None:
    (place.root / "a.txt").write_text("one\n\ntwo\n")
    text = await place.call("read_file", path="a.txt")
    assert re.fullmatch(r"a\.txt: lines 1-3 of 3; version [0-9a-f]{16}\n     1\tone\n     2\t\n     3\ttwo", text)
    assert await place.call("read_file", path=str(place.root / "a.txt")) == text.replace("a.txt", str(place.root / "a.txt"), 1)


async def test_a_part_of_a_file_is_read_and_says_how_to_go_on(place: Place) -> None:
    (place.root / "a.txt").write_text("".join(f"line {number}\n" for number in range(1, 11)))
    head, *lines = (await place.call("read_file", path="a.txt", offset=4, limit=2)).split("\n")
    assert "lines 4-5 of 10" in head
    assert head.endswith("go on with offset=6")
    assert lines == ["     4\tline 4", "     5\tline 5"]
    with pytest.raises(ToolError, match="has 10 lines"):
        await place.call("read_file", path="a.txt", offset=11)
    with pytest.raises(ToolError, match="count from 1"):
        await place.call("read_file", path="a.txt", offset=0)


async def test_what_is_read_is_limited_in_lines_characters_and_in_each_line(place: Place) -> None:
    (place.root / "long.txt").write_text("x\n" * (READ_LINES + 5))
    assert f"offset={READ_LINES + 1}" in (await place.call("read_file", path="long.txt", limit=10**9))
    (place.root / "wide.txt").write_text("y" * 1_000_000)
    wide = await place.call("read_file", path="wide.txt")
    assert "998,000 more characters" in wide
    assert len(wide) < 2200
    (place.root / "both.txt").write_text(("z" * 1500 + "\n") * 1000)
    assert len(await place.call("read_file", path="both.txt")) < 110_000


async def test_what_a_model_has_to_know_of_a_file_stands_in_the_first_line(place: Place) -> None:
    for name, data, remark in (
        ("crlf", b"a\r\nb\r\n", "lines end in CRLF"),
        ("latin", b"caf\xe9\n", "not UTF-8"),
        ("open", b"a", "no newline at the end"),
        ("empty", b"", "empty; version"),
    ):
        (place.root / name).write_bytes(data)
        assert remark in (await place.call("read_file", path=name)).split("\n")[0]
    assert (await place.call("read_file", path="crlf")).endswith("     1\ta\n     2\tb")


async def test_lines_are_counted_by_line_feeds_alone(place: Place) -> None:
    (place.root / "a").write_text("a\x0bb\u2028c\x85d\n")
    assert "lines 1-1 of 1" in await place.call("read_file", path="a")


async def test_binary_and_huge_files_are_refused(place: Place) -> None:
    (place.root / "binary").write_bytes(b"text and then\x00")
    with pytest.raises(ToolError, match="is binary"):
        await place.call("read_file", path="binary")
    with (place.root / "huge").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(ToolError, match="at most"):
        await place.call("read_file", path="huge")
    with pytest.raises(ToolError, match="at most"):
        await place.call("edit_file", path="huge", old="a", new="b")


async def test_a_file_that_grows_while_it_is_read_is_refused_at_the_limit(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "FILE_LIMIT", 10_000)
    (place.root / "log").write_bytes(b"x")
    read = os.read

    def growing(descriptor: int, size: int) -> bytes:
        with (place.root / "log").open("ab") as file:
            file.write(b"x" * 5000)
        return read(descriptor, size)

    monkeypatch.setattr(files.os, "read", growing)
    with pytest.raises(ToolError, match="at most"):
        await place.call("read_file", path="log")


async def test_missing_files_and_directories_are_told_in_words(place: Place) -> None:
    (place.root / "d").mkdir()
    (place.root / "f").touch()
    with pytest.raises(ToolError, match=r"^x: No such file"):
        await place.call("read_file", path="x")
    with pytest.raises(ToolError, match="is a directory"):
        await place.call("read_file", path="d")
    with pytest.raises(ToolError, match="f is not a directory"):
        await place.call("read_file", path="f/x")
    with pytest.raises(ToolError, match="is not a directory"):
        await place.call("list_files", path="f")
    with pytest.raises(ToolError, match="File name too long"):
        await place.call("read_file", path="n" * 300)


# Listing


async def test_files_are_listed_by_a_glob_sorted_and_without_what_git_keeps(place: Place) -> None:
    for name in ("b.py", "a.py", "src/x.py", "src/deep/er/y.py", "src/z.txt", ".git/config", ".hidden"):
        (place.root / name).parent.mkdir(parents=True, exist_ok=True)
        (place.root / name).touch()

    async def listed(pattern: str, path: str = ".") -> list[str]:
        answer = await place.call("list_files", pattern=pattern, path=path)
        assert answer["incomplete"] is None
        return answer["paths"]

    assert await listed("*") == [".git/", ".hidden", "a.py", "b.py", "src/"]
    assert await listed("**/*.py") == ["a.py", "b.py", "src/deep/er/y.py", "src/x.py"]
    assert await listed("**/*.{py,txt}") == ["a.py", "b.py", "src/deep/er/y.py", "src/x.py", "src/z.txt"]
    assert await listed("src/*") == ["src/deep/", "src/x.py", "src/z.txt"]
    assert await listed("*", "src/deep") == ["src/deep/er/"]
    assert await listed("**/[!a-x].*") == ["src/deep/er/y.py", "src/z.txt"]
    assert await listed("?.py") == ["a.py", "b.py"]
    assert await listed(".git/*") == [".git/config"]
    assert await listed("*", ".git") == [".git/config"]
    assert await listed("nothing*") == []


async def test_a_list_is_limited_and_says_so(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(30):
        (place.root / f"{number:02}").touch()
    answer = await place.call("list_files", limit=3)
    assert answer == {"paths": ["00", "01", "02"], "incomplete": "limit"}
    assert (await place.call("list_files", limit=LIST_LIMIT + 1))["incomplete"] is None
    monkeypatch.setattr(files, "WALK_LIMIT", 10)
    assert (await place.call("list_files"))["incomplete"] == "more than 10 files and directories"


async def test_names_of_all_kinds_are_listed_and_can_be_read(place: Place) -> None:
    names = ["a b", "line\nbreak", "größe", "日本語.txt", "-rf", "quote\"'", "tab\t", "🙂", "~", "$HOME", "*"]
    for name in names:
        (place.root / name).write_text("x\n")
    (place.root / os.fsdecode(b"latin\xe9")).touch()
    assert sorted((await place.call("list_files"))["paths"]) == sorted([*names, "latin\\xe9"])
    for name in names:
        head, line = (await place.call("read_file", path=name)).split("\n")
        assert head.startswith(f"{shown(name)}: lines 1-1")
        assert line == "     1\tx"


def test_a_glob_takes_no_time_whatever_the_pattern() -> None:
    glob = Glob("/".join(["**", "*a*a*a*a*a*a*a*a*a*a*a*a*b"] * 30))
    states = glob.start()
    for _ in range(120):
        states = glob.step(states, "a" * 200)
    assert not glob.accepts(states)


@pytest.mark.parametrize("pattern", ["/etc/*", "../*", "a/../../*", "{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}", "x" * 2000])
async def test_patterns_that_leave_the_directory_or_explode_are_refused(place: Place, pattern: str) -> None:
    with pytest.raises(ToolError, match="pattern"):
        await place.call("list_files", pattern=pattern)


# Writing


async def test_a_file_is_written_with_its_directories(place: Place) -> None:
    answer = await place.call("write_file", path="a/b/c.txt", content="grün\n")
    assert (place.root / "a/b/c.txt").read_text() == "grün\n"
    assert answer["bytes"] == 6
    assert answer["version"] in await place.call("read_file", path="a/b/c.txt")
    assert os.listdir(place.root / "a/b") == ["c.txt"]


async def test_a_new_file_has_the_usual_mode_and_an_old_one_keeps_its_own(place: Place) -> None:
    before = os.umask(0o027)
    try:
        await place.call("write_file", path="new", content="x")
    finally:
        os.umask(before)
    assert stat.S_IMODE((place.root / "new").stat().st_mode) == 0o640
    for mode in (0o600, 0o755, 0o444):
        (place.root / "new").chmod(mode)
        await place.call("write_file", path="new", content=f"{mode}")
        assert stat.S_IMODE((place.root / "new").stat().st_mode) == mode


async def test_readers_see_the_old_file_or_the_new_one_and_nothing_else(place: Place) -> None:
    old, new = "a" * 300_000, "b" * 300_000
    (place.root / "f").write_text(old)
    seen: set[str] = set()
    over = threading.Event()

    def look() -> None:
        while not over.is_set():
            seen.add((place.root / "f").read_text())

    reader = threading.Thread(target=look)
    reader.start()
    for _ in range(8):
        await place.call("write_file", path="f", content=new)
        await place.call("write_file", path="f", content=old)
    over.set()
    reader.join()
    assert seen <= {old, new}


async def test_a_write_that_names_another_version_than_the_file_has_is_refused(place: Place) -> None:
    version = (await place.call("write_file", path="f", content="one"))["version"]
    await place.call("write_file", path="f", content="two", version=version)
    with pytest.raises(ToolError, match="not version"):
        await place.call("write_file", path="f", content="three", version=version)
    with pytest.raises(ToolError, match="not version"):
        await place.call("write_file", path="new", content="three", version=version)
    assert (place.root / "f").read_text() == "two"
    assert await place.call("write_file", path="f", content="two", version=version), "what is there already needs no write"


async def test_the_same_write_again_changes_nothing(place: Place) -> None:
    operation = context()
    first = await place.call("write_file", operation, path="f", content="x")
    # A file that is read moves its time of access along, unless that is later than its last change.
    written = (place.root / "f").stat()
    os.utime(place.root / "f", ns=(written.st_mtime_ns + 3_600_000_000_000, written.st_mtime_ns))
    status = (place.root / "f").stat()
    assert await place.call("write_file", operation, path="f", content="x") == first
    assert await place.call("write_file", path="f", content="x") == first
    assert (place.root / "f").stat() == status


async def test_a_repeated_write_leaves_what_somebody_made_of_the_file_since(place: Place) -> None:
    operation = context()
    first = await place.call("write_file", operation, path="f", content="x")
    if not has_marks(place.root / "f"):
        pytest.skip("this file system has no extended attributes")
    with (place.root / "f").open("a") as file:
        file.write(" and y")
    assert await place.call("write_file", operation, path="f", content="x") == first
    assert (place.root / "f").read_text() == "x and y"


async def test_a_hard_link_to_a_file_outside_is_replaced_and_not_written_through(place: Place) -> None:
    os.link(place.outside / "secret.txt", place.root / "link")
    await place.call("write_file", path="link", content="mine")
    assert place.untouched()


async def test_a_full_disk_fails_the_write_for_certain_and_leaves_the_old_file(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    (place.root / "f").write_text("old")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    for name, arguments in (("write_file", {"content": "new"}), ("edit_file", {"old": "old", "new": "new"})):
        with pytest.raises(ToolError, match="No space left"):
            await place.call(name, path="f", **arguments)
    assert os.listdir(place.root) == ["f"]
    assert (place.root / "f").read_text() == "old"


# Editing


async def test_exact_text_is_replaced_where_it_stands_once(place: Place) -> None:
    (place.root / "f").write_text("one two three\n")
    answer = await place.call("edit_file", path="f", old="two", new="2")
    assert (place.root / "f").read_text() == "one 2 three\n"
    assert answer["replaced"] == 1
    await place.call("edit_file", path="f", old=" 2", new="", version=answer["version"])
    assert (place.root / "f").read_text() == "one three\n"
    with pytest.raises(ToolError, match="not version"):
        await place.call("edit_file", path="f", old="one", new="1", version=answer["version"])


async def test_text_that_is_missing_or_not_unique_is_refused_with_what_to_do(place: Place) -> None:
    (place.root / "f").write_text("a b a\n")
    for arguments, words in (
        ({"old": "c", "new": "d"}, "doesn't stand in f"),
        ({"old": "a", "new": "d"}, "stands 2 times in f"),
        ({"old": "a", "new": "a"}, "are the same"),
        ({"old": "", "new": "a"}, "old is empty"),
    ):
        with pytest.raises(ToolError, match=words):
            await place.call("edit_file", path="f", **arguments)
    assert (place.root / "f").read_text() == "a b a\n"
    assert (await place.call("edit_file", path="f", old="a", new="d", replace_all=True))["replaced"] == 2
    assert (place.root / "f").read_text() == "d b d\n"
    with pytest.raises(ToolError, match="No such file"):
        await place.call("edit_file", path="none", old="a", new="b")


async def test_an_edit_of_a_file_with_crlf_keeps_them(place: Place) -> None:
    (place.root / "f").write_bytes(b"a\r\nb\r\nc\r\n")
    await place.call("edit_file", path="f", old="a\nb\n", new="x\ny\nz\n")
    assert (place.root / "f").read_bytes() == b"x\r\ny\r\nz\r\nc\r\n"


async def test_an_edit_keeps_every_byte_that_it_does_not_mean(place: Place) -> None:
    (place.root / "f").write_bytes(b"caf\xe9 one\n\xff")
    await place.call("edit_file", path="f", old="one", new="two")
    assert (place.root / "f").read_bytes() == b"caf\xe9 two\n\xff"
    (place.root / "b").write_bytes(b"one\x00")
    with pytest.raises(ToolError, match="is binary"):
        await place.call("edit_file", path="b", old="one", new="two")


async def test_edits_at_the_same_time_are_all_made(place: Place) -> None:
    words = [f"word{number}" for number in range(20)]
    (place.root / "f").write_text(" ".join(f"<{word}>" for word in words))
    edit = place.tools["edit_file"]
    started = [edit.start(context(), edit.check({"path": "f", "old": f"<{word}>", "new": word})) for word in words]
    for item in started:
        await item.wait()
    assert (place.root / "f").read_text() == " ".join(words)


async def test_a_file_that_changes_under_an_edit_is_left_to_whoever_changed_it(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    (place.root / "f").write_text("one")
    fsync = os.fsync

    def meanwhile(descriptor: int) -> None:
        (place.root / "f").write_text("somebody else's")
        fsync(descriptor)

    monkeypatch.setattr(files.os, "fsync", meanwhile)
    with pytest.raises(ToolError, match="changed by somebody else"):
        await place.call("edit_file", path="f", old="one", new="two")
    assert (place.root / "f").read_text() == "somebody else's"
    assert os.listdir(place.root) == ["f"]


# What they are


def test_only_those_tools_are_there_that_were_asked_for(tmp_path: Path) -> None:
    reading = ["read_file", "list_files", "search_files"]
    assert [tool.name for tool in workspace_tools(tmp_path, write=False, shell=False)] == reading
    assert [tool.name for tool in workspace_tools(tmp_path, shell=False)] == [*reading, "write_file", "edit_file"]


def test_each_tool_says_what_it_does_to_the_world(tmp_path: Path) -> None:
    tools = workspace_tools(tmp_path, sandbox="off")
    assert {tool.name: tool.effect for tool in tools} == {
        "read_file": "pure",
        "list_files": "pure",
        "search_files": "pure",
        "write_file": "idempotent",
        "edit_file": "external",
        "shell": "external",
    }
    assert mutating(tools) == ["write_file", "edit_file", "shell"]
    assert all(tool.exclusive for tool in tools if tool.name in mutating(tools))
    for tool in tools:
        assert tool.description
        assert all(parameter.get("description") for parameter in tool.parameters["properties"].values()), tool.name


def test_a_workspace_is_an_existing_directory_that_is_not_the_systems(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for root in (tmp_path / "none", tmp_path / "file", "/", "/proc", "/proc/self", "/dev/shm", "/sys"):
        with pytest.raises(UsageError):
            workspace_tools(root, shell=False)


def has_marks(path: Path) -> bool:
    try:
        os.setxattr(path, "user.perdure.test", b"x")
        os.removexattr(path, "user.perdure.test")
    except OSError:
        return False
    return True
