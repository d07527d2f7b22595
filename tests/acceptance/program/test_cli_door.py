"""What is typed is checked before it counts, and what is said about it is what happened."""

from __future__ import annotations

import json
import signal
import sqlite3

import pytest

from .conftest import PATIENCE, Program

SHOP = "agents_here:shop"


# -------------------------------------------------------------------------------------------------------------- decisions


def test_the_timeline_shows_the_arguments_that_ran_and_that_a_person_changed_them(perdure: Program) -> None:
    perdure("run", SHOP, "refund A-1", "--session", "s", "--no-wait", code=6)
    perdure("approve", "s", "--arguments", '{"order": "A-1", "cents": 7}')
    perdure("resume", "s", "--agents", SHOP)
    assert "→ refund(cents=7" in perdure.errors
    assert perdure.lines("ledger") == ["A-1 7"]
    shown = perdure("show", "s")
    assert '✓ refund(cents=7, order="A-1")' in shown
    assert 'edited by a person; the model asked for cents=500, order="A-1"' in shown
    [item] = [item for item in perdure.json("show", "s")["turns"][0]["items"] if item["type"] == "tool"]
    assert item["arguments"] == {"order": "A-1", "cents": 7}
    assert item["asked"] == {"order": "A-1", "cents": 500}


def test_arguments_that_nobody_checked_yet_are_said_to_be_so(perdure: Program) -> None:
    perdure("run", SHOP, "refund A-1", "--session", "s", "--no-wait", code=6)
    perdure("approve", "s", "--arguments", '{"order": 7}')
    assert "the arguments are checked where the agent is" in perdure.errors
    perdure("resume", "s", "--agents", SHOP)
    assert perdure.lines("ledger") == []
    perdure("run", SHOP, "refund A-1", "--session", "s", "--no-wait", code=6)
    perdure("approve", "s")
    assert "checked" not in perdure.errors


def test_a_call_that_nobody_edited_is_not_said_to_be(perdure: Program) -> None:
    perdure("run", SHOP, "refund A-1", "--session", "s", "--no-wait", code=6)
    perdure("approve", "s")
    perdure("resume", "s", "--agents", SHOP)
    assert "edited" not in perdure("show", "s")


@pytest.mark.parametrize("held", [False, True])
def test_a_decision_for_another_kind_of_question_is_refused_and_nothing_is_written(perdure: Program, held: bool) -> None:
    running = perdure.start("run", SHOP, "wonder-pay" if held else "wonder", "--session", "s", "--submission", "m")
    perdure.until(lambda: perdure.db.exists() and perdure.json("sessions") and perdure.json("why", "s")["requests"])
    before = perdure("events", "s", "--json")
    perdure("approve", "s", code=3)
    assert "what became of a call" in perdure.errors
    assert "settle" in perdure.errors
    assert perdure("events", "s", "--json") == before
    assert "wonder left unknown" in perdure("deny", "s")
    perdure.go()
    assert perdure.end(running) == f"done: {'wonder-pay' if held else 'wonder'}\n"
    assert "left unknown by ann" in perdure.errors
    assert "left unknown, by ann" in perdure("show", "s")


@pytest.mark.parametrize("arguments", ["[1]", "7", "null", '"x"', "{"])
def test_edited_arguments_are_an_object_or_the_request_stays_open(perdure: Program, arguments: str) -> None:
    perdure("run", SHOP, "refund A-1", "--session", "s", "--no-wait", code=6)
    perdure("approve", "s", "--arguments", arguments, code=2)
    assert "JSON" in perdure.errors
    [request] = perdure.json("why", "s")["requests"]
    perdure("answer", "s", request["request_id"], "approve", "--arguments", arguments, code=2)
    assert len(perdure.json("why", "s")["requests"]) == 1


def test_a_question_of_the_guard_is_not_headed_as_one_of_the_policy(perdure: Program) -> None:
    perdure("run", SHOP, "break", "--session", "s")
    perdure("run", SHOP, "break", "--session", "s", "--no-wait", code=6)
    assert "break_down may repeat what an earlier call did; may it run?" in perdure.errors
    assert "asks for approval" not in perdure.errors


def test_a_decision_without_a_name_is_by_the_user_of_the_process(perdure: Program) -> None:
    perdure("run", SHOP, "refund A-1", "--session", "s", "--no-wait", code=6)
    perdure("deny", "s", USER="", LOGNAME="")
    assert "somebody" not in perdure("show", "s")
    [item] = [item for item in perdure.json("show", "s")["turns"][0]["items"] if item["type"] == "request"]
    assert item["actor"]


# ------------------------------------------------------------------------------------------------------------- interrupts


def test_interrupting_an_idle_session_says_that_there_is_nothing_to_stop(perdure: Program) -> None:
    perdure("run", SHOP, "hello", "--session", "s")
    before = perdure("events", "s", "--json")
    assert perdure("interrupt", "s", code=1) == ""
    assert "no turn is running in 's'" in perdure.errors
    assert perdure.json("interrupt", "s", code=1)["error"]["code"] == "submission_rejected"
    assert perdure("events", "s", "--json") == before


@pytest.mark.parametrize("command", [["withdraw", "s", "nobody"], ["edit", "s", "nobody", "else"], ["revoke", "s", "nothing"]])
def test_what_is_not_there_can_not_be_taken_back_and_nothing_is_written(perdure: Program, command: list[str]) -> None:
    perdure("run", SHOP, "hello", "--session", "s")
    before = perdure("events", "s", "--json")
    perdure(*command, code=3)
    assert command[2] in perdure.errors
    assert "nothing was changed" in perdure.errors
    assert perdure("events", "s", "--json") == before


def test_an_aborted_submission_that_is_run_again_says_so_and_its_interim_text_is_no_result(perdure: Program) -> None:
    command = ("run", SHOP, "pay A-1", "--session", "s", "--submission", "mail-1")
    running = perdure.start(*command)
    perdure.until(lambda: perdure.lines("ledger"))
    perdure("interrupt", "s", "--reason", "too expensive", "--actor", "ben")
    assert perdure.end(running, code=1) == ""
    assert "aborted: too expensive (by ben)" in perdure.errors
    assert perdure(*command, code=1) == ""
    assert "aborted: too expensive" in perdure.errors
    assert json.loads(perdure(*command, "--json", code=1))["status"] == "aborted"


def test_only_the_run_that_was_interrupted_here_exits_with_130(perdure: Program) -> None:
    command = ("run", SHOP, "pay A-1", "--session", "s", "--submission", "mail-1")
    running = perdure.start(*command)
    perdure.until(lambda: perdure.lines("ledger"))
    running.send_signal(signal.SIGINT)
    assert perdure.end(running, code=130) == ""
    perdure(*command, code=1)
    assert "aborted: interrupted" in perdure.errors


def test_resume_that_is_interrupted_exits_with_130(perdure: Program) -> None:
    running = perdure.start("run", SHOP, "pay A-1", "--session", "s")
    perdure.until(lambda: perdure.lines("ledger"))
    running.kill()
    running.wait()
    resumed = perdure.start("resume", "s", "--agents", SHOP)
    perdure.until(lambda: len(perdure.lines("ledger")) == 2)
    resumed.send_signal(signal.SIGINT)
    perdure.end(resumed, code=130)
    assert "aborted: interrupted (by ann)" in perdure.errors


def test_resume_exits_as_the_turn_ended(perdure: Program) -> None:
    perdure("run", SHOP, "refund A-1", "--session", "s", "--no-wait", code=6)
    [request] = perdure.json("why", "s")["requests"]
    resumed = perdure.start("resume", "s", "--agents", SHOP)
    perdure.until(lambda: perdure.json("why", "s")["status"] == "waiting")
    assert resumed.stderr is not None
    while "perdure approve s" not in resumed.stderr.readline():
        pass
    # A script that nobody watches says why it goes no further.
    while "waiting for that, from anywhere; with --no-wait" not in resumed.stderr.readline():
        pass
    perdure("answer", "s", request["request_id"], "abort")
    perdure.end(resumed, code=1)


def test_ctrl_c_during_an_external_call_says_what_is_unknown_and_how_to_settle_it(perdure: Program) -> None:
    running = perdure.start("run", SHOP, "transfer", "--session", "s")
    perdure.until(lambda: perdure.lines("ledger"))
    running.send_signal(signal.SIGINT)
    perdure.end(running, code=130)
    assert "nobody knows whether transfer took effect; `perdure uncertain s` lists it" in perdure.errors
    assert "resume" not in perdure.errors
    [item] = perdure.json("uncertain", "s")
    perdure("uncertain", "s", "--settle", item["operation"], "--failed", "the bank says no")
    assert perdure.json("uncertain", "s") == []


def test_a_second_ctrl_c_says_how_to_go_on_with_the_very_agent(perdure: Program) -> None:
    running = perdure.start("run", SHOP, "block", "--session", "s")
    perdure.until(lambda: perdure.lines("ledger"))
    running.send_signal(signal.SIGINT)
    assert running.stderr is not None
    while "interrupting" not in running.stderr.readline():
        pass
    running.send_signal(signal.SIGINT)
    told = running.stderr.read()
    assert running.wait(timeout=PATIENCE) == 130
    assert f"perdure resume s --agents {SHOP}" in told


# ----------------------------------------------------------------------------------------------------------------- agents


NOISY = 'print("printed by an import")\nimport os\nos.system("echo printed by a shell")\nfrom agents_here import shop\n'


@pytest.mark.parametrize("as_json", [False, True])
def test_what_user_code_prints_is_never_on_standard_output(perdure: Program, as_json: bool) -> None:
    (perdure.directory / "noisy.py").write_text(NOISY)
    out = perdure("run", "noisy:shop", "chatty", *(["--json"] if as_json else []))
    assert (json.loads(out)["output"] if as_json else out.strip()) == "done: chatty"
    for printed in ("an import", "a shell", "a tool", "a program"):
        assert f"printed by {printed}" in perdure.errors
    assert perdure.json("resume", "--agents", "noisy:shop") == []


@pytest.mark.parametrize(
    ("text", "name", "words"),
    [
        ("import sys; sys.exit(3)", "made:agent", "called sys.exit(3)"),
        ("raise SystemExit", "made:agent", "ended the program"),
        ("1 / 0", "made:agent", "ZeroDivisionError"),
        ("import nothing_like_it", "made:agent", "nothing_like_it"),
        ("def agent():\n    raise ValueError('no key')", "made:agent", "calling 'made:agent' failed: ValueError: no key"),
        ("def agent():\n    raise SystemExit(1)", "made.py:agent", "called sys.exit(1)"),
        ("async def agent():\n    pass", "made:agent", "async function"),
        ("def agent(", "made:agent", "SyntaxError"),
    ],
)
def test_an_agents_module_that_does_something_else_is_a_mistake_in_one_line(perdure: Program, text: str, name: str, words: str) -> None:
    (perdure.directory / "made.py").write_text(text)
    perdure("run", name, "hello", code=2)
    assert words in perdure.errors
    assert len(perdure.errors.splitlines()) == 1
    assert not perdure.db.exists()


def test_a_main_function_is_no_agent_and_leaves_no_warning(perdure: Program) -> None:
    perdure("run", "agents_here:main", "hello", code=2)
    assert "async function" in perdure.errors
    assert "never awaited" not in perdure.errors


@pytest.mark.parametrize("text", ["while True:\n    pass", "import asyncio\nasyncio.run(asyncio.Event().wait())"])
def test_an_agents_module_that_never_ends_is_given_up(perdure: Program, text: str) -> None:
    (perdure.directory / "endless.py").write_text(text)
    impatient = "from perdure.cli import agents; agents.PATIENCE = 0.2"
    perdure.end(perdure.start_anew("run", "endless:agent", "hello", program=impatient), code=2)
    assert "importing 'endless' has not ended after 0.2 seconds" in perdure.errors
    assert 'if __name__ == "__main__":' in perdure.errors


@pytest.mark.parametrize("command", ["run", "chat"])
def test_a_session_of_another_agent_is_not_opened(perdure: Program, command: str) -> None:
    perdure("run", SHOP, "hello", "--session", "s")
    before = perdure("events", "s", "--json")
    perdure(command, "agents_here:other", *(["hello"] if command == "run" else []), "--session", "s", code=2)
    assert "the session 's' belongs to the agent 'shop', not to 'other'" in perdure.errors
    assert "done: hello" not in perdure.errors
    assert perdure("events", "s", "--json") == before


def test_a_conversation_shows_an_unknown_outcome_as_unknown(perdure: Program) -> None:
    perdure("run", SHOP, "break", "--session", "s")
    earlier = perdure("chat", SHOP, "--session", "s")
    assert "? break_down OSError: the line went dead; result unknown" in earlier
    assert "✗" not in earlier


# ---------------------------------------------------------------------------------------------------------------- options


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["run", SHOP, "hello", "--session", ""], "must not be empty"),
        (["run", SHOP, "hello", "--submission", ""], "must not be empty"),
        (["chat", SHOP, "--session", ""], "must not be empty"),
        (["resume", "", "--agents", SHOP], "must not be empty"),
        (["verify", ""], "must not be empty"),
        (["uncertain", ""], "must not be empty"),
        (["show", "s", "--last", "-1"], "-1 is too small; it must be at least 1"),
        (["show", "s", "--last", "0"], "0 is too small; it must be at least 1"),
        (["show", "s", "--last", "x"], "'x' is not a number"),
        (["events", "s", "--after", "-1"], "-1 is too small; it must be at least 0"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_an_option_that_says_nothing_is_a_mistake(perdure: Program, command: list[str], words: str) -> None:
    perdure(*command, code=2)
    assert words in perdure.errors
    assert not perdure.db.exists()


def test_hints_name_the_store_and_say_where_an_agent_has_to_be_named(perdure: Program) -> None:
    perdure("--db", "mine.db", "run", SHOP, "refund A-1", "--session", "my session", "--no-wait", code=6)
    assert "perdure approve 'my session' " in perdure.errors
    assert "--db mine.db" in perdure.errors
    perdure("--db", "mine.db", "approve", "my session")
    assert "perdure resume 'my session' --db mine.db --agents YOUR_MODULE:…" in perdure.errors
    assert "'shop'" in perdure.errors
    assert "perdure resume 'my session' --db mine.db --agents YOUR_MODULE:…" in perdure("--db", "mine.db", "why", "my session")


def test_usage_that_nobody_reported_is_not_shown_as_nothing(perdure: Program) -> None:
    perdure("run", SHOP, "wonder", "--session", "s", "--no-wait", code=6)
    shown = perdure("show", "s")
    assert "1 model call, tokens unknown" in shown
    assert "0 tokens in" not in shown


def test_a_call_whose_tool_is_asked_is_shown_as_looked_up(perdure: Program) -> None:
    command = ("run", SHOP, "careful", "--session", "s", "--submission", "m")
    running = perdure.start(*command)
    perdure.until(lambda: perdure.lines("ledger"))
    running.kill()
    running.wait()
    perdure(*command)
    assert "is looked up: its tool is asked what became of it" in perdure.errors
    assert perdure.lines("ledger") == ["careful"]
    shown = perdure("show", "s")
    assert "is looked up: its tool is asked what became of it" in shown
    assert " open" not in shown
    assert "it was done" in shown


# ---------------------------------------------------------------------------------------------------- what the API has too


def test_a_note_is_read_by_the_model_and_shown(perdure: Program) -> None:
    perdure("run", SHOP, "hello", "--session", "s")
    assert "noted" in perdure("note", "s", "the parcel is found")
    assert perdure.json("note", "s", "and paid")["session"] == "s"
    assert "note: the parcel is found" in perdure("show", "s")
    perdure("note", "s", "  ", code=2)


def test_a_route_is_selected_for_the_next_turn_and_refused_while_one_runs(perdure: Program) -> None:
    perdure("run", "agents_here:routed", "hello", "--session", "s")
    perdure("route", "s", "deep")
    assert "the model is deep from here on by ann" in perdure("show", "s")
    perdure("run", "agents_here:routed", "hello", "--session", "s")
    assert perdure.lines("model") == ["fast", "deep"]
    perdure("run", SHOP, "refund", "--session", "t", "--no-wait", code=6)
    perdure("route", "t", "deep", code=3)
    assert "a turn is running" in perdure.errors


def test_a_waiting_message_is_edited_and_withdrawn_and_a_delivered_one_is_not(perdure: Program) -> None:
    running = perdure.start("run", SHOP, "pay A-1", "--session", "s", "--submission", "first")
    perdure.until(lambda: perdure.lines("ledger"))
    perdure("send", "s", "one", "--submission", "m-1")
    perdure("send", "s", "two", "--submission", "m-2")
    assert "edited: m-1" in perdure("edit", "s", "m-1", "three")
    assert "withdrawn: m-2" in perdure("withdraw", "s", "m-2")
    assert [row["text"] for row in perdure.json("why", "s")["queue"]] == ["three"]
    perdure("withdraw", "s", "first", code=3)
    assert "doesn't wait any more" in perdure.errors
    perdure("edit", "s", "nobody", "x", code=3)
    perdure.go()
    perdure.end(running)
    perdure("resume", "--agents", SHOP)
    assert [turn["submission"] for turn in perdure.json("show", "s")["turns"] if turn["turn"]] == ["first", "m-1"]
    assert "done: three" in perdure("show", "s")


def test_a_command_that_nobody_takes_up_is_said_to_wait(perdure: Program) -> None:
    running = perdure.start("run", SHOP, "pay A-1", "--session", "s", "--submission", "first")
    perdure.until(lambda: perdure.lines("ledger"))
    running.kill()
    running.wait()
    perdure("note", "s", "listen")
    assert "it waits in the inbox" in perdure.errors


def test_grants_are_listed_with_their_calls_and_revoked(perdure: Program) -> None:
    perdure("run", SHOP, "refund A-1", "--session", "s", "--no-wait", code=6)
    [request] = perdure.json("why", "s")["requests"]
    perdure("grants", "s")
    assert "asked about" in perdure.errors
    perdure("answer", "s", request["request_id"], "grant")
    [grant] = perdure.json("grants", "s")
    assert (grant["name"], grant["arguments"], grant["actor"]) == ("refund", {"order": "A-1", "cents": 500}, "ann")
    assert f"perdure revoke s {grant['grant']}" in perdure("grants", "s")
    assert 'refund(cents=500, order="A-1") may run without asking by ann' in perdure("show", "s")
    perdure("resume", "s", "--agents", SHOP)
    perdure("revoke", "s", grant["grant"])
    assert perdure.json("grants", "s") == []
    assert 'refund(cents=500, order="A-1") is asked about again' in perdure("show", "s")
    perdure("revoke", "s", grant["grant"], code=3)
    assert "no grant" in perdure.errors
    perdure("run", SHOP, "refund A-1", "--session", "s", "--no-wait", code=6)


def test_nothing_that_was_refused_at_the_door_is_in_the_inbox(perdure: Program) -> None:
    perdure("run", SHOP, "refund A-1", "--session", "s", "--no-wait", code=6)
    [request] = perdure.json("why", "s")["requests"]
    with sqlite3.connect(perdure.db) as database:
        before = database.execute("SELECT count(*) FROM inbox").fetchone()
    perdure("answer", "s", request["request_id"], "settle", "--result", "1", code=3)
    perdure("answer", "s", request["request_id"], "retry", code=3)
    with sqlite3.connect(perdure.db) as database:
        assert database.execute("SELECT count(*) FROM inbox").fetchone() == before
    database.close()
