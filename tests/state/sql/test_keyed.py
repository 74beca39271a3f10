"""SqlState: the conformance class on PostgreSQL and SQLite, and what is its own."""

from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from state.sql.keyed import SqlState
from tests.budgets import examples
from tests.state.test_same_values import ALL, FLAT, KEY, kept_by, stories
from txtopo.api.data.fields import Fields
from txtopo.api.state import State
from txtopo.api.values import KEYED_KINDS, StateKind
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


NUMBERS = count()


@settings(max_examples=examples(40), deadline=None)
@given(story=stories({kind: ALL[kind] for kind in FLAT}), kind=st.sampled_from(KEYED_KINDS))
def test_a_value_is_read_as_postgresql_keeps_it(postgres, kind: StateKind, story: Any) -> None:
    """By the next transaction, of the same group or of another, and by the next run."""
    kept_by(SqlState(postgres.url, f"t{next(NUMBERS)}", KEY, story[0], kind), story[1])


@settings(max_examples=examples(40), deadline=None)
@given(story=stories(FLAT), kind=st.sampled_from(KEYED_KINDS))
def test_a_value_is_read_as_sqlite_keeps_it(tmp_path_factory, kind: StateKind, story: Any) -> None:
    """It has all but NaN and the sign of zero."""
    kept_by(SqlState(f"sqlite:///{tmp_path_factory.mktemp('same')}/t.db", "t", KEY, story[0], kind), story[1])
