"""One commit under way: what was decided, and what it means for the store's other rows."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

from msgspec.structs import replace

from ..core import checkpoint as checkpoints
from ..core.budget import drawn_and_spent, plus
from ..core.checkpoint import Allowance, Checkpoint, Turn
from ..core.commands import WAITING, Command, digest
from ..core.decider import apply
from ..core.draft import Draft
from ..core.effects import effect_key
from ..core.entries import (
    AllowanceGranted,
    Archived,
    EffectSettled,
    Entry,
    Halted,
    OperationEnded,
    OperationPlanned,
    OperationStarted,
    PassedOn,
    SubmissionRefused,
    TurnEnded,
)
from ..core.errors import Refused, StoreCorrupt
from ..core.journal import Sealed, seal
from ..core.phase import backing_off, phase
from ..core.records import Failure, Plan, Pool
from ..core.reports import Calling, TimePassed
from ..store.base import Catalogue, Claim, Commit, Edited, EffectRow, InboxRow, Loaded, SessionStatus, StoredBlob, UniqueState
from ..store.pools import Draw
from .salts import new_salt

__all__ = ["TRIES", "Batch", "check_own", "parked", "receipt_row", "seal_all", "standing"]


TRIES = 5
"""How often a sender decides anew because somebody else's commit was faster."""


def check_own(head: Loaded, checkpoint: Checkpoint) -> None:
    """Raises `StoreCorrupt` where nothing can be built on a session.

    Not all of its row can be read, or the checkpoint isn't this session's, or not that of its last entry.
    """
    row = head.row
    if row.problem:
        raise StoreCorrupt(
            f"the row of {row.session_id!r} is damaged: {row.problem}",
            hint="sessions.halt(…) stops it, and writes that anew from its journal; sessions.repair(…) then lets it go on",
        )
    if checkpoint.session_id != row.session_id:
        raise StoreCorrupt(f"the checkpoint of {row.session_id!r} is another session's", hint="run `perdure verify`")
    if checkpoint.version != row.version:
        raise StoreCorrupt(
            f"the checkpoint of {row.session_id!r} is that of entry {checkpoint.version}, not of {row.version}", hint="run `perdure verify`"
        )
    if checkpoint.number != head.number:
        raise StoreCorrupt(
            f"the checkpoint of {row.session_id!r} counts {checkpoint.number} messages, and its last entry {head.number}",
            hint="run `perdure verify`",
        )


def seal_all(entries: list[Entry], *, chain: bytes, session_id: str) -> tuple[Sealed, ...]:
    """Entries as rows, each chained to the one before."""
    sealed: list[Sealed] = []
    for entry in entries:
        sealed.append(seal(entry, chain=chain, session_id=session_id, salt=new_salt()))
        chain = sealed[-1].chain
    return tuple(sealed)


def standing(entry: OperationEnded | EffectSettled) -> UniqueState | None:
    """Whether what only one call may do is done, or may be; ``None``: it may be done again. What failed or was cancelled did not happen."""
    return "succeeded" if entry.status == "succeeded" else "uncertain" if entry.status == "uncertain" else None


def _plan(turn: Turn | None, operation: str, written: tuple[Entry, ...]) -> Plan | None:
    """An operation's plan: the turn's before, or that of ``written``, where one command began and ended it."""
    if turn is not None and (item := turn.operation(operation)) is not None:
        return item.plan
    begun = (entry for entry in written if isinstance(entry, OperationPlanned | OperationStarted) and entry.operation == operation)
    return next((entry.plan for entry in begun if entry.plan is not None), None)


@cache
def _with_bases(kinds: frozenset[type]) -> frozenset[type]:
    return frozenset(base for kind in kinds for base in kind.__mro__)


def receipt_row(command: Command, *, arrival: int, at: int, seq: int) -> InboxRow:
    """The inbox row of a command that its sender applied itself: consumed and settled by the entry ``seq``."""
    return InboxRow(
        submission_id=command.submission,
        arrival=arrival,
        kind=command.kind,
        at=at,
        not_before=None,
        actor=command.actor,
        digest=digest(command),
        body=None,
        consumed_seq=seq,
        settled_seq=seq,
    )


class Batch(Draft):
    """Decisions of one commit, from the checkpoint ``before``. Nothing here waits, and nothing is durable before the store says so.

    ``asks_model``: a model call begins with it. ``suspects`` are the kinds and names of the effects in which the last holder died: only
    one of those that ends well is progress.
    """

    def __init__(self, head: Loaded, checkpoint: Checkpoint, *, now: int) -> None:
        check_own(head, checkpoint)
        super().__init__(checkpoint)
        self.head = head
        self.before = checkpoint
        self.now = now
        self.consumed: dict[str, int] = {}
        self.settled: dict[str, int] = {}
        self.edited: dict[str, Edited] = {}
        self.blobs: dict[str, StoredBlob] = {}
        self.effects: tuple[EffectRow, ...] = ()
        self.taken: tuple[tuple[str, str], ...] = ()
        self.decided: tuple[tuple[str, UniqueState | None, int], ...] = ()
        self.redacted: tuple[int, ...] = ()
        self.erased: tuple[str, ...] = ()
        self.asks_model = False
        self.pool = head.pool
        self.suspects: frozenset[tuple[str, str]] = frozenset()
        self._ended: tuple[Draw, ...] = ()
        self.refusals: dict[str, Refused] = {}

    @property
    def kinds(self) -> frozenset[type]:
        """The types of what was decided so far, and their bases."""
        return _with_bases(frozenset(map(type, self.entries)))

    def apply(self, command: Any) -> tuple[Entry, ...]:
        """Decide a command. Raises a `Refused`, and changes nothing, where the state says no."""
        turn = self.checkpoint.turn
        if self.pool is not None and isinstance(command, Calling):
            command = replace(command, pool=self.pool)
        written = apply(self, command)
        for entry in written:
            match entry:
                case OperationStarted():
                    plan = entry.plan or _plan(turn, entry.operation, written)
                    if plan is not None and plan.unique and entry.attempt == 1:
                        self.taken += ((plan.unique, entry.operation),)
                    self.asks_model |= entry.request is not None
                case OperationEnded(final=True) | EffectSettled():
                    self._note_end(turn, entry, written)
                case TurnEnded():
                    self.settled[entry.submission] = entry.seq
                    if turn is not None and turn.allowance is not None:
                        ended = replace(turn, step=entry.steps, tool_calls=entry.tool_calls, usage=entry.usage, ran=entry.ran)
                        self._draw(ended, turn.allowance, ends=True)
                case AllowanceGranted() if entry.settled and turn is not None and turn.allowance is not None:
                    self._draw(turn, turn.allowance, ends=True)
                case AllowanceGranted() if self.pool is not None:
                    self.pool = replace(self.pool, drawn=plus(self.pool.drawn, entry.drawn))
        return written

    def pass_time(self, at: int) -> None:
        """Close what closes by itself at a time that has come."""
        turn = self.checkpoint.turn
        if turn is not None and min(turn.deadlines, default=at + 1) <= at:
            self.apply(TimePassed(at=at))

    def _note_end(self, turn: Turn | None, entry: OperationEnded | EffectSettled, written: tuple[Entry, ...]) -> None:
        """What became of a call that may have had an effect, and of what only one call may do."""
        item = turn.operation(entry.operation) if turn is not None else None
        if isinstance(entry, EffectSettled) or (item is not None and item.plan.unique and item.attempt):
            self.decided += ((entry.operation, standing(entry), entry.seq),)
        plan = item.plan if item is not None else _plan(None, entry.operation, written)
        if entry.attempt and plan is not None and plan.effect_key:
            key = effect_key(plan.name, plan.effect_key)
            self.effects += (EffectRow(effect_key=key, seq=entry.seq, state=entry.status),)

    def _draw(self, turn: Turn, allowance: Allowance, *, ends: bool) -> None:
        drawn, used = drawn_and_spent(turn, allowance)
        self._ended += (Draw(owner=self._owner, pool=allowance.pool, drawn=drawn, used=used, ends=ends),)
        if self.pool is not None and self.pool.id == allowance.pool:
            self.pool = replace(self.pool, drawn=plus(self.pool.drawn, plus(used, drawn, -1)))

    def see_pool(self, pool: Pool | None) -> None:
        """What the owner's pool is now, as the store knows it: this commit's own draws and ends are still to come."""
        before = self.head.pool
        if pool is not None and before is not None and self.pool is not None and pool.id == self.pool.id:
            pool = replace(pool, drawn=plus(pool.drawn, plus(self.pool.drawn, before.drawn, -1)))
        self.pool = pool

    @property
    def _owner(self) -> str:
        return self.head.row.owner

    @property
    def draws(self) -> tuple[Draw, ...]:
        """What the session draws from its owner's pool with this commit, or gives back: all of it, however often it was stated before."""
        turn = self.checkpoint.turn
        if turn is None or turn.allowance is None or self.pool is None or turn.allowance.pool != self.pool.id:
            return self._ended
        drawn, used = drawn_and_spent(turn, turn.allowance)
        return (*self._ended, Draw(owner=self._owner, pool=self.pool.id, drawn=drawn, used=used))

    def keep(self, blobs: Iterable[StoredBlob]) -> None:
        """Take content that entries refer to."""
        for blob in blobs:
            self.blobs[blob.digest] = blob

    def _gets_on(self, entry: Entry) -> bool:
        """Whether an entry shows that the session doesn't kill whoever works on it."""
        match entry:
            case TurnEnded() | Archived() | Halted() | PassedOn():
                return True
            case OperationEnded(final=True, status="succeeded" | "failed"):
                item = self.before.operation(entry.operation) or self.checkpoint.operation(entry.operation)
                return not self.suspects or (item is not None and (item.plan.kind, item.plan.name) in self.suspects)
            case _:
                return False

    def take(self, command: Command, decided: Any) -> bool:
        """Decide a submission; where the state refuses it, say so in the journal. False: it is not its time."""
        try:
            written = self.apply(decided)
        except Refused as refusal:
            self.refusals[command.submission] = refusal
            failure = Failure(code=str(refusal.facts.get("reason", refusal.code)), message=refusal.message)
            self._refuse(command.submission, digest(command), command.actor, failure, command.at)
            return True
        if written:
            self.consumed[command.submission] = written[0].seq
        return bool(written)

    def refuse(self, row: InboxRow, failure: Failure) -> None:
        """Consume a row that can't be used, and say why."""
        self._refuse(row.submission_id, row.digest, row.actor, failure, self.now)

    def _refuse(self, submission: str, said: str, actor: str, failure: Failure, at: int) -> None:
        refused = SubmissionRefused(submission=submission, digest=said, failure=failure, actor=actor)
        self.consumed[submission] = self.settled[submission] = self.write(refused, at)

    def commit(
        self,
        *,
        holder: str | None,
        claim: Claim | None = None,
        release: bool = False,
        inbox_head: int | None = None,
        status: SessionStatus | None = None,
        wake_at: int | None = None,
        received: tuple[InboxRow, ...] = (),
    ) -> Commit:
        """The whole as the store takes it. ``status`` None leaves the catalogue's columns alone.

        Raises `LimitExceeded` where an entry or the checkpoint would be too large.
        """
        row, entries, after = self.head.row, self.entries, self.checkpoint
        return Commit(
            no=row.no,
            version=row.version,
            fence=row.fence,
            holder=holder,
            # The time of the last fact, so that the catalogue's columns can be checked against the journal.
            at=after.at,
            entries=seal_all(entries, chain=self.head.chain, session_id=row.session_id),
            checkpoint=checkpoints.encode(after) if entries else None,
            consumed=tuple(self.consumed.items()),
            settled=tuple(self.settled.items()),
            edited=tuple(edit for edit in self.edited.values() if edit.submission_id not in self.consumed),
            received=received,
            redacted=self.redacted,
            erased=self.erased,
            effects=self.effects,
            taken=self.taken,
            decided=self.decided,
            blobs=tuple(self.blobs.values()),
            catalogue=None
            if status is None
            else Catalogue(status=status, wake_at=wake_at, title=after.title, labels=after.labels, agent=after.agent),
            claim=claim,
            release=release,
            progress=any(map(self._gets_on, entries)),
            inbox_head=inbox_head,
            draws=self.draws if entries else (),
        )


def parked(checkpoint: Checkpoint, pending: Iterable[InboxRow], now: int) -> tuple[SessionStatus, int | None]:
    """What a session that nobody holds is doing, and when somebody must look at it next."""
    turn = checkpoint.turn
    match phase(checkpoint):
        case "idle":
            moments = [row.not_before or row.at for row in pending]
            if checkpoint.errands:
                moments.append(now)
            return ("queued", min(moments)) if moments else ("idle", None)
        case "archived":
            return "archived", now if checkpoint.errands else None
        case "halted":
            return "halted", None
        case "waiting" if turn is not None:
            moments = [*turn.deadlines]
            if checkpoint.errands or any(row.kind not in WAITING for row in pending):
                moments.append(now)
            return "waiting", min(moments, default=None)
        case _:
            if checkpoint.errands or any(row.kind not in WAITING for row in pending):
                return "queued", now
            return "queued", backing_off(checkpoint, now) or now
