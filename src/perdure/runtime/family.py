"""The children that this process works on because it works on their parent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import msgspec

from ..agent import Agent
from ..core.checkpoint import Checkpoint
from ..core.errors import Fenced, SessionNotFound, UnknownAgent
from ..core.ids import child_session
from ..core.phase import children as called
from ..core.records import Errand
from ..core.reports import ErrandsDone
from .perform import Outcome

if TYPE_CHECKING:
    from .runtime import Runtime

__all__ = ["Family"]


class Family:
    """One session's errands while it is held here, and the work on its children while it waits for them.

    ``report`` gets the errands that were done, for the next commit, and ``wake`` is called whenever something changed. ``error`` is what
    kept a child from being worked on, ``owing`` what kept the errands from being done, which each commit tries again.
    """

    def __init__(
        self,
        runtime: Runtime,
        session_id: str,
        team: Mapping[str, Agent],
        *,
        report: Callable[[Outcome], None],
        wake: Callable[[], None],
    ) -> None:
        self.error: Exception | None = None
        self.owing: Exception | None = None
        self._runtime = runtime
        self._session_id = session_id
        self._team = team
        self._report = report
        self._wake = wake
        self._errands: asyncio.Task[None] | None = None
        self._done: tuple[Errand, ...] = ()
        self._children: dict[str, asyncio.Task[None]] = {}
        self._tried: set[str] = set()
        self._kept = False
        self._changed = asyncio.Event()

    @property
    def busy(self) -> bool:
        """Whether what the session owes is being done."""
        return self._errands is not None

    @property
    def waits(self) -> bool:
        """Whether children are worked on here."""
        return bool(self._children)

    def committed(self, checkpoint: Checkpoint) -> None:
        """Do what the session owes now; its holder releases it only then."""
        if not checkpoint.errands:
            self._done = ()
            return
        # What is reported stands in a commit that is still to come, when it may hold the session no more.
        self._done = tuple(errand for errand in self._done if errand in checkpoint.errands)
        left = tuple(errand for errand in checkpoint.errands if errand not in self._done)
        if left and self._errands is None:
            self.owing = None
            owes = msgspec.structs.replace(checkpoint, errands=left)
            self._errands = asyncio.create_task(self._do(owes), name=f"perdure errands of {self._session_id}")

    async def _do(self, checkpoint: Checkpoint) -> None:
        try:
            done = await self._runtime.errands.perform(self._session_id, checkpoint)
        except Exception as error:
            self.owing = error
        else:
            self._done += done.errands
            self._report((ErrandsDone(errands=done.errands, failed=done.failed, at=self._runtime.clock.now()), ()))
        self._errands = None
        self._wake()

    def tend(self, checkpoint: Checkpoint, *, keep: bool) -> None:
        """Work on the children that the session waits for. ``keep``: for as long as it does; else on what each can do now, once."""
        turn = checkpoint.turn
        if not self._children and not checkpoint.background and (turn is None or not turn.awaiting):
            return
        unborn = {errand.operation for errand in checkpoint.errands}
        wanted = {
            child_session(self._session_id, operation): name for operation, name in called(checkpoint).items() if operation not in unborn
        }
        for name in [name for name in self._children if name not in wanted]:
            self._children.pop(name).cancel()
        if keep != self._kept:
            self._kept = keep
            self._tried.clear()
            self._changed.set()
            self._changed = asyncio.Event()
        for name, agent in wanted.items():
            if name not in self._children and name not in self._tried:
                self._children[name] = asyncio.create_task(self._work_on(name, agent), name=f"perdure child {name}")

    def try_again(self, held: Checkpoint | None) -> None:
        """What kept something from being done may be over: try it again, before that ends the work on the session. ``held``: as it is."""
        if self.error is not None:
            self.error = None
            self._tried.clear()
            self._wake()
        if self.owing is not None and held is not None:
            self.committed(held)

    def leave(self) -> None:
        """The session isn't worked on here any more. What runs in a child goes on."""
        for task in (*self._children.values(), *([self._errands] if self._errands is not None else ())):
            task.cancel()
        self._children.clear()

    async def _work_on(self, name: str, agent: str) -> None:
        try:
            member = self._team.get(agent)
            if member is None:
                raise UnknownAgent(f"the child {name!r} belongs to the agent {agent!r}", hint=f"known here: {', '.join(self._team)}")
            while not await self._work_once(name, member):
                # Another process has it now; this one is there should that die.
                pass
        except SessionNotFound:
            # Archived or deleted: whoever did that tells the parent.
            self._tried.add(name)
        except Exception as error:
            self._tried.add(name)
            if self._kept:
                self.error = error
        finally:
            if self._children.get(name) is asyncio.current_task():
                del self._children[name]
                self._wake()

    async def _work_once(self, name: str, agent: Agent) -> bool:
        """Until the work on a child ends. False: it has to be done again."""
        driver, task = await self._runtime.work.engage_when_free(name, agent, self._team)
        engaged = True
        self._runtime.news.callers[name] = self._session_id
        try:
            while not task.done():
                if not self._kept and engaged:
                    driver.take_up()
                    engaged = False
                    self._runtime.work.disengage(driver)
                changed = asyncio.ensure_future(self._changed.wait())
                try:
                    await asyncio.wait([task, changed], return_when=asyncio.FIRST_COMPLETED)
                finally:
                    changed.cancel()
        finally:
            if engaged:
                self._runtime.work.disengage(driver)
        if driver.error is not None and not isinstance(driver.error, Fenced):
            raise driver.error
        if self._kept and (driver.error is not None or not engaged):
            return False
        self._tried.add(name)
        return True
