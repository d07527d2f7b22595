"""Salts: what no two entries share, in whatever thread or process they are written."""

import os
import threading

from perdure.core.journal import SALT_BYTES
from perdure.runtime.salts import new_salt


def test_no_two_entries_get_one_salt_in_whatever_thread_they_are_sealed() -> None:
    given: list[bytes] = []
    threads = [threading.Thread(target=lambda: given.extend([new_salt() for _ in range(2_000)])) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(set(given)) == 8_000
    assert {len(salt) for salt in given} == {SALT_BYTES}


def test_a_process_that_was_forked_gives_other_salts_than_the_one_it_comes_from() -> None:
    new_salt()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, b"".join(new_salt() for _ in range(100)))
        os._exit(0)
    os.waitpid(child, 0)
    theirs = os.read(reading, 100 * SALT_BYTES)
    os.close(reading)
    os.close(writing)

    ours = {new_salt() for _ in range(100)}
    assert len(theirs) == 100 * SALT_BYTES
    assert ours.isdisjoint(theirs[start : start + SALT_BYTES] for start in range(0, len(theirs), SALT_BYTES))
