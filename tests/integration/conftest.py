"""What holds for all tests that need a store, a server or another process."""

from __future__ import annotations

import pytest

# Before anything imports it: the assertions of the shipped suite should show what they compared.
pytest.register_assert_rewrite("perdure.store.conformance")
