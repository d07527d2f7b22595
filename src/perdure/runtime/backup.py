"""Copies of a store: made while it is in use, verified, and put back."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

from ..core.errors import StoreBroken, StoreCorrupt, UsageError
from ..store.blobs import DirectoryBlobs
from ..store.durable import sync
from ..store.outside import WithBlobs
from ..store.sqlite import SQLiteStore
from ..store.sqlite.backup import copy_database
from .verify import Checked, verify

__all__ = ["backup", "restore"]

BLOBS = "-blobs"
"""What the name of a copy's directory for content ends in."""


async def backup(url: str, target: str | os.PathLike[str]) -> Checked:
    """Copy the store at ``url`` into the new file ``target``, and verify the copy; what was checked.

    The store may be in use: the copy is of one moment, and nobody waits. Content that stands in a directory is copied behind it, into
    ``target`` + ``-blobs``. Raises `UsageError` for a store that isn't a file and for a file that exists, `StoreCorrupt` if the copy is
    damaged as the store is (it is kept), and a `StoreError`.
    """
    source, content = _places(url)
    copy = Path(target)
    await asyncio.to_thread(copy_database, source, copy)
    if content is not None:
        await asyncio.to_thread(_copy_content, content, _content_of(copy))
    return await _verified(copy, _content_of(copy) if content is not None else None)


async def restore(source: str | os.PathLike[str], url: str) -> Checked:
    """Make the store at ``url``, which must not exist, from what `backup` wrote, and verify it; what was checked.

    It is the store as it was then: what was done since isn't known to it, so that effects since then are not guarded. Raises what
    `backup` does.
    """
    target, content = _places(url)
    copy = Path(source)
    has_content = await asyncio.to_thread(_has_content, copy)
    if has_content and content is None:
        raise UsageError(f"{str(copy)!r} has content in a directory", hint=f"sqlite:///{target}?blobs=DIRECTORY says where it belongs")
    await asyncio.to_thread(copy_database, copy, target)
    if content is not None and has_content:
        await asyncio.to_thread(_copy_content, _content_of(copy), content)
    return await _verified(target, content)


def _places(url: str) -> tuple[Path, Path | None]:
    """The file of a store, and the directory of its content."""
    scheme, separator, _ = url.partition("://")
    if not separator:
        return Path(url), None
    parts = urlsplit(url)
    if scheme != "sqlite" or not parts.path.strip("/"):
        raise UsageError("only a store in a file is copied so", hint="use the database's own tools: pg_dump and pg_restore for PostgreSQL")
    content = parse_qs(parts.query).get("blobs")
    return Path(unquote(parts.path[1:])), Path(content[0]) if content else None


def _content_of(copy: Path) -> Path:
    return copy.with_name(copy.name + BLOBS)


def _has_content(copy: Path) -> bool:
    if not copy.exists():
        raise UsageError(f"there is no file {str(copy)!r}", hint="name the file that `perdure backup` wrote")
    return _content_of(copy).exists()


def _copy_content(source: Path, target: Path) -> None:
    try:
        shutil.copytree(source, target, copy_function=_copy_file, ignore=_half_done, dirs_exist_ok=True)
        for directory in (target.parent, target, *(path for path in target.iterdir() if path.is_dir())):
            sync(directory)
    except (OSError, shutil.Error) as error:
        raise StoreBroken(f"the content in {str(source)!r} can't be copied: {error}") from error


def _copy_file(source: str, target: str) -> None:
    try:
        shutil.copy2(source, target)
    except FileNotFoundError:
        # Deleted since, together with what referred to it; if not, the verification says so.
        return
    sync(target)


def _half_done(directory: str, names: Iterable[str]) -> set[str]:
    return {name for name in names if name.startswith(".put-")}


async def _verified(path: Path, content: Path | None) -> Checked:
    store = SQLiteStore(path)
    checked = Checked()
    opened = store if content is None else WithBlobs(store, DirectoryBlobs(content))
    await opened.open()
    try:
        async for problem in verify(opened, checked=checked):
            raise StoreCorrupt(
                f"the copy {str(path)!r} is damaged at {problem.session_id!r}, {problem.where} {problem.seq}: {problem.what}",
                hint="verify the store that it was copied from",
            )
    finally:
        await opened.close()
    return checked
