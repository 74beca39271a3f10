"""Somebody else compacts and vacuums the tables at any moment, and keeps no old file: no run notices."""

from collections import Counter

import pytest
from deltalake import DeltaTable

from tests.crashes import dying
from tests.transactional.recovery.three_states import CONFIG, EXECUTORS_CONFIG, expected_rows, tables_in, topology
from txtopo.failpoints import armed
from txtopo.testing.inline import run_inline

TRANSACTIONS = 24
"""Two groups of four tables, at least."""

WAYS = pytest.mark.parametrize(
    "config",
    [pytest.param(CONFIG, id="driver", marks=pytest.mark.slow), pytest.param(EXECUTORS_CONFIG, id="executors")],
)
STEPS = ("table.prepare.after", "group.decide.after", "table.write.after", "delta.write.checked")


def tidy_up(output) -> None:
    """Compact and vacuum every table, as the eager owner of a cluster may."""
    for name in expected_rows(0):
        if DeltaTable.is_deltatable(str(output / name)):
            table = DeltaTable(output / name)
            table.optimize.compact()
            for full in (False, True):
                table.vacuum(0, dry_run=False, enforce_retention_duration=False, full=full)


@pytest.mark.slow
@WAYS
def test_at_every_step_of_a_run(tmp_path, config):
    """Between preparing, note, and each Delta write, and between the look at a table and the write to it."""
    reached = Counter()

    def handler(name):
        reached[name] += 1
        is_second_try = name == "delta.write.checked" and reached[name] % 2 == 0
        if name in STEPS and not is_second_try:
            tidy_up(tmp_path)

    with armed(handler):
        run_inline(topology(tmp_path, TRANSACTIONS), config)
    assert all(reached[step] >= TRANSACTIONS // 12 for step in STEPS)
    assert tables_in(tmp_path) == expected_rows(TRANSACTIONS)


@pytest.mark.slow
@pytest.mark.covering(1)
@WAYS
@pytest.mark.parametrize(
    ("step", "times"),
    [
        ("table.prepare.after", 6),
        ("group.decide.after", 2),
        pytest.param("table.write.after", 5, marks=pytest.mark.slow),
        ("table.write.after", 6),
        pytest.param("table.write.after", 7, marks=pytest.mark.slow),
    ],
)
def test_while_a_coordinator_is_down(tmp_path, config, step, times):
    """What was prepared is finished, or begun anew, by the next start."""
    with dying(step, times):
        run_inline(topology(tmp_path, TRANSACTIONS), config)
    tidy_up(tmp_path)
    run_inline(topology(tmp_path, TRANSACTIONS), config)
    assert tables_in(tmp_path) == expected_rows(TRANSACTIONS)
