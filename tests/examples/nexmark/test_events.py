"""Nexmark's events: the same for the same seed, whole however they are cut, late by no more than is said."""

from pathlib import Path

import attrs
import numpy as np
import pyarrow.parquet as pq
import pytest

from examples.nexmark.events import Events
from examples.nexmark.sources import STREAMS
from tests.harness.benchmarks.nexmark.answers import Answers

EVENTS = Events(1_000, every_us=1_000, late_us=500_000)


def test_the_same_for_the_same_seed() -> None:
    """And others for another one; streams have the fields that spouts read."""
    assert EVENTS.tables() == EVENTS.tables()
    assert EVENTS.tables() != attrs.evolve(EVENTS, seed=2).tables()
    assert {name: set(table.column_names) for name, table in EVENTS.tables().items()} == {
        name: set(fields) for name, fields in STREAMS.items()
    }
    assert [table.num_rows for table in EVENTS.tables().values()] == [20, 60, 920]


def test_whole_however_they_are_cut(tmp_path: Path) -> None:
    """Files in a row have the rows as they arrive; each stream has as many files."""
    EVENTS.write(tmp_path, [1, 1, 500, 999])
    for name, table in EVENTS.tables().items():
        files = sorted((tmp_path / name).iterdir())
        assert len(files) == 4
        read = [row for file in files for row in pq.read_table(file).to_pylist()]
        assert read == table.to_pylist()


def test_late_by_no_more() -> None:
    """No event is as late as is said, and some are late."""
    for table in EVENTS.tables().values():
        micros = table["dateTime"].cast("int64").to_numpy()
        lateness = np.maximum.accumulate(micros) - micros
        assert 0 < lateness.max() < EVENTS.late_us


def test_an_answer_that_differs(tmp_path: Path) -> None:
    """A row that is missing and one that is there twice are found."""
    EVENTS.write(tmp_path, [])
    with Answers.of(tmp_path) as answers:
        right = answers.answer("q17")
        found = answers.difference("q17", right.take([0, *range(right.num_rows - 1)]))
        assert found.missing.to_pylist() == right.slice(right.num_rows - 1).to_pylist()
        assert found.surplus.to_pylist() == right.slice(0, 1).to_pylist()
        with pytest.raises(KeyError):
            answers.difference("q17", right.drop_columns(["max_price"]))
