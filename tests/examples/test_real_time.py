"""The transactional examples make the same tables in real-time mode as in micro-batches."""

from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

from tests.examples.topologies import EXAMPLES
from tests.transactional.jobs.test_real_time import ROUGH, WALL_SECS, run_pooled
from tests.variants import variants
from txtopo import Config
from txtopo.testing.inline import run_inline


def tables_in(folder: Path) -> dict[str, pa.Table]:
    """Return all Delta tables below a folder, with sorted rows."""
    found = {}
    for log in sorted(folder.rglob("_delta_log")):
        table = pa.table(deltalake.DeltaTable(log.parent).to_pyarrow_table())
        rows = sorted(table.to_pylist(), key=repr)
        found[str(log.parent.relative_to(folder))] = pa.Table.from_pylist(rows, table.schema)
    return found


SOME = [*EXAMPLES][::3]
"""The simulator has all of them in both modes."""


@pytest.mark.slow
@pytest.mark.parametrize("layout", variants("auto", long=("together", "spread")))
@pytest.mark.parametrize("name", variants(*SOME, long=[name for name in EXAMPLES if name not in SOME]))
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
