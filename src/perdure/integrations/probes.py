"""What an orchestrator asks a process over HTTP: is it alive, is it ready, and its figures."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, TypeVar

import msgspec

from ..core.errors import UsageError
from ..runtime.health import Health, check_health
from ..runtime.runtime import Runtime

__all__ = ["Probes"]

_T = TypeVar("_T")

ANSWER_SECONDS = 5.0
"""How long the event loop may take to answer before the process counts as stuck."""


class Probes:
    """Serves ``/healthz`` (200 while the event loop answers), ``/readyz`` (200 while it can take up sessions, else 503) and ``/metrics``.

    ``/healthz`` asks nothing of the store: a process that is started anew while a database is down is no better off. A loop that doesn't
    answer within `ANSWER_SECONDS`, and one that is closed, is a 503 of both; a store that is slower than that one of ``/readyz``. A client
    that connects and says nothing is let go after as long.

    Use it with ``async with`` inside the runtime's. ``metrics`` is a `Metrics`, or nothing is served there. ``port`` 0 takes a free one;
    `address` says which. ``host`` "" is every interface, for an orchestrator that asks from another machine. It has no authentication:
    bind it where only those may ask who may know. Raises `UsageError` if it can't be served there.
    """

    def __init__(self, runtime: Runtime, *, host: str = "127.0.0.1", port: int = 0, metrics: Any = None) -> None:
        self._runtime = runtime
        self._metrics = metrics
        self._place = (host, port)
        self._server: ThreadingHTTPServer | None = None

    @property
    def address(self) -> str:
        """Where it is served."""
        if self._server is None:
            raise UsageError("nothing is served yet", hint="use it inside `async with`")
        host, port = self._server.server_address[:2]
        return f"http://{_shown(str(host), port)}"

    async def __aenter__(self) -> Probes:
        loop = asyncio.get_running_loop()

        def ask(question: Coroutine[Any, Any, _T]) -> _T:
            try:
                answer = asyncio.run_coroutine_threadsafe(question, loop)
            except RuntimeError as closed:
                question.close()
                raise TimeoutError from closed
            try:
                return answer.result(ANSWER_SECONDS)
            except TimeoutError:
                # Else every probe of a stuck loop would leave one more question, and all would be put to the store when it comes back.
                answer.cancel()
                raise

        def live() -> None:
            ask(asyncio.sleep(0))

        def health() -> Health:
            return ask(check_health(self._runtime))

        def look() -> None:
            ask(self._metrics.look(self._runtime))

        try:
            self._server = _server(*self._place, _handler(live, health, look, self._metrics))
        except OSError as error:
            raise UsageError(f"nothing can be served at {_shown(*self._place)}: {error.strerror}") from error
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, name="perdure probes", daemon=True).start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        server, self._server = self._server, None
        if server is not None:
            await asyncio.to_thread(server.shutdown)
            server.server_close()


def _server(host: str, port: int, handler: type[BaseHTTPRequestHandler]) -> ThreadingHTTPServer:
    """One for this family of addresses; without a host, for all of both families where the machine has both."""
    both = not host and socket.has_dualstack_ipv6()

    class Server(ThreadingHTTPServer):
        address_family = socket.AF_INET6 if both or ":" in host else socket.AF_INET

        def server_bind(self) -> None:
            if both:
                self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            super().server_bind()

    return Server((host, port), handler)


def _shown(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _handler(
    live: Callable[[], None], health: Callable[[], Health], look: Callable[[], None], metrics: Any
) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = ANSWER_SECONDS

        def do_GET(self) -> None:
            match self.path.partition("?")[0]:
                case "/healthz" | "/readyz" as path:
                    try:
                        live()
                        found = health() if path == "/readyz" else None
                    except TimeoutError:
                        self._say(503, b'{"problem":"the event loop does not answer"}', "application/json")
                        return
                    fine = found is None or found.ready
                    self._say(200 if fine else 503, msgspec.json.encode(found or {"alive": True}), "application/json")
                case "/metrics" if metrics is not None:
                    from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

                    # What a stuck process counted is worth as much as before; its gauges are old then, and /healthz says why.
                    with suppress(TimeoutError):
                        look()
                    self._say(200, generate_latest(metrics.registry), CONTENT_TYPE_LATEST)
                case _:
                    known = ["/healthz", "/readyz", *(["/metrics"] if metrics is not None else [])]
                    self._say(404, f"served here: {', '.join(known)}\n".encode(), "text/plain")

        def _say(self, status: int, body: bytes, kind: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - the server's own name
            """Probes come every few seconds; nobody wants a line of each."""

    return Handler
