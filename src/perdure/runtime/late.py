"""Results that came after their attempts were given up."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from ..core.errors import PerdureError
from .background import Background
from .clock import Clock, first_of

if TYPE_CHECKING:
    from .sessions import Sessions

__all__ = ["LateResults"]

_log = logging.getLogger("perdure.runtime")

TRIES = 8
"""How often a result that came late is handed in while the store fails."""

PAUSE_MS, PAUSE_LIMIT_MS = 1_000, 30_000
"""How long the pause after the first failure is; each is twice the one before, up to the limit."""


class LateResults:
    """Hands in what a tool came to that nobody waits for any more, as whoever ran it."""

    def __init__(self, sessions: Sessions, clock: Clock, background: Background) -> None:
        self._sessions = sessions
        self._clock = clock
        self._background = background

    def hand_in(self, session_id: str, operation: str, attempt: int, result: Any, is_error: bool) -> None:
        """Hand in a result that came after its attempt was given up; again while the store fails, `TRIES` times at most."""
        self._background.keep(asyncio.ensure_future(self._hand_in(session_id, operation, attempt, result, is_error)))

    async def _hand_in(self, session_id: str, operation: str, attempt: int, result: Any, is_error: bool) -> None:
        why = "the runtime was closed"
        try:
            for tried in range(1, TRIES + 1):
                try:
                    await self._sessions.report_attempt(session_id, operation, attempt, result, is_error)
                    return
                except PerdureError as error:
                    why = str(error)
                    if not error.retryable or tried == TRIES or self._background.closing.is_set():
                        break
                    _log.info("the late result of %s#%d in %s could not be handed in yet: %s", operation, attempt, session_id, error)
                await self._pause(min(PAUSE_MS * 2 ** (tried - 1), PAUSE_LIMIT_MS))
        except asyncio.CancelledError:
            self._give_up(session_id, operation, attempt, why)
            raise
        self._give_up(session_id, operation, attempt, why)

    async def _pause(self, milliseconds: int) -> None:
        """Some time, or until the runtime closes."""
        closing = asyncio.ensure_future(self._background.closing.wait())
        try:
            await first_of(self._clock, closing, until=self._clock.now() + milliseconds)
        finally:
            closing.cancel()

    @staticmethod
    def _give_up(session_id: str, operation: str, attempt: int, why: str) -> None:
        _log.error(
            "the result of %s#%d in %s came late, was not handed in and is lost: %s; its outcome stays unknown until somebody reports it",
            operation, attempt, session_id, why,
        )  # fmt: skip
