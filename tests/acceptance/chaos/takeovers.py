"""Who took which session from whom, written down by the database itself."""

from __future__ import annotations

from typing import NamedTuple

from tests.postgres import Server

__all__ = ["Takeover", "note_takeovers", "takeovers"]


class Takeover(NamedTuple):
    """A session was taken from a holder that never released it, so long (seconds) after that one's last heartbeat."""

    session_id: str
    seconds: float


def note_takeovers(server: Server, schema: str, lease: float) -> None:
    """From now on, write down each; the store and its tables must be there."""
    server.execute(f"""
        CREATE TABLE "{schema}".takeovers (session_id text, seconds float8);
        CREATE FUNCTION "{schema}".note_takeover() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            INSERT INTO "{schema}".takeovers SELECT NEW.session_id, ("{schema}".now() - r.expires) / 1000.0 + {lease}
            FROM "{schema}".runners AS r WHERE r.id = OLD.holder;
            RETURN NULL;
        END $$;
        CREATE TRIGGER note_takeover AFTER UPDATE ON "{schema}".sessions FOR EACH ROW
            WHEN (NEW.fence > OLD.fence AND OLD.holder IS NOT NULL) EXECUTE FUNCTION "{schema}".note_takeover()
    """)


def takeovers(server: Server, schema: str) -> list[Takeover]:
    """What was written down, the shortest first."""
    return [Takeover(*row) for row in server.execute(f'SELECT session_id, seconds FROM "{schema}".takeovers ORDER BY seconds')]
