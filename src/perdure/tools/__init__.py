"""Tools: typed functions that a model can call, and who decides whether a call may run."""

from .context import ReconcileContext, ToolContext
from .policy import ApprovalCall, Ask, Deny, Policy
from .running import Running, ToolCancelled, ToolError, ToolFault
from .sleep import sleep_tool
from .tool import ArgumentsInvalid, BoundCall, Done, NotDone, ResultInvalid, Tool, Unknown, as_tool, tool

__all__ = [
    "ApprovalCall",
    "ArgumentsInvalid",
    "Ask",
    "BoundCall",
    "Deny",
    "Done",
    "NotDone",
    "Policy",
    "ReconcileContext",
    "ResultInvalid",
    "Running",
    "Tool",
    "ToolCancelled",
    "ToolContext",
    "ToolError",
    "ToolFault",
    "Unknown",
    "as_tool",
    "sleep_tool",
    "tool",
]
