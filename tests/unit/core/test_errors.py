"""The tree of errors: by whom they concern, each with a code of its own."""

from __future__ import annotations

import pytest

from perdure.core import errors
from perdure.core.errors import PerdureError, ProviderError, Refused, StoreError, UsageError

ALL = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, PerdureError)]


def test_every_error_is_exported() -> None:
    assert sorted(error.__name__ for error in ALL) == sorted(errors.__all__)


def test_every_error_has_a_code_of_its_own() -> None:
    codes = [error.__dict__.get("code") for error in ALL]

    assert None not in codes
    assert len(set(codes)) == len(codes)
    assert all(code == code.lower() and code.replace("_", "").isalpha() for code in codes)


def test_every_error_says_what_it_means() -> None:
    assert all(error.__doc__ for error in ALL)


@pytest.mark.parametrize("error", [error for error in ALL if error is not PerdureError], ids=lambda error: error.__name__)
def test_every_error_concerns_exactly_one_of_you_the_state_the_store_or_your_peer(error: type[PerdureError]) -> None:
    branches = [branch for branch in (UsageError, Refused, StoreError, ProviderError) if issubclass(error, branch)]

    assert len(branches) == 1


@pytest.mark.parametrize(
    ("error", "base"),
    [
        (errors.SessionArchived, errors.SessionNotFound),
        (errors.CheckpointTooLarge, errors.LimitExceeded),
        (errors.LimitExceeded, Refused),
        (errors.CoordinationError, StoreError),
        (errors.Fenced, errors.CoordinationError),
        (errors.NewerRules, Refused),
        (errors.FormatUnknown, Refused),
        (errors.StoreCorrupt, StoreError),
        (errors.AuthenticationFailed, errors.ProviderRefused),
        (errors.NotCanonical, UsageError),
        (errors.StaleRequest, Refused),
    ],
)
def test_who_catches_what(error: type[PerdureError], base: type[PerdureError]) -> None:
    assert issubclass(error, base)


@pytest.mark.parametrize("error", ALL, ids=lambda error: error.__name__)
def test_an_error_reads_as_a_sentence_and_what_to_do(error: type[PerdureError]) -> None:
    raised = error("it went wrong", hint="do this", where="here")

    assert str(raised) == "it went wrong (do this)"
    assert (raised.message, raised.hint, raised.facts) == ("it went wrong", "do this", {"where": "here"})
    assert str(error("it went wrong")) == "it went wrong"


@pytest.mark.spec("B-A-039")
def test_what_may_succeed_later_says_so() -> None:
    assert {error.code for error in ALL if error.retryable} == {
        "session_busy",
        "queue_full",
        "capacity_exceeded",
        "store_full",
        "store_busy",
        "store_broken",
        "rate_limited",
        "provider_unavailable",
        "stream_cut",
        "invalid_model_output",
    }


def test_the_hint_of_a_provider_is_kept_in_seconds() -> None:
    assert errors.RateLimited("slow down", retry_after=1.5).retry_after == 1.5
    assert errors.RateLimited("slow down").retry_after is None
