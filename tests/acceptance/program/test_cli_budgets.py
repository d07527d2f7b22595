"""Limits, pools and usage, as somebody at a terminal sees them."""

from __future__ import annotations

from pathlib import Path

from .conftest import Program

SHOP = "agents_here:shop"


def test_a_turn_is_limited_and_goes_on_under_a_higher_limit(perdure: Program) -> None:
    perdure("run", SHOP, "nasty", "--session", "s", "--limit", "model_calls=1", code=1)
    assert "ended at its limit of model calls" in perdure.errors
    assert "resume s --agents YOUR_MODULE:… --limit NAME=VALUE" in perdure("why", "s")
    assert perdure.json("why", "s")["limited"] == "t2"
    perdure("resume", "s", "--agents", SHOP, "--limit", "model_calls=1", code=1)
    assert "ended at its limit" in perdure.errors
    perdure("resume", "s", "--agents", SHOP, "--limit", "model_calls=5")
    assert "completed" in perdure.errors
    assert perdure.json("why", "s")["limited"] is None
    assert "nothing to do" in perdure("resume", "s", "--agents", SHOP) + perdure.errors
    assert perdure("verify").endswith("nothing is wrong\n")


def test_an_owners_budget_is_set_shown_raised_and_removed(perdure: Program) -> None:
    perdure("run", SHOP, "hello", "--session", "before")
    assert "nobody has a pool" in perdure("budget") + perdure.errors
    assert "$50.00" in perdure("budget", "set", "acme", "cost=50", "model_calls=1")
    perdure("run", SHOP, "nasty", "--session", "s", "--owner", "acme", code=1)
    perdure("resume", "s", "--agents", SHOP, code=1)
    assert "its owner's limit of model calls" in perdure.errors
    assert perdure.json("budget", "show", "acme") == [
        {
            "owner": "acme",
            "limits": {"cost": 50_000_000_000, "model_calls": 1},
            "used": {"cost": 0, "model_calls": 1},
            "left": {"cost": 50_000_000_000, "model_calls": 0},
        }
    ]
    assert perdure("budget", "show", "nobody") + perdure.errors == "nobody has no pool; `perdure budget set nobody cost=50` makes one\n"
    perdure("budget", "add", "acme", "model_calls=5")
    perdure("resume", "s", "--agents", SHOP)
    assert perdure.json("budget")[0]["used"]["model_calls"] == 3
    assert perdure("verify").endswith("nothing is wrong\n")
    assert perdure.json("budget", "remove", "acme") == {"owner": "acme", "removed": True}
    assert perdure.json("budget") == []


def test_mistakes_about_limits_are_told(perdure: Program) -> None:
    perdure("run", SHOP, "hello", "--session", "s")
    for arguments, words in (
        (["budget", "set", "acme", "tokens=many"], "a whole number: tokens=100"),
        (["budget", "set", "acme", "cost=much"], "cost=2.50, in dollars"),
        (["budget", "acme"], "`perdure budget show acme`?"),
        (["budget", "ad", "acme", "tokens=3"], "`perdure budget add acme`?"),
        (["budget", "set", "acme", "colour=3"], "is no limit"),
        (["budget", "set", "acme", "tokens=0"], "at least 1"),
        (["budget", "set", "acme", "cost=-1"], "no amount of dollars"),
        (["budget", "set", "acme"], "no limit was given"),
        (["budget", "add"], "needs an owner"),
        (["budget", "show", "acme", "tokens=3"], "takes no limits"),
        (["usage", "--by", "colour"], "colour"),
        (["usage", "--since", "tomorrow"], "is no time"),
        (["run", SHOP, "hello", "--limit", "tokens"], "is no limit"),
        (["resume", "--agents", SHOP, "--limit", "tokens=3"], "one session"),
    ):
        perdure(*arguments, code=2)
        assert words in perdure.errors


def test_usage_is_shown_by_what_one_asks_for(perdure: Program, tmp_path: Path) -> None:
    cache = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    perdure("run", SHOP, "hello", "--session", "a", "--owner", "acme")
    perdure("run", SHOP, "hello", "--session", "b")
    perdure("run", SHOP, "nasty", "--session", "b")
    shown = perdure("usage", **cache)
    assert shown.split()[:7] == ["SESSION", "CALLS", "IN", "OUT", "CACHED", "REASONING", "COST"]
    rows = {row["session"]: row for row in perdure.json("usage", "--index", str(tmp_path / "usage.db"))}
    assert (rows["a"]["calls"], rows["a"]["total_tokens"]) == (1, 10)
    assert (rows["b"]["calls"], rows["b"]["total_tokens"], rows["b"]["known"]["input_tokens"]) == (3, None, 7)
    assert "7+" in shown
    by_owner = perdure.json("usage", "--by", "owner,kind", "--index", str(tmp_path / "usage.db"), "--rebuild")
    assert [(row["owner"], row["kind"], row["calls"]) for row in by_owner] == [("", "model", 3), ("acme", "model", 1)]
    assert list((tmp_path / "cache" / "perdure").glob("usage-*.db"))
    assert "no model calls" in perdure("usage", "--owner", "nobody", **cache) + perdure.errors
