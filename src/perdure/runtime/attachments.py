"""Images, sounds and files of a session, stored ahead of what refers to them."""

from __future__ import annotations

import re

from ..core.errors import InvalidMedia, InvalidMessage, UsageError
from ..core.media import Media
from ..core.messages import Blob, Part, media_of
from ..store.outside import GRACE, Swept, WithBlobs
from .context import stored_content
from .halting import check_not_halted
from .perform import stored_media
from .scope import Scope, missing, put_away

__all__ = ["Attachments"]

SHA256 = re.compile("[0-9a-f]{64}")


class Attachments(Scope):
    """The part of `Sessions` that is about media."""

    async def attach(self, session_id: str, media: Media) -> Blob:
        """Store an image, sound or file in a session ahead of the message that refers to it; send the part that this returns.

        Durable when this returns, and idempotent. Bytes that no message refers to are kept until their session is deleted.
        Raises `SessionNotFound`, `SessionArchived` and `SessionHalted`.
        """
        if not isinstance(media, Media):
            raise InvalidMedia(f"{type(media).__name__} can't be attached", hint="pass what image(), audio() or file() returns")
        head = await self._head(session_id)
        if head.row.status == "archived":
            raise put_away(session_id)
        check_not_halted(head.row)
        for blob in stored_media([media]):
            if not await self._runtime.store.put_blob(head.row.root, blob):
                raise missing(session_id, deleted=True)
        return media.blob

    async def content(self, session_id: str, blob: Blob) -> bytes:
        """The bytes that a part of a session's messages stands for. Raises `StoreCorrupt` if they are missing or were altered."""
        if not isinstance(blob, Blob) or not SHA256.fullmatch(blob.digest):
            raise UsageError("content is named by a Blob", hint="as a message of the session's history holds it")
        return await stored_content(self._runtime.store, (await self._head(session_id)).row.root, blob.digest)

    async def sweep(self, *, grace: float = GRACE) -> Swept:
        """Remove content outside of the database that nothing refers to, and what was left half done.

        What was put less than ``grace`` seconds ago stays, and so does what somebody is about to refer to. Raises `UsageError` if this
        store keeps nothing outside, and for one owner's sessions: content is not anybody's.
        """
        if self._owner is not None:
            raise UsageError("a sweep looks at the content of all sessions", hint="runtime.sessions.sweep()")
        if not isinstance(self._runtime.store, WithBlobs):
            raise UsageError("this store keeps nothing outside of its database", hint="perdure.open(…, blobs=DirectoryBlobs(…)) would")
        return await self._runtime.store.sweep(grace=grace)

    async def _check_blobs(self, session_id: str, parts: tuple[Part, ...]) -> None:
        """Raises `InvalidMessage` for a blob that the session's tree doesn't hold, or that is not what it is said to be."""
        wanted = [blob for part in parts for blob in media_of(part)]
        head = await self._runtime.store.load(session_id) if wanted else None
        head = None if head is None else self._mine(head)
        for part in wanted:
            known = SHA256.fullmatch(part.digest) is not None and head is not None
            blob = await self._runtime.store.blob(head.row.root, part.digest) if known and head is not None else None
            if blob is None or Media(blob.data, mime_type=part.mime_type, name=part.name).blob != part:
                raise InvalidMessage(
                    f"{session_id!r} holds no content {part.digest[:12]!r} of {part.size} bytes",
                    hint="a Blob refers to what is stored already: sessions.attach stores it, or send what perdure.file(…) returns",
                )
