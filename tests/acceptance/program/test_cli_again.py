"""Questions to the user, outputs of a type, and what is looked at once more: a deploy, a request, a whole session."""

from __future__ import annotations

import json

from .conftest import Program

SHOP = "agents_here:shop"


def test_the_user_is_asked_and_answers_from_a_shell(perdure: Program) -> None:
    waiting = perdure("run", "agents_here:asking", "Paint it.", "--session", "s", "--submission", "m1", "--no-wait", code=6)
    assert "Which one?" in waiting + perdure.errors
    why = perdure.json("why", "s")
    [request] = why["requests"]
    assert (request["kind"], request["question"]) == ("answer", "Which one?")
    assert any("reply --text" in command for command in request["commands"])
    perdure("approve", "s", code=3)
    perdure("answer", "s", request["request_id"], "deny", "--text", "blue", code=2)
    perdure("answer", "s", request["request_id"], "reply", "--text", "the blue one")
    assert "Blue it is." in perdure("run", "agents_here:asking", "Paint it.", "--session", "s", "--submission", "m1")
    shown = perdure("show", "s")
    assert "the user is asked" in shown
    assert "the blue one" in shown
    assert perdure("verify").endswith("nothing is wrong\n")


def test_a_corrected_answer_is_shown_with_what_was_not_accepted(perdure: Program) -> None:
    assert perdure("run", "agents_here:counting", "How many?", "--session", "s") == '{"value": 5}\n'
    shown = perdure("show", "s")
    assert "answer corrected by model" in shown
    assert "not accepted: about five" in shown
    data = perdure.json("show", "s")
    assert [item["type"] for item in data["turns"][0]["items"]] == ["message", "model", "repair", "answer"]


def test_a_deploy_is_checked_before_it_happens(perdure: Program) -> None:
    perdure("run", SHOP, "refund A-1", "--session", "s", "--no-wait", code=6)
    same = perdure("check", "--agents", SHOP)
    assert "1 unfinished session: none would be refused" in same
    assert "the external tool 'refund'" not in same, "it has a key"
    refused = perdure("check", "--agents", "agents_here:changed", code=1)
    assert "the tool 'refund' was removed, and a call of it is open" in refused
    data = json.loads(perdure("check", "--agents", "agents_here:changed", "--json", code=1))
    assert data["refused"][0]["session_id"] == "s"
    assert "the instructions changed" in data["refused"][0]["difference"]
    assert "there is no agent 'shop'" in perdure("check", "--agents", "agents_here:other", code=1)
    perdure("check", "--agents", "agents_here:other", "--known")
    assert perdure("check", "--agents", "agents_here")
    perdure("check", "--agents", "agents_here:number", code=2)
    # Of one session, `why` asks the code; a refusal leaves nothing behind that it could read.
    assert perdure.json("why", "s")["unfit"] is None
    assert "the code that was named could go on with it" in perdure("why", "s", "--agents", SHOP)
    told = perdure.json("why", "s", "--agents", "agents_here:changed")
    assert told["unfit"] == data["refused"][0]["reasons"]
    assert "`perdure interrupt s`" in told["next"][0]
    perdure("approve", "s")
    perdure("resume", "s", "--agents", "agents_here:changed", code=3)
    assert "the tool 'refund' was removed" in perdure.errors
    assert "`perdure why s --agents …` says whether it may" in perdure("why", "s")
    assert "✗ the tool 'refund' was removed" in perdure("why", "s", "--agents", "agents_here:changed")


def test_a_request_is_printed_again_and_verified(perdure: Program) -> None:
    perdure("run", SHOP, "hello there", "--session", "s")
    printed = perdure("request", "s", "t2.0")
    assert "hello there" in printed
    assert "it is what was recorded: all digests agree" in printed
    data = perdure.json("request", "s", "t2.0")
    assert data["verified"] is True
    assert data["request"]["messages"][0]["parts"][0]["content"] == "hello there"
    assert "refund" in [tool["name"] for tool in data["request"]["tools"]]
    perdure("request", "s", "t2.5", code=2)
    perdure("redact", "s", "0")
    redacted = perdure("request", "s", "t2.0")
    assert "was redacted" in redacted
    assert "hello there" not in redacted


DEAR = """
from perdure import FunctionModel, Reply, Usage
from agents_here import play, shop

def dear(request):
    said = play(request)
    return Reply(said.text, tool_calls=said.tool_calls, usage=Usage(input_tokens=70, output_tokens=3))

agent = shop.replace(model=FunctionModel(dear))
"""


def test_a_session_is_played_again_and_nothing_runs(perdure: Program) -> None:
    perdure("run", SHOP, "refund A-1", "--session", "s", "--no-wait", code=6)
    perdure("approve", "s")
    perdure("resume", "s", "--agents", SHOP)
    ledger = (perdure.directory / "ledger").read_text()
    same = perdure("replay", "s", "--agents", "agents_here", "--agent", "shop")
    assert same.endswith("the same\n")
    assert perdure("replay", "s", "--agents", "agents_here", "--model", "recorded").endswith("the same\n")
    assert perdure("replay", "s", "--agent", "agents_here:shop").endswith("the same\n")
    assert perdure("replay", "s", "--agent", "agents_here").endswith("the same\n")
    perdure("replay", "s", code=2)
    assert "--agent MODULE" in perdure.errors
    different = perdure("replay", "s", "--agents", "agents_here:changed", code=1)
    assert "it came out differently" in different
    (perdure.directory / "dear.py").write_text(DEAR)
    dear = perdure("replay", "s", "--agent", "dear:agent")
    assert "≠ used 2 model calls (1 of unknown size), 7 tokens in, 3 out then, 2 model calls, 140 tokens in, 6 out now" in dear
    assert dear.endswith("the same\n")
    data = json.loads(perdure("replay", "s", "--agents", "agents_here:changed", "--json", code=1))
    assert data["same"] is False
    assert data["effects"] == {"refund (external)": 1}
    assert data["again"] == {}
    assert (perdure.directory / "ledger").read_text() == ledger
    perdure("replay", "s", "--agents", "agents_here:other", "--agent", "nobody", code=2)
