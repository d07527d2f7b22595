"""A transcript that people change otherwise than by talking: spans rewritten, revisions brought back, content removed."""

from __future__ import annotations

from typing import Any

from ..checkpoint import Checkpoint
from ..commands import RewriteSpan
from ..draft import Draft
from ..entries import PrefixChanged, Redacted, Rewritten
from ..errors import NothingChanged, RevisionConflict, SessionBusy
from ..reports import EditTranscript, Redact
from ..transcript import private_after


def refuse_while_running(draft: Draft, command: Any) -> None:
    raise SessionBusy("a turn is running", hint="wait for its end, or interrupt it")


def check_expected(checkpoint: Checkpoint, expected: str) -> None:
    """Raises `RevisionConflict` if an edit was made for another transcript than this one."""
    if expected and expected != checkpoint.revision:
        raise RevisionConflict(
            f"the transcript is at revision {checkpoint.revision[:12]}, not at {expected[:12]}",
            hint="look at what changed since, and edit that",
            expected=expected,
            actual=checkpoint.revision,
        )


def edit(draft: Draft, command: EditTranscript) -> None:
    now, asked, new = draft.checkpoint, command.command, command.new
    check_expected(now, asked.expected)
    check_expected(now, command.old.revision)
    if new.revision == now.revision:
        raise NothingChanged(f"the transcript is at revision {now.revision[:12]} already", hint="nothing was written")
    length = len(command.old.layout)
    if isinstance(asked, RewriteSpan):
        start, stop = asked.start, asked.stop
        private_from = private_after(now.private_from, start, stop, len(asked.messages))
    else:
        start, stop = 0, length
        # Which of its messages stood before the change of model is not known any more, so nobody is sent what only one may read.
        private_from = len(new.layout) if now.private_from else 0
    rewritten = Rewritten(
        expected=now.revision,
        revision=new.revision,
        start=start,
        stop=stop,
        pieces=new.layout.pieces,
        tail=now.number + len(command.messages),
        exact=new.chain.exact,
        marks=new.chain.marks,
        previous=now.transcript.base,
        restored=not isinstance(asked, RewriteSpan),
        reason=asked.reason,
        actor=asked.actor,
        submission=asked.submission,
    )
    draft.write(rewritten, command.at)
    draft.write(PrefixChanged(epoch=now.epoch + 1, reason="rewrite", private_from=private_from), command.at)
    for message in command.messages:
        draft.write(message, command.at)


def redact(draft: Draft, command: Redact) -> None:
    asked = command.command
    redacted = Redacted(
        rows=command.rows,
        positions=asked.positions,
        entries=asked.entries,
        title=command.title,
        labels=command.labels,
        metadata=command.metadata,
        context=command.context,
        memory=command.memory,
        reason=asked.reason,
        actor=asked.actor,
        submission=asked.submission,
    )
    draft.write(redacted, command.at)
    now = draft.checkpoint
    if command.context:
        draft.write(PrefixChanged(epoch=now.epoch + 1, reason="rewrite", private_from=now.private_from), command.at)
