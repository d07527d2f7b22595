"""Blobs: stored once for a tree, inside or outside."""

from __future__ import annotations

import hashlib

from ...core.errors import StoreError, UsageError
from ..base import (
    OutsideBlob,
    StoredBlob,
)
from .kit import (
    Place,
    content,
    create,
    creation,
    opened,
    raises,
    step,
)


class Content:
    async def test_content_outside_is_referred_to_and_never_made_up(self, place: Place) -> None:
        async with opened(place) as store:
            data = b"\x00\xff" * 50_000
            there = OutsideBlob(digest=hashlib.sha256(data).hexdigest(), media_type="image/png", size=len(data))
            picture, other = content(data), content(b"inside")
            no = await create(store, create=creation(root="tree"))
            await store.commit(step(no, blobs=(there, other)))
            # it is one of the tree's, known as standing outside, and its bytes are an error, whoever is asked for them
            assert await store.blobs("tree") == sorted((there.digest, other.digest))
            assert await store.outside([there.digest, "f" * 64]) == {there.digest}
            await raises(StoreError, store.blob("tree", there.digest))
            assert await store.outside([]) == set()
            # what is known already stays as it is
            await create(store, "second")
            await store.put_blob("second", picture)
            assert await store.blob("second", picture.digest) == picture
            await store.put_blob("second", there)
            assert await store.blob("second", picture.digest) == picture
            # and it goes with its tree
            await store.delete(no)
            assert await store.blobs("tree") == []

    async def test_the_place_of_what_stands_outside_is_known_from_the_first_that_is_given_on(self, place: Place) -> None:
        async with opened(place) as store:
            await create(store, create=creation(root="tree"))
            await store.put_blob("tree", content(b"\x00\xff" * 50_000))
            stands = await store.place("one")
            assert stands
            assert await store.place("two") == stands
            assert await store.place() == stands
        async with opened(place) as store:
            assert await store.place() == stands

    async def test_content_is_stored_once_for_its_tree(self, place: Place) -> None:
        async with opened(place) as store:
            data = content(b"\x00\xff" * 50_000)
            await create(store, create=creation(root="tree"))
            assert await store.put_blob("tree", data)
            assert await store.put_blob("tree", data)
            assert await store.blobs("tree") == [data.digest]
            assert await store.blob("tree", data.digest) == data
            assert await store.blob("other", data.digest) is None
            assert await store.blobs("other") == []
            empty = content(b"")
            await store.put_blob("tree", empty)
            assert await store.blob("tree", empty.digest) == empty
            await raises(UsageError, store.put_blob("tree", StoredBlob(digest=data.digest, media_type="", data=b"x")))

    async def test_content_is_stored_only_where_a_session_is_that_it_goes_with(self, place: Place) -> None:
        async with opened(place) as store:
            data, large = content(b"x"), content(b"\x00\xff" * 50_000)
            no = await create(store, create=creation(root="tree"))
            other = await create(store, "other", create=creation(root="tree"))
            await store.delete(no)
            assert await store.put_blob("tree", data)
            await store.delete(other)
            assert [await store.put_blob(root, blob) for root in ("tree", "nowhere") for blob in (data, large)] == [False] * 4
            assert (await store.blobs("tree"), await store.blobs("nowhere")) == ([], [])
            assert await store.outside([large.digest]) == set()
