"""What the demo claims, checked against the two things that can't lie: the payment service's ledger, and the journals."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

from .. import EffectSettled, Entry, OperationEnded, OperationStarted, Recovered, Result, Runtime, ToolCallResponse, TurnEnded
from ..runtime.verify import Checked, verify
from .mails import MAILS, ORDERS, euros
from .scene import Kill

__all__ = ["KILLS", "LEASE", "Evidence", "Proof", "prove", "survived"]

KILLS = 12
"""How often the agent has to be killed for the demo to mean something."""

LEASE = 10.0
"""How long the agent's runtime keeps what a silent process holds (seconds): a takeover that waited for that was not at once."""

E = TypeVar("E", bound=Entry)


@dataclass(frozen=True)
class Proof:
    """One claim, whether it holds, and the numbers."""

    holds: bool
    claim: str
    numbers: str


@dataclass(frozen=True)
class Evidence:
    """Everything that was written down: payments, journals, answers, and the calls that the model counted."""

    ledger: list[dict[str, Any]]
    journals: dict[str, list[Entry]]
    results: dict[str, Result | None]
    model_calls: list[str]

    def all(self, kind: type[E]) -> list[tuple[str, E]]:
        """Every entry of a kind, with its session."""
        return [(name, entry) for name, journal in self.journals.items() for entry in journal if isinstance(entry, kind)]

    def receipts(self) -> list[OperationEnded | EffectSettled]:
        """Everything that says what an operation came to."""
        return [entry for journal in self.journals.values() for entry in journal if isinstance(entry, OperationEnded | EffectSettled)]

    def model_operations(self) -> set[tuple[str, str]]:
        """Which operations are model calls."""
        return {
            (name, entry.operation) for name, entry in self.all(OperationStarted) if entry.plan is not None and entry.plan.kind == "model"
        }


async def prove(runtime: Runtime, ledger: Path, meter: Path, kills: list[Kill], moments: int, *, scripted: bool) -> list[Proof]:
    """All proofs. With a real model the amounts are its own, so what the script promises is left out."""
    evidence = Evidence(
        ledger=[line for line in _lines(ledger) if line["event"] == "paid"],
        journals={mail.id: await runtime.sessions.entries(mail.id) for mail in MAILS},
        results={mail.id: await runtime.sessions.result(mail.id, mail.id) for mail in MAILS},
        model_calls=[json.dumps(line) for line in _lines(meter)],
    )
    return [
        _paid_once(evidence),
        _no_mail_lost(evidence),
        _money(evidence),
        _unknown(evidence, scripted),
        _tokens(evidence),
        *([_person(evidence), _model_calls(evidence)] if scripted else []),
        survived(kills, moments, evidence, scripted=scripted),
        await _verified(runtime),
    ]


def _lines(file: Path) -> list[Any]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def _paid_once(evidence: Evidence) -> Proof:
    paid = evidence.ledger
    orders, references = Counter(line["order"] for line in paid), Counter(line["reference"] for line in paid)
    twice = sorted(order for order, count in orders.items() if count > 1)
    numbers = f"{len(paid)} payments for {len(orders)} orders in the ledger" + (f", twice: {', '.join(twice)}" if twice else "")
    return Proof(len(paid) == len(orders) == len(references) > 0, "Nothing was paid twice", numbers)


def _no_mail_lost(evidence: Evidence) -> Proof:
    answered = [name for name, result in evidence.results.items() if result is not None and result.ok and result.output]
    return Proof(len(answered) == len(MAILS), "No mail was lost", f"{len(MAILS)} mails came, {len(answered)} have their answer")


def _money(evidence: Evidence) -> Proof:
    ledger = {line["payment"]: line["cents"] for line in evidence.ledger}
    journal = _receipts(evidence)
    left, known = sum(line["cents"] for line in evidence.ledger), sum(journal.values())
    numbers = f"{euros(left)} left by the ledger, {euros(known)} by the journals' {len(journal)} receipts, the same one by one"
    if ledger != journal or left != known:
        numbers = numbers.replace("the same", "not the same")
    return Proof(ledger == journal and left == known > 0, "Every cent is accounted for", numbers)


def _receipts(evidence: Evidence) -> dict[str, int]:
    """Payments that the journals know of: from receipts, and from what was settled later."""
    return {
        part.response["payment"]: part.response["cents"]
        for entry in evidence.receipts()
        for part in entry.parts
        if isinstance(part, ToolCallResponse) and isinstance(part.response, dict) and "payment" in part.response
    }


def _unknown(evidence: Evidence, scripted: bool) -> Proof:
    doubts = {(name, entry.seq) for name, entry in evidence.all(OperationEnded) if entry.status == "uncertain" and entry.final}
    settled = {(name, entry.receipt) for name, entry in evidence.all(EffectSettled)}
    numbers = f"{len(doubts)} payment was reported as unknown, {len(settled)} settled by the bank's late answer"
    holds = settled == doubts and (len(doubts) == 1 or not scripted)
    return Proof(holds, "What was unknown was said to be unknown", numbers)


def _tokens(evidence: Evidence) -> Proof:
    models = evidence.model_operations()
    usages = [entry.usage for name, entry in evidence.all(OperationEnded) if (name, entry.operation) in models and entry.attempt]
    used = sum((usage.input_tokens or 0) + (usage.output_tokens or 0) for usage in usages if usage is not None)
    unknown = usages.count(None)
    totals = [entry.usage for _, entry in evidence.all(TurnEnded)]
    total, total_unknown = sum(item.total_tokens for item in totals), sum(item.unknown_calls for item in totals)
    numbers = f"{used:,} in the receipts, {total:,} in the turns' sums; {unknown} calls that died count as unknown, not as 0"
    return Proof(used == total > 0 and unknown == total_unknown, "Every token is accounted for", numbers)


def _person(evidence: Evidence) -> Proof:
    paid = {line["order"]: line["cents"] for line in evidence.ledger}
    holds = "B-108" not in paid and paid.get("B-111") == 24_000 and paid.get("B-105") == ORDERS["B-105"]
    numbers = f"B-105 approved, {euros(paid.get('B-105', 0))} paid; B-108 denied, {euros(paid.get('B-108', 0))} paid; "
    numbers += f"B-111 cut down from {euros(ORDERS['B-111'])}, {euros(paid.get('B-111', 0))} paid"
    return Proof(holds, "What a person decided was done", numbers)


def _model_calls(evidence: Evidence) -> Proof:
    models = evidence.model_operations()
    calls = Counter(evidence.model_calls)
    repeated = calls.total() - len(calls)
    answers = sum((name, entry.operation) in models and entry.status == "succeeded" for name, entry in evidence.all(OperationEnded))
    cut_off = sum((name, item.operation) in models for name, entry in evidence.all(Recovered) for item in entry.attempts)
    numbers = f"{calls.total()} calls for {answers} answers; {repeated} were repeated, {cut_off} were in flight at a kill"
    return Proof(answers == len(calls) > 0 and repeated <= cut_off, "Only model calls in flight were repeated", numbers)


def survived(kills: list[Kill], moments: int, evidence: Evidence, *, scripted: bool) -> Proof:
    """Whether there were enough kills, and each was made good at once. ``moments`` is how often one was waited for."""
    back = sorted(kill.back_after for kill in kills if kill.back_after is not None)
    recovered = len(evidence.all(Recovered))
    times = f"back at work after {back[0]:.2f} / {median(back):.2f} / {back[-1]:.2f} s (min / median / max)" if back else "never back"
    # A real model need not come to every moment, and one that comes to none proves nothing.
    holds = len(kills) >= (KILLS if scripted else 1) and len(back) == len(kills) and back[-1] < LEASE
    came = "" if len(kills) == moments else f" ({len(kills)} of {moments} moments came)"
    numbers = f"{len(kills)} × kill -9{came}, {recovered} turns taken over; {times}"
    return Proof(holds, "Every kill was survived", numbers)


async def _verified(runtime: Runtime) -> Proof:
    checked = Checked()
    problems = [str(problem) async for problem in verify(runtime.store, checked=checked)]
    numbers = f"{checked.sessions} sessions, {checked.entries} entries, every one hashed and folded again"
    return Proof(not problems and checked.sessions == len(MAILS), "The store is in order", "; ".join(problems[:3]) or numbers)
