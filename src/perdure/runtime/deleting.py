"""Deleting sessions of a tree: what those that stay were forked from stays as long as they need it, hidden, and nothing else does."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import NamedTuple

from ..core.entries import Forked, Redacted
from ..core.errors import SessionBusy
from ..core.journal import open_entry
from ..store.base import SessionRow, Store

__all__ = ["Needed", "delete", "finish", "left_over", "living_forks", "needed_by_forks"]

DIGEST = re.compile(rb"[0-9a-f]{64}")

PAGE = 200

TRIES = 100
"""How often it is found out what goes, if sessions begin in the tree each time."""


async def delete(store: Store, row: SessionRow, *, tree: bool) -> list[str]:
    """Delete a session and those of the agents that it called, or with ``tree`` what was forked from it too.

    Then what is left of those that had been deleted before, which nobody needs any more now.

    Each is a transaction; what a crash leaves undone, `finish` does. Returns the ids that were deleted. Raises `SessionBusy` if others
    begin in the tree all the time.
    """
    for _ in range(TRIES):
        doomed, chosen = [row], {row.no}
        rows = await store.tree(row.root)
        for found in doomed:
            more = [other for other in rows if other.parent == found.session_id and (tree or other.parent_kind == "child")]
            doomed += [other for other in more if other.no not in chosen]
            chosen |= {other.no for other in more}
        # Forks first: a parent is destroyed whole once nobody needs it.
        for found in reversed(doomed):
            if found.status != "deleted" and not await _destroy(store, found, len(rows)):
                # A session began in the tree, which may need what would have gone, or go with it.
                break
        else:
            break
    else:
        raise SessionBusy(f"others begin in the tree of {row.session_id!r} all the time", hint="try again when less is going on")
    # Only what these came from can be needed no more because of them; a look at every tombstone of the tree would cost more each time.
    of = {found.session_id: found for found in rows}
    above, at = set[int](), of.get(row.parent or "")
    while at is not None and at.no not in above:
        above.add(at.no)
        at = of.get(at.parent or "")
    if len(rows) > 1:
        await _tidy(store, row.root, above | chosen)
    return [found.session_id for found in doomed]


async def finish(store: Store, root: str) -> None:
    """Destroy what is left of a tree's deleted sessions that nobody needs, and look at each of them for it. Idempotent."""
    await _tidy(store, root, None)


async def _tidy(store: Store, root: str, among: Set[int] | None) -> None:
    """``among``: the numbers of those that may be left over; None is all of them."""
    rows = await store.tree(root)
    forks = living_forks(rows)
    for left in reversed(rows):
        if left.status != "deleted" or (among is not None and left.no not in among):
            continue
        if await left_over(store, left, await needed_by_forks(store, left, forks)):
            # Nothing can be forked from it any more.
            await _destroy(store, left, None)


class Needed(NamedTuple):
    """What somebody may still need of a session: its entries up to ``keep``, and the ``receipts`` of effects behind them."""

    keep: int = 0
    receipts: tuple[int, ...] = ()


def living_forks(tree: Iterable[SessionRow]) -> dict[str, list[SessionRow]]:
    """The forks of each session of a tree that live, or that one which lives was forked from, however many were deleted in between."""
    forks = {row.session_id: row for row in tree if row.parent_kind == "fork"}
    alive: dict[str, SessionRow] = {}
    for found in forks.values():
        if found.status != "deleted":
            up: SessionRow | None = found
            while up is not None and up.session_id not in alive:
                alive[up.session_id] = up
                up = forks.get(up.parent or "")
    children: dict[str, list[SessionRow]] = {}
    for found in alive.values():
        children.setdefault(found.parent or "", []).append(found)
    return children


async def needed_by_forks(store: Store, row: SessionRow, forks: Mapping[str, Sequence[SessionRow]]) -> Needed:
    """What the `living_forks` of its tree can reach of a session: the messages that they began with, and all effects of their past."""
    keep, until = 1, 0
    mine = forks.get(row.session_id, ())
    for child in mine:
        entries = await store.entries(child.no, after=1, before=3)
        forked = open_entry(entries[0]) if entries else None
        if not isinstance(forked, Forked):
            return Needed(row.version)
        for piece in forked.pieces:
            if piece.session == row.session_id:
                keep = max(keep, (await store.seek(row.no, [piece.stop - 1]))[0] or row.version)
        # A branch of a turn that ran has all that the turn did since then in its past.
        until = max(until, row.version if forked.running else forked.version)
    if not mine:
        return Needed()
    # A deleted session that was forked says of what, whatever else goes.
    keep = max(keep, 2 if row.parent is not None else 1)
    return Needed(keep, tuple(effect.seq for effect in await store.effects(row.no, after=keep) if effect.seq <= until))


async def left_over(store: Store, row: SessionRow, needed: Needed) -> list[str]:
    """What is still there of a deleted session that nobody needs."""
    found, receipts, after = [], {*needed.receipts}, needed.keep
    while page := await store.entries(row.no, after=after, limit=PAGE):
        if any(item.seq not in receipts and not (needed.keep and item.kind == Redacted.kind) for item in page):
            found.append("entries")
            break
        after = page[-1].seq
    if any(effect.seq not in receipts for effect in await store.effects(row.no, after=needed.keep)):
        found.append("effects")
    return found


async def _destroy(store: Store, row: SessionRow, size: int | None) -> bool:
    """``size`` is how many sessions its tree had, if that matters. False, and nothing was done: it has others by now."""
    tree = await store.tree(row.root)
    if size not in (None, len(tree)):
        return False
    needed = await needed_by_forks(store, row, living_forks(tree))
    others = any(other.status != "deleted" and other.no != row.no for other in tree)
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
    return await store.delete(row.no, keep=needed.keep, receipts=needed.receipts, erased=tuple(erased), tree=size)
