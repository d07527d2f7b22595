"""A team in one file: an agent that asks another one, hands over to a third, and sleeps on it.

    python examples/team.py

It needs no key and no network: the models are scripted. Kill it anywhere and run it again: nobody is asked twice.
"""

import asyncio
import sys

import perdure
from perdure import Agent, Reply, ScriptedModel, ToolCall, tool
from perdure.tools import sleep_tool


@tool(effect="pure")
async def search(words: str) -> str:
    """Search the archive.

    Args:
        words: What to look for.
    """
    return f"one document about {words}"


def call(name: str, **arguments: object) -> Reply:
    return Reply(tool_calls=[ToolCall(name, arguments)])


researcher = Agent(
    "researcher",
    instructions="You find things.",
    model=ScriptedModel([call("search", words="perdure"), "To perdure is to continue to exist."]),
    tools=[search],
)
editor = Agent(
    "editor",
    instructions="You have the last word.",
    # A script counts the answers of the whole conversation, those of the agent before included.
    model=ScriptedModel(["", "", call("sleep", seconds=1), "perdure (verb): to continue to exist."]),
    tools=[sleep_tool()],
)
lead = Agent(
    "lead",
    instructions="You give tasks to others.",
    model=ScriptedModel([call("researcher", task="What does perdure mean?"), call("transfer_to_editor", reason="It needs a last word.")]),
    tools=[researcher.as_tool(description="Ask the researcher.")],
    handoffs=[editor],
)


async def main() -> None:
    async with perdure.open(sys.argv[1] if len(sys.argv) > 1 else "memory://") as runtime:
        result = await runtime.run(lead, "What does the name mean?", session="name", submission="question-1")
        print(result.output)
        for branch in await runtime.sessions.tree("name"):
            print("  " * branch.depth + f"{branch.session_id}: {branch.agent}, {branch.messages} messages")


if __name__ == "__main__":
    asyncio.run(main())
