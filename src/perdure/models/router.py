"""Named routes to models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..core import canonical
from ..core.errors import UnknownRoute, UsageError
from .base import Model
from .resolve import resolve

__all__ = ["Router"]


class Router:
    """Models by route name. The first is the default; ``fallback`` are routes to try, in order, when a provider gives up.

    Routes whose models have the same ``group`` understand each other's private reasoning; which they are is a fact of the models, never
    of the names. Names like ``"openai:gpt-5.6-sol"`` are resolved when first used. ``windows`` says how many tokens a route's requests may
    have, where its model doesn't know or more is wanted than it says. Raises `UsageError` if it can't work.
    """

    def __init__(
        self, routes: Mapping[str, str | Model], *, fallback: Sequence[str] = (), windows: Mapping[str, int] | None = None
    ) -> None:
        if not routes or not all(isinstance(name, str) and name.strip() for name in routes):
            raise UsageError("a router needs routes with names", hint='Router({"fast": "openai:…", "deep": "anthropic:…"})')
        self._routes = dict(routes)
        self.fallback = tuple(fallback)
        self._models: dict[str, Model] = {}
        self._chooses = True
        for name in self.fallback:
            if name not in self._routes:
                raise UsageError(f"the fallback {name!r} is no route", hint=f"known are {', '.join(self._routes)}")
        self._windows = dict(windows or {})
        for name, window in self._windows.items():
            if name not in self._routes:
                raise UsageError(f"the window of {name!r} belongs to no route", hint=f"known are {', '.join(self._routes)}")
            if not canonical.is_whole(window, 1):
                raise UsageError(f"the window of {name!r} is {window!r}", hint="tokens, at least 1")

    @classmethod
    def only(cls, model: Model | str) -> Router:
        """The router of an agent with one model. Sessions that began with another go on with this one: there is nothing to choose."""
        router = cls({model if isinstance(model, str) else model.name: model})
        router._chooses = False
        return router

    def saved(self, name: str) -> str:
        """The route to use for a session that has ``name`` saved. Raises `UnknownRoute` if that is one of several and none of these."""
        if not name or not self._chooses:
            return self.default
        self.model(name)
        return name

    def knows(self, name: str) -> bool:
        """Whether a session that has ``name`` saved can go on here."""
        return not name or not self._chooses or name in self

    @property
    def chooses(self) -> bool:
        """Whether there are routes to choose between."""
        return self._chooses

    @property
    def default(self) -> str:
        """The route of a new session."""
        return next(iter(self._routes))

    @property
    def names(self) -> tuple[str, ...]:
        """All routes, in order."""
        return tuple(self._routes)

    @property
    def used(self) -> tuple[Model, ...]:
        """The models that were asked for so far."""
        return tuple(self._models.values())

    def __contains__(self, name: object) -> bool:
        return name in self._routes

    def model(self, name: str) -> Model:
        """The model of a route. Raises `UnknownRoute`, or `UnknownModel` for a name without a provider."""
        if name not in self._routes:
            raise UnknownRoute(
                f"there is no route {name!r:.100}", hint=f"known are {', '.join(self._routes)}; `perdure route SESSION NAME` selects one"
            )
        if name not in self._models:
            self._models[name] = resolve(self._routes[name])
        return self._models[name]

    def window(self, name: str) -> int | None:
        """How many tokens a request of a route may have; None if nobody said so."""
        declared = self._windows.get(name) or getattr(self.model(name), "window", None)
        return declared if isinstance(declared, int) else None

    def check(self) -> None:
        """Whether the default route could be used from here. Raises `MissingExtra` or `MissingKey`; asks no provider."""
        if (check := getattr(self.model(self.default), "check", None)) is not None:
            check()

    def after(self, route: str) -> str:
        """The route to go on with when ``route`` gave up, empty if there is none."""
        later = self.fallback[self.fallback.index(route) + 1 :] if route in self.fallback else self.fallback
        return next((name for name in later if name != route), "")
