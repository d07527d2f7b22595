"""A tool's result with images, sounds and files in it: the data that stands for it, and the media beside."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgspec

from ..core import canonical
from ..core.errors import InvalidMedia, NotCanonical
from ..core.media import Media, check_total
from ..core.messages import described
from .schema import is_light, plain, unkept

__all__ = ["WithMedia", "kept", "parted"]


class WithMedia(msgspec.Struct, frozen=True):
    """Plain JSON data in which words stand for each of the ``media``, in their order."""

    response: Any
    media: tuple[Media, ...]


def kept(value: Any) -> Any:
    """A result as it can be kept: plain JSON data, as `WithMedia` where there are media in it, in lists and objects too.

    Raises `ResultInvalid`.
    """
    if is_light(value):
        # Most results are. What JSON can't hold in one is told as of any other.
        with suppress(NotCanonical):
            return canonical.check(value)
    try:
        value, media = parted(value)
    except InvalidMedia as error:
        raise unkept(error.message) from error
    return WithMedia(plain(value), media) if media else plain(value)


def parted(value: Any) -> tuple[Any, tuple[Media, ...]]:
    """A value with words in place of the media in it, and those. Raises `MediaTooLarge`."""
    if isinstance(value, WithMedia):
        return value.response, value.media
    media: list[Media] = []
    value = _without(value, media, {})
    check_total(media)
    return value, tuple(media)


def _without(value: Any, media: list[Media], seen: dict[int, Any], depth: int = 0) -> Any:
    """``seen``: what came of lists and objects by identity. Few of them can stand for more than there is time to look at."""
    kind = type(value)
    if kind is str:
        return value
    if isinstance(value, Media):
        media.append(value)
        return described(value.blob)
    if (kind is not dict and kind is not list and kind is not tuple) or depth > canonical.MAX_DEPTH:
        return value
    if id(value) not in seen:
        # What stands in itself is looked at once, and refused by whoever writes it.
        seen[id(value)] = value
        changed: Any = None
        for place, item in value.items() if kind is dict else enumerate(value):
            new = _without(item, media, seen, depth + 1)
            if new is not item:
                if changed is None:
                    changed = dict(value) if kind is dict else list(value)
                changed[place] = new
        if changed is not None:
            seen[id(value)] = changed
    return seen[id(value)]
