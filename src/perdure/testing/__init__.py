"""For testing agents: virtual time, stores that fail, worlds that remember, and the sweep over every point at which a process can die."""

from .checks import find_all_problems, find_problems, invalid_transcript
from .clock import VirtualClock
from .faults import Call, Fault, FaultStore, ProcessDied
from .incident import Incident, from_session
from .stage import Life, Loss, Point
from .sweep import Ending, Report, Scenario, SweepFailed, sweep
from .world import Effect, World

__all__ = [
    "Call",
    "Effect",
    "Ending",
    "Fault",
    "FaultStore",
    "Incident",
    "Life",
    "Loss",
    "Point",
    "ProcessDied",
    "Report",
    "Scenario",
    "SweepFailed",
    "VirtualClock",
    "World",
    "find_all_problems",
    "find_problems",
    "from_session",
    "invalid_transcript",
    "sweep",
]
