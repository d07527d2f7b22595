"""The ids of sessions and submissions."""

from __future__ import annotations

import uuid

from ..core.commands import Command
from ..core.errors import SubmissionConflict, UsageError
from ..core.ids import is_derived

__all__ = ["check_id", "check_limit", "conflict", "submission_id"]

ID_LIMIT = 512
"""The longest id of a session or a submission (bytes)."""


def check_id(value: str, what: str) -> str:
    """A usable id. Raises `UsageError`."""
    if not isinstance(value, str) or not value or not value.isprintable() or len(value.encode()) > ID_LIMIT:
        raise UsageError(f"{value!r:.100} can't be {what}", hint=f"1 to {ID_LIMIT} bytes of printable text")
    return value


def check_limit(limit: int) -> None:
    """Raises `UsageError` for what is no size of a page."""
    if type(limit) is not int or limit < 1:
        raise UsageError(f"limit={limit!r:.40} is no size of a page", hint="at least 1")


def submission_id(submission: str | None) -> str:
    """The id that a caller chose, or a new one. Raises `UsageError`."""
    if submission is None:
        return uuid.uuid4().hex
    if is_derived(check_id(submission, "a submission id")):
        # Whoever took it first would keep a parent from its child's outcome, or a call from its late result.
        raise UsageError(f"{submission!r} is what perdure itself calls a submission", hint="choose one that doesn't name an operation")
    return submission


def conflict(command: Command) -> SubmissionConflict:
    """Its id was used for something else."""
    return SubmissionConflict(
        f"the submission {command.submission!r} was used before with another content", hint="a new wish needs a new submission id"
    )
