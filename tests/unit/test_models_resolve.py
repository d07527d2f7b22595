from __future__ import annotations

import subprocess
import sys

import pytest

from perdure.core.errors import UnknownModel, UsageError
from perdure.models.base import Model
from perdure.models.resolve import resolve
from perdure.models.scripted import ScriptedModel


@pytest.mark.parametrize("name", ["openai:gpt-5.6-sol", "openai-chat:llama:70b", "anthropic:claude-x"])
def test_a_name_becomes_the_model_that_it_names(name: str) -> None:
    model = resolve(name)
    assert isinstance(model, Model)
    assert model.name == name


def test_a_model_is_returned_as_it_is() -> None:
    model = ScriptedModel([])
    assert resolve(model) is model


@pytest.mark.parametrize("name", ["gpt-5.6-sol", "nobody:x", "openai:", "openai: ", ""])
def test_an_unknown_name_lists_those_that_are_known(name: str) -> None:
    with pytest.raises(UnknownModel) as caught:
        resolve(name)
    for known in ("anthropic:NAME", "openai:NAME", "openai-chat:NAME"):
        assert known in str(caught.value)


def test_anything_else_is_a_misuse() -> None:
    with pytest.raises(UsageError, match="not int"):
        resolve(3)  # type: ignore[arg-type]


def test_resolving_imports_no_providers_package() -> None:
    program = (
        "import sys\n"
        "from perdure.models.resolve import resolve\n"
        "for name in ('openai:a', 'openai-chat:b', 'anthropic:c'): resolve(name)\n"
        "print([name for name in ('openai', 'anthropic', 'httpx', 'httpx2', 'pydantic') if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
