"""Attempts to get out of the workspace through the file tools. The fixture checks that what is outside stayed as it was."""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from perdure.tools import ToolError, files

from .conftest import SECRET, Place

WAYS = [
    "../outside/secret.txt",
    "a/../../outside/secret.txt",
    "./././../outside/secret.txt",
    "a/b/../../../outside/secret.txt",
    "/etc/passwd",
    "{outside}/secret.txt",
    "{root}/../outside/secret.txt",
    "{root}x/secret.txt",
    "/proc/self/root{outside}/secret.txt",
    "/proc/self/cwd/secret.txt",
    "/dev/stdin",
    "link",
    "relative",
    "chain",
    "directory/secret.txt",
    "relative_directory/secret.txt",
    "a/up/outside/secret.txt",
    "proc/root{outside}/secret.txt",
    "magic{outside}/secret.txt",
    "a/../link",
    "..",
    "",
    "/",
]


@pytest.fixture
def trapped(place: Place) -> Place:
    """A workspace full of links that lead out of it."""
    root, outside = place.root, place.outside
    (root / "a" / "b").mkdir(parents=True)
    for name, target in (
        ("link", f"{outside}/secret.txt"),
        ("relative", "../outside/secret.txt"),
        ("chain", "a/one"),
        ("a/one", "../a/b/two"),
        ("a/b/two", "../../../outside/secret.txt"),
        ("directory", str(outside)),
        ("relative_directory", "../outside"),
        ("a/up", "../.."),
        ("proc", "/proc/self"),
        ("magic", "/proc/self/root"),
    ):
        (root / name).symlink_to(target)
    return place


def spelled(way: str, place: Place) -> str:
    return way.replace("{root}", str(place.root)).replace("{outside}", str(place.outside))


@pytest.mark.parametrize("way", WAYS)
async def test_no_path_leads_out_of_the_workspace(trapped: Place, way: str) -> None:
    path = spelled(way, trapped)
    calls: list[tuple[str, dict[str, Any]]] = [
        ("read_file", {}),
        ("write_file", {"content": "mine"}),
        ("write_file", {"content": SECRET}),
        ("edit_file", {"old": "secret", "new": "gift"}),
    ]
    for name, arguments in calls:
        with pytest.raises(ToolError) as caught:
            await trapped.call(name, path=path, **arguments)
        assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    "way", ["..", "/", "/etc", "{outside}", "directory", "relative_directory", "a/up", "a/up/outside", "proc", "magic"]
)
async def test_nothing_outside_is_listed_or_searched(trapped: Place, way: str) -> None:
    path = spelled(way, trapped)
    with pytest.raises(ToolError, match=r"outside|not a directory"):
        await trapped.call("list_files", pattern="**", path=path)
    with pytest.raises(ToolError, match=r"outside|not a"):
        await trapped.call("search_files", expression="secret", path=path)


async def test_walking_and_searching_meet_links_and_do_not_follow_them(trapped: Place) -> None:
    paths = (await trapped.call("list_files", pattern="**"))["paths"]
    assert "directory" in paths
    assert not [path for path in paths if "secret.txt" in path]
    assert (await trapped.call("search_files", expression="secret"))["matches"] == []


async def test_links_that_stay_inside_work_relative_and_absolute(place: Place) -> None:
    (place.root / "a").mkdir()
    (place.root / "a" / "f").write_text("x\n")
    for name, target in (
        ("one", "a/f"),
        ("two", f"{place.root}/a/f"),
        ("three", "a/../two"),
        ("d", "a"),
        ("a/self", "."),
        ("a/back", "../a"),
    ):
        (place.root / name).symlink_to(target)
    for path in ("one", "two", "three", "d/f", "a/self/self/f", "d/back/f", "a/../a/f"):
        assert (await place.call("read_file", path=path)).endswith("\tx")
    await place.call("write_file", path="three", content="y\n")
    assert (place.root / "three").is_symlink()
    assert (place.root / "a" / "f").read_text() == "y\n"


async def test_the_workspace_may_be_named_through_a_link_of_its_owner(place: Place, tmp_path: Path) -> None:
    named = tmp_path / "named"
    named.symlink_to(place.root)
    (place.root / "f").write_text("x\n")
    real = place.root
    place.root = named
    place.use(shell=False)
    assert (await place.call("read_file", path=f"{named}/f")).endswith("\tx")
    assert (await place.call("read_file", path=f"{real}/f")).endswith("\tx")


async def test_endless_links_end(place: Place) -> None:
    (place.root / "a").symlink_to("b")
    (place.root / "b").symlink_to("a")
    (place.root / "deeper").symlink_to("deeper/x")
    for path in ("a", "a/x", "deeper"):
        with pytest.raises(ToolError, match="too many symbolic links"):
            await place.call("read_file", path=path)
    with pytest.raises(ToolError, match="more than 256 directories"):
        await place.call("write_file", path="/".join(["d"] * 400), content="x")


async def test_a_path_with_a_null_character_is_refused(place: Place) -> None:
    for name, arguments in (("read_file", {}), ("write_file", {"content": ""}), ("list_files", {}), ("search_files", {"expression": "x"})):
        with pytest.raises(ToolError, match="NUL"):
            await place.call(name, path="a\0b", **arguments)


async def test_what_is_no_regular_file_is_refused_at_once(place: Place) -> None:
    os.mkfifo(place.root / "fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        here = Path.cwd()
        os.chdir(place.root)
        try:
            listener.bind("socket")  # A short name: such addresses have 108 bytes.
        finally:
            os.chdir(here)
        specials = {"fifo": "a FIFO", "socket": "a socket"}
        with contextlib.suppress(PermissionError):
            os.mknod(place.root / "device", 0o666 | 0o020000, os.makedev(1, 5))
            specials["device"] = "a device"
        for path, words in specials.items():
            for name, arguments in (("read_file", {}), ("write_file", {"content": "x"}), ("edit_file", {"old": "a", "new": "b"})):
                with pytest.raises(ToolError, match=words):
                    await place.call(name, path=path, **arguments)
        assert (await place.call("list_files"))["paths"] == []
        assert (await place.call("search_files", expression="x"))["files_searched"] == 0


async def test_a_fifo_that_appears_between_the_look_and_the_opening_does_not_hang(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    (place.root / "f").write_text("x")
    look = os.stat

    def and_then(name: Any, **options: Any) -> os.stat_result:
        status = look(name, **options)
        if name == "f":
            (place.root / "f").unlink()
            os.mkfifo(place.root / "f")
        return status

    monkeypatch.setattr(files.os, "stat", and_then)
    with pytest.raises(ToolError, match="a FIFO"):
        await place.call("read_file", path="f")


async def test_a_link_that_appears_between_the_look_and_the_opening_is_not_followed(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    (place.root / "f").write_text("x")
    look = os.stat

    def and_then(name: Any, **options: Any) -> os.stat_result:
        status = look(name, **options)
        if name == "f":
            (place.root / "f").unlink()
            (place.root / "f").symlink_to(place.outside / "secret.txt")
        return status

    monkeypatch.setattr(files.os, "stat", and_then)
    with pytest.raises(ToolError, match="symbolic links"):
        await place.call("read_file", path="f")


@contextlib.contextmanager
def flipping(flip: Callable[[], None]) -> Iterator[None]:
    """Somebody who changes the tree as fast as they can."""
    over = threading.Event()

    def work() -> None:
        while not over.is_set():
            flip()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.mark.parametrize("what", ["a directory", "a file"])
async def test_a_link_that_comes_and_goes_is_never_followed_out(place: Place, what: str) -> None:
    root, outside = place.root, place.outside
    (root / "d").mkdir()
    (root / "d" / "secret.txt").write_text("inside\n")
    name, target = ("d", outside) if what == "a directory" else ("d/secret.txt", outside / "secret.txt")
    (root / "link").symlink_to(target)

    def flip() -> None:
        with contextlib.suppress(FileNotFoundError):
            os.rename(root / name, root / "aside")
            os.rename(root / "link", root / name)
            os.rename(root / name, root / "link")
            os.rename(root / "aside", root / name)

    outcomes = {"inside": 0, "refused": 0}
    tree = files.Tree(str(root))
    with flipping(flip):
        # Below the tools, whose threads would leave the race few chances; until both sides of it were seen.
        for tries in itertools.count():
            if tries >= 2000 and min(outcomes.values()) >= 10:
                break
            assert tries < 200_000, outcomes
            try:
                data = tree.read("d/secret.txt").data
            except files.FileRefused:
                outcomes["refused"] += 1
            else:
                assert data == b"inside\n"
                outcomes["inside"] += 1
        for number in range(300):
            with contextlib.suppress(files.FileRefused):
                tree.update("d/secret.txt" if what == "a file" else "d/new", f"key{number}", lambda _: (b"inside\n", "note"))
    assert place.untouched()


async def test_a_walk_is_not_led_out_by_a_directory_that_becomes_a_link(place: Place) -> None:
    root = place.root
    (root / "d" / "e").mkdir(parents=True)
    (root / "d" / "e" / "f").write_text("inside")
    (root / "link").symlink_to(place.outside)

    def flip() -> None:
        os.rename(root / "d", root / "aside")
        os.rename(root / "link", root / "d")
        os.rename(root / "d", root / "link")
        os.rename(root / "aside", root / "d")

    tree = files.Tree(str(root))
    with flipping(flip):
        for _ in range(500):
            for item in tree.walk(".", files.Glob("**"), float("inf")):
                assert item.name != "secret.txt"


async def test_a_workspace_that_was_replaced_is_not_used(place: Place) -> None:
    (place.root / "f").write_text("x")
    place.root.rename(place.root.with_name("moved"))
    place.root.symlink_to(place.outside)
    with pytest.raises(ToolError, match="workspace"):
        await place.call("read_file", path="secret.txt")
    place.root.unlink()
    place.root.mkdir()
    (place.root / "secret.txt").write_text("another")
    for name, arguments in (("read_file", {}), ("write_file", {"content": "x"})):
        with pytest.raises(ToolError, match="was replaced"):
            await place.call(name, path="secret.txt", **arguments)
