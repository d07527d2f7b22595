"""The work of a turn while it happens: text as it is written, calls with what became of them, retries and recoveries."""

from __future__ import annotations

import time
from typing import Any

from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text as RichText

from ..core.entries import (
    DefinitionChange,
    EffectSettled,
    MessageAdded,
    NoteAdded,
    OperationEnded,
    OperationPlanned,
    OperationStarted,
    Recovered,
    RequestClosed,
    RouteSelected,
    TurnAborted,
    TurnCompleted,
    TurnEnded,
    TurnFailed,
    TurnLimited,
    TurnStarted,
    UncertainRequested,
)
from ..core.messages import Part, StoredPart, Text, ToolCall, ToolCallResponse
from ..core.records import CALL_KINDS, MODEL_KINDS, Plan
from ..core.rules.endings import ASLEEP
from ..models.base import ReasoningDelta, TextDelta
from ..runtime.feed import Event, HookFailed
from .screen import Screen
from .text import arguments, clean, counted, duration, moment, short, value, written

_ASIDE = {"compaction": "notes", "memory": "what to remember"}
"""What models are asked for besides answers."""

__all__ = ["Progress", "called", "cut_off", "decided", "ending", "failed_as", "outcome_mark", "response_of"]

DECIDED = {
    "approve": "approved",
    "grant": "approved for the whole session",
    "deny": "denied",
    "abort": "aborted",
    "settle": "settled",
    "retry": "to be tried again",
    "reply": "answered",
}

FAILED_AS = {"restart": "cut off as its process died", "model": "the model failed"}
"""What failures are that have no words of their own."""

MARKS = {
    "succeeded": ("✓", "green"),
    "failed": ("✗", "red"),
    "uncertain": ("?", "yellow"),
    "unknown": ("?", "yellow"),
    "cancelled": ("–", "dim"),
}


def outcome_mark(status: str) -> tuple[str, str]:
    """A sign and its colour for how an attempt ended."""
    return MARKS.get(status, ("·", ""))


def called(name: str, data: Any, limit: int = 160) -> str:
    """A call as one writes it."""
    return f"{name}({'' if data is None else arguments(data, limit)})"


def response_of(parts: tuple[Part, ...]) -> str:
    """What a call came to, in a few words."""
    part = parts[0] if parts else None
    if isinstance(part, ToolCallResponse):
        return value(part.response)
    return f"{part.size:,} bytes" if isinstance(part, StoredPart) else ""


def decided(decision: str, uncertain: bool) -> str:
    """A decision in words; on a question about an uncertain call, refusing to say is another thing than refusing the call."""
    return "left unknown" if uncertain and decision == "deny" else DECIDED.get(decision, decision)


def failed_as(code: str, message: str) -> str:
    """Why something failed, in words also where only the code was written down."""
    return message or FAILED_AS.get(code, code)


def cut_off(operation: str, status: str) -> str:
    """What a recovery made of an attempt."""
    return f"{operation} {'is looked up: its tool is asked what became of it' if status == 'open' else status}"


def ending(ended: TurnEnded) -> tuple[str, str]:
    """How a turn ended, and its colour."""
    match ended:
        case TurnCompleted():
            return "completed", "green"
        case TurnFailed():
            return f"failed: {ended.failure.code}" + (f": {ended.failure.message}" if ended.failure.message else ""), "red"
        case TurnLimited():
            whose = {"owner": "its owner's", "session": "the session's"}.get(
                ended.reached.scope if ended.reached is not None else "", "its"
            )
            return f"ended at {whose} limit of {ended.limit.replace('_', ' ')}", "yellow"
        case TurnAborted():
            return f"aborted: {ended.reason}" + (f" (by {ended.actor})" if ended.actor else ""), "yellow"
        case _:
            return "ended", ""


def _by(actor: str) -> str:
    return f" (by {actor})" if actor else ""


class Progress:
    """Shows events. Lines that were written stay; only the last line, what runs now, is drawn again."""

    def __init__(self, screen: Screen, *, own: set[str] | None = None, answers: bool = True) -> None:
        self.screen = screen
        self.answers = answers or screen.live
        self.own = own if own is not None else set()
        self._running: dict[str, tuple[str, float]] = {}
        self._plans: dict[str, Plan] = {}
        self._calls: dict[str, Any] = {}
        self._streamed: tuple[str, int] | None = None
        self._column = 0
        self._began: dict[str, int] = {}
        self._doubts: set[str] = set()
        self._status: Live | None = None
        self._held = False
        self.speaker = ("user: ", "bold")

    def close(self) -> None:
        """Leave the terminal as it is to stay."""
        self.pause()
        self._end_text()

    def pause(self) -> None:
        """Take the last line away: somebody else writes now."""
        if self._status is not None:
            self._status.stop()
            self._status = None

    def hold(self, held: bool) -> None:
        """While a person is asked, nothing is drawn below the question."""
        self._held = held
        self._draw()

    def _draw(self) -> None:
        wanted = self.screen.live and self._running and not self._column and not self._held
        if not wanted:
            self.pause()
        elif self._status is None:
            self._status = Live(
                get_renderable=self._now,
                console=self.screen.out,
                transient=True,
                refresh_per_second=8,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._status.start()

    def _now(self) -> Any:
        parts = [f"{what} {duration((time.monotonic() - began) * 1000)}" for what, began in self._running.values()]
        text = RichText(short(" · ".join(parts), max(10, self.screen.out.width - 4)), style="dim")
        self._spinner.update(text=text)
        return self._spinner

    _spinner = Spinner("dots")

    def show(self, event: Event) -> None:
        """One event. Positions in the journal only ever grow; deltas come in between."""
        if self.screen.as_json:
            return
        if isinstance(event, TextDelta):
            self._text(event)
            return
        if isinstance(event, ReasoningDelta):
            self._think(event)
            return
        self.pause()
        self._entry(event)
        self._draw()

    def _think(self, delta: ReasoningDelta) -> None:
        self._running[delta.operation] = ("thinking", self._running.get(delta.operation, ("", time.monotonic()))[1])
        self._draw()

    def _text(self, delta: TextDelta) -> None:
        if not self.screen.live:
            # Not a screen: the answer is written once it is whole.
            return
        self.pause()
        if self._streamed != (delta.operation, delta.attempt):
            self._end_text()
            self._streamed = (delta.operation, delta.attempt)
        self.screen.text(delta.text)
        if delta.text:
            self._column = 0 if delta.text.endswith("\n") else 1

    def _end_text(self) -> None:
        if self._column:
            self.screen.text("\n")
            self._column = 0

    def _note(self, *pieces: Any, indent: int = 0) -> None:
        self._end_text()
        self.screen.note(*pieces, indent=indent)

    def _entry(self, event: Event) -> None:
        match event:
            case TurnStarted():
                self._running.clear()
                self._calls |= {part.id: part.arguments for part in getattr(event, "parts", ()) if isinstance(part, ToolCall)}
            case MessageAdded(role="user") if event.submission not in self.own:
                named = (f"{clean(event.author, one_line=True)}: ", "bold")
                self._note(named if event.author else self.speaker, written(event.parts))
            case OperationPlanned():
                self._plans[event.operation] = event.plan
                if event.arguments is not None:
                    self._calls[event.plan.call] = event.arguments
            case HookFailed():
                again = "; it is tried again" if event.retry_at else ""
                self._note((f"  the hook {event.hook} of {event.extension} failed: {short(event.message, 200)}{again}", "yellow"))
            case UncertainRequested():
                self._doubts.add(event.request_id)
            case OperationStarted():
                self._started(event)
            case OperationEnded():
                self._ended(event)
            case RequestClosed():
                if event.arguments is not None:
                    self._calls[self._plans[event.operation].call if event.operation in self._plans else ""] = event.arguments
                by = {"answer": f" by {event.actor}" if event.actor else "", "deadline": " by its deadline", "turn": " with its turn"}[
                    event.by
                ]
                edited = f" with {arguments(event.arguments)}" if event.arguments is not None else ""
                why = f": {event.reason}" if event.reason else ""
                self._note((f"  {decided(event.decision, event.request_id in self._doubts)}{edited}{by}{why}", "dim"))
            case Recovered():
                lost = ", ".join(cut_off(item.operation, item.status) for item in event.attempts)
                self._note(("⟲ taken over after a process died", "yellow"), (f" ({lost})" if lost else "", "dim"))
            case EffectSettled():
                mark, style = outcome_mark(event.status)
                self._note((f"{mark} ", style), f"known now: {event.operation} {event.status} ", (response_of(event.parts), "dim"))
            case RouteSelected():
                self._note((f"  the model is {event.route} from now on{_by(event.actor)}", "dim"))
            case NoteAdded():
                told = f"told the model: {short(event.text, 200)}" if event.text else "the model is told of it with its next call"
                self._note((f"  {told}", "dim"))
            case DefinitionChange():
                told = f"under a changed definition: {'; '.join(event.difference)}" if event.difference else f"as {event.agent}"
                self._note((f"  goes on {told}", "yellow"))
            case TurnEnded():
                self._running.clear()
                words, style = ending(event)
                calls = f", {counted(event.tool_calls, 'tool call')}" if event.tool_calls else ""
                self._note((words, style), (f" · {counted(event.steps, 'step')}{calls} · {event.usage}", "dim"))

    def _started(self, event: OperationStarted) -> None:
        plan = event.plan or self._plans.get(event.operation)
        names = {
            "model": "model",
            "compaction": "compacting the conversation",
            "memory": "looking for what to remember",
            "repair": "correcting the answer",
        }
        name = "model" if plan is None else names.get(plan.kind, plan.name)
        if plan is not None:
            self._plans[event.operation] = plan
        self._began[event.operation] = event.at
        again = f" (attempt {event.attempt})" if event.attempt > 1 else ""
        self._running[event.operation] = (name + again, time.monotonic())
        if plan is not None and plan.kind in CALL_KINDS:
            self._note(("→ ", "cyan"), called(name, self._calls.get(plan.call)), (again, "yellow"))
        if plan is not None and plan.until and plan.kind in ("timer", "step"):
            self._note((f"  {name} sleeps until {moment(plan.until)}, and needs nobody meanwhile", "dim"))

    def _ended(self, event: OperationEnded) -> None:
        self._running.pop(event.operation, None)
        plan = self._plans.get(event.operation)
        took = duration(event.at - self._began.get(event.operation, event.at))
        failure = "" if event.failure is None else failed_as(event.failure.code, event.failure.message)
        if any(isinstance(part, ToolCallResponse) or (isinstance(part, StoredPart) and not part.call) for part in event.parts) and (
            plan is None or plan.kind in CALL_KINDS
        ):
            self._tool_ended(event, plan, took)
            return
        if plan is not None and plan.kind not in MODEL_KINDS:
            if (plan.kind == "step" and event.status == "succeeded") or (event.failure is not None and event.failure.code == ASLEEP.code):
                # It is the result that counts, and until when it sleeps was said.
                return
            self._note(("? " if event.status == "uncertain" else "– ", "yellow"), f"{plan.name}: {failure or event.status}")
            return
        if plan is not None and plan.kind == "compaction" and event.status == "succeeded":
            self._note(("≡ ", "cyan"), "notes take the place of what was said before, for the model", (f" {took}", "dim"))
            return
        if plan is not None and plan.kind == "memory" and event.status == "succeeded":
            self._note(("≡ ", "cyan"), "what to remember was looked for", (f" {took}", "dim"))
            return
        for part in event.parts:
            if isinstance(part, ToolCall):
                self._calls[part.id] = part.arguments
        if event.status == "succeeded":
            self._answered(event)
        elif event.partial and self._streamed == (event.operation, event.attempt):
            self._note((f"  unfinished: {failure or event.status}", "yellow"))
        elif failure and not (event.failure is not None and event.failure.code in ("interrupted", "request_changed")):
            again = f"; again in {duration(event.retry_at - event.at)}" if event.retry_at else ""
            self._note(
                ("↻ " if not event.final else "✗ ", "yellow"),
                f"{_ASIDE.get(plan.kind, 'model') if plan is not None else 'model'}: {failure}{again}",
            )

    def _answered(self, event: OperationEnded) -> None:
        if self._streamed == (event.operation, event.attempt):
            self._end_text()
            return
        if not self.answers and event.finish != "tool_calls":
            # It is the result, and whoever asked for that writes it.
            return
        # Another process writes it, or nobody streamed.
        for part in event.parts:
            if isinstance(part, Text) and part.content.strip():
                self._note(part.content)
            elif isinstance(part, StoredPart) and not part.private and not part.call:
                self._note((f"[{part.size:,} bytes of text; perdure show has them]", "dim"))

    def _tool_ended(self, event: OperationEnded, plan: Plan | None, took: str) -> None:
        mark, style = outcome_mark(event.status)
        response = event.parts[0]
        name = plan.name if plan is not None else getattr(response, "name", "a tool")
        if event.attempt == 0 or event.status in ("uncertain", "cancelled"):
            took = ""
        self._note((f"{mark} ", style), name, (f" {took}" if took else "", "dim"), " ", (response_of(event.parts), "dim"))
