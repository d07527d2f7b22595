"""Who sits here."""

from __future__ import annotations

import os

__all__ = ["me"]


def me() -> str:
    """The name that decisions are recorded under: $USER, or what the system calls the user of this process."""
    if name := os.environ.get("USER") or os.environ.get("LOGNAME"):
        return name
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        # Containers run under numbers that nobody named.
        return f"uid {os.getuid()}"
