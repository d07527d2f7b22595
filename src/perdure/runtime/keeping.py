"""Sessions put away, destroyed, and taken elsewhere and back."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, BinaryIO, TypeAlias, get_args

import msgspec

from ..agent import Agent
from ..agent.agent import check_agents
from ..core import checkpoint as checkpoints
from ..core.commands import Archive, Revive
from ..core.draft import Draft
from ..core.entries import Foreign
from ..core.errors import InvalidTranscript, PerdureError, SessionArchived, SessionExists, SessionNotFound, UsageError
from ..core.messages import Text, title_of
from ..core.records import Identity
from ..core.transcript import check_replacement
from ..store.base import Created, SessionRow
from .about import REASON_LIMIT, check_owner, check_text
from .archive import put_away_or_back
from .batch import seal_all
from .deleting import delete, finish
from .door import Submission, checked
from .edits import kept, written
from .erasing import Erased, erase
from .foreign import Foreigner
from .foreign import read as read_foreign
from .halting import halt, past, repair
from .infos import SessionInfo
from .names import check_id, submission_id
from .perform import stored_media
from .sending import Sending

__all__ = ["Exported", "Imported", "Keeping", "Target"]

Target: TypeAlias = "str | os.PathLike[str] | BinaryIO"
"""Where a file is: a path, or a binary stream."""


class Exported(msgspec.Struct, frozen=True, kw_only=True):
    """What a file holds."""

    sessions: tuple[str, ...]
    entries: int
    submissions: int
    effects: int
    blobs: int


class Imported(msgspec.Struct, frozen=True, kw_only=True):
    """The sessions that were taken in, by the ids that they have now."""

    sessions: tuple[str, ...]
    entries: int


class Keeping(Sending):
    """The part of `Sessions` that is about whole sessions."""

    async def archive(self, session_id: str, *, reason: str = "", submission: str | None = None, actor: str = "") -> Submission:
        """Put a session away: no list shows it, nothing runs in it and nothing can be sent to it; its history can be read. One commit.

        A running session is taken from its holder: calls in flight are uncertain and the turn is aborted; what waits in the inbox is
        refused. Results that come later are still taken. Raises `SessionArchived` if it is archived, and `SessionNotFound`.
        """
        command = Archive(reason=reason, submission=submission_id(submission), actor=actor)
        checked(command)
        return await self._put_away_or_back(session_id, command)

    async def revive(self, session_id: str, *, reason: str = "", submission: str | None = None, actor: str = "") -> Submission:
        """Take a session out of the archive. One commit. Raises `NothingChanged` if it is not archived, and `SessionNotFound`."""
        command = Revive(reason=reason, submission=submission_id(submission), actor=actor)
        checked(command)
        return await self._put_away_or_back(session_id, command)

    async def _put_away_or_back(self, session_id: str, command: Archive | Revive) -> Submission:
        row, duplicate = await put_away_or_back(self._runtime, partial(self._head, session_id), command)
        return Submission(id=row.submission_id, arrival=row.arrival, duplicate=duplicate)

    async def halt(self, session_id: str, *, reason: str = "", actor: str = "") -> SessionInfo:
        """Stop a session where it stands, in one commit, until `repair`; whoever holds it is fenced off. Damage that is found stops it too.

        Nothing runs in it, no consumer gets more of it, and whatever would change it raises `SessionHalted`; a result that is reported
        waits. What is whole can be read, forked and exported, and it can be deleted. No other session is touched. Where its checkpoint or
        the end of its hash chain is damaged, no entry is written, and its status alone says it. Raises `SessionHalted` if it is halted,
        and `SessionNotFound`.
        """
        reason, actor = check_text(reason, "reason", REASON_LIMIT), check_text(actor, "actor")
        await halt(self._runtime, partial(self._head, session_id), reason, actor)
        return await self.info(session_id)

    async def repair(self, session_id: str, *, reason: str = "", actor: str = "") -> SessionInfo:
        """Check a halted session whole and, if nothing is wrong with it (any more), let it go on where it was; an entry says so.

        Nothing is guessed or mended: what is damaged has to be restored first, from a backup. Raises `SessionHalted` with the ``problems``
        that are left among its facts, `NothingChanged` if it is not halted, and `SessionNotFound`.
        """
        reason, actor = check_text(reason, "reason", REASON_LIMIT), check_text(actor, "actor")
        await repair(self._runtime, partial(self._head, session_id), reason, actor)
        self._runtime.news.notice(session_id, sure=True)
        return await self.info(session_id)

    async def delete(self, session_id: str, *, tree: bool = False) -> None:
        """Destroy a session's content, for ever, and those of the agents that it called. Whoever works on it is fenced off.

        Its id can't be used again, and whoever waits for it, if it is an agent that another one called, is told that it was aborted.
        If others were forked from it, it is hidden and loses what none of them can reach; the rest goes with the last of them. With
        ``tree`` everything that was forked from it is deleted too. Raises `SessionNotFound`, also if it was deleted before. A deletion that
        a crash cut short comes to its end when it is deleted again, though not through `owned_by`: what is left doesn't say whose it was.
        """
        try:
            row = (await self._head(session_id)).row
        except SessionNotFound:
            if self._owner is None and (gone := await self._runtime.store.load(session_id, hidden=True)) is not None:
                # A crash may have come between it and what only it had needed.
                await finish(self._runtime.store, gone.row.root)
            raise
        if row.parent_kind == "child":
            await self._end_child(row)
        for name in await delete(self._runtime.store, row, tree=tree):
            self._runtime.news.notice(name, sure=True)

    async def _end_child(self, row: SessionRow) -> None:
        """Whoever called for a child is told that it ended, while it can still tell."""
        if row.status not in ("archived", "halted"):
            with suppress(SessionArchived):
                command = Archive(reason="deleted", submission=submission_id(None))
                await put_away_or_back(self._runtime, past(partial(self._head, row.session_id)), command)
        try:
            if row.status == "halted":
                await self._runtime.errands.tell_of_deleted(row)
            else:
                await self._runtime.errands.run(row.session_id)
        except PerdureError as error:
            # A caller that can't be told, whatever is tried, is no reason to keep it.
            if error.retryable:
                raise

    async def delete_owner(self, owner: str, *, pool: bool = False, uniques: bool = False, agents: Iterable[Agent] = ()) -> Erased:
        """Destroy the content of all sessions of an owner, for ever, as `delete` does: archived, halted and running ones, with their forks.

        Each is a transaction of its own. What a crash leaves undone, the same call does: it goes on, and finishes what was cut short.
        Whoever works on a session is fenced off; what is begun for the owner meanwhile goes too, as long as this goes on: have nothing
        sent for them any more. What stays is said in `Erased`: tombstones; the owner's pool, unless ``pool``; and what only one call of
        theirs may do, which stays taken, unless ``uniques`` lets others do it again. ``agents`` removes the copies of memories that those
        agents keep in a workspace here (`SessionMemory`).

        Raises `UsageError` for a blank owner, and for another than the one that these sessions are for.
        """
        owner = check_owner(owner)
        if self._owner not in (None, owner):
            raise UsageError(f"these are the sessions of {self._owner!r}, and not of {owner!r}", hint="runtime.sessions are everybody's")
        return await erase(
            self._runtime.store, owner, self.delete, pool=pool, uniques=uniques, agents=[*check_agents(agents)] if agents else ()
        )

    async def export(self, session_id: str, target: Target, *, tree: bool = False) -> Exported:
        """Write a session, or with ``tree`` all sessions of its tree, into one file of JSON lines: a path, or a binary stream.

        A path is replaced whole or not at all. Nothing changes in the store. Raises `SessionBusy` while somebody works on it or an attempt
        is open, `StoreCorrupt` if it is damaged, `SessionNotFound`, and `UsageError` for a fork without its tree.
        """
        # Few programs need it, and it needs much.
        from .portable import export, rows_of

        await self._head(session_id)
        return await export(self._runtime.store, partial(rows_of, self._runtime.store, session_id, tree=tree), target)

    async def import_from(self, source: Target, *, session_id: str | None = None) -> Imported:
        """Take in what `export` wrote: verified, and then kept whole or not at all; equal to what was exported, to the byte.

        Under another ``session_id`` the history is the same and its hash chain a new one; a last entry, `Foreign`, holds the old one.
        Raises `ImportRefused` for a file that is not whole, `SessionExists`, `FormatUnknown` and `NewerRules`.
        """
        from .portable import import_file

        if self._owner is not None:
            raise UsageError("a file says itself whose its sessions are", hint="import it without an owner")
        imported = await import_file(self._runtime.store, source, session_id)
        for name in imported.sessions:
            self._runtime.news.notice(name, sure=True)
        return imported

    async def import_messages(
        self,
        session_id: str,
        messages: Sequence[Any],
        *,
        source: Foreigner,
        agent: str = "",
        identity: Identity | None = None,
        labels: dict[str, str] | None = None,
        title: str | None = None,
        metadata: dict[str, Any] | None = None,
        actor: str = "",
    ) -> str:
        """Begin a session with a conversation that another system kept.

        It is a list as OpenAI's Chat Completions (*openai*) or Anthropic's Messages API takes it, or of items of OpenAI's Responses API
        (*openai-responses*), which its Agents SDK keeps. The session's entry `Foreign` says where it comes from; images and files in it
        become content of the session. What only the provider can read, as encrypted reasoning, is left out. Returns the instructions that
        stood among the messages, which are the agent's here. Whole or not at all. Raises `InvalidTranscript` for what is no conversation,
        and `SessionExists`.
        """
        check_id(session_id, "a session id")
        if source not in get_args(Foreigner):
            raise UsageError(f"source={source!r:.40} is unknown", hint='"openai", "openai-responses" or "anthropic"')
        if isinstance(messages, str | bytes) or not isinstance(messages, Sequence):
            raise UsageError("messages= is a list", hint="as json.load gives it")
        found = read_foreign(source, messages)
        checked = written(found.messages, "the conversation", found.names)
        check_replacement("", checked, "", "the conversation")
        if not checked:
            raise InvalidTranscript("there is no message in it", hint="a new session needs none: send to it")
        _, entries, aside = kept(checked)
        first = next((part.content for part in checked[0].parts if isinstance(part, Text)), "")
        new = self._new_session(session_id, agent, identity, labels, title if title is not None else title_of((Text(first),)), metadata)
        begun = checkpoints.decode(new.checkpoint)
        draft = Draft(begun)
        draft.write(Foreign(source=source, messages=len(entries), actor=check_text(actor, "actor")), begun.at)
        for entry in entries:
            draft.write(entry, begun.at)
        answer = await self._runtime.store.create(
            session_id,
            msgspec.structs.replace(
                new,
                entries=(*new.entries, *seal_all(draft.entries, chain=new.entries[-1].chain, session_id=session_id)),
                checkpoint=checkpoints.encode(draft.checkpoint),
                catalogue=msgspec.structs.replace(new.catalogue, status="idle"),
                blobs=(*new.blobs, *stored_media(found.media), *aside),
            ),
            at=begun.at,
        )
        if not isinstance(answer, Created):
            if self._owner is not None:
                # Somebody else's session isn't there.
                await self._head(session_id)
            raise SessionExists(f"there is, or was, a session {session_id!r}", hint="import it under another id")
        return found.instructions
