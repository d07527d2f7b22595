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
    tools = now.tools if command.tools is None else command.tools
    size = about_size(now.identity, labels, now.title if command.title is None else command.title, tools)
    if size > ABOUT_LIMIT:
        raise LimitExceeded(
            f"title, labels, identity and tool policy would have {size} bytes", hint=f"at most {ABOUT_LIMIT} together", limit="about"
        )
    changed = SessionChanged(
        title=command.title,
        labels=command.labels,
        metadata=command.metadata,
        tools=command.tools,
        submission=command.submission,
        actor=command.actor,
    )
    draft.write(changed, command.at)
