"""What a session says about itself and may use, said and changed from the command line."""

from __future__ import annotations

from .conftest import Program

SHOP = "agents_here:shop"


def test_a_title_labels_and_metadata_are_replaced_and_shown(perdure: Program) -> None:
    perdure("run", SHOP, "hello", "--session", "s", "--owner", "acme")
    told = perdure.json(
        "describe", "s", "--title", "Order A-1", "--label", "desk=3", "--label", "tier=gold", "--metadata", '{"cents": 500}'
    )
    assert told["session"] == "s"
    shown = perdure("describe", "s")
    assert [line.strip() for line in shown.splitlines()] == [
        "s  Order A-1",
        "owner acme",
        "agent shop",
        "route function",
        "label desk 3",
        "label tier gold",
        "metadata cents 500",
    ]
    # Labels are replaced as a whole, and what isn't named stays.
    perdure("describe", "s", "--label", "desk=4")
    data = perdure.json("describe", "s")
    assert (data["title"], data["labels"], data["metadata"]) == ("Order A-1", {"desk": "4"}, {"cents": 500})
    assert data["identity"]["owner"] == "acme"
    perdure("describe", "s", "--no-labels", "--metadata", "{}", "--title", "")
    data = perdure.json("describe", "s")
    assert (data["title"], data["labels"], data["metadata"]) == ("", {}, {})
    before = perdure("events", "s", "--json")
    for wrong in (["--metadata", "[1]"], ["--metadata", "{"], ["--label", "desk"], ["--label", "a=b", "--no-labels"]):
        perdure("describe", "s", *wrong, code=2)
    perdure("describe", "nobody", "--title", "x", code=3)
    assert "perdure sessions" in perdure.errors
    assert perdure("events", "s", "--json") == before


def test_the_same_description_twice_under_one_id_is_one(perdure: Program) -> None:
    perdure("run", SHOP, "hello", "--session", "s")
    perdure("describe", "s", "--title", "one", "--submission", "d1")
    version = perdure.json("describe", "s")["version"]
    assert perdure.json("describe", "s", "--title", "one", "--submission", "d1")["duplicate"] is True
    perdure("describe", "s", "--title", "two", "--submission", "d1", code=3)
    assert perdure.json("describe", "s")["version"] == version
    # So it is with a note, and with putting a session away.
    perdure("note", "s", "it rains", "--submission", "n1")
    assert perdure.json("note", "s", "it rains", "--submission", "n1")["duplicate"] is True
    perdure("archive", "s", "--submission", "a1")
    assert perdure.json("archive", "s", "--submission", "a1")["status"] == "archived"
    perdure("archive", "s", code=3)


def test_tools_are_taken_from_a_session_and_from_a_branch_and_given_back(perdure: Program) -> None:
    perdure("run", SHOP, "hello", "--session", "s")
    told = perdure.json("restrict", "s", "--never", "transfer", "--ask", "pay", "--ask", "nasty")
    assert told["tools"] == {"never": ["transfer"], "ask": ["pay", "nasty"]}
    shown = perdure("describe", "s")
    assert "never the tools transfer\n" in shown
    assert "asks before nasty, pay\n" in shown
    perdure("run", SHOP, "transfer", "--session", "s")
    assert perdure.lines("ledger") == []
    perdure("run", SHOP, "nasty", "--session", "s", "--no-wait", code=6)
    assert "nasty asks for approval" in perdure.errors
    perdure("interrupt", "s")
    perdure("fork", "s", "--session", "same", "--label", "kind=branch")
    perdure("fork", "s", "--session", "other", "--only", "nasty")
    perdure("fork", "s", "--session", "free", "--all-tools")
    told = {name: perdure.json("describe", name) for name in ("same", "other", "free")}
    assert (told["same"]["tools"]["never"], told["same"]["labels"]) == (["transfer"], {"kind": "branch"})
    assert told["other"]["tools"] == {"only": ["nasty"]}
    assert told["free"]["tools"] == {}
    perdure("restrict", "s", "--all-tools")
    assert perdure.json("describe", "s")["tools"] == {}
    perdure("restrict", "s", code=2)
    assert "--all-tools" in perdure.errors
    perdure("restrict", "s", "--all-tools", "--never", "pay", code=2)
    perdure("archive", "s")
    perdure("restrict", "s", "--never", "pay", code=3)
    assert "perdure revive s" in perdure.errors


def test_a_tool_policy_with_a_slip_in_it_is_refused_and_what_stood_holds(perdure: Program) -> None:
    perdure("run", SHOP, "hello", "--session", "s")
    told = perdure("restrict", "s", "--never", "transfer")
    assert [line.strip() for line in told.splitlines()][1:] == ["never the tools transfer"]
    before = perdure("events", "s", "--json")
    for option in ("--never", "--only", "--ask"):
        perdure("restrict", "s", option, "tranfer", code=2)
        assert "the agent 'shop' has no tool 'tranfer'" in perdure.errors
        assert "did you mean transfer?" in perdure.errors
        perdure("fork", "s", "--session", "branch", option, "tranfer", code=2)
        assert "has no tool 'tranfer'" in perdure.errors
        perdure("restrict", "s", option, "tranfer", "--agents", "agents_here:shop", code=2)
        assert "--agents" not in perdure.errors
    assert perdure("events", "s", "--json") == before
    assert [info["session_id"] for info in perdure.json("sessions")] == ["s"]
    told = perdure("restrict", "s", "--never", "pay", "--ask", "nasty")
    assert [line.strip() for line in told.splitlines()][1:] == [
        "never the tools pay; asks before nasty",
        "replaced: never the tools transfer",
    ]
    assert perdure.json("restrict", "s", "--all-tools")["replaced"] == {"never": ["pay"], "ask": ["nasty"]}


def test_a_tool_that_the_code_has_by_now_can_be_named_with_the_code(perdure: Program) -> None:
    (perdure.directory / "growing.py").write_text("from agents_here import shop, pay\nagent = shop.replace(tools=[pay], approve=[])\n")
    perdure("run", "growing:agent", "hello", "--session", "s")
    perdure("restrict", "s", "--never", "transfer", code=2)
    assert "it has pay; --agents MODULE says what its code has by now" in perdure.errors
    perdure("restrict", "s", "--never", "transfer", "--agents", SHOP)
    assert perdure.json("describe", "s")["tools"] == {"never": ["transfer"]}
