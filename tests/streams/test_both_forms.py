"""Jobs as flows and with a builder: equal tables, of equal transactions, whatever dies."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from state import read_table
from tests.crashes import Crash, run_with_crash
from tests.streams.forms import JOBS, Job, Size, made, sized
from txtopo.testing import run_inline
from txtopo.testing.simulation.schedules import faults_unlogged, make_subject, run_schedules


@pytest.fixture(params=JOBS)
def job(request: pytest.FixtureRequest) -> Job:
    return JOBS[request.param]


def tables_in(job: Job, folder: Path) -> Mapping[str, list[str]]:
    """Return the rows of each table, with their txids, as texts in order."""
    return {
        name: sorted(repr(sorted(row.items())) for row in read_table(folder / "out" / name).to_pylist())
        for name in job.tables
    }


@pytest.mark.few(3)
def test_equal_tables(tmp_path: Path, job: Job) -> None:
    """The rows of all tables, and the transactions that wrote them, are the same in both forms."""
    forms = {"built": job.built, "said": job.said, "alike": job.alike or job.built}
    for form, make in forms.items():
        run_inline(made(make, tmp_path / form))
    expected = tables_in(job, tmp_path / "built")
    assert all(expected.values())
    assert tables_in(job, tmp_path / "said") == tables_in(job, tmp_path / "alike") == expected


@pytest.mark.slow
@pytest.mark.covering(1)
@pytest.mark.parametrize("at", [9, 26])
def test_equal_after_a_crash(tmp_path: Path, job: Job, at: int) -> None:
    """A flow that dies at a durable step goes on to the tables of the builder's topology that nothing befell."""
    run_inline(made(job.built, tmp_path / "built"))
    topology = made(job.said, tmp_path / "said")
    assert not run_with_crash(lambda: topology, Crash(at))
    run_inline(topology)
    assert tables_in(job, tmp_path / "said") == tables_in(job, tmp_path / "built")


@pytest.mark.slow
@pytest.mark.covering(1)
@pytest.mark.parametrize("is_real_time", [False, True], ids=["micro-batch", "real-time"])
def test_equal_in_the_simulator(tmp_path: Path, job: Job, *, is_real_time: bool) -> None:
    """A flow goes through disasters unharmed, as a builder's topology does."""
    with faults_unlogged():
        topology = made(job.said, tmp_path / "said")
        found = run_schedules(make_subject(topology, until=4, is_real_time=is_real_time), range(1, 3), processes=1)
    assert [(failure.seed, failure.violation) for failure in found.failures] == []


@pytest.mark.slow
@pytest.mark.few(2)
def test_equal_at_another_size(tmp_path: Path, job: Job) -> None:
    """Benchmarks compare forms whose tables are equal, too."""
    with sized(Size(orders=1_200, keys=400, each=300)):
        for form, make in (("built", job.built), ("said", job.said)):
            run_inline(made(make, tmp_path / form))
    assert tables_in(job, tmp_path / "said") == tables_in(job, tmp_path / "built")
