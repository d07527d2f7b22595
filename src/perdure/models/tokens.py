"""Tokenizers that a model's estimates can be made with: `OpenAIResponses("…", count=openai_tokens())`."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from ..core.errors import MissingExtra, UsageError

__all__ = ["openai_tokens"]

PIECE = 16_384
"""Texts are counted in pieces of so many characters: the tokenizer takes ever longer for long words. A seam costs a token or two."""


def openai_tokens(encoding: str = "o200k_base") -> Callable[[str], int]:
    """A function from text to the tokens that OpenAI's models make of it; ``o200k_base`` is that of all since 2024.

    The package ``tiktoken`` loads an encoding's vocabulary from the network when it is first used, and keeps it in
    ``TIKTOKEN_CACHE_DIR``, or in a temporary directory. Raises `MissingExtra` without the package and `UsageError` without the vocabulary.
    """
    try:
        tiktoken = import_module("tiktoken")
    except ImportError:
        raise MissingExtra("counting OpenAI's tokens needs the package 'tiktoken'", extra="tokens") from None
    try:
        encode = tiktoken.get_encoding(encoding).encode_ordinary
    except Exception as error:
        raise UsageError(
            f"the vocabulary {encoding!r} can't be loaded: {error}",
            hint="let it be loaded once with a network, or put it into TIKTOKEN_CACHE_DIR; without it tokens are estimated",
        ) from error

    def count(text: str) -> int:
        return sum(len(encode(text[start : start + PIECE])) for start in range(0, len(text), PIECE))

    return count
