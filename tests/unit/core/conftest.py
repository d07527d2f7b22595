"""What holds for all tests that try many examples."""

from __future__ import annotations

from hypothesis import settings

# How long an example takes is the machine's to say, and proves nothing.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")
