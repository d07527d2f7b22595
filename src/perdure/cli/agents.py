"""From what the command line calls an agent to the `Agent`."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import signal
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

from ..agent import Agent
from ..core.errors import SessionNotFound, UsageError
from ..runtime.infos import SessionInfo
from ..runtime.runtime import Runtime
from ..tools.tool import Tool
from .output import keep_results

__all__ = ["ad_hoc", "all_agents", "is_module", "load", "load_all", "owned_info"]

PATIENCE = 60.0
"""How long a module may take to be imported (seconds): large libraries take many, a program that was meant to be run takes for ever."""

GUARD = 'what it runs belongs under `if __name__ == "__main__":`'


def load(name: str, *, model: str | None = None) -> Agent:
    """The agent at ``module:attribute`` or ``file.py:attribute``. Raises `UsageError`, with what the module raised as its cause.

    From here on standard output is for results alone, since the module's code may print.
    """
    place, separator, attribute = name.rpartition(":")
    if not separator and is_module(name):
        keep_results()
        with _guarded(f"importing {name!r}", name):
            module = _module(name)
        raise UsageError(f"{name!r} is a module, not an agent", hint=_agents_in(module, name))
    if not separator or not place or not attribute:
        raise UsageError(f"{name!r} names no agent", hint="module:attribute, or path/to/file.py:attribute")
    found = _found(name, place, attribute)
    if not isinstance(found, Agent):
        raise UsageError(
            f"{name!r} is of the type {type(found).__name__}, not an Agent", hint="name an Agent, or a function that returns one"
        )
    return found if model is None else found.replace(model=model)


def _found(name: str, place: str, attribute: str) -> Any:
    """What stands at a place; what a function there returns."""
    keep_results()
    with _guarded(f"importing {place!r}", place):
        found: Any = _module(place)
    for step in attribute.split("."):
        try:
            found = getattr(found, step)
        except AttributeError:
            raise UsageError(f"{place!r} has no {attribute!r}", hint=_agents_in(found, place)) from None
    if inspect.iscoroutinefunction(found):
        raise UsageError(f"{name!r} is an async function, not an Agent", hint="name an Agent, or a plain function that returns one")
    if isinstance(found, Tool):
        raise UsageError(f"{name!r} is a tool, not an Agent", hint="name the Agent that has it")
    if callable(found) and not isinstance(found, Agent):
        with _guarded(f"calling {name!r}"):
            found = found()
    return found


def _agents_in(found: Any, place: str) -> str:
    """What could have been named in a module, as advice."""
    known = [f"{place}:{key}" for key, item in vars(found).items() if isinstance(item, Agent)] if isinstance(found, ModuleType) else []
    return f"its agents: {', '.join(known)}" if known else "it has no agents"


def load_all(name: str, *, model: str | None = None) -> list[Agent]:
    """The agents in ``module`` or ``file.py``, or those that ``module:registry`` holds: one, or a list, a tuple or a mapping of them.

    A function is called for them. Raises `UsageError` where there are none.
    """
    place, separator, attribute = name.rpartition(":")
    if not separator:
        keep_results()
        with _guarded(f"importing {name!r}", name):
            module = _module(name)
        found: Any = [item for item in vars(module).values() if isinstance(item, Agent)]
    else:
        found = _found(name, place, attribute)
    if isinstance(found, Mapping):
        found = list(found.values())
    agents = [found] if isinstance(found, Agent) else list(found) if isinstance(found, list | tuple | set | frozenset) else [found]
    for item in agents:
        if not isinstance(item, Agent):
            raise UsageError(
                f"{name!r} holds the type {type(item).__name__}, not only agents", hint="an Agent, or a list or mapping of them"
            )
    unique = list(dict.fromkeys(agents))
    if not unique:
        raise UsageError(f"there are no agents in {name!r}", hint="module, module:agent or module:registry")
    return unique if model is None else [agent.replace(model=model) for agent in unique]


def is_module(name: str) -> bool:
    """Whether a word names a module or a file, rather than something else."""
    if name.endswith(".py") or "/" in name:
        return Path(name).is_file()
    _import_from_here()
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def ad_hoc(model: str) -> Agent:
    """An assistant without tools, for ``--model`` alone."""
    return Agent("assistant", model=model)


def all_agents(named: Iterable[str]) -> list[Agent]:
    """The agents of ``--agents``. Raises `UsageError`."""
    return list(dict.fromkeys(agent for name in named for agent in load_all(name)))


async def owned_info(runtime: Runtime, session_id: str, owner: str) -> SessionInfo | None:
    """What the catalogue knows of a session; None if it is still to be made.

    Raises `SessionNotFound` where somebody else's session is to be gone on with, or one that was deleted.
    """
    sessions = runtime.sessions.owned_by(owner) if owner else runtime.sessions
    try:
        return await sessions.info(session_id)
    except SessionNotFound:
        if await runtime.store.load(session_id) is not None or await runtime.store.buried(session_id):
            raise
        return None


@contextmanager
def _guarded(what: str, place: str = "") -> Iterator[None]:
    """Whatever somebody else's code does instead of coming to its end is told in a sentence."""
    try:
        with _patience(what):
            yield
    except UsageError:
        raise
    except ModuleNotFoundError as error:
        raise UsageError(f"{what} failed, it can't be imported: {error}", hint=_where(error, place)) from error
    except SystemExit as leaving:
        raise UsageError(f"{what} ended the program: it called sys.exit({leaving.code!r})", hint=GUARD) from leaving
    except Exception as error:
        raise UsageError(f"{what} failed: {type(error).__name__}: {error}", hint="PERDURE_DEBUG=1 shows where") from error


def _where(error: ModuleNotFoundError, place: str) -> str:
    """What to do about a module that isn't found: the one that was named, or another that it needs."""
    missing = error.name or ""
    if not (missing and (place == missing or place.startswith(f"{missing}."))):
        return f"it needs {missing or 'another module'}: install that, or run it where it can be found"
    file = Path(f"{place.replace('.', '/')}.py")
    return f"there is no {file} in {Path.cwd()}; run it where there is, or name its file: path/to/{file.name}:…"


@contextmanager
def _patience(what: str) -> Iterator[None]:
    """Interrupt what doesn't end; only a main thread can be interrupted so."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def give_up(number: int, frame: FrameType | None) -> None:
        raise UsageError(f"{what} has not ended after {PATIENCE:g} seconds", hint=GUARD)

    before = signal.signal(signal.SIGALRM, give_up)
    # Again and again: the code may catch what is raised in it.
    signal.setitimer(signal.ITIMER_REAL, PATIENCE, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _module(place: str) -> ModuleType:
    if place.endswith(".py") or "/" in place:
        return _from_file(Path(place))
    _import_from_here()
    return importlib.import_module(place)


def _import_from_here() -> None:
    """As `python -m` does: what stands in the working directory can be imported."""
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))


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
