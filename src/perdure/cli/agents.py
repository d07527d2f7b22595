"""From what the command line calls an agent to the `Agent`."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from ..agent import Agent
from ..core.errors import UsageError

__all__ = ["ad_hoc", "load"]


def load(name: str, *, model: str | None = None) -> Agent:
    """The agent at ``module:attribute`` or ``file.py:attribute``. Raises `UsageError`, with what the module raised as its cause."""
    place, separator, attribute = name.rpartition(":")
    if not separator or not place or not attribute:
        raise UsageError(f"{name!r} names no agent", hint="module:attribute, or path/to/file.py:attribute")
    found: Any = _module(place)
    for step in attribute.split("."):
        try:
            found = getattr(found, step)
        except AttributeError:
            known = (
                ", ".join(key for key, item in vars(sys.modules[found.__name__]).items() if isinstance(item, Agent))
                if isinstance(found, ModuleType)
                else ""
            )
            raise UsageError(f"{place!r} has no {attribute!r}", hint=f"its agents: {known}" if known else "it has no agents") from None
    if callable(found) and not isinstance(found, Agent):
        found = found()
    if not isinstance(found, Agent):
        raise UsageError(f"{name!r} is a {type(found).__name__}, not an Agent", hint="name an Agent, or a function that returns one")
    return found if model is None else found.replace(model=model)


def ad_hoc(model: str) -> Agent:
    """An assistant without tools, for ``--model`` alone."""
    return Agent("assistant", model=model)


def _module(place: str) -> ModuleType:
    try:
        if place.endswith(".py") or "/" in place:
            return _from_file(Path(place))
        # As `python -m` does: what stands in the working directory can be imported.
        if "" not in sys.path and str(Path.cwd()) not in sys.path:
            sys.path.insert(0, str(Path.cwd()))
        return importlib.import_module(place)
    except UsageError:
        raise
    except ModuleNotFoundError as error:
        raise UsageError(f"the module {place!r} can't be imported: {error}", hint="run it where the module can be found") from error
    except Exception as error:
        raise UsageError(f"importing {place!r} failed: {type(error).__name__}: {error}", hint="PERDURE_DEBUG=1 shows where") from error


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise UsageError(f"there is no file {str(path)!r}", hint="path/to/file.py:attribute")
    name = path.stem
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    if spec is None or spec.loader is None:
        raise UsageError(f"{str(path)!r} is no Python file", hint="path/to/file.py:attribute")
    module = importlib.util.module_from_spec(spec)
    # Its neighbours can be imported, as if it were run.
    sys.path.insert(0, str(path.resolve().parent))
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
