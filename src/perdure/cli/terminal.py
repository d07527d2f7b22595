"""A terminal that is written to and typed on at once: what is said scrolls above, and the line that is being typed stays below."""

from __future__ import annotations

import asyncio
import io
import os
import sys
import termios
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from typing import IO, Any, TextIO, cast

from prompt_toolkit import PromptSession
from prompt_toolkit.application import run_in_terminal
from prompt_toolkit.completion import Completer
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.output import Output, create_output

from .text import clean, duration, short

__all__ = ["Above", "Terminal"]

TICK_SECONDS = 0.25

_CHARACTERS = 6
"""Where a terminal's special characters stand among its settings."""

LIVE_LINES = 6
"""How much of a line that is still being written is shown above the prompt."""


class Above(io.TextIOBase):
    """A file whose lines are printed above whatever is being typed; any thread may write to it."""

    def __init__(self, out: IO[str]) -> None:
        self._out = out
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._text = ""
        self._printing: set[asyncio.Future[None]] = set()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """The terminal's."""
        return str(getattr(self._out, "encoding", None) or "utf-8")

    def isatty(self) -> bool:
        """It is one."""
        return True

    def fileno(self) -> int:
        """The terminal's."""
        return self._out.fileno()

    def writable(self) -> bool:
        """Nothing else can be done with it."""
        return True

    def write(self, text: str) -> int:
        """Print whole lines soon; a line without an end waits for it."""
        with self._lock:
            scheduled = "\n" in self._text
            self._text += text
            if "\n" in self._text and not scheduled:
                self._loop.call_soon_threadsafe(self._print)
        return len(text)

    def _print(self) -> None:
        with self._lock:
            whole, end, self._text = self._text.rpartition("\n")
        if end:
            printed = asyncio.ensure_future(run_in_terminal(lambda: self._put(whole + end)))
            self._printing.add(printed)
            printed.add_done_callback(self._printing.discard)

    def _put(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()

    def close(self) -> None:
        """Print what is left."""
        with self._lock:
            rest, self._text = self._text, ""
        if rest and not self.closed:
            self._put(rest if rest.endswith("\n") else rest + "\n")


class Question:
    """What a person is asked besides the conversation. Only a line that was begun under it answers it."""

    def __init__(self, label: str) -> None:
        self.label = label
        self.answer: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()


class Terminal:
    """Reads lines while others write. ``out`` is where to write above the typing.

    ``unfinished`` is the line that somebody is still writing. ``status`` says what runs now, as (what, since when); ``footer`` is a line
    below the typing. ``on_interrupt`` is called for Ctrl-C on an empty line, ``too_late`` with an answer to a question that is gone.
    """

    def __init__(self, above: Above, output: Output) -> None:
        self.out = above
        self.status: Callable[[], Iterable[tuple[str, float]]] = tuple
        self.footer: Callable[[], str] = str
        self.on_interrupt: Callable[[], None] = lambda: None
        self.too_late: Callable[[str], None] = lambda line: None
        self.unfinished = ""
        self._question: Question | None = None
        self._begun_under: Question | None = None
        self._empty = True
        self._over = False
        self._history = InMemoryHistory()
        self._session: PromptSession[str] = PromptSession(
            message=self._message,
            bottom_toolbar=self._toolbar,
            history=self._history,
            complete_while_typing=True,
            key_bindings=self._keys(),
            multiline=True,
            output=output,
            erase_when_done=True,
            prompt_continuation=lambda width, number, wrapped: "  ",
            enable_open_in_editor=False,
            reserve_space_for_menu=4,
        )
        self._session.default_buffer.on_text_changed += self._changed

    @classmethod
    @contextmanager
    def opened(cls, out: IO[str]) -> Iterator[Terminal]:
        """Take a terminal over, inside an event loop. Everything that is printed inside goes above the line that is being typed."""
        above = Above(out)
        with _every_key_kept(sys.stdin.fileno()), redirect_stdout(above), redirect_stderr(above):
            try:
                yield cls(above, create_output(stdout=cast(TextIO, out)))
            finally:
                above.close()

    def complete(self, completer: Completer) -> None:
        """What Tab, and typing, offer."""
        self._session.completer = completer

    def end(self) -> None:
        """As Ctrl-D does."""
        self._over = True
        if self._session.app.is_running:
            self._session.app.exit(exception=EOFError)

    def remember(self, lines: Iterable[str]) -> None:
        """Lines of an earlier conversation, for the arrow keys."""
        for line in lines:
            self._history.append_string(line)

    def redraw(self) -> None:
        """Show what changed."""
        if self._session.app.is_running:
            self._session.app.invalidate()

    # -------------------------------------------------------------------------------------------------------------- typing

    async def lines(self) -> AsyncGenerator[str, None]:
        """What a person types to the conversation, until Ctrl-D. Lines that answer a question go to whoever asked it."""
        clock = asyncio.ensure_future(self._tick())
        try:
            async for line in self._typed():
                yield line
        finally:
            clock.cancel()

    async def _tick(self) -> None:
        """What runs is shown with how long it has been running; a terminal on which nothing happens is left alone."""
        while True:
            await asyncio.sleep(TICK_SECONDS)
            if any(True for _ in self.status()):
                self.redraw()

    async def _typed(self) -> AsyncGenerator[str, None]:
        while not self._over:
            try:
                line = await self._session.prompt_async(handle_sigint=False)
            except EOFError:
                if (question := self._begun_under or self._question) is not None and not question.answer.done():
                    question.answer.set_result(None)
                return
            question, self._begun_under, self._empty = self._begun_under or (self._question if not line else None), None, True
            if question is None or line.startswith("/"):
                if line.strip():
                    yield line
            elif not question.answer.done():
                question.answer.set_result(line)
            else:
                # What was meant for a question must not become a message.
                self.too_late(line)

    @property
    def asked(self) -> bool:
        """Whether a question stands where the typing is."""
        return self._question is not None

    async def line(self, label: str = "", default: str = "") -> str | None:
        """Ask for one line; None if nobody is there any more. Cancelling it takes the question away."""
        self._question = question = Question(label)
        buffer = self._session.default_buffer
        if default and not buffer.text:
            self._begun_under = question
            buffer.text = default
            buffer.cursor_position = len(default)
        self.redraw()
        try:
            return await question.answer
        finally:
            if self._question is question:
                self._question = None
            self.redraw()

    def _changed(self, _: Any) -> None:
        text = self._session.default_buffer.text
        if text and self._empty and self._begun_under is None:
            self._begun_under = self._question
        if not text:
            self._begun_under = None
        self._empty = not text

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()

        @keys.add("enter", eager=True)
        def _(event: KeyPressEvent) -> None:
            buffer = event.current_buffer
            if buffer.complete_state is not None and buffer.complete_state.current_completion is not None:
                buffer.complete_state = None
            elif buffer.text.endswith("\\"):
                # As in a shell, for terminals whose Alt key is somebody else's.
                buffer.delete_before_cursor()
                buffer.insert_text("\n")
            else:
                buffer.validate_and_handle()

        @keys.add("escape", "enter")
        def _(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text("\n")

        @keys.add("c-c", eager=True)
        def _(event: KeyPressEvent) -> None:
            if event.current_buffer.text:
                event.current_buffer.reset()
            else:
                self.on_interrupt()

        @keys.add("c-d", eager=True)
        def _(event: KeyPressEvent) -> None:
            if not event.current_buffer.text:
                event.app.exit(exception=EOFError)

        return keys

    # ------------------------------------------------------------------------------------------------------------- drawing

    def _message(self) -> StyleAndTextTuples:
        width = max(20, _columns() - 1)
        pieces: StyleAndTextTuples = []
        for line in _wrapped(self.unfinished, width)[-LIVE_LINES:]:
            pieces.append(("", line + "\n"))
        running = [f"{what} {duration((time.monotonic() - since) * 1000)}" for what, since in self.status()]
        if running:
            pieces.append(("fg:ansibrightblack", short("… " + " · ".join(running), width) + "\n"))
        question = self._begun_under or (self._question if self._empty else None)
        if question is not None and not question.answer.done():
            pieces.append(("bold fg:ansiyellow", clean(question.label, one_line=True)))
        else:
            pieces.append(("bold fg:ansicyan", "> "))
        return pieces

    def _toolbar(self) -> StyleAndTextTuples | None:
        text = self.footer()
        return [("noreverse fg:ansibrightblack", short(text, max(20, _columns() - 1)))] if text else None


@contextmanager
def _every_key_kept(fd: int) -> Iterator[None]:
    """A terminal makes nothing of a Ctrl-D that comes while no prompt reads keys: the next prompt finds it, as everything typed ahead."""
    before = termios.tcgetattr(fd)
    kept = termios.tcgetattr(fd)
    kept[_CHARACTERS][termios.VEOF] = os.fpathconf(fd, "PC_VDISABLE").to_bytes(1, "big")
    termios.tcsetattr(fd, termios.TCSANOW, kept)
    try:
        yield
    finally:
        # It may be gone.
        with suppress(termios.error):
            termios.tcsetattr(fd, termios.TCSANOW, before)


def _columns() -> int:
    with suppress(OSError):
        return os.get_terminal_size().columns
    return 80


def _wrapped(text: str, width: int) -> list[str]:
    shown = clean(text)
    return [line[start : start + width] for line in shown.split("\n") for start in range(0, max(1, len(line)), width)] if shown else []
