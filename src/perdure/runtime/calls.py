"""What an agent's tools and policy, and earlier effects, say of the calls that a model asks for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from ..agent import Agent
from ..core.checkpoint import Checkpoint, Operation
from ..core.context import READ_RESULT
from ..core.effects import effect_key
from ..core.entries import OperationEnded, OperationPlanned, RequestClosed, ToolCalled
from ..core.ids import arguments_digest, began, is_outside, owner_of
from ..core.messages import Part, ToolCall, ToolCallResponse
from ..core.phase import startable
from ..core.records import EffectMatch, Failure, Plan, ToolPolicy
from ..core.reports import AttemptEnded, CallsPlanned, Guarded, PlannedCall, StartTools
from ..core.rules.endings import NOT_EXECUTED, UNKNOWN_LIVE
from ..tools.policy import Allow, ApprovalCall, Ask, Deny, Ruling
from ..tools.tool import ArgumentsInvalid, Tool
from ..tools.unique import AlreadyDone
from .batch import Batch
from .context import Context, Fetch, resolve_parts
from .hooks import Hooks, Round, Said
from .ledger import Ledger
from .perform import LONGEST_SECONDS, keep_parts

__all__ = ["GUARD_DEADLINE_MS", "Calls", "Judged", "misfit", "permitted"]

GUARD_DEADLINE_MS = 24 * 60 * 60 * 1000
"""How long the guard's question stands; unanswered means refused."""

_NEVER_RAN = ("already_done", "invalid_arguments", "unknown_tool", "withheld", "crash_loop", "not_done")
"""Failures of calls whose handler did nothing."""


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """What policy and middleware make of one call: a ruling, and what it is now. ``extension`` is the last that rewrote it."""

    ruling: Ruling
    name: str
    arguments: Any
    denied_by: str = ""
    extension: str = ""


class Calls:
    """Plans and starts the calls of one session's turns. It proposes; `core` decides."""

    def __init__(self, session_id: str, agent: Agent, team: Mapping[str, Agent], context: Context, ledger: Ledger, fetch: Fetch) -> None:
        self._session_id = session_id
        self._agent = agent
        self._team = team
        self._context = context
        self._ledger = ledger
        self._fetch = fetch
        self._edited: dict[int, dict[str, Any]] = {}
        self._outside: dict[int, ToolCall] = {}

    async def call(self, operation: str, identity: str, batch: Batch | None = None) -> ToolCall:
        """What was asked for: by the model in its latest answer, or by who has a tool called outside of the conversation."""
        if not is_outside(operation):
            return self._context.call(identity)
        seq = began(operation)
        if seq not in self._outside:
            entry = await self._ledger.entry(seq, batch)
            assert isinstance(entry, ToolCalled)
            [call] = await resolve_parts(entry.parts, self._fetch)
            assert isinstance(call, ToolCall)
            self._outside = {seq: call}
        return self._outside[seq]

    async def judge(self, checkpoint: Checkpoint, hooks: Hooks) -> Said:
        """Ask the user's code about every call, in call order; the value is what it makes of them, by the calls' ids."""
        turn = checkpoint.turn
        asking = Round(checkpoint)
        judged: dict[str, Judged] = {}
        for index, unplanned in enumerate(turn.unplanned if turn is not None else ()):
            operation = turn.next_id(index) if turn is not None else ""
            call = await self.call(operation, unplanned.id)
            if self._agent.ends(call.name):
                # It is the runtime's own, and does nothing.
                judged[call.id] = Judged(ruling=Allow(), name=call.name, arguments=call.arguments)
                continue
            asked = self._asked(checkpoint, operation, call.name, call.arguments, call.id)
            asked, rewritten_by, denied, denied_by = await hooks.before_tool(asking, asked, self._misfit)
            tool = self._agent.tool(asked.name)
            ruling: Ruling = denied or Allow()
            usable = tool is not None and permitted(checkpoint.tools, asked.name)
            if denied is None and usable and tool is not None and not problem(tool, asked.arguments):
                ruling = _stricter(await self._agent.policy.decide(asked), checkpoint.tools, asked.name)
                if isinstance(ruling, Ask) and not _granted(checkpoint, asked.name, arguments_digest(asked.arguments)):
                    said, by = await hooks.permission(asking, asked)
                    ruling = said or ruling
                    denied_by = by if isinstance(said, Deny) else ""
            judged[call.id] = Judged(ruling=ruling, name=asked.name, arguments=asked.arguments, denied_by=denied_by, extension=rewritten_by)
        return asking.said(judged)

    def _misfit(self, name: str, arguments: Any) -> str:
        """Why a call can't be made."""
        return misfit(self._agent, name, arguments) if self._agent.tool(name) is not None else _unknown(self._agent, name).message

    def _asked(self, checkpoint: Checkpoint, operation: str, name: str, arguments: Any, call: str) -> ApprovalCall:
        turn, tool = checkpoint.turn, self._agent.tool(name)
        return ApprovalCall(
            name=name,
            arguments=arguments,
            effect=tool.effect if tool is not None else "external",
            session_id=self._session_id,
            turn=owner_of(operation),
            operation=operation,
            call=call,
            owner=checkpoint.identity.owner,
            agent=self._agent.name,
            author=turn.author if turn is not None else "",
            source=turn.source if turn is not None else None,
        )

    async def results(self, batch: Batch) -> list[tuple[ApprovalCall, ToolCallResponse]]:
        """The calls of the step that really ran, with what they came to, in call order."""
        found: list[tuple[ApprovalCall, ToolCallResponse]] = []
        for item in batch.turn.tools:
            receipt = await self._ledger.entry(item.receipt, batch)
            if not isinstance(receipt, OperationEnded) or not receipt.attempt or receipt.status not in ("succeeded", "failed"):
                continue
            if receipt.failure is not None and receipt.failure.code in _NEVER_RAN:
                continue
            parts = await resolve_parts(receipt.parts, self._fetch)
            if parts and isinstance(parts[0], ToolCallResponse):
                arguments = await self.arguments(item, batch)
                found.append((self._asked(batch.checkpoint, item.id, item.plan.name, arguments, item.plan.call), parts[0]))
        return found

    async def plan(self, batch: Batch, fence: int, judged: Mapping[str, Judged]) -> None:
        """Plan every call of the last answer. ``judged`` is what the user's code said; it is empty where there is none to ask."""
        turn = batch.turn
        calls = [await self.call(turn.next_id(index), item.id, batch) for index, item in enumerate(turn.unplanned)]
        planned: list[PlannedCall] = []
        taken: dict[str, str] = {}
        for index, call in enumerate(calls):
            found = await self._planned(batch, call, judged.get(call.id))
            if found.plan.unique and found.verdict in ("allow", "ask"):
                found = await self._claimed(batch, found, turn.next_id(index), taken)
            planned.append(found)
        batch.apply(CallsPlanned(calls=tuple(planned), fence=fence, at=batch.now))

    async def _claimed(self, batch: Batch, call: PlannedCall, operation: str, taken: dict[str, str]) -> PlannedCall:
        """The call, or the answer to one that would do what another one did, or an earlier one of the same step is about to do."""
        plan = call.plan
        if plan.unique in taken:
            done: AlreadyDone | None = AlreadyDone(session=self._session_id, operation=taken[plan.unique], state="pending")
        else:
            done = await self._ledger.claimed(plan.unique, operation, batch, self._fetch)
        if done is None:
            taken[plan.unique] = operation
            return call
        parts, blobs = keep_parts((_told(plan, done),))
        batch.keep(blobs)
        failure = None if done.state == "succeeded" else _already(done)
        return replace(call, verdict="replay" if failure is None else "reject", failure=failure, parts=parts)

    async def _planned(self, batch: Batch, call: ToolCall, judged: Judged | None) -> PlannedCall:
        if judged is None:
            ruling = _stricter(self._agent.policy.static(call.name), batch.checkpoint.tools, call.name)
            judged = Judged(ruling=ruling, name=call.name, arguments=call.arguments)
        planned = await self._ruled(batch, call.id, judged)
        return replace(planned, arguments=judged.arguments, extension=judged.extension) if judged.extension else planned

    async def _ruled(self, batch: Batch, call: str, judged: Judged) -> PlannedCall:
        agent, name, arguments, ruling = self._agent, judged.name, judged.arguments, judged.ruling
        tool = agent.tool(name)
        plan = Plan(kind="tool", name=name, call=call, arguments=arguments_digest(arguments))
        if judged.denied_by and isinstance(ruling, Deny):
            words = f"{NOT_EXECUTED}: {judged.denied_by} denies it: {ruling.reason}"
            return PlannedCall(plan=plan, verdict="reject", failure=Failure(code="denied", message=words))
        withheld = None if self._agent.ends(name) else _withheld(batch.checkpoint.tools, name)
        if wrong := _unknown(agent, name) if tool is None else withheld or problem(tool, arguments, batch.now):
            return PlannedCall(plan=plan, verdict="reject", failure=wrong)
        assert tool is not None
        plan = self._described(plan, tool, arguments, batch)
        if (plan.kind == "handoff" or plan.ends) and batch.turn.calls:
            words = f"{NOT_EXECUTED}: a conversation is {'finished' if plan.ends else 'handed over'} by who leads it"
            return PlannedCall(plan=plan, verdict="reject", failure=Failure(code="withheld", message=words))
        if plan.kind == "handoff" and plan.agent not in self._team:
            message = f"there is no agent {plan.agent!r} here"
            return PlannedCall(plan=plan, verdict="reject", failure=Failure(code="unknown_agent", message=message))
        if isinstance(ruling, Deny):
            words = f"{NOT_EXECUTED}: the policy denies it" + (f": {ruling.reason}" if ruling.reason else "")
            return PlannedCall(plan=plan, verdict="reject", failure=Failure(code="denied", message=words))
        if tool.asks:
            deadline = 0 if tool.timeout is None else batch.now + round(tool.timeout * 1000)
            return PlannedCall(plan=plan, verdict="question", deadline=deadline)
        if (match := await self._match(batch, plan, tool)) is not None:
            if tool.guard == "replay" and not match.other:
                return PlannedCall(plan=plan, verdict="replay", parts=await self._recorded(batch, match, plan))
            plan = replace(plan, match=match)
            return PlannedCall(plan=plan, verdict="ask", reason=_repeats(name, match), deadline=batch.now + GUARD_DEADLINE_MS)
        if isinstance(ruling, Ask) and not _granted(batch.checkpoint, plan.name, plan.arguments):
            seconds = ruling.deadline_seconds if ruling.deadline_seconds is not None else agent.approval_timeout
            deadline = 0 if seconds is None else batch.now + round(seconds * 1000)
            return PlannedCall(plan=plan, verdict="ask", reason=ruling.reason, deadline=deadline, default=ruling.default)
        return PlannedCall(plan=plan)

    def _described(self, plan: Plan, tool: Tool, arguments: Any, batch: Batch) -> Plan:
        plan = _planned(plan, tool, arguments, batch)
        return replace(plan, ends=self._agent.output.argument) if self._agent.ends(tool.name) else plan

    async def start(self, batch: Batch, fence: int) -> bool:
        """Start what may start, after one more look at each call. True: something was decided instead, so look again."""
        tools, may_start = batch.turn.tools, startable(batch.turn)
        if not may_start and any(item.status == "started" for item in tools):
            return False
        before = len(batch.entries)
        plans: dict[str, Plan] = {}
        taken: dict[str, str] = {}
        for item in may_start:
            if item.not_before > batch.now:
                continue
            tool = self._agent.tool(item.plan.name)
            arguments = await self.arguments(item, batch)
            wrong = _unknown(self._agent, item.plan.name) if tool is None else _withheld(batch.checkpoint.tools, item.plan.name)
            if wrong is None and tool is not None and item.edited:
                wrong = problem(tool, arguments, batch.now)
            if wrong is not None:
                batch.apply(AttemptEnded(operation=item.id, attempt=0, status="failed", failure=wrong, at=batch.now))
            elif tool is not None:
                plan = item.plan
                if item.attempt == 0:
                    # What the tool is now decides, where its definition or a person changed something since the call was planned.
                    plan = self._described(plan, tool, arguments, batch)
                    if plan != item.plan:
                        plans[item.id] = plan
                    await self._guard(batch, item.id, plan, tool)
                    if plan.unique and len(batch.entries) == before:
                        await self._claim(batch, PlannedCall(plan=plan), item.id, taken)
        if len(batch.entries) > before:
            return True
        batch.apply(StartTools(fence=fence, plans=plans, at=batch.now))
        return False

    async def _claim(self, batch: Batch, call: PlannedCall, operation: str, taken: dict[str, str]) -> None:
        """Another session may have done it since the call was planned."""
        call = await self._claimed(batch, call, operation, taken)
        if call.verdict in ("replay", "reject"):
            status: Any = "succeeded" if call.failure is None else "failed"
            ended = AttemptEnded(operation=operation, attempt=0, status=status, parts=call.parts, failure=call.failure, at=batch.now)
            batch.apply(ended)

    async def _guard(self, batch: Batch, operation: str, plan: Plan, tool: Tool) -> None:
        """An effect that became uncertain since the call was planned stops it too."""
        match = await self._match(batch, plan, tool)
        if match is not None and tool.guard == "replay" and not match.other:
            parts = await self._recorded(batch, match, plan)
            batch.apply(AttemptEnded(operation=operation, attempt=0, status="succeeded", parts=parts, at=batch.now))
        elif match is not None:
            deadline = batch.now + GUARD_DEADLINE_MS
            batch.apply(Guarded(operation=operation, match=match, reason=_repeats(plan.name, match), deadline=deadline, at=batch.now))

    async def _match(self, batch: Batch, plan: Plan, tool: Tool) -> EffectMatch | None:
        if tool.guard == "allow" or not plan.effect_key:
            return None
        key = effect_key(plan.name, plan.effect_key)
        return await self._ledger.match(plan, key, batch) or await self._ledger.beyond(plan, key, exact=tool.key is not None)

    async def _recorded(self, batch: Batch, match: EffectMatch, plan: Plan) -> tuple[Part, ...]:
        """What an earlier call came to, as the response to this one."""
        parts = await resolve_parts(await self._ledger.outcome(match, batch), self._fetch)
        response = parts[0] if parts else None
        if not isinstance(response, ToolCallResponse):
            return (ToolCallResponse(id=plan.call, name=plan.name, response=UNKNOWN_LIVE, is_error=True),)
        kept, blobs = keep_parts((replace(response, id=plan.call),))
        batch.keep(blobs)
        return kept

    async def arguments(self, item: Operation, batch: Batch | None = None) -> Any:
        """What a call runs with: as a person edited it or an extension rewrote it, else as the model wrote it."""
        if not item.edited:
            return (await self.call(item.id, item.plan.call, batch)).arguments
        if item.edited not in self._edited:
            entry = await self._ledger.entry(item.edited, batch)
            assert isinstance(entry, RequestClosed | OperationPlanned)
            self._edited[item.edited] = entry.arguments or {}
        return self._edited[item.edited]


def problem(tool: Tool, arguments: Any, now: int = 0) -> Failure | None:
    """Why arguments don't fit a tool, in words that the model can read; without ``now`` (ms) no time is too far off."""
    try:
        kwargs = tool.check(arguments).kwargs
        if now and tool.delegation is not None and tool.delegation.moment is not None:
            tool.delegation.moment(kwargs, now)
    except ArgumentsInvalid as error:
        return Failure(code="invalid_arguments", message=str(error))
    return None


def misfit(agent: Agent, name: str, arguments: Any) -> str:
    """Why an agent's tool could not be called so; empty if it could, or if the agent has no such tool."""
    tool = agent.tool(name)
    wrong = None if tool is None else problem(tool, arguments)
    return "" if wrong is None else wrong.message


def permitted(policy: ToolPolicy, name: str) -> bool:
    """Whether a session may use a tool. What brings back archived results goes with every other."""
    return policy.permits(name) or (name == READ_RESULT and name not in policy.never)


def _withheld(policy: ToolPolicy, name: str) -> Failure | None:
    return None if permitted(policy, name) else Failure(code="withheld", message=f"{NOT_EXECUTED}: this session may not use {name!r}")


def _stricter(ruling: Ruling, policy: ToolPolicy, name: str) -> Ruling:
    """What the agent's policy says, and where that lets the call run, what the session's says."""
    return Ask(reason=f"this session asks about every call of {name}") if isinstance(ruling, Allow) and name in policy.ask else ruling


def _granted(checkpoint: Checkpoint, name: str, arguments: str) -> bool:
    return any((grant.name, grant.arguments) == (name, arguments) for grant in checkpoint.grants)


def _unknown(agent: Agent, name: str) -> Failure:
    known = ", ".join(tool.name for tool in agent.specs) or "none"
    return Failure(code="unknown_tool", message=f"there is no tool {name!r}; available: {known}")


def _told(plan: Plan, done: AlreadyDone) -> ToolCallResponse:
    return ToolCallResponse(id=plan.call, name=plan.name, response=done.response, is_error=done.state != "succeeded")


def _already(done: AlreadyDone) -> Failure:
    how = "it has no result yet" if done.state == "pending" else "nobody knows whether it took effect"
    return Failure(code="already_done", message=f"{done.operation} of {done.session!r} does it, and {how}")


def _planned(plan: Plan, tool: Tool, arguments: Any, batch: Batch) -> Plan:
    now = batch.now
    if (called := tool.delegation) is not None:
        until = 0
        if called.moment is not None:
            until = called.moment(tool.check(arguments).kwargs, now)
        elif called.kind == "child" and tool.timeout is not None:
            until = now + round(min(tool.timeout, LONGEST_SECONDS) * 1000)
        plan = replace(plan, kind=called.kind, agent=called.name, background=called.background, until=until)
    return replace(
        plan,
        effect=tool.effect,
        # A pure call has no effect to know again.
        effect_key="" if tool.effect == "pure" else tool.selected(arguments),
        exclusive=tool.exclusive,
        reconcile=tool.reconcile is not None,
        resumable=tool.resumable,
        ask_when_uncertain=tool.on_uncertain == "ask",
        unique=tool.claims(arguments, batch.checkpoint.identity.owner),
        asks=tool.asks,
    )


def _repeats(name: str, match: EffectMatch) -> str:
    if match.beyond:
        return f"an earlier call of {name}, which this transcript doesn't show, may have had the same effect ({match.state})"
    return f"an earlier call of {name} with the same effect has an unknown outcome"
