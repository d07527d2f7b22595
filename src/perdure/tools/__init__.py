"""Tools: typed functions that a model can call, and who decides whether a call may run."""

from .context import ReconcileContext, ToolContext
from .policy import ApprovalCall, Ask, Deny, Policy
from .sleep import sleep_tool
from .tool import (
    ArgumentsInvalid,
    BoundCall,
    Done,
    NotDone,
    ResultInvalid,
    Running,
    Tool,
    ToolCancelled,
    ToolError,
    ToolFault,
    Unknown,
    as_tool,
    tool,
)

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
