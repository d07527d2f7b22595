"""Whose sessions somebody sees: an owner's, or everybody's."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial, wraps
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any

from ..core import checkpoint as checkpoints
from ..core.checkpoint import Checkpoint
from ..core.entries import Entry
from ..core.errors import SessionArchived, SessionNotFound, StoreCorrupt, StoreError, UsageError
from ..core.records import Identity
from ..store.base import Loaded, SessionRow, Store
from .about import check_identity
from .context import Fetch, stored_content
from .messages import read_entry
from .names import check_id

if TYPE_CHECKING:
    from .runtime import Runtime

__all__ = ["Scope", "deleted_meanwhile", "missing", "put_away"]

_log = logging.getLogger("perdure.runtime")


class Scope:
    """The part of `Sessions` that finds them.

    What somebody deletes while it is read looks damaged. Every method that is asked about one session tells that apart.
    """

    def __init_subclass__(cls) -> None:
        for name, method in [*vars(cls).items()]:
            if iscoroutinefunction(method) and not name.startswith("_"):
                given = method.__code__.co_varnames[1 : method.__code__.co_argcount]
                if given and given[0] in ("session_id", "session"):
                    setattr(cls, name, _not_found_if_deleted(method, given[0]))

    def __init__(self, runtime: Runtime, owner: str | None = None) -> None:
        self._runtime = runtime
        self._owner = owner

    async def _head(self, session_id: str) -> Loaded:
        check_id(session_id, "a session id")
        head = await self._runtime.store.load(session_id)
        if head is None:
            # Whose it was is not known any more, so that only who may see all is told.
            raise missing(session_id, self._owner, deleted=self._owner is None and await self._runtime.store.buried(session_id))
        return self._mine(head)

    def _mine(self, head: Loaded) -> Loaded:
        if self._owner not in (None, head.row.owner):
            raise missing(head.row.session_id, self._owner, deleted=False)
        return head

    async def number(self, session_id: str) -> int | None:
        """The store's number of a session, None if it isn't there yet. Raises `SessionNotFound` if it is another's, or was deleted."""
        head = await self._runtime.store.load(check_id(session_id, "a session id"))
        return None if head is None else self._mine(head).row.no

    async def checkpoint(self, session_id: str) -> Checkpoint:
        """The fold of the session's journal. Raises `SessionNotFound`, `NewerRules`."""
        return checkpoints.decode((await self._head(session_id)).row.checkpoint)

    def new_identity(self, identity: Identity | None) -> Identity:
        """Whose a session is that begins here. Raises `UsageError` for an identity of another owner than the one these are for."""
        if identity is None:
            return Identity() if self._owner is None else Identity(owner=self._owner)
        if self._owner not in (None, check_identity(identity).owner):
            raise UsageError(f"identity.owner is {identity.owner!r}, and owner= is {self._owner!r}", hint="they mean the same")
        return identity

    async def _entry(self, head: Loaded, seq: int) -> Entry:
        """An entry that the journal had, or what is left of it. Raises `StoreCorrupt` if it is missing."""
        entry = await read_entry(self._runtime.store, head.row.no, seq)
        if entry is None:
            raise StoreCorrupt(f"entry {seq} is missing", hint="run `perdure verify`")
        return entry

    def _fetcher(self, row: SessionRow) -> Fetch:
        return partial(stored_content, self._runtime.store, row.root)


def _not_found_if_deleted(method: Callable[..., Awaitable[Any]], first: str) -> Callable[..., Awaitable[Any]]:
    @wraps(method)
    async def asked(self: Scope, *given: Any, **named: Any) -> Any:
        try:
            return await method(self, *given, **named)
        except StoreCorrupt:
            session_id = given[0] if given else named[first]
            if await _buried(self._runtime.store, session_id):
                await self._head(session_id)
            raise

    return asked


async def deleted_meanwhile(store: Store, session_id: str) -> SessionNotFound | None:
    """What there is to say of a session in which something is missing, if that is because it was deleted."""
    return missing(session_id, deleted=True) if await _buried(store, session_id) else None


async def _buried(store: Store, session_id: str) -> bool:
    """Whether something is missing because the session was deleted; a store that can't say so hides nothing of what is missing."""
    try:
        return await store.buried(session_id)
    except StoreError as error:
        _log.warning("whether %s was deleted can't be said: %s", session_id, error)
        return False


def missing(session_id: str, owner: str | None = None, *, deleted: bool) -> SessionNotFound:
    """``owner`` is who looked for it. One of another's and one that never was are told alike."""
    if deleted:
        return SessionNotFound(f"the session {session_id!r} was deleted", hint="its id can't be used again")
    if owner is not None:
        return SessionNotFound(
            f"there is no session {session_id!r} of the owner {owner!r}",
            hint="one that began without an owner, or with another, is none of theirs; take another id, or leave owner= out",
        )
    return SessionNotFound(f"there is no session {session_id!r}", hint="`perdure sessions` lists them")


def put_away(session_id: str) -> SessionArchived:
    return SessionArchived(f"the session {session_id!r} is archived", hint="its history can be read; sessions.revive(…) takes it out again")
