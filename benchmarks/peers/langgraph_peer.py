"""LangGraph's prebuilt agent with one of its savers."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.prebuilt import create_react_agent

from .script import TEXT, Script

__all__ = ["run"]


class _Model(BaseChatModel):
    script: Any

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **kwargs: Any) -> _Model:
        return self

    def _generate(self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:
        done = self.script.answered(messages, lambda message: message.type == "tool")
        last = str(messages[-1].content) if messages[-1].type == "tool" else ""
        if self.script.model(done, last):
            call = {"name": "look", "args": {"number": done, "text": TEXT}, "id": f"call-{done}"}
            answer = AIMessage(content="", tool_calls=[call])
        else:
            answer = AIMessage(content="done")
        return ChatResult(generations=[ChatGeneration(message=answer)])


async def run(url: str, sessions: list[str], script: Script, *, resume: bool, settings: dict[str, Any]) -> int:
    """Run sessions to their end; how many messages the first one has then."""

    @tool
    def look(number: int, text: str) -> str:
        """Look something up."""
        return script.tool(number)

    with ExitStack() as stack:
        if url.startswith("postgresql:"):
            from langgraph.checkpoint.postgres import PostgresSaver
            from psycopg.rows import dict_row
            from psycopg_pool import ConnectionPool

            options: Any = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
            saver: Any = PostgresSaver(stack.enter_context(ConnectionPool(url, max_size=20, kwargs=options)))
            saver.setup()
        else:
            from langgraph.checkpoint.sqlite import SqliteSaver

            saver = stack.enter_context(SqliteSaver.from_conn_string(url))
        graph = create_react_agent(_Model(script=script), [look], checkpointer=saver)

        def one(session: str) -> int:
            config: Any = {"configurable": {"thread_id": session}, "recursion_limit": 10**6}
            # Where nothing was saved there is nothing to go on with, and the message is sent again.
            saved = resume and graph.get_state(config).values
            given: Any = None if saved else {"messages": [("user", TEXT)]}
            return len(graph.invoke(given, config, durability=settings["durability"])["messages"])

        if len(sessions) == 1:
            return one(sessions[0])
        pool = stack.enter_context(ThreadPoolExecutor(len(sessions)))
        loop = asyncio.get_running_loop()
        return (await asyncio.gather(*(loop.run_in_executor(pool, one, session) for session in sessions)))[0]
