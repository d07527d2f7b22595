"""Imports point down only; the core does nothing but decide; store calls are nobody's failure but the runtime's."""

from __future__ import annotations

import ast
import builtins
import inspect
import json
import re
import subprocess
import sys
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import perdure

ROOT = Path(perdure.__file__).parent
MODULES = sorted(ROOT.rglob("*.py"))

LAYERS: dict[str, set[str]] = {
    "core": {"core"},
    "store": {"core", "store"},
    "tools": {"core", "tools"},
    "models": {"core", "models"},
    "agent": {"core", "tools", "models", "agent"},
    "runtime": {"core", "store", "tools", "models", "agent", "runtime"},
    "testing": {"core", "store", "tools", "models", "agent", "runtime", "testing"},
    "server": {"core", "store", "tools", "models", "agent", "runtime", "server"},
    "workers": {"core", "store", "tools", "models", "agent", "runtime", "workers"},
    "integrations": {"core", "store", "tools", "models", "agent", "runtime", "integrations"},
    "demo": {"core", "store", "tools", "models", "agent", "runtime", "demo", "perdure"},
    "cli": {
        "core",
        "store",
        "tools",
        "models",
        "agent",
        "runtime",
        "server",
        "workers",
        "integrations",
        "testing",
        "demo",
        "cli",
        "perdure",
    },
    "__main__": {"cli"},
    "perdure": {"core", "store", "tools", "models", "agent", "runtime"},
}
"""What each part may import. The face itself is `perdure`; the demo is written against it, as a user's program is."""

PURE = {
    "__future__",
    "bisect",
    "collections",
    "collections.abc",
    "dataclasses",
    "enum",
    "functools",
    "hashlib",
    "itertools",
    "math",
    "msgspec",
}
PURE |= {"base64", "binascii", "json", "msgspec.structs", "re", "typing", "urllib.parse"}
"""What the core may use besides itself: nothing that knows the time, a file, a network, chance, or another task."""


def layer_of(path: Path) -> str:
    """The part that a file belongs to."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return "perdure" if parts == ("__init__",) else parts[0]


def imported(path: Path) -> Iterator[tuple[int, str]]:
    """Every module that a file imports anywhere, by its full name, with the line."""
    package = ("perdure", *path.relative_to(ROOT).parts)[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = [*package[: len(package) - node.level + 1]] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                inside = ROOT.joinpath(*module.split(".")[1:], alias.name)
                is_module = module.split(".")[0] == "perdure" and (inside.is_dir() or inside.with_suffix(".py").is_file())
                yield node.lineno, f"{module}.{alias.name}" if is_module else module


def test_every_part_of_the_package_has_a_place_in_the_order() -> None:
    assert {layer_of(path) for path in MODULES} <= set(LAYERS)


def test_imports_point_down_only() -> None:
    wrong = []
    for path in MODULES:
        for line, name in imported(path):
            top, *rest = name.split(".")
            target = rest[0] if top == "perdure" and rest else top
            if top == "perdure" and target not in LAYERS[layer_of(path)]:
                wrong.append(f"{path.relative_to(ROOT)}:{line} imports {name}")

    assert wrong == []


def test_nothing_imports_the_testing_tools_but_the_command_line() -> None:
    users = {layer for layer, allowed in LAYERS.items() if "testing" in allowed}

    assert users == {"testing", "cli"}


def test_the_core_imports_nothing_that_could_do_anything() -> None:
    wrong = [
        f"{path.name}:{line} imports {name}"
        for path in MODULES
        if layer_of(path) == "core"
        for line, name in imported(path)
        if not name.startswith("perdure.core") and name not in PURE
    ]

    assert wrong == []


def test_the_core_waits_for_nothing() -> None:
    for path in MODULES:
        if layer_of(path) == "core":
            found = [
                node
                for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
                if isinstance(node, (ast.AsyncFunctionDef, ast.Await, ast.AsyncFor, ast.AsyncWith))
                or (isinstance(node, ast.Name) and node.id in {"open", "print", "input", "eval", "exec", "__import__", "globals"})
            ]
            assert found == [], path.name


@pytest.mark.parametrize("layer", ["agent", "models", "tools"])
def test_no_store_is_in_reach_of_what_user_code_and_providers_can_fail_in(layer: str) -> None:
    for path in MODULES:
        if layer_of(path) == layer:
            assert [name for _, name in imported(path) if "store" in name.split(".") or "runtime" in name.split(".")] == [], path.name


@pytest.mark.parametrize("layer", ["agent", "models", "tools"])
def test_no_try_stands_around_a_store_call(layer: str) -> None:
    for path in MODULES:
        if layer_of(path) != layer:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, (ast.Try, ast.TryStar)):
                names = {inner.attr for inner in ast.walk(node) if isinstance(inner, ast.Attribute)}
                names |= {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}
                assert not {"store", "_store", "CoordinationError", "StoreError", "Fenced"} & names, f"{path.name}:{node.lineno}"


def _loaded_by(statement: str) -> set[str]:
    code = f"import sys; before = set(sys.modules); {statement}; import json; print(json.dumps(sorted(set(sys.modules) - before)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    return set(json.loads(done.stdout))


EVERYTHING = "import perdure; [getattr(perdure, name) for name in perdure.__all__]"
"""Nothing is loaded before it is asked for."""


def test_importing_perdure_loads_its_face_and_nothing_behind_it() -> None:
    assert {name for name in _loaded_by("import perdure") if name.startswith("perdure")} == {"perdure"}


def test_the_face_says_where_each_name_stands_and_defines_nothing_of_its_own() -> None:
    for module, names in perdure._FACE.items():
        assert module.split(".")[0] in LAYERS["perdure"], module
        assert {name for name in names.split() if name.startswith("_")} == set()
    defined = [node for node in ast.parse((ROOT / "__init__.py").read_text("utf-8")).body if hasattr(node, "name")]
    assert [node.name for node in defined] == ["__getattr__", "__dir__"]  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="module 'perdure' has no attribute 'Agentt'"):
        perdure.Agentt  # type: ignore[attr-defined] # noqa: B018
    assert set(perdure.__all__) < set(dir(perdure))


def test_importing_perdure_loads_no_sdk_no_schema_library_no_http_client_no_database_and_no_terminal() -> None:
    loaded = _loaded_by(EVERYTHING)
    tops = {name.split(".")[0] for name in loaded}

    assert "perdure" in tops
    unwanted = {"openai", "anthropic", "pydantic", "pydantic_core", "apsw", "sqlite3", "rich", "prompt_toolkit", "psycopg", "asyncpg"}
    unwanted |= {"httpx", "httpcore", "h11", "h2", "aiohttp", "requests", "urllib3", "websockets", "mcp"}
    assert tops & unwanted == set()
    assert loaded & {"http.client", "urllib.request"} == set()


def test_importing_perdure_loads_neither_its_command_line_nor_its_testing_tools() -> None:
    loaded = _loaded_by(EVERYTHING)

    parts = {name.split(".")[1] for name in loaded if name.startswith("perdure.")}
    assert parts <= {"core", "store", "tools", "models", "agent", "runtime"}


def test_the_core_alone_loads_nothing_of_the_rest() -> None:
    loaded = {name for name in _loaded_by("import perdure.core.decider, perdure.core.journal") if name.startswith("perdure.")}

    assert {name for name in loaded if not name.startswith("perdure.core")} == set()


def test_a_star_takes_nothing_of_pythons_away() -> None:
    assert {*perdure.__all__} & {*dir(builtins)} == set()
    assert "open" in dir(perdure)
    taken: dict[str, Any] = {}
    exec("from perdure import *", taken)
    assert taken["Agent"] is perdure.Agent
    assert "open" not in taken


def test_every_name_of_the_public_face_is_there_once() -> None:
    assert [name for name in perdure.__all__ if not hasattr(perdure, name)] == []
    assert len(set(perdure.__all__)) == len(perdure.__all__)


@pytest.mark.parametrize("face", [perdure.Session, perdure.Sessions, perdure.Consumer, perdure.Result, perdure.Router])
def test_whatever_a_public_method_takes_or_returns_can_be_imported_from_perdure(face: type) -> None:
    members = [member for name, member in inspect.getmembers(face) if not name.startswith("_")]
    said = " ".join(str(kind) for member in members for kind in getattr(member, "__annotations__", {}).values())
    said += " ".join(map(str, face.__annotations__.values()))

    named = {word for word in re.findall(r"\w+", said) if word[0].isupper()} - {*dir(builtins), *dir(typing)}
    assert named - set(perdure.__all__) == set()
