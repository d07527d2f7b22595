"""OpenAI's tokenizer, which is a package of its own."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest

from perdure.core.errors import MissingExtra, UsageError
from perdure.models.tokens import PIECE, openai_tokens


def tiktoken(monkeypatch: pytest.MonkeyPatch, *, loads: bool = True) -> list[str]:
    """Stands for the package: a token is a word. Returns the pieces that it was given."""
    pieces: list[str] = []

    def encode(text: str) -> list[int]:
        pieces.append(text)
        return list(range(len(text.split())))

    def get_encoding(name: str) -> SimpleNamespace:
        if not loads or name != "o200k_base":
            raise ConnectionError("no network")
        return SimpleNamespace(encode_ordinary=encode)

    module = ModuleType("tiktoken")
    module.get_encoding = get_encoding  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tiktoken", module)
    return pieces


def test_without_the_package_it_says_which_extra_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tiktoken", None)
    with pytest.raises(MissingExtra, match=r"'\.\[tokens\]'"):
        openai_tokens()


def test_without_the_vocabulary_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    tiktoken(monkeypatch, loads=False)
    with pytest.raises(UsageError, match=r"can.t be loaded: no network.*TIKTOKEN_CACHE_DIR"):
        openai_tokens()


def test_long_texts_are_counted_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    pieces = tiktoken(monkeypatch)
    count = openai_tokens()
    assert (count(""), count("one two three")) == (0, 3)
    assert count("w " * PIECE) == PIECE
    assert max(map(len, pieces)) <= PIECE
