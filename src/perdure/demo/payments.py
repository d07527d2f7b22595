"""The payment service of the demo: another program, with a ledger of its own, that is not as reliable as one would wish.

It knows no idempotency keys: whoever asks twice pays twice. It remembers the caller's ``reference``, and can be asked about it.

    POST /payments {reference, order, cents, token}   → the payment
    GET  /payments/REFERENCE                          → {"status": "paid" | "none" | "pending"}
    POST /clear                                       → carries out what is pending, and tells the webhook
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from .wire import Gone, ask, serve

__all__ = ["MISHAPS", "SABOTAGE"]

MISHAPS = {
    "B-103": "error after paying",
    "B-107": "error instead of paying",
    "B-109": "late",
    "B-114": "hangs after paying",
}
"""What goes wrong, the first time that a payment for this order is asked for."""

SABOTAGE = "PERDURE_DEMO_SABOTAGE"
"""Environment variable for tests of the demo itself: ``pay-twice`` does, ``forget`` moves money that the ledger doesn't show."""


class Payments:
    """The service. ``holds`` is a file in which the demo asks it to keep one caller waiting until that caller is dead."""

    def __init__(self, ledger: Path, webhook: str, holds: Path) -> None:
        self._ledger = ledger.open("ab")
        self._webhook = webhook
        self._holds = holds
        self._paid: dict[str, dict[str, Any]] = {}
        self._pending: dict[str, dict[str, Any]] = {}
        self._busy: dict[str, asyncio.Event] = {}
        self._mishaps = dict(MISHAPS)
        self._sabotage = os.environ.get(SABOTAGE, "")

    async def handle(self, method: str, path: str, body: Any, gone: Gone) -> tuple[int, Any]:
        """One request."""
        match method, path.strip("/").split("/"):
            case "POST", ["payments"]:
                return await self._asked_to_pay(body, gone)
            case "GET", ["payments", reference]:
                return await self._asked_about(reference, gone)
            case "POST", ["clear"]:
                return await self._clear()
        return 404, {"error": "no such thing"}

    async def _asked_to_pay(self, wish: dict[str, Any], gone: Gone) -> tuple[int, Any]:
        reference = wish["reference"]
        ended = self._busy[reference] = asyncio.Event()
        try:
            self._write("received", wish)
            mishap = self._mishaps.pop(wish["order"], "")
            hold = "" if mishap else self._hold_asked_for("before", "after", order=wish["order"])
            if mishap == "late":
                self._pending[reference] = wish
                ended.set()
                await gone()
                return 504, {"error": "too late"}
            if mishap == "error instead of paying":
                return 500, {"error": "internal error"}
            if hold == "before":
                await self._hold(wish, gone)
                return 499, {"error": "the caller hung up, nothing was paid"}
            payment = self._pay(wish)
            if mishap == "error after paying":
                return 500, {"error": "internal error"}
            if hold == "after":
                await self._hold(wish, gone)
            if mishap == "hangs after paying":
                ended.set()
                await gone()
            return 200, payment
        finally:
            ended.set()

    async def _asked_about(self, reference: str, gone: Gone) -> tuple[int, Any]:
        if self._hold_asked_for("lookup"):
            await self._hold({"reference": reference}, gone)
        if reference in self._busy:
            await self._busy[reference].wait()
        if reference in self._paid:
            return 200, {"status": "paid", "payment": self._paid[reference]}
        return 200, {"status": "pending" if reference in self._pending else "none"}

    async def _clear(self) -> tuple[int, Any]:
        """The bank's batch: what was late is paid now. Like any good provider it tells the webhook at least once, so here twice."""
        for reference, wish in [*self._pending.items()]:
            del self._pending[reference]
            told = {"token": wish["token"], "payment": self._pay(wish)}
            for _ in range(2):
                await ask(self._webhook, "POST", "/paid", told)
        return 200, {}

    def _pay(self, wish: dict[str, Any]) -> dict[str, Any]:
        payment = {"payment": f"P-{len(self._paid) + 1}", "order": wish["order"], "cents": wish["cents"]}
        self._paid[wish["reference"]] = payment
        if not (self._sabotage == "forget" and len(self._paid) == 5):
            self._write("paid", payment | {"reference": wish["reference"]})
        if self._sabotage == "pay-twice" and len(self._paid) == 5:
            self._write("paid", payment | {"reference": wish["reference"], "payment": "P-5-again"})
        return payment

    def _write(self, event: str, facts: dict[str, Any]) -> None:
        shown = {name: value for name, value in facts.items() if name != "token"}
        self._ledger.write(json.dumps({"event": event, "at": time.time(), **shown}).encode() + b"\n")
        self._ledger.flush()
        os.fsync(self._ledger.fileno())

    def _hold_asked_for(self, *kinds: str, order: str = "") -> str:
        with suppress(FileNotFoundError):
            kind, _, only = self._holds.read_text().partition(" ")
            if kind in kinds and only in ("", order):
                self._holds.unlink()
                return kind
        return ""

    async def _hold(self, what: dict[str, Any], gone: Gone) -> None:
        self._write("holding", what)
        await gone()


async def run(arguments: argparse.Namespace) -> None:
    """Serve until the end of the process; the first line of output is the address."""
    service = Payments(arguments.ledger, arguments.webhook, arguments.holds)
    server = await serve(service.handle)
    host, port = server.sockets[0].getsockname()
    os.write(1, f"{host}:{port}\n".encode())
    await server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="perdure.demo.payments", description="A payment service with moods.")
    parser.add_argument("--ledger", type=Path, required=True)
    parser.add_argument("--webhook", required=True)
    parser.add_argument("--holds", type=Path, required=True)
    asyncio.run(run(parser.parse_args()))
