"""Sessions that begin with another's messages, the tree that they make, and what they left behind."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from ..agent import Agent
from ..agent.agent import check_agents
from ..core import checkpoint as checkpoints
from ..core import ids
from ..core.checkpoint import Checkpoint
from ..core.draft import Draft
from ..core.effects import tool_of
from ..core.entries import TERMINALS, Forked, OperationEnded, SessionCreated, TurnEnded
from ..core.errors import InvalidSpan, NewerRules, SessionBusy, SessionExists, SessionNotFound, StoreCorrupt, UsageError
from ..core.journal import open_entry
from ..core.layout import Layout, Piece
from ..core.records import ToolPolicy
from ..core.transcript import Transcript, check_cut, check_first, check_replacement
from ..store.base import Catalogue, Created, IdTaken, Loaded, NewSession, NoSession, ParentRedacted, SessionRow
from .about import REASON_LIMIT, check_about, check_labels, check_text, check_title, check_tools
from .arguments import Arguments
from .batch import TRIES, check_own, seal_all
from .declared import check_policy
from .edits import Written, kept, written
from .lineage import Beyond, Lineage
from .messages import Messages, read_entries, read_entry
from .names import check_id, check_limit, submission_id
from .scope import missing, put_away
from .transcripts import Transcripts, check_end, revision_of, role_at

__all__ = ["Branch", "Branches", "Effect", "Fork"]


class Fork(msgspec.Struct, frozen=True, kw_only=True):
    """A session that begins with the first ``cut`` messages of ``parent``.

    ``count`` is how many it has with those that replace what followed. ``effects`` counts what the parent's past did, or may have, that
    this transcript doesn't show: ``sessions.effects(session_id)`` lists it. ``duplicate``: this very fork was there before.
    """

    session_id: str
    parent: str
    cut: int
    count: int
    revision: str
    effects: int
    duplicate: bool = False


class Branch(msgspec.Struct, frozen=True, kw_only=True):
    """A session in its tree. ``cut`` is how many messages it took over; ``depth`` is 0 at the root, or where its parent isn't listed.

    ``cut`` and ``messages`` are None where they can't be read, and ``problem`` says why.
    """

    session_id: str
    parent: str | None
    parent_kind: str | None
    depth: int
    cut: int | None
    messages: int | None
    status: str
    title: str
    created: int
    updated: int
    agent: str = ""
    problem: str = ""


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """What a call did, or may have done. ``session_id`` is where its receipt is; ``shown``: its call is in the transcript."""

    session_id: str
    seq: int
    operation: str
    attempt: int
    name: str
    arguments: Any
    state: str
    at: int
    shown: bool


class Branches(Transcripts, Arguments):
    """The part of `Sessions` that is about forks."""

    async def fork(
        self,
        session: str,
        *,
        at: int | None = None,
        turn: str | None = None,
        entry: int | None = None,
        replacement: Written | None = None,
        session_id: str | None = None,
        title: str | None = None,
        labels: dict[str, str] | None = None,
        tools: ToolPolicy | None = None,
        agents: Iterable[Agent] = (),
        while_running: bool = False,
        reason: str = "",
        actor: str = "",
    ) -> Fork:
        """Begin another session with the first messages of this one, which stays as it is. Writes the same however long that is, and
        reads one short row for every effect behind the cut, to count them.

        The cut is before position ``at``, or where the transcript stood at the end of ``turn`` or at the journal's ``entry``; without any
        of them it is the end. ``replacement`` follows in place of what came behind the cut. The branch has an id of its own
        (``session_id``, or a new one), the same agent, owner, labels, title and tool policy (but for what is given here), and no grants,
        used budgets, submissions or open requests. ``tools`` names what the agent has, as with `restrict`, and so do ``agents``.
        Effects stay effects: what the parent did behind the cut is asked about before a call of the branch repeats it.

        Durable when this returns. Forking again under the same ``session_id`` is forking once. Raises `SessionBusy` while a turn runs,
        unless ``while_running``; `InvalidSpan`, `CutThroughCall`, `InvalidTranscript`, `SessionExists`, `SessionArchived`,
        `SessionNotFound`.
        """
        name = check_id(submission_id(None) if session_id is None else session_id, "a session id")
        begin = partial(
            self._branch_off,
            session,
            name,
            given=session_id is not None,
            at=at,
            turn=turn,
            entry=entry,
            replacement=replacement,
            title=title,
            labels=labels,
            tools=tools,
            agents=check_agents(agents),
            while_running=while_running,
            reason=check_text(reason, "reason", REASON_LIMIT),
            actor=check_text(actor, "actor"),
        )
        for _ in range(TRIES):
            if (begun := await begin()) is not None:
                return begun
        raise SessionBusy(f"content of {session!r} is redacted all the time", hint="try again when less is going on")

    async def _branch_off(
        self,
        session: str,
        name: str,
        *,
        given: bool,
        at: int | None,
        turn: str | None,
        entry: int | None,
        replacement: Written | None,
        title: str | None,
        labels: dict[str, str] | None,
        tools: ToolPolicy | None,
        agents: Sequence[Agent],
        while_running: bool,
        reason: str,
        actor: str,
    ) -> Fork | None:
        """Begin it from what the parent is now. None: content of the parent was redacted while that was read."""
        head = await self._head(session)
        checkpoint = checkpoints.decode(head.row.checkpoint)
        check_own(head, checkpoint)
        running = head.row.holder is not None or checkpoint.turn is not None
        if given and (known := await self._runtime.store.load(name)) is not None:
            return await self._known_fork(known, session, at, replacement, tools)
        if head.row.status == "archived":
            raise put_away(session)
        if running and not while_running:
            raise SessionBusy(f"a turn runs in {session!r}", hint="wait for its end, or fork what is committed: while_running=True")
        new = () if replacement is None else written(replacement)
        messages, old, cut = await self._cut(head, checkpoint, at, turn, entry)
        if new or at is not None:
            check_cut(cut, await role_at(messages, old, cut))
        await check_end(messages, old, cut)
        for message in new:
            await self._check_blobs(session, message.parts)
        check_replacement(await role_at(messages, old, cut - 1), new, "")
        _, entries, blobs = kept(new)
        before = await revision_of(messages, old, cut)
        branched, revisions = old.branched(session, cut, before=before, added=[item.digest for item in entries])
        # Before anything is written: what is done is answered without a read that could fail.
        effects = await Lineage(self._runtime.store, head.row, old.layout.slice(0, cut)).count()
        now = max(self._runtime.clock.now(), head.now)
        title = checkpoint.title if title is None else check_title(title)
        labels = checkpoint.labels if labels is None else check_labels(labels)
        tools = None if tools is None else check_tools(tools)
        if tools is not None:
            await check_policy(self._runtime, session, checkpoint.agent, tools, agents)
        kept_tools = checkpoint.tools if tools is None else tools
        check_about(checkpoint.identity, labels, title, kept_tools)
        draft = Draft(Checkpoint())
        draft.write(
            SessionCreated(
                session_id=name,
                root=head.row.root,
                agent=checkpoint.agent,
                identity=checkpoint.identity,
                title=title,
                labels=dict(labels),
                metadata=checkpoint.metadata,
                tools=kept_tools,
            ),
            now,
        )
        forked = Forked(
            session=session,
            version=head.row.version,
            chain=head.chain.hex(),
            cut=cut,
            pieces=branched.layout.pieces,
            tail=cut + len(entries),
            revision=branched.revision,
            exact=branched.chain.exact,
            marks=branched.chain.marks,
            running=running,
            route=checkpoint.route,
            owner=checkpoint.owner,
            owner_group=checkpoint.owner_group,
            private=checkpoint.private,
            private_from=min(checkpoint.private_from, cut),
            reason=reason,
            actor=actor,
        )
        draft.write(forked, now)
        for item, revision in zip(entries, revisions, strict=True):
            draft.write(replace(item, revision=revision), now)
        answer = await self._runtime.store.create(
            name,
            NewSession(
                root=head.row.root,
                parent=session,
                parent_kind="fork",
                parent_version=head.row.version,
                owner=head.row.owner,
                entries=seal_all(draft.entries, chain=head.chain, session_id=name),
                checkpoint=checkpoints.encode(draft.checkpoint),
                catalogue=Catalogue(status="idle", wake_at=None, title=title, labels=dict(labels), agent=checkpoint.agent),
                blobs=blobs,
            ),
            at=now,
        )
        match answer:
            case Created():
                return _fork(name, forked, effects)
            case NoSession():
                raise SessionNotFound(f"the session {session!r} was deleted", hint="what is gone can't be forked")
            case IdTaken():
                if answer.deleted or (known := await self._runtime.store.load(name)) is None:
                    raise missing(name, deleted=True)
                return await self._known_fork(known, session, at, replacement, tools)
            case ParentRedacted():
                return None

    async def _cut(
        self, head: Loaded, checkpoint: Checkpoint, at: int | None, turn: str | None, entry: int | None
    ) -> tuple[Messages, Transcript, int]:
        """The transcript that a fork begins with, and how many messages of it."""
        if sum(value is not None for value in (at, turn, entry)) > 1:
            raise UsageError("at=, turn= and entry= are three ways to say one thing", hint="pass one of them")
        if turn is not None:
            entry = await self._end_of(head, turn)
        if entry is not None:
            return await self._as_of(head, checkpoint, entry)
        messages, transcript = await self._transcript(head)
        length = len(transcript.layout)
        if at is None:
            return messages, transcript, length
        check_first(at, length)
        return messages, transcript, at

    async def _end_of(self, head: Loaded, turn: str) -> int:
        """The entry that ended a turn."""
        began = ids.began(turn) if isinstance(turn, str) else 0
        if 0 < began <= head.row.version:
            for row in await read_entries(self._runtime.store, head.row.no, after=began, kinds=TERMINALS, limit=1):
                ended = open_entry(row)
                if isinstance(ended, TurnEnded) and ended.turn == turn:
                    return ended.seq
        raise InvalidSpan(f"{turn!r:.60} is no turn that ended here", hint="`perdure show` lists the turns")

    async def _as_of(self, head: Loaded, checkpoint: Checkpoint, seq: int) -> tuple[Messages, Transcript, int]:
        """The transcript as it stood at an entry."""
        if type(seq) is not int or not 0 < seq <= head.row.version:
            raise InvalidSpan(f"there is no entry {seq!r:.40}", hint=f"the journal has entries 1 to {head.row.version}")
        messages = Messages(self._runtime.store, head.row)
        rows = await self._runtime.store.entries(head.row.no, after=seq - 1, before=seq + 1)
        laid = await messages.laid(checkpoint.transcript.base)
        while laid is not None and laid.seq > seq:
            laid = await messages.laid(laid.previous)
        transcript = Transcript.at(laid, rows[0].number, "")
        return messages, transcript, len(transcript.layout)

    async def _known_fork(self, known: Loaded, session: str, at: int | None, replacement: Written | None, tools: ToolPolicy | None) -> Fork:
        """The fork that has this id already, if it is this one: of this session, at this cut, with these messages behind it and tools."""
        messages = Messages(self._runtime.store, known.row)
        there = await _forked(messages) if known.row.parent_kind == "fork" else None
        created = await self._entry(known, 1)
        other_tools = tools is not None and isinstance(created, SessionCreated) and created.tools != check_tools(tools)
        if there is not None and not other_tools and (there.session, there.cut) == (session, there.cut if at is None else at):
            _, entries, _ = kept(() if replacement is None else written(replacement))
            own = Layout([Piece("", there.cut + 1, there.tail + 1)])
            if await messages.digests(own) == [entry.digest for entry in entries]:
                effects = await Lineage(self._runtime.store, known.row, Layout(there.pieces)).count()
                return _fork(known.row.session_id, there, effects, duplicate=True)
        raise SessionExists(f"there is another session {known.row.session_id!r}", hint="give the branch another id, or none")

    async def tree(self, session_id: str) -> list[Branch]:
        """The sessions of a tree, given any of them: each with its forks and its children behind it. One that can't be read is
        listed with its ``problem``. Raises `SessionNotFound`.
        """
        root = (await self._head(session_id)).row.root
        rows = [row for row in await self._runtime.store.tree(root) if row.status != "deleted"]
        there = {row.session_id for row in rows}
        children: dict[str | None, list[SessionRow]] = {}
        for row in rows:
            children.setdefault(row.parent if row.parent in there else None, []).append(row)
        found: list[Branch] = []
        waiting = [(row, 0) for row in reversed(children.get(None, []))]
        while waiting:
            row, depth = waiting.pop()
            found.append(await self._branch(row, depth))
            waiting += [(child, depth + 1) for child in reversed(children.get(row.session_id, []))]
        return found

    async def _branch(self, row: SessionRow, depth: int) -> Branch:
        cut: int | None = 0
        messages: int | None = None
        problem = ""
        try:
            messages = checkpoints.decode(row.checkpoint).messages
            if row.parent_kind == "fork":
                cut = (await _forked(Messages(self._runtime.store, row))).cut
        except (StoreCorrupt, NewerRules) as error:
            # What is broken in one session must not hide the others.
            cut, messages, problem = None, None, error.message
        return Branch(
            session_id=row.session_id,
            parent=row.parent,
            parent_kind=row.parent_kind,
            depth=depth,
            cut=cut,
            messages=messages,
            status=row.status,
            title=row.title,
            created=row.created,
            updated=row.updated,
            agent=row.agent,
            problem=problem,
        )

    # ------------------------------------------------------------------------------------------------------------- effects

    async def effects(self, session_id: str, *, shown: bool = False, limit: int = 50, after: Effect | None = None) -> list[Effect]:
        """What a session's past did, or may have, that its transcript doesn't show; ancestors first, then by age.

        ``shown``: also what it shows. ``after`` is the last one of the page before. Calls of pure tools are no effects, and neither are
        those that failed. Raises `SessionNotFound`.
        """
        check_limit(limit)
        head = await self._head(session_id)
        _, transcript = await self._transcript(head)
        found = [
            item for item in await Lineage(self._runtime.store, head.row, transcript.layout).all(shown=shown) if item.row.state != "failed"
        ]
        if after is not None:
            places = [(item.session or session_id, item.row.seq, tool_of(item.row.effect_key)) for item in found]
            place = (after.session_id, after.seq, after.name)
            if place not in places:
                raise UsageError("after= is no effect of this list", hint="pass the last one of the page before")
            found = found[places.index(place) + 1 :]
        return [await self._effect(head, item) for item in found[:limit]]

    async def _effect(self, head: Loaded, item: Beyond) -> Effect:
        if item.session:
            origin = await self._runtime.store.load(item.session, hidden=True)
            if origin is None:
                raise StoreCorrupt(f"the session {item.session!r} is missing", hint="run `perdure verify`")
            head = origin
        receipt = await read_entry(self._runtime.store, item.no, item.row.seq)
        if receipt is None:
            raise StoreCorrupt(f"entry {item.row.seq}, the receipt of an effect, is missing", hint="run `perdure verify`")
        # Of a deleted session, the receipt is left, and not what asked for the call.
        told = receipt if isinstance(receipt, OperationEnded) and head.row.status != "deleted" else None
        arguments = None if told is None else await self._called_with(head, told, {})
        return Effect(
            session_id=head.row.session_id,
            seq=item.row.seq,
            operation=getattr(receipt, "operation", ""),
            attempt=getattr(receipt, "attempt", 0),
            name=tool_of(item.row.effect_key),
            arguments=arguments,
            state=item.row.state,
            at=receipt.at,
            shown=item.shown,
        )


def _fork(session_id: str, forked: Forked, effects: int, *, duplicate: bool = False) -> Fork:
    return Fork(
        session_id=session_id,
        parent=forked.session,
        cut=forked.cut,
        count=forked.count,
        revision=forked.revision,
        effects=effects,
        duplicate=duplicate,
    )


async def _forked(messages: Messages) -> Forked:
    """How a fork began. Raises `StoreCorrupt` if its second entry doesn't say so."""
    entry = await messages.laid(2)
    if not isinstance(entry, Forked):
        raise StoreCorrupt("a fork doesn't say what it is of", hint="run `perdure verify`")
    return entry
