"""SqlState: the conformance class on PostgreSQL and SQLite, and what is its own."""

import pytest

from state.sql.keyed import SqlState
from txtopo.api.data.fields import Fields
from txtopo.api.state import State
from txtopo.api.values import StateKind
from txtopo.testing.conformance.state import COUNT, WORD, StateConformance, StatePlace


class SqlPlace(StatePlace):
    has_past = has_nested_types = False

    def __init__(self, url: str, schema: str | None) -> None:
        self.url, self.schema = url, schema

    def state(self, key: Fields = WORD, value: Fields = COUNT, kind: StateKind = StateKind.TRANSACTIONAL) -> State:
        return SqlState(self.url, "counts", key, value, kind, schema=self.schema)


class TestSqlite(StateConformance):
    @pytest.fixture
    def place(self, tmp_path) -> StatePlace:
        return SqlPlace(f"sqlite:///{tmp_path / 'counts.db'}", None)


class TestPostgres(StateConformance):
    @pytest.fixture
    def place(self, postgres, schema) -> StatePlace:
        return SqlPlace(postgres.url, schema)
