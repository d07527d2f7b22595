"""Deleting sessions of a tree: what those that stay were forked from stays as long as they need it, hidden, and nothing else does."""

from __future__ import annotations

import re
from typing import NamedTuple

from ..core.entries import Forked
from ..core.journal import open_entry
from ..store.base import SessionRow, Store

__all__ = ["Needed", "delete", "needed_by_forks"]

DIGEST = re.compile(rb"[0-9a-f]{64}")

PAGE = 200


async def delete(store: Store, row: SessionRow, *, tree: bool) -> list[str]:
    """Delete a session and those of the agents that it called, or with ``tree`` what was forked from it too.

    Then what is left of deleted ones that nobody needs any more.

    Each is a transaction; what a crash leaves undone, the next deletion in the tree does. Returns the ids that were deleted.
    """
    doomed = [row]
    rows = await store.tree(row.root)
    for found in doomed:
        doomed += [other for other in rows if other.parent == found.session_id and (tree or other.parent_kind == "child")]
    # Forks first: a parent is destroyed whole once nobody needs it.
    for found in reversed(doomed):
        if found.status != "deleted":
            await _destroy(store, found)
    for left in reversed(await store.tree(row.root)):
        if left.status == "deleted" and await store.entries(left.no, limit=1):
            await _destroy(store, left)
    return [found.session_id for found in doomed]


class Needed(NamedTuple):
    """What somebody may still need of a session: its entries up to ``keep``, and the ``receipts`` of effects behind them."""

    keep: int = 0
    receipts: tuple[int, ...] = ()


async def needed_by_forks(store: Store, row: SessionRow) -> Needed:
    """What a living fork, or a deleted one that a living fork needs, can reach: the messages it began with, and all effects of its past."""
    children: dict[str, list[SessionRow]] = {}
    for other in await store.tree(row.root):
        if other.parent is not None and other.parent_kind == "fork":
            children.setdefault(other.parent, []).append(other)

    def alive(found: SessionRow) -> bool:
        return found.status != "deleted" or any(map(alive, children.get(found.session_id, ())))

    keep, until = 1, 0
    forks = [child for child in children.get(row.session_id, ()) if alive(child)]
    for child in forks:
        entries = await store.entries(child.no, after=1, before=3)
        forked = open_entry(entries[0]) if entries else None
        if not isinstance(forked, Forked):
            return Needed(row.version)
        for piece in forked.pieces:
            if piece.session == row.session_id:
                keep = max(keep, await store.seek(row.no, piece.stop - 1) or row.version)
        # A branch of a turn that ran has all that the turn did since then in its past.
        until = max(until, row.version if forked.running else forked.version)
    if not forks:
        return Needed()
    # A deleted session that was forked says of what, whatever else goes.
    keep = max(keep, 2 if row.parent is not None else 1)
    return Needed(keep, tuple(effect.seq for effect in await store.effects(row.no, after=keep) if effect.seq <= until))


async def _destroy(store: Store, row: SessionRow) -> None:
    needed = await needed_by_forks(store, row)
    others = any(other.status != "deleted" and other.no != row.no for other in await store.tree(row.root))
    # The last one takes all of the tree's content with it.
    held = set(await store.blobs(row.root)) if others else set()
    erased: dict[str, None] = {}
    after = needed.keep
    while page := await store.entries(row.no, after=after, limit=PAGE):
        for entry in page:
            erased |= {found.decode(): None for found in DIGEST.findall(entry.body or b"") if found.decode() in held}
        after = page[-1].seq
    for waiting in await store.inbox(row.no):
        erased |= {found.decode(): None for found in DIGEST.findall(waiting.body or b"") if found.decode() in held}
    await store.delete(row.no, keep=needed.keep, receipts=needed.receipts, erased=tuple(erased))
