"""From a model's name to the model."""

from __future__ import annotations

from collections.abc import Callable

from ..core.errors import UnknownModel, UsageError
from .base import Model

__all__ = ["resolve"]


def _openai(name: str) -> Model:
    from .openai import OpenAIResponses

    return OpenAIResponses(name)


def _openai_chat(name: str) -> Model:
    from .openai import OpenAIChat

    return OpenAIChat(name)


def _anthropic(name: str) -> Model:
    from .anthropic import Anthropic

    return Anthropic(name)


_PROVIDERS: dict[str, Callable[[str], Model]] = {"anthropic": _anthropic, "openai": _openai, "openai-chat": _openai_chat}


def resolve(model: str | Model) -> Model:
    """The model that a name like ``"openai:gpt-5.6-sol"`` stands for; a `Model` is returned as it is.

    Prefixes are ``openai`` (the Responses API), ``openai-chat`` (Chat Completions, at ``OPENAI_BASE_URL`` if it is set) and
    ``anthropic``. Resolving reads no key and imports no provider's package: the first call does, and raises `MissingExtra` or
    `MissingKey` then. Raises `UnknownModel` for a name without a known prefix.
    """
    if not isinstance(model, str):
        if isinstance(model, Model):
            return model
        raise UsageError(f"a model is a name or an object with name, group and stream, not {type(model).__name__}")
    prefix, _, name = model.partition(":")
    make = _PROVIDERS.get(prefix)
    if make is None or not name.strip():
        known = ", ".join(f"{known}:NAME" for known in _PROVIDERS)
        raise UnknownModel(f"no provider for the model {model!r}", hint=f"known are {known}")
    return make(name)
