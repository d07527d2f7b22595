"""``perdure chat`` on a real terminal, read as a person sees it: what stands on the screen, not what was sent to it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pexpect
import pyte
import pytest

from tests.integration.media.pictures import png

from .conftest import PATIENCE, Program

SHOP = "agents_here:shop"
THINKER = '''
import asyncio, pathlib
from perdure import Agent, ModelOutput, Reasoning, ReasoningDelta, Router, Text, TextDelta

HERE = pathlib.Path(__file__).parent

class Slow:
    """Thinks, then says it piece by piece; waits for the test in between."""

    def __init__(self, name):
        self.name, self.group = name, name

    async def stream(self, request):
        said = [message.text for message in request.messages if message.role == "user"]
        yield ReasoningDelta(text="first I weigh it\\nthen I decide\\n")
        yield TextDelta(text="the first line\\nthe sec")
        while not (HERE / "go").exists():
            await asyncio.sleep(0.005)
        yield TextDelta(text="ond line")
        text = f"the first line\\nthe second line ({self.name}: {' + '.join(said)})"
        yield TextDelta(text=text.removeprefix("the first line\\nthe second line"))
        yield ModelOutput(parts=(Reasoning(content="first I weigh it\\nthen I decide\\n"), Text(content=text)), finish="stop")

slow = Agent("slow", model=Router({"one": Slow("one"), "two": Slow("two")}))
'''


class Screen:
    """A terminal with a command on it, and what stands there now."""

    def __init__(self, program: Program, *arguments: str, columns: int = 100, lines: int = 40, **environment: str) -> None:
        self.screen = pyte.Screen(columns, lines)
        self.stream = pyte.ByteStream(self.screen)
        self.child = pexpect.spawn(
            sys.executable,
            ["-c", "import sys; from perdure.cli import main; sys.exit(main())", *arguments],
            cwd=str(program.directory),
            env={**{key: value for key, value in program.environment.items() if key != "COLUMNS"}, "TERM": "xterm", **environment},
            dimensions=(lines, columns),
            timeout=PATIENCE,
        )
        self.child.delaybeforesend = None
        # A terminal answers where its cursor is.
        self.screen.write_process_input = self.child.send

    @property
    def text(self) -> str:
        """What a person sees."""
        return "\n".join(line.rstrip() for line in self.screen.display).rstrip()

    def until(self, wanted: str | Callable[[str], object]) -> str:
        """Wait until the screen shows it; returns the whole screen."""
        holds = wanted if callable(wanted) else lambda text: wanted in text
        end = time.monotonic() + PATIENCE
        while not holds(self.text):
            assert time.monotonic() < end, f"the screen never showed {wanted!r}:\n{self.text}"
            try:
                data = self.child.read_nonblocking(65536, timeout=1)
            except pexpect.TIMEOUT:
                continue
            except pexpect.EOF:
                assert holds(self.text), f"the program ended, and never showed {wanted!r}:\n{self.text}"
                break
            self.stream.feed(data)
        return self.text

    def type(self, line: str) -> None:
        self.child.send(line + "\r")

    def end(self) -> int | None:
        """Wait for the program's end; returns its exit code."""
        while True:
            try:
                self.stream.feed(self.child.read_nonblocking(65536, timeout=PATIENCE))
            except pexpect.EOF:
                break
        self.child.close()
        return self.child.exitstatus


Chat = Callable[..., Screen]


@pytest.fixture
def chat(perdure: Program) -> Iterator[Chat]:
    opened: list[Screen] = []

    def begin(*arguments: str, **options: object) -> Screen:
        opened.append(Screen(perdure, "chat", *arguments, **options))  # type: ignore[arg-type]
        return opened[-1]

    yield begin
    for one in opened:
        one.child.close(force=True)


@pytest.fixture
def slow(perdure: Program) -> str:
    (perdure.directory / "thinker.py").write_text(THINKER)
    return "thinker:slow"


def prompt(text: str) -> bool:
    """Whether the screen waits for a line, and no turn runs."""
    return bool(re.search(r"^>$", text, re.M)) and "/help" in text and "Ctrl-C interrupts" not in text


@pytest.mark.parametrize("term", ["xterm", "screen-256color", "tmux-256color"])
def test_an_answer_streams_in_above_the_line_that_is_typed(perdure: Program, chat: Chat, slow: str, term: str) -> None:
    screen = chat(slow, "--session", "s", TERM=term)
    screen.until(prompt)
    screen.type("which one?")
    seen = screen.until(lambda text: "the first line" in text and "the sec" in text)
    assert "thinking" not in seen
    assert "thought for" in seen
    assert "2 lines; /reasoning shows them" in seen
    assert "first I weigh it" not in seen
    screen.child.send("typed meanwhile")
    screen.until("> typed meanwhile")
    perdure.go()
    seen = screen.until("the second line (one: which one?)")
    assert "> typed meanwhile" in screen.until(lambda text: "completed" in text and "> typed meanwhile" in text)
    assert seen.count("the first line") == 1
    screen.child.send("\x03")
    screen.until(prompt)
    screen.type("/reasoning")
    assert "then I decide" in screen.until("first I weigh it")
    screen.child.send("\x04")
    assert screen.end() == 0
    assert "--session s" in screen.text


def test_messages_queue_steer_and_are_taken_back_while_a_turn_runs(perdure: Program, chat: Chat) -> None:
    screen = chat(SHOP, "--session", "s")
    screen.until(prompt)
    screen.type("pay A-1")
    screen.until("→ pay(")
    screen.type("and then this")
    screen.until("> and then this (queued)")
    screen.type("never this")
    screen.until("2 messages waiting")
    screen.type("/withdraw 2")
    screen.until("taken back, and never delivered: never this")
    screen.until("1 message waiting")
    screen.type("/edit 1 and then that")
    screen.until("changed")
    screen.type("/steer by the way")
    screen.until("> by the way (joins the turn)")
    perdure.go()
    screen.until("done: by the way")
    screen.until("done: and then that")
    # What was queued is shown again when its turn begins, as it was sent.
    screen.until(lambda text: re.search(r"^> and then that$", text, re.M))
    seen = screen.until(prompt)
    assert "done: never this" not in seen
    assert [entry["change"] for entry in events(perdure) if entry["kind"] == "queue_changed"] == ["withdrawn", "edited"]


def test_a_call_is_approved_denied_and_edited_where_one_types(perdure: Program, chat: Chat) -> None:
    screen = chat(SHOP, "--session", "s")
    screen.until(prompt)
    screen.type("refund A-1")
    screen.until("a[b]ort >")
    screen.until(lambda text: re.search(r"cents +500", text))
    screen.type("e")
    screen.until('leave them) > {"cents": 500, "order": "A-1"}')
    screen.child.send("\x15" + '{"cents": "many", "order": "A-1"}\r')
    screen.until("valid integer")
    screen.until('leave them) > {"cents": 500, "order": "A-1"}')
    screen.child.send("\x15" + '{"cents": 3, "order": "A-1"}\r')
    screen.until("approved with")
    screen.until("refunded 3")
    screen.until(prompt)
    screen.type("refund A-1 again")
    screen.until("a[b]ort >")
    screen.type("d")
    screen.until("may be empty) >")
    screen.type("not twice")
    screen.until("a person denied it: not twice")
    screen.until(prompt)
    assert perdure.lines("ledger") == ["A-1 3"]


def test_a_line_begun_before_a_question_never_answers_it(perdure: Program, chat: Chat, slow: str) -> None:
    screen = chat(SHOP, "--session", "s")
    screen.until(prompt)
    screen.type("pay A-1")
    screen.until("→ pay(")
    screen.type("refund A-1")
    screen.until("(queued)")
    screen.child.send("approve of it, do you")
    screen.until("> approve of it, do you")
    perdure.go()
    screen.until("refund asks for approval")
    screen.type("?")
    screen.until("> approve of it, do you? (queued)")
    assert perdure.json("sessions")[0]["status"] == "waiting"
    assert perdure.lines("ledger")[1:] == []
    screen.until("a[b]ort >")
    screen.type("a")
    screen.until("refunded 500")


def test_ctrl_c_interrupts_the_turn_and_keeps_the_conversation(perdure: Program, chat: Chat) -> None:
    screen = chat(SHOP, "--session", "s")
    screen.until(prompt)
    screen.type("pay A-1")
    perdure.until(lambda: perdure.lines("ledger"))
    screen.until("Ctrl-C interrupts")
    screen.type("/why")
    # What `perdure why` says of it, from another process.
    screen.until("pay runs for")
    assert "turn t2, step 0" in screen.text
    assert "held by process" in screen.text
    screen.child.send("\x03")
    screen.until("interrupted")
    screen.until(prompt)
    screen.child.send("\x03")
    screen.until("Ctrl-D leaves")
    screen.type("hello")
    screen.until("done: hello")
    screen.type("/quit")
    assert screen.end() == 0


def test_what_waits_when_a_turn_is_interrupted_is_said_to_go_on(perdure: Program, chat: Chat) -> None:
    screen = chat(SHOP, "--session", "s")
    screen.until(prompt)
    screen.type("pay A-1")
    screen.until("→ pay(")
    screen.type("/steer by the way")
    screen.until("1 message waiting")
    screen.child.send("\x03")
    screen.until("begins a turn of its own then (by the way): /withdraw takes it back")
    screen.until("it could not join the turn that ended, and begins one of its own: by the way")
    screen.until("done: by the way")
    screen.until(prompt)
    assert [entry.get("change", "promoted") for entry in events(perdure) if entry["kind"] == "queue_changed"] == ["promoted"]


def test_another_model_is_chosen_and_another_session_gone_on_with(perdure: Program, chat: Chat, slow: str) -> None:
    perdure.go()
    screen = chat(slow, "--session", "first")
    screen.until(prompt)
    screen.type("hello")
    screen.until("(one: hello)")
    screen.until(prompt)
    screen.type("/model")
    screen.until("* one")
    screen.type("/model two")
    screen.until("the model is two from now on")
    screen.type("again")
    screen.until("(two: hello + again)")
    screen.until(prompt)
    screen.type("/model three")
    screen.until("there is no route 'three'")
    screen.type("/resume second")
    screen.until("there is no session 'second'")
    perdure("run", slow, "over here", "--session", "second")
    screen.type("/sessions")
    screen.until("over here")
    screen.type("/resume second")
    screen.until("(one: over here)")
    screen.until(lambda text: "second · slow" in text)
    screen.type("bye")
    screen.until("(one: over here + bye)")
    screen.child.send("\x04")
    assert screen.end() == 0
    assert "--session second" in screen.text


def test_a_conversation_is_found_again_with_its_lines_in_the_arrow_keys(perdure: Program, chat: Chat) -> None:
    perdure("run", SHOP, "hello there", "--session", "s")
    screen = chat(SHOP, "--session", "s")
    seen = screen.until(prompt)
    assert "> hello there" in seen
    assert "done: hello there" in seen
    screen.child.send("\x1b[A")
    screen.until(lambda text: text.count("> hello there") == 2)
    screen.child.send("\x03")
    screen.until(prompt)
    screen.child.send("one\\\rtwo\r")
    screen.until("done: one")
    said = [entry for entry in events(perdure) if entry["kind"] == "message" and entry.get("role") == "user"]
    assert said[-1]["parts"][0]["content"] == "one\ntwo"


def test_a_turn_that_was_cut_off_goes_on_while_one_types(perdure: Program, chat: Chat) -> None:
    running = perdure.start("run", SHOP, "pay A-1", "--session", "s")
    perdure.until(lambda: perdure.lines("ledger"))
    running.kill()
    running.wait()
    screen = chat(SHOP, "--session", "s")
    screen.until("the last turn is not over")
    screen.until("taken over after a process died")
    screen.type("and then?")
    screen.until("(queued)")
    perdure.go()
    screen.until("done: pay A-1")
    screen.until("done: and then?")
    screen.child.send("\x04")
    assert screen.end() == 0


def test_a_running_turn_is_shown_once_to_whoever_comes_to_it(perdure: Program, chat: Chat) -> None:
    running = perdure.start("run", SHOP, "hello", "--session", "s")
    perdure.end(running)
    running = perdure.start("run", SHOP, "pay A-1", "--session", "s")
    perdure.until(lambda: perdure.lines("ledger"))
    running.kill()
    running.wait()
    screen = chat(SHOP, "--session", "other")
    screen.until("/help")
    screen.type("/sessions")
    assert "/resume SESSION goes on with one of them" in screen.until("goes on with")
    assert "there is no other" not in screen.text
    screen.type("/resume s")
    screen.until("the last turn is not over")
    perdure.until(lambda: len(perdure.lines("ledger")) == 2)
    perdure.go()
    text = screen.until(lambda text: "done: pay A-1" in text and prompt(text))
    assert text.count("> hello") == 1
    assert text.count("> pay A-1") == 1
    assert "user:" not in text
    assert text.count("Working.") == 1
    assert text.index("done: hello") < text.index("the last turn is not over") < text.index("> pay A-1")


def test_a_call_that_ran_otherwise_than_it_was_asked_for_says_so_when_it_is_shown_again(perdure: Program, chat: Chat) -> None:
    perdure("run", SHOP, "refund A-1", "--session", "s", "--no-wait", code=6)
    perdure("approve", "s", "--arguments", '{"order": "A-1", "cents": 7}')
    perdure("resume", "s", "--agents", SHOP)
    screen = chat(SHOP, "--session", "s", columns=160)
    text = screen.until("done: refund A-1")
    assert '→ refund(cents=7, order="A-1")  edited by a person; the model asked for cents=500, order="A-1"' in text
    assert "refunded 7" in text


def test_while_a_question_stands_there_the_footer_says_what_enter_does(perdure: Program, chat: Chat) -> None:
    screen = chat(SHOP, "--session", "s")
    screen.until("/help")
    screen.type("refund A-1")
    assert "Enter queues" not in screen.until(lambda text: "[a]pprove" in text and "Enter answers · Ctrl-D leaves it open" in text)
    screen.type("d")
    screen.until("reason (the model reads it")
    screen.type("too much")
    screen.until(lambda text: "completed" in text and prompt(text))


def test_before_the_first_message_commands_say_that_nothing_has_begun(perdure: Program, chat: Chat, slow: str) -> None:
    screen = chat(slow)
    screen.until(prompt)
    screen.type("/model")
    screen.until("* one")
    screen.type("/why")
    screen.until("the session begins with your first message")
    screen.child.send("\x04")
    assert screen.end() == 0
    assert "is kept" not in screen.text


def test_whoever_leaves_before_the_next_prompt_stands_there_has_left(perdure: Program, chat: Chat) -> None:
    (perdure.directory / "pondering.py").write_text(PONDERING)
    screen = chat("pondering:agent")
    screen.until(prompt)
    (perdure.directory / "wait").touch()
    screen.type("/model")
    perdure.until((perdure.directory / "asked").exists)
    screen.child.send("\x04")
    perdure.go()
    assert screen.end() == 0
    assert "* one" in screen.text


PONDERING = """
import pathlib, time
from perdure import Agent, FunctionModel, Router

HERE = pathlib.Path(__file__).parent

class Pondering(Router):
    @property
    def names(self):
        if (HERE / "wait").exists():
            (HERE / "asked").touch()
            while not (HERE / "go").exists():
                time.sleep(0.005)
        return super().names

agent = Agent("pondering", model=Pondering({"one": FunctionModel(lambda request: "one"), "two": FunctionModel(lambda request: "two")}))
"""


def test_unknown_commands_and_another_agents_session_are_refused_in_words(perdure: Program, chat: Chat, slow: str) -> None:
    perdure.go()
    screen = chat(SHOP, "--session", "s")
    screen.until(prompt)
    screen.type("/dance")
    screen.until("there is no /dance")
    screen.type("/steer")
    screen.until("/steer needs its text")
    screen.type("//etc/hosts")
    screen.until("done: /etc/hosts")
    screen.type("/interrupt")
    screen.until("no turn is running")
    screen.type("/help")
    screen.until("Alt-Enter")
    perdure("run", slow, "mine", "--session", "other")
    screen.type("/resume other")
    screen.until("belongs to the agent 'slow'")
    screen.child.send("\x04")
    assert screen.end() == 0
    assert "belongs to the agent 'slow'" in perdure_error(perdure, "chat", SHOP, "--session", "other")


def test_a_file_goes_with_the_next_message_and_no_other(perdure: Program, chat: Chat) -> None:
    (perdure.directory / "cat.png").write_bytes(png())
    screen = chat(SHOP, "--session", "s")
    screen.until(prompt)
    screen.type("/attach no.png")
    screen.until("No such file")
    screen.type("/attach cat.png")
    screen.until("goes with the next message: [cat.png, image/png, ")
    screen.type("/attach")
    screen.until("nothing goes with the next message")
    screen.type("/attach cat.png")
    screen.type("look")
    screen.until("done: look")
    assert "> look [cat.png, image/png, " in screen.text
    screen.until(prompt)
    screen.type("and now")
    screen.until("done: and now")
    screen.child.send("\x04")
    assert screen.end() == 0
    shown = perdure.json("show", "s")
    parts = [[part["type"] for part in item["parts"]] for turn in shown["turns"] for item in turn["items"] if item["type"] == "message"]
    assert parts == [["text", "blob"], ["text"]]
    again = chat(SHOP, "--session", "s")
    again.until("> look [cat.png, image/png, ")


def test_what_the_agent_says_cannot_command_the_terminal(perdure: Program, chat: Chat) -> None:
    screen = chat(SHOP)
    screen.until(prompt)
    screen.type("nasty")
    seen = screen.until("\\x1b[31mred")
    assert "> nasty" in seen


def test_a_narrow_screen_holds_a_conversation(perdure: Program, chat: Chat, slow: str) -> None:
    screen = chat(slow, "--session", "s", columns=40, lines=16)
    screen.until(prompt)
    screen.type("a question that is longer than the screen is wide, by far")
    screen.until("the sec")
    perdure.go()
    screen.until(lambda text: "by far)" in text)
    screen.until(prompt)


def test_a_workspace_gives_the_agent_files_and_asks_before_it_changes_one(perdure: Program, chat: Chat) -> None:
    workspace = perdure.directory / "workspace"
    workspace.mkdir()
    (workspace / "notes.txt").write_text("milk\n")
    (perdure.directory / "writer.py").write_text(WRITER)
    screen = chat("writer.py:writer", "--workspace", str(workspace), "--sandbox", "auto")
    screen.until(prompt)
    screen.type("add eggs")
    screen.until("→ read_file(")
    screen.until("a[b]ort >")
    assert (workspace / "notes.txt").read_text() == "milk\n"
    screen.type("a")
    screen.until("all done")
    assert (workspace / "notes.txt").read_text() == "milk\neggs\n"


WRITER = """
from perdure import Agent, FunctionModel, Reply, ToolCall

def play(request):
    if request.step == 0:
        return Reply(tool_calls=[ToolCall("read_file", {"path": "notes.txt"})])
    if request.step == 1:
        return Reply(tool_calls=[ToolCall("write_file", {"path": "notes.txt", "content": "milk\\neggs\\n"})])
    return Reply("all done")

writer = Agent("writer", model=FunctionModel(play))
"""


def test_lines_from_a_pipe_are_a_conversation_too(perdure: Program) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", "import sys; from perdure.cli import main; sys.exit(main())", "chat", SHOP, "--session", "s"],
        cwd=perdure.directory,
        env=perdure.environment,
        input="hello\nand again\n/quit is no command here\n",
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert re.findall(r"done: .*", ended.stdout) == ["done: hello", "done: and again", "done: /quit is no command here"]


def perdure_error(program: Program, *arguments: str) -> str:
    program(*arguments, code=2)
    return program.errors


def events(program: Program) -> list[dict[str, object]]:
    return [json.loads(line) for line in program("events", "s", "--json").splitlines()]
