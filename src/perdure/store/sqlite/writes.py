"""The writes, each as it runs inside a transaction on the writer's thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any, ClassVar

import apsw
import msgspec

from ...core import canonical
from ...core.errors import StoreBroken, StoreError, TransactionLost, UsageError
from ...core.journal import Sealed
from ...core.records import Limits, Pool
from .. import rules
from ..base import (
    Adopted,
    Adoption,
    AlreadyTaken,
    AlreadyThere,
    Catalogue,
    Commit,
    CommitAnswer,
    Committed,
    Conflict,
    Created,
    Held,
    IdTaken,
    InboxMoved,
    NewSession,
    NoSession,
    OutsideBlob,
    ParentRedacted,
    QueueIsFull,
    Run,
    Runner,
    Send,
    SendAnswer,
    Sent,
    Stale,
    StoredBlob,
)
from ..pools import Draw, PoolShort, changed, settled
from . import rows
from .locks import LifeLocks
from .sql import QUERIES
from .within import run_within

__all__ = [
    "Ack",
    "AdoptWrite",
    "CallerFailed",
    "ChangePool",
    "ClaimWrite",
    "CommitWrite",
    "CreateWrite",
    "Delete",
    "Forget",
    "Heartbeat",
    "PutBlob",
    "ReleaseWrite",
    "RemovePool",
    "Retire",
    "SendWrite",
    "TakePlace",
    "Transaction",
    "Write",
]

FORGOTTEN_AFTER = 24 * 3600 * 1000
"""How long a dead runner's row stays to be seen (ms)."""


AT_ONCE = 8
"""The most entries in one statement: a commit of a step has three or four."""


@cache
def _adding(count: int) -> str:
    """The statement that appends so many entries."""
    statement, _, row = QUERIES["entry_add"].rstrip(";").rpartition("VALUES ")
    return f"{statement}VALUES {', '.join([row] * count)}"


def left_out(name: str) -> StoreBroken:
    """A trigger's RAISE(IGNORE) is silent, and a write that left something out must not count as done."""
    return StoreBroken(f"the database left out a row of {name!r}", hint="look for a trigger that ignores rows")


class Transaction:
    """What a write may use: the named statements on the writer's connection, and whether a runner lives."""

    def __init__(self, connection: apsw.Connection, lives: LifeLocks) -> None:
        self.connection = connection
        self.lives = lives
        self._execute = connection.execute

    def run(self, name: str, values: Any = None) -> None:
        self._execute(QUERIES[name], values)

    def one(self, name: str, values: Any = None) -> Any:
        """The first row, or ``None``."""
        return self._execute(QUERIES[name], values).fetchone()

    def all(self, name: str) -> list[Any]:
        return self._execute(QUERIES[name]).fetchall()

    def change(self, name: str, values: Any) -> bool:
        """Whether the statement changed a row."""
        self._execute(QUERIES[name], values)
        return self.connection.changes() > 0

    def must(self, name: str, values: Any) -> None:
        """Change exactly one row."""
        self._execute(QUERIES[name], values)
        if self.connection.changes() != 1:
            raise left_out(name)

    def head(self, no: int) -> rules.Head | None:
        row = self.one("head", (no,))
        return None if row is None else rules.Head(*row)

    def alive(self, runner: str, now: int) -> bool:
        row = self.one("runner_one", {"id": runner})
        return row is not None and row[0] > now and not self.lives.ended(runner)

    def keep(self, root: str, blobs: tuple[StoredBlob | OutsideBlob, ...]) -> None:
        for blob in blobs:
            if self.one("blob_known", {"root": root, "digest": blob.digest}) is None:
                size, data = (len(blob.data), blob.data) if isinstance(blob, StoredBlob) else (blob.size, None)
                values = {"root": root, "digest": blob.digest, "media_type": blob.media_type, "size": size, "data": data}
                self.must("blob_put", values)

    def pool(self, owner: str) -> Pool | None:
        row = self.one("pool_get", {"owner": owner})
        return None if row is None else rows.pool(row)

    def put_pool(self, owner: str, pool: Pool) -> None:
        limits, drawn = canonical.encode(pool.limits).decode(), canonical.encode(pool.drawn).decode()
        self.must("pool_put", {"owner": owner, "id": pool.id, "limits": limits, "drawn": drawn})

    def draw(self, no: int, draws: Sequence[Draw], *, releases: bool) -> PoolShort | None:
        """Draw from an owner's pool, or give back; with ``releases`` whatever the session holds. Writes nothing if it is refused."""
        row = self.one("share_get", {"no": no})
        held = None if row is None else rows.share(row)
        owner = draws[0].owner if draws else held.owner if held is not None else ""
        before = self.pool(owner)
        after = settled(before, held, draws, releases=releases)
        if isinstance(after, PoolShort):
            return after
        pool, share = after
        if pool is not None and pool != before:
            self.put_pool(owner, pool)
        if share is not None and share != held:
            values = {name: canonical.encode(getattr(share, name)).decode() for name in ("drawn", "used")}
            self.must("share_put", {"no": no, "owner": share.owner, "pool": share.pool, **values})
        elif share is None and held is not None:
            self.must("share_remove", {"no": no})
        return None

    def list(self, no: int, catalogue: Catalogue, at: int) -> None:
        labels = rows.labels(catalogue.labels)
        values = {"status": catalogue.status, "wake_at": catalogue.wake_at, "title": catalogue.title, "labels": labels}
        self.must("list", {**values, "agent": catalogue.agent, "at": at, "no": no})

    def create(self, session_id: str, new: NewSession, at: int) -> Any:
        """Begin a session, and return its row."""
        listed = new.catalogue
        values = {
            "session_id": session_id,
            "root": new.root,
            "parent": new.parent,
            "parent_kind": new.parent_kind,
            "agent": listed.agent,
            "version": new.entries[-1].seq,
            "wake_at": listed.wake_at,
            "status": listed.status,
            "owner": new.owner,
            "title": listed.title,
            "labels": rows.labels(listed.labels),
            "at": at,
            "checkpoint": new.checkpoint,
        }
        self.must("session_create", values)
        found = self.one("session_by_id", {"session_id": session_id})
        self.append(found[0], new.entries)
        self.keep(new.root, new.blobs)
        return found

    def append(self, no: int, entries: tuple[Sealed, ...]) -> None:
        for start in range(0, len(entries), AT_ONCE):
            rows: list[Any] = []
            some = entries[start : start + AT_ONCE]
            for entry in some:
                rows += (no, entry.seq, entry.number, entry.kind, entry.at, entry.salt, entry.body_digest, entry.body, entry.chain)
            self._execute(_adding(len(some)), rows)
            if self.connection.changes() != len(some):
                raise left_out("entry_add")


class CallerFailed(Exception):
    """What the caller gave raised ``error``, which is told as it is."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(error)
        self.error = error


class Write:
    """One member of a batch. ``now`` is the store's time when it was asked for."""

    repeatable: ClassVar[bool] = False
    """Whether doing it twice is doing it once."""

    frees: ClassVar[bool] = False
    """Whether it may make any session free, so that everybody who waits should look."""

    clears_log: bool = False
    """Whether what it removed must not stay in the write-ahead log."""

    now: int = 0

    def prepare(self, lives: LifeLocks) -> None:
        """What can be done, or refused, before the transaction."""

    def apply(self, tx: Transaction) -> Any:
        """Do it, and return the answer. May be called again after a rollback."""
        raise NotImplementedError

    def changed(self, answer: Any) -> int | None:
        """The number of the session that the answer says was changed."""
        return None

    def wrote(self, answer: Any) -> bool:
        """Whether the answer says that anything was written."""
        return self.changed(answer) is not None

    def landed(self, tx: Transaction, answer: Any) -> bool | None:
        """After an unclear end: whether what the answer says is stored. ``None``: this write alone can't tell."""
        return None

    def finished(self, lives: LifeLocks) -> None:
        """What is left to do once it is durable."""


class CommitWrite(Write):
    def __init__(self, commit: Commit) -> None:
        self.commit = commit
        self.clears_log = bool(commit.redacted)
        self._made = commit
        self._lost: TransactionLost | None = None

    def prepare(self, lives: LifeLocks) -> None:
        rules.check_commit(self.commit)

    def apply(self, tx: Transaction) -> CommitAnswer:
        commit = self.commit
        no = commit.no
        head = tx.head(no)
        refused = rules.judge(commit, head, lambda runner: tx.alive(runner, self.now))
        if refused is not None:
            return refused
        assert head is not None
        for row in commit.received:
            known = tx.one("inbox_one", {"no": no, "submission_id": row.submission_id})
            if known is not None:
                return AlreadyThere(rows.inbox(known))
        for key, operation in commit.taken:
            row = tx.one("unique_one", {"key": key})
            if row is not None and (row[4], row[1]) != (no, operation):
                return AlreadyTaken(rows.unique(row))
        if commit.within is not None:
            commit = self._made = self._make(tx, commit.within)
        halts = commit.catalogue is not None and commit.catalogue.status == "halted"
        if (commit.draws or halts) and (short := tx.draw(no, commit.draws, releases=halts)) is not None:
            # What a user's function did in here goes with the rest.
            tx.run("member_undo")
            return short
        after = rules.after_commit(commit, head)
        self._write(tx, commit, head, after)
        return Committed(after.version, after.fence, after.inbox_head)

    def _make(self, tx: Transaction, within: Callable[[Run], Commit]) -> Commit:
        if self._lost is not None:
            # It was undone with everybody else's, and would be again.
            raise self._lost
        try:
            return rules.check_within(self.commit, within(partial(run_within, tx.connection)))
        except TransactionLost as error:
            self._lost = error
            raise
        except StoreError:
            raise
        except BaseException as error:
            raise CallerFailed(error) from error

    def _write(self, tx: Transaction, commit: Commit, head: rules.Head, after: rules.After) -> None:
        no = commit.no
        tx.keep(head.root, commit.blobs)
        tx.append(no, commit.entries)
        if commit.entries:
            tx.must("advance", (after.version, after.fence, after.claims, commit.checkpoint, no))
        elif after.claims != head.claims:
            tx.must("advance_bare", {"fence": after.fence, "claims": after.claims, "no": no})
        if commit.claim is not None or after.holder != head.holder:
            tx.must("hold", {"holder": after.holder, "fence": after.fence, "claims": after.claims, "no": no})
        for arrival, row in enumerate(commit.received, head.inbox_head + 1):
            values = msgspec.structs.asdict(row)
            tx.must("inbox_add", {**values, "no": no, "arrival": arrival, "body": None})
            tx.must("receive", {"no": no, "arrival": arrival})
        for edited in commit.edited:
            _waiting(tx, "inbox_edit", {"no": no, "submission_id": edited.submission_id, "body": edited.body})
        for submission_id in commit.dropped:
            _waiting(tx, "inbox_drop", {"no": no, "submission_id": submission_id})
        for submission_id, seq in commit.consumed:
            _waiting(tx, "inbox_consume", {"no": no, "submission_id": submission_id, "seq": seq})
        for submission_id, seq in commit.settled:
            _waiting(tx, "inbox_settle", {"no": no, "submission_id": submission_id, "seq": seq})
        for seq in commit.redacted:
            tx.must("entry_redact", {"no": no, "seq": seq})
        for digest in commit.erased:
            tx.run("blob_erase", {"root": head.root, "digest": digest})
        for effect in commit.effects:
            tx.must("effect_put", {"no": no, "effect_key": effect.effect_key, "seq": effect.seq, "state": effect.state})
        for key, operation in commit.taken:
            tx.run("unique_take", {"key": key, "no": no, "operation": operation, "state": "pending", "seq": 0})
            if tx.one("unique_one", {"key": key}) is None:
                raise left_out("unique_take")
        for operation, state, seq in commit.decided:
            if state is None:
                tx.run("unique_free", {"no": no, "operation": operation})
            else:
                tx.run("unique_decide", {"no": no, "operation": operation, "state": state, "seq": seq})
        if commit.catalogue is not None:
            tx.list(no, commit.catalogue, commit.at)

    def changed(self, answer: Any) -> int | None:
        return self.commit.no if isinstance(answer, Committed) else None

    def landed(self, tx: Transaction, answer: Any) -> bool | None:
        if not isinstance(answer, Committed):
            return None
        if self._made.entries:
            last = self._made.entries[-1]
            return bool(tx.one("entry_chain", {"no": self.commit.no, "seq": last.seq}) == (last.chain,))
        if self.commit.claim is not None or self.commit.release:
            head = tx.head(self.commit.no)
            assert head is not None
            return head.fence > answer.fence or (head.fence == answer.fence and (not self.commit.release or head.holder is None))
        return None


class SendWrite(Write):
    def __init__(self, send: Send) -> None:
        self.send = send

    def prepare(self, lives: LifeLocks) -> None:
        for blob in self.send.blobs:
            rules.check_blob(blob)
        if self.send.create is not None:
            rules.check_new(self.send.create)

    def apply(self, tx: Transaction) -> SendAnswer:
        send = self.send
        found = tx.one("session_by_id", {"session_id": send.session_id})
        created = found is None
        if found is None:
            if (new := rules.beginning(send)) is None:
                return NoSession()
            if (refused := _no_parent(tx, new)) is not None:
                return refused
            found = tx.create(send.session_id, new, send.at)
        session = rows.session(found)
        if rules.is_strange(send, session):
            return NoSession()
        if session.status == "deleted":
            return NoSession(deleted=True)
        known = tx.one("inbox_one", {"no": session.no, "submission_id": send.submission_id})
        if known is not None:
            row = rows.inbox(known)
            return Sent(no=session.no, row=row, duplicate=True, created=False) if row.digest == send.digest else Conflict(row)
        if session.status == "archived":
            return NoSession(archived=True)
        if session.status == "halted" and not send.patient:
            return NoSession(halted=True)
        waiting: int = tx.one("inbox_count", {"no": session.no})[0]
        if waiting >= rules.most_waiting(send):
            return QueueIsFull(waiting)
        row = rules.arrival(send, session.inbox_head)
        tx.keep(session.root, send.blobs)
        tx.must("inbox_add", {**msgspec.structs.asdict(row), "no": session.no})
        wake_at = rules.woken(session, send, self.now)
        tx.must("arrive", {"arrival": row.arrival, "wake_at": wake_at, "at": send.at, "no": session.no})
        return Sent(no=session.no, row=row, duplicate=False, created=created)

    def changed(self, answer: Any) -> int | None:
        return answer.no if isinstance(answer, Sent) and not answer.duplicate else None

    def landed(self, tx: Transaction, answer: Any) -> bool | None:
        if not isinstance(answer, Sent) or answer.duplicate:
            return None
        known = tx.one("inbox_one", {"no": answer.no, "submission_id": self.send.submission_id})
        return known is not None and known[1] == answer.row.arrival


def _no_parent(tx: Transaction, new: NewSession) -> NoSession | None:
    """The refusal where the parent that a new session names isn't there."""
    if new.parent is None:
        return None
    parent = tx.one("session_by_id", {"session_id": new.parent})
    if parent is None or rows.session(parent).status == "deleted":
        return NoSession(deleted=parent is not None)
    return None


class CreateWrite(Write):
    def __init__(self, session_id: str, new: NewSession, at: int) -> None:
        self.session_id, self.new, self.at = session_id, new, at

    def prepare(self, lives: LifeLocks) -> None:
        rules.check_new(self.new)

    def apply(self, tx: Transaction) -> Created | IdTaken | NoSession | ParentRedacted:
        known = tx.one("session_by_id", {"session_id": self.session_id})
        if known is not None:
            return IdTaken(deleted=rows.session(known).status == "deleted")
        if (refused := _no_parent(tx, self.new)) is not None:
            return refused
        if tx.one("redacted_since", {"session_id": self.new.parent, "version": self.new.parent_version})[0]:
            return ParentRedacted()
        return Created(tx.create(self.session_id, self.new, self.at)[0])

    def changed(self, answer: Any) -> int | None:
        return answer.no if isinstance(answer, Created) else None

    def landed(self, tx: Transaction, answer: Any) -> bool | None:
        if not isinstance(answer, Created):
            return None
        return bool(tx.one("entry_chain", {"no": answer.no, "seq": 1}) == (self.new.entries[0].chain,))


class AdoptWrite(Write):
    frees = True

    def __init__(self, sessions: Sequence[Adoption]) -> None:
        self.sessions = sessions
        self._chains: dict[int, bytes] = {}

    def prepare(self, lives: LifeLocks) -> None:
        rules.check_adoptions(self.sessions)

    def apply(self, tx: Transaction) -> Adopted | IdTaken:
        self._chains = {}
        for given in self.sessions:
            known = tx.one("session_by_id", {"session_id": given.row.session_id})
            if known is not None:
                return IdTaken(deleted=rows.session(known).status == "deleted")
        for given in self.sessions:
            row = given.row
            values = msgspec.structs.asdict(row)
            del values["no"], values["holder"], values["problem"]
            tx.must("session_adopt", {**values, "labels": rows.labels(row.labels)})
            no = tx.one("session_by_id", {"session_id": row.session_id})[0]
            try:
                self._content(tx, no, given)
            except (StoreError, apsw.Error):
                raise
            except BaseException as error:
                raise CallerFailed(error) from error
        return Adopted(tuple(self._chains))

    def _content(self, tx: Transaction, no: int, given: Adoption) -> None:
        for entry in rules.whole(given.row.version, given.entries()):
            tx.append(no, (entry,))
            self._chains[no] = entry.chain
        for submission in given.submissions():
            tx.must("inbox_add", {**msgspec.structs.asdict(submission), "no": no})
        for effect in given.effects():
            tx.must("effect_put", {"no": no, "effect_key": effect.effect_key, "seq": effect.seq, "state": effect.state})
        for taken in given.uniques():
            tx.run("unique_take", {**msgspec.structs.asdict(taken), "no": no})
        for blob in given.blobs():
            rules.check_blob(blob)
            tx.keep(given.row.root, (blob,))

    def landed(self, tx: Transaction, answer: Any) -> bool | None:
        if not isinstance(answer, Adopted) or not answer.numbers:
            return None
        no, given = answer.numbers[-1], self.sessions[-1]
        return bool(tx.one("entry_chain", {"no": no, "seq": given.row.version}) == (self._chains[no],))


class ClaimWrite(Write):
    def __init__(self, no: int, runner: str, *, force: bool) -> None:
        self.no, self.runner, self.force = no, runner, force

    def apply(self, tx: Transaction) -> Committed | Held | NoSession:
        head = tx.head(self.no)
        if head is None or head.status == "deleted":
            return NoSession(deleted=head is not None)
        if head.holder is not None and not self.force and tx.alive(head.holder, self.now):
            return Held(head.holder)
        fence, claims = head.fence + 1, head.claims + (head.holder is not None)
        tx.must("hold", {"holder": self.runner, "fence": fence, "claims": claims, "no": self.no})
        return Committed(head.version, fence, head.inbox_head)

    def changed(self, answer: Any) -> int | None:
        return self.no if isinstance(answer, Committed) else None

    def landed(self, tx: Transaction, answer: Any) -> bool | None:
        head = tx.head(self.no)
        return head is not None and head.fence >= answer.fence if isinstance(answer, Committed) else None


class ReleaseWrite(Write):
    def __init__(self, no: int, runner: str, fence: int, catalogue: Catalogue, inbox_head: int, at: int) -> None:
        self.no, self.runner, self.fence, self.catalogue, self.inbox_head, self.at = no, runner, fence, catalogue, inbox_head, at

    def apply(self, tx: Transaction) -> Committed | Stale | InboxMoved:
        head = tx.head(self.no)
        if head is None:
            return Stale(0, 0, None)
        if (head.holder, head.fence) != (self.runner, self.fence):
            return Stale(head.version, head.fence, head.holder)
        if head.inbox_head != self.inbox_head:
            return InboxMoved(head.inbox_head)
        tx.must("hold", {"holder": None, "fence": head.fence, "claims": head.claims, "no": self.no})
        tx.list(self.no, self.catalogue, self.at)
        return Committed(head.version, head.fence, head.inbox_head)

    def changed(self, answer: Any) -> int | None:
        return self.no if isinstance(answer, Committed) else None

    def landed(self, tx: Transaction, answer: Any) -> bool | None:
        head = tx.head(self.no)
        if head is None or not isinstance(answer, Committed):
            return None
        return head.fence > answer.fence or head.holder is None


class Heartbeat(Write):
    repeatable = True

    def __init__(self, runner: Runner, lease_ms: int) -> None:
        self.runner, self.lease_ms = runner, lease_ms

    def prepare(self, lives: LifeLocks) -> None:
        try:
            held = lives.hold(self.runner.id)
        except OSError as error:
            raise StoreBroken(f"the runner's lock beside the database can't be had: {error}", hint="make its directory writable") from error
        if not held:
            raise UsageError(f"runner {self.runner.id!r} lives in another process", hint="give every process an id of its own")

    def apply(self, tx: Transaction) -> int:
        runner = self.runner
        expires = self.now + self.lease_ms
        if tx.one("runner_one", {"id": runner.id}) is None:
            tx.run("runners_forget", {"before": self.now - FORGOTTEN_AFTER})
            self._bury(tx)
        values = {"id": runner.id, "host": runner.host, "pid": runner.pid, "started": runner.started, "expires": expires}
        agents, refused = rules.encode_told(runner)
        tx.must("runner_put", {**values, "agents": agents, "refused": refused})
        return expires

    def _bury(self, tx: Transaction) -> None:
        """Write down who has ended, so that the files that said so can go."""
        living: list[str] = []
        for name, _host, _pid, _started, expires, *_ in tx.all("runners"):
            if expires > self.now and tx.lives.ended(name):
                tx.run("runner_ended", {"id": name, "now": self.now})
            elif expires > self.now:
                living.append(name)
        tx.lives.sweep(living)


class Retire(Write):
    repeatable = True
    frees = True

    def __init__(self, runner: str) -> None:
        self.runner = runner

    def apply(self, tx: Transaction) -> None:
        tx.run("runner_retire", {"id": self.runner})
        if tx.one("runner_one", {"id": self.runner}) is not None:
            raise StoreBroken("the database kept a runner that should go", hint="look for a trigger that ignores rows")

    def finished(self, lives: LifeLocks) -> None:
        lives.drop(self.runner)


class PutBlob(Write):
    repeatable = True

    def __init__(self, root: str, blob: StoredBlob | OutsideBlob) -> None:
        self.root, self.blob = root, blob

    def prepare(self, lives: LifeLocks) -> None:
        rules.check_blob(self.blob)

    def apply(self, tx: Transaction) -> bool:
        if tx.one("tree_lives", {"root": self.root}) is None:
            return False
        tx.keep(self.root, (self.blob,))
        return True


class Ack(Write):
    repeatable = True

    def __init__(self, no: int, consumer: str, seq: int) -> None:
        self.no, self.consumer, self.seq = no, consumer, seq

    def apply(self, tx: Transaction) -> int:
        head = tx.head(self.no)
        if head is None or head.status == "deleted":
            return 0
        row = tx.one("cursor_get", {"no": self.no, "consumer": self.consumer})
        stands: int = 0 if row is None else row[0]
        if self.seq > stands:
            stands = self.seq
            tx.must("cursor_put", {"no": self.no, "consumer": self.consumer, "seq": stands})
        return stands


class Forget(Write):
    repeatable = True

    def __init__(self, consumer: str) -> None:
        self.consumer = consumer

    def apply(self, tx: Transaction) -> None:
        tx.run("cursors_forget", {"consumer": self.consumer})
        if tx.one("cursors_left", {"consumer": self.consumer})[0]:
            raise StoreBroken("the database kept a consumer that should go", hint="look for a trigger that ignores rows")


class Free(Write):
    repeatable = True

    def __init__(self, no: int) -> None:
        self.no = no

    def apply(self, tx: Transaction) -> int:
        tx.run("uniques_free", {"no": self.no})
        return tx.connection.changes()


class TakePlace(Write):
    repeatable = True

    def __init__(self, place: str) -> None:
        self.place = place

    def apply(self, tx: Transaction) -> str:
        tx.run("meta_first", {"key": "place", "value": self.place})
        stands: str = tx.one("meta_get", {"key": "place"})[0]
        return stands


class ChangePool(Write):
    def __init__(self, owner: str, limits: Limits, fresh: str, *, add: bool) -> None:
        self.owner, self.limits, self.fresh, self.add = owner, limits, fresh, add

    def wrote(self, answer: Any) -> bool:
        return True

    def apply(self, tx: Transaction) -> Pool:
        pool = changed(tx.pool(self.owner), self.limits, fresh=self.fresh, add=self.add)
        tx.put_pool(self.owner, pool)
        return pool

    def landed(self, tx: Transaction, answer: Any) -> bool | None:
        stored = tx.pool(self.owner)
        return stored is not None and (stored.id, stored.limits) == (answer.id, answer.limits)


class RemovePool(Write):
    repeatable = True

    def __init__(self, owner: str) -> None:
        self.owner = owner

    def apply(self, tx: Transaction) -> bool:
        there = tx.pool(self.owner) is not None
        if there:
            tx.must("pool_remove", {"owner": self.owner})
        return there


class Delete(Write):
    repeatable = True
    clears_log = True

    def __init__(self, no: int, keep: int, receipts: Sequence[int], erased: Sequence[str], tree: int | None) -> None:
        self.no, self.keep, self.receipts, self.erased, self.tree = no, keep, tuple(receipts), tuple(erased), tree

    def apply(self, tx: Transaction) -> bool | None:
        """None: there is no such session."""
        head = tx.head(self.no)
        if head is None:
            return None
        if self.tree is not None and tx.one("tree_size", {"root": head.root}) != (self.tree,):
            return False
        values = {"no": self.no}
        kept = {**values, "keep": self.keep, "receipts": rows.names(self.receipts)}
        if head.status != "deleted":
            tx.must("bury", values)
        tx.run("bury_journal", kept)
        tx.run("bury_inbox", values)
        tx.run("bury_effects", kept)
        tx.run("bury_cursors", values)
        tx.draw(self.no, (), releases=True)
        tx.run("bury_uniques", values)
        for digest in self.erased:
            tx.run("blob_erase", {"root": head.root, "digest": digest})
        tx.run("bury_blobs", {"root": head.root})
        if tx.one("bury_left", kept)[0]:
            raise StoreBroken("the database kept rows of a deleted session", hint="look for a trigger that ignores rows")
        return True

    def changed(self, answer: Any) -> int | None:
        return self.no if answer else None


def _waiting(tx: Transaction, name: str, values: dict[str, Any]) -> None:
    if not tx.change(name, values):
        known = tx.one("inbox_one", {"no": values["no"], "submission_id": values["submission_id"]})
        wanted = "there" if name == "inbox_settle" else "waiting"
        if known is not None and (wanted == "there" or known[8] is None):
            raise left_out(name)
        raise UsageError(f"submission {values['submission_id']!r} is not {wanted}")
