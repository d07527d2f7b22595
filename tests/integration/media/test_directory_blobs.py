"""A directory of content: whole or not there, confined, pinned while it is on its way, and nobody else's."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import stat
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from perdure import DirectoryBlobs, StoreCorrupt, UsageError
from perdure.core.errors import StoreBroken, StoreFull
from perdure.store import blobs as blobs_module
from perdure.store.blobs import BlobStore, Kept

DATA = b"\x00\xffpicture" * 10_000
DIGEST = hashlib.sha256(DATA).hexdigest()


async def opened(path: Path) -> DirectoryBlobs:
    blobs = DirectoryBlobs(path)
    await blobs.found("store-1")
    return blobs


def place(path: Path, digest: str = DIGEST) -> Path:
    return path / digest[:2] / digest


async def test_bytes_are_found_by_their_digest_and_nobody_else_can_read_them(tmp_path: Path) -> None:
    blobs = await opened(tmp_path / "blobs")
    assert isinstance(blobs, BlobStore)
    assert (await blobs.get(DIGEST), await blobs.has(DIGEST), await blobs.list()) == (None, None, [])
    await blobs.put(DIGEST, DATA)
    assert await blobs.get(DIGEST) == DATA
    kept = await blobs.has(DIGEST)
    assert kept is not None
    assert kept.size == len(DATA)
    assert await blobs.list() == [kept]
    modes = [
        stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "blobs", place(tmp_path / "blobs").parent, place(tmp_path / "blobs"))
    ]
    assert modes == [0o700, 0o700, 0o600]
    assert await (await opened(tmp_path / "blobs")).get(DIGEST) == DATA


async def test_a_put_again_writes_nothing_and_makes_it_new(tmp_path: Path) -> None:
    blobs = await opened(tmp_path)
    await blobs.put(DIGEST, DATA)
    os.utime(place(tmp_path), ns=(5, 5))
    before = place(tmp_path).stat().st_ino
    await blobs.put(DIGEST, DATA)
    assert place(tmp_path).stat().st_ino == before
    assert place(tmp_path).stat().st_mtime_ns > 5


@pytest.mark.spec("B-B-105")
@pytest.mark.parametrize("damage", ["altered", "cut", "gone", "a link", "a directory of a shard that is a link"])
async def test_damage_is_an_error_at_reading_and_healed_by_a_put(tmp_path: Path, damage: str) -> None:
    blobs = await opened(tmp_path / "blobs")
    await blobs.put(DIGEST, DATA)
    path = place(tmp_path / "blobs")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(DATA)
    match damage:
        case "altered":
            path.write_bytes(DATA[:-1] + b"x")
        case "cut":
            path.write_bytes(DATA[:100])
        case "gone":
            path.unlink()
        case "a link":
            path.unlink()
            path.symlink_to(elsewhere)
        case _:
            path.unlink()
            path.parent.rmdir()
            (tmp_path / "outside").mkdir()
            path.parent.symlink_to(tmp_path / "outside")
    if damage == "gone":
        assert await blobs.get(DIGEST) is None
    else:
        # a link is not followed, wherever it leads
        with pytest.raises((StoreCorrupt, StoreBroken)):
            await blobs.get(DIGEST)
    if damage.startswith("a directory"):
        with pytest.raises(StoreBroken):
            await blobs.put(DIGEST, DATA)
        assert list((tmp_path / "outside").iterdir()) == []
        return
    await blobs.put(DIGEST, DATA)
    assert await blobs.get(DIGEST) == DATA
    assert elsewhere.read_bytes() == DATA
    assert not path.is_symlink()


async def test_only_digests_are_names(tmp_path: Path) -> None:
    blobs = await opened(tmp_path / "blobs")
    for name in ("", "../" + DIGEST[3:], DIGEST.upper(), DIGEST + "0", "/" + DIGEST[1:], DIGEST[:-1] + "\n", 5):
        wrong: Any = name
        for ask in (blobs.get(wrong), blobs.has(wrong), blobs.put(wrong, DATA), blobs.delete(Kept(wrong, 1, 1))):
            with pytest.raises(UsageError):
                await ask
        with pytest.raises(UsageError):
            async with blobs.pin(wrong):
                pass
    with pytest.raises(UsageError, match="not those"):
        await blobs.put(DIGEST, DATA[1:])
    assert sorted(path.name for path in (tmp_path / "blobs").iterdir()) == ["store"]


async def test_a_directory_belongs_to_one_database_for_ever(tmp_path: Path) -> None:
    many = [DirectoryBlobs(tmp_path) for _ in range(8)]
    answers = await asyncio.gather(*(blobs.found(f"store-{number % 2}") for number, blobs in enumerate(many)), return_exceptions=True)
    assert sum(isinstance(answer, UsageError) for answer in answers) == 4
    [name] = {answer for answer in answers if isinstance(answer, str)}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["store"]
    owner = next(number for number, answer in enumerate(answers) if answer == name) % 2
    await many[0].open(f"store-{owner}", name)
    await many[0].open(f"store-{owner}", "")
    for wrong in ((f"store-{1 - owner}", ""), (f"store-{1 - owner}", name), (f"store-{owner}", "another")):
        with pytest.raises(UsageError):
            await many[0].open(*wrong)


async def test_nothing_is_deleted_that_is_pinned_or_was_put_again(tmp_path: Path) -> None:
    blobs, other = await opened(tmp_path), await opened(tmp_path)
    await blobs.put(DIGEST, DATA)
    kept = await blobs.has(DIGEST)
    assert kept is not None
    async with other.pin(DIGEST):
        assert not await blobs.delete(kept)
    await other.put(DIGEST, DATA)
    assert not await blobs.delete(kept)
    seen = await blobs.has(DIGEST)
    assert seen is not None
    assert await blobs.delete(seen)
    assert not await blobs.delete(seen)
    assert await blobs.get(DIGEST) is None


async def test_pages_go_through_all_of_it_once_and_leave_out_what_is_new(tmp_path: Path) -> None:
    blobs = await opened(tmp_path)
    contents = [b"%d" % number for number in range(40)]
    digests = sorted(hashlib.sha256(data).hexdigest() for data in contents)
    for data in contents:
        await blobs.put(hashlib.sha256(data).hexdigest(), data)
    (tmp_path / "ab").mkdir(exist_ok=True)
    (tmp_path / "ab" / "README").write_text("not content")
    found: list[str] = []
    while page := await blobs.list(after=found[-1] if found else "", limit=7):
        found += [kept.digest for kept in page]
    assert found == digests
    for digest in digests[::2]:
        os.utime(place(tmp_path, digest), ns=(5, 5))
    assert [kept.digest for kept in await blobs.list(older_than=60)] == digests[::2]


@pytest.mark.parametrize(("number", "error"), [(errno.ENOSPC, StoreFull), (errno.EIO, StoreBroken)])
async def test_a_disk_that_fails_keeps_nothing_half(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, error: Any) -> None:
    blobs = await opened(tmp_path)
    real, calls = os.fsync, iter([False, True])

    def failing(file: int) -> None:
        # the directory of the shard is made, then the content fails
        if next(calls, False):
            raise OSError(number, os.strerror(number))
        real(file)

    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(error):
        await blobs.put(DIGEST, DATA)
    assert await blobs.get(DIGEST) is None
    assert list(place(tmp_path).parent.iterdir()) == []
    await blobs.put(DIGEST, DATA)
    assert await blobs.get(DIGEST) == DATA


async def test_what_was_left_half_done_goes_unless_somebody_is_at_it(tmp_path: Path) -> None:
    blobs = await opened(tmp_path)
    await blobs.put(DIGEST, DATA)
    left = place(tmp_path).parent / ".put-abc"
    left.write_bytes(b"half")
    assert [kept.digest for kept in await blobs.list()] == [DIGEST]
    async with blobs.pin(DIGEST):
        assert await blobs.tidy() == 0
    assert await blobs.tidy() == 1
    assert not left.exists()
    assert await blobs.get(DIGEST) == DATA


@pytest.mark.spec("B-B-110", "B-B-119")
async def test_bytes_that_read_otherwise_than_they_were_written_are_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blobs = await opened(tmp_path)
    written = blobs_module._write

    def flipping(file: int, data: bytes, *more: Any) -> None:
        written(file, data[:-1] + b"x", *more)

    monkeypatch.setattr(blobs_module, "_write", flipping)
    with pytest.raises(StoreBroken, match="reads otherwise"):
        await blobs.put(DIGEST, DATA)
    assert await blobs.has(DIGEST) is None
    assert list(place(tmp_path).parent.iterdir()) == []


async def test_thousands_of_pins_take_no_more_descriptors_than_there_are_directories(tmp_path: Path) -> None:
    blobs = await opened(tmp_path)
    await blobs.put(DIGEST, DATA)
    kept = await blobs.has(DIGEST)
    assert kept is not None
    before = len(os.listdir("/proc/self/fd"))
    async with AsyncExitStack() as pins:
        for number in range(2000):
            await pins.enter_async_context(blobs.pin(hashlib.sha256(b"%d" % number).hexdigest()))
        await pins.enter_async_context(blobs.pin(DIGEST))
        assert len(os.listdir("/proc/self/fd")) <= before + 256
    assert len(os.listdir("/proc/self/fd")) == before
    async with blobs.pin(DIGEST):
        async with blobs.pin(DIGEST):
            pass
        assert not await blobs.delete(kept)
    assert await blobs.delete(kept)
