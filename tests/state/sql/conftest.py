"""Databases for the tests of states in them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.postgres import PostgresServer

_SCHEMAS = itertools.count(1)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A server for all tests that leave it as it is."""
    with PostgresServer() as server:
        yield server


@pytest.fixture
def schema(postgres: PostgresServer) -> str:
    """A schema of the test's own."""
    import sqlalchemy as sa

    name = f"test {next(_SCHEMAS)}"
    engine = sa.create_engine(postgres.url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.begin() as connection:
        connection.exec_driver_sql(f'CREATE SCHEMA "{name}"')
    engine.dispose()
    return name


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str | None]:
    """The URL of an empty database, and the schema to use in it: of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'rows.db'}", None
    return request.getfixturevalue("postgres").url, request.getfixturevalue("schema")
