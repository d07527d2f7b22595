"""A copy of a database while it is in use."""

from __future__ import annotations

import os
from pathlib import Path

import apsw

from ...core.errors import FormatUnknown, StoreBroken, UsageError
from ..durable import sync
from .database import APPLICATION_ID, translate

__all__ = ["copy_database"]


def copy_database(source: Path, target: Path) -> None:
    """Write what ``source`` holds now into the new file ``target``, of mode 600, durable when this returns.

    It reads one moment of the database, and nobody waits for it. A crash leaves ``target`` missing, and perhaps a file beside it whose
    name ends in ``-copy``. Raises `UsageError` if ``target`` exists, `FormatUnknown` for what is no perdure store, and a `StoreError`.
    """
    if target.exists():
        raise UsageError(f"{str(target)!r} exists already", hint="nothing is overwritten; name a new file")
    draft = target.with_name(target.name + "-copy")
    try:
        draft.unlink(missing_ok=True)
        os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))
        connection = apsw.Connection(str(source), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            if connection.pragma("application_id") != APPLICATION_ID:
                raise FormatUnknown(f"{str(source)!r} is not a perdure store", hint="--db names the store that is meant")
            connection.execute("VACUUM INTO ?", (str(draft),))
        finally:
            connection.close()
        sync(draft)
        # A name that is taken meanwhile is somebody else's.
        os.link(draft, target)
        draft.unlink()
        sync(draft.parent)
    except apsw.Error as error:
        draft.unlink(missing_ok=True)
        raise translate(error, f"copying {str(source)!r}") from error
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise StoreBroken(f"{str(target)!r} can't be written: {error}", hint="name a file in a directory that can be written") from error
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
