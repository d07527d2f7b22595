"""What an agent's own code has a say in: messages, results, ends of turns, and what it tells, keeps and does besides."""

from __future__ import annotations

from ..checkpoint import EXTENSION_KEYS_LIMIT, ONCE_LIMIT, STEPS_LIMIT
from ..commands import PostMessage
from ..commands import digest as digest_of_command
from ..draft import Draft
from ..entries import (
    ENDINGS,
    ExtensionCommand,
    ExtensionSet,
    NoteAdded,
    OperationStarted,
    TurnAborted,
    TurnEnded,
)
from ..errors import LimitExceeded, StaleRequest
from ..ids import call_of, once_key, rejected_digest
from ..memory import MEMORY
from ..phase import reviewing
from ..reports import BeginStep, CommandDone, Continue, EndTurn, Extend, Reject, ResultsReviewed, StopTurn
from .children import pass_timers
from .endings import abort, close_steps, end_turn, tell_results
from .turns import begin_turn


def extend(draft: Draft, command: Extend) -> None:
    """Tell the model what it was not told before, and keep values. Raises `LimitExceeded`, and does nothing, where it would be too much."""
    _check_room(draft, command)
    for item in command.guidance:
        if not item.once or once_key(item.extension, item.once) not in draft.checkpoint.once:
            draft.write(NoteAdded(text=item.text, extension=item.extension, once=item.once), command.at)
    for setting in command.settings:
        kept = draft.checkpoint.extensions.get(setting.extension, {})
        if not setting.dropped or setting.key in kept:
            entry = ExtensionSet(extension=setting.extension, key=setting.key, value=setting.value, dropped=setting.dropped)
            draft.write(entry, command.at)


def _check_room(draft: Draft, command: Extend) -> None:
    once = {*draft.checkpoint.once} | {once_key(item.extension, item.once) for item in command.guidance if item.once}
    if len(once) > ONCE_LIMIT:
        raise LimitExceeded(f"{ONCE_LIMIT} keys of guidance that is given once are remembered", hint="use fewer keys", limit="once")
    kept = {(name, key) for name, values in draft.checkpoint.extensions.items() for key in values if name != MEMORY}
    for item in command.settings:
        kept = kept - {(item.extension, item.key)} if item.dropped else kept | {(item.extension, item.key)}
    if len(kept) > EXTENSION_KEYS_LIMIT:
        raise LimitExceeded(f"{EXTENSION_KEYS_LIMIT} values of extensions are kept", hint="keep several in one value", limit="extensions")


def reject(draft: Draft, command: Reject) -> None:
    """A turn that is over before it says anything; the message stands nowhere."""
    post = command.post
    assert isinstance(post, PostMessage)
    begin_turn(draft, command, rejected=rejected_digest(digest_of_command(post), post.actor))
    end_turn(draft, TurnAborted, command.at, reason=command.reason, extension=command.extension)


def command_done(draft: Draft, command: CommandDone) -> None:
    asked = command.command
    done = ExtensionCommand(
        extension=asked.extension, command=asked.command, arguments=asked.arguments, submission=asked.submission, actor=asked.actor
    )
    draft.write(done, command.at)


def begin_step(draft: Draft, command: BeginStep) -> None:
    """Only what was not begun, or may be repeated after a crash; nothing in a call that is over."""
    operation = draft.operation(command.operation)
    call = draft.operation(call_of(command.operation))
    if command.attempt and (call is None or (call.status, call.attempt) != ("started", command.attempt)):
        raise StaleRequest(f"the call that {command.operation} belongs to is over", hint="nothing more is begun in it")
    if operation is None:
        if len(draft.turn.steps) >= STEPS_LIMIT:
            raise LimitExceeded(f"{STEPS_LIMIT} things are done outside in one step besides its calls", hint="do fewer", limit="steps")
        started = OperationStarted(operation=command.operation, attempt=1, fence=command.fence, plan=command.plan)
    elif operation.status == "ready":
        started = OperationStarted(operation=command.operation, attempt=operation.attempt + 1, fence=command.fence)
    else:
        return
    draft.write(started, command.at)
    if command.plan.until:
        # It may be over as it begins.
        pass_timers(draft, command.at)


def review_results(draft: Draft, command: ResultsReviewed) -> None:
    if reviewing(draft.turn):
        tell_results(draft, command.at, command.replaced)


def stop_turn(draft: Draft, command: StopTurn) -> None:
    abort(draft, command.at, command.reason, extension=command.extension)


def go_on(draft: Draft, command: Continue) -> None:
    """Once in a turn with a model, and not when its end is decided."""
    if not draft.turn.continued and not draft.turn.ending and not draft.turn.calls:
        close_steps(draft, command.at)
        draft.write(NoteAdded(text=command.prompt, extension=command.extension, continues=True), command.at)


def finish_ending(draft: Draft, command: EndTurn) -> None:
    """The end that was decided, unless another one came in between."""
    ending = command.ending
    if draft.turn.ending != ending.seq:
        return
    shape = ENDINGS[ending.outcome]
    own = [name for name in shape.__struct_fields__ if name not in TurnEnded.__struct_fields__]
    end_turn(draft, shape, command.at, reason=ending.reason, **{name: getattr(ending, name) for name in own})
