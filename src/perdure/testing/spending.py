"""What must be true of owners' pools: what was drawn of each is what its sessions used, those that were deleted included."""

from __future__ import annotations

from collections.abc import Iterable

from ..core.budget import drawn_and_spent, plus
from ..core.checkpoint import Checkpoint
from ..core.evolve import evolve
from ..core.records import Amounts
from ..runtime.verify_budgets import BudgetCheck
from ..store.base import Store
from ..store.pools import KeepsPools
from .past import Past

__all__ = ["pool_problems"]


async def pool_problems(store: Store, pasts: Iterable[Past]) -> list[str]:
    """Sentences about pools of which something else was drawn than what was used."""
    if not isinstance(store, KeepsPools):
        return []
    used: dict[str, Amounts] = {}
    for past in pasts:
        for pool, amounts in _charges(past).items():
            used[pool] = plus(used.get(pool, Amounts()), amounts)
    found = [(item.owner, item.pool.drawn, used.get(item.pool.id, Amounts())) for item in await store.pools(after="", limit=100)]
    return [f"{owner}: {drawn} was drawn of the pool, and {spent} was used" for owner, drawn, spent in found if drawn != spent]


def _charges(past: Past) -> dict[str, Amounts]:
    """What a session's turns took of each pool; of a turn that ran when it was deleted only what it had used."""
    fold, check = Checkpoint(), BudgetCheck()
    for entry in past.entries:
        before, fold = fold, evolve(fold, entry)
        check.take(entry, before, fold)
    turn = fold.turn
    if not past.deleted:
        check.finish(fold)
    elif turn is not None and turn.allowance is not None:
        pool = turn.allowance.pool
        check.charges[pool] = plus(check.charges.get(pool, Amounts()), drawn_and_spent(turn, turn.allowance)[1])
    return check.charges
