"""What waits for its boundary, and what a model is told besides the conversation."""

from __future__ import annotations

from typing import Literal

from ..commands import AddNote, EditMessage
from ..commands import digest as digest_of_command
from ..draft import Draft
from ..entries import NoteAdded, QueueChanged
from ..errors import SubmissionRejected
from ..reports import ChangeQueue, Promote


def promote(draft: Draft, command: Promote) -> None:
    draft.write(QueueChanged(submission=command.submission, change="promoted", deliver="queue"), command.at)


def change_queue(draft: Draft, command: ChangeQueue) -> None:
    asked = command.command
    if not command.deliver:
        raise SubmissionRejected(f"the message {asked.message!r} doesn't wait any more", hint="nothing was changed", reason="delivered")
    if command.by and isinstance(asked, EditMessage):
        raise SubmissionRejected(f"the message {asked.message!r} is {command.by}'s", hint="it can be withdrawn", reason="not_a_persons")
    change: Literal["edited", "withdrawn"] = "edited" if isinstance(asked, EditMessage) else "withdrawn"
    changed = QueueChanged(
        submission=asked.message,
        change=change,
        deliver=command.deliver,
        content=command.content,
        by=asked.submission,
        digest=digest_of_command(asked),
        actor=asked.actor,
    )
    draft.write(changed, command.at)


def add_note(draft: Draft, command: AddNote) -> None:
    draft.write(NoteAdded(text=command.text, submission=command.submission, actor=command.actor), command.at)
