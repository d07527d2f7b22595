"""Starts a program of the demo so that it can't outlive the demo: ``python tether.py MODULE OPTIONS…``.

Whoever starts it holds the other end of its standard input, and lets go when it dies, whatever it dies of. It is run by its path, and
imports nothing of ours, so that it listens from the first moment: the program itself takes a second to load, and much more on a busy
machine.
"""

from __future__ import annotations

import os
import sys
import threading

__all__ = ["main"]


def main() -> None:
    """Run a module as ``python -m`` would, and end this process when its standard input ends."""

    def wait() -> None:
        while os.read(0, 1024):
            pass
        os._exit(1)

    threading.Thread(target=wait, name="tether", daemon=True).start()
    # The directory of this file is no place to import from: it would hide modules of other packages.
    if sys.path and sys.path[0] == os.path.dirname(os.path.abspath(__file__)):
        sys.path[0] = os.getcwd()
    import runpy

    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
