"""Programs of the demo that must not outlive it."""

from __future__ import annotations

import os
import threading

__all__ = ["tether"]


def tether() -> None:
    """End this process when its standard input does: whoever started it holds the other end, and lets go when it dies."""

    def wait() -> None:
        while os.read(0, 1024):
            pass
        os._exit(1)

    threading.Thread(target=wait, name="tether", daemon=True).start()
