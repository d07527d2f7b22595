"""Whether what is counted is what was used: totals against the ledger, and owners' pools against what their sessions drew."""

from __future__ import annotations

from ..core.budget import drawn_and_spent, plus
from ..core.checkpoint import Checkpoint
from ..core.entries import AllowanceGranted, Entry, Foreign, TurnEnded
from ..core.records import Amounts
from ..core.usage import Totals
from ..store.base import Store
from ..store.pools import KeepsPools, OwnersPool
from .model_calls import Pairing

__all__ = ["BudgetCheck", "PoolCheck"]


class BudgetCheck:
    """One session's counters, added up once more from its journal. ``charges`` is what its turns took from each pool."""

    def __init__(self) -> None:
        self.charges: dict[str, Amounts] = {}
        self.ended = Amounts()
        self.drew = False
        """Whether a turn drew from a pool of this store: what stands before an import was drawn elsewhere."""
        self._pairing = Pairing()
        self._known = Totals()

    def take(self, entry: Entry, before: Checkpoint, after: Checkpoint) -> str:
        """The next entry; what it says wrongly, if anything."""
        if (call := self._pairing.take(entry)) is not None:
            self._known = self._known.plus(call.usage, call.cost)
        others = getattr(entry, "spent", None)
        if isinstance(others, Totals):
            # What children used is told, and stands in their ledgers.
            self._known = self._known.and_of(others)
        if isinstance(entry, Foreign):
            # What stands before it was taken elsewhere, or by the session that this is a copy of.
            self.charges.clear()
            self.drew = False
        if isinstance(entry, AllowanceGranted) and not entry.settled:
            self.drew = True
        turn = before.turn
        if turn is not None and turn.allowance is not None and (isinstance(entry, TurnEnded) or _settles(entry)):
            self._charge(turn.allowance.pool, drawn_and_spent(turn, turn.allowance)[1])
        wrong = ""
        if others is not None and isinstance(others, Amounts) and others != self.ended:
            wrong = "what earlier turns used of the session's limits is something else"
        if isinstance(entry, TurnEnded):
            self.ended = plus(self.ended, Amounts(steps=entry.steps, tool_calls=entry.tool_calls, ms=entry.ran))
        if after.usage != self._known:
            wrong = wrong or "what is counted is not what the ledger of model calls adds up to"
            self._known = after.usage
        return wrong

    def finish(self, checkpoint: Checkpoint) -> None:
        """The journal's end: what a running turn drew is charged whole until it ends."""
        turn = checkpoint.turn
        if turn is not None and turn.allowance is not None:
            self._charge(turn.allowance.pool, turn.allowance.drawn)

    def _charge(self, pool: str, amounts: Amounts) -> None:
        self.charges[pool] = plus(self.charges.get(pool, Amounts()), amounts)


def _settles(entry: Entry) -> bool:
    return isinstance(entry, AllowanceGranted) and entry.settled


class PoolCheck:
    """All pools, against what all sessions took from them."""

    def __init__(self, before: dict[str, OwnersPool]) -> None:
        self._before = before
        self._charged: dict[str, Amounts] = {}
        self._owners: dict[str, set[str]] = {}
        self._whole = True

    @classmethod
    async def of(cls, store: Store) -> PoolCheck:
        return cls(await _pools(store))

    def add(self, owner: str, charges: dict[str, Amounts]) -> None:
        """What one session took, and whose it is."""
        for pool, amounts in charges.items():
            self._owners.setdefault(pool, set()).add(owner)
            self._charged[pool] = plus(self._charged.get(pool, Amounts()), amounts)

    def miss(self) -> None:
        """A session is not there, or not whole: what it took is not known."""
        self._whole = False

    async def problems(self, store: Store) -> list[tuple[str, str]]:
        """Owners, and what is wrong with their pools. Those that somebody drew from meanwhile are nobody's problem."""
        found: list[tuple[str, str]] = []
        if not self._before:
            return found
        now = await _pools(store)
        for owner, before in self._before.items():
            stored, charged = before.pool.drawn, self._charged.get(before.pool.id, Amounts())
            if now.get(owner) != before:
                continue
            if self._owners.get(before.pool.id, {owner}) != {owner}:
                found.append((owner, "sessions of somebody else took something from this owner's pool"))
                continue
            lacking = any(getattr(stored, name) < getattr(charged, name) for name in stored.__struct_fields__)
            if lacking or (self._whole and stored != charged):
                found.append((owner, "what was drawn from the owner's pool is not what its sessions took"))
        return found


async def _pools(store: Store) -> dict[str, OwnersPool]:
    found: dict[str, OwnersPool] = {}
    if isinstance(store, KeepsPools):
        after = ""
        while page := await store.pools(after=after, limit=100):
            found |= {item.owner: item for item in page}
            after = page[-1].owner
    return found
