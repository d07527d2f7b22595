"""On a terminal: questions, a conversation, interrupts, and narrow screens."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator

import pexpect
import pytest

from .conftest import PATIENCE, Program

SHOP = "agents_here:shop"


class Terminal:
    """A command on a terminal."""

    def __init__(self, program: Program, *arguments: str, columns: int = 80, **environment: str) -> None:
        self.child = pexpect.spawn(
            sys.executable,
            ["-c", "import sys; from perdure.cli import main; sys.exit(main())", *arguments],
            cwd=str(program.directory),
            env={**{key: value for key, value in program.environment.items() if key != "COLUMNS"}, "TERM": "xterm", **environment},
            dimensions=(40, columns),
            timeout=PATIENCE,
            encoding="utf-8",
        )
        self.child.delaybeforesend = None

    def see(self, words: str) -> str:
        """Wait until the screen shows the words; returns what came before, without colours."""
        self.child.expect_exact(words)
        return plain(self.child.before or "")

    def type(self, line: str) -> None:
        self.child.sendline(line)

    def end(self) -> tuple[str, int | None]:
        self.child.expect(pexpect.EOF)
        rest = plain(self.child.before or "")
        self.child.close()
        return rest, self.child.exitstatus


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text).replace("\r\n", "\n")


@pytest.fixture
def terminal(perdure: Program) -> Iterator[type[Terminal]]:
    opened: list[Terminal] = []

    class Kept(Terminal):
        def __init__(self, *arguments: str, **options: object) -> None:
            super().__init__(perdure, *arguments, **options)  # type: ignore[arg-type]
            opened.append(self)

    yield Kept
    for one in opened:
        one.child.close(force=True)


def test_a_call_is_approved_with_edited_arguments(perdure: Program, terminal: type[Terminal]) -> None:
    screen = terminal("run", SHOP, "refund A-1", "--session", "s")
    asked = screen.see("a[b]ort > ")
    assert "refund asks for approval:" in asked
    assert "  cents  500" in asked
    # What isn't offered decides nothing, a yes that was meant for something else least of all.
    for word in ("what?", "y", "yes", "no"):
        screen.type(word)
        screen.see("one of the letters in brackets")
        screen.see("a[b]ort > ")
    screen.type("e")
    screen.see("leave them) > ")
    screen.type("{no json")
    screen.see("that is no JSON")
    screen.see("leave them) > ")
    screen.type('{"order": "A-1", "cents": 3}')
    screen.see('approved with cents=3, order="A-1"')
    screen.see("refunded 3")
    rest, code = screen.end()
    assert rest.count("done: refund A-1") == 1
    assert code == 0
    assert perdure.lines("ledger") == ["A-1 3"]


def test_a_call_is_denied_with_a_reason_or_its_turn_aborted(perdure: Program, terminal: type[Terminal]) -> None:
    screen = terminal("run", SHOP, "refund A-1", "--session", "s")
    screen.see("a[b]ort > ")
    screen.type("d")
    screen.see("may be empty) > ")
    screen.type("not today")
    screen.see("a person denied it: not today")
    assert screen.end()[1] == 0
    screen = terminal("run", SHOP, "refund A-1", "--session", "s")
    screen.see("a[b]ort > ")
    screen.type("b")
    screen.see("aborted: approval aborted")
    assert screen.end()[1] == 1
    assert perdure.lines("ledger") == []


def test_a_call_that_was_granted_for_the_session_is_not_asked_about_again(perdure: Program, terminal: type[Terminal]) -> None:
    screen = terminal("run", SHOP, "refund A-1", "--session", "s")
    screen.see("a[b]ort > ")
    screen.type("g")
    screen.see("approved for the whole session")
    assert screen.end()[1] == 0
    assert perdure("run", SHOP, "refund A-1", "--session", "s") == "done: refund A-1\n"
    assert "may run without asking" in perdure("show", "s")


def test_a_question_that_was_answered_elsewhere_goes_away(perdure: Program, terminal: type[Terminal]) -> None:
    screen = terminal("run", SHOP, "refund A-1", "--session", "s")
    screen.see("a[b]ort > ")
    perdure("approve", "s", "--actor", "ben")
    screen.see("approved by ben")
    rest, code = screen.end()
    assert "done: refund A-1" in rest
    assert code == 0


def test_ctrl_c_on_a_question_interrupts_the_turn(perdure: Program, terminal: type[Terminal]) -> None:
    screen = terminal("run", SHOP, "refund A-1", "--session", "s")
    screen.see("a[b]ort > ")
    screen.child.sendintr()
    screen.see("aborted: interrupted")
    assert screen.end()[1] == 130
    assert perdure.json("sessions")[0]["status"] == "idle"


def test_a_conversation_on_a_plain_terminal_goes_on_where_it_was_left(perdure: Program, terminal: type[Terminal]) -> None:
    screen = terminal("chat", SHOP, "--session", "s", TERM="dumb")
    screen.see("> ")
    screen.type("hello there")
    screen.see("done: hello there")
    screen.see("> ")
    screen.child.sendintr()
    screen.see("(Ctrl-D leaves)")
    screen.type("pay A-1")
    perdure.until(lambda: perdure.lines("ledger"))
    screen.child.sendintr()
    screen.see("aborted: interrupted")
    screen.see("> ")
    screen.child.sendeof()
    screen.see("--session s")
    assert screen.end()[1] == 0
    again = terminal("chat", SHOP, "--session", "s", TERM="dumb")
    earlier = again.see("pay(")
    assert "hello there" in earlier
    again.see("> ")
    again.type("refund A-1")
    again.see("a[b]ort > ")
    again.type("a")
    again.see("done: refund A-1")
    again.see("> ")
    again.child.sendeof()
    assert again.end()[1] == 0
    assert perdure.lines("ledger")[-1] == "A-1 500"


def test_a_conversation_that_was_cut_off_ends_its_turn_first(perdure: Program, terminal: type[Terminal]) -> None:
    running = perdure.start("run", SHOP, "pay A-1", "--session", "s")
    perdure.until(lambda: perdure.lines("ledger"))
    running.kill()
    running.wait()
    perdure.go()
    screen = terminal("chat", SHOP, "--session", "s", TERM="dumb")
    screen.see("the last turn is not over")
    screen.see("taken over after a process died")
    screen.see("done: pay A-1")
    screen.see("> ")
    screen.child.sendeof()
    assert screen.end()[1] == 0


def test_a_narrow_screen_shows_everything_within_its_width(perdure: Program, terminal: type[Terminal]) -> None:
    perdure("run", SHOP, "refund A-1 because the parcel never came", "--session", "a-session-with-a-rather-long-name", "--no-wait", code=6)
    for command in (["sessions"], ["show", "a-session-with-a-rather-long-name"]):
        shown, code = terminal(*command, columns=40, NO_COLOR="1").end()
        assert code == 0
        assert max(map(len, shown.splitlines())) <= 40
        assert "a-session-with-a-rather-long-name" in shown
        assert "parcel" in shown


def test_a_tool_that_is_called_from_outside_is_approved_where_one_calls_it(perdure: Program, terminal: type[Terminal]) -> None:
    perdure("run", SHOP, "hello", "--session", "s")
    screen = terminal("call", SHOP, "s", "refund", '{"order": "A-1", "cents": 5}')
    screen.see("a[b]ort > ")
    screen.type("a")
    screen.see("no model calls")
    screen.see("refunded 5")
    assert screen.end()[1] == 0
    assert perdure.lines("ledger") == ["A-1 5"]


def test_a_dumb_terminal_shows_the_answer_once(perdure: Program, terminal: type[Terminal]) -> None:
    shown, code = terminal("run", SHOP, "hello", TERM="dumb").end()
    assert code == 0
    assert shown.count("done: hello") == 1
    assert "\x1b" not in shown


def test_edited_arguments_that_the_tool_can_not_take_are_asked_for_again(perdure: Program, terminal: type[Terminal]) -> None:
    screen = terminal("run", SHOP, "refund A-1", "--session", "s", columns=200)
    screen.see("a[b]ort > ")
    screen.type("e")
    for wrong, told in (
        ("[1]", "arguments are an object"),
        ('{"order": "A-1", "euros": 3}', "euros: there is no such parameter"),
        ('{"order": "A-1", "cents": "many"}', "cents: "),
    ):
        screen.see("leave them) > ")
        screen.type(wrong)
        screen.see(told)
    screen.see("leave them) > ")
    screen.type('{"order": "A-1", "cents": 3}')
    screen.see("refunded 3")
    assert screen.end()[1] == 0
    assert perdure.lines("ledger") == ["A-1 3"]


@pytest.mark.parametrize("command", ["run", "resume"])
def test_without_waiting_a_terminal_is_not_asked_either(perdure: Program, terminal: type[Terminal], command: str) -> None:
    if command == "run":
        screen = terminal("run", SHOP, "refund A-1", "--session", "s", "--no-wait")
    else:
        perdure("run", SHOP, "refund A-1", "--session", "s", "--no-wait", code=6)
        screen = terminal("resume", "s", "--agents", SHOP, "--no-wait")
    shown, code = screen.end()
    assert code == 6
    assert "perdure approve s " in shown
    assert "a[b]ort > " not in shown


def test_ctrl_d_at_a_question_leaves_it_open(perdure: Program, terminal: type[Terminal]) -> None:
    screen = terminal("run", SHOP, "refund A-1", "--session", "s", columns=200)
    screen.see("a[b]ort > ")
    screen.child.sendeof()
    screen.see(f"perdure resume s --agents {SHOP}")
    assert screen.end()[1] == 6
    assert len(perdure.json("why", "s")["requests"]) == 1


def test_a_stored_result_is_shown_on_a_terminal_too(perdure: Program, terminal: type[Terminal]) -> None:
    perdure("run", SHOP, "hello", "--submission", "m")
    shown, code = terminal("run", SHOP, "hello", "--submission", "m").end()
    assert code == 0
    assert shown.count("done: hello") == 1
    assert "nothing ran now" in shown
    perdure("run", SHOP, "refund A-1", "--submission", "n", "--no-wait", code=6)
    perdure("interrupt", "n", "--reason", "too late")
    shown, code = terminal("run", SHOP, "refund A-1", "--submission", "n").end()
    assert code == 1
    assert "aborted: too late" in shown


def test_resume_on_a_terminal_is_interrupted_with_130(perdure: Program, terminal: type[Terminal]) -> None:
    perdure("run", SHOP, "refund A-1", "--session", "s", "--no-wait", code=6)
    screen = terminal("resume", "s", "--agents", SHOP)
    screen.see("a[b]ort > ")
    screen.child.sendintr()
    screen.see("aborted: interrupted")
    assert screen.end()[1] == 130


def test_a_question_about_an_unknown_outcome_can_be_left_unknown(perdure: Program, terminal: type[Terminal]) -> None:
    screen = terminal("run", SHOP, "wonder", "--session", "s")
    assert "wonder was interrupted, and nobody knows" in screen.see("[l]eave unknown")
    screen.see("a[b]ort > ")
    screen.type("l")
    screen.see("left unknown")
    shown, code = screen.end()
    assert "`perdure uncertain s` lists it" in shown
    assert code == 0


def test_all_of_an_owner_is_named_before_somebody_types_whose_it_is(perdure: Program, terminal: type[Terminal]) -> None:
    for session in ("s", "t"):
        perdure("run", SHOP, "hello", "--session", session, "--owner", "acme")
    perdure("archive", "t")
    for typed, code, left in (("yes", 2, ["s"]), ("acme", 0, [])):
        screen = terminal("delete", "--owner", "acme")
        shown = screen.see("Type the owner:")
        assert "s  idle  hello" in shown
        assert "all 2 sessions of 'acme' (1 archived) for good?" in shown
        screen.type(typed)
        told, ended = screen.end()
        assert ended == code
        assert ("nothing was deleted" if code else "2 sessions of acme deleted") in told
        assert [info["session_id"] for info in perdure.json("sessions")] == left
