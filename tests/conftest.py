"""What every test shares."""

from __future__ import annotations

import signal

import pytest


def pytest_configure() -> None:
    # A shell that begins these tests in the background has them, and every program that they begin, ignore Ctrl-C.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="run the long form: tests marked `long` too")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--long"):
        skip = pytest.mark.skip(reason="the long form: make test-all")
        for item in items:
            if "long" in item.keywords:
                item.add_marker(skip)
