"""Images, sounds and files as providers take them."""

from __future__ import annotations

import base64

from ..core.errors import UsageError
from ..core.messages import Blob, described
from .base import ModelRequest

__all__ = ["DOCUMENTS", "IMAGES", "as_address", "file_name", "in_base64", "text_in"]

IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""The images that all of them take."""

DOCUMENTS = {
    "application/pdf": ".pdf",
    "application/rtf": ".rtf",
    "application/msword": ".doc",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": ".docx",
    "application/vnd.oasis.opendocument.text": ".odt",
    "application/vnd.ms-powerpoint": ".ppt",
    "application/vnd.openxmlformats-officedocument.presentationml.presentation": ".pptx",
    "application/vnd.ms-excel": ".xls",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": ".xlsx",
}
"""Files that are no text and can be read as one, and how their names end."""

_TEXT = frozenset(
    {"application/json", "application/xml", "application/yaml", "application/toml", "application/x-sh", "application/javascript"}
)
_ENDINGS = {"application/json": ".json", "text/csv": ".csv", "text/html": ".html", "text/markdown": ".md"}


def data_of(request: ModelRequest, blob: Blob) -> bytes:
    """The bytes that a part stands for. Raises `UsageError` if the request was made without them."""
    data = request.content.get(blob.digest)
    if data is None or len(data) != blob.size:
        raise UsageError(f"the request holds no content for {described(blob)}", hint="ModelRequest.content maps digests to bytes")
    return data


def in_base64(request: ModelRequest, blob: Blob) -> str:
    """The bytes that a part stands for, in base64."""
    return base64.b64encode(data_of(request, blob)).decode()


def as_address(request: ModelRequest, blob: Blob) -> str:
    """The bytes that a part stands for, as a ``data:`` address."""
    return f"data:{blob.mime_type};base64,{in_base64(request, blob)}"


def text_in(request: ModelRequest, blob: Blob) -> str | None:
    """The text of a file, or None if it is none."""
    if not (blob.mime_type.startswith("text/") or blob.mime_type in _TEXT):
        return None
    try:
        return data_of(request, blob).decode("utf-8-sig")
    except UnicodeDecodeError:
        return None


def file_name(blob: Blob) -> str:
    """What a file is called where it must be called something: providers go by the ending."""
    return blob.name or "file" + (DOCUMENTS.get(blob.mime_type) or _ENDINGS.get(blob.mime_type, ".txt"))
