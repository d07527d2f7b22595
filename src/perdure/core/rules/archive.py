"""A session is put away, and taken out again."""

from __future__ import annotations

from typing import Any

from ..commands import Archive, Revive
from ..draft import Draft
from ..entries import Archived, Revived, TurnAborted
from ..errors import NothingChanged, SessionArchived
from ..records import Failure
from .endings import TAKEN, UNKNOWN_LIVE, close_operations, end_turn

PUT_AWAY = Failure(code=SessionArchived.code, message="the session was archived before this was taken up")
"""What becomes of a submission that still waits when its session is archived."""


def archive(draft: Draft, command: Archive) -> None:
    """Nobody will learn here what becomes of the calls in flight: they are unknown, and their turn ends."""
    if draft.checkpoint.turn is not None:
        close_operations(draft, command.at, UNKNOWN_LIVE, TAKEN)
        reason = f"archived: {command.reason}" if command.reason else "archived"
        end_turn(draft, TurnAborted, command.at, reason=reason, actor=command.actor, unheard=True)
    draft.write(Archived(reason=command.reason, submission=command.submission, actor=command.actor), command.at)


def revive(draft: Draft, command: Revive) -> None:
    draft.write(Revived(reason=command.reason, submission=command.submission, actor=command.actor), command.at)


def refuse_revive(draft: Draft, command: Revive) -> None:
    raise NothingChanged(f"{draft.checkpoint.session_id!r} is not archived", hint="it can be used as it is")


def refuse(draft: Draft, command: Any) -> None:
    raise SessionArchived(
        f"{draft.checkpoint.session_id!r} is archived", hint="its history can be read; sessions.revive(…) takes it out of the archive"
    )
