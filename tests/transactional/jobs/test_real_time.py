"""Real-time mode, in workers of this process: the same tables as in micro-batches, whatever happens to the workers."""

import contextlib
from collections.abc import Mapping
from pathlib import Path
from random import Random

import pytest

from spouts import MemoryTransactionalSpout
from state import MemoryState
from state.delta.keyed.state import read_table
from tests.acceptance import test_groupings
from tests.acceptance.topologies import counts_of, make_data, read_total, read_words, words_topology
from tests.transactional.jobs.generated import Pass, draw_topology
from tests.variants import variants
from txtopo import Config, Fields, RunReport, TransactionalTopologyBuilder
from txtopo.assembly.environment import Environment
from txtopo.assembly.threads import ThreadPools
from txtopo.engine.runner import run_with
from txtopo.errors import StateFailure
from txtopo.failpoints import ProcessDeath, armed
from txtopo.testing.inline import run_inline
from txtopo.testing.simulation.faults import OF_WORKERS, RATES, Fault
from txtopo.testing.simulation.pool import PooledRunner
from txtopo.topology.topology import TransactionalTopology
from txtopo.transactional.tasks.factory import TaskFactory

WALL_SECS = 1_800_000_000.0
"""When each transaction is planned."""
CALM: Mapping[Fault, float] = {}
ROUGH = {fault: 4 * RATES[fault] for fault in OF_WORKERS}


def run_pooled(
    topology: TransactionalTopology, *, seed: int, rates: Mapping[Fault, float] = CALM, workers: int = 2, **settings
) -> tuple[RunReport, PooledRunner]:
    """Run a topology in simulated workers, one job at a time."""
    made: list[PooledRunner] = []

    @contextlib.contextmanager
    def make_runner(plan, config, prototypes):
        runner = PooledRunner(lambda: TaskFactory(plan, config, prototypes), workers, Random(seed), rates)
        made.append(runner)
        with contextlib.closing(runner):
            yield runner
            runner.come_to_rest()

    environment = Environment(make_runner, make_threads=lambda jobs_max: ThreadPools(jobs_max, 1, lambda: WALL_SECS))
    config = Config({"topology.processing.mode": "real-time"}, jobs_in_flight_max=1, **settings)
    return run_with(topology, config, environment), made[0]


@pytest.mark.slow
@pytest.mark.parametrize("rates", [CALM, ROUGH], ids=["calm", "rough"])
@pytest.mark.parametrize("layout", ["auto", "together", "spread"])
def test_same_tables(tmp_path: Path, layout: str, rates: Mapping[Fault, float]) -> None:
    """Rows, values and types are those of a run of micro-batches, though workers die and messages come twice."""
    data = make_data(3, 40)
    run_inline(words_topology(tmp_path / "micro", data), Config(layout=layout))
    _, runner = run_pooled(words_topology(tmp_path / "real", data), seed=5, rates=rates, layout=layout)
    assert bool(runner.executors_lost()) == (rates is ROUGH)
    assert read_words(tmp_path / "real") == counts_of(data)
    assert read_total(tmp_path / "real") == sum(counts_of(data).values())
    for name in ("words", "total"):
        micro, real = (
            read_table(tmp_path / mode / name).sort_by(key) for mode in ("micro", "real") for key in [_key(name)]
        )
        assert real.equals(micro)
        assert real.schema.equals(micro.schema)


def _key(name: str) -> str:
    return "word" if name == "words" else "name"


@pytest.mark.few(2)
@pytest.mark.parametrize("typed", [False, True], ids=["untyped", "typed"])
@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("layout", ["together", "spread"])
def test_groupings_between_workers(typed: bool, workers: int, layout: str) -> None:
    """Each grouping sends each tuple where it should, within a worker and between two."""
    received = MemoryState(Fields("component", "task", "tx"), Fields("rows"))
    run_pooled(test_groupings.topology(received, typed), seed=3, rates=ROUGH, workers=workers, layout=layout)
    test_groupings.check(received)


@pytest.mark.few(3)
@pytest.mark.parametrize("seed", range(5))
def test_frames_that_come_twice(seed: int) -> None:
    """They are taken once, so no attempt fails for it, and no end of an input counts before the input."""
    received = MemoryState(Fields("component", "task", "tx"), Fields("rows"))
    topology = test_groupings.topology(received, typed=False)
    report, _ = run_pooled(topology, seed=seed, rates={Fault.DOUBLEDFRAMES: 0.5}, workers=3, layout="spread")
    assert report.failures == 0
    test_groupings.check(received)


@pytest.mark.few(6)
@pytest.mark.parametrize("job_transactions_max", [1, 256])
@pytest.mark.parametrize("tasks", [1, 2, 3])
@pytest.mark.parametrize("layout", ["auto", "together", "spread"])
def test_the_simplest_topology(tmp_path: Path, layout: str, tasks: int, job_transactions_max: int) -> None:
    """A spout and a bolt of as many tasks, between which no tuple moves: each task is answered for, in every layout."""
    words = [[word, 1] for word in "abcde"]
    spout = MemoryTransactionalSpout({0: words, 1: words}, Fields("word", "n"), 3)
    builder = TransactionalTopologyBuilder("simplest", "words", spout, tasks)
    builder.set_bolt("pass", Pass(1), tasks).shuffle_grouping("words")
    topology = builder.build()
    settings = {"layout": layout, "job_transactions_max": job_transactions_max, "state_dir": str(tmp_path)}
    report, _ = run_pooled(topology, seed=1, **settings)
    assert (report.failures, report.transactions, report.tuples) == (0, 2, 10)


@pytest.mark.slow
@pytest.mark.parametrize("seed", variants(*range(20), long=range(20, 400)))
def test_generated_topologies(seed: int) -> None:
    """Tables are equal in either mode, in each layout, in jobs of one transaction or many, with deaths and without."""
    random = Random(~seed)
    plain, expected = draw_topology(Random(seed))
    report = run_inline(plain, slots=1)
    settings = {
        "layout": random.choice(("auto", "together", "spread")),
        "job_transactions_max": random.choice((1, 2, 256)),
        "max_spout_pending": random.choice((1, 4, 120)),
    }
    micro, of_micro = draw_topology(Random(seed))
    assert run_inline(micro, Config(**settings), slots=random.randrange(1, 5)).tuples == report.tuples
    real, of_real = draw_topology(Random(seed))
    rates = random.choice((CALM, ROUGH))
    pooled, _ = run_pooled(real, seed=seed, rates=rates, workers=random.randrange(1, 5), **settings)
    assert pooled.tuples == report.tuples
    for name, state in expected.items():
        for other in (of_micro, of_real):
            assert other[name].snapshot().sort_by("word").equals(state.snapshot().sort_by("word"))


@pytest.mark.slow
@pytest.mark.parametrize(("layout", "every"), [("together", 5), ("spread", 25)])
@pytest.mark.parametrize("place", ["pool.answer", "pool.answered"])
def test_deaths_around_an_answer(tmp_path: Path, place: str, layout: str, every: int) -> None:
    """A worker that dies before its answer left, or after: the attempt counts once, by that answer or by another try."""
    reached = [0]

    def die(name: str) -> None:
        reached[0] += name == place
        if name == place and reached[0] % every == 0:
            raise ProcessDeath

    data = make_data(3, 40)
    with armed(die):
        _, runner = run_pooled(words_topology(tmp_path, data), seed=2, layout=layout)
    assert runner.executors_lost() > 0
    assert read_words(tmp_path) == counts_of(data)


def test_commit_phases_compute_in_workers() -> None:
    """Items are computed in any order and returned in theirs; a failure is one that is tried again."""
    runner = PooledRunner(lambda: TaskFactory(None, {}, {}), 3, Random(1))
    assert runner.compute(abs, range(-6, 0)) == [6, 5, 4, 3, 2, 1]
    assert runner.compute(abs, []) == []
    with pytest.raises(StateFailure, match="TypeError"):
        runner.compute(abs, [1, "x"])
    runner.rates = {Fault.DEADWORKERS: 0.5}
    with pytest.raises(StateFailure, match="died"):
        runner.compute(abs, range(50))
    assert runner.owner.pool.jobs == ()
