"""Confining commands with bubblewrap: what they can see, write and reach.

Nothing here falls back to less. A `Sandbox` exists only if bubblewrap just ran here, with the very arguments that commands will run with,
and was seen to have confined what it ran; else there is `SandboxUnavailable`.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ..core.errors import SandboxUnavailable, UsageError

__all__ = ["Sandbox", "find_sandbox"]

_PROBE_SECONDS = 20.0

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix", "/gnu", "/run/current-system")
"""Programs and libraries. What isn't named is not there: /home, /root, /run with its sockets, /var, /srv, /opt, /mnt, /sys, /boot."""

_NEVER = ("/etc", "/proc", "/dev", "/sys")
"""Where no workspace may lie."""

_SHARED = ("/tmp", "/var/tmp", "/var", "/run")  # noqa: S108 - to be refused, not used
"""What can't be a workspace itself, though one may lie in it."""

_NAMESPACES = ("user", "pid", "mnt", "ipc", "uts")

# Its output is compared with our own namespaces: a program called bwrap that only runs its arguments is no sandbox.
_PROBE = "for name in user pid mnt ipc uts net; do echo $name $(readlink /proc/self/ns/$name); done"


@dataclass(frozen=True, kw_only=True)
class Sandbox:
    """A way of running commands that was seen to work here. `command` says how; nothing else has to be known."""

    program: str
    root: str
    home: str
    writable: bool
    network: bool
    readable: tuple[str, ...] = ()
    hardened: bool = True

    def command(self, arguments: Iterable[str], *, status: int | None = None) -> list[str]:
        """The command line that runs ``arguments`` confined, in the workspace. Looks at the disk.

        ``status`` is a descriptor for bubblewrap's own reports: they have an exit code only if the command was really started.
        """
        line = [self.program, "--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-uts", "--unshare-cgroup-try"]
        if self.hardened:
            line.append("--disable-userns")
        if not self.network:
            line.append("--unshare-net")
        # bubblewrap itself forbids new privileges.
        line += ["--hostname", "sandbox", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
        line += _system()
        line += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--tmpfs", "/var/tmp"]  # noqa: S108 - new and empty ones
        if self.home != "/":
            line += ["--tmpfs", self.home]
        if self.network:
            line += _resolver()
        for path in self.readable:
            line += ["--ro-bind", path, path]
        # After all others: the workspace may lie in /tmp or at home, and what lies in it is never hidden by them.
        line += ["--bind" if self.writable else "--ro-bind", self.root, self.root]
        # The root and the directories that lead to the mounts are bubblewrap's own; nothing is to be written there. /proc/sys is the
        # machine's: root owns it, capabilities or not, and bubblewrap leaves it as it is.
        line += ["--remount-ro", "/", "--remount-ro", "/proc", "--chdir", self.root]
        if status is not None:
            line += ["--json-status-fd", str(status)]
        return [*line, "--", *arguments]


def find_sandbox(root: str, *, writable: bool = True, network: bool = False, readable: Iterable[str] = ()) -> Sandbox:
    """A sandbox around a directory, tried out. Raises `SandboxUnavailable` if there can be none here. Takes some milliseconds."""
    root = os.path.realpath(root)
    home = os.path.realpath(os.path.expanduser("~"))
    _check_root(root, home)
    program = shutil.which("bwrap")
    if program is None:
        raise SandboxUnavailable(
            "commands can't be confined: there is no bwrap on the PATH", hint='install bubblewrap, or pass sandbox="off" if that is meant'
        )
    program = os.path.realpath(program)
    if _inside(program, root):
        raise SandboxUnavailable("commands can't be confined: bwrap itself lies in the workspace, where they may change it")
    extra = []
    for path in readable:
        if not os.path.isabs(path) or not os.path.exists(path):
            raise UsageError(f"readable= names {path!r}", hint="absolute paths that exist")
        extra.append(os.path.realpath(path))
    failures = []
    # Versions before 0.8 can't forbid namespaces in namespaces. That is a second wall, not the first.
    for hardened in (True, False):
        sandbox = Sandbox(
            program=program, root=root, home=home, writable=writable, network=network, readable=tuple(extra), hardened=hardened
        )
        failure = _probe(sandbox)
        if not failure:
            return sandbox
        failures.append(failure)
    raise SandboxUnavailable(
        f"commands can't be confined: bwrap doesn't work here ({failures[-1]})",
        hint='containers often forbid user namespaces; allow them, or make the container the sandbox and pass sandbox="off"',
    )


def _check_root(root: str, home: str) -> None:
    if _inside(home, root):
        raise SandboxUnavailable(
            f"a workspace that holds the home directory can't be confined: {root}", hint="choose a directory below it, for the work alone"
        )
    for path in (*_SYSTEM, *_NEVER, *_SHARED):
        if _inside(path, root) or (path not in _SHARED and _inside(root, path)):
            raise SandboxUnavailable(
                f"a workspace can't be {root}, which belongs to the system", hint="choose a directory for the work alone"
            )


def _inside(path: str, directory: str) -> bool:
    return path == directory or path.startswith(directory.rstrip("/") + "/")


def _system() -> Iterator[str]:
    for path in _SYSTEM:
        if os.path.islink(path) and _inside(os.path.realpath(path), "/usr"):
            yield from ("--symlink", os.readlink(path), path)
        elif os.path.isdir(path):
            yield from ("--ro-bind", path, path)
    yield from ("--ro-bind", "/etc", "/etc")
    # What this user may read and not everybody may: keys and password hashes, if this is root.
    for path, is_directory in _private("/etc"):
        yield from ("--tmpfs", path, "--remount-ro", path) if is_directory else ("--ro-bind", "/dev/null", path)


def _private(top: str) -> Iterator[tuple[str, bool]]:
    try:
        entries = sorted(os.scandir(top), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        try:
            mode = entry.stat(follow_symlinks=False).st_mode
        except OSError:
            continue
        if stat.S_ISLNK(mode):
            continue
        is_directory = stat.S_ISDIR(mode)
        needed = stat.S_IROTH | stat.S_IXOTH if is_directory else stat.S_IROTH
        if mode & needed != needed:
            if os.access(entry.path, os.R_OK):
                yield entry.path, is_directory
        elif is_directory:
            yield from _private(entry.path)


def _resolver() -> Iterator[str]:
    # Name servers are often written below /run, which isn't there.
    real = os.path.realpath("/etc/resolv.conf")
    if not _inside(real, "/etc") and os.path.isfile(real):
        yield from ("--ro-bind", real, real)


def _probe(sandbox: Sandbox) -> str:
    """What is wrong with it, or nothing."""
    try:
        line = sandbox.command(["/bin/sh", "-c", _PROBE])
        environment = {"PATH": "/usr/local/bin:/usr/bin:/bin:/run/current-system/sw/bin", "LC_ALL": "C"}
        ended = subprocess.run(  # noqa: S603 - no shell, and not a word of it is a model's
            line, stdin=subprocess.DEVNULL, capture_output=True, timeout=_PROBE_SECONDS, check=False, env=environment, cwd="/"
        )
    except subprocess.TimeoutExpired:
        return f"it didn't end within {_PROBE_SECONDS:g} s"
    except OSError as error:
        return f"it can't be started: {error.strerror}"
    if ended.returncode != 0:
        words = ended.stderr.decode("utf-8", "replace").strip().splitlines()
        return words[-1][:300] if words else f"it ended with {ended.returncode}"
    seen = dict(line.split(" ", 1) for line in ended.stdout.decode("utf-8", "replace").splitlines() if " " in line)
    for name in (*_NAMESPACES, *(() if sandbox.network else ("net",))):
        if not seen.get(name, "").startswith(f"{name}:[") or seen[name] == os.readlink(f"/proc/self/ns/{name}"):
            return f"it ran a command without confining it: no {name} namespace of its own"
    return ""
