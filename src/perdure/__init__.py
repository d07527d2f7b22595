"""LLM agents that survive a ``kill -9``."""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_FACE = {
    "agent.agent": "Agent",
    "agent.compaction": "Compaction",
    "agent.identity": "versioned",
    "agent.memory": "Memory SessionMemory",
    "agent.middleware": "Continue HookContext Middleware Reject Replace Rewrite State Stop",
    "agent.output": "OutputContext",
    "core.checkpoint": "Checkpoint Grant Operation Turn",
    "core.commands": "Deliver",
    "core.entries": """
        AllowanceGranted AnswerRequested ApprovalRequested Archived EffectSettled Entry ExtensionCommand ExtensionSet
        Foreign Forked GrantGiven Halted MessageAdded NoteAdded NotesWithdrawn OperationEnded OperationPlanned
        OperationStarted PrefixChanged QueueChanged Recovered Redacted RequestClosed RequestOpened Revived Rewritten
        RouteSelected SessionChanged SessionCreated SubmissionRefused ToolCalled TurnAborted TurnCompleted TurnEnded
        TurnEnding TurnFailed TurnLimited TurnStarted UncertainRequested
    """,
    "core.errors": """
        AuthenticationFailed CapacityExceeded CheckpointTooLarge ContentElsewhere ContentRedacted ContextTooLong
        CoordinationError CutThroughCall DefinitionChanged DuplicateTool EffectFailed EffectUncertain Fenced
        FormatUnknown ImportRefused InvalidAgent InvalidMedia InvalidMessage InvalidModelOutput InvalidSpan InvalidTool
        InvalidTranscript InvalidURL LimitExceeded MediaBudgetExceeded MediaTooLarge MiddlewareError MissingExtra
        MissingKey MissingRoute NewerRules NotCanonical NothingChanged OutputInvalid PerdureError ProviderError
        ProviderRefused ProviderUnavailable QueueFull RateLimited Refused RevisionConflict RuntimeClosed
        SandboxUnavailable SessionArchived SessionBusy SessionExists SessionHalted SessionNotFound SessionStuck
        StaleRequest StoreBroken StoreBusy StoreClosed StoreCorrupt StoreError StoreForked StoreFull StoreReadOnly StreamCut
        SubmissionConflict SubmissionRejected TooManyRanges TurnUnfinished UnknownAgent UnknownModel UnknownRevision
        UnknownRoute UnsupportedContent UsageError
    """,
    "core.media": "Media",
    "core.messages": "Blob Message Part Quote Reasoning RedactedPart Source Text ToolCall ToolCallResponse Uri",
    "core.records": "Amounts Decision EffectClass Ending Failure Identity Limits Reached ToolPolicy",
    "core.usage": "Cost Totals Usage usd",
    "models.base": "Delta Model ModelOutput ModelRequest ModelSettings OutputSpec ReasoningDelta TextDelta ToolSpec",
    "models.prices": "Price Prices",
    "models.router": "Router",
    "models.scripted": "FunctionModel Reply ScriptedModel",
    "models.tokens": "openai_tokens",
    "runtime.asked": "AskedRequest",
    "runtime.branches": "Branch Effect Fork",
    "runtime.calling": "ToolOutcome",
    "runtime.clock": "Clock",
    "runtime.consumers": "Consumer Project Projector",
    "runtime.content": "Input",
    "runtime.door": "Submission",
    "runtime.edits": "Written",
    "runtime.erasing": "Erased",
    "runtime.feed": "ChildAsked Event HookFailed ResumeRequested SessionOpened",
    "runtime.foreign": "Foreigner",
    "runtime.infos": "Page SessionInfo",
    "runtime.keeping": "Exported Imported Target",
    "runtime.lines": "JsonLines",
    "runtime.media": "audio file image",
    "runtime.model_calls": "ModelCall Spending UsageRow",
    "runtime.open_requests": "RequestPage",
    "runtime.pools": "Pool Pools",
    "runtime.recording": "RecordedCall RecordedTurn Recording",
    "runtime.redaction": "Removed",
    "runtime.reconciling": "Reconciliation",
    "runtime.redefining": "Deploy Keyless WouldRefuse",
    "runtime.requests": "Request RequestKind Uncertain",
    "runtime.result": "Result",
    "runtime.runtime": "Runtime open",
    "runtime.session": "Session",
    "runtime.sessions": "Sessions",
    "runtime.stopping": "Stopped",
    "runtime.transcripts": "Edit Hunk Revision Revisions",
    "runtime.verify": "Problem verify",
    "store.base": "Store",
    "store.blobs": "BlobStore DirectoryBlobs",
    "store.outside": "Swept WithBlobs",
    "tools.asking": "ask_user",
    "tools.context": "ToolContext",
    "tools.moments": "Moment",
    "tools.policy": "Allow ApprovalCall Ask Deny",
    "tools.running": "ToolError",
    "tools.tool": "Done NotDone Tool Unknown tool",
    "tools.unique": "AlreadyDone",
}
"""All that users import, by the module where it stands. Each is imported when it is first asked for; type checkers read `__init__.pyi`,
which `python docs/draw.py` draws from this."""

_PLACES = {name: module for module, names in _FACE.items() for name in names.split()}

__all__ = sorted({*_PLACES} - {"open"})  # noqa: PLE0605 - drawn from the table; a star may not put our open in the place of Python's


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f".{_PLACES[name]}", __name__), name)
    return found


def __dir__() -> list[str]:
    return [*{*globals(), *_PLACES}]
