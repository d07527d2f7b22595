"""What there is to see: mails and their steps, payments, kills and recoveries. It is told facts, and views draw it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from .. import (
    EffectSettled,
    Entry,
    MessageAdded,
    OperationEnded,
    OperationPlanned,
    OperationStarted,
    Recovered,
    RequestClosed,
    RequestOpened,
    TurnCompleted,
    TurnEnded,
    TurnStarted,
)
from .mails import MAILS, Mail, euros

__all__ = ["Kill", "Line", "Mark", "Row", "Scene"]

Tone = Literal["plain", "start", "kill", "good", "money", "person", "doubt", "bad"]


@dataclass
class Mark:
    """One attempt of a model or a tool, as far as it is known."""

    kind: str
    name: str
    state: Literal["running", "ended", "cut off", "doubt"] = "running"


@dataclass
class Row:
    """A mail and what its session's journal says of it."""

    mail: Mail
    entries: list[Entry] = field(default_factory=list)
    marks: dict[tuple[str, int], Mark] = field(default_factory=dict)
    plans: dict[str, tuple[str, str]] = field(default_factory=dict)
    state: str = ""
    words: str = ""
    request: str = ""
    paid: int = 0
    deltas: dict[tuple[str, int], int] = field(default_factory=dict)
    done: bool = False


@dataclass
class Kill:
    """One SIGKILL. ``cut_off`` names what was in flight, ``back_after`` is the time from the start to the first new step (seconds)."""

    moment: str
    mail: str
    cut_off: list[str]
    back_after: float | None = None


@dataclass(frozen=True)
class Line:
    """Something that happened, for people."""

    at: float
    tone: Tone
    text: str


class Scene:
    """Everything that a view needs, and nothing that it may change."""

    def __init__(self, listen: Callable[[Line], None]) -> None:
        self.began = time.monotonic()
        self.rows = {mail.id: Row(mail) for mail in MAILS}
        self.lines: list[Line] = []
        self.kills: list[Kill] = []
        self.ledger: list[dict[str, Any]] = []
        self.process = "starting"
        self.starts = 0
        self.moments = 0
        """How often a moment to kill the agent was waited for."""
        self._listen = listen

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self.began

    @property
    def paid(self) -> int:
        """Cents that have left, by the ledger."""
        return sum(line["cents"] for line in self.ledger if line["event"] == "paid")

    def tell(self, tone: Tone, text: str) -> None:
        """Something happened."""
        line = Line(self.elapsed, tone, text)
        self.lines.append(line)
        self._listen(line)

    def on_ledger(self, line: dict[str, Any]) -> None:
        """The payment service wrote a line."""
        self.ledger.append(line)
        if line["event"] == "paid":
            self.tell("money", f"ledger: {line['payment']} pays {euros(line['cents'])} for {line['order']}")
            for row in self.rows.values():
                if row.mail.order == line["order"]:
                    row.paid += line["cents"]

    def on_delta(self, session: str, operation: str, attempt: int, text: str) -> None:
        """The model wrote a few words."""
        row = self.rows[session]
        key = (operation, attempt)
        row.words = row.words + text if key in row.deltas else text
        row.deltas[key] = row.deltas.get(key, 0) + 1
        row.state = "writes"

    def on_entry(self, session: str, entry: Entry) -> None:
        """A journal has one entry more."""
        row = self.rows[session]
        row.entries.append(entry)
        match entry:
            case TurnStarted():
                row.done, row.state = False, "begins"
            case OperationPlanned():
                row.plans[entry.operation] = (entry.plan.kind, entry.plan.name)
            case OperationStarted():
                if entry.plan is not None:
                    row.plans[entry.operation] = (entry.plan.kind, entry.plan.name)
                kind, name = row.plans[entry.operation]
                row.marks[entry.operation, entry.attempt] = Mark(kind, name)
                row.state, row.words = ("thinks" if kind == "model" else name), ""
            case OperationEnded():
                self._ended(row, entry)
            case Recovered():
                for attempt in entry.attempts:
                    self._mark(row, attempt.operation, attempt.attempt, "cut off")
                    if attempt.status == "open":
                        row.state = "asks what became of the payment"
            case RequestOpened():
                row.state, row.request = "waits for a person", entry.request_id
                self.tell("person", f"{session} waits for a person")
            case RequestClosed():
                row.state, row.request = entry.decision, ""
            case EffectSettled():
                row.state = "settled"
                self._mark(row, entry.operation, entry.attempt, "ended")
                self.tell("good", f"{session}: the payment that was unknown is known now: it {entry.status}")
            case TurnCompleted():
                row.done, row.state = True, "answered"
                self.tell("plain", f"{session} is answered")
            case TurnEnded():
                row.done, row.state = True, entry.kind
                self.tell("bad", f"{session}: {entry.kind} {entry.reason}")
            case MessageAdded() | _:
                pass

    def _ended(self, row: Row, entry: OperationEnded) -> None:
        name = row.plans[entry.operation][1]
        mark = row.marks.get((entry.operation, entry.attempt))
        before = mark.state if mark is not None else ""
        match entry.status:
            case "uncertain" if entry.final:
                self._mark(row, entry.operation, entry.attempt, "doubt")
                self.tell("doubt", f"{row.mail.id}: nobody can say whether the money moved; the customer is told so")
            case "uncertain" if entry.failure is not None and entry.failure.code != "restart":
                row.state = "asks what became of the payment"
                self.tell("doubt", f"{row.mail.id}: {name}: {entry.failure.message or entry.failure.code}; it asks what became of it")
            case "cancelled" if entry.failure is not None and entry.failure.code == "not_done":
                self.tell("good", f"{row.mail.id}: no money had moved; it pays now")
            case "succeeded" if before == "cut off" and name == "refund":
                self.tell("good", f"{row.mail.id}: the money had moved; it is not paid again")
            case _:
                pass
        state: Any = {"succeeded": "ended", "failed": "ended"}.get(entry.status, "cut off")
        if not (entry.status == "uncertain" and entry.final):
            self._mark(row, entry.operation, entry.attempt, state)

    @staticmethod
    def _mark(row: Row, operation: str, attempt: int, state: Any) -> None:
        if (operation, attempt) in row.marks:
            row.marks[operation, attempt].state = state
