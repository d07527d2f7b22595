"""A session is stopped where it stands, and let go again."""

from __future__ import annotations

from typing import Any

from ..commands import Halt, Repair
from ..draft import Draft
from ..entries import Halted
from ..errors import SessionHalted
from .budgets import give_back


def halt(draft: Draft, command: Halt) -> None:
    """Nothing of what is under way ends: a damaged session is no ground to decide on, and whoever goes on with it recovers it."""
    give_back(draft, command.at)
    halted = Halted(reason=command.reason, problem=command.problem, submission=command.submission, actor=command.actor)
    draft.write(halted, command.at)


def release(draft: Draft, command: Repair) -> None:
    """Wherever the session stands: if its checkpoint couldn't be read when it was stopped, only the catalogue says that it was."""
    released = Halted(reason=command.reason, released=True, submission=command.submission, actor=command.actor)
    draft.write(released, command.at)


def refuse(draft: Draft, command: Any) -> None:
    raise SessionHalted(
        f"{draft.checkpoint.session_id!r} is halted", hint="sessions.repair(…) checks it, and lets it go on if nothing is wrong with it"
    )
