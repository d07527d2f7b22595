"""A line to the server that can be cut at a chosen moment."""

from __future__ import annotations

import socket
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import Literal

from psycopg.conninfo import conninfo_to_dict

Moment = Literal["before", "after"]


class Cutter:
    """Stands between clients and a server. `cut` arms it once: the connection over which a statement with these words goes is cut
    before the server hears of it, or after the server has answered, before the client hears of that. While `down`, nobody gets through.
    ``seen`` counts the statements that carry commits.
    """

    def __init__(self, url: str) -> None:
        known = conninfo_to_dict(url)
        self._host, self._port = str(known.get("host", "localhost")), int(str(known.get("port", 5432)))
        self.directory = Path(tempfile.mkdtemp(prefix="perdure-cut-"))
        self.cuts = 0
        self.seen = 0
        self.down = False
        self._words: bytes | None = None
        self._moment: Moment = "after"
        self._then_down = False
        self._open: set[socket.socket] = set()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.directory / ".s.PGSQL.5432"))
        self._listener.listen()
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def url(self, url: str) -> str:
        """The same address, through here."""
        known = conninfo_to_dict(url.partition("?")[0])
        query = "&".join(part for part in url.partition("?")[2].split("&") if not part.startswith(("host=", "port=")))
        return f"postgresql://{known.get('user', '')}@/{known.get('dbname', '')}?host={self.directory}&{query}"

    def cut(self, words: str, moment: Moment = "after", *, down: bool = False) -> None:
        """``down``: and nobody gets through from then on."""
        self._words, self._moment, self._then_down = words.encode(), moment, down

    def hang_up(self) -> None:
        """Cut every connection now."""
        for end in list(self._open):
            _shut(end)

    def close(self) -> None:
        self.down = True
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.hang_up()
        for thread in self._threads:
            thread.join(5)
        for path in self.directory.iterdir():
            path.unlink()
        self.directory.rmdir()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self.down:
                client.close()
                continue
            thread = threading.Thread(target=self._carry, args=(client,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _carry(self, client: socket.socket) -> None:
        if self._host.startswith("/"):
            server = socket.socket(socket.AF_UNIX)
            server.connect(f"{self._host}/.s.PGSQL.{self._port}")
        else:
            server = socket.create_connection((self._host, self._port))
        self._open |= {client, server}
        doomed = threading.Event()
        back = threading.Thread(target=self._back, args=(server, client, doomed), daemon=True)
        back.start()
        with suppress(OSError):
            while data := client.recv(1 << 20):
                self.seen += data.count(b".write(")
                if self._words is not None and self._words in data:
                    self._words = None
                    self.down = self.down or self._then_down
                    self.cuts += 1
                    if self._moment == "before":
                        break
                    doomed.set()
                server.sendall(data)
        if not doomed.is_set():
            _shut(server)
        _shut(client)
        back.join()
        for end in (client, server):
            self._open.discard(end)
            end.close()

    def _back(self, server: socket.socket, client: socket.socket, doomed: threading.Event) -> None:
        with suppress(OSError):
            while data := server.recv(1 << 20):
                if doomed.is_set():
                    break
                client.sendall(data)
        _shut(client)
        _shut(server)


def _shut(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
