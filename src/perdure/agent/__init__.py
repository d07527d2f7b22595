"""Agents: what they are declared as, and what changed when a declaration changed."""

from .agent import Agent

__all__ = ["Agent"]
