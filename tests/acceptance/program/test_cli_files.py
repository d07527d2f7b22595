"""Files that are made of a store, or taken into one: journals as lines, conversations from elsewhere, and content that nothing needs."""

from __future__ import annotations

import json
import signal

from tests.integration.media.pictures import big_png

from .conftest import Program

SHOP = "agents_here:shop"


def test_every_session_is_written_into_a_file_of_lines_that_goes_on_and_heals(perdure: Program) -> None:
    perdure("run", SHOP, "hello", "--session", "one")
    perdure("run", SHOP, "hello", "--session", "two")
    told = perdure.json("consume", "out")
    versions = {info["session_id"]: info["version"] for info in perdure.json("sessions")}
    assert (told["sessions"], told["entries"]) == (2, sum(versions.values()))
    file = perdure.directory / "out" / "one.jsonl"
    assert [json.loads(line).get("seq") for line in file.read_text().splitlines()] == [None, *range(1, versions["one"] + 1)]
    assert "nothing new" in perdure("consume", "out")
    perdure("note", "two", "it rains")
    assert "1 entry of 1 session into out" in perdure("consume", "out")
    # A file that is gone comes back, though nothing happens in its session any more.
    before = file.read_bytes()
    file.unlink()
    perdure("consume", "out")
    assert not file.exists()
    perdure("consume", "out", "--heal")
    assert file.read_bytes() == before
    (perdure.directory / "file").touch()
    perdure("consume", "file", code=2)
    assert "can't be used" in perdure.errors
    # Another directory is another consumer.
    assert perdure.json("consume", "out2")["sessions"] == 2


def test_lines_are_written_as_they_come_until_sigterm(perdure: Program) -> None:
    perdure("run", SHOP, "hello", "--session", "one")
    following = perdure.start("consume", "out", "--follow")
    file = perdure.directory / "out" / "one.jsonl"
    perdure.until(file.exists)
    perdure("note", "one", "it rains")
    perdure.until(lambda: "it rains" in file.read_text())
    following.send_signal(signal.SIGTERM)
    assert "of 1 session into out" in perdure.end(following)


def test_a_handler_of_the_program_around_it_stays_while_lines_are_written(perdure: Program) -> None:
    perdure("run", SHOP, "hello", "--session", "one")
    around = """
import pathlib, signal
signal.signal(signal.SIGTERM, lambda *_: pathlib.Path("heard").touch())
signal.signal(signal.SIGINT, signal.default_int_handler)
"""
    following = perdure.start_anew("consume", "out", "--follow", program=around)
    file = perdure.directory / "out" / "one.jsonl"
    perdure.until(file.exists)
    # A second piece is written once the first is counted.
    perdure("note", "one", "it rains")
    perdure.until(lambda: "it rains" in file.read_text())
    following.send_signal(signal.SIGTERM)
    perdure.until((perdure.directory / "heard").exists)
    following.send_signal(signal.SIGINT)
    assert "of 1 session into out" in perdure.end(following)


def test_a_conversation_that_another_system_kept_is_gone_on_with(perdure: Program) -> None:
    said = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "Good day."}]
    (perdure.directory / "list.json").write_text(json.dumps([{"role": "system", "content": "Be kind."}, *said]))
    told = perdure.json(
        "import", "list.json", "--from", "openai", "--session", "old", "--agent", "shop", "--owner", "acme", "--label", "from=before"
    )
    assert (told["sessions"], told["instructions"]) == (["old"], "Be kind.")
    info = perdure.json("describe", "old")
    assert (info["agent"], info["owner"], info["labels"], info["title"]) == ("shop", "acme", {"from": "before"}, "hello")
    assert perdure("run", SHOP, "and now?", "--session", "old") == "done: and now?\n"
    (perdure.directory / "request.json").write_text(json.dumps({"model": "x", "system": "Be brief.", "messages": said}))
    perdure("import", "request.json", "--from", "anthropic", "--session", "other", "--title", "Another")
    assert "Be brief." in perdure.errors
    assert perdure.json("describe", "other")["title"] == "Another"
    perdure("import", "list.json", "--from", "openai", "--session", "old", code=3)
    perdure("import", "list.json", "--from", "openai", code=2)
    assert "--session ID" in perdure.errors
    perdure("import", "list.json", "--owner", "acme", code=2)
    # Without --from the file is one that export wrote, in lines.
    for form in (None, 2):
        (perdure.directory / "list.json").write_text(json.dumps(said, indent=form))
        perdure("import", "list.json", code=3)
        assert "--from openai" in perdure.errors
        assert "export it again" not in perdure.errors
    open_call = {"role": "assistant", "tool_calls": [{"id": "c1", "function": {"name": "pay", "arguments": "{}"}}]}
    (perdure.directory / "open.json").write_text(json.dumps([said[0], open_call]))
    perdure("import", "open.json", "--from", "openai", "--session", "open", code=2)
    assert "the calls ['c1'] of message 1 of the conversation, its last, have no response" in perdure.errors
    (perdure.directory / "broken.json").write_text("[")
    perdure("import", "broken.json", "--from", "openai", "--session", "x", code=2)
    (perdure.directory / "broken.json").write_text('[{"role": "assistant", "content": "first"}]')
    perdure("import", "broken.json", "--from", "openai", "--session", "x", code=2)
    assert perdure("verify").endswith("nothing is wrong\n")


def test_items_of_the_responses_api_are_gone_on_with(perdure: Program) -> None:
    items = [
        {"role": "user", "content": "refund A-1"},
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "secret"},
        {"type": "function_call", "call_id": "c1", "name": "refund", "arguments": '{"order": "A-1"}'},
        {"type": "function_call_output", "call_id": "c1", "output": "paid"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "It is done."}]},
    ]
    (perdure.directory / "items.json").write_text(json.dumps(items))
    perdure("import", "items.json", "--from", "openai", "--session", "old", code=2)
    assert "--from openai-responses" in perdure.errors
    perdure("import", "items.json", "--from", "openai-responses", "--session", "old")
    lines = [line.strip() for line in perdure("show", "old").splitlines()]
    assert lines[-4:] == ["user: refund A-1", '· refund(order="A-1")', "= paid", "It is done."]
    (perdure.directory / "request.json").write_text(json.dumps({"model": "x", "instructions": "Be brief.", "input": items}))
    assert perdure.json("import", "request.json", "--from", "openai-responses", "--session", "other")["instructions"] == "Be brief."
    assert perdure("run", SHOP, "and now?", "--session", "old") == "done: and now?\n"
    perdure("import", "items.json", "--from", "openai-responses", "--session", "open", "--agent", "shop")
    assert perdure("verify").endswith("nothing is wrong\n")


def test_a_conversation_from_elsewhere_is_shown_with_its_calls(perdure: Program) -> None:
    call = {"id": "c1", "function": {"name": "refund", "arguments": '{"order": "A-1"}'}}
    said = [
        {"role": "user", "content": "refund A-1"},
        {"role": "assistant", "content": "At once.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "paid"},
    ]
    (perdure.directory / "list.json").write_text(json.dumps([*said, {"role": "assistant", "content": "It is done."}]))
    perdure("import", "list.json", "--from", "openai", "--session", "old")
    lines = [line.strip() for line in perdure("show", "old").splitlines()]
    assert lines[-5:] == ["user: refund A-1", "At once.", '· refund(order="A-1")', "= paid", "It is done."]
    [turn] = perdure.json("show", "old")["turns"]
    assert [(item["type"], item.get("result")) for item in turn["items"] if item["type"] == "response"] == [("response", "paid")]


def test_what_can_not_be_taken_in_makes_no_store(perdure: Program) -> None:
    perdure("run", SHOP, "hello", "--session", "s")
    lines = perdure("export", "s").splitlines(keepends=True)
    (perdure.directory / "whole.jsonl").write_text("".join(lines))
    (perdure.directory / "cut.jsonl").write_text("".join(lines[:-2]))
    (perdure.directory / "other.jsonl").write_text("".join(lines).replace("hello", "jello"))
    (perdure.directory / "open.json").write_text('[{"role": "assistant", "content": "first"}]')
    for file, code, *options in (
        ("cut.jsonl", 3),
        ("other.jsonl", 3),
        ("nowhere.jsonl", 2),
        ("whole.jsonl", 2, "--session", "a\tb"),
        ("whole.jsonl", 2, "--session", "x" * 1200),
        ("open.json", 2, "--from", "openai", "--session", "x"),
    ):
        perdure("import", file, *options, "--db", "new.db", code=code)
        assert [path.name for path in perdure.directory.iterdir() if path.name.startswith("new.db")] == []
    perdure("import", "whole.jsonl", "--db", "new.db")
    assert perdure("verify", "--db", "new.db").endswith("nothing is wrong\n")


def test_content_that_nothing_refers_to_is_swept(perdure: Program) -> None:
    db = "sqlite:///agents.db?blobs=content"
    (perdure.directory / "large.png").write_bytes(big_png(100_000))
    perdure("run", SHOP, "look", "--session", "s", "--attach", "large.png", "--db", db)
    orphan = perdure.directory / "content" / "ab" / ("ab" * 32)
    orphan.parent.mkdir(exist_ok=True)
    orphan.write_bytes(b"left by a crash")
    assert perdure.json("sweep", "--db", db)["removed"] == 0
    assert perdure.json("sweep", "--older-than", "0m", "--db", db) == {"removed": 1, "size": 15, "pinned": 0, "half_done": 0}
    assert not orphan.exists()
    assert perdure("verify", "--db", db).endswith("nothing is wrong\n")
    perdure("sweep", "--older-than", "soon", "--db", db, code=2)
    perdure("run", SHOP, "hello", "--db", "plain.db")
    perdure("sweep", "--db", "plain.db", code=2)
    assert "blobs=" in perdure.errors
