"""The page about failures says what the code's numbers say."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

import perdure
from perdure.agent import agent, middleware
from perdure.cli.parser import parse
from perdure.core import budget, checkpoint, journal, layout, media, messages
from perdure.core.rules import attempts, endings
from perdure.runtime import about, calls, consumers, content, driver, engaging, names, output, perform, requests, sending
from perdure.store import base
from perdure.store.postgres.store import PostgresStore
from perdure.store.postgres.within import SECONDS as POSTGRES_SECONDS
from perdure.store.sqlite.within import SECONDS as SQLITE_SECONDS
from perdure.workers import refused

PAGE = (Path(__file__).parents[2] / "docs" / "failures.md").read_text()


def row(what: str) -> str:
    """What the page says of something, in the table's second column."""
    found = re.findall(rf"^\| {re.escape(what)} \| ([^|]*) \|", PAGE, re.MULTILINE)
    assert len(found) == 1, what
    return str(found[0])


def kib(size: int) -> str:
    return f"{size // 1024 // 1024} MiB" if size % (1024 * 1024) == 0 else f"{size // 1024} KiB"


def doubled(first: float, most: float) -> str:
    return f"{first:g} s, doubled up to {most:g} s"


OPEN = inspect.signature(perdure.open).parameters
POSTGRES = inspect.signature(PostgresStore).parameters
WORKER = parse(["worker", "--agents", "shop"])

ROWS = {
    "one attempt of a model call": f"{perform.MODEL_SECONDS:g} s",
    "attempts while the provider is away": f"{attempts.ATTEMPTS}",
    "attempts of anything else that may be retried, or before a fallback route": f"{attempts.FEW_ATTEMPTS}",
    "pause before an attempt": doubled(attempts.FIRST_DELAY_MS / 1000, attempts.LONGEST_DELAY_MS / 1000),
    "pause that a provider may ask for": f"{attempts.LONGEST_HINT_MS / 1000:g} s",
    "pause from which the session is released meanwhile": f"{driver.REST_MS / 1000:g} s",
    "steps of a turn": f"{budget.STEPS}",
    "a cancelled async tool, until perdure stops waiting for it": f"{perform.Performer.CANCEL_GRACE:g} s",
    "`reconcile`": f"the tool's `timeout`, else {perform.RECONCILE_SECONDS:g} s",
    "a call that `reconcile` said had no effect": f"{attempts.FEW_ATTEMPTS} attempts",
    "the function of a transaction": f"{SQLITE_SECONDS:g} s",
    "an output validator": f"{output.VALIDATOR_SECONDS:g} s",
    "the guard's question": f"{calls.GUARD_DEADLINE_MS // 3_600_000} h, then refused",
    "silence after which a process loses its sessions": f"{OPEN['lease'].default:g} s",
    "running calls when the runtime closes": f"{OPEN['grace'].default:g} s",
    "running calls when a worker stops": f"{WORKER.grace:g} s",
    "a session after a fault in your code or ours": f"{engaging.FAULT_PAUSE_MS / 1000:g} s",
    "a session that a worker can't continue": doubled(refused.PAUSE, refused.PAUSE_LIMIT),
    "a statement on PostgreSQL": f"{POSTGRES['timeout'].default:g} s",
    "a lost connection to PostgreSQL": f"sent again for {POSTGRES['patience'].default:g} s",
    "a consumer's handler that raised": doubled(consumers.FIRST_DELAY_MS / 1000, consumers.LONGEST_DELAY_MS / 1000),
    "ids of sessions and submissions": f"{names.ID_LIMIT} bytes",
    "text of a message": kib(content.MESSAGE_LIMIT),
    "an image, sound or file": kib(media.MEDIA_LIMIT),
    "all media of a message": kib(media.MESSAGE_MEDIA_LIMIT),
    "media of one model request": f"{kib(perdure.ModelSettings().media_bytes)} (`ModelSettings(media_bytes=)`)",
    "an answer of a model, a result of a tool": kib(perform.OUTPUT_LIMIT),
    "a result that the model sees whole": f"{perdure.Agent('a').archive:,} bytes (`Agent(archive=)`)",
    "an entry of the journal": f"{kib(journal.BODY_LIMIT)}; content of more than {kib(messages.INLINE_LIMIT)} is set aside",
    "tool calls of one answer": f"{checkpoint.CALLS_LIMIT}",
    "submissions that wait in a session": f"{base.PENDING_LIMIT:,}",
    "notes that come with a message": f"{sending.NOTES_LIMIT}, of {kib(sending.NOTE_LIMIT)} each",
    "an answer to a question": f"{requests.REPLY_LIMIT:,} bytes",
    "title, labels, identity and tool policy together": kib(checkpoint.ABOUT_LIMIT),
    "metadata of a session": kib(about.METADATA_LIMIT),
    "grants of a session": f"{checkpoint.GRANTS_LIMIT}",
    "ranges of a transcript, which edits make": f"{layout.RANGES_LIMIT:,}",
    "a session's checkpoint": kib(checkpoint.SIZE_LIMIT),
    "a prompt, reason or guidance of a hook": kib(middleware.GUIDANCE_LIMIT),
    "a value that a middleware keeps": kib(middleware.STATE_LIMIT),
    "an agent's name": f"{agent._NAME_LIMIT} characters",
}


@pytest.mark.parametrize("what", ROWS)
def test_a_default_on_the_page_is_the_code_s(what: str) -> None:
    assert row(what) == ROWS[what]


def test_what_the_page_calls_unlimited_is() -> None:
    declared = perdure.Agent("a")
    assert (declared.approval_timeout, declared.answer_timeout, declared.limits.seconds) == (None, None, None)
    assert inspect.signature(perdure.tool).parameters["timeout"].default is None
    assert inspect.signature(perdure.Agent.as_tool).parameters["timeout"].default is None
    assert perdure.Middleware.timeout is None
    assert POSTGRES_SECONDS == SQLITE_SECONDS


def test_the_times_in_its_sentences_are_those_of_the_rules() -> None:
    pauses = [attempts.retry_delay(attempt, None) for attempt in range(1, attempts.ATTEMPTS)]
    assert f"tries again for {sum(pauses) / 60_000:.1f} minutes" in PAGE
    assert sum(pauses[: attempts.FEW_ATTEMPTS - 1]) == 3_000
    assert "after 5 attempts, whose pauses take 3 seconds" in PAGE
    pause = attempts.FALLBACK_HINT_MS // 1000
    assert f"A provider that asks for a pause of\n  up to {pause} seconds gets it each time" in PAGE
    minutes = round(perform.MODEL_SECONDS / 60)
    assert f"found after {minutes} minutes, and its turn fails after {minutes * attempts.FEW_ATTEMPTS}" in PAGE
    assert (endings.RESTARTS, driver.STUCK_CLAIMS) == (3, 5)
    assert "after the third restart" in PAGE
    assert "died five times without progress" in PAGE
