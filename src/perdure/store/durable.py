"""What a name in a directory needs to outlive a power cut."""

from __future__ import annotations

import os

__all__ = ["sync"]


def sync(path: str | os.PathLike[str]) -> None:
    """Wait until a file, or which names a directory has, is on the disk. Raises `OSError`."""
    opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
