"""What the outside is asked anywhere: the open requests of all sessions, page by page."""

from __future__ import annotations

from collections.abc import Iterable
from typing import get_args

import msgspec

from ..core import checkpoint as checkpoints
from ..core.errors import NewerRules, StoreClosed, StoreError, StoreForked, UsageError
from ..store.base import SessionRow
from . import listing
from .about import check_owner
from .redefining import UNFINISHED
from .requests import Request, RequestKind, Requests

__all__ = ["OpenRequests", "RequestPage"]

ROWS = 100
"""So many sessions are looked at at a time."""

KINDS = get_args(RequestKind)


class RequestPage(list[Request]):
    """A page of open requests. ``next`` is what `Sessions.open_requests` goes on after; None: there are no more.

    ``problems``: the sessions among them that can't be read, and why.
    """

    def __init__(self, requests: Iterable[Request] = (), following: str | None = None, problems: dict[str, str] | None = None) -> None:
        super().__init__(requests)
        self.next = following
        self.problems = problems or {}


class OpenRequests(Requests):
    """The part of `Sessions` that looks for open requests everywhere."""

    async def open_requests(
        self,
        *,
        owner: str | None = None,
        kind: RequestKind | Iterable[RequestKind] | None = None,
        status: str | Iterable[str] | None = None,
        agent: str | None = None,
        labels: dict[str, str] | None = None,
        limit: int = 50,
        after: str | None = None,
    ) -> RequestPage:
        """What people are asked in all sessions, with the arguments that they have to judge: the session that changed last comes first.

        Those of agents that others called are among them, in their own sessions. ``owner``, ``status``, ``agent`` and ``labels`` say which
        sessions, as for `list`; without ``status``, all in which a turn can be open. ``kind`` is *approval* (may it run?), *answer* (what
        does the user say?) or *uncertain* (what became of it?), or several. What a session asks is never torn apart: a page has at most
        ``limit``, and what else the session of its last one asks. ``after`` is ``next`` of the page before, with the same filters; a
        session that changes while you page moves to the front, behind you, and is on the first page of the next list.

        Reading changes nothing, so that a request whose deadline has passed is shown until somebody looks after its session. It reads
        unfinished sessions, and of their journals only the turns that ask. Raises `UsageError` for filters that are none.
        """
        owner = self._owner if owner is None else check_owner(owner)
        if self._owner not in (None, owner):
            return RequestPage()
        kinds = KINDS if kind is None else (kind,) if isinstance(kind, str) else tuple(kind)
        for item in kinds:
            if item not in KINDS:
                raise UsageError(f"{item!r:.40} is no kind of request", hint=", ".join(KINDS))
        query = listing.query(
            owner=owner,
            status=UNFINISHED if status is None else status,
            agent=agent,
            labels=labels,
            words=(),
            since=None,
            until=None,
            archived=False,
            children=True,
            order="updated",
            limit=limit,
        )
        secret, asked = self._runtime.store.secret, ("requests", *sorted(kinds))
        at = msgspec.structs.replace(listing.continued(query, secret, after, *asked), limit=ROWS + 1)
        found: list[Request] = []
        problems: dict[str, str] = {}
        while True:
            rows = await self._runtime.store.sessions(at)
            for place, row in enumerate(rows[:ROWS]):
                try:
                    found += [request for request in await self._asked_in(row) if request.kind in kinds]
                except (StoreClosed, StoreForked):
                    raise
                except (StoreError, NewerRules) as error:
                    # What is broken in one session must not hide the others; a store that doesn't answer is no session's, and raises here.
                    if not await self._runtime.store.buried(row.session_id):
                        problems[row.session_id] = error.message
                if row.problem:
                    problems[row.session_id] = row.problem
                if len(found) >= limit and place + 1 < len(rows):
                    return RequestPage(found, listing.token(query, secret, row, *asked), problems)
            if len(rows) <= ROWS:
                return RequestPage(found, None, problems)
            at = msgspec.structs.replace(at, before=(rows[ROWS - 1].updated, rows[ROWS - 1].no))

    async def _asked_in(self, row: SessionRow) -> list[Request]:
        turn = None if row.problem else checkpoints.decode(row.checkpoint).turn
        if turn is None or not turn.requests:
            return []
        # The row was read with a whole page; what is asked now may be something else.
        head = await self._runtime.store.load(row.session_id)
        return [] if head is None else await self._requests(head)
