"""The models that agents ask here, and what their calls cost."""

from __future__ import annotations

from collections.abc import Mapping

from ..agent import Agent
from ..core.budget import bounds_cost
from ..core.checkpoint import Turn
from ..core.errors import InvalidAgent
from ..core.records import Limits
from ..models.base import Model
from ..models.prices import Price, Prices
from ..models.resolve import resolve
from ..models.router import Router

__all__ = ["Models"]


class Models:
    """One router for each name that agents call a model by; ``default`` is for agents without one of their own."""

    def __init__(self, default: str | Model | Router | None, prices: Prices | Mapping[str, Price] | None) -> None:
        self._default = default
        self._always_priced = prices is not None
        self.prices = prices if isinstance(prices, Prices) else Prices(prices)
        self._routers: dict[str, Router] = {}

    def prices_of(self, turn: Turn | None) -> Prices | None:
        """What the calls of a turn are priced by; None if nobody wants to know what they cost."""
        return self.prices if self._always_priced or (turn is not None and bounds_cost(turn)) else None

    def check_prices(self, *limits: Limits | None) -> None:
        """Raises `MissingExtra` where a cost is limited that nobody could know."""
        if any(isinstance(item, Limits) and item.cost is not None for item in limits):
            self.prices.check()

    def router(self, agent: Agent) -> Router:
        """The routes of an agent. Raises `UnknownModel`, or `InvalidAgent` if there is none."""
        chosen = agent.model if agent.model is not None else self._default
        if chosen is None:
            raise InvalidAgent(f"the agent {agent.name!r} has no model", hint='pass model="openai:…" to Agent or perdure.open')
        if isinstance(chosen, Router):
            return chosen
        if not isinstance(chosen, str):
            return Router.only(chosen)
        if chosen not in self._routers:
            resolve(chosen)
            self._routers[chosen] = Router.only(chosen)
        return self._routers[chosen]

    async def close(self) -> None:
        """Let the connections go of those that were made here."""
        for model in [model for router in self._routers.values() for model in router.used]:
            if (close := getattr(model, "aclose", None)) is not None:
                await close()
        self._routers.clear()
