"""Before a model or a tool is called: is there anything left of every budget? If not, the turn ends as limited, and nothing is called."""

from __future__ import annotations

from ..budget import drawn_and_spent, reached, shortage, told
from ..commands import Resume
from ..draft import Draft
from ..entries import AllowanceGranted, TurnLimited
from ..errors import SubmissionRejected
from ..records import Amounts, Failure, Pool, Reached
from ..reports import Parked
from .endings import end_turn

LIMIT = Failure(code="limit", message="a limit was reached before it was called")
"""What becomes of an operation that was planned, or was to be tried again, when a limit is reached."""


def stopped_by(draft: Draft, pool: Pool | None, at: int, calls: int | None = None) -> tuple[str, Reached] | None:
    """The limit that keeps a model from being called, or so many tool calls from being made. None: go on, with what had to be drawn."""
    turn = draft.turn
    if (hit := reached(draft.checkpoint, turn, calls)) is not None or pool is None:
        return hit
    amounts, hit = shortage(turn, pool, calls)
    if hit is None and amounts != Amounts():
        draft.write(AllowanceGranted(pool=pool.id, drawn=amounts), at)
    return hit


def end_limited(draft: Draft, hit: tuple[str, Reached], at: int) -> None:
    """The turn ends at a limit."""
    end_turn(draft, TurnLimited, at, limit=hit[0], reached=hit[1], reason=told(*hit))


def give_back(draft: Draft, at: int) -> None:
    """Nobody goes on with the turn for now: what it drew and did not use is its owner's again."""
    turn = draft.checkpoint.turn
    if turn is not None and turn.allowance is not None:
        draft.write(AllowanceGranted(pool=turn.allowance.pool, settled=True), at)


def park(draft: Draft, command: Parked) -> None:
    """A turn that waits holds nothing of its owner's pool that it has not used. What it uses still counts, and it draws again."""
    turn, pool = draft.checkpoint.turn, command.pool
    allowance = turn.allowance if turn is not None else None
    if turn is None or allowance is None or pool is None or pool.id != allowance.pool:
        return
    drawn, used = drawn_and_spent(turn, allowance)
    unused = Amounts(**{name: min(0, getattr(used, name) - getattr(drawn, name)) for name in Amounts.__struct_fields__})
    if unused != Amounts():
        draft.write(AllowanceGranted(pool=pool.id, drawn=unused), command.at)


def check_resume(draft: Draft, command: Resume) -> None:
    """Raises `SubmissionRejected` where no limited turn can be gone on with."""
    if draft.checkpoint.limited is None:
        raise SubmissionRejected("the last turn reached no limit", hint="send a message instead", reason="not_limited")
