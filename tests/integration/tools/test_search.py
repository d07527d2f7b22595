from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import suppress

import pytest

from perdure.tools import ToolCancelled, ToolError, files, workspace

from .conftest import Place, context, running, until


async def test_lines_are_found_with_their_file_and_number(place: Place) -> None:
    (place.root / "src").mkdir()
    (place.root / "src" / "a.py").write_text("import os\nx = 1\r\nimport re\n")
    (place.root / "b.txt").write_text("no import here\n")
    answer = await place.call("search_files", expression="^import")
    assert answer == {
        "matches": ["src/a.py:1: import os", "src/a.py:3: import re"],
        "files_searched": 2,
        "files_skipped": 0,
        "incomplete": None,
    }
    assert (await place.call("search_files", expression="IMPORT", ignore_case=True, glob="*.txt"))["matches"] == ["b.txt:1: no import here"]
    assert (await place.call("search_files", expression="1$", path="src", glob="*.py"))["matches"] == ["src/a.py:2: x = 1"]
    assert (await place.call("search_files", expression="re", path="src/a.py"))["matches"] == ["src/a.py:3: import re"]


async def test_binary_and_huge_files_are_skipped_and_counted(place: Place) -> None:
    (place.root / "binary").write_bytes(b"needle\x00")
    with (place.root / "huge").open("wb") as file:
        file.truncate(files.FILE_LIMIT + 1)
    (place.root / "latin").write_bytes(b"caf\xe9 needle\n")
    answer = await place.call("search_files", expression="needle")
    assert (answer["matches"], answer["files_skipped"]) == (["latin:1: caf\ufffd needle"], 2)


async def test_results_are_limited_in_number_and_length(place: Place) -> None:
    (place.root / "f").write_text("needle\n" * 300)
    answer = await place.call("search_files", expression="needle", limit=5)
    assert (len(answer["matches"]), answer["incomplete"]) == (5, "limit")
    (place.root / "f").write_text("a" * 100_000 + "needle" + "b" * 100_000)
    (line,) = (await place.call("search_files", expression="needle"))["matches"]
    assert "needle" in line
    assert len(line) < files.EXCERPT + 20


async def test_names_that_would_break_a_line_are_quoted(place: Place) -> None:
    (place.root / "a\nb").write_text("needle\n")
    assert (await place.call("search_files", expression="needle"))["matches"] == ['"a\\nb":1: needle']


@pytest.mark.parametrize("expression", ["(", "*", "(?P<x>a)(?P<x>b)", "a{99999999999}", "(" * 5000])
async def test_an_expression_that_is_none_is_told_with_the_reason(place: Place, expression: str) -> None:
    with pytest.raises(ToolError, match="the expression is not valid"):
        await place.call("search_files", expression=expression)


async def test_missing_paths_are_told(place: Place) -> None:
    with pytest.raises(ToolError, match="none: No such file"):
        await place.call("search_files", expression="x", path="none")


@pytest.fixture
def catastrophic(place: Place) -> dict[str, str]:
    """A search that takes longer than anybody lives."""
    (place.root / "a").write_text("found\n")
    (place.root / "b").write_text("a" * 60 + "\n")
    return {"expression": "found|(a+)+b"}


async def test_an_endless_expression_is_ended_with_what_was_found(
    place: Place, catastrophic: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workspace, "SEARCH_GRACE", 0.1)
    ticks, answer = 0, None

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.01)
            ticks += 1

    ticking = asyncio.create_task(tick())
    # On a busy machine the search may not even have begun when its time is over.
    for seconds in (0.5, 5, 50):
        monkeypatch.setattr(workspace, "SEARCH_SECONDS", seconds)
        ticks = 0
        with suppress(ToolError):
            answer = await place.call("search_files", **catastrophic)
            break
    ticking.cancel()
    assert answer is not None
    assert (answer["matches"], answer["incomplete"]) == (["a:1: found"], "time")
    assert ticks > 2, "the event loop went on meanwhile"
    assert not searching()
    monkeypatch.setattr(workspace, "SEARCH_SECONDS", 0.5)
    (place.root / "a").unlink()
    with pytest.raises(ToolError, match="nothing was found within"):
        await place.call("search_files", **catastrophic)


async def test_a_cancelled_search_leaves_no_process(place: Place, catastrophic: dict[str, str]) -> None:
    search = place.tools["search_files"]
    started = search.start(context(), search.check(catastrophic))
    await until(searching)
    started.cancel()
    with pytest.raises(ToolCancelled):
        await started.wait()
    assert not searching()


async def test_a_search_ends_by_itself_when_its_process_is_killed(place: Place, catastrophic: dict[str, str]) -> None:
    (place.root / "a").unlink()
    search = place.tools["search_files"]
    started = search.start(context(), search.check(catastrophic))
    await until(searching)
    for pid in searching():
        os.kill(pid, signal.SIGKILL)
    with pytest.raises(ToolError, match="nothing was found"):
        await started.wait()


async def test_no_python_to_search_with_is_told(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    with pytest.raises(ToolError, match="could not be started"):
        await place.call("search_files", expression="x")


def searching() -> list[int]:
    return [pid for pid in running(files.__file__) if parent_of(pid) == os.getpid()]


def parent_of(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[1])
    except OSError:
        return 0
