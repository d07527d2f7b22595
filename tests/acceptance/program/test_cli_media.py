"""Files on the command line."""

from __future__ import annotations

from tests.integration.media.pictures import big_png, png

from .conftest import Program

SHOP = "agents_here:shop"


def test_files_are_sent_with_a_message_and_shown_by_name_type_and_size(perdure: Program) -> None:
    (perdure.directory / "cat.png").write_bytes(png())
    (perdure.directory / "notes.md").write_text("# hi")
    command = ("run", SHOP, "hello", "--attach", "cat.png", "--attach", "notes.md", "--session", "s", "--submission", "m")
    assert perdure(*command) == "done: hello\n"
    assert perdure(*command) == "done: hello\n"
    shown = perdure("show", "s")
    assert f"[cat.png, image/png, {len(png())} B]" in shown
    assert "[notes.md, text/markdown, 4 B]" in shown
    perdure("send", "s", "more", "--attach", "cat.png")
    assert perdure("verify").endswith("nothing is wrong\n")


def test_what_cannot_be_sent_is_wrong_usage_and_makes_no_session(perdure: Program) -> None:
    (perdure.directory / "empty.png").write_bytes(b"")
    for name, said in (("none.png", "No such file"), ("empty.png", "is empty"), (".", "Is a directory")):
        perdure("run", SHOP, "hello", "--attach", name, "--session", "s", code=2)
        assert said in perdure.errors
    assert not perdure.db.exists()


def test_the_address_of_a_store_says_where_its_large_content_is(perdure: Program) -> None:
    (perdure.directory / "big.png").write_bytes(big_png(200_000))
    url = "sqlite:///other.db?blobs=media"
    perdure("run", SHOP, "hello", "--attach", "big.png", "--session", "s", "--db", url)
    assert [path.stat().st_size for path in (perdure.directory / "media").glob("*/*")] == [200_000]
    assert perdure("verify", "--db", url).endswith("nothing is wrong\n")
    perdure("verify", "--db", "other.db", code=1)
    perdure("show", "s", "--db", "sqlite:///other.db?cache=1", code=2)
