"""Transcripts from the command line: rewritten, restored, compared, forked, redacted; a tree of branches, and what was done beyond."""

from __future__ import annotations

from pathlib import Path

from .conftest import Program

SHOP = "agents_here:shop"


def test_a_transcript_is_rewritten_compared_and_restored(perdure: Program, tmp_path: Path) -> None:
    perdure("run", SHOP, "hello", "--session", "s")
    before = perdure.json("show", "s")["session"]["revision"]
    edit = perdure.json("rewrite", "s", "0", "1", "hello there", "--expected", before, "--reason", "polite", "--actor", "ann")
    assert (edit["parent"], edit["count"]) == (before, 2)
    listed = perdure.json("revisions", "s")
    assert listed["head"] == edit["revision"]
    assert [(item["reason"], item["actor"]) for item in listed["revisions"]] == [("polite", "ann")]
    shown = perdure("diff", "s", before[:12])
    assert "- user: hello\n" in shown
    assert "+ user: hello there\n" in shown
    assert "[0, 1) rewritten by ann  polite" in perdure("revisions", "s")
    assert "messages [0, 1) were rewritten by ann: polite" in perdure("show", "s")
    assert perdure.json("restore", "s", before[:12])["revision"] == before
    file = tmp_path / "messages.json"
    file.write_text('[{"role": "user", "content": "a"}, {"role": "assistant", "parts": [{"type": "text", "content": "b"}]}]')
    assert perdure.json("rewrite", "s", "0", "2", "--messages", str(file))["count"] == 2
    perdure("rewrite", "s", "0", "1", "x", "--expected", before, code=3)
    perdure("rewrite", "s", "0", "9", "x", code=2)
    perdure("restore", "s", "f" * 64, code=3)
    file.write_text("{")
    perdure("rewrite", "s", "0", "2", "--messages", str(file), code=2)


def test_branches_are_shown_as_a_tree(perdure: Program) -> None:
    perdure("run", SHOP, "hello", "--session", "s")
    made = perdure.json("fork", "s", "--at", "2", "--session", "left")
    assert (made["session_id"], made["cut"], made["parent"]) == ("left", 2, "s")
    assert "1 message, 0 of them from left" in perdure("fork", "left", "something else", "--at", "0", "--session", "deeper")
    tree = perdure.json("show", "deeper", "--tree")
    assert [(branch["session_id"], branch["depth"]) for branch in tree] == [("s", 0), ("left", 1), ("deeper", 2)]
    assert "    deeper" in perdure("show", "s", "--tree")
    assert "begins with the first 2 messages of s" in perdure("show", "left")
    perdure("fork", "s", "--session", "deeper", code=3)
    perdure("fork", "s", "--at", "7", code=2)


def test_content_is_removed_from_every_view_and_from_the_file(perdure: Program) -> None:
    perdure("run", SHOP, "my secret is xyzzy-4711", "--session", "s")
    assert "xyzzy-4711" in perdure("show", "s")
    assert "entries is gone" in perdure("redact", "s", "0", "1", "--vacuum", "--reason", "asked for")
    assert "xyzzy-4711" not in perdure("show", "s") + perdure("events", "s") + perdure("sessions")
    assert "content of" in perdure("show", "s")
    assert perdure("verify")
    perdure("redact", "s", "0", code=3)
    perdure("run", SHOP, "hello again", "--session", "t")
    assert "the content of 1 entry is gone" in perdure("redact", "t", "0")
    assert "content of the message 0 (1 entry) was removed" in perdure("show", "t")
    perdure("redact", "s", code=2)


def test_what_was_done_beyond_a_fork_is_listed(perdure: Program) -> None:
    perdure("run", SHOP, "break", "--session", "s")
    assert "shows all that was done" in perdure.errors + perdure("effects", "s") + perdure.errors
    made = perdure.json("fork", "s", "--at", "0", "--session", "f")
    assert made["effects"] == 1
    [effect] = perdure.json("effects", "f")
    assert (effect["name"], effect["state"], effect["session_id"]) == ("break_down", "uncertain", "s")
    assert "break_down" in perdure("effects", "f")
    assert len(perdure.json("effects", "s", "--all")) == 1


def test_the_transcript_is_shown_with_what_edits_need(perdure: Program) -> None:
    perdure("run", SHOP, "hello", "--session", "s")
    shown = perdure("show", "s", "--transcript").splitlines()
    assert [line.split()[:2] for line in shown[:-1]] == [["0", "user:"], ["1", "assistant:"]]
    revision = perdure.json("show", "s")["session"]["revision"]
    assert shown[-1] == f"revision {revision}"
    # What it shows is what the commands take.
    told = perdure.json("show", "s", "--transcript")
    first = told["messages"][0]
    assert (told["revision"], first["position"], first["parts"]) == (revision, 0, [{"type": "text", "content": "hello"}])
    perdure("rewrite", "s", str(first["position"]), "1", "hello there", "--expected", told["revision"])
    assert "hello there" in perdure("show", "s", "--transcript")
    assert "hello there" not in perdure("show", "s", "--transcript", "--revision", revision[:12])
    assert len(perdure("show", "s", "--transcript", "--last", "1").splitlines()) == 2
    assert "f  1 message from s" in perdure("fork", "s", "--at", "1", "--session", "f")
    assert "of s" in perdure("show", "f", "--transcript")
    perdure("show", "s", "--transcript", "--revision", "f" * 64, code=3)
    perdure("show", "nobody", "--transcript", code=3)


def test_a_timeline_says_what_an_edit_put_in_the_place_of_what(perdure: Program) -> None:
    perdure("run", SHOP, "hello", "--session", "s")
    perdure("run", SHOP, "and more", "--session", "s")
    perdure("rewrite", "s", "2", "3", "and less")
    perdure("run", SHOP, "still there?", "--session", "s")
    shown = perdure("show", "s")
    assert "messages [2, 3) were rewritten" in shown
    assert "→ 2 user: and less" in shown
    assert "what models see changed" not in shown
    items = [item for turn in perdure.json("show", "s")["turns"] for item in turn["items"] if item["type"] == "message"]
    assert [(item["position"], item.get("instead", False)) for item in items] == [(0, False), (2, False), (2, True), (4, False)]


def test_a_timeline_says_of_what_was_redacted_that_it_was(perdure: Program) -> None:
    perdure("run", SHOP, "break", "--session", "s")
    before = perdure("show", "s")
    call = next(line for line in before.splitlines() if "break_down(" in line)
    positions = [line.split()[0] for line in perdure("show", "s", "--transcript").splitlines() if "break_down" in line]
    perdure("redact", "s", *positions, "--reason", "asked for")
    shown = perdure("show", "s")
    assert call not in shown
    assert "break_down([redacted])" in shown
    assert "= [redacted]" in shown
    assert f"content of the messages {', '.join(positions)}" in shown
    assert "edited by a person" not in shown
    assert shown.count("was removed") == 1
