"""What a session remembers is looked for by a model call of its own, and kept with that call's receipt."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from ..checkpoint import Operation
from ..draft import Draft
from ..entries import ExtensionSet
from ..memory import MEMORY, STATE, MemoryState, learn
from ..messages import said_digest
from ..records import Failure
from ..reports import AttemptEnded
from .endings import model_receipt, write_failure

INVALID = "session_memory_output_invalid"
"""The code of an extraction whose output can't be used; the message is the reason, and repeats nothing of the output."""


def end_attempt(draft: Draft, operation: Operation, command: AttemptEnded, retry_at: int | None) -> None:
    """The receipt of an attempt, and what the session remembers now, together. Nothing that goes wrong here ends the turn."""
    ended = model_receipt(command)
    before, plan = command.remembered, operation.plan
    if command.status == "succeeded":
        learned = learn(before, command.parts, upto=plan.upto, base=draft.checkpoint.transcript.base, tokens=plan.tokens)
        if learned.problem:
            draft.write(
                replace(ended, status="failed", parts=(), group="", failure=Failure(code=INVALID, message=learned.problem)), command.at
            )
        else:
            draft.write(replace(ended, digest=said_digest("assistant", command.parts)), command.at)
        _keep(draft, learned.state, command.at)
    elif write_failure(draft, command, ended, retry_at):
        # Nothing is covered; once the context has grown again, the next extraction looks through the same messages too.
        state = before.state
        _keep(draft, replace(state, tokens=plan.tokens, extractions=state.extractions + 1), command.at)


def _keep(draft: Draft, state: MemoryState, at: int) -> None:
    draft.write(ExtensionSet(extension=MEMORY, key=STATE, value=msgspec.to_builtins(state)), at)
