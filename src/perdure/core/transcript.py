"""The transcript as a whole: its messages' places, and the chain of digests whose end names it.

A revision is a hash chain over message digests, so equal messages have the equal revision whatever happened before, and appending hashes
one digest. A message knows the revision that the transcript had with it; an edit changes that for the messages behind it, so an edit
hashes those, and leaves marks on its way. Whoever asks for the revision of a beginning starts at the nearest mark.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from .errors import CutThroughCall, InvalidSpan, InvalidTranscript
from .layout import Layout, Piece
from .messages import Message, ToolCallResponse

__all__ = [
    "EMPTY",
    "Chain",
    "Known",
    "Transcript",
    "chained",
    "check_cut",
    "check_first",
    "check_position",
    "check_replacement",
    "check_span",
    "private_after",
]

EMPTY = "0" * 64
"""The revision of no messages."""

MARKS_LIMIT = 256
"""About how many marks one edit leaves."""

STRIDE = 256
"""The fewest messages between two marks."""


def chained(revision: str, digest: str) -> str:
    """The revision of a transcript with one more message."""
    return hashlib.sha256((revision + digest).encode()).hexdigest()


class Known(NamedTuple):
    """The revision of the first ``length`` messages. Where ``revision`` is empty, the last of them knows it."""

    length: int
    revision: str


class Chain(NamedTuple):
    """What is known of the revisions of a transcript's beginnings, besides its own.

    ``exact`` are ranges [start, stop) of positions whose messages know theirs; ``marks`` are (count, revision).
    """

    exact: tuple[tuple[int, int], ...] = ()
    marks: tuple[tuple[int, str], ...] = ()

    def before(self, count: int) -> Known:
        """The longest beginning of at most ``count`` messages whose revision is known."""
        known = Known(0, EMPTY)
        for start, stop in self.exact:
            if start < count:
                known = max(known, Known(min(stop, count), ""), key=_length)
        for marked, revision in self.marks:
            if marked <= count:
                known = max(known, Known(marked, revision), key=_length)
        return known

    def cut(self, count: int) -> Chain:
        """What of it holds for the first ``count`` messages."""
        exact = tuple((start, min(stop, count)) for start, stop in self.exact if start < count)
        return Chain(exact, tuple(mark for mark in self.marks if mark[0] <= count))

    def then(self, start: int, stop: int) -> Chain:
        """The chain with further messages that know their revisions."""
        if start >= stop:
            return self
        if self.exact and self.exact[-1][1] == start:
            return Chain((*self.exact[:-1], (self.exact[-1][0], stop)), self.marks)
        return Chain((*self.exact, (start, stop)), self.marks)

    def marked(self, marks: Sequence[tuple[int, str]]) -> Chain:
        """The chain with further marks."""
        return Chain(self.exact, (*self.marks, *(mark for mark in marks if mark not in self.marks)))


def _length(known: Known) -> int:
    return known.length


class Transcript(NamedTuple):
    """A session's messages at one of its versions. An empty ``revision`` is one that nobody asked for yet."""

    layout: Layout
    revision: str
    chain: Chain

    @classmethod
    def at(cls, laid: Any, number: int, revision: str) -> Transcript:
        """The transcript as the entry ``laid`` (a `Laid`, or ``None``) left it, with the session's own messages up to ``number`` behind."""
        if laid is None:
            return cls(Layout([Piece("", 1, number + 1)]), revision, Chain().then(0, number))
        count, appended = laid.count, max(0, number - laid.tail)
        layout = Layout((*laid.pieces, Piece("", laid.tail + 1, laid.tail + 1 + appended)))
        chain = Chain(laid.exact, laid.marks).marked([(count, laid.revision)]).then(count, count + appended)
        return cls(layout, revision, chain)

    def known(self, count: int) -> Known:
        """The longest beginning of at most ``count`` messages whose revision is known."""
        return Known(count, self.revision) if self.revision and count == len(self.layout) else self.chain.before(count)

    def edited(
        self, start: int, stop: int, *, number: int, before: str, added: Sequence[str], behind: Iterable[str]
    ) -> tuple[Transcript, tuple[str, ...]]:
        """The transcript with the session's messages beyond ``number`` in place of those at ``[start, stop)``, and what these know.

        ``before`` is the revision of the first ``start`` messages, ``added`` and ``behind`` are the digests of what comes after them.
        """
        revisions: list[str] = []
        revision = before
        for digest in added:
            revision = chained(revision, digest)
            revisions.append(revision)
        stride = _stride(len(self.layout))
        marks: list[tuple[int, str]] = []
        count = start + len(added)
        sha256 = hashlib.sha256
        for digest in behind:
            # `chained`, written out: there may be ten thousand.
            revision, count = sha256((revision + digest).encode()).hexdigest(), count + 1
            if not count % stride:
                marks.append((count, revision))
        layout = self.layout.splice(start, stop, Layout([Piece("", number + 1, number + 1 + len(added))]))
        chain = self.chain.cut(start).then(start, start + len(added)).marked(marks)
        return Transcript(layout, revision, chain), tuple(revisions)

    def branched(self, session: str, cut: int, *, before: str, added: Sequence[str]) -> tuple[Transcript, tuple[str, ...]]:
        """What a fork of ``session`` begins with: its first ``cut`` messages, and messages of its own behind them."""
        beginning = Transcript(self.layout.slice(0, cut).of(session), before, self.chain.cut(cut))
        return beginning.edited(cut, cut, number=cut, before=before, added=added, behind=())


def _stride(length: int) -> int:
    """How many messages lie between two marks of an edit."""
    stride = STRIDE
    while stride * MARKS_LIMIT < length:
        stride *= 2
    return stride


def check_span(start: Any, stop: Any, length: int) -> None:
    """Raises `InvalidSpan` unless ``[start, stop)`` are positions of a transcript of ``length`` messages."""
    if type(start) is not int or type(stop) is not int or not 0 <= start <= stop:
        raise InvalidSpan(
            f"from {start!r:.40} up to {stop!r:.40} is no span",
            hint="positions count from 0; the first is the first that goes, the second the first that stays",
        )
    if stop > length:
        raise InvalidSpan(f"the span up to {stop!r:.40} ends behind the transcript, which has {_messages(length)}", hint=f"up to {length}")


def check_position(position: Any, length: int) -> None:
    """Raises `InvalidSpan` unless one of a transcript's ``length`` messages stands there."""
    if type(position) is not int or not 0 <= position < length:
        raise InvalidSpan(
            f"there is no message at position {position!r:.40}: the transcript has {_messages(length)}", hint="positions count from 0"
        )


def _messages(length: int) -> str:
    return f"{length} messages" if length != 1 else "1 message"


def check_first(count: Any, length: int) -> None:
    """Raises `InvalidSpan` unless a transcript of ``length`` messages has ``count`` first ones."""
    if type(count) is not int or not 0 <= count <= length:
        raise InvalidSpan(f"there are no first {count!r:.40} messages in a transcript of {length}", hint=f"0 to {length}")


def check_cut(position: int, behind: str) -> None:
    """Raises `CutThroughCall` if the message at ``position``, of the role ``behind``, holds responses to the one before it."""
    if behind == "tool":
        raise CutThroughCall(
            f"position {position} lies between a tool call and its response", hint=f"take {position - 1} or {position + 1}: both or neither"
        )


def check_replacement(before: str, messages: Sequence[Message], after: str, whole: str = "the replacement") -> None:
    """Whether messages can stand behind one of the role ``before`` and in front of one of ``after`` (empty where there is none).

    ``whole`` is what they are called together.

    Every call has its response in the message behind it, in call order, and every response its call; a transcript begins with a user's
    message, and an answer doesn't follow an answer. Raises `InvalidTranscript`.
    """
    previous, calls = before, [""][:0]
    for index, message in enumerate(messages):
        what = f"message {index} of {whole}"
        if message.role == "tool":
            responses = [part.id for part in message.parts if isinstance(part, ToolCallResponse)]
            if not calls or responses != calls:
                raise InvalidTranscript(
                    f"{what} responds to {responses}, but the calls before it are {calls}",
                    hint="one tool message behind each message with calls, with a response to each of them in their order",
                )
        elif calls:
            raise InvalidTranscript(f"{what} stands where the responses to {calls} should", hint="replace calls and responses together")
        _check_answer(previous, message.role, what)
        previous = message.role
        calls = [call.id for call in message.tool_calls]
        if len(set(calls)) < len(calls):
            raise InvalidTranscript(f"{what} has two calls with one id", hint="give every call an id of its own")
    if calls:
        raise InvalidTranscript(
            f"the calls {calls} of message {len(messages) - 1} of {whole}, its last, have no response",
            hint="add a tool message, or leave them out",
        )
    if after:
        _check_answer(previous, after, "the message behind the span")


def _check_answer(previous: str, role: str, what: str) -> None:
    if role == "assistant" and previous in ("", "assistant"):
        where = "begins the transcript" if not previous else "follows another answer"
        raise InvalidTranscript(f"{what} is an answer, and {where}", hint="put a user's message before it, or replace both answers")


def private_after(private_from: int, start: int, stop: int, inserted: int) -> int:
    """What `Checkpoint.private_from` becomes when ``inserted`` messages take the place of those at ``[start, stop)``."""
    if private_from <= start:
        return private_from
    return max(private_from, stop) - (stop - start) + inserted
