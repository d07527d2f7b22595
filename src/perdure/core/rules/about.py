"""What a session says about itself."""

from __future__ import annotations

from ..checkpoint import ABOUT_LIMIT, about_size
from ..commands import Describe
from ..draft import Draft
from ..entries import SessionChanged
from ..errors import LimitExceeded


def describe(draft: Draft, command: Describe) -> None:
    now = draft.checkpoint
    labels = now.labels if command.labels is None else command.labels
    size = about_size(now.identity, labels, now.title if command.title is None else command.title)
    if size > ABOUT_LIMIT:
        raise LimitExceeded(f"title, labels and identity would have {size} bytes", hint=f"at most {ABOUT_LIMIT} together", limit="about")
    changed = SessionChanged(
        title=command.title, labels=command.labels, metadata=command.metadata, submission=command.submission, actor=command.actor
    )
    draft.write(changed, command.at)
