"""What an agent wants done when a conversation outgrows its model's window."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..core import canonical
from ..core.errors import InvalidAgent, NotCanonical
from ..models.estimate import BYTES_PER_TOKEN

__all__ = ["GUIDANCE", "Compaction"]

GUIDANCE = """\
This conversation is about to outgrow what you can be shown. Write notes that will take the place of everything above, and save them with \
one call of save_notes. Do nothing else: answer nobody, continue no work.

Whoever goes on with the work will see only these notes and what is said after them. Keep:
- what people asked for and decided, in their words where the words matter, and what is still open;
- what was done, with its results, and every effect in the outside world: what was ordered, sent, changed, paid, with ids and amounts;
- what is known to be uncertain or to have failed, and what must not be done again;
- facts, names, numbers, paths, addresses and handles of archived results that may be needed again, exactly;
- what was being done last, and the next step.

Earlier notes above are part of the conversation: carry over what still matters. At most 20,000 characters."""
"""What the writer of notes is told."""


@dataclass(frozen=True, kw_only=True)
class Compaction:
    """When notes take the place of a conversation's beginning, and what their writer is told.

    It happens before a model call whose request has ``threshold`` tokens or comes near the model's window, whichever is less. Tokens are
    estimated at ``bytes_per_token`` where the model has no tokenizer. Raises `InvalidAgent`.
    """

    threshold: int = 250_000
    bytes_per_token: float = BYTES_PER_TOKEN
    guidance: str = GUIDANCE

    def __post_init__(self) -> None:
        if not canonical.is_whole(self.threshold, 1):
            raise InvalidAgent(f"threshold={self.threshold!r} is no number of tokens", hint="at least 1")
        ratio = self.bytes_per_token
        if isinstance(ratio, bool) or not isinstance(ratio, int | float) or not (math.isfinite(ratio) and 0.1 <= ratio <= 100):
            raise InvalidAgent(f"bytes_per_token={ratio!r} can't be", hint="4 for English, 2 to 3 for other languages")
        if not isinstance(self.guidance, str) or not self.guidance.strip():
            raise InvalidAgent("the guidance of a compaction is empty", hint="say what the notes must keep, or leave it out")
        try:
            canonical.check(self.guidance, "guidance")
        except NotCanonical as error:
            raise InvalidAgent(str(error)) from error
