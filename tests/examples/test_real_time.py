"""The transactional examples make the same tables in real-time mode as in micro-batches."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

from examples import global_count, no_reading, orders, orders_by_minute, ring, transactional_words
from tests.examples.test_orders_by_minute import load
from tests.transactional.jobs.test_real_time import ROUGH, WALL_SECS, run_pooled
from tests.variants import variants
from txtopo import Config, TransactionalTopology
from txtopo.testing.inline import run_inline


def _words(folder: Path, output: str) -> TransactionalTopology:
    texts = folder / "texts"
    texts.mkdir(exist_ok=True)
    for number in range(12):
        (texts / f"{number}.txt").write_text("a word and another word\nthe end\n" * (number + 1))
    return transactional_words.topology(str(texts), output, 2)


def _by_minute(folder: Path, output: str) -> TransactionalTopology:
    load(folder / "orders", range(10))
    return orders_by_minute.topology(str(folder / "orders"), output, watch=False, servers="")


EXAMPLES: dict[str, Callable[[Path, str], TransactionalTopology]] = {
    "global_count": lambda _, output: global_count.topology(output),
    "transactional_words": _words,
    "no_reading": lambda _, output: no_reading.topology(output, hours=3),
    "orders": lambda _, output: orders.topology(output=output, orders=400),
    "orders_by_minute": _by_minute,
    "ring": lambda _, output: ring.topology(output, turns=40),
}


def tables_in(folder: Path) -> dict[str, pa.Table]:
    """Return all Delta tables below a folder, with sorted rows."""
    found = {}
    for log in sorted(folder.rglob("_delta_log")):
        table = pa.table(deltalake.DeltaTable(log.parent).to_pyarrow_table())
        rows = sorted(table.to_pylist(), key=repr)
        found[str(log.parent.relative_to(folder))] = pa.Table.from_pylist(rows, table.schema)
    return found


@pytest.mark.parametrize("layout", variants("auto", long=("together", "spread")))
@pytest.mark.parametrize("name", EXAMPLES)
def test_same_tables(tmp_path: Path, name: str, layout: str) -> None:
    """Sorted rows, values, txids and types are equal, though workers die on the way."""
    make = EXAMPLES[name]
    # The same groups, because a table of expiring rows drops whole files, of one group each.
    groups = {"group_transactions_max": 1}
    run_inline(make(tmp_path, str(tmp_path / "micro")), Config(**groups), wall_secs=lambda: WALL_SECS)
    run_pooled(make(tmp_path, str(tmp_path / "real")), seed=8, rates=ROUGH, layout=layout, **groups)
    micro, real = tables_in(tmp_path / "micro"), tables_in(tmp_path / "real")
    assert list(micro) == list(real)
    for table, rows in micro.items():
        assert real[table].schema.equals(rows.schema)
        assert real[table].equals(rows), table
