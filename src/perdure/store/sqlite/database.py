"""The file: making it, recognising it, connecting to it, and what its errors mean."""

from __future__ import annotations

import ctypes
import os
import secrets
import stat
import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

import apsw

from ...core.errors import (
    FormatUnknown,
    InvalidURL,
    PerdureError,
    StoreBroken,
    StoreBusy,
    StoreCorrupt,
    StoreForked,
    StoreFull,
    StoreReadOnly,
)
from ..durable import sync
from . import rows
from .locks import LifeLocks, Turnstile
from .sql import QUERIES, RENEWALS, SCHEMA

__all__ = ["APPLICATION_ID", "FORMAT", "Database", "translate"]

APPLICATION_ID = 0x70647572
"""``pdur``: what tells our files from other SQLite databases."""

FORMAT = 1
"""The layout in schema.sql. A file with a higher number is refused, one with a lower one is renewed by the first that may write to it."""

PAGE_SIZE = 2048

_open_databases: weakref.WeakSet[Database] = weakref.WeakSet()
_inherited: set[tuple[int, int]] = set()


class Database:
    """An opened file: its directory of locks and the connections to it."""

    def __init__(self, path: Path, *, busy_timeout: float, vfs: str | None) -> None:
        self.given = path
        # By whatever links it is reached: all who use the file find one log and the same locks, and a link stays one.
        self.path = _linked(path)
        self.store_id = ""
        self.secret = b""
        self.read_only = False
        self.turnstile: Turnstile | None = None
        self.waits: Callable[[], None] = lambda: None
        self.lives = LifeLocks(self._locks)
        self.busy_timeout = round(busy_timeout * 1000)
        self._vfs = vfs
        self._immutable = False
        self._connections: list[apsw.Connection] = []
        self.inode: tuple[int, int] | None = None
        # A text, since it is looked at with every write.
        self._log = str(self.path) + "-wal"
        self._log_inode = 0

    @property
    def _locks(self) -> Path:
        return self.path.with_name(self.path.name + "-locks")

    def open(self) -> apsw.Connection:
        """Make the file if it isn't there, check that it is ours, and return the writer's connection.

        Nothing is touched before the file is known to be ours. Raises what `Store.open` raises.
        """
        path = self.path
        try:
            self._check_name()
            if self._exists():
                self._recognise()
                self._lock_files()
            else:
                self._lock_files()
                if self.turnstile is None:
                    raise StoreReadOnly(f"{str(path)!r} can't be made here", hint="the directory can't be written")
                with self.turnstile:
                    if not self._exists():
                        self._make()
                self._recognise()
            self._not_inherited()
            connection = self._connect_writer()
            self._renew(connection)
            self._check_layout(connection)
            self._read_meta(connection)
        except apsw.Error as error:
            self.close()
            raise translate(error, f"opening {str(path)!r}") from error
        except OSError as error:
            self.close()
            raise StoreBroken(
                f"{str(path)!r} can't be opened: {error.strerror or error}",
                hint=f"name a file in a directory where this process may make files and directories: {self._locks.name!r} stands beside it",
            ) from error
        except BaseException:
            self.close()
            raise
        _open_databases.add(self)
        return connection

    def connect_reader(self) -> apsw.Connection:
        connection = self._connect(apsw.SQLITE_OPEN_READONLY)
        connection.execute("PRAGMA query_only = 1")
        connection.create_scalar_function("holds_words", rows.holds_words, 2, deterministic=True)
        connection.create_scalar_function("holds_labels", rows.holds_labels, 2, deterministic=True)
        return connection

    def check_place(self, *, log: bool = False) -> None:
        """Raises `StoreBroken` if the file, or with ``log`` its log, is no longer where it was opened: what is written to it now, nobody
        will find."""
        try:
            status = os.stat(self.given)
            if (status.st_dev, status.st_ino) == self.inode:
                if log:
                    self._check_log()
                return
            what = "was replaced by another file"
        except FileNotFoundError:
            what = "was moved away or removed"
        except OSError as error:
            what = f"can't be found: {error.strerror}"
        raise StoreBroken(
            f"{str(self.given)!r} {what} while it was open; nothing more is read from or written to what was opened",
            hint="put the file back, with its -wal, or end the processes that use it and open the new one",
        )

    def _check_log(self) -> None:
        try:
            inode = os.stat(self._log).st_ino
        except FileNotFoundError:
            inode = 0
        if self._log_inode in (0, inode):
            # SQLite makes it with the first read, and keeps it for as long as anybody has the file open.
            self._log_inode = inode
            return
        raise StoreBroken(
            f"{self._log!r} was removed or replaced while its database was open: what others can't see any more is in it",
            hint="end this process in good order, so that it writes into the database what its log holds; kill it, and that is lost",
        )

    def close(self) -> None:
        """Close every connection, the writer's last, so that it leaves a file without a log."""
        for connection in reversed(self._connections):
            # What was answered is durable; that the log can't be folded into the file now is no loss.
            with suppress(apsw.Error):
                connection.close()
        self._connections.clear()
        self.lives.close()
        if self.turnstile is not None:
            self.turnstile.close()
            self.turnstile = None
        _open_databases.discard(self)

    def leak(self) -> None:
        """In a forked child: make sure that nothing here is ever closed or unlocked by it.

        SQLite would take the log away from the parent, whose locks the child doesn't have but believes to have.
        """
        for connection in self._connections:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))
        self.lives.close()
        if self.turnstile is not None:
            self.turnstile.close()
        if self.inode is not None:
            _inherited.add(self.inode)

    def _check_name(self) -> None:
        """Raises `InvalidURL` where no database can be. What is no file is never replaced by one."""
        path = self.path
        try:
            os.fsencode(path).decode()
            mode = path.stat().st_mode
        except ValueError:
            raise InvalidURL(f"{str(path)!r} is no name that a database can have", hint="without NUL, and in UTF-8") from None
        except FileNotFoundError:
            if not path.parent.is_dir():
                raise InvalidURL(f"there is no directory {str(path.parent)!r} for the store", hint="create it first") from None
            return
        if stat.S_ISDIR(mode):
            raise InvalidURL(f"{str(path)!r} is a directory", hint="name a file in it")
        if not stat.S_ISREG(mode):
            raise InvalidURL(f"{str(path)!r} is no file", hint='it was left as it is; "memory://" is a store that keeps nothing')

    def _exists(self) -> bool:
        try:
            return self.path.stat().st_size > 0
        except FileNotFoundError:
            return False

    def _not_inherited(self) -> None:
        status = self.path.stat()
        self.inode = (status.st_dev, status.st_ino)
        if self.inode in _inherited:
            raise StoreForked(
                f"{str(self.path)!r} was open when this process was forked; SQLite can't open it again here",
                hint="open the store only after the fork, or start the process with spawn",
            )

    def _recognise(self) -> None:
        application, version = self._marks()
        if application != APPLICATION_ID:
            raise FormatUnknown(f"{str(self.path)!r} is not a perdure store", hint="it was left as it is; choose another path")
        self._known(version)

    def _known(self, version: int) -> None:
        if not 1 <= version <= FORMAT:
            raise FormatUnknown(
                f"{str(self.path)!r} has format {version}; this version knows {FORMAT}", hint="it was left as it is; use a newer perdure"
            )

    def _renew(self, connection: apsw.Connection) -> None:
        """Bring the file to this format, or find that somebody else just did; all of it or nothing."""
        if connection.pragma("user_version") == FORMAT:
            return
        if self.turnstile is None or self.read_only:
            raise StoreReadOnly(
                f"{str(self.path)!r} has an older format, which must be renewed first", hint="open it once where it can be written"
            )
        with self.turnstile, connection:
            version = connection.pragma("user_version")
            self._known(version)
            for number in range(version + 1, FORMAT + 1):
                connection.execute(RENEWALS[number])
            connection.pragma("user_version", FORMAT)

    def _check_layout(self, connection: apsw.Connection) -> None:
        """Raises `StoreCorrupt` where a part of the format is missing, and not in the middle of a turn. What others added is theirs."""
        if missing := sorted(_layout() - _names(connection)):
            raise StoreCorrupt(
                f"{str(self.path)!r} has lost {', '.join(missing[:5])}", hint="it was left as it is; restore it from a backup"
            )

    def check_format(self, connection: apsw.Connection) -> None:
        """In a transaction that writes: raises `FormatUnknown` if a newer version renewed the file while this process had it open."""
        if (version := connection.pragma("user_version")) != FORMAT:
            raise FormatUnknown(
                f"{str(self.path)!r} was renewed to format {version} by a newer perdure; this process knows {FORMAT}",
                hint="nothing was written; end the processes of the older version, and let newer ones go on",
            )

    def _marks(self) -> tuple[int, int]:
        # Immutable: no lock, no log and no recovery, so that a file that is not ours stays as it is. All that is read is the first page,
        # which is complete before the file gets its name.
        connection = apsw.Connection(
            f"file:{quote(str(self.path.absolute()))}?immutable=1", flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI, vfs=self._vfs
        )
        try:
            return connection.pragma("application_id"), connection.pragma("user_version")
        except apsw.CorruptError:
            # Another process may be folding its log into the file just now: page 1 tells the new length before the file has it. The marks
            # are the same before and after; whether anything is wrong, the connection with locks will find out.
            file = apsw.VFSFile(self._vfs or "", str(self.path.absolute()), [apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_MAIN_DB, 0])
            try:
                header = file.xRead(100, 0)
            finally:
                file.xClose()
            return int.from_bytes(header[68:72], "big"), int.from_bytes(header[60:64], "big")
        finally:
            connection.close()

    def _lock_files(self) -> None:
        if not os.access(self.path.parent, os.W_OK) or (self.path.exists() and not os.access(self.path, os.W_OK)):
            self.read_only = True
            return
        try:
            self._locks.mkdir(mode=0o700, exist_ok=True)
            self.turnstile = Turnstile(self._locks, self.waits)
        except OSError:
            # A read-only file system lets nobody write, whatever the modes say.
            if not self._exists():
                raise
            self.read_only = True

    def _make(self) -> None:
        log = self.path.with_name(self.path.name + "-wal")
        if log.exists() and log.stat().st_size > 0:
            # SQLite would take it for the new file's.
            raise StoreBroken(
                f"{str(self.path)!r} is not there, but its log {log.name!r} is",
                hint="put the file back, or remove the log if it isn't needed",
            )
        # Under another name first: whoever finds the file finds all of it, also if this process dies here.
        draft = self.path.with_name(self.path.name + "-new")
        for leftover in (draft, draft.with_name(draft.name + "-journal"), draft.with_name(draft.name + "-wal")):
            leftover.unlink(missing_ok=True)
        os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))
        connection = apsw.Connection(str(draft), flags=apsw.SQLITE_OPEN_READWRITE, vfs=self._vfs)
        try:
            connection.execute(f"PRAGMA page_size = {PAGE_SIZE}")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA fullfsync = 1")
            connection.execute(QUERIES["begin"])
            connection.execute(SCHEMA)
            connection.execute(QUERIES["meta_put"], {"key": "store_id", "value": secrets.token_hex(16)})
            connection.execute(QUERIES["meta_put"], {"key": "secret", "value": secrets.token_bytes(32)})
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {FORMAT}")
            connection.execute(QUERIES["commit"])
            connection.execute("PRAGMA journal_mode = WAL")
        finally:
            connection.close()
        draft.rename(self.path)
        sync(self.path.absolute().parent)

    def _connect(self, flags: int) -> apsw.Connection:
        name = str(self.path.absolute())
        if self._immutable:
            name, flags = f"file:{quote(name)}?immutable=1", flags | apsw.SQLITE_OPEN_URI
        connection = apsw.Connection(name, flags=flags, vfs=self._vfs)
        self._connections.append(connection)
        connection.set_busy_timeout(self.busy_timeout)
        return connection

    def _connect_writer(self) -> apsw.Connection:
        if not self.read_only:
            connection = self._connect(apsw.SQLITE_OPEN_READWRITE)
            if not connection.readonly("main"):
                connection.execute("PRAGMA synchronous = FULL")
                # What macOS calls a sync leaves the drive's own cache as it is; elsewhere this is nothing.
                connection.execute("PRAGMA fullfsync = 1")
                connection.execute("PRAGMA checkpoint_fullfsync = 1")
                connection.execute("PRAGMA secure_delete = 1")
                # As many bytes as SQLite's default has with pages of 4 KiB.
                connection.execute("PRAGMA wal_autocheckpoint = 2000")
                if connection.pragma("journal_mode") != "wal":
                    connection.pragma("journal_mode", "wal")
                return connection
            self.read_only = True
            self._connections.remove(connection)
            connection.close()
        try:
            connection = self._connect(apsw.SQLITE_OPEN_READONLY)
            connection.pragma("user_version")
        except (apsw.CantOpenError, apsw.ReadOnlyError):
            # Nobody else has it open, and we can't make the shared index that a log needs. Without a log the file alone is the truth.
            log = self.path.with_name(self.path.name + "-wal")
            if log.exists() and log.stat().st_size > 0:
                raise
            self._connections.pop().close()
            self._immutable = True
            connection = self._connect(apsw.SQLITE_OPEN_READONLY)
        return connection

    def _read_meta(self, connection: apsw.Connection) -> None:
        def fact(key: str) -> Any:
            for (value,) in connection.execute(QUERIES["meta_get"], {"key": key}):
                return value
            raise StoreCorrupt(f"{str(self.path)!r} has lost its {key}", hint="restore it from a backup")

        self.store_id = fact("store_id")
        self.secret = fact("secret")


def _names(connection: apsw.Connection) -> frozenset[str]:
    return frozenset(name for (name,) in connection.execute(QUERIES["layout"]))


@cache
def _layout() -> frozenset[str]:
    """What a file of this format has."""
    made = apsw.Connection(":memory:")
    try:
        made.execute(SCHEMA)
        return _names(made)
    finally:
        made.close()


def _linked(path: Path) -> Path:
    """What a path's links lead to. What can be no path stays as it is, and `Database.open` says so."""
    try:
        return Path(os.path.realpath(path))
    except ValueError:
        return path


def translate(error: apsw.Error, doing: str) -> PerdureError:
    """What an error of SQLite means for whoever asked."""
    text = f"{doing}: {error}"
    match error:
        case apsw.FullError():
            return StoreFull(text, hint="make room; nothing of this write was kept")
        case apsw.ReadOnlyError():
            return StoreReadOnly(text)
        case apsw.NotADBError():
            return FormatUnknown(text, hint="the file is not an SQLite database; it was left as it is")
        case apsw.CorruptError():
            return StoreCorrupt(text, hint="restore the file from a backup")
        case apsw.BusyError() | apsw.LockedError():
            return StoreBusy(text, hint="another program holds the database; it is safe to try again")
        case _:
            return StoreBroken(text)


def _after_fork() -> None:
    for database in list(_open_databases):
        database.leak()


os.register_at_fork(after_in_child=_after_fork)
