"""``perdure run`` and ``resume`` as a user and a script see them."""

from __future__ import annotations

import asyncio
import json
import shlex
import signal

import pytest

from perdure import Identity, SessionNotFound
from perdure import open as open_runtime
from perdure.cli.agents import owned_info
from perdure.cli.hints import agent_options, resume_command
from perdure.testing.wire import WireServer

from .conftest import PATIENCE, Program

SHOP = "agents_here:shop"


def test_the_session_may_stand_behind_the_agents(perdure: Program) -> None:
    perdure("run", SHOP, "refund A-1", "--session", "s", "--no-wait", code=6)
    perdure("approve", "s")
    perdure("resume", "--agents", SHOP, "agents_here:other", "s")
    assert perdure.lines("ledger") == ["A-1 500"]


def test_the_answer_is_on_standard_output_and_the_work_is_not(perdure: Program) -> None:
    assert perdure("run", SHOP, "hello you") == "done: hello you\n"
    assert "completed · 1 step" in perdure.errors
    assert "session " in perdure.errors
    assert perdure.db.stat().st_mode & 0o777 == 0o600


def test_the_same_submission_again_is_the_stored_answer_without_a_model(perdure: Program) -> None:
    first = perdure("run", SHOP, "hello", "--submission", "mail-1")
    assert perdure("run", "agents_here.py:shop", "hello", "--submission", "mail-1") == first
    assert len(perdure.lines("model")) == 1
    perdure("run", SHOP, "something else", "--submission", "mail-1", code=3)
    assert "used before with another content" in perdure.errors


def test_a_kill_in_the_middle_of_a_tool_and_the_same_command_goes_on(perdure: Program) -> None:
    command = ("run", SHOP, "pay A-1", "--session", "s", "--submission", "mail-1")
    killed = perdure.start(*command)
    perdure.until(lambda: perdure.lines("ledger"))
    killed.kill()
    killed.wait()
    dead = perdure.json("why", "s")
    assert dead["holder"]["alive"] is False
    assert dead["operations"][0]["name"] == "pay"
    assert "died" in dead["next"][0]
    perdure.go()
    assert perdure(*command) == "done: pay A-1\n"
    assert "taken over after a process died" in perdure.errors
    assert "cancelled: cut off as its process died" in perdure("show", "s")
    first, second = perdure.lines("ledger")
    assert first == second
    assert perdure("verify").endswith("nothing is wrong\n")


def test_a_decision_from_another_process_lets_a_waiting_run_go_on(perdure: Program) -> None:
    waiting = perdure.start("run", SHOP, "refund A-1", "--session", "s")
    assert waiting.stderr is not None
    told = ""
    while "perdure approve s " not in told:
        told += waiting.stderr.readline()
    assert "asks for approval" in told
    assert "  cents  500" in told
    assert "by ann" not in told
    perdure("approve", "s", "--arguments", '{"order": "A-1", "cents": 400}')
    assert perdure.end(waiting) == "done: refund A-1\n"
    assert "approved with" in perdure.errors
    assert perdure.lines("ledger") == ["A-1 400"]


def test_without_waiting_an_open_question_has_its_own_exit_code(perdure: Program) -> None:
    told = json.loads(perdure("run", SHOP, "refund A-1", "--session", "s", "--no-wait", "--json", code=6))
    assert told["status"] == "waiting"
    [request] = perdure.json("why", "s")["requests"]
    assert (request["name"], request["arguments"]) == ("refund", {"order": "A-1", "cents": 500})
    assert request["commands"][0] == f"perdure approve s {request['request_id']}"
    assert perdure("resume", "s", "--agents", SHOP, "--no-wait", code=6) == ""
    perdure("deny", "s", request["request_id"], "--reason", "too late")
    assert "perdure resume s" in perdure.errors
    perdure("deny", "s", request["request_id"], code=3)
    perdure("resume", "s", "--agents", SHOP)
    assert "refund not executed: a person denied it: too late" in perdure.errors
    assert perdure.lines("ledger") == []
    shown = perdure("show", "s")
    assert "denied, by ann" in shown


def test_ctrl_c_interrupts_the_turn_and_keeps_the_session(perdure: Program) -> None:
    running = perdure.start("run", SHOP, "pay A-1", "--session", "s")
    perdure.until(lambda: perdure.lines("ledger"))
    running.send_signal(signal.SIGINT)
    perdure.end(running, code=130)
    assert "interrupting the turn" in perdure.errors
    assert "aborted: interrupted (by ann)" in perdure.errors
    assert perdure("run", SHOP, "hello", "--session", "s") == "done: hello\n"
    assert [turn["status"] for turn in perdure.json("show", "s")["turns"]] == ["aborted", "completed"]


def test_a_second_ctrl_c_leaves_at_once_though_a_tool_blocks(perdure: Program) -> None:
    running = perdure.start("run", SHOP, "block", "--session", "s", "--submission", "mail-1")
    perdure.until(lambda: perdure.lines("ledger"))
    running.send_signal(signal.SIGINT)
    assert running.stderr is not None
    while "interrupting" not in running.stderr.readline():
        pass
    running.send_signal(signal.SIGINT)
    assert running.wait(timeout=PATIENCE) == 130
    perdure.go()
    # The interrupt was applied, or waits to be, or was not sent any more: only the store knows.
    resumed = perdure.start("resume", "s", "--agents", SHOP)
    assert resumed.wait(timeout=PATIENCE) in (0, 1)
    assert perdure.json("sessions")[0]["status"] == "idle"


def test_sigterm_lets_the_session_go_and_resume_takes_it_up(perdure: Program) -> None:
    running = perdure.start("run", SHOP, "pay A-1", "--session", "s", "--submission", "mail-1")
    perdure.until(lambda: perdure.lines("ledger"))
    running.send_signal(signal.SIGTERM)
    perdure.go()
    perdure.end(running, code=143)
    [info] = perdure.json("sessions")
    assert (info["status"], info["holder"]) == ("queued", None)
    assert perdure.json("resume", "--agents", SHOP) == [{"session": "s", "status": "idle"}]
    assert perdure("run", SHOP, "pay A-1", "--session", "s", "--submission", "mail-1") == "done: pay A-1\n"
    assert len(perdure.lines("ledger")) == 1


def test_how_a_turn_ended_is_the_exit_code(perdure: Program) -> None:
    failed = json.loads(perdure("run", SHOP, "bug", "--json", code=1))
    assert failed["failure"]["code"] == "model_error"
    perdure("run", SHOP, "provider", code=5)
    assert perdure.errors.count("again in") == 14
    assert "failed: rate_limited" in perdure.errors


def test_json_stands_alone_on_standard_output(perdure: Program) -> None:
    result = perdure.json("run", SHOP, "pay", "--owner", "acme", "--session", "s") if perdure.go() is None else None
    assert result["output"] == "done: pay"
    assert result["usage"]["input_tokens"] == 7
    assert perdure.errors == ""
    assert perdure.json("sessions", "--owner", "acme")[0]["session_id"] == "s"
    assert perdure.json("sessions", "--owner", "nobody") == []


def test_an_unfinished_turn_is_not_mixed_with_another_message(perdure: Program) -> None:
    perdure("run", SHOP, "refund", "--session", "s", "--no-wait", code=6)
    perdure("run", SHOP, "hello", "--session", "s", code=3)
    assert "perdure why s" in perdure.errors
    perdure("send", "s", "hello", "--submission", "mail-2")
    assert "was there before" in perdure("send", "s", "hello", "--submission", "mail-2")
    perdure("interrupt", "s", "--reason", "never mind")
    perdure("resume", "s", "--agents", SHOP)
    turns = perdure.json("show", "s")["turns"]
    assert [(turn["status"], turn["submission"]) for turn in turns][1:] == [("completed", "mail-2")]


@pytest.mark.parametrize("name", ["agents_here:shop", "agents_here.py:shop"])
def test_an_agent_is_named_by_module_or_by_file(perdure: Program, name: str) -> None:
    assert perdure("run", name, "hello") == "done: hello\n"


def test_a_session_of_another_owner_is_refused_before_anything_is_sent(perdure: Program) -> None:
    perdure("run", SHOP, "hello", "--session", "s", "--owner", "acme", "--submission", "one")
    perdure("run", SHOP, "hello", "--session", "free")
    before = {name: perdure("events", name, "--json") for name in ("s", "free")}
    for name, more in (("s", ()), ("free", ()), ("s", ("--submission", "one")), ("s", ("--submission", "two"))):
        perdure("run", SHOP, "hello", "--session", name, "--owner", "other", *more, code=3)
        assert f"there is no session '{name}' of the owner 'other'" in perdure.errors
    perdure("chat", SHOP, "--session", "s", "--owner", "other", code=3)
    assert "there is no session 's' of the owner 'other'" in perdure.errors
    assert {name: perdure("events", name, "--json") for name in ("s", "free")} == before
    assert [perdure.json("why", name)["queue"] for name in ("s", "free")] == [[], []]
    # Its own owner goes on with it, and so does who names none.
    assert "done: more" in perdure("run", SHOP, "more", "--session", "s", "--owner", "acme")
    assert "done: more" in perdure("run", SHOP, "more", "--session", "s")


@pytest.mark.parametrize("owner", ["", "acme"])
async def test_what_is_known_of_a_session_is_read_once_before_it_is_gone_on_with(monkeypatch: pytest.MonkeyPatch, owner: str) -> None:
    async with open_runtime("memory://") as runtime:
        await runtime.sessions.send("s", "hello", identity=Identity(owner="acme"))
        load, loaded = runtime.store.load, []

        async def counted(session_id: str, **options: bool) -> object:
            loaded.append(session_id)
            return await load(session_id, **options)

        monkeypatch.setattr(runtime.store, "load", counted)
        info = await owned_info(runtime, "s", owner)
        assert info is not None
        assert (info.owner, loaded) == ("acme", ["s"])
        with pytest.raises(SessionNotFound):
            await owned_info(runtime, "s", "other")
        assert await owned_info(runtime, "new", owner) is None
        await runtime.sessions.delete("s")
        with pytest.raises(SessionNotFound):
            await owned_info(runtime, "s", owner)


async def test_what_was_begun_with_a_model_alone_is_gone_on_with_by_it(perdure: Program) -> None:
    async with WireServer(["First.", "Second."]) as server:
        wire = {"OPENAI_API_KEY": "any", "OPENAI_BASE_URL": server.openai_url}
        await asyncio.to_thread(perdure, "run", "--model", "openai-chat:some", "hello", "--session", "s", **wire)
        perdure("send", "s", "again")
        advice = resume_command("agents.db", "s", agent_options("", "openai-chat:some")).removeprefix("perdure ")
        await asyncio.to_thread(perdure, *shlex.split(advice), **wire)
    assert "Second." in perdure("show", "s")
