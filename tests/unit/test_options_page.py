"""The page of all options says what the code's signatures say."""

from __future__ import annotations

import inspect
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest

import perdure
from perdure.agent.agent import OnChange, OnRestart, OnSilence
from perdure.core.commands import Deliver
from perdure.core.records import EffectClass, Finishing
from perdure.models.anthropic import Anthropic
from perdure.models.openai import OpenAIChat, OpenAIResponses
from perdure.models.remote import RemoteModel
from perdure.tools.tool import Guard, OnUncertain

PAGE = Path(__file__).parents[2] / "docs" / "agents.md"

DESCRIBED: dict[str, Callable[..., Any]] = {
    "Agent": perdure.Agent,
    "Agent.as_tool": perdure.Agent.as_tool,
    "tool": perdure.tool,
    "ModelSettings": perdure.ModelSettings,
    "Limits": perdure.Limits,
    "Router": perdure.Router,
    "OpenAIResponses": OpenAIResponses,
    "OpenAIChat": OpenAIChat,
    "Anthropic": Anthropic,
    "RemoteModel": RemoteModel.__init__,
    "FunctionModel": perdure.FunctionModel,
    "ScriptedModel": perdure.ScriptedModel,
    "open": perdure.open,
    "Runtime.run": perdure.Runtime.run,
    "Runtime.session": perdure.Runtime.session,
    "Sessions.send": perdure.Sessions.send,
    "Compaction": perdure.Compaction,
}

WORDS = {
    "OnRestart": OnRestart,
    "OnChange": OnChange,
    "OnSilence": OnSilence,
    "Finishing": Finishing,
    "EffectClass": EffectClass,
    "Guard": Guard,
    "OnUncertain": OnUncertain,
    "Deliver": Deliver,
}

LONGEST_DEFAULT = 60


def signed(function: Callable[..., Any]) -> list[tuple[str, str, str]]:
    """Name, type and default of every option, as a row of the page shows them."""
    rows = []
    for name, parameter in inspect.signature(function).parameters.items():
        # Nobody passes these: the object itself, the decorated function, and what stands in a table of its own.
        if name in ("self", "function", "connection"):
            continue
        rows.append((name, _type(parameter.annotation), _default(parameter.default)))
    return rows


def _type(annotation: Any) -> str:
    text = annotation.__name__ if isinstance(annotation, type) and not hasattr(annotation, "__args__") else str(annotation)
    for alias, words in WORDS.items():
        text = re.sub(rf"\b{alias}\b", " | ".join(f'"{word}"' for word in get_args(words)), text)
    literal = re.sub(r"Literal\[([^]]*)\]", lambda found: found[1].replace(", ", " | ").replace("'", '"'), text)
    return literal.replace("typing.", "")


def _default(default: Any) -> str:
    match default:
        case inspect.Parameter.empty:
            return "required"
        case perdure.Limits() | perdure.ModelSettings() | perdure.Compaction():
            assert default == type(default)()
            return f"{type(default).__name__}()"
        case str() if len(default) > LONGEST_DEFAULT:
            return "a text"
        case int() if not isinstance(default, bool) and default >= 10_000:
            return f"{default:_}"
        case _:
            # A structure's own empty mapping is made anew for each.
            return "{}" if repr(default) == "<factory>" else repr(default)


def tables() -> dict[str, list[tuple[str, str, str]]]:
    """The page's tables of options, by the name in their heading."""
    found = {}
    for section in PAGE.read_text().split("\n## ")[1:]:
        title, _, text = section.partition("\n")
        rows = [re.split(r"(?<!\\)\|", line)[1:4] for line in text.splitlines() if line.startswith("| `")]
        if title.startswith("`"):
            found[title.strip("`")] = [tuple(cell.strip().strip("`").replace("\\|", "|") for cell in row) for row in rows]
    return found  # type: ignore[return-value]


def test_the_page_has_a_table_for_everything_that_is_described_and_no_other() -> None:
    assert [*tables()] == [*DESCRIBED]


@pytest.mark.parametrize("name", DESCRIBED)
def test_a_table_has_the_options_types_and_defaults_of_the_code(name: str) -> None:
    assert tables()[name] == signed(DESCRIBED[name])


def test_streaming_takes_what_running_takes() -> None:
    assert signed(perdure.Runtime.stream) == signed(perdure.Runtime.run)


def test_the_extras_are_those_of_the_package() -> None:
    package = tomllib.loads((PAGE.parents[1] / "pyproject.toml").read_text())
    section = PAGE.read_text().split("\n## Extras\n")[1]
    named = re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)
    assert sorted(named) == sorted(package["project"]["optional-dependencies"])
