"""SqlState: the conformance class on PostgreSQL and SQLite, and what is its own."""

import json
import sqlite3
from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from state.sql.keyed import SqlState
from tests.budgets import examples
from tests.state.test_same_values import ALL, FLAT, KEY, kept_by, stories
from txtopo.api.data.fields import Fields
from txtopo.api.state import State
from txtopo.api.values import KEYED_KINDS, StateKind, TransactionalValue
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


@pytest.mark.parametrize("fields", ["b a", "a b c"])
def test_a_table_that_is_declared_otherwise_meanwhile(tmp_path, fields):
    """A note goes into the columns that its rows have, in whatever order the next run declares them, or beside others."""
    url, table = f"sqlite:///{tmp_path / 'x.db'}", sqlite3.connect(tmp_path / "x.db")
    former = SqlState(url, "t", WORD, Fields("a: long", "b: long")).open("x", "s", "life", 1)
    note = json.loads(json.dumps(former.prepare(1, {"x": TransactionalValue(1, (1, 2))})))
    if "c" in fields:
        table.execute("ALTER TABLE t ADD COLUMN c BIGINT")
    state = SqlState(url, "t", WORD, Fields(*(f"{name}: long" for name in fields.split())))
    state.open("x", "s", "life", 2).publish(1, note)
    assert table.execute("SELECT word, a, b FROM t").fetchall() == [("x", 1, 2)]
