"""A store in a PostgreSQL database."""

from .store import PostgresStore

__all__ = ["PostgresStore"]
