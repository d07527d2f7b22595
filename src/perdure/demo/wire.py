"""As much HTTP as three programs on one machine need to talk to each other."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import closing, suppress
from typing import Any

__all__ = ["Gone", "Handler", "ask", "serve"]

Gone = Callable[[], Awaitable[bytes]]
Handler = Callable[[str, str, Any, Gone], Awaitable[tuple[int, Any]]]


async def serve(handler: Handler) -> asyncio.Server:
    """A server on a free local port. The handler gets method, path, body, and a function that returns when the client has gone."""

    async def serve_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with closing(writer), suppress(ConnectionError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            method, path, _ = head.split(" ", 2)
            status, answer = await handler(method, path, json.loads(await _body(head, reader) or b"null"), reader.read)
            body = json.dumps(answer).encode()
            writer.write(f"HTTP/1.1 {status} -\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
            await writer.drain()

    return await asyncio.start_server(serve_one, "127.0.0.1", 0)


async def ask(address: str, method: str, path: str, data: Any = None) -> tuple[int, Any]:
    """One request to ``host:port``: status and body of the answer. Raises `OSError` or `EOFError` if there is none."""
    host, _, port = address.partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        body = b"" if data is None else json.dumps(data).encode()
        writer.write(f"{method} {path} HTTP/1.1\r\nHost: {address}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        return int(head.split(" ", 2)[1]), json.loads(await _body(head, reader) or b"null")
    finally:
        writer.close()


async def _body(head: str, reader: asyncio.StreamReader) -> bytes:
    for line in head.splitlines():
        name, _, value = line.partition(":")
        if name.lower() == "content-length":
            return await reader.readexactly(int(value))
    return b""
