"""What the database says in another form than ours is told as what it is: somebody changed the schema."""

from __future__ import annotations

import psycopg
import pytest

from perdure.core.errors import StoreCorrupt
from perdure.store.postgres.wire import read
from tests.postgres import Server


@pytest.mark.parametrize(
    ("of", "value"),
    [
        ("float8", "'1'::float8"),
        ("ours AS (n float8)", "row(1)::ours"),
        ("ours AS (n int8)", "array[row(1)::ours]"),
        ("ours AS (n int8)", "array[]::ours[]"),
    ],
)
def test_a_value_of_another_kind_is_a_changed_schema(postgres: Server, of: str, value: str) -> None:
    schema = postgres.schema()
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {schema}".encode())
        connection.execute(f"SET search_path = {schema}".encode())
        if of.startswith("ours"):
            connection.execute(f"CREATE TYPE {of}".encode())
        with pytest.raises(StoreCorrupt):
            read(connection.pgconn.exec_params(f"SELECT {value}".encode(), [], result_format=1))


def test_a_row_of_ours_is_read(postgres: Server) -> None:
    schema = postgres.schema()
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {schema}".encode())
        connection.execute(f"SET search_path = {schema}".encode())
        connection.execute(b"CREATE TYPE ours AS (n int8, t text)")
        assert read(connection.pgconn.exec_params(b"SELECT row(1, NULL)::ours, row(2, 'x')::ours", [], result_format=1)) == [
            ((1, None), (2, "x"))
        ]
