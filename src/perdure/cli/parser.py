"""What can be said on the command line. Nothing of perdure is imported here, so that help and mistakes are answered at once."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from .person import me

__all__ = ["parse"]

EPILOG = """\
An AGENT is module:attribute or path/to/file.py:attribute. The store is --db, else $PERDURE_DB, else ./agents.db:
a path, sqlite:///path, sqlite:///path?blobs=directory, or postgresql://user@host/database.

exit codes: 0 done · 1 the turn did not complete, there was none to interrupt, or verify found problems · 2 wrong usage ·
3 the session's state says no · 4 the store failed · 5 the model's provider failed · 6 a person has to decide ·
130 interrupted · 143 stopped by SIGTERM
"""


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The command and its options; ``handler`` is the module and function that carry it out. Raises `SystemExit`."""
    parser = _Parser(
        prog="perdure",
        usage="perdure [-h] [--version] COMMAND …",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    parser.add_argument("--db", metavar="URL", default=os.environ.get("PERDURE_DB") or "agents.db", help=argparse.SUPPRESS)
    commands = parser.add_subparsers(prog="perdure", dest="command", metavar="COMMAND", required=True, help=argparse.SUPPRESS)
    sections: dict[str, list[tuple[str, str]]] = {}

    def command(name: str, handler: str, what: str, *, store: bool = True, json: bool = False) -> argparse.ArgumentParser:
        made: argparse.ArgumentParser = commands.add_parser(name, description=what, allow_abbrev=False)
        sections[[*sections][-1]].append((name, what.partition(". ")[0].rstrip(".")))
        made.set_defaults(handler=handler)
        if store:
            made.add_argument(
                "--db",
                metavar="URL",
                default=argparse.SUPPRESS,
                help="the store: a path, sqlite:///path, sqlite:///path?blobs=directory, or postgresql://user@host/database",
            )
        if json:
            made.add_argument("--json", action="store_true", help="print JSON instead of text")
        return made

    for title, make in _SECTIONS.items():
        sections[title] = []
        make(command)
    parser.description = _listed(sections)
    if not argv:
        parser.print_help(sys.stderr)
        raise SystemExit(2)
    if list(argv[:1]) == ["demo"]:
        # The demonstration reads its own options.
        return argparse.Namespace(handler="demo:run", rest=list(argv[1:]))
    return _in_any_order(parser, commands.choices, list(argv))


def _listed(sections: dict[str, list[tuple[str, str]]]) -> str:
    lines = ["Run LLM agents that survive being killed, and look after their sessions."]
    width, indent = shutil.get_terminal_size().columns - 2, " " * 20
    for title, commands in sections.items():
        lines += ["", f"{title}:"]
        lines += [textwrap.fill(f"    {name:16}{what}", width, subsequent_indent=indent, break_on_hyphens=False) for name, what in commands]
    return "\n".join(lines)


def _in_any_order(parser: argparse.ArgumentParser, known: Any, argv: list[str]) -> argparse.Namespace:
    """Parse a command whose options stand before, between or behind its words, as people write them."""
    place = 2 if argv[:1] == ["--db"] else 1 if argv and argv[0].startswith("--db=") else 0
    if len(argv) <= place or argv[place].startswith("-"):
        return parser.parse_args(argv)
    if argv[place] not in known:
        from difflib import get_close_matches

        meant = "".join(f"; did you mean {name}?" for name in get_close_matches(argv[place], known, 1))
        parser.error(f"there is no command {argv[place]!r}{meant or '; see perdure --help'}")
    before = parser.parse_args([*argv[:place], "verify"])
    begun = argparse.Namespace(command=argv[place], db=before.db)
    parsed: argparse.Namespace = known[argv[place]].parse_intermixed_args(argv[place + 1 :], begun)
    return parsed


def _running(command: Any) -> None:
    run = command("run", "run:run", "Send a message to an agent and show the work until its turn ends.", json=True)
    run.usage = "perdure run [OPTIONS] AGENT TEXT\n       perdure run [OPTIONS] --model NAME TEXT"
    run.add_argument("words", nargs="+", metavar="AGENT TEXT", help="the agent (none with --model) and the message; - reads it from stdin")
    run.add_argument("--model", metavar="NAME", help="the model: openai:… or anthropic:…; without AGENT an assistant without tools")
    run.add_argument("--session", metavar="ID", type=_named, help="the session to go on with, or to begin")
    _once(run, "run again with the same id, it goes on or returns the stored result")
    run.add_argument("--owner", default="", metavar="WHO", help="whose it is: a new one belongs to them, another's is refused")
    run.add_argument("--attach", action="append", default=[], metavar="FILE", help="send an image, sound or file too; may be repeated")
    bound = "a limit for this turn, in addition to the agent's: tokens=100000, cost=2.50 (dollars), seconds=60; may be repeated"
    run.add_argument("--limit", action="append", default=[], metavar="NAME=VALUE", help=bound)
    _no_wait(run)

    chat = command("chat", "chat:chat", "Talk to an agent in one session. /help says what can be done there.")
    chat.add_argument("agent", nargs="?", metavar="AGENT")
    chat.add_argument("--model", metavar="NAME", help="the model: openai:… or anthropic:…")
    chat.add_argument("--session", metavar="ID", type=_named, help="the session to go on with, or to begin")
    chat.add_argument("--owner", default="", metavar="WHO", help="whose it is: a new one belongs to them, another's is refused")
    chat.add_argument("--workspace", metavar="DIR", help="let the agent work in this directory: files, search, and a confined shell")
    chat.add_argument(
        "--sandbox",
        choices=("required", "auto", "off"),
        help="the workspace's shell: confined or not at all (required), left out where it can't be (auto), NOT confined (off)",
    )

    resume = command("resume", "resume:resume", "Continue a session, or every session that is due.", json=True)
    resume.add_argument("session", nargs="?", metavar="SESSION", type=_named)
    needed = "the agents that sessions may need: module, or module:agent"
    _agents(resume, needed)
    resume.add_argument("--model", metavar="NAME", help="their model: openai:… or anthropic:…; without --agents an assistant without tools")
    resume.add_argument("--force", action="store_true", help="also if it is stuck: its processes died again and again")
    _no_wait(resume)
    raised = "go on with the turn that reached a limit, under this one instead of its agent's: tokens=100000, cost=2.50; may be repeated"
    resume.add_argument("--limit", action="append", default=[], metavar="NAME=VALUE", help=raised)


def _looking(command: Any) -> None:
    sessions = command("sessions", "sessions:run", "List sessions, the latest change first.", json=True)
    sessions.add_argument("--owner", metavar="WHO")
    sessions.add_argument("--status", action="append", metavar="STATUS", help="idle, queued, running, waiting, stuck, …; may be repeated")
    sessions.add_argument("--agent", metavar="NAME", help="only this agent's")
    sessions.add_argument("--label", action="append", metavar="NAME=VALUE", help="only those with this label; may be repeated")
    sessions.add_argument("--words", metavar="TEXT", help="only those whose title holds all of these words")
    sessions.add_argument("--since", metavar="TIME", help="only those that changed since: 2026-01-31, or 2026-01-31T12:00")
    sessions.add_argument("--until", metavar="TIME", help="only those that changed last before")
    sessions.add_argument("--archived", action="store_true", help="archived ones too")
    sessions.add_argument("--children", action="store_true", help="the sessions of agents that others called, too")
    sessions.add_argument("--created", action="store_true", help="the latest made first, instead of the latest changed")
    sessions.add_argument("--limit", type=_positive, default=50, metavar="N", help="at most so many (50)")
    sessions.add_argument("--after", metavar="TOKEN", help="the next page: what the page before said, with the same filters")

    show = _about(command, "show", "show:run", "The timeline of one session.")
    show.add_argument("--last", type=_positive, metavar="N", help="only the last N turns, or messages")
    show.add_argument("--tree", action="store_true", help="the tree of its branches and of the agents that it called instead")
    show.add_argument("--transcript", action="store_true", help="its messages instead, with the positions and the revision that edits need")
    show.add_argument("--revision", metavar="REVISION", help="the transcript as it was then, or the beginning of that revision")

    why = _about(command, "why", "why:run", "What a session is doing or waiting for, and what would move it.")
    code = "module, or module:agent: say whether this code could go on with it, and if not, why"
    _agents(why, code)

    usage = command("usage", "usage:run", "What model calls used and cost, by session, owner, route, day, or several of them.", json=True)
    usage.add_argument("--by", action="append", metavar="NAME", help="session, owner, agent, route, model, kind or day; owner,day for both")
    usage.add_argument("--session", metavar="ID", type=_named, help="only this session's")
    usage.add_argument("--owner", metavar="WHO", help="only this owner's")
    usage.add_argument("--route", metavar="NAME", help="only this route's")
    usage.add_argument("--since", metavar="TIME", help="only calls that began since: 2026-01-31, or 2026-01-31T12:00")
    usage.add_argument("--until", metavar="TIME", help="only calls that began before")
    usage.add_argument("--index", metavar="FILE", help="where the index is kept; without it in the user's cache")
    usage.add_argument("--rebuild", action="store_true", help="make the index anew from all journals")

    events = _about(command, "events", "events:run", "The journal of one session, an entry a line.")
    events.add_argument("--after", type=_natural, default=0, metavar="SEQ", help="only entries behind this one")
    events.add_argument("--follow", action="store_true", help="go on with what is committed from now on, whoever commits it")


def _keeping(command: Any) -> None:
    for name, what in (
        ("archive", "Put a session away: no list shows it, nothing runs in it. What runs now is taken from its process."),
        ("revive", "Take a session out of the archive."),
        ("halt", "Stop a session where it stands, until it is repaired. What runs now is taken from its process."),
        ("repair", "Check a halted session; if nothing is wrong with it (any more), it goes on where it was."),
    ):
        made = _about(command, name, f"keeping:{name}", what)
        made.add_argument("--reason", default="", metavar="TEXT", help="stored with it permanently")
        _actor(made, "who does it")
        if name in ("archive", "revive"):
            _once(made, "twice with one id is once")
    gone = "Destroy a session's content for good, or with --owner all of somebody's. Its id can't be used again."
    delete = command("delete", "keeping:delete", gone, json=True)
    delete.add_argument("session", nargs="?", metavar="SESSION", type=_named)
    delete.add_argument("--tree", action="store_true", help="and everything that was forked from it")
    delete.add_argument("--owner", metavar="WHO", type=_named, help="all sessions of this owner instead, archived and running ones too")
    delete.add_argument("--pool", action="store_true", help="--owner: and their pool")
    delete.add_argument("--uniques", action="store_true", help="--owner: and let others do what only one call of theirs could do")
    files = "--owner: and the copies of memories that these agents keep here: module, or module:agent"
    _agents(delete, files)
    delete.add_argument("--yes", action="store_true", help="don't ask")
    export = command("export", "keeping:export", "Write a session into one file of JSON lines.")
    export.add_argument("session", metavar="SESSION", type=_named)
    export.add_argument("--tree", action="store_true", help="all sessions of its tree")
    export.add_argument("--output", "-o", metavar="FILE", help="the file; standard output without it")
    taken = "Import what export wrote, or a conversation from another system; verified, whole or not at all."
    imported = command("import", "keeping:import_", taken, json=True)
    imported.add_argument("file", metavar="FILE", help="- reads standard input")
    imported.add_argument("--session", metavar="ID", type=_named, help="under this id instead; its hash chain becomes another one")
    kept = "the file is a JSON list of messages or items as this API takes it, and becomes the session --session"
    imported.add_argument("--from", dest="source", choices=("openai", "openai-responses", "anthropic"), help=kept)
    imported.add_argument("--agent", metavar="NAME", help="--from: the agent that is to go on with it (the first one that does)")
    imported.add_argument("--owner", metavar="WHO", help="--from: whom it belongs to")
    imported.add_argument("--title", metavar="TEXT", help="--from: its title (how it begins)")
    imported.add_argument("--label", action="append", default=[], metavar="NAME=VALUE", help="--from: a label; may be repeated")


def _operating(command: Any) -> None:
    worker = command("worker", "worker:worker", "Run sessions of these agents in this process, until SIGTERM.")
    _agents(worker, "module, module:agent or module:registry", required=True)
    worker.add_argument("--concurrency", type=_natural, default=16, metavar="N", help="how many sessions at once (16)")
    worker.add_argument("--engine", choices=("local", "procrastinate"), help="what carries hints: procrastinate on PostgreSQL, else local")
    worker.add_argument("--jobs", default="", metavar="URL", help="the database of the hints, where --db leads through a pooler")
    worker.add_argument("--poll", type=float, default=1.0, metavar="SECONDS", help="how often it looks besides hearing of changes (1)")
    worker.add_argument("--grace", type=float, default=10.0, metavar="SECONDS", help="how long running effects may take to end (10)")
    worker.add_argument(
        "--lease", type=float, default=10.0, metavar="SECONDS", help="how long it may be silent before others take over (10)"
    )
    worker.add_argument(
        "--listen",
        metavar="HOST:PORT",
        help="serve probes there, and with the extra prometheus /metrics; :PORT is on every interface",
    )
    command("workers", "worker:workers", "Who works on what, and which sessions wait for an agent that nobody has.", json=True)
    budget = command(
        "budget", "budget:run", "What all sessions of an owner may use together: show it, set it, put more into it.", json=True
    )
    budget.add_argument("action", nargs="?", default="show", metavar="show|set|add|remove")
    budget.add_argument("owner", nargs="?", metavar="OWNER")
    budget.add_argument(
        "limits", nargs="*", metavar="NAME=VALUE", help="cost=50 (dollars), tokens=1000000, model_calls, tool_calls, steps, seconds"
    )


def _storing(command: Any) -> None:
    verify = command("verify", "verify:run", "Check that what is stored is what was written.", json=True)
    verify.add_argument("session", nargs="?", metavar="SESSION", type=_named, help="only this one")
    verify.add_argument("--head", action="store_true", help="print the value to keep elsewhere, to notice later what was cut off")
    verify.add_argument("--expect", metavar="HEAD", help="a value that --head printed for this session before")
    backup = command("backup", "upkeep:backup", "Copy the store into a new file while it is in use, and verify the copy.", json=True)
    backup.add_argument("file", metavar="FILE")
    restored = "Make the store (--db, which must not exist) from what backup wrote."
    command("restore-backup", "upkeep:restore", restored, json=True).add_argument("file", metavar="FILE")
    vacuum = command("vacuum", "upkeep:vacuum", "Rewrite the store without unused space; or destroy old sessions.", json=True)
    vacuum.add_argument(
        "--older-than", metavar="AGE", help="destroy archived sessions that nothing happened in for so long: 90d (s, m, h, d or w)"
    )
    vacuum.add_argument("--idle", action="store_true", help="and those that are idle, not only archived ones")
    vacuum.add_argument("--dry-run", action="store_true", help="only say what would be destroyed")
    vacuum.add_argument("--yes", action="store_true", help="don't ask")
    sweep = command("sweep", "upkeep:sweep", "Remove files of a blobs directory that nothing refers to.", json=True)
    sweep.add_argument("--older-than", metavar="AGE", help="only what was stored so long ago: 12h (s, m, h, d or w; 1h)")


def _about(command: Any, name: str, handler: str, what: str) -> Any:
    """A command about one session, whose result may be JSON."""
    made = command(name, handler, what, json=True)
    made.add_argument("session", metavar="SESSION", type=_named)
    return made


def _no_wait(made: Any) -> None:
    made.add_argument(
        "--no-wait", action="store_true", help="where a person has to decide or a time to come, exit with 6 instead of waiting"
    )


def _actor(made: Any, who: str) -> None:
    made.add_argument("--actor", default=me(), metavar="WHO", help=f"{who} ($USER)")


def _once(made: Any, what: str) -> None:
    made.add_argument("--submission", metavar="ID", type=_named, help=what)


def _agents(made: Any, what: str, *, required: bool = False) -> None:
    made.add_argument("--agents", nargs="+", action="extend", default=[], required=required, metavar="WHERE", help=what)


def _tools(made: Any) -> None:
    """What becomes a tool policy."""
    made.add_argument("--only", action="append", default=[], metavar="TOOL", help="it may use these tools alone; may be repeated")
    made.add_argument("--never", action="append", default=[], metavar="TOOL", help="it may not use this tool; may be repeated")
    made.add_argument("--ask", action="append", default=[], metavar="TOOL", help="a person is asked before it is called; may be repeated")
    made.add_argument("--all-tools", action="store_true", help="every tool of its agent, as its agent says")
    _code(made)


def _code(made: Any) -> None:
    """Where the session's agent is, so that names are looked up there."""
    looked = "module, or module:agent: look names up in the agent's code, not in what its last turn had"
    _agents(made, looked)


def _describing(command: Any) -> None:
    about = "What a session is about: its title, labels and metadata, each replaced as a whole; shown, if nothing is given."
    describe = _about(command, "describe", "about:describe", about)
    describe.add_argument("--title", metavar="TEXT")
    labels = describe.add_mutually_exclusive_group()
    labels.add_argument("--label", action="append", metavar="NAME=VALUE", help="one of its labels, which are these alone; may be repeated")
    labels.add_argument("--no-labels", action="store_true", help="it has none any more")
    describe.add_argument("--metadata", metavar="JSON", help="an object; tools read it from their next call on, {} empties it")
    _once(describe, "twice with one id is once")
    _actor(describe, "who does it")

    limited = "Say which of its agent's tools a session may use from now on, in place of what was said before."
    restrict = _about(command, "restrict", "about:restrict", limited)
    _tools(restrict)
    _once(restrict, "twice with one id is once")
    _actor(restrict, "who does it")


def _outside(command: Any) -> None:
    called = "Have one of a session's tools called, outside of its conversation, and wait for the outcome."
    call = command("call", "call:call", called, json=True)
    call.add_argument("agent", metavar="AGENT", help="the session's agent, which has the tool")
    call.add_argument("session", metavar="SESSION", type=_named)
    call.add_argument("tool", metavar="TOOL", type=_named)
    call.add_argument("arguments", nargs="?", metavar="JSON", help="an object with all of its arguments; - reads it from stdin")
    _once(call, "called again with one id, it goes on or returns the stored outcome")
    _no_wait(call)
    _actor(call, "who calls")

    told = "Report the outcome of a call that continued elsewhere, by the token that its tool got (ctx.callback_token)."
    report = command("report", "uncertain:report", told, json=True)
    report.add_argument("token", metavar="TOKEN", type=_named, help="- reads it from stdin, where nobody sees it among the processes")
    outcome = report.add_mutually_exclusive_group(required=True)
    outcome.add_argument("--result", metavar="JSON", help="it succeeded, and this is what it returned")
    outcome.add_argument("--failed", metavar="TEXT", help="it failed, and this is how")
    _actor(report, "who says so")

    files = "Write every session's journal into a file of JSON lines in DIR, and go on where that stopped."
    consume = command("consume", "consume:consume", files, json=True)
    consume.add_argument("directory", metavar="DIR")
    consume.add_argument("--name", metavar="NAME", type=_named, help="the consumer whose cursors say how far it is (DIR, as it is named)")
    consume.add_argument("--follow", action="store_true", help="go on with what is committed from now on, until Ctrl-C or SIGTERM")
    consume.add_argument("--heal", action="store_true", help="look at every session's file first, not only where there is news")


def _again(command: Any) -> None:
    where = "module, module:agent or module:registry"
    check = command("check", "check:run", "Before a deploy: which unfinished sessions the new code would refuse, and why.", json=True)
    _agents(check, where, required=True)
    check.add_argument("--known", action="store_true", help="leave sessions of other agents out")

    request = _about(command, "request", "again:request", "Print the request that a model saw, and check it against its digests.")
    request.add_argument("step", metavar="STEP", help="t14.0 (turn and step), or an operation such as t14.0.2")

    said = "Play a session again to an agent, in memory; receipts answer its calls, and nothing runs."
    replay = _about(command, "replay", "again:replay_session", said)
    _agents(replay, where)
    replay.add_argument("--agent", metavar="NAME", help="which of them, the recorded one's name if left out; alone, a WHERE itself")
    replay.add_argument(
        "--model", metavar="NAME", help="this model instead of its own: openai:…, anthropic:…; recorded: as it answered then"
    )


def _transcripts(command: Any) -> None:
    def edits(made: Any) -> None:
        made.add_argument("--reason", default="", metavar="TEXT", help="stored with it permanently")
        _actor(made, "who does it")

    fork = _about(command, "fork", "transcript:fork", "Begin another session with the first messages of one, which stays as it is.")
    fork.add_argument("text", nargs="?", metavar="TEXT", help="a user's message in place of what came behind the cut; - is stdin")
    place = fork.add_mutually_exclusive_group()
    place.add_argument("--at", type=_natural, metavar="N", help="only the first N messages")
    place.add_argument("--turn", metavar="TURN", help="as it was at the end of this turn")
    place.add_argument("--entry", type=_positive, metavar="SEQ", help="as it was at this entry")
    named = "the branch's id; forking twice under it is forking once"
    fork.add_argument("--session", dest="branch", metavar="ID", type=_named, help=named)
    fork.add_argument("--title", metavar="TEXT")
    fork.add_argument("--label", action="append", metavar="NAME=VALUE", help="one of its labels, instead of the parent's; may be repeated")
    _tools(fork)
    fork.add_argument("--while-running", action="store_true", help="also if a turn runs: fork what is committed")
    edits(fork)

    rewrite = _about(command, "rewrite", "transcript:rewrite", "Put other messages in place of those from START up to STOP.")
    rewrite.add_argument("start", type=_natural, metavar="START", help="the first position that goes, counted from 0")
    rewrite.add_argument("stop", type=_natural, metavar="STOP", help="the first that stays")
    rewrite.add_argument("text", nargs="?", metavar="TEXT", help="what comes instead; nothing takes them out, - reads it from stdin")
    rewrite.add_argument("--role", choices=("user", "assistant"), default="user", help="who says TEXT (user)")
    rewrite.add_argument("--messages", metavar="FILE", help="a JSON list of messages instead of TEXT; - is stdin")
    rewrite.add_argument("--expected", metavar="REVISION", help="only if the transcript is at this revision")
    _once(rewrite, "editing twice with one id is editing once")
    edits(rewrite)

    restore = _about(command, "restore", "transcript:restore", "Bring all messages of an earlier revision back.")
    restore.add_argument("revision", metavar="REVISION", help="or the beginning of one that `perdure revisions` lists")
    restore.add_argument("--expected", metavar="REVISION", help="only if the transcript is at this revision")
    _once(restore, "restoring twice with one id is restoring once")
    edits(restore)

    revisions = _about(command, "revisions", "transcript:revisions", "The edits of a transcript, the latest last, and where it is now.")
    revisions.add_argument("--limit", type=_positive, default=50, metavar="N", help="at most so many (50)")
    revisions.add_argument("--before", type=_positive, metavar="SEQ", help="only those before this edit's entry")

    diff = _about(command, "diff", "transcript:diff", "Where two revisions of a transcript differ.")
    diff.add_argument("old", metavar="REVISION", help="or the beginning of one")
    diff.add_argument("new", nargs="?", metavar="REVISION", help="the present one, if left out")

    redact = _about(command, "redact", "transcript:redact", "Remove the content of messages for good; every view says so.")
    redact.add_argument("positions", nargs="*", type=_natural, metavar="POSITION", help="messages, counted from 0")
    redact.add_argument("--entry", action="append", default=[], type=_positive, metavar="SEQ", help="a journal entry; may be repeated")
    _once(redact, "redacting twice with one id is redacting once")
    redact.add_argument("--vacuum", action="store_true", help="then write the store anew, so that no page of the file holds it")
    edits(redact)

    effects = _about(command, "effects", "transcript:effects", "What was done that the transcript doesn't show.")
    effects.add_argument("--all", action="store_true", help="also what it shows")
    effects.add_argument("--limit", type=_positive, default=50, metavar="N", help="at most so many (50)")


def _deciding(command: Any) -> None:
    asked = "Open requests of all sessions, with the commands that answer them."
    requests = command("requests", "requests:run", asked, json=True)
    requests.add_argument("--owner", metavar="WHO", help="only in this owner's sessions")
    requests.add_argument(
        "--kind",
        action="append",
        choices=("approval", "answer", "uncertain"),
        help="may it run, what does the user say, what became of it; may be repeated",
    )
    requests.add_argument("--status", action="append", metavar="STATUS", help="only in sessions that are so: waiting, …; may be repeated")
    requests.add_argument("--agent", metavar="NAME", help="only this agent's")
    requests.add_argument("--label", action="append", metavar="NAME=VALUE", help="only in sessions with this label; may be repeated")
    requests.add_argument("--limit", type=_positive, default=50, metavar="N", help="about so many (50): a session's stay together")
    requests.add_argument("--after", metavar="TOKEN", help="the next page: what the page before said, with the same filters")

    answer = _about(command, "answer", "decide:answer", "Close an open request.")
    _actor(answer, "who decides")
    answer.add_argument("request", metavar="REQUEST")
    answer.add_argument(
        "decision",
        metavar="DECISION",
        choices=("approve", "grant", "deny", "abort", "settle", "retry", "reply"),
        help="may it run: approve, grant (this very call, for the whole session), deny, abort; "
        "what became of it: settle, retry, deny (leave it unknown), abort; what the user is asked: reply, deny (no answer), abort",
    )
    answer.add_argument("--arguments", metavar="JSON", help="approve the call with these instead: one JSON object with all of them")
    answer.add_argument("--reason", default="", metavar="TEXT", help="the model reads it")
    answer.add_argument("--result", metavar="JSON", help="settle: what the call returned")
    answer.add_argument("--text", metavar="TEXT", help="reply: what the user says; - reads it from stdin")
    answer.add_argument("--error", action="store_true", help="settle: the call failed, and --result says how")

    may: Any = {"metavar": "REQUEST", "nargs": "?", "help": "may be left out if exactly one is open"}
    approve = _about(command, "approve", "decide:approve", "Let a call run.")
    approve.add_argument("request", **may)
    _actor(approve, "who decides")
    approve.add_argument("--arguments", metavar="JSON", help="with these arguments instead: one JSON object with all of them")
    deny = _about(command, "deny", "decide:deny", "Refuse a call; a question about an unknown outcome is left unknown.")
    deny.add_argument("request", **may)
    _actor(deny, "who decides")
    deny.add_argument("--reason", default="", metavar="TEXT", help="the model reads it")
    interrupt = _about(command, "interrupt", "control:interrupt", "Stop a session's running turn. The session stays usable.")
    _actor(interrupt, "who decides")
    interrupt.add_argument("--reason", default="", metavar="TEXT")
    route = _about(command, "route", "control:route", "Use another route of the agent's Router for the next turns.")
    _actor(route, "who decides")
    route.add_argument("route", metavar="ROUTE", help="its name in the Router")
    send = _about(command, "send", "tell:send", "Put a message into a session's inbox, without waiting.")
    _actor(send, "who decides")
    send.add_argument("text", metavar="TEXT", help="- reads it from stdin")
    send.add_argument("--deliver", choices=("turn", "queue", "steer"), help="steer joins the running turn (turn)")
    send.add_argument("--turn", metavar="TURN", help="join this turn (t12), or be refused if it doesn't run any more")
    send.add_argument("--reply-to", type=_positive, metavar="SEQ", help="the entry of the message that it answers")
    send.add_argument("--quote", metavar="TEXT", help="what that message says, whole; refused if it says something else")
    send.add_argument("--note", action="append", default=[], metavar="TEXT", help="tell the model this too, as note does; may be repeated")
    send.add_argument("--not-before", metavar="TIME", help="deliver it then at the earliest: 2026-01-31, or 2026-01-31T12:00")
    send.add_argument("--attach", action="append", default=[], metavar="FILE", help="send an image, sound or file too; may be repeated")
    _once(send, "sending twice with one id is sending once")

    edit = _about(command, "edit", "tell:edit", "Change the text of a queued message; its place stays.")
    _actor(edit, "who decides")
    edit.add_argument("message", metavar="SUBMISSION", type=_named, help="the message's submission id; `perdure why` lists what waits")
    edit.add_argument("text", metavar="TEXT", help="- reads it from stdin")
    withdraw = _about(command, "withdraw", "tell:withdraw", "Take back a queued message.")
    _actor(withdraw, "who decides")
    withdraw.add_argument("message", metavar="SUBMISSION", type=_named, help="the message's submission id; `perdure why` lists what waits")
    _telling(command)
    _about(command, "grants", "grants:grants", "The calls that may run without asking.")
    revoke = _about(command, "revoke", "grants:revoke", "Ask again about a call that was granted.")
    _actor(revoke, "who decides")
    revoke.add_argument("grant", metavar="GRANT", type=_named, help="as `perdure grants` lists it")

    uncertain = command("uncertain", "uncertain:run", "Effects with unknown outcome; or record the outcome of one.", json=True)
    uncertain.add_argument("session", nargs="?", metavar="SESSION", type=_named)
    uncertain.add_argument("--settle", metavar="OPERATION", help="the operation whose outcome is known now")
    uncertain.add_argument("--attempt", type=_positive, metavar="N", help="which attempt of it (the one that is uncertain)")
    outcome = uncertain.add_mutually_exclusive_group()
    outcome.add_argument("--result", metavar="JSON", help="it succeeded, and this is what it returned")
    outcome.add_argument("--failed", metavar="TEXT", help="it failed, and this is how")
    _actor(uncertain, "who says so")
    uncertain.add_argument("--reconcile", action="store_true", help="ask the tools of --agents, and settle what they know")
    _agents(uncertain, "their agents: module, or module:agent")


def _telling(command: Any) -> None:
    note = _about(command, "note", "tell:note", "Tell the model something outside of the conversation.")
    _actor(note, "who decides")
    note.add_argument("text", metavar="TEXT", help="- reads it from stdin")
    _once(note, "noting twice with one id is noting once")
    shorter = "Replace the conversation so far by notes in what models see; the transcript doesn't change."
    compact = _about(command, "compact", "control:compact", shorter)
    _actor(compact, "who decides")
    _once(compact, "compacting twice with one id is compacting once")
    carried = "Run a command of one of the agent's middlewares, the next time the agent runs."
    ordered = _about(command, "command", "control:command", carried)
    _actor(ordered, "who decides")
    ordered.add_argument("extension", metavar="MIDDLEWARE", type=_named)
    ordered.add_argument("name", metavar="COMMAND", type=_named)
    ordered.add_argument("arguments", nargs="?", metavar="JSON", help="an object with its arguments")
    _once(ordered, "twice with one id is once")
    _code(ordered)


def _named(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("must not be empty")
    return text


def _natural(text: str, least: int = 0) -> int:
    try:
        number = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
    if number < least:
        raise argparse.ArgumentTypeError(f"{number} is too small; it must be at least {least}")
    return number


def _positive(text: str) -> int:
    return _natural(text, 1)


class _Parser(argparse.ArgumentParser):
    """One that says what a misspelt option may have meant."""

    def error(self, message: str) -> NoReturn:
        if message.startswith("unrecognized arguments: "):
            from difflib import get_close_matches

            known = [option for action in self._actions for option in action.option_strings if option.startswith("--")]
            words = [word.partition("=")[0] for word in message.split() if word.startswith("--")]
            meant = [name for word in words for name in get_close_matches(word, known, 1)]
            message += f"; did you mean {' and '.join(meant)}?" if meant else f"; see {self.prog} --help"
        super().error(message)


class _Version(argparse.Action):
    """Found out only if somebody asks."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from perdure import __version__

        print(f"perdure {__version__}")
        parser.exit()


def _showing(command: Any) -> None:
    demo = command("demo", "demo:run", "See an agent being killed a dozen times, and losing nothing.", store=False)
    demo.add_argument("rest", nargs=argparse.REMAINDER, metavar="…", help="see perdure demo --help")


_SECTIONS: dict[str, Callable[[Any], None]] = {
    "run agents": _running,
    "see what they do": _looking,
    "decide, steer and tell": _deciding,
    "edit, branch and remove what was said": _transcripts,
    "say what a session is, and may": _describing,
    "keep sessions": _keeping,
    "calls and results from outside": _outside,
    "before a deploy, after an incident": _again,
    "many processes, budgets": _operating,
    "the store": _storing,
    "see it work": _showing,
}
