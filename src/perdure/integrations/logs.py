"""A line of JSON for every entry that this process committed: what happened, and not what was said."""

from __future__ import annotations

import logging
from typing import Any

import msgspec

from ..core import canonical
from ..core.entries import Entry, OperationEnded, OperationPlanned, OperationStarted, TurnEnded, TurnStarted
from ..runtime.observing import Change, Observer

__all__ = ["JsonLog"]

_PLAIN = frozenset(
    {
        "operation", "attempt", "status", "final", "turn", "submission", "agent", "request_id", "decision", "by", "deadline", "actor",
        "fence", "limit", "steps", "tool_calls", "route", "model", "group", "finish", "epoch", "extension", "change",
    }
)  # fmt: skip
"""The fields that say what happened. All others may hold what people, models or tools said."""


class JsonLog(Observer):
    """Writes to a `logging.Logger` (by default ``perdure.journal``), at INFO; at WARNING what is uncertain, failed or aborted.

    Each message is one JSON object: ``session``, ``seq``, ``kind``, ``at`` (ms since 1970) and the entry's plain facts. With
    ``contents`` it is the whole entry: texts, arguments and results come into the log, and stay there when the journal is redacted.
    """

    def __init__(self, logger: logging.Logger | None = None, *, contents: bool = False) -> None:
        self._logger = logger or logging.getLogger("perdure.journal")
        self._contents = contents

    def committed(self, change: Change) -> None:
        if not self._logger.isEnabledFor(logging.WARNING):
            return
        for entry in change.entries:
            level = logging.WARNING if _alarming(entry) else logging.INFO
            if self._logger.isEnabledFor(level):
                self._logger.log(level, "%s", self._line(change, entry))

    def _line(self, change: Change, entry: Entry) -> str:
        said = {name: value for name, value in msgspec.to_builtins(entry).items() if self._contents or name in _PLAIN}
        facts: dict[str, Any] = {**said, "session": change.session_id, "seq": entry.seq, "kind": entry.kind, "at": entry.at}
        if isinstance(entry, OperationStarted | OperationPlanned | OperationEnded):
            operation = change.operation(entry.operation)
            if operation is not None:
                facts["name"], facts["does"] = operation.plan.name, operation.plan.kind
        failure = getattr(entry, "failure", None)
        if failure is not None:
            facts["failure"] = failure.code
        if isinstance(entry, TurnStarted | TurnEnded):
            facts["turn"] = entry.turn
        if isinstance(entry, TurnEnded):
            facts["usage"] = msgspec.to_builtins(entry.usage)
        return canonical.encode(facts).decode()


def _alarming(entry: Entry) -> bool:
    if isinstance(entry, OperationEnded):
        return entry.status == "uncertain" or (entry.final and entry.status == "failed")
    return entry.kind in ("turn_failed", "turn_limited", "turn_aborted", "submission_refused", "recovered", "halted")
