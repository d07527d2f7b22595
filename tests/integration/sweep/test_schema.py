"""What scenarios really write, send and tell, checked by the JSON Schema in the documentation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

import perdure
from perdure import Agent, Entry, FunctionModel, HookContext, Message, Middleware, ModelRequest, Reply, ToolCall, tool
from perdure.cli.events import as_data
from perdure.core import commands, entries
from perdure.core.journal import open_entry
from perdure.runtime.messages import read_entries
from perdure.store.base import SessionQuery, Store
from perdure.testing.sweep import perform

from . import scenarios

SCHEMA: dict[str, Any] = json.loads((Path(__file__).parents[3] / "docs" / "events.schema.json").read_text("utf-8"))

TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}
SILENT = {"title", "description", "default", "discriminator"}


def problems(value: Any, schema: dict[str, Any], where: str = "$") -> list[str]:
    """What a value has that the schema doesn't allow. Knows the keywords that ours uses, and no other."""
    found: list[str] = []
    for word, said in schema.items():
        match word:
            case "$ref":
                found += problems(value, SCHEMA["$defs"][said.removeprefix("#/$defs/")], where)
            case "anyOf":
                tries = [problems(value, branch, where) for branch in said]
                found += [] if [] in tries else min(tries, key=len)
            case "type" if not isinstance(value, TYPES[said]) or (isinstance(value, bool) and said in ("integer", "number")):
                found.append(f"{where} is no {said}")
            case "const" if value != said:
                found.append(f"{where} is not {said!r}")
            case "enum" if value not in said:
                found.append(f"{where} is none of {said}")
            case "required":
                found += [f"{where} lacks {name}" for name in said if isinstance(value, dict) and name not in value]
            case "properties" if isinstance(value, dict):
                for name, inner in said.items():
                    found += problems(value[name], inner, f"{where}.{name}") if name in value else []
            case "additionalProperties" if isinstance(value, dict):
                for name in value.keys() - schema.get("properties", {}).keys():
                    found += [f"{where} has {name}"] if said is False else problems(value[name], said or {}, f"{where}.{name}")
            case "items" if isinstance(value, list) and said is not False:
                for index, item in enumerate(value):
                    found += problems(item, said, f"{where}[{index}]")
            case "prefixItems" if isinstance(value, list):
                for index, (item, inner) in enumerate(zip(value, said, strict=False)):
                    found += problems(item, inner, f"{where}[{index}]")
            case "minItems" if isinstance(value, list) and len(value) < said:
                found.append(f"{where} is too short")
            case "maxItems" if isinstance(value, list) and len(value) > said:
                found.append(f"{where} is too long")
            case "type" | "const" | "enum" | "properties" | "additionalProperties" | "items" | "prefixItems" | "minItems" | "maxItems":
                pass
            case _ if word not in SILENT:
                raise AssertionError(f"this check doesn't know the keyword {word}")
    return found


def against(group: str, value: Any) -> list[str]:
    """By the definition of the value's own kind, so that what is wrong is said of that."""
    known = [SCHEMA["$defs"][branch["$ref"].removeprefix("#/$defs/")] for branch in SCHEMA["$defs"][group]["anyOf"]]
    of_kind = [schema for schema in known if schema["properties"]["kind"]["const"] == value["kind"]]
    assert of_kind, f"the schema knows no {group} of the kind {value['kind']}"
    return problems(value, {"anyOf": of_kind})


async def journals(store: Store) -> list[dict[str, Any]]:
    found = []
    for row in await store.sessions(SessionQuery(archived=True, limit=1000)):
        found += [json.loads(json.dumps(as_data(open_entry(item)))) for item in await read_entries(store, row.no)]
    return found


@pytest.mark.parametrize("deaths", [(), (5,), (9,)], ids=["undisturbed", "killed early", "killed late"])
async def test_every_entry_and_every_command_of_every_scenario_is_what_the_schema_says(
    monkeypatch: pytest.MonkeyPatch, deaths: tuple[int, ...]
) -> None:
    sent: list[dict[str, Any]] = []
    real = commands.encode

    def encode(command: commands.Command) -> bytes:
        body = real(command)
        sent.append({"kind": command.kind, **json.loads(body)})
        return body

    monkeypatch.setattr(commands, "encode", encode)
    kinds: set[str] = set()
    for make in scenarios.ALL:
        _, stage, _ = await perform(make(), deaths=deaths)
        async with stage.looking() as store:
            for entry in await journals(store):
                assert against("Entry", entry) == [], entry
                kinds.add(entry["kind"])
    for command in sent:
        assert against("Command", command) == [], command
    assert {"turn_started", "message", "operation_ended", "request_opened", "turn_aborted", "submission_refused"} <= kinds
    assert not deaths or "recovered" in kinds
    assert {"message", "interrupt", "answer"} <= {command["kind"] for command in sent}


async def test_everything_live_is_what_the_schema_says() -> None:
    class Hesitant(Middleware):
        name = "hesitant"
        asked = 0

        async def message_submit(self, ctx: HookContext, message: Message) -> None:
            self.asked += 1
            if self.asked == 1:
                raise ValueError("not yet")

    @tool(effect="pure")
    async def look() -> str:
        """Look."""
        return "seen"

    def calls_once(name: str) -> FunctionModel:
        def answer(request: ModelRequest) -> Reply:
            if any(message.role == "tool" for message in request.messages):
                return Reply("an answer", reasoning="because")
            return Reply(tool_calls=[ToolCall(name, {} if name == "look" else {"task": "look, please"})])

        return FunctionModel(answer)

    helper = Agent("helper", model=calls_once("look"), tools=[look], approve=["look"])
    agent = Agent("a", model=calls_once("helper"), tools=[helper.as_tool()], middleware=[Hesitant()])
    seen: list[dict[str, Any]] = []
    async with perdure.open("memory://") as runtime, runtime.session("s", agent, owner="ann", metadata={"a": [1]}) as handle:
        await handle.send("hello")
        await handle.request_resume("s")
        async for event in handle.events():
            if not isinstance(event, Entry):
                kind = next(word for word, shape in LIVE.items() if type(event).__name__ == shape)
                seen.append({"kind": kind, **msgspec.to_builtins(event)})
            if isinstance(event, perdure.ChildAsked):
                await runtime.sessions.approve(event.session_id, event.request_id)
            if isinstance(event, perdure.TurnEnded):
                break
    assert {event["kind"] for event in seen} == set(LIVE)
    assert [against("Live", event) for event in seen] == [[]] * len(seen)


LIVE = {
    SCHEMA["$defs"][name]["properties"]["kind"]["const"]: name
    for name in (branch["$ref"].removeprefix("#/$defs/") for branch in SCHEMA["$defs"]["Live"]["anyOf"])
}


def test_what_is_not_as_the_schema_says_is_found() -> None:
    """Else the tests above would say nothing."""
    right = as_data(entries.TurnCompleted(turn="t2", submission="m", steps=1, output=4, seq=5, number=2, at=1))
    assert against("Entry", right) == []
    for wrong, name in (
        ({"steps": "1"}, "steps"),
        ({"steps": True}, "steps"),
        ({"more": 1}, "more"),
        ({"usage": {"calls": None}}, "calls"),
    ):
        assert any(name in problem for problem in against("Entry", {**right, **wrong}))
    for name in ("seq", "at", "turn"):
        left = {key: value for key, value in right.items() if key != name}
        assert any(name in problem for problem in against("Entry", left))
