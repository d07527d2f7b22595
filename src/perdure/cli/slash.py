"""What a person can ask for in a conversation besides talking: lines that begin with a slash."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from ..core.errors import PerdureError, SessionNotFound
from ..core.messages import Message, ToolCallResponse
from ..runtime.media import file
from ..runtime.session import Session
from .text import attached, short, since, value
from .why import say_why

if TYPE_CHECKING:
    from .typed import TypedTalk

__all__ = ["COMMANDS", "Slash", "SlashCompleter", "carry_out"]


class Slash(NamedTuple):
    """One command: what follows its name, what it does, and the code that does it."""

    argument: str
    what: str
    run: Callable[[TypedTalk, Session, str], Awaitable[None]]


async def carry_out(talk: TypedTalk, handle: Session, line: str) -> None:
    """Do what a line that begins with a slash says; what the state refuses is shown, and ends nothing."""
    name, _, rest = line[1:].partition(" ")
    command = COMMANDS.get(name)
    if command is None:
        talk.tell(f"there is no /{short(name, 40)}; /help lists what there is, and // begins a message with a slash", "yellow")
        return
    if command.argument.startswith("TEXT") and not rest.strip():
        talk.tell(f"/{name} needs its text: /{name} {command.argument}", "yellow")
        return
    try:
        await command.run(talk, handle, rest.strip())
    except SessionNotFound as error:
        begun = await talk.runtime.store.load(talk.session_id) is not None
        talk.tell(
            talk.told(error) if begun or name == "resume" else "the session begins with your first message", "red" if begun else "dim"
        )
    except PerdureError as error:
        talk.tell(talk.told(error), "red")


async def _help(talk: TypedTalk, handle: Session, rest: str) -> None:
    room = max(len(f"{name} {command.argument}") for name, command in COMMANDS.items()) + 3
    for name, command in COMMANDS.items():
        talk.screen.note((f"/{name} {command.argument}".ljust(room), "cyan"), command.what)
    talk.tell("Enter sends; Alt-Enter, or a backslash before Enter, begins a new line; the arrow keys bring back what you said.")
    talk.tell("While a turn runs, Enter queues the message behind it. Ctrl-C interrupts the turn, Ctrl-D leaves; the session stays.")


async def _steer(talk: TypedTalk, handle: Session, rest: str) -> None:
    await talk.send(handle, rest, deliver="steer")


async def _queue(talk: TypedTalk, handle: Session, rest: str) -> None:
    await talk.send(handle, rest, deliver="queue")


async def _attach(talk: TypedTalk, handle: Session, rest: str) -> None:
    if rest:
        talk.attached.append(await asyncio.to_thread(lambda: file(Path(rest).expanduser())))
    elif talk.attached:
        talk.attached.clear()
        talk.tell("nothing goes with the next message")
        return
    for item in talk.attached:
        talk.tell(f"goes with the next message: {attached(item.name, item.mime_type, len(item.data))}")
    if not talk.attached:
        talk.tell("/attach FILE sends an image, sound or file with your next message")


async def _note(talk: TypedTalk, handle: Session, rest: str) -> None:
    await talk.runtime.sessions.note(talk.session_id, rest, actor=talk.actor)


async def _interrupt(talk: TypedTalk, handle: Session, rest: str) -> None:
    if talk.follower.turn is None:
        talk.tell("no turn is running", "yellow")
    else:
        await handle.interrupt(reason=rest or "interrupted", turn=talk.follower.turn, actor=talk.actor)


async def _model(talk: TypedTalk, handle: Session, rest: str) -> None:
    router = talk.runtime.models.router(talk.agent)
    if rest:
        await handle.select_route(rest, actor=talk.actor)
        return
    known = await talk.runtime.store.load(talk.session_id) is not None
    selected = (await talk.runtime.sessions.checkpoint(talk.session_id)).route if known else ""
    selected = selected or router.default
    for name in router.names:
        mark = "*" if name == selected or len(router.names) == 1 else " "
        talk.screen.note((f"{mark} ", "green"), name)
    if len(router.names) == 1:
        talk.tell("this agent has one model; a Router gives it several")


async def _waiting(talk: TypedTalk, handle: Session, rest: str) -> None:
    if not talk.waiting:
        talk.tell("nothing waits")
    for number, text in enumerate(talk.waiting.values(), 1):
        talk.screen.note((f"{number}  ", "cyan"), short(text, 200))


def _nth(talk: TypedTalk, number: str) -> str | None:
    """A waiting message by its number in the list."""
    waiting = list(talk.waiting)
    index = int(number) if number.isdecimal() else 0
    if 1 <= index <= len(waiting):
        return waiting[index - 1]
    talk.tell("no such message waits; /waiting lists them", "yellow")
    return None


async def _edit(talk: TypedTalk, handle: Session, rest: str) -> None:
    number, _, text = rest.partition(" ")
    if not text.strip():
        talk.tell("/edit needs a number and a text: /edit N TEXT", "yellow")
    elif (message := _nth(talk, number)) is not None:
        await talk.runtime.sessions.edit(talk.session_id, message, text.strip(), actor=talk.actor)
        talk.waiting[message] = text.strip()
        talk.tell("changed")


async def _withdraw(talk: TypedTalk, handle: Session, rest: str) -> None:
    if (message := _nth(talk, rest or str(len(talk.waiting)))) is not None:
        await talk.runtime.sessions.withdraw(talk.session_id, message, actor=talk.actor)


async def _grants(talk: TypedTalk, handle: Session, rest: str) -> None:
    sessions = talk.runtime.sessions
    if rest:
        await sessions.revoke(talk.session_id, rest, actor=talk.actor)
        talk.tell("it will be asked about again")
        return
    grants = await sessions.grants(talk.session_id)
    for grant in grants:
        talk.screen.note((f"{grant.id}  ", "cyan"), grant.name, ("  runs with these arguments without asking", "dim"))
    if not grants:
        talk.tell("every call that needs approval is asked about")


async def _sessions(talk: TypedTalk, handle: Session, rest: str) -> None:
    found = await talk.runtime.sessions.list(limit=20, agent=talk.agent.name)
    for info in found:
        here = info.session_id == talk.session_id
        talk.screen.note(
            ("* " if here else "  ", "green"),
            (info.session_id, "cyan"),
            f"  {info.status}  ",
            (f"{since(info.updated)} ago  ", "dim"),
            short(info.title, 60),
        )
    others = any(info.session_id != talk.session_id for info in found)
    talk.tell("/resume SESSION goes on with one of them" if others else "there is no other")


async def _resume(talk: TypedTalk, handle: Session, rest: str) -> None:
    if not rest:
        await _sessions(talk, handle, rest)
    elif rest == talk.session_id:
        talk.tell("that is this session")
    else:
        await talk.change_to(rest)


async def _why(talk: TypedTalk, handle: Session, rest: str) -> None:
    await say_why(talk.runtime, talk.screen, talk.session_id, talk.db)


async def _reasoning(talk: TypedTalk, handle: Session, rest: str) -> None:
    if rest in ("on", "off"):
        talk.above.whole_thoughts = rest == "on"
        talk.tell("reasoning is shown as it comes" if rest == "on" else "reasoning is one line")
    elif talk.above.last_thoughts:
        talk.screen.note((talk.above.last_thoughts, "dim italic"))
    else:
        talk.tell("there was no reasoning to read yet")


async def _result(talk: TypedTalk, handle: Session, rest: str) -> None:
    messages = await handle.history(limit=20)
    responses = next((_responses(message) for message in reversed(messages) if message.role == "tool"), [])
    if not responses:
        talk.tell("no tool ran lately")
    for part in responses:
        talk.screen.note((part.name, "bold"))
        talk.screen.note(part.response if isinstance(part.response, str) else value(part.response, 100_000))


def _responses(message: Message) -> list[ToolCallResponse]:
    return [part for part in message.parts if isinstance(part, ToolCallResponse)]


async def _quit(talk: TypedTalk, handle: Session, rest: str) -> None:
    talk.leave()


COMMANDS: dict[str, Slash] = {
    "help": Slash("", "this list", _help),
    "steer": Slash("TEXT", "join the running turn; if that is interrupted first, begin another", _steer),
    "queue": Slash("TEXT", "begin a turn of its own behind this one (what Enter does)", _queue),
    "attach": Slash("[FILE]", "send a file with the next message; none without FILE", _attach),
    "note": Slash("TEXT", "tell the model something outside of the conversation", _note),
    "waiting": Slash("", "the messages that wait", _waiting),
    "edit": Slash("N TEXT", "say something else in a waiting message", _edit),
    "withdraw": Slash("[N]", "take a waiting message back, the last one without N", _withdraw),
    "interrupt": Slash("[REASON]", "stop the running turn (what Ctrl-C does)", _interrupt),
    "model": Slash("[ROUTE]", "the models, or use another from the next turn on", _model),
    "grants": Slash("[GRANT]", "calls that run without asking, or ask about one again", _grants),
    "reasoning": Slash("[on|off]", "the last reasoning, or whether all of it is shown", _reasoning),
    "result": Slash("", "the last tool results, whole", _result),
    "why": Slash("", "what the session is doing or waiting for", _why),
    "sessions": Slash("", "this agent's sessions", _sessions),
    "resume": Slash("SESSION", "leave this session and go on with another", _resume),
    "quit": Slash("", "leave; the session stays (what Ctrl-D does)", _quit),
}


class SlashCompleter(Completer):
    """Names of commands, and what can follow some of them."""

    def __init__(self, words_for: Callable[[str], Iterable[str]]) -> None:
        self._words_for = words_for

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """What could stand where the cursor is."""
        text = document.text_before_cursor
        if not text.startswith("/") or "\n" in text:
            return
        name, space, rest = text[1:].partition(" ")
        if not space:
            for known, command in COMMANDS.items():
                if known.startswith(name):
                    yield Completion(known, start_position=-len(name), display=f"/{known} {command.argument}", display_meta=command.what)
        elif " " not in rest:
            for word in self._words_for(name):
                if word.startswith(rest):
                    yield Completion(word, start_position=-len(rest))
