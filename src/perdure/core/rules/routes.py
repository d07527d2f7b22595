"""Which model answers next, and whose private parts the context holds."""

from __future__ import annotations

from ..commands import SelectRoute
from ..draft import Draft
from ..entries import PrefixChanged, RouteSelected
from ..errors import SubmissionRejected
from ..reports import AttemptEnded, RouteGiven


def select_route(draft: Draft, command: SelectRoute) -> None:
    draft.write(RouteSelected(route=command.route, submission=command.submission, actor=command.actor), command.at)


def refuse_route(draft: Draft, command: SelectRoute) -> None:
    raise SubmissionRejected("a turn is running", hint="select the route when it is over", reason="busy")


def give_route(draft: Draft, command: RouteGiven) -> None:
    """Legal in mid-turn too: the next model call goes there. A session that begins says its route with its first turn."""
    now = draft.checkpoint
    begins = not now.route and not now.turns and now.turn is None
    if now.route != command.route and not begins:
        draft.write(RouteSelected(route=command.route), command.at)


def take_over_context(draft: Draft, command: AttemptEnded) -> None:
    """The first accepted output of another group owns the context: private parts before it are sent to nobody any more."""
    now = draft.checkpoint
    if now.private and (now.owner_group != command.group or command.estranged):
        change = PrefixChanged(epoch=now.epoch + 1, reason="model_change", private_from=now.number)
        draft.write(change, command.at)
