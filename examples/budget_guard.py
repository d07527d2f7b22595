"""A middleware in twenty lines: a session has a budget of tokens, and an operator can raise it from anywhere.

    python examples/budget_guard.py

It needs no key: the model is scripted. The second question finds the budget spent; after the command the third is answered.
"""

import asyncio
from typing import Any

import perdure
from perdure import Agent, HookContext, Middleware, Reply, ScriptedModel, Stop, Usage


class BudgetGuard(Middleware):
    """Ends a turn before a model call for which the session has no tokens left."""

    name = "budget"

    def __init__(self, tokens: int) -> None:
        self.tokens = tokens
        self.commands = {"raise": self.raise_limit}

    def before_model(self, ctx: HookContext) -> Stop | None:
        limit, spent = ctx.state.get("limit", self.tokens), ctx.usage.total_tokens
        if spent >= limit:
            return Stop(f"{spent} of {limit} tokens are spent")
        if spent >= 0.8 * limit:
            ctx.guide("Hardly any tokens are left: answer briefly.", once=f"near {limit}")
        return None

    def raise_limit(self, ctx: HookContext, arguments: dict[str, Any]) -> None:
        ctx.state["limit"] = int(arguments["tokens"])


async def main() -> None:
    model = ScriptedModel([Reply(f"Answer {number}.", usage=Usage(input_tokens=90, output_tokens=30)) for number in (1, 2)])
    agent = Agent("helper", model=model, middleware=[BudgetGuard(tokens=100)])
    async with perdure.open("memory://") as runtime:
        print((await runtime.run(agent, "One?", session="s", submission="q-1")).output)
        print((await runtime.run(agent, "Two?", session="s", submission="q-2")).reason)
        await runtime.sessions.command("s", "budget", "raise", {"tokens": 500}, actor="operator")
        print((await runtime.run(agent, "Three?", session="s", submission="q-3")).output)


if __name__ == "__main__":
    asyncio.run(main())
