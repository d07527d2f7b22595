"""A session that went wrong, as a test that it doesn't again: the recorded answers are the model, the recorded receipts are the tools."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from ..agent import Agent
from ..models.base import Model
from ..models.prices import Price, Prices
from ..models.router import Router
from ..runtime.recording import RecordedCall, Recording, recording_of_lines
from ..runtime.replay import Receipts, Replay, replay, stand_in

__all__ = ["Incident", "from_session"]


class Incident:
    """What `from_session` read. ``recording`` is all of it, turn by turn."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording

    @property
    def model(self) -> Model:
        """A new model that answers as the recorded one did."""
        return self.recording.model()

    @property
    def calls(self) -> tuple[RecordedCall, ...]:
        """The calls of tools, in order, with what they came to."""
        return self.recording.calls

    def stand_in(self, agent: Agent) -> Agent:
        """The agent with the recorded answers for a model and the recorded receipts behind its tools, to be run by the test itself."""
        return stand_in(agent, Receipts(self.recording.calls), model=self.model)

    async def replay(
        self, agent: Agent, *, model: str | Model | Router | None = None, prices: Prices | Mapping[str, Price] | None = None
    ) -> Replay:
        """Say to the agent what was said then, in memory; ``model`` instead of the recorded answers. No tool runs.

        Its `Replay` says where transcripts, usage and effects differ: ``assert (await incident.replay(agent)).same``.
        """
        return await replay(self.recording, agent, model=self.model if model is None else model, prices=prices)


async def from_session(source: str | os.PathLike[str] | Iterable[str | bytes], *, session: str | None = None) -> Incident:
    """Read an export (``perdure export SESSION -o incident.jsonl``): a path, or its lines.

    ``session`` says which of several. Raises `ImportRefused` for what is no whole export, `ContentRedacted` where what is needed was
    removed for good, and `UsageError` for a branch, whose beginning is another session's.
    """
    if isinstance(source, str | os.PathLike):
        source = (await asyncio.to_thread(Path(source).read_bytes)).splitlines(keepends=True)
    return Incident(await recording_of_lines(source, session))
