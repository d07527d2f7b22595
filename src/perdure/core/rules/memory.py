"""What a session remembers is looked for by a model call of its own, and kept with that call's receipt."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from ..checkpoint import Operation
from ..draft import Draft
from ..entries import ExtensionSet, OperationEnded
from ..memory import MEMORY, STATE, MemoryState, learn
from ..messages import said_digest
from ..records import Failure
from ..reports import AttemptEnded

INVALID = "session_memory_output_invalid"
"""The code of an extraction whose output can't be used; the message is the reason, and repeats nothing of the output."""


def take_memories(draft: Draft, operation: Operation, command: AttemptEnded, ended: OperationEnded) -> None:
    """The receipt of what was found, and what the session remembers now, together. Nothing that is wrong with it ends the turn."""
    plan, base = operation.plan, draft.checkpoint.transcript.base
    learned = learn(command.remembered, command.parts, upto=plan.upto, base=base, tokens=plan.tokens)
    if learned.problem:
        invalid = Failure(code=INVALID, message=learned.problem)
        draft.write(replace(ended, status="failed", parts=(), group="", failure=invalid), command.at)
    else:
        draft.write(replace(ended, digest=said_digest("assistant", command.parts)), command.at)
    _keep(draft, learned.state, command.at)


def pass_over(draft: Draft, operation: Operation, command: AttemptEnded) -> None:
    """Nothing is covered; once the context has grown again, the next extraction looks through the same messages too."""
    state = command.remembered.state
    _keep(draft, replace(state, tokens=operation.plan.tokens, extractions=state.extractions + 1), command.at)


def _keep(draft: Draft, state: MemoryState, at: int) -> None:
    draft.write(ExtensionSet(extension=MEMORY, key=STATE, value=msgspec.to_builtins(state)), at)
