"""LLM agents that survive a ``kill -9``."""

# Drawn by `python docs/draw.py` from the table in __init__.py.

from .agent.agent import Agent as Agent
from .agent.compaction import Compaction as Compaction
from .agent.identity import versioned as versioned
from .agent.memory import Memory as Memory
from .agent.memory import SessionMemory as SessionMemory
from .agent.middleware import Continue as Continue
from .agent.middleware import HookContext as HookContext
from .agent.middleware import Middleware as Middleware
from .agent.middleware import Reject as Reject
from .agent.middleware import Replace as Replace
from .agent.middleware import Rewrite as Rewrite
from .agent.middleware import State as State
from .agent.middleware import Stop as Stop
from .agent.output import OutputContext as OutputContext
from .core.checkpoint import Checkpoint as Checkpoint
from .core.checkpoint import Grant as Grant
from .core.checkpoint import Operation as Operation
from .core.checkpoint import Turn as Turn
from .core.commands import Deliver as Deliver
from .core.entries import AllowanceGranted as AllowanceGranted
from .core.entries import AnswerRequested as AnswerRequested
from .core.entries import ApprovalRequested as ApprovalRequested
from .core.entries import Archived as Archived
from .core.entries import EffectSettled as EffectSettled
from .core.entries import Entry as Entry
from .core.entries import ExtensionCommand as ExtensionCommand
from .core.entries import ExtensionSet as ExtensionSet
from .core.entries import Foreign as Foreign
from .core.entries import Forked as Forked
from .core.entries import GrantGiven as GrantGiven
from .core.entries import Halted as Halted
from .core.entries import MessageAdded as MessageAdded
from .core.entries import NoteAdded as NoteAdded
from .core.entries import NotesWithdrawn as NotesWithdrawn
from .core.entries import OperationEnded as OperationEnded
from .core.entries import OperationPlanned as OperationPlanned
from .core.entries import OperationStarted as OperationStarted
from .core.entries import PrefixChanged as PrefixChanged
from .core.entries import QueueChanged as QueueChanged
from .core.entries import Recovered as Recovered
from .core.entries import Redacted as Redacted
from .core.entries import RequestClosed as RequestClosed
from .core.entries import RequestOpened as RequestOpened
from .core.entries import Revived as Revived
from .core.entries import Rewritten as Rewritten
from .core.entries import RouteSelected as RouteSelected
from .core.entries import SessionChanged as SessionChanged
from .core.entries import SessionCreated as SessionCreated
from .core.entries import SubmissionRefused as SubmissionRefused
from .core.entries import ToolCalled as ToolCalled
from .core.entries import TurnAborted as TurnAborted
from .core.entries import TurnCompleted as TurnCompleted
from .core.entries import TurnEnded as TurnEnded
from .core.entries import TurnEnding as TurnEnding
from .core.entries import TurnFailed as TurnFailed
from .core.entries import TurnLimited as TurnLimited
from .core.entries import TurnStarted as TurnStarted
from .core.entries import UncertainRequested as UncertainRequested
from .core.errors import AuthenticationFailed as AuthenticationFailed
from .core.errors import CapacityExceeded as CapacityExceeded
from .core.errors import CheckpointTooLarge as CheckpointTooLarge
from .core.errors import ContentElsewhere as ContentElsewhere
from .core.errors import ContentRedacted as ContentRedacted
from .core.errors import ContextTooLong as ContextTooLong
from .core.errors import CoordinationError as CoordinationError
from .core.errors import CutThroughCall as CutThroughCall
from .core.errors import DefinitionChanged as DefinitionChanged
from .core.errors import DuplicateTool as DuplicateTool
from .core.errors import EffectFailed as EffectFailed
from .core.errors import EffectUncertain as EffectUncertain
from .core.errors import Fenced as Fenced
from .core.errors import FormatUnknown as FormatUnknown
from .core.errors import ImportRefused as ImportRefused
from .core.errors import InvalidAgent as InvalidAgent
from .core.errors import InvalidMedia as InvalidMedia
from .core.errors import InvalidMessage as InvalidMessage
from .core.errors import InvalidModelOutput as InvalidModelOutput
from .core.errors import InvalidSpan as InvalidSpan
from .core.errors import InvalidTool as InvalidTool
from .core.errors import InvalidTranscript as InvalidTranscript
from .core.errors import InvalidURL as InvalidURL
from .core.errors import LimitExceeded as LimitExceeded
from .core.errors import MediaBudgetExceeded as MediaBudgetExceeded
from .core.errors import MediaTooLarge as MediaTooLarge
from .core.errors import MiddlewareError as MiddlewareError
from .core.errors import MissingExtra as MissingExtra
from .core.errors import MissingKey as MissingKey
from .core.errors import MissingRoute as MissingRoute
from .core.errors import NewerRules as NewerRules
from .core.errors import NotCanonical as NotCanonical
from .core.errors import NothingChanged as NothingChanged
from .core.errors import OutputInvalid as OutputInvalid
from .core.errors import PerdureError as PerdureError
from .core.errors import ProviderError as ProviderError
from .core.errors import ProviderRefused as ProviderRefused
from .core.errors import ProviderUnavailable as ProviderUnavailable
from .core.errors import QueueFull as QueueFull
from .core.errors import RateLimited as RateLimited
from .core.errors import Refused as Refused
from .core.errors import RevisionConflict as RevisionConflict
from .core.errors import RuntimeClosed as RuntimeClosed
from .core.errors import SandboxUnavailable as SandboxUnavailable
from .core.errors import SessionArchived as SessionArchived
from .core.errors import SessionBusy as SessionBusy
from .core.errors import SessionExists as SessionExists
from .core.errors import SessionHalted as SessionHalted
from .core.errors import SessionNotFound as SessionNotFound
from .core.errors import SessionStuck as SessionStuck
from .core.errors import StaleRequest as StaleRequest
from .core.errors import StoreBroken as StoreBroken
from .core.errors import StoreBusy as StoreBusy
from .core.errors import StoreClosed as StoreClosed
from .core.errors import StoreCorrupt as StoreCorrupt
from .core.errors import StoreError as StoreError
from .core.errors import StoreForked as StoreForked
from .core.errors import StoreFull as StoreFull
from .core.errors import StoreReadOnly as StoreReadOnly
from .core.errors import StreamCut as StreamCut
from .core.errors import SubmissionConflict as SubmissionConflict
from .core.errors import SubmissionRejected as SubmissionRejected
from .core.errors import TooManyRanges as TooManyRanges
from .core.errors import TurnUnfinished as TurnUnfinished
from .core.errors import UnknownAgent as UnknownAgent
from .core.errors import UnknownModel as UnknownModel
from .core.errors import UnknownRevision as UnknownRevision
from .core.errors import UnknownRoute as UnknownRoute
from .core.errors import UnsupportedContent as UnsupportedContent
from .core.errors import UsageError as UsageError
from .core.media import Media as Media
from .core.messages import Blob as Blob
from .core.messages import Message as Message
from .core.messages import Part as Part
from .core.messages import Quote as Quote
from .core.messages import Reasoning as Reasoning
from .core.messages import RedactedPart as RedactedPart
from .core.messages import Source as Source
from .core.messages import Text as Text
from .core.messages import ToolCall as ToolCall
from .core.messages import ToolCallResponse as ToolCallResponse
from .core.messages import Uri as Uri
from .core.records import Amounts as Amounts
from .core.records import Decision as Decision
from .core.records import EffectClass as EffectClass
from .core.records import Ending as Ending
from .core.records import Failure as Failure
from .core.records import Identity as Identity
from .core.records import Limits as Limits
from .core.records import Reached as Reached
from .core.records import ToolPolicy as ToolPolicy
from .core.usage import Cost as Cost
from .core.usage import Totals as Totals
from .core.usage import Usage as Usage
from .core.usage import usd as usd
from .models.base import Delta as Delta
from .models.base import Model as Model
from .models.base import ModelOutput as ModelOutput
from .models.base import ModelRequest as ModelRequest
from .models.base import ModelSettings as ModelSettings
from .models.base import OutputSpec as OutputSpec
from .models.base import ReasoningDelta as ReasoningDelta
from .models.base import TextDelta as TextDelta
from .models.base import ToolSpec as ToolSpec
from .models.prices import Price as Price
from .models.prices import Prices as Prices
from .models.router import Router as Router
from .models.scripted import FunctionModel as FunctionModel
from .models.scripted import Reply as Reply
from .models.scripted import ScriptedModel as ScriptedModel
from .models.tokens import openai_tokens as openai_tokens
from .runtime.asked import AskedRequest as AskedRequest
from .runtime.branches import Branch as Branch
from .runtime.branches import Effect as Effect
from .runtime.branches import Fork as Fork
from .runtime.calling import ToolOutcome as ToolOutcome
from .runtime.clock import Clock as Clock
from .runtime.consumers import Consumer as Consumer
from .runtime.consumers import Project as Project
from .runtime.consumers import Projector as Projector
from .runtime.content import Input as Input
from .runtime.door import Submission as Submission
from .runtime.edits import Written as Written
from .runtime.erasing import Erased as Erased
from .runtime.feed import ChildAsked as ChildAsked
from .runtime.feed import Event as Event
from .runtime.feed import HookFailed as HookFailed
from .runtime.feed import ResumeRequested as ResumeRequested
from .runtime.feed import SessionOpened as SessionOpened
from .runtime.foreign import Foreigner as Foreigner
from .runtime.infos import Page as Page
from .runtime.infos import SessionInfo as SessionInfo
from .runtime.keeping import Exported as Exported
from .runtime.keeping import Imported as Imported
from .runtime.keeping import Target as Target
from .runtime.lines import JsonLines as JsonLines
from .runtime.media import audio as audio
from .runtime.media import file as file
from .runtime.media import image as image
from .runtime.model_calls import ModelCall as ModelCall
from .runtime.model_calls import Spending as Spending
from .runtime.model_calls import UsageRow as UsageRow
from .runtime.open_requests import RequestPage as RequestPage
from .runtime.pools import Pool as Pool
from .runtime.pools import Pools as Pools
from .runtime.recording import RecordedCall as RecordedCall
from .runtime.recording import RecordedTurn as RecordedTurn
from .runtime.recording import Recording as Recording
from .runtime.redaction import Removed as Removed
from .runtime.reconciling import Reconciliation as Reconciliation
from .runtime.redefining import Deploy as Deploy
from .runtime.redefining import Keyless as Keyless
from .runtime.redefining import WouldRefuse as WouldRefuse
from .runtime.requests import Request as Request
from .runtime.requests import RequestKind as RequestKind
from .runtime.requests import Uncertain as Uncertain
from .runtime.result import Result as Result
from .runtime.runtime import Runtime as Runtime
from .runtime.runtime import open as open
from .runtime.session import Session as Session
from .runtime.sessions import Sessions as Sessions
from .runtime.stopping import Stopped as Stopped
from .runtime.transcripts import Edit as Edit
from .runtime.transcripts import Hunk as Hunk
from .runtime.transcripts import Revision as Revision
from .runtime.transcripts import Revisions as Revisions
from .runtime.verify import Problem as Problem
from .runtime.verify import verify as verify
from .store.base import Store as Store
from .store.blobs import BlobStore as BlobStore
from .store.blobs import DirectoryBlobs as DirectoryBlobs
from .store.outside import Swept as Swept
from .store.outside import WithBlobs as WithBlobs
from .tools.asking import ask_user as ask_user
from .tools.context import ToolContext as ToolContext
from .tools.moments import Moment as Moment
from .tools.policy import Allow as Allow
from .tools.policy import ApprovalCall as ApprovalCall
from .tools.policy import Ask as Ask
from .tools.policy import Deny as Deny
from .tools.running import ToolError as ToolError
from .tools.tool import Done as Done
from .tools.tool import NotDone as NotDone
from .tools.tool import Tool as Tool
from .tools.tool import Unknown as Unknown
from .tools.tool import tool as tool
from .tools.unique import AlreadyDone as AlreadyDone

__all__ = [
    "Agent",
    "Allow",
    "AllowanceGranted",
    "AlreadyDone",
    "Amounts",
    "AnswerRequested",
    "ApprovalCall",
    "ApprovalRequested",
    "Archived",
    "Ask",
    "AskedRequest",
    "AuthenticationFailed",
    "Blob",
    "BlobStore",
    "Branch",
    "CapacityExceeded",
    "Checkpoint",
    "CheckpointTooLarge",
    "ChildAsked",
    "Clock",
    "Compaction",
    "Consumer",
    "ContentElsewhere",
    "ContentRedacted",
    "ContextTooLong",
    "Continue",
    "CoordinationError",
    "Cost",
    "CutThroughCall",
    "Decision",
    "DefinitionChanged",
    "Deliver",
    "Delta",
    "Deny",
    "Deploy",
    "DirectoryBlobs",
    "Done",
    "DuplicateTool",
    "Edit",
    "Effect",
    "EffectClass",
    "EffectFailed",
    "EffectSettled",
    "EffectUncertain",
    "Ending",
    "Entry",
    "Erased",
    "Event",
    "Exported",
    "ExtensionCommand",
    "ExtensionSet",
    "Failure",
    "Fenced",
    "Foreign",
    "Foreigner",
    "Fork",
    "Forked",
    "FormatUnknown",
    "FunctionModel",
    "Grant",
    "GrantGiven",
    "Halted",
    "HookContext",
    "HookFailed",
    "Hunk",
    "Identity",
    "ImportRefused",
    "Imported",
    "Input",
    "InvalidAgent",
    "InvalidMedia",
    "InvalidMessage",
    "InvalidModelOutput",
    "InvalidSpan",
    "InvalidTool",
    "InvalidTranscript",
    "InvalidURL",
    "JsonLines",
    "Keyless",
    "LimitExceeded",
    "Limits",
    "Media",
    "MediaBudgetExceeded",
    "MediaTooLarge",
    "Memory",
    "Message",
    "MessageAdded",
    "Middleware",
    "MiddlewareError",
    "MissingExtra",
    "MissingKey",
    "MissingRoute",
    "Model",
    "ModelCall",
    "ModelOutput",
    "ModelRequest",
    "ModelSettings",
    "Moment",
    "NewerRules",
    "NotCanonical",
    "NotDone",
    "NoteAdded",
    "NotesWithdrawn",
    "NothingChanged",
    "Operation",
    "OperationEnded",
    "OperationPlanned",
    "OperationStarted",
    "OutputContext",
    "OutputInvalid",
    "OutputSpec",
    "Page",
    "Part",
    "PerdureError",
    "Pool",
    "Pools",
    "PrefixChanged",
    "Price",
    "Prices",
    "Problem",
    "Project",
    "Projector",
    "ProviderError",
    "ProviderRefused",
    "ProviderUnavailable",
    "QueueChanged",
    "QueueFull",
    "Quote",
    "RateLimited",
    "Reached",
    "Reasoning",
    "ReasoningDelta",
    "Reconciliation",
    "RecordedCall",
    "RecordedTurn",
    "Recording",
    "Recovered",
    "Redacted",
    "RedactedPart",
    "Refused",
    "Reject",
    "Removed",
    "Replace",
    "Reply",
    "Request",
    "RequestClosed",
    "RequestKind",
    "RequestOpened",
    "RequestPage",
    "Result",
    "ResumeRequested",
    "Revision",
    "RevisionConflict",
    "Revisions",
    "Revived",
    "Rewrite",
    "Rewritten",
    "RouteSelected",
    "Router",
    "Runtime",
    "RuntimeClosed",
    "SandboxUnavailable",
    "ScriptedModel",
    "Session",
    "SessionArchived",
    "SessionBusy",
    "SessionChanged",
    "SessionCreated",
    "SessionExists",
    "SessionHalted",
    "SessionInfo",
    "SessionMemory",
    "SessionNotFound",
    "SessionOpened",
    "SessionStuck",
    "Sessions",
    "Source",
    "Spending",
    "StaleRequest",
    "State",
    "Stop",
    "Stopped",
    "Store",
    "StoreBroken",
    "StoreBusy",
    "StoreClosed",
    "StoreCorrupt",
    "StoreError",
    "StoreForked",
    "StoreFull",
    "StoreReadOnly",
    "StreamCut",
    "Submission",
    "SubmissionConflict",
    "SubmissionRefused",
    "SubmissionRejected",
    "Swept",
    "Target",
    "Text",
    "TextDelta",
    "TooManyRanges",
    "Tool",
    "ToolCall",
    "ToolCallResponse",
    "ToolCalled",
    "ToolContext",
    "ToolError",
    "ToolOutcome",
    "ToolPolicy",
    "ToolSpec",
    "Totals",
    "Turn",
    "TurnAborted",
    "TurnCompleted",
    "TurnEnded",
    "TurnEnding",
    "TurnFailed",
    "TurnLimited",
    "TurnStarted",
    "TurnUnfinished",
    "Uncertain",
    "UncertainRequested",
    "Unknown",
    "UnknownAgent",
    "UnknownModel",
    "UnknownRevision",
    "UnknownRoute",
    "UnsupportedContent",
    "Uri",
    "Usage",
    "UsageError",
    "UsageRow",
    "WithBlobs",
    "WouldRefuse",
    "Written",
    "ask_user",
    "audio",
    "file",
    "image",
    "openai_tokens",
    "tool",
    "usd",
    "verify",
    "versioned",
]

__version__: str
