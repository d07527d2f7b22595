"""What a confined command can't do, tried; and that there is no shell where there is no confinement."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure import Agent, SandboxUnavailable
from perdure.core.errors import UsageError
from perdure.tools import ToolError
from perdure.tools.sandbox import find_sandbox
from perdure.tools.workspace import mutating, workspace_tools

from .conftest import SECRET, Place, needs_bubblewrap


async def out(place: Place, command: str) -> str:
    answer = await place.call("shell", command=command)
    assert answer["stopped"] is None
    return str(answer["output"])


# What it confines


async def test_nothing_outside_the_workspace_can_be_read(confined: Place) -> None:
    (confined.root / "link").symlink_to(confined.outside)
    for path in (
        f"{confined.outside}/secret.txt",
        "../outside/secret.txt",
        "link/secret.txt",
        f"/proc/self/root{confined.outside}/secret.txt",
    ):
        assert "No such file" in await out(confined, f"cat {path}")


async def test_nothing_outside_the_workspace_can_be_written(confined: Place) -> None:
    system = ["/x", "/usr/x", "/etc/x", "/var/x", "/etc/passwd", "/dev/x/y"]
    machine = ["/proc/sys/kernel/hostname", "/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", "/proc/self/comm"]
    for path in [*system, *machine]:
        answer = await confined.call("shell", command=f": >> {path}")
        assert answer["exit_code"] != 0, path
    # Beside the workspace there may be a directory that vanishes with the command; the real one is not it.
    await confined.call("shell", command=f"touch {confined.root}/../x {confined.outside}/x")
    assert not list(confined.root.parent.glob("x"))
    assert (await confined.call("shell", command="echo x > here && echo y > /tmp/there"))["exit_code"] == 0
    assert (confined.root / "here").read_text() == "x\n"
    assert not Path("/tmp/there").exists()
    assert "No such file" in await out(confined, "cat /tmp/there")


async def test_a_workspace_that_is_not_to_be_written_is_not_written(confined: Place) -> None:
    (confined.root / "f").write_text("x\n")
    confined.use(write=False)
    assert "Read-only" in await out(confined, "cat f; rm f; touch g; mkdir d")
    assert os.listdir(confined.root) == ["f"]
    assert "write_file" not in confined.tools


async def test_the_home_directory_is_empty_unless_the_workspace_lies_in_it(
    confined: Place, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh" / "id_ed25519").write_text(SECRET)
    (home / "work").mkdir()
    (home / "work" / "f").write_text("mine\n")
    monkeypatch.setenv("HOME", str(home))
    confined.use()
    assert await out(confined, 'echo "$HOME"; ls -A ~; touch ~/new && echo writable') == f"{home}\nwritable\n"
    assert sorted(os.listdir(home)) == [".ssh", "work"]
    confined.root = home / "work"
    confined.use()
    assert await out(confined, "ls -A ~; cat f; ls ../.ssh 2>&1 | grep -o 'No such file'") == "work\nmine\nNo such file\n"


async def test_password_hashes_and_keys_of_the_system_are_hidden_from_root_too(confined: Place) -> None:
    if os.geteuid() != 0 or not Path("/etc/shadow").exists():
        pytest.skip("only root may read them anyway")
    assert (await confined.call("shell", command="cat /etc/shadow || head -c1 /etc/shadow | grep ."))["exit_code"] != 0
    assert "root:" in await out(confined, "cat /etc/passwd")


async def test_sockets_and_data_of_the_machine_are_not_there(confined: Place) -> None:
    output = await out(confined, "ls -A /run /var /home /root /mnt /srv /opt /sys /boot 2>/dev/null")
    kept = {"tmp", confined.root.name, *Path(confined.root).parts}
    assert {line for line in output.split() if not line.endswith(":")} <= kept


async def test_a_socket_of_another_program_can_not_be_reached(confined: Place) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        path = f"/tmp/perdure-test-{os.getpid()}.sock"
        listener.bind(path)
        try:
            assert Path(path).is_socket()
            assert (await confined.call("shell", command=f"test -e {path}"))["exit_code"] == 1
        finally:
            os.unlink(path)


@pytest.fixture
def server() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


async def test_there_is_no_network_unless_it_was_asked_for(confined: Place, server: int) -> None:
    reach = f"bash -c 'exec 3<>/dev/tcp/127.0.0.1/{server}' && echo reached"
    assert "reached" not in await out(confined, reach)
    assert (await out(confined, "tail -n +3 /proc/net/dev | cut -d: -f1")).split() == ["lo"]
    confined.use(network=True)
    assert "reached" in await out(confined, reach)
    confined.use(sandbox="off")
    assert "reached" in await out(confined, reach)


async def test_no_process_outside_is_seen_or_can_be_signalled(confined: Place) -> None:
    assert os.getpid() > 100
    pids = [int(word) for word in (await out(confined, "ls /proc | grep -x '[0-9]*'")).split()]
    assert max(pids) < 20
    with subprocess.Popen(["/bin/sleep", "1000"]) as other:
        try:
            await confined.call("shell", command=f"kill -9 {other.pid}; kill -9 -1")
            assert other.poll() is None
        finally:
            other.kill()


async def test_there_are_no_rights_to_regain(confined: Place) -> None:
    status = await out(confined, "cat /proc/self/status")
    assert "NoNewPrivs:\t1" in status
    for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert f"{name}:\t0000000000000000" in status
    assert "mounted" not in await out(confined, "mkdir m; mount -t tmpfs none m && echo mounted; umount /tmp && echo mounted")
    assert "new" not in await out(confined, "unshare --user --map-root-user echo new 2>/dev/null")


async def test_only_what_is_named_as_readable_is_added(confined: Place) -> None:
    confined.use(readable=[str(confined.outside)])
    assert SECRET in await out(confined, f"cat {confined.outside}/secret.txt")
    assert "Read-only" in await out(confined, f"touch {confined.outside}/x")
    for wrong in ("relative", "/nonexistent/path"):
        with pytest.raises(UsageError, match="readable"):
            confined.use(readable=[wrong])


async def test_the_files_of_a_command_are_those_of_the_file_tools(confined: Place) -> None:
    await confined.call("shell", command="mkdir -p a && printf 'one\\n' > a/f && ln -s /etc/passwd leak && mkfifo pipe")
    await confined.call("edit_file", path="a/f", old="one", new="two")
    assert await out(confined, "cat a/f") == "two\n"
    for path in ("leak", "pipe"):
        with pytest.raises(ToolError):
            await confined.call("read_file", path=path)


# That it fails closed


@pytest.fixture
def path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A directory that is the whole PATH."""
    directory = tmp_path / "bin"
    directory.mkdir()
    monkeypatch.setenv("PATH", str(directory))
    return directory


def program(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def test_without_bubblewrap_there_is_no_shell_and_the_error_says_what_to_do(tmp_path: Path, path: Path) -> None:
    with pytest.raises(SandboxUnavailable, match=r"no bwrap on the PATH.*install bubblewrap") as caught:
        workspace_tools(tmp_path)
    assert isinstance(caught.value, UsageError)
    assert caught.value.code == "sandbox_unavailable"


def test_a_shell_that_is_wanted_if_possible_is_left_out_and_never_unconfined(
    tmp_path: Path, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        tools = workspace_tools(tmp_path, sandbox="auto")
    assert [tool.name for tool in tools] == ["read_file", "list_files", "search_files", "write_file", "edit_file"]
    assert "gets no shell" in caplog.text


def test_only_off_means_off_and_then_the_tool_says_so(tmp_path: Path, path: Path) -> None:
    shell = workspace_tools(tmp_path, sandbox="off")[-1]
    assert "NOT confined" in shell.description
    with pytest.raises(UsageError, match="write=False"):
        workspace_tools(tmp_path, sandbox="off", write=False)
    for wrong in ("none", "", None, False):
        with pytest.raises(UsageError, match="is unknown"):
            workspace_tools(tmp_path, sandbox=wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("echo 'bwrap: No permissions to create new namespace' >&2; exit 1", "No permissions to create new namespace"),
        ("exit 7", "it ended with 7"),
        ("exit 0", "without confining it"),
        ('while [ "$1" != -- ]; do shift; done; shift; exec "$@"', "without confining it: no user namespace"),
    ],
)
def test_a_bubblewrap_that_does_not_work_or_does_not_confine_is_none(tmp_path: Path, path: Path, text: str, words: str) -> None:
    program(path / "bwrap", text)
    with pytest.raises(SandboxUnavailable, match="lies in the workspace"):
        workspace_tools(path)
    (tmp_path / "workspace").mkdir()
    with pytest.raises(SandboxUnavailable, match=words):
        workspace_tools(tmp_path / "workspace")


async def test_a_bubblewrap_that_goes_away_later_takes_the_shell_with_it(
    place: Place, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    needs_bubblewrap()
    (tmp_path / "bin").mkdir()
    real = find_sandbox(str(place.root)).program
    copy = tmp_path / "bin" / "bwrap"
    program(copy, f'exec {real} "$@"')
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    place.use()
    assert await out(place, "echo works") == "works\n"
    copy.unlink()
    with pytest.raises(ToolError, match="was not run"):
        await place.call("shell", command="touch f")
    program(copy, "echo broken >&2; exit 1")
    with pytest.raises(ToolError, match="was not run: it could not be started: broken"):
        await place.call("shell", command="touch f")
    assert not os.listdir(place.root)


def test_a_workspace_that_would_uncover_too_much_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    for root in (tmp_path, tmp_path / "home", "/usr", "/usr/share", "/etc", "/tmp", "/var"):
        with pytest.raises(SandboxUnavailable):
            find_sandbox(str(root))


# That an agent can have it


def test_an_agent_asks_about_the_tools_that_change_something(tmp_path: Path) -> None:
    tools = workspace_tools(tmp_path, sandbox="off")
    agent = Agent("worker", model="openai:none", tools=tools, approve=mutating(tools))
    assert agent.policy.rules == {"write_file": "ask", "edit_file": "ask", "shell": "ask"}


async def test_tools_can_be_made_in_a_running_loop(place: Place) -> None:
    needs_bubblewrap()
    assert asyncio.get_running_loop()
    place.use()
    assert await out(place, "echo fine") == "fine\n"
