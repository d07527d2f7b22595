"""DBOS Transact: an agent's loop as a workflow, its model and its tool as steps."""

from __future__ import annotations

import asyncio
from typing import Any

from dbos import DBOS, DBOSConfig, SetWorkflowID

from .script import TEXT, Script

__all__ = ["launched", "run", "to_the_end"]

_script: Script


@DBOS.step()
async def ask(done: int, last: str) -> dict[str, Any]:
    return {"number": done, "text": TEXT} if _script.model(done, last) else {}


@DBOS.step()
async def act(number: int, text: str) -> str:
    return _script.tool(number)


@DBOS.workflow()
async def bench(question: str) -> int:
    messages: list[Any] = [question]
    while call := await ask(len(messages) // 2, messages[-1] if len(messages) > 1 else ""):
        messages += [call, await act(**call)]
    return len(messages) + 1


def launched(url: str) -> None:
    """Start DBOS; it goes on by itself with what a crash left."""
    config: DBOSConfig = {
        "name": "bench",
        "system_database_url": url if url.startswith("postgresql:") else f"sqlite:///{url}",
        "log_level": "ERROR",
        "application_version": "1",
    }
    DBOS(config=config)
    DBOS.launch()


async def to_the_end(workflow: Any, sessions: list[str], resume: bool) -> int:
    """Run a workflow once for each session."""

    async def one(session: str) -> Any:
        if resume:
            handle: Any = await DBOS.retrieve_workflow_async(session)
        else:
            with SetWorkflowID(session):
                handle = await DBOS.start_workflow_async(workflow, TEXT)
        return await handle.get_result()

    return int((await asyncio.gather(*map(one, sessions)))[0])


async def run(url: str, sessions: list[str], script: Script, *, resume: bool, settings: dict[str, Any]) -> int:
    """Run sessions to their end; how many messages the first one has then."""
    global _script
    _script = script
    launched(url)
    try:
        return await to_the_end(bench, sessions, resume)
    finally:
        DBOS.destroy()
