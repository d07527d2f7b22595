"""What the next model call of a session is asked, and the notes that have to be written before it fits."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from typing import Literal, NamedTuple

import msgspec

from ..agent import Agent
from ..agent.compaction import Compaction
from ..core import canonical
from ..core.checkpoint import Checkpoint, Operation, Turn
from ..core.context import NOTES_LIMIT, NOTES_TOOL, notes_in
from ..core.memory import MemoryState, rendered
from ..core.messages import Message, Part, Private, Text
from ..core.records import ALL_TOOLS, Failure, RequestRecord, ToolPolicy
from ..core.reports import CompactionAccepted, EndEarly, Fail, Prepared
from ..models.base import ModelRequest, ToolSpec
from ..models.estimate import DEFAULT_WINDOW, Estimate, reserve_of
from ..models.router import Router
from ..store.base import StoredBlob
from .batch import Batch
from .calls import permitted
from .context import Context, Shown
from .ledger import Ledger
from .shown import is_boundary, is_kept, kept_ranges, retained_from

__all__ = ["NOTES_SPEC", "Asked", "Next", "Preparation", "content", "correction"]

NOTES_SPEC = ToolSpec(
    name=NOTES_TOOL,
    description="Save the notes that take the place of the conversation so far.",
    parameters={
        "type": "object",
        "properties": {"notes": {"type": "string", "description": f"The notes, at most {NOTES_LIMIT} bytes."}},
        "required": ["notes"],
        "additionalProperties": False,
    },
)

DOES_NOT_FIT = "does_not_fit"
"""The code of a turn's failure whose next request has no room in its model's window."""


class Asked(NamedTuple):
    """A model request that was prepared here. ``fallback`` is the route that may answer instead; ``compact``: a shorter request may do."""

    request: ModelRequest
    fallback: str = ""
    compact: bool = False


class Next(NamedTuple):
    """What comes next: notes to ``write`` on what stands before the position ``upto``, or to ``accept``; the model call to ``start``; or
    ``nothing``, since that was decided. ``begins``: nobody asked for these notes yet. ``shown`` is what models would see behind them.
    """

    then: Literal["write", "accept", "start", "nothing"]
    upto: int = 0
    begins: bool = False
    shown: Shown | None = None


class _Sized(NamedTuple):
    """How much of a route's window a request takes, in tokens. ``declared``: somebody said how large that is."""

    tokens: int
    around: int
    window: int
    declared: bool

    @property
    def room(self) -> int:
        """What a request may have, so that an answer has room too."""
        return max(1, self.window - reserve_of(self.window))

    @property
    def fits(self) -> bool:
        """Whether there is room. In a window that nobody declared, only its provider can say."""
        return self.tokens < self.room or not self.declared

    @property
    def comfortable(self) -> int:
        """What a request may have before notes are written."""
        return max(1, self.window - 2 * reserve_of(self.window))


def correction(wrong: str) -> str:
    """What the model reads behind an answer that is not what it has to be."""
    return f"This answer is not accepted: {wrong}\nAnswer again, with nothing but the corrected answer."


def content(data: bytes, media_type: str = "application/json") -> StoredBlob:
    """Content by its digest."""
    return StoredBlob(digest=canonical.digest(data), media_type=media_type, data=data)


class Preparation:
    """Prepares the model calls of one session, one decision at a time. It proposes; `core` decides.

    ``asked`` are the requests that were prepared, by operation. ``keep`` takes content that entries refer to.
    """

    def __init__(self, agent: Agent, router: Router, context: Context, ledger: Ledger, session_id: str, keep: Callable[..., None]) -> None:
        self.asked: dict[str, Asked] = {}
        self._agent = agent
        self._router = router
        self._context = context
        self._ledger = ledger
        self._keep = keep
        self._session_id = session_id
        self._compaction = agent.compaction or Compaction()
        self._guidance = content(self._compaction.guidance.encode(), "text/plain")
        self._said = content(agent.prompt.encode(), "text/plain")
        self._settings = content(canonical.encode(agent.settings))
        self._offered = (ALL_TOOLS, agent.specs, content(canonical.encode(agent.specs)))
        self._writing = msgspec.structs.replace(agent.settings, tool_choice=NOTES_TOOL, max_output_tokens=None, parallel_tool_calls=None)
        self._spec = agent.output.spec if agent.checks_answers else None
        self._output = None if self._spec is None else content(canonical.encode(self._spec))
        self._correcting = msgspec.structs.replace(agent.settings, tool_choice=None, parallel_tool_calls=None)
        self._corrected = (self._said, content(canonical.encode(())), content(canonical.encode(self._correcting)))
        self._told = (
            self._said,
            content(canonical.encode([NOTES_SPEC])),
            content(canonical.encode(self._writing)),
            self._guidance,
        )
        self._estimates: dict[str, Estimate] = {}
        self._around: dict[tuple[str, bool, int, ToolPolicy], int] = {}
        self._remembered: tuple[int, str] = (0, "")

    def route(self, checkpoint: Checkpoint) -> str:
        """The route of the next model call."""
        turn = checkpoint.turn
        return (turn.fallback if turn is not None else "") or self._router.saved(checkpoint.route)

    async def prepare(self, batch: Batch) -> Next:
        """What comes next; a turn that can't go on is ended here. Raises what `Router.model` raises, and `StoreCorrupt` for lost notes."""
        checkpoint, turn = batch.checkpoint, batch.turn
        await self._recall(batch)
        written = [item for item in turn.compactions if item.status == "ended"]
        if len(written) < len(turn.compactions):
            return Next("write", turn.compactions[-1].plan.upto)
        shown = await self._shown_behind(batch, written[-1] if written else None)
        route = self.route(checkpoint)
        await self._context.measure(self._estimate(route), self._group(checkpoint, route), checkpoint.private_from, shown)
        sized = self._size(checkpoint, route, shown)
        wanted = (turn.compacts or turn.squeeze == "wanted") and not written
        if written:
            wanted = turn.compacts or sized.tokens >= sized.comfortable
        elif not wanted:
            wanted = self._outgrown(checkpoint, route, sized)
        # Notes can't help where the instructions alone have no room, and nobody writes any where nobody is to.
        helps = turn.compacts or (self._agent.compaction is not None and (sized.around < sized.room or not sized.declared))
        upto = self._cut(checkpoint, turn, shown, sized) if wanted and helps else None
        if upto is not None:
            return Next("write", upto, begins=True)
        if written and (sized.fits or turn.compacts or turn.squeeze == "wanted"):
            return Next("accept", written[-1].plan.upto, shown=shown)
        if turn.compacts:
            batch.apply(EndEarly(reason="there is nothing to summarise", at=batch.now))
        elif wanted and (turn.squeeze == "wanted" or not sized.fits):
            self._refuse(batch, sized)
        else:
            return Next("start")
        return Next("nothing")

    async def _recall(self, batch: Batch) -> None:
        """Know what the session remembered when the turn began."""
        remembered = batch.turn.memory
        if remembered != self._remembered[0]:
            state = await self._ledger.remembered(remembered, batch) if remembered else MemoryState()
            self._remembered = remembered, rendered(state.entries)

    def _outgrown(self, checkpoint: Checkpoint, route: str, sized: _Sized) -> bool:
        """Whether the route's request is to be made shorter before it is sent."""
        if self._agent.compaction is None:
            # Nobody is to write notes; a window that was declared is still one.
            return sized.declared and sized.tokens > sized.window
        if self._owns(checkpoint, route):
            limit = max(1, min(self._compaction.threshold, sized.comfortable))
            return max(sized.tokens, checkpoint.input_tokens) >= limit
        return sized.tokens >= sized.room

    def _owns(self, checkpoint: Checkpoint, route: str) -> bool:
        """Whether the context holds what this route's model, or one of its group, said. A context that nobody owns is as good."""
        if not checkpoint.owner_group:
            return True
        return self._router.knows(checkpoint.owner) and self._router.model(route).group == checkpoint.owner_group

    @property
    def _instructions(self) -> str:
        """What the running turn's models are told: the agent's words, and what the session remembered when it began."""
        return "\n\n".join(filter(None, (self._agent.prompt, self._remembered[1])))

    def _tools(self, policy: ToolPolicy) -> tuple[tuple[ToolSpec, ...], StoredBlob]:
        """The tools that the session may use, as models are told of them."""
        if self._offered[0] != policy:
            specs = tuple(spec for spec in self._agent.specs if permitted(policy, spec.name) or self._agent.ends(spec.name))
            self._offered = (policy, specs, content(canonical.encode(specs)))
        return self._offered[1], self._offered[2]

    # --------------------------------------------------------------------------------------------------------------- sizes

    def tokens(self, checkpoint: Checkpoint) -> int:
        """About how many tokens the messages have that models see now."""
        route = self.route(checkpoint)
        estimate = self._estimate(route)
        return estimate.tokens(self._context.sizes(estimate, self._group(checkpoint, route), checkpoint.private_from)[-1])

    def _group(self, checkpoint: Checkpoint, route: str) -> str | None:
        """Whose private parts a route may be sent."""
        return self._router.model(route).group if self._router.knows(checkpoint.owner) else None

    def _estimate(self, route: str) -> Estimate:
        if route not in self._estimates:
            count = getattr(self._router.model(route), "count", None)
            self._estimates[route] = Estimate(count, self._compaction.bytes_per_token)
        return self._estimates[route]

    def _size(self, checkpoint: Checkpoint, route: str, shown: Shown, *, writes: bool = False) -> _Sized:
        estimate, window = self._estimate(route), self._router.window(route)
        key = (route, writes, self._remembered[0], checkpoint.tools)
        if key not in self._around:
            tools = (NOTES_SPEC,) if writes else self._tools(checkpoint.tools)[0]
            said = self._instructions + (self._compaction.guidance if writes else "")
            if self._output is not None and not writes:
                said += self._output.data.decode()
            self._around[key] = estimate.around(said, tools)
        around = self._around[key]
        sizes = self._context.sizes(estimate, self._group(checkpoint, route), checkpoint.private_from, shown)
        tokens = estimate.tokens(around + sizes[-1])
        return _Sized(tokens, estimate.tokens(around), window or DEFAULT_WINDOW, window is not None)

    # --------------------------------------------------------------------------------------------------------------- notes

    async def _notes(self, batch: Batch, operation: Operation) -> str:
        receipt = await self._ledger.receipt(operation.receipt, batch)
        return notes_in(receipt.parts)

    async def _shown_behind(self, batch: Batch, written: Operation | None) -> Shown:
        """The messages as models would see them with notes that nothing has accepted yet."""
        if written is None:
            return self._context.shown
        return self._context.behind(await self._notes(batch, written), written.plan.upto, batch.turn.began)

    def _writers(self, checkpoint: Checkpoint, turn: Turn) -> tuple[str, ...]:
        """The routes that may write notes, the best first: the one whose words the context holds, then the selected one."""
        selected = self.route(checkpoint)
        if turn.writer:
            return (turn.writer,)
        owner = checkpoint.owner if checkpoint.owner and checkpoint.owner in self._router else selected
        return tuple(dict.fromkeys((owner, selected)))

    def _cut(self, checkpoint: Checkpoint, turn: Turn, shown: Shown, sized: _Sized) -> int | None:
        """The position before which everything is to be summarised next; None if that would be nothing new."""
        for writer in self._writers(checkpoint, turn):
            upto = self._cut_for(writer, checkpoint, turn, shown, sized)
            if upto is not None:
                return upto
        return None

    def _cut_for(self, writer: str, checkpoint: Checkpoint, turn: Turn, shown: Shown, sized: _Sized) -> int | None:
        messages, places = shown.messages, shown.places
        estimate = self._estimate(writer)
        sizes = self._context.sizes(estimate, self._group(checkpoint, writer), checkpoint.private_from, shown)
        mine = self._size(checkpoint, writer, shown, writes=True)
        budget = mine.room - mine.around
        if turn.squeeze == "wanted":
            # Its provider finds fewer tokens too many than were estimated.
            budget = min(budget, sized.tokens // 2)
        index = min(retained_from(messages, turn.began), bisect_right(sizes, estimate.units(max(0, budget))) - 1)
        start = _begun(checkpoint, turn)
        while index > 0:
            upto = places[index] if index < len(places) else checkpoint.messages
            first = bisect_left(places, upto)
            if upto <= start or all(is_kept(message, turn.began) for message in messages[bisect_left(places, start) : first]):
                return None
            if first <= index and is_boundary(messages, first):
                return upto
            index -= 1
        return None

    async def write(self, batch: Batch, fence: int, upto: int) -> None:
        """Ask for notes on everything before a position."""
        checkpoint, turn = batch.checkpoint, batch.turn
        written = [item for item in turn.compactions if item.status == "ended"]
        shown = await self._shown_behind(batch, written[-1] if written else None)
        stop = bisect_left(shown.places, upto)
        writer = next(
            (name for name in self._writers(checkpoint, turn) if self._holds(checkpoint, name, shown, stop)), self.route(checkpoint)
        )
        self._keep(batch, *self._told)
        instructions, tools, settings, guidance = (blob.digest for blob in self._told)
        record = RequestRecord(
            route=writer,
            context=checkpoint.context,
            epoch=checkpoint.epoch,
            instructions=instructions,
            tools=tools,
            settings=settings,
            upto=upto,
            notes=written[-1].receipt if written else 0,
            additions=guidance,
            memory=turn.memory,
        ).with_digest()
        visible = self._context.view(self._group(checkpoint, writer), checkpoint.private_from, shown, stop)
        request = ModelRequest(
            instructions=self._instructions,
            messages=[*visible, Message(role="user", parts=(Text(self._compaction.guidance),))],
            tools=(NOTES_SPEC,),
            settings=self._writing,
            route=writer,
            step=turn.step,
            session_id=self._session_id,
            purpose="notes",
            before=shown.before,
        )
        batch.apply(Prepared(kind="compaction", request=record, fence=fence, at=batch.now))
        running = batch.checkpoint.turn.compactions if batch.checkpoint.turn is not None else ()
        if running and running[-1].status == "started":
            selected = self.route(checkpoint)
            fallback = "" if turn.writer else selected if selected != writer else self._router.after(writer)
            self.asked = {running[-1].id: Asked(request, fallback)}

    def _holds(self, checkpoint: Checkpoint, writer: str, shown: Shown, stop: int) -> bool:
        """Whether a writer's window has room for the first messages."""
        mine = self._size(checkpoint, writer, shown, writes=True)
        sizes = self._context.sizes(self._estimate(writer), self._group(checkpoint, writer), checkpoint.private_from, shown)
        return mine.around + self._estimate(writer).tokens(sizes[stop]) <= mine.room

    def accept(self, batch: Batch, prepared: Next) -> None:
        """Let models see the notes that were written last."""
        shown = prepared.shown
        assert shown is not None
        # What was asked for the notes holds the whole conversation, and nobody asks it again.
        self.asked = {}
        checkpoint, turn = batch.checkpoint, batch.turn
        now = self._context.shown
        index = bisect_left(now.places, prepared.upto)
        group = checkpoint.owner_group
        private = checkpoint.private and any(
            isinstance(part, Private) and part.group == group and message.position >= checkpoint.private_from
            for message in shown.messages
            for part in message.parts
        )
        kept = kept_ranges(now.messages, index, turn.began)
        batch.apply(CompactionAccepted(kept=kept, answers=shown.before, private=private, at=batch.now))

    def _refuse(self, batch: Batch, sized: _Sized) -> None:
        """It doesn't fit, and nothing more can be summarised. Everything stays what it is."""
        where = f"the window of {self.route(batch.checkpoint)!r} has room for {sized.room} of {sized.window} tokens"
        if sized.around >= sized.room:
            words = f"the instructions and tools alone have about {sized.around} tokens; {where}"
        elif batch.turn.squeeze == "wanted":
            words = f"the provider finds the request too long, which has about {sized.tokens} tokens, and nothing more can be summarised"
        else:
            words = f"the request has about {sized.tokens} tokens, of which {sized.around} are instructions and tools; {where}"
            words += ", and nothing more can be summarised" if self._agent.compaction is not None else ", and compaction is off"
        batch.apply(Fail(failure=Failure(code=DOES_NOT_FIT, message=words), at=batch.now))

    # ------------------------------------------------------------------------------------------------------ the model call

    def record(self, batch: Batch, additions: str = "") -> RequestRecord:
        """What says which request the step's model call is."""
        return self._record(batch, (self._said, self._tools(batch.checkpoint.tools)[1], self._settings), additions=additions)

    def _record(self, batch: Batch, shown: tuple[StoredBlob, ...], *, additions: str = "", candidate: int = 0) -> RequestRecord:
        checkpoint = batch.checkpoint
        instructions, tools, settings = shown
        self._keep(batch, *shown if self._output is None else (*shown, self._output))
        return RequestRecord(
            route=self.route(checkpoint),
            context=checkpoint.context,
            epoch=checkpoint.epoch,
            instructions=instructions.digest,
            tools=tools.digest,
            settings=settings.digest,
            additions=additions,
            memory=batch.turn.memory,
            output="" if self._output is None else self._output.digest,
            candidate=candidate,
        ).with_digest()

    def request(self, batch: Batch, shown: Shown | None = None) -> ModelRequest:
        """The request that the context makes, or would make with what is ``shown`` instead."""
        agent, checkpoint = self._agent, batch.checkpoint
        route = self.route(checkpoint)
        return ModelRequest(
            instructions=self._instructions,
            messages=self._context.view(self._group(checkpoint, route), checkpoint.private_from, shown),
            tools=self._tools(checkpoint.tools)[0],
            settings=agent.settings,
            route=route,
            step=batch.turn.step,
            session_id=self._session_id,
            before=self._context.before if shown is None else shown.before,
            output=self._spec,
        )

    async def repair(self, batch: Batch, fence: int, receipt: int, answer: tuple[Part, ...], wrong: str) -> RequestRecord:
        """Ask the model to correct an answer, without tools; ``receipt`` is its, ``wrong`` what is."""
        checkpoint = batch.checkpoint
        await self._recall(batch)
        told = content(wrong.encode(), "text/plain")
        self._keep(batch, told)
        record = self._record(batch, self._corrected, additions=told.digest, candidate=receipt)
        group = self._group(checkpoint, record.route)
        parts = tuple(part for part in answer if not isinstance(part, Private) or part.group == group)
        request = ModelRequest(
            instructions=self._instructions,
            messages=[
                *self._context.view(group, checkpoint.private_from),
                Message(role="assistant", parts=parts),
                Message(role="user", parts=(Text(correction(wrong)),)),
            ],
            settings=self._correcting,
            route=record.route,
            step=batch.turn.step,
            session_id=self._session_id,
            purpose="repair",
            before=self._context.before,
            output=self._spec,
            repair=batch.turn.repaired + 1,
        )
        batch.apply(Prepared(kind="repair", request=record, fence=fence, at=batch.now))
        running = batch.checkpoint.turn.repair if batch.checkpoint.turn is not None else None
        if running is not None and running.status == "started":
            self.asked = {running.id: Asked(request, self._router.after(record.route))}
        return record

    def asks(self, batch: Batch, request: ModelRequest) -> Asked:
        """The request with what may be done if it fails."""
        compact = self._agent.compaction is not None and not batch.turn.squeeze
        return Asked(request, self._router.after(request.route), compact)


def _begun(checkpoint: Checkpoint, turn: Turn) -> int:
    """The position up to which everything is summarised already."""
    if turn.compactions:
        return turn.compactions[-1].plan.upto
    return checkpoint.compacted.upto if checkpoint.compacted is not None else 0
