"""Tools called from outside, results that come from elsewhere, and what is said to a session besides messages."""

from __future__ import annotations

import json
import signal

from .conftest import Program
from .test_cli_looking import GUARDED

SHOP = "agents_here:shop"


def test_a_tool_is_called_from_outside_once_and_a_person_is_asked(perdure: Program) -> None:
    perdure("run", SHOP, "hello", "--session", "s")
    call = ("call", SHOP, "s", "refund", '{"order": "A-1", "cents": 5}', "--submission", "desk-1")
    waiting = json.loads(perdure(*call, "--no-wait", "--json", code=6))
    assert waiting == {"session": "s", "submission": "desk-1", "status": "waiting", "wake_at": None}
    assert "perdure approve s" in perdure("why", "s")
    perdure("approve", "s")
    assert perdure(*call) == "✓ refunded 5\n"
    told = perdure.errors
    assert "✓ refund" in told
    # Once more is the stored outcome.
    outcome = perdure.json(*call)
    assert (outcome["status"], outcome["result"], outcome["submission"]) == ("succeeded", "refunded 5", "desk-1")
    assert perdure.lines("ledger") == ["A-1 5"]
    assert "the model is told of it with its next call" in told
    assert perdure("verify").endswith("nothing is wrong\n")


def test_a_call_that_can_not_be_made_says_why_and_what_to_do(perdure: Program) -> None:
    perdure("run", SHOP, "hello", "--session", "s")
    before = perdure("events", "s", "--json")
    perdure("call", SHOP, "s", "refund", '{"order": 7}', code=2)
    assert "cents" in perdure.errors
    perdure("call", SHOP, "s", "refnd", '{"order": "A-1", "cents": 5}', code=2)
    assert "the agent 'shop' has no tool 'refnd'" in perdure.errors
    assert "did you mean refund?" in perdure.errors
    assert perdure.json("call", SHOP, "s", "fly", code=2)["error"]["code"] == "usage"
    assert perdure("events", "s", "--json") == before
    uncertain = perdure("call", SHOP, "s", "break_down", code=1)
    assert uncertain.startswith("? ")
    assert "`perdure uncertain s` lists it" in perdure.errors
    perdure("call", SHOP, "s", "refund", "[1]", code=2)
    assert "no JSON object" in perdure.errors
    perdure("call", "agents_here:other", "s", "refund", code=2)
    assert "belongs to the agent 'shop'" in perdure.errors
    perdure("call", SHOP, "nobody", "refund", code=3)
    running = perdure.start("run", SHOP, "pay A-1", "--session", "t")
    perdure.until(lambda: perdure.lines("ledger"))
    perdure("call", SHOP, "t", "nasty", code=3)
    assert "a turn runs" in perdure.errors
    perdure.go()
    perdure.end(running)
    # Another call waits for a person: what is asked there is nothing of this one.
    perdure("call", SHOP, "s", "refund", '{"order": "A-1", "cents": 5}', "--no-wait", code=6)
    perdure("call", SHOP, "s", "nasty", code=3)
    assert "a turn runs" in perdure.errors
    assert "perdure approve" not in perdure.errors
    perdure("archive", "s")
    perdure("call", SHOP, "s", "nasty", code=3)
    assert "perdure revive s" in perdure.errors


def test_a_call_is_interrupted_as_a_turn_is(perdure: Program) -> None:
    perdure("run", SHOP, "hello", "--session", "s")
    calling = perdure.start("call", SHOP, "s", "transfer")
    perdure.until(lambda: perdure.lines("ledger"))
    calling.send_signal(signal.SIGINT)
    perdure.end(calling, code=130)
    assert "`perdure uncertain s` lists it" in perdure.errors
    assert perdure.json("describe", "s")["status"] == "idle"


def test_a_result_is_handed_in_by_its_token(perdure: Program) -> None:
    perdure("run", SHOP, "post", "--session", "s")
    assert len(perdure.json("uncertain", "s")) == 1
    [token] = perdure.lines("token")
    told = perdure.json("report", token, "--result", '{"parcel": 7}')
    assert (told["session"], told["attempt"]) == ("s", 1)
    assert perdure.json("uncertain", "s") == []
    perdure("report", token, "--result", '{"parcel": 7}')
    assert "was there before" in perdure("report", token, "--result", '{"parcel": 7}')
    perdure("report", token, "--failed", "it burnt", code=3)
    perdure("report", token[:-2] + "AA", "--result", "1", code=2)
    assert "ctx.callback_token" in perdure.errors
    perdure("report", token, code=2)
    perdure("report", token, "--result", "{", code=2)
    assert '{"parcel": 7}' in perdure("show", "s")


def test_notes_take_the_place_of_the_conversation_when_somebody_goes_on(perdure: Program) -> None:
    perdure("run", SHOP, "hello", "--session", "s")
    told = perdure.json("compact", "s", "--submission", "c1")
    assert (told["status"], told["duplicate"]) == ("queued", False)
    assert "was there before" in perdure("compact", "s", "--submission", "c1")
    assert "perdure resume s" in perdure.errors
    perdure("resume", "s", "--agents", SHOP)
    assert "what models see changed: compaction" in perdure("show", "s")
    perdure("compact", "nobody", code=3)


def test_a_middleware_is_told_what_to_do(perdure: Program) -> None:
    (perdure.directory / "guarded.py").write_text(GUARDED)
    perdure("run", "guarded:guarded", "look around", "--session", "s")
    perdure("command", "s", "guard", "raise", '{"to": 5}')
    assert "perdure resume s" in perdure.errors
    perdure("resume", "s", "--agents", "guarded:guarded")
    assert "guard: limit = 5" in perdure("show", "s")
    before = perdure("events", "s", "--json")
    perdure("command", "s", "guard", "rais", '{"to": 5}', code=2)
    assert "the middleware 'guard' has no command 'rais'" in perdure.errors
    assert "did you mean raise?" in perdure.errors
    perdure("command", "s", "gard", "raise", '{"to": 5}', code=2)
    assert "the agent 'guarded' has no middleware 'gard'" in perdure.errors
    perdure("command", "s", "guard", "rais", "--agents", "guarded", code=2)
    assert "--agents" not in perdure.errors
    assert perdure("events", "s", "--json") == before
    # Nobody knows yet what the agent of one has that no turn ran in; its agent says it, where it is known.
    (perdure.directory / "list.json").write_text('[{"role": "user", "content": "hello"}]')
    perdure("import", "list.json", "--from", "openai", "--session", "new", "--agent", "guarded")
    assert perdure("command", "new", "guard", "jump").startswith("✓ noted for its agent: guard jump")
    perdure("command", "new", "guard", "jump", "--agents", "guarded", code=2)
    perdure("resume", "new", "--agents", "guarded:guarded")
    assert "no middleware 'guard' with the command 'jump'" in perdure("show", "new")
    perdure("command", "s", "guard", "raise", "[5]", code=2)
    perdure("command", "nobody", "guard", "raise", code=3)


def test_a_message_says_what_it_answers_and_which_turn_it_joins(perdure: Program) -> None:
    perdure("run", SHOP, "hello", "--session", "s")
    [seq] = [message["seq"] for message in perdure.json("show", "s", "--transcript")["messages"] if message["role"] == "assistant"]
    perdure("send", "s", "really?", "--reply-to", str(seq), "--quote", "done: hello", "--note", "it rains")
    perdure("resume", "s", "--agents", SHOP)
    replies = [message["reply"] for message in perdure.json("show", "s", "--transcript")["messages"] if message.get("reply")]
    assert [(reply["seq"], reply["text"]) for reply in replies] == [(seq, "done: hello")]
    assert "it rains" in perdure("show", "s")
    version = perdure.json("describe", "s")["version"]
    for wrong in (["--reply-to", str(seq), "--quote", "something else"], ["--reply-to", "999"], ["--turn", "t2"]):
        perdure("send", "s", "hm", *wrong, code=3)
    assert "--turn" in perdure.errors
    perdure("send", "s", "hm", "--quote", "alone", code=2)
    assert "--reply-to" in perdure.errors
    perdure("send", "s", "hm", "--turn", "t2", "--deliver", "queue", code=2)
    assert "--deliver" in perdure.errors
    assert perdure.json("describe", "s")["version"] == version
