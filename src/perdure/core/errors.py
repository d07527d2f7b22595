"""Every error that perdure raises, by whom it concerns.

`UsageError`: you called something wrongly. `Refused`: the state says no, and nothing was touched. `StoreError`: the store failed,
and the outcome may be unknown. `ProviderError`: your peer, the model's provider, failed.
"""

from __future__ import annotations

from typing import Any, ClassVar

__all__ = [
    "AuthenticationFailed",
    "CapacityExceeded",
    "CheckpointTooLarge",
    "ContentElsewhere",
    "ContentRedacted",
    "ContextTooLong",
    "CoordinationError",
    "CutThroughCall",
    "DefinitionChanged",
    "DuplicateTool",
    "EffectFailed",
    "EffectUncertain",
    "Fenced",
    "FormatUnknown",
    "ImportRefused",
    "InvalidAgent",
    "InvalidMedia",
    "InvalidMessage",
    "InvalidModelOutput",
    "InvalidSpan",
    "InvalidTool",
    "InvalidTranscript",
    "InvalidURL",
    "LimitExceeded",
    "MediaBudgetExceeded",
    "MediaTooLarge",
    "MiddlewareError",
    "MissingExtra",
    "MissingKey",
    "MissingRoute",
    "NewerRules",
    "NotCanonical",
    "NothingChanged",
    "OutputInvalid",
    "PerdureError",
    "ProviderError",
    "ProviderRefused",
    "ProviderUnavailable",
    "QueueFull",
    "RateLimited",
    "Refused",
    "RevisionConflict",
    "RuntimeClosed",
    "SandboxUnavailable",
    "SessionArchived",
    "SessionBusy",
    "SessionExists",
    "SessionHalted",
    "SessionNotFound",
    "SessionStuck",
    "StaleRequest",
    "StoreBroken",
    "StoreBusy",
    "StoreClosed",
    "StoreCorrupt",
    "StoreError",
    "StoreForked",
    "StoreFull",
    "StoreReadOnly",
    "StreamCut",
    "SubmissionConflict",
    "SubmissionRejected",
    "TooManyRanges",
    "TransactionLost",
    "TurnUnfinished",
    "UnknownAgent",
    "UnknownModel",
    "UnknownRevision",
    "UnknownRoute",
    "UnsupportedContent",
    "UsageError",
]


class PerdureError(Exception):
    """Base of all: a stable ``code``, whether the same call may succeed later (``retryable``), and what to do (``hint``)."""

    code: ClassVar[str] = "error"
    retryable: bool = False

    def __init__(self, message: str, *, hint: str = "", **facts: Any) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.facts = facts

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class UsageError(PerdureError):
    """The call itself is wrong; repeating it can't help."""

    code = "usage"


class NotCanonical(UsageError):
    """A value has no exact JSON form."""

    code = "not_canonical"


class InvalidMessage(UsageError):
    """A message is empty or larger than the limits allow."""

    code = "invalid_message"


class InvalidMedia(InvalidMessage):
    """An image, sound or file that can't be sent: it isn't there, is empty, or is not what it is said to be."""

    code = "invalid_media"


class MediaTooLarge(InvalidMedia):
    """Media with more bytes than are taken: ``limit`` is *media* for one, *message_media* for all of a message."""

    code = "media_too_large"


class UnsupportedContent(UsageError):
    """A part that a model's API can't be sent; found before anything is."""

    code = "unsupported_content"


class InvalidSpan(UsageError):
    """Positions that are not those of a transcript's messages."""

    code = "invalid_span"


class CutThroughCall(InvalidSpan):
    """A place between a tool call and its response, where nothing can be cut."""

    code = "cut_through_call"


class InvalidTranscript(InvalidMessage):
    """Messages that can't stand in this order in a conversation."""

    code = "invalid_transcript"


class InvalidAgent(UsageError):
    """An `Agent` is declared in a way that can't work."""

    code = "invalid_agent"


class InvalidTool(UsageError):
    """A tool is declared in a way that can't work."""

    code = "invalid_tool"


class DuplicateTool(InvalidTool):
    """Two tools of one agent have the same name."""

    code = "duplicate_tool"


class InvalidURL(UsageError):
    """A store's address can't be understood."""

    code = "invalid_url"


class MissingExtra(UsageError):
    """An optional package is needed and not installed. ``extra`` has it; ``hint`` is another way out."""

    code = "missing_extra"

    def __init__(self, message: str, *, extra: str = "", hint: str = "", **facts: Any) -> None:
        # No package index has perdure.
        install = f"pip install '.[{extra}]' in a clone of perdure" if extra else ""
        super().__init__(message, hint=", or ".join(filter(None, (install, hint))), **facts)


class MissingKey(UsageError):
    """A provider's key is not set."""

    code = "missing_key"


class UnknownModel(UsageError):
    """A model's name has no known provider."""

    code = "unknown_model"


class UnknownAgent(UsageError):
    """A session names an agent that this process doesn't have."""

    code = "unknown_agent"


class RuntimeClosed(UsageError):
    """The `Runtime` was closed, or never opened."""

    code = "runtime_closed"


class UnknownRoute(UsageError):
    """A session's route, or a selected one, is not among those of this process."""

    code = "unknown_route"


class SandboxUnavailable(UsageError):
    """Commands should be confined, and can't be here."""

    code = "sandbox_unavailable"


class Refused(PerdureError):
    """The state says no. Nothing was changed."""

    code = "refused"


class SessionNotFound(Refused):
    """There is no such session."""

    code = "session_not_found"


class SessionExists(Refused):
    """The id belongs to another session."""

    code = "session_exists"


class SessionArchived(SessionNotFound):
    """The session is archived; its history can still be read."""

    code = "session_archived"


class SessionHalted(Refused):
    """The session was stopped, since damage was found in it or somebody said so; what is whole of it can still be read."""

    code = "session_halted"


class NothingChanged(Refused):
    """What was asked for is so already."""

    code = "nothing_changed"


class ImportRefused(Refused):
    """What should be imported is not whole, or not what was exported; nothing of it was kept."""

    code = "import_refused"


class SessionBusy(Refused):
    """Somebody is working on the session right now."""

    code = "session_busy"
    retryable = True


class SessionStuck(Refused):
    """The session's holder died five times without progress; it waits for a person."""

    code = "session_stuck"


class SubmissionConflict(Refused):
    """The submission id was used before with another content."""

    code = "submission_conflict"


class SubmissionRejected(Refused):
    """The session refused the submission; the reason is in ``facts``."""

    code = "submission_rejected"


class RevisionConflict(Refused):
    """The transcript isn't at the expected revision; ``facts`` holds both, as ``expected`` and ``actual``."""

    code = "revision_conflict"


class UnknownRevision(Refused):
    """The transcript never was at this revision."""

    code = "unknown_revision"


class MissingRoute(Refused):
    """A stored session doesn't say which route it goes on with, and nobody chose one."""

    code = "missing_route"


class StaleRequest(Refused):
    """The request is closed, or never was open."""

    code = "stale_request"


class TurnUnfinished(Refused):
    """The session has an unfinished turn, and the call doesn't say whether it is meant."""

    code = "turn_unfinished"


class QueueFull(Refused):
    """Too many submissions wait in the session's inbox: 1,024 that wait for their turn, or 1,152 with those that don't (an interrupt, an
    answer), which come through when no message does any more."""

    code = "queue_full"
    retryable = True


class CapacityExceeded(Refused):
    """The `Runtime` has no free slot."""

    code = "capacity_exceeded"
    retryable = True


class LimitExceeded(Refused):
    """A size limit of the journal would be broken; ``facts`` names it."""

    code = "limit_exceeded"


class MediaBudgetExceeded(LimitExceeded):
    """The media of one model request have more bytes than its settings allow; counted before anything is sent."""

    code = "media_budget"


class TooManyRanges(LimitExceeded):
    """So many edits lie in a transcript or context that it would be more ranges than one layout may have."""

    code = "too_many_ranges"


class CheckpointTooLarge(LimitExceeded):
    """The checkpoint would be larger than 48 KiB."""

    code = "checkpoint_too_large"


class DefinitionChanged(Refused):
    """The agent's definition changed in a way that the unfinished turn can't follow; ``facts`` holds the difference.

    The turn stays as it was. A message that was sent before anybody looked at that turn waits behind it.
    """

    code = "definition_changed"


class ContentRedacted(Refused):
    """What is needed was removed for good; ``facts`` hold the entry."""

    code = "content_redacted"


class OutputInvalid(Refused):
    """A turn completed, and its stored output is not what the agent's ``output_type`` reads; ``facts`` hold the text."""

    code = "output_invalid"


class NewerRules(Refused):
    """The session was written by newer rules than this process has."""

    code = "newer_rules"


class FormatUnknown(Refused):
    """The file is not perdure's, or is of a format that this version doesn't know."""

    code = "format_unknown"


class StoreError(PerdureError):
    """The store failed. Whether a write happened may be unknown until it can be read again."""

    code = "store"


class CoordinationError(StoreError):
    """This process no longer holds the session: its run ends, and its holder goes on."""

    code = "coordination"


class Fenced(CoordinationError):
    """Somebody else claimed the session."""

    code = "fenced"


class StoreFull(StoreError):
    """The disk is full. Nothing of the refused write was kept."""

    code = "store_full"
    retryable = True


class StoreBusy(StoreError):
    """Somebody else held the store for longer than a write waits. Nothing of the refused write was kept."""

    code = "store_busy"
    retryable = True


class StoreReadOnly(StoreError):
    """The store can be read but not written."""

    code = "store_read_only"


class StoreBroken(StoreError):
    """The store's medium or connection failed."""

    code = "store_broken"
    retryable = True


class TransactionLost(StoreError):
    """A function that ran within a commit ended the transaction, worked in it for too long, or lost it. Nothing of the commit was kept."""

    code = "transaction_lost"


class StoreCorrupt(StoreError):
    """Stored bytes are not what was written."""

    code = "store_corrupt"


class ContentElsewhere(StoreError):
    """Content that is kept outside of the database, and no such blob store was given. ``media_type`` and ``size`` say what it is."""

    code = "content_elsewhere"


class StoreClosed(StoreError):
    """The store was closed."""

    code = "store_closed"


class StoreForked(StoreError):
    """The store was opened before this process was forked; open it again in the child."""

    code = "store_forked"


class MiddlewareError(UsageError):
    """The agent's own code failed where nothing can go on without it; ``facts`` names the middleware and the hook."""

    code = "hook_failed"


class EffectFailed(UsageError):
    """What a hook did outside failed, now or when it ran before."""

    code = "effect_failed"


class EffectUncertain(EffectFailed):
    """Nobody knows whether what a hook did outside took effect."""

    code = "effect_uncertain"


class ProviderError(PerdureError):
    """The model's provider failed. ``retry_after`` is its own hint, in seconds."""

    code = "provider"

    def __init__(self, message: str, *, hint: str = "", retry_after: float | None = None, **facts: Any) -> None:
        super().__init__(message, hint=hint, **facts)
        self.retry_after = retry_after


class RateLimited(ProviderError):
    """Too many requests or tokens."""

    code = "rate_limited"
    retryable = True


class ProviderUnavailable(ProviderError):
    """The provider can't be reached, timed out, or failed inside."""

    code = "provider_unavailable"
    retryable = True


class StreamCut(ProviderError):
    """The answer's stream ended before the answer did."""

    code = "stream_cut"
    retryable = True


class ProviderRefused(ProviderError):
    """The provider rejects the request itself; the same request can't succeed."""

    code = "provider_refused"


class ContextTooLong(ProviderRefused):
    """The provider says that the request has more tokens than its model takes."""

    code = "context_too_long"


class AuthenticationFailed(ProviderRefused):
    """The provider doesn't accept the key."""

    code = "authentication_failed"


class InvalidModelOutput(ProviderError):
    """The model's answer can't be used: empty, or with calls that can't be told apart."""

    code = "invalid_model_output"
    retryable = True
