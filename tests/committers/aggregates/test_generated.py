"""All aggregates of generated streams, in tables of each kind, with crashes, while files are merged."""

import decimal
import shutil
import tempfile
from pathlib import Path

import pyarrow.compute as pc
import pytest
from hypothesis import assume, given, settings, strategies as st

from committers import ReduceCommitter
from spouts import MemoryTransactionalSpout, OpaqueMemoryTransactionalSpout
from state import read_table
from tests.budgets import examples
from tests.committers.aggregates.test_aggregation import VALUES, aggregation, by_hand, by_key, is_exact, rows_of
from tests.crashes import Crash, run_with_crash
from tests.state.delta.delta_tables import sized
from tests.topologies import committing
from txtopo import Config, Fields
from txtopo.api.values import KEYED_KINDS

KEY = ("shop", "line")
LIMITS = {"long": 2**63, "decimal(38,4)": 10**34}
"""What the sum of all absolute values may be at most, so that no part of a sum is too large; others have more room."""


def sums_fit(rows, kind) -> bool:
    values = [value for value in rows["value"].to_pylist() if value is not None]
    return kind not in LIMITS or sum(map(abs, values), start=decimal.Decimal(0)) < LIMITS[kind]


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", VALUES)
@settings(max_examples=examples(6), deadline=None)
@given(data=st.data())
def test_any_stream(kind, data) -> None:
    """Whoever folds them, in whatever groups, and wherever the run dies: the table has what a plain loop makes."""
    rows = data.draw(rows_of(kind))
    rows = rows.filter(pc.and_(rows["shop"].is_valid(), rows["line"].is_valid()))  # a key is not null
    assume(rows.num_rows and sums_fit(rows, kind))
    values = aggregation(kind).aggregates
    committer = ReduceCommitter("table", Fields("shop: string", "line: int"), values=values)
    fields = Fields("shop: string", "line: int", f"value: {kind}", "at: timestamp", "ok: boolean")
    whole = [list(row.values()) for row in rows.to_pylist()]
    state_kind, parts = data.draw(st.sampled_from(KEYED_KINDS)), data.draw(st.integers(1, 2))
    spout = data.draw(st.sampled_from([MemoryTransactionalSpout, OpaqueMemoryTransactionalSpout]))
    take, crash = data.draw(st.integers(1, 3)), Crash(data.draw(st.integers(0, 60)))
    vectors = data.draw(st.sampled_from([True, True, False]))
    config = Config(
        {"topology.driver.rows.max": data.draw(st.sampled_from([0, 1_000]))},
        max_spout_pending=4,
        group_transactions_max=data.draw(st.integers(1, 3)),
    )
    folder = Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None))

    def topology():
        options = {"kind": state_kind, "deletion_vectors": vectors, "upkeep_every_writes": 1, "files_max": 1}
        source = spout({part: whole[part::parts] for part in range(parts)}, fields, take)
        return committing(
            source, committer, 2, by="shop", table=sized(committer.state(folder / "table", **options), tier_files=2)
        )

    if not run_with_crash(topology, crash, config):
        assert run_with_crash(topology, Crash(), config)
    exact = [name for name in values if is_exact(name, kind)]
    found = by_key(aggregation(kind).results(read_table(folder / "table")), KEY, exact)
    shutil.rmtree(folder)
    assert found == by_hand(rows, kind, KEY)
