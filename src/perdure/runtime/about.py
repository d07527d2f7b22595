"""What a session says about itself: whose it is, its title, labels and metadata, as callers give them and as the journal holds them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from ..core import canonical
from ..core.checkpoint import ABOUT_LIMIT, about_size
from ..core.errors import LimitExceeded, UsageError
from ..core.messages import TITLE_LENGTH
from ..core.records import ALL_TOOLS, Identity, Metadata, ToolPolicy
from ..store.base import StoredBlob

__all__ = [
    "METADATA_INLINE",
    "METADATA_KEYS",
    "METADATA_KEY_LIMIT",
    "METADATA_LIMIT",
    "NAME_LIMIT",
    "REASON_LIMIT",
    "check_about",
    "check_identity",
    "check_labels",
    "check_owner",
    "check_text",
    "check_title",
    "check_tools",
    "keep_metadata",
    "read_metadata",
]

NAME_LIMIT = 1024
"""The longest name of somebody who acts or writes (bytes)."""

REASON_LIMIT = 32 * 1024
"""The longest reason that somebody gives (bytes)."""

METADATA_LIMIT = 256 * 1024
"""The most that a session's metadata may have (bytes of its canonical form)."""

METADATA_KEYS = 256
"""The most names in a session's metadata."""

METADATA_KEY_LIMIT = 256
"""The longest name in a session's metadata (bytes)."""

METADATA_INLINE = 2 * 1024
"""Metadata that is longer stands in the blob store, so that the checkpoint stays small (bytes)."""


def check_text(value: Any, what: str, limit: int = NAME_LIMIT) -> str:
    """Plain text of at most ``limit`` bytes. Raises `UsageError`."""
    if not isinstance(value, str):
        raise UsageError(f"{what} must be text, not {type(value).__name__}")
    text: str = canonical.check(value, what)
    if len(text.encode()) > limit:
        raise UsageError(f"{what} is too long", hint=f"at most {limit} bytes")
    return text


def check_owner(owner: Any) -> str:
    """Somebody whom a session can belong to. Raises `UsageError`."""
    if not _check_line(owner, "owner").strip():
        raise UsageError("owner is blank", hint="name whom the session belongs to, or leave owner= out")
    return str(owner)


def _check_line(value: Any, what: str) -> str:
    """Text that reads as it is wherever it is shown. Raises `UsageError`."""
    text = check_text(value, what, ABOUT_LIMIT)
    if not text.isprintable():
        raise UsageError(f"{text!r:.100} can't be {what}", hint="printable text, without line breaks and control characters")
    return text


def check_identity(identity: Any) -> Identity:
    """An identity that can be kept. Raises `UsageError`; one that is given names an owner."""
    if not isinstance(identity, Identity):
        raise UsageError(f"identity must be an Identity, not {type(identity).__name__}")
    for field in identity.__struct_fields__:
        _check_line(getattr(identity, field), f"identity.{field}")
    if not identity.owner.strip():
        raise UsageError("identity.owner is blank", hint="name whom the session belongs to, or leave identity= out")
    return identity


def check_labels(labels: Any) -> dict[str, str]:
    """Labels that can be kept. Raises `UsageError`."""
    if not isinstance(labels, dict):
        raise UsageError(f"labels must be a dict, not {type(labels).__name__}")
    for label, value in labels.items():
        check_text(label, "a label", ABOUT_LIMIT)
        check_text(value, f"the label {label[:40]!r}", ABOUT_LIMIT)
        if len(label) + len(value) > 1024:
            raise UsageError(f"the label {label[:40]!r} is too long", hint="at most 1,024 characters with its value")
    return dict(labels)


def check_title(title: Any) -> str:
    """A title, cut to `TITLE_LENGTH`. Raises `UsageError`."""
    return check_text(title, "title", 1024 * 1024)[:TITLE_LENGTH]


def check_tools(tools: Any) -> ToolPolicy:
    """A tool policy that can be kept. Raises `UsageError`."""
    if not isinstance(tools, ToolPolicy):
        raise UsageError(f"tools must be a ToolPolicy, not {type(tools).__name__}", hint='ToolPolicy(never=("refund",))')
    for field in tools.__struct_fields__:
        names = getattr(tools, field)
        if names is None and field == "only":
            continue
        if not isinstance(names, tuple | list | set | frozenset) or not all(isinstance(name, str) and name for name in names):
            raise UsageError(f"tools.{field} must be names of tools", hint='("refund",)')
        for name in names:
            check_text(name, f"tools.{field}")
    kept = ToolPolicy(
        only=None if tools.only is None else tuple(sorted(set(tools.only))),
        never=tuple(sorted(set(tools.never))),
        ask=tuple(sorted(set(tools.ask))),
    )
    if (size := len(canonical.encode(kept))) > ABOUT_LIMIT:
        raise UsageError(f"the tool policy has {size} bytes", hint=f"at most {ABOUT_LIMIT}, with title, labels and identity")
    return ALL_TOOLS if kept == ALL_TOOLS else kept


def check_about(identity: Identity, labels: dict[str, str], title: str, tools: ToolPolicy = ALL_TOOLS) -> None:
    """Raises `UsageError` where they are too long together."""
    size = about_size(identity, labels, title, tools)
    if size > ABOUT_LIMIT:
        raise UsageError(f"title, labels, identity and tool policy have {size} bytes", hint=f"at most {ABOUT_LIMIT} together")


def keep_metadata(values: Any) -> tuple[Metadata, tuple[StoredBlob, ...]]:
    """Metadata as the journal holds it, and what is set aside.

    Raises `UsageError` for what is no map of names to JSON values, and `LimitExceeded` (``metadata``, ``metadata_keys``,
    ``metadata_key``) for one that is too long.
    """
    if not isinstance(values, dict):
        raise UsageError(f"metadata must be a dict, not {type(values).__name__}")
    checked: dict[str, Any] = canonical.check(values, "metadata")
    if len(checked) > METADATA_KEYS:
        raise LimitExceeded(f"the metadata has {len(checked)} names", hint=f"at most {METADATA_KEYS}", limit="metadata_keys")
    for name in checked:
        if not name.strip() or len(name.encode()) > METADATA_KEY_LIMIT:
            raise LimitExceeded(
                f"{name[:40]!r} can't be a name in metadata",
                hint=f"1 to {METADATA_KEY_LIMIT} bytes that are not blank",
                limit="metadata_key",
            )
    data = canonical.encode(checked)
    if len(data) > METADATA_LIMIT:
        raise LimitExceeded(f"the metadata has {len(data)} bytes", hint=f"at most {METADATA_LIMIT} are kept", limit="metadata")
    if len(data) <= METADATA_INLINE:
        return Metadata(values=canonical.decode(data)), ()
    blob = StoredBlob(digest=canonical.digest(data), media_type="application/json", data=data)
    return Metadata(digest=blob.digest), (blob,)


async def read_metadata(metadata: Metadata, fetch: Callable[[str], Awaitable[bytes]]) -> dict[str, Any]:
    """The map itself. Raises `StoreCorrupt` if what was set aside is missing."""
    if not metadata.digest:
        return metadata.values
    values: dict[str, Any] = canonical.decode(await fetch(metadata.digest))
    return values
