"""Budgets: what was used of them, whether a model or a tool may still be called, and what a turn draws from its owner's pool.

Everything is counted from entries, so it is counted once: a repeated commit, a replayed receipt and a restart add nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from . import canonical
from .checkpoint import Allowance, Checkpoint, Turn
from .entries import Entry, OperationEnded, Recovered
from .records import Amounts, Limits, Pool, Reached, Scope
from .usage import Totals

__all__ = [
    "LIMITS",
    "STEPS",
    "allowance",
    "allowed",
    "bounds_cost",
    "drawn_and_spent",
    "elapsed",
    "fields",
    "is_clocked",
    "left",
    "most_steps",
    "ms_left",
    "own",
    "plus",
    "raised",
    "reached",
    "shortage",
    "spent_by",
    "sum_of",
    "told",
    "within_reach",
]

STEPS = 50
"""How many steps a turn may have whose agent says nothing about them."""

LIMITS = ("seconds", "tokens", "cost", "model_calls", "steps", "tool_calls")
"""Every limit, in the order in which one is named where several are reached at once."""

MEASURED = ("seconds", "tokens", "cost")
"""Limits that a call can pass by more than one, since nobody knows before it what it takes."""

LEAST_DRAW = {"seconds": 10_000, "tokens": 2_000, "cost": 10_000_000, "model_calls": 1, "steps": 1, "tool_calls": 1}
"""What a turn draws at least from its owner's pool: ms, tokens, nanodollars, calls and steps."""

SHARE = 8
"""A turn draws this part of what is left in the pool, so that it rarely has to come again and leaves enough to others."""


def fields(limit: str) -> str:
    """The field of `Amounts` that counts what a limit bounds."""
    return "ms" if limit == "seconds" else limit


def most_steps(limits: Limits) -> int:
    """How many steps a turn may have whose agent has these limits."""
    return STEPS if limits.steps is None else limits.steps


def allowed(limits: Limits) -> dict[str, int]:
    """What limits allow of each thing that they limit, as `Amounts` count it: ms for seconds."""
    found: dict[str, int] = {limit: value for limit in LIMITS if (value := getattr(limits, limit)) is not None}
    if "seconds" in found:
        found["seconds"] *= 1000
    return found


def plus(one: Amounts, other: Amounts, sign: int = 1) -> Amounts:
    """The sum, or with ``sign`` -1 the difference."""
    return Amounts(**{name: getattr(one, name) + sign * getattr(other, name) for name in Amounts.__struct_fields__})


def sum_of(one: Amounts, other: Amounts) -> Amounts:
    """The sum, as far as it can be stored."""
    total = plus(one, other)
    most = canonical.MAX_INTEGER
    return Amounts(**{name: max(-most, min(most, getattr(total, name))) for name in Amounts.__struct_fields__})


def spent_by(turn: Turn) -> Amounts:
    """What a turn used itself, without what it carries on."""
    return _amounts(turn.usage, steps=turn.step, tool_calls=turn.tool_calls, ms=turn.ran)


def own(turn: Turn) -> Amounts:
    """What a turn used without its children, which draw from their owner's pool themselves."""
    used = spent_by(turn)
    return used if turn.others is None else plus(used, _amounts(turn.others), -1)


def _spent_in_session(checkpoint: Checkpoint, turn: Turn) -> Amounts:
    before = checkpoint.spent or Amounts()
    steps, tool_calls = before.steps + turn.step, before.tool_calls + turn.tool_calls
    return _amounts(checkpoint.usage, steps=steps, tool_calls=tool_calls, ms=before.ms + turn.ran)


def _amounts(usage: Totals, *, steps: int = 0, tool_calls: int = 0, ms: int = 0) -> Amounts:
    return Amounts(
        steps=steps,
        tool_calls=tool_calls,
        model_calls=usage.calls,
        tokens=usage.total_tokens,
        cost=usage.cost,
        ms=ms,
        unknown=usage.unknown_calls,
        unpriced=usage.unpriced_calls,
    )


def _budgets(checkpoint: Checkpoint, turn: Turn) -> Iterator[tuple[Scope, Limits, Amounts]]:
    used = spent_by(turn) if turn.carried is None else plus(spent_by(turn), turn.carried)
    yield "turn", turn.limits, used
    if turn.run is not None:
        yield "run", turn.run, used
    if turn.session is not None:
        yield "session", turn.session, _spent_in_session(checkpoint, turn)


def reached(checkpoint: Checkpoint, turn: Turn, calls: int | None = None) -> tuple[str, Reached] | None:
    """The first limit that keeps a model from being called; with ``calls``, that keeps so many tool calls from being made.

    A model is called only below every limit. Tools run as long as nothing was passed: what is used up exactly may still be finished with.
    """
    for scope, limits, used in _budgets(checkpoint, turn):
        most_of = allowed(limits)
        if scope == "turn":
            most_of.setdefault("steps", STEPS)
        for limit, most in most_of.items():
            value: int = getattr(used, fields(limit))
            if calls is None:
                over = value >= most and limit != "tool_calls"
            else:
                over = value > most if limit in MEASURED else limit == "tool_calls" and value + calls > most
            unknown = limits.strict and _is_unknown(limit, used)
            if over or unknown:
                return limit, Reached(scope=scope, used=_shown(limit, value), allowed=_shown(limit, most), unknown=unknown and not over)
    return None


def ms_left(checkpoint: Checkpoint) -> int | None:
    """How long (ms) the running turn may still have something in flight before a limit of seconds is reached. None: as long as it takes."""
    turn = checkpoint.turn
    if turn is None or not is_clocked(turn):
        return None
    bounds = ((allowed(limits).get("seconds"), used.ms) for _, limits, used in _budgets(checkpoint, turn))
    return min((max(0, most - used) for most, used in bounds if most is not None), default=None)


HANDED_DOWN = ("tokens", "cost", "model_calls")
"""What an agent that is called may use is what its caller has left of these: the others are counted where they happen."""


def allowance(checkpoint: Checkpoint, turn: Turn) -> Limits | None:
    """What an agent may use that the turn calls now; 0 of what is used up. None: nothing bounds it."""
    rest: dict[str, int] = {}
    for _, limits, used in _budgets(checkpoint, turn):
        for limit, most in allowed(limits).items():
            if limit in HANDED_DOWN:
                left_of_it = max(0, most - getattr(used, fields(limit)))
                rest[limit] = min(left_of_it, rest.get(limit, left_of_it))
    return Limits(**rest) if rest else None  # type: ignore[arg-type]


def _is_unknown(limit: str, used: Amounts) -> bool:
    """Whether nobody knows how much of it was used."""
    return (limit == "tokens" and used.unknown > 0) or (limit == "cost" and used.unknown + used.unpriced > 0)


def _shown(limit: str, value: int) -> int:
    return value // 1000 if limit == "seconds" else value


def told(limit: str, hit: Reached) -> str:
    """A sentence for who reads why a turn ended."""
    where = {"turn": "", "run": " of this run", "session": " of the session", "owner": " of the owner's pool"}[hit.scope]
    if hit.unknown:
        return f"limit of {limit}{where}: how much was used is not known any more"
    return f"limit reached: {limit}{where}"


def raised(limits: Limits, others: Limits | None) -> Limits:
    """Limits with others in their place, where those say something."""
    if others is None:
        return limits
    changes = {limit: value for limit in LIMITS if (value := getattr(others, limit)) is not None}
    return replace(limits, strict=limits.strict or others.strict, **changes)


# ---------------------------------------------------------------------------------------------------------------------- time


def elapsed(checkpoint: Checkpoint, entry: Entry) -> int:
    """How long a turn ran (ms) between an entry and the one before: while an attempt was in flight, or before it was tried again.

    Time in which nobody worked on it doesn't count: waiting for people, for a process, and for the end of one that died.
    """
    turn, gap = checkpoint.turn, entry.at - checkpoint.at
    if turn is None or gap <= 0 or isinstance(entry, Recovered):
        return 0
    if isinstance(entry, OperationEnded) and entry.failure is not None and entry.failure.code in ("restart", "taken"):
        return 0
    if any(item.status == "started" and not item.is_question for item in turn.operations):
        return gap
    until = max((item.not_before for item in turn.operations if item.status == "ready"), default=0)
    return max(0, min(gap, until - checkpoint.at))


# --------------------------------------------------------------------------------------------------------------------- pools


def left(pool: Pool) -> dict[str, int]:
    """What a pool has left of each thing that it limits; less than 0 where calls took more than was known before."""
    return {limit: most - getattr(pool.drawn, fields(limit)) for limit, most in allowed(pool.limits).items()}


def drawn_and_spent(turn: Turn, allowance: Allowance) -> tuple[Amounts, Amounts]:
    """What a turn drew from a pool, and what it used since then."""
    return allowance.drawn, plus(own(turn), allowance.base, -1)


def within_reach(turn: Turn, pool: Pool, calls: int | None = None) -> bool:
    """Whether what the turn drew already is enough for the next model call, or for so many tool calls."""
    allowance = turn.allowance
    if allowance is None or allowance.pool != pool.id:
        return False
    drawn, used = drawn_and_spent(turn, allowance)
    return not any(_lacking(limit, drawn, used, calls) for limit in left(pool))


def _lacking(limit: str, drawn: Amounts, used: Amounts, calls: int | None) -> int:
    """How much more must be drawn before anything is called: what was used beyond what was drawn, and one."""
    value: int = getattr(used, fields(limit))
    have: int = getattr(drawn, fields(limit))
    if limit == "tool_calls":
        return max(0, value + (calls or 0) - have)
    return max(0, value + 1 - have) if calls is None else 0


def shortage(turn: Turn, pool: Pool, calls: int | None = None) -> tuple[Amounts, tuple[str, Reached] | None]:
    """What the turn has to draw now, and the limit of the pool that keeps it from that.

    It draws more than it needs at once, a part of what is left, so that most calls are made without the pool.
    """
    allowance = turn.allowance
    if allowance is not None and allowance.pool == pool.id:
        drawn, used = drawn_and_spent(turn, allowance)
    else:
        drawn, used = Amounts(), Amounts()
    amounts: dict[str, int] = {}
    for limit, rest in left(pool).items():
        lacking = _lacking(limit, drawn, used, calls)
        if not lacking:
            continue
        if lacking > rest:
            taken = _shown(limit, getattr(pool.drawn, fields(limit)))
            return Amounts(), (limit, Reached(scope="owner", used=taken, allowed=getattr(pool.limits, limit)))
        amounts[fields(limit)] = min(rest, max(lacking, LEAST_DRAW[limit], rest // SHARE))
    return Amounts(**amounts), None


def bounds_cost(turn: Turn) -> bool:
    """Whether anybody wants to know what the turn costs."""
    drawn = turn.allowance is not None and turn.allowance.drawn.cost > 0
    if drawn or turn.limits.cost is not None:
        return True
    return (turn.run is not None and turn.run.cost is not None) or (turn.session is not None and turn.session.cost is not None)


def is_clocked(turn: Turn) -> bool:
    """Whether anybody wants to know how long the turn runs."""
    if turn.allowance is not None or turn.limits.seconds is not None:
        return True
    return (turn.run is not None and turn.run.seconds is not None) or (turn.session is not None and turn.session.seconds is not None)
