"""The demonstration installs what the library needs, in the versions that everything is tested with, and nothing else."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import requires
from pathlib import Path

ROOT = Path(__file__).parents[2]


def locked(name: str) -> dict[str, str]:
    """Every package of a lock file with its version and hashes."""
    text = (ROOT / name).read_text()
    return dict(re.findall(r"^([a-z0-9-]+)(==.*(?:\n +--hash=.*)+)", text, re.MULTILINE))


def needed(package: str) -> set[str]:
    """A package and all that it needs without extras."""
    found = {package}
    for line in requires(package) or []:
        name = re.match(r"[A-Za-z0-9._-]+", line)
        if name and "extra ==" not in line and name[0].lower() in locked("requirements-dev.txt"):
            found |= needed(name[0].lower())
    return found


def test_the_demo_needs_only_what_the_library_does_and_has_it_from_the_same_lock() -> None:
    short, whole = locked("requirements.txt"), locked("requirements-dev.txt")
    own = {re.split(r"[>=<\[]", line)[0] for line in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]}
    assert set(short) == {name.replace("_", "-") for package in own for name in needed(package)}
    assert {name: whole[name] for name in short} == short
