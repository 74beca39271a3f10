"""What Spark's Delta makes of a table of each kind: the rows that were put, with filters."""

import random
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from tests.state.delta.read.kinds import KINDS
from tests.state.delta.read.readers import Filter, spark_literal
from tests.state.delta.read.test_readers import comparable, filters_of, is_right
from tests.state.delta.spark_session import ids_where, rows_of

pytestmark = pytest.mark.long

FILTERS = 25
"""How many filters of a kind of table are tried, besides those for zeros."""


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_is_read_as_it_was_put(spark: ProcessPoolExecutor, tmp_path: Path, kind: str) -> None:
    """Every value of every row, and some filters, among them those for zeros."""
    filled = KINDS[kind](tmp_path)
    found = spark.submit(rows_of, filled.path, list(filled.rows[0])).result().to_pylist()
    assert comparable(found) == comparable(filled.rows)
    every = list(filters_of(filled))
    zeros = [each for each in every if isinstance(each.value, float) and each.value == 0]
    lists = [Filter(name, "in", (0.0, 1.5)) for name in ("d", "f") if name in filled.rows[0]]
    wanted = [*random.Random(9).sample(every, FILTERS), *zeros, *lists]
    answers = spark.submit(ids_where, filled.path, [each.sql(spark_literal) for each in wanted]).result()
    wrong = [(each, own) for each, own in zip(wanted, answers, strict=True) if not is_right(filled, each, own)]
    assert wrong == []
