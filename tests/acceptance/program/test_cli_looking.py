"""What can be seen of sessions from outside: lists, timelines, events, effects, and damage."""

from __future__ import annotations

import json
import sqlite3

from .conftest import PATIENCE, Program

SHOP = "agents_here:shop"


def test_what_models_and_tools_write_commands_no_terminal(perdure: Program) -> None:
    outputs = [perdure("run", SHOP, "nasty \x1b[5m", "--session", "s")]
    outputs.append(perdure.errors)
    outputs += [perdure("run", SHOP, "hello", "--session", "t", "--owner", "\x1b[1mme", code=2), perdure.errors]
    for command in (["sessions"], ["show", "s"], ["why", "s"], ["events", "s"], ["events", "s", "--json"], ["sessions", "--json"]):
        outputs += [perdure(*command), perdure.errors]
    for output in outputs:
        assert not set(output) & set(map(chr, [*range(9), *range(11, 32), *range(127, 160), 0x202E]))
    assert "\\x1b[31mred" in outputs[0]
    assert "\\x1b[5m" in perdure("show", "s")


def test_a_timeline_shows_what_was_done_and_by_whom(perdure: Program) -> None:
    perdure("run", SHOP, "break", "--session", "s")
    shown = perdure("show", "s")
    assert "? break_down()" in shown
    assert "uncertain" in shown
    data = perdure.json("show", "s")
    assert data["session"]["session_id"] == "s"
    items = data["turns"][0]["items"]
    assert [item["type"] for item in items] == ["message", "model", "answer", "tool", "model", "answer"]
    assert items[3]["attempts"][0]["status"] == "uncertain"
    perdure("run", SHOP, "hello", "--session", "s")
    assert [turn["status"] for turn in perdure.json("show", "s", "--last", "1")["turns"]] == ["completed"]


def test_an_effect_that_nobody_knows_of_is_listed_and_settled(perdure: Program) -> None:
    perdure("run", SHOP, "break", "--session", "s")
    [item] = perdure.json("uncertain")
    assert (item["session_id"], item["name"], item["attempt"]) == ("s", "break_down", 1)
    assert f"perdure uncertain s --settle {item['operation']}" in perdure("uncertain", "s")
    assert perdure.json("why", "s")["uncertain"] == 1
    assert "nobody knows what came of 1 call: `perdure uncertain s`" in perdure("why", "s")
    perdure("uncertain", "s", "--settle", item["operation"], "--result", '"it worked"')
    assert perdure.json("uncertain") == []
    assert "nothing is to be done" in perdure("why", "s")
    perdure("uncertain", "s", "--settle", item["operation"], "--failed", "no", code=3)
    assert "it worked" in perdure("show", "s")
    assert perdure("verify").endswith("nothing is wrong\n")


def test_what_people_are_asked_anywhere_is_listed_with_the_commands_that_answer_it(perdure: Program) -> None:
    perdure("run", SHOP, "hello", "--session", "quiet")
    assert perdure.json("requests") == []
    for session, owner in (("s", "acme"), ("t", "other")):
        perdure("run", SHOP, "refund A-1", "--session", session, "--owner", owner, "--no-wait", code=6)
    listed = perdure.json("requests")
    assert [(item["session"], item["owner"], item["kind"], item["name"]) for item in listed] == [
        ("t", "other", "approval", "refund"),
        ("s", "acme", "approval", "refund"),
    ]
    assert listed == [item for name in ("t", "s") for item in perdure.json("why", name)["requests"]]
    assert listed[1]["arguments"] == {"order": "A-1", "cents": 500}
    shown = perdure("requests", "--owner", "acme", "--kind", "approval", "--status", "waiting")
    assert shown.startswith("s  agent shop, owner acme, asked ")
    assert "refund asks for approval:" in shown
    assert "order  A-1" in shown
    [first] = perdure.json("requests", "--limit", "1")
    token = perdure.errors.split("--after ")[1].strip()
    assert [first, *perdure.json("requests", "--limit", "1", "--after", token)] == listed
    # The command that is shown answers it.
    [approve] = [line for line in shown.splitlines() if line.startswith("  perdure approve") and "--arguments" not in line]
    perdure(*approve.partition("#")[0].split()[1:])
    assert [item["session"] for item in perdure.json("requests")] == ["t"]
    for wrong in (["--kind", "opinion"], ["--status", "asleep"], ["--after", "made.up"]):
        perdure("requests", *wrong, code=2)


def test_steps_stand_with_their_call_and_a_call_that_another_session_made_says_so(perdure: Program) -> None:
    perdure("run", SHOP, "travel", "--session", "s")
    shown = perdure("show", "s").splitlines()
    [place] = [index for index, line in enumerate(shown) if "travel(" in line]
    assert shown[place].startswith('  ? travel(place="Rome")  t2.0.1')
    assert shown[place + 2].startswith("    ✓ travel/hotel  t2.0.1/hotel")
    assert shown[place + 4].startswith("    ? travel/charge  t2.0.1/charge")
    assert "nasty()" in "".join(shown[place + 5 :])
    assert {item["operation"]: item["name"] for item in perdure.json("uncertain")} == {"t2.0.1": "travel", "t2.0.1/charge": "travel/charge"}
    # A step has no arguments of its own: those of the call that it is a step of say what it was about.
    [step] = [item for item in perdure.json("uncertain") if "/" in item["operation"]]
    assert (step["arguments"], step["within"]) == (None, {"place": "Rome"})
    assert '? s  travel/charge of travel(place="Rome")  since' in perdure("uncertain", "s")

    perdure("run", SHOP, "travel", "--session", "t")
    assert "= done already by s t2.0.1: nobody knows whether it took effect" in perdure("show", "t")
    perdure("uncertain", "s", "--settle", "t2.0.1/charge", "--failed", "refused")
    perdure("uncertain", "s", "--settle", "t2.0.1", "--result", '"paid in cash"')
    perdure("run", SHOP, "travel", "--session", "u")
    assert "= done already by s t2.0.1: paid in cash" in perdure("show", "u")
    assert perdure("verify").endswith("nothing is wrong\n")


def test_events_are_followed_from_another_process_as_they_are_committed(perdure: Program) -> None:
    perdure("run", SHOP, "hello", "--session", "s")
    entries = [json.loads(line) for line in perdure("events", "s", "--json").splitlines()]
    assert [entry["seq"] for entry in entries] == list(range(1, len(entries) + 1))
    assert entries[0]["kind"] == "session_created"
    follower = perdure.start("events", "s", "--after", "1", "--follow", "--json")
    assert follower.stdout is not None
    seen = [json.loads(follower.stdout.readline())]
    perdure("run", SHOP, "refund A-1", "--session", "s", "--no-wait", code=6)
    perdure("deny", "s")
    while seen[-1]["kind"] != "request_closed":
        seen.append(json.loads(follower.stdout.readline()))
    assert [entry["seq"] for entry in seen] == list(range(2, len(seen) + 2))
    follower.kill()


def test_a_closed_pipe_ends_a_command_quietly(perdure: Program) -> None:
    perdure("run", SHOP, "hello", "--session", "s")
    follower = perdure.start("events", "s", "--follow", "--json")
    assert follower.stdout is not None
    follower.stdout.readline()
    follower.stdout.close()
    perdure("run", SHOP, "hello again", "--session", "s")
    assert follower.wait(timeout=PATIENCE) == 0
    assert follower.stderr is not None
    assert follower.stderr.read() == ""


def test_why_says_who_works_and_on_what(perdure: Program) -> None:
    running = perdure.start("run", SHOP, "pay A-1", "--session", "s", "--submission", "mail-1")
    perdure.until(lambda: perdure.lines("ledger"))
    perdure("send", "s", "and then this")
    why = perdure.json("why", "s")
    assert why["holder"]["pid"] == running.pid
    assert why["holder"]["alive"] is True
    assert [(item["name"], item["status"]) for item in why["operations"]] == [("pay", "started")]
    assert [item["text"] for item in why["queue"]] == ["and then this"]
    text = perdure("why", "s")
    assert f"held by process {running.pid}" in text
    assert "pay runs for" in text
    perdure.go()
    assert perdure.end(running) == "done: pay A-1\n"
    assert "somebody has to take up what waits" in perdure("why", "s") or perdure.json("sessions")[0]["status"] == "idle"


def test_verify_names_the_bad_row_and_a_kept_head_notices_a_rollback(perdure: Program) -> None:
    perdure("run", SHOP, "hello", "--session", "s")
    perdure("run", SHOP, "hello", "--session", "t")
    kept = perdure("verify", "s", "--head").strip()
    assert perdure.json("verify", "--head")["s"] == kept
    clean = perdure.json("verify")
    assert clean["problems"] == []
    assert clean["checked"]["sessions"] == 2
    perdure("verify", "s", "--expect", kept)
    perdure("verify", "t", "--expect", kept, code=1)
    with sqlite3.connect(perdure.db) as database:
        database.execute("UPDATE journal SET at = at + 1 WHERE seq = 4 AND no = 1")
    database.close()
    report = perdure.json("verify", code=1)
    assert report["problems"][0]["session_id"] == "s"
    assert (report["problems"][0]["where"], report["problems"][0]["seq"]) == ("journal", 4)
    assert "s  journal 4: the hash chain breaks here" in perdure("verify", "s", code=1)
    perdure("verify", "t")


def test_the_list_is_filtered_and_limited(perdure: Program) -> None:
    perdure("run", SHOP, "hello", "--session", "a")
    perdure("run", SHOP, "refund", "--session", "b", "--no-wait", code=6)
    assert [row["session_id"] for row in perdure.json("sessions")] == ["b", "a"]
    assert [row["session_id"] for row in perdure.json("sessions", "--status", "waiting")] == ["b"]
    assert [row["session_id"] for row in perdure.json("sessions", "--limit", "1")] == ["b"]
    table = perdure("sessions").splitlines()
    assert table[0].split() == ["SESSION", "STATUS", "AGENT", "OWNER", "CHANGED", "TITLE"]
    assert table[1].startswith("b        waiting  shop")


async def test_a_compaction_is_seen_in_the_timeline_and_asked_for_by_nobody_who_reads(perdure: Program) -> None:
    from perdure import Agent, FunctionModel, ModelRequest, Reply, ToolCall
    from perdure import open as open_store

    def answer(request: ModelRequest) -> Reply:
        return Reply(tool_calls=[ToolCall("save_notes", {"notes": "NOTES"})]) if request.purpose == "notes" else Reply("hello")

    agent = Agent("a", model=FunctionModel(answer))
    async with open_store(str(perdure.db)) as runtime:
        await runtime.run(agent, "hi", session="s")
        await runtime.sessions.compact("s")
        await runtime.recover([agent], session="s")
    items = [item for turn in perdure.json("show", "s")["turns"] for item in turn["items"]]
    [written] = [item for item in items if item["type"] == "compaction"]
    assert (written["status"], written["notes"]) == ("succeeded", "NOTES")
    shown = perdure("show", "s")
    assert "notes by model function" in shown
    assert "what models see changed: compaction" in shown
    assert perdure("verify").endswith("nothing is wrong\n")


GUARDED = '''
from perdure import Agent, Continue, FunctionModel, Middleware, Replace, Reply, Rewrite, ToolCall, tool

@tool(effect="pure")
def look(place: str) -> str:
    """Look."""
    return f"nothing at {place}"

class Guard(Middleware):
    name = "guard"
    def __init__(self):
        self.commands = {"raise": lambda ctx, arguments: ctx.state.__setitem__("limit", arguments["to"])}
    async def before_tool(self, ctx, call):
        ctx.guide("be careful")
        ctx.state["calls"] = await ctx.effect("count", lambda: 1)
        return Rewrite(arguments={"place": "elsewhere"})
    def after_tool(self, ctx, call, response):
        return Replace(f"<{response.response}>")
    def stop(self, ctx, answer):
        return Continue("and now?")
    def turn_end(self, ctx, outcome):
        pass

def answer(request):
    return Reply("Well.") if request.step else Reply(tool_calls=[ToolCall("look", {"place": "here"}, "call-1")])

guarded = Agent("guarded", model=FunctionModel(answer), tools=[look], middleware=[Guard()])
'''


def test_what_middleware_did_is_seen_as_it_happens_and_in_the_timeline(perdure: Program) -> None:
    (perdure.directory / "guarded.py").write_text(GUARDED)
    perdure("run", "guarded:guarded", "look around", "--session", "s")
    live = perdure.errors
    assert "look(place='elsewhere')" in live or 'look(place="elsewhere")' in live
    assert "told the model: be careful" in live
    shown = perdure("show", "s")
    for words in (
        "guard.before_tool.count",
        "rewritten by guard; the model asked for",
        "note of guard: be careful",
        "note of guard: and now?",
        "guard: calls = 1",
        "of look the model reads instead: <nothing at elsewhere>",
    ):
        assert words in shown
    assert perdure("why", "s")
    assert "turn_ending" in perdure("events", "s")
    assert perdure("verify")


REMEMBERING = """
from perdure import Agent, Reply, ScriptedModel, SessionMemory, Usage

found = Reply('[{"content": "It rains"}]', usage=Usage(input_tokens=12, output_tokens=3))
agent = Agent("a", model=ScriptedModel(["One."], memory=found), memory=SessionMemory(min_tokens=1, min_text_messages=1))
"""


def test_show_tells_what_was_looked_for_and_what_is_remembered(perdure: Program) -> None:
    (perdure.directory / "remembering.py").write_text(REMEMBERING)
    printed = perdure("run", "remembering:agent", "hello", "--session", "s")
    assert printed.strip() == "One."
    assert "what to remember was looked for" in perdure.errors
    shown = perdure("show", "s")
    assert "what to remember, by model scripted" in shown
    assert "It rains" in shown
    assert "pure" not in shown


SLEEPER = """
from datetime import timedelta
from perdure import Agent, Reply, ScriptedModel, ToolCall, ToolContext, tool

@tool(effect="external", resumable=True)
async def remind(ctx: ToolContext) -> str:
    await ctx.sleep_until("night", timedelta(days=1))
    return "reminded"

agent = Agent("sleeper", model=ScriptedModel([Reply(tool_calls=[ToolCall("remind", {})]), "Done."]), tools=[remind])
"""


def test_why_says_until_when_a_call_sleeps(perdure: Program) -> None:
    (perdure.directory / "sleeper.py").write_text(SLEEPER)
    running = perdure.start("run", "sleeper:agent", "go", "--session", "s")
    perdure.until(lambda: perdure.db.exists() and "s" in perdure("sessions") and perdure.json("why", "s")["status"] == "waiting")
    facts = perdure.json("why", "s")
    assert [(item["name"], item["status"]) for item in facts["operations"]] == [("remind", "asleep"), ("remind/night", "awaiting")]
    assert facts["wake_at"] == facts["operations"][1]["deadline"]
    told = perdure("why", "s")
    assert "remind sleeps, and runs again when its time has come" in told
    assert "remind/night waits until" in told
    assert "it goes on by itself at that time" in told
    perdure("interrupt", "s")
    perdure.end(running, code=1)


def test_a_tool_that_knows_what_became_of_its_call_is_asked_once_more(perdure: Program) -> None:
    running = perdure.start("run", "agents_here:shop", "careful", "--session", "s")
    perdure.until(lambda: perdure.lines("ledger") == ["careful"])
    perdure("interrupt", "s")
    perdure.end(running, code=1)
    assert [item["name"] for item in perdure.json("uncertain")] == ["careful"]
    perdure("uncertain", "--reconcile", code=2)
    perdure("uncertain", "s", "--agents", "agents_here:shop", code=2)
    assert (
        "nothing is uncertain that these tools could tell"
        in perdure("uncertain", "--reconcile", "--agents", "agents_here:other") + perdure.errors
    )
    assert "careful: it was done" in perdure("uncertain", "s", "--reconcile", "--agents", "agents_here:shop")
    assert perdure.json("uncertain", "s", "--reconcile", "--agents", "agents_here:shop") == []
    assert perdure.json("uncertain") == []
    assert perdure("verify").endswith("nothing is wrong\n")
