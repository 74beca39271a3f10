"""How fast a run begins: what one has learnt of a transaction's time is there for the next one."""

import attrs
import pytest

from spouts import MemoryTransactionalSpout
from state import MemoryState, SqliteStore
from tests.acceptance.topologies import Partial
from tests.bolts import Take
from txtopo import Config, Fields, ICommitter, TransactionalTopologyBuilder
from txtopo.api.store import Lead
from txtopo.assembly.environment import Environment
from txtopo.assembly.threads import ThreadPools
from txtopo.engine.runner import run_with
from txtopo.errors import UserCodeError
from txtopo.testing.scenario import begun, limits, recovered
from txtopo.transactional.core.actions import Process
from txtopo.transactional.core.coordinator import Coordinator
from txtopo.transactional.core.events import JobEnded, Processed
from txtopo.transactional.jobs.inline_runner import InlineJobRunner
from txtopo.transactional.jobs.job_runner import at_the_end
from txtopo.transactional.recovery.coordinator_state import CommittedMark, CoordinatorState


class Last(Take, ICommitter):
    def __init__(self, fails_from=1_000):
        self.fails_from = fails_from

    def prepare(self, config, context, collector, attempt):
        self.state = context.state("last")

    def finish_batch(self):
        assert self.attempt.txid < self.fails_from
        self.state.put("last", self.attempt.txid)


class Clock(ThreadPools):
    """Threads whose clock only jobs move, so that a busy machine makes no transaction slow."""

    now = 0.0

    def now_secs(self):
        return self.now


class Packs(InlineJobRunner):
    """Notes how many transactions each job holds, each of which takes 1 ms."""

    clock: Clock

    def __enter__(self):
        self.sizes = []
        return self

    def __exit__(self, *_):
        self.close()

    def run(self, job, on_progress, on_answer=at_the_end):
        self.sizes.append(len(job.attempts))
        self.clock.now += 0.001 * len(job.attempts)
        return super().run(job, on_progress, on_answer)


class Writes(Lead):
    """Notes the paths that are written by another lead."""

    def __init__(self, lead):
        self.lead, self.paths = lead, []

    @property
    def epoch(self):
        return self.lead.epoch

    def write(self, changes):
        self.paths += [change.path for change in changes]
        self.lead.write(changes)

    def is_held(self):
        return self.lead.is_held()

    def release(self):
        self.lead.release()


def job_sizes(rows, state, folder, last=None, pending=1_000):
    """Return the sizes of a run's jobs."""
    builder = TransactionalTopologyBuilder("pace", "spout", MemoryTransactionalSpout(rows, Fields("word"), 1), 1)
    builder.set_bolt("partial", Partial()).shuffle_grouping("spout")
    builder.set_committer_bolt("last", last or Last(), 1).global_grouping("partial")
    builder.set_state("last", state)
    clock, made = Clock(1), []

    def make(plan, config, prototypes):
        made.append(Packs(plan, config, prototypes, 1))
        made[0].clock = clock
        return made[0]

    run_with(
        builder.build(),
        Config(state_dir=str(folder), jobs_in_flight_max=1, max_spout_pending=pending),
        Environment(make, make_threads=lambda _jobs_max: clock),
    )
    return made[0].sizes


@pytest.mark.slow
def test_the_next_run_begins_where_this_one_was(tmp_path):
    """The first run feels its way; the second one's first job holds all that wait, for they take next to no time."""
    rows, state = ["cat"] * 100, MemoryState(Fields("key"), Fields("n"))
    assert job_sizes(rows, state, tmp_path)[:2] == [8, 32]
    rows += ["dog"] * 60
    assert job_sizes(rows, state, tmp_path) == [60]


def test_state_of_a_topology_that_never_wrote_it(tmp_path):
    """Coordinator state without a job size, or with one that is none, is as good as before."""
    store = SqliteStore(tmp_path / "coordinator.sqlite")
    coordinator_state = CoordinatorState(store, store.take_lead("pace", "test"), "pace")
    assert coordinator_state.transaction_us() is None
    for value, learnt in ((1_500, 1_500), ("fast", None)):
        coordinator_state.record_transaction_us(value)
        coordinator_state.flush()
        assert coordinator_state.transaction_us() == learnt
    store.close()


def test_a_commit_keeps_what_was_learnt(tmp_path):
    """What a run has learnt is written with the next mark, in the same step: a run that is killed leaves it, too."""
    store = SqliteStore(tmp_path / "coordinator.sqlite")
    lead = Writes(store.take_lead("pace", "test"))
    coordinator_state = CoordinatorState(store, lead, "pace")
    coordinator_state.commit(CommittedMark(1), 1)
    coordinator_state.flush()
    assert coordinator_state.transaction_us() is None
    for txid, learnt in ((2, 1_500), (3, 1_500), (4, 1_700)):
        coordinator_state.record_transaction_us(learnt)
        coordinator_state.commit(CommittedMark(txid), txid)
        coordinator_state.flush()
        assert coordinator_state.transaction_us() == learnt
    assert lead.paths.count("pace/pace") == 2, "it is written where it has changed"
    coordinator_state.flush()
    assert len(lead.paths) == 4 * 2 + 2, "and at the end only if it is not there"
    coordinator_state.record_transaction_us(1_800)
    coordinator_state.flush()
    assert coordinator_state.transaction_us() == 1_800
    store.close()


@pytest.mark.slow
def test_a_run_that_fails_leaves_what_it_has_learnt(tmp_path):
    """A run that comes to no good end hands on its job size all the same: the next one's first job holds all it may."""
    rows, state = ["cat"] * 500, MemoryState(Fields("key"), Fields("n"))
    with pytest.raises(UserCodeError):
        job_sizes(rows, state, tmp_path, Last(fails_from=450), pending=48)
    assert job_sizes(rows, state, tmp_path, pending=48)[0] == 24


def test_a_cold_job_beside_the_first_one_shrinks_nothing():
    """Two jobs begin at once, and both wait for the executors' start: the next ones are larger all the same."""
    bounds = attrs.evolve(limits(pending=64, job=64, jobs=2), job_target_ms=1_000)
    core = Coordinator(bounds)
    core.handle(recovered())
    actions = core.handle(begun(*range(1, 65)))
    sizes = [len(action.attempts) for action in actions if isinstance(action, Process)]
    assert sizes == [8, 16]
    for job_id in (1, 2):
        attempts = [core.pending[txid].attempt for txid in core.jobs[job_id]]
        actions = core.handle(*(Processed(attempt) for attempt in attempts), JobEnded(job_id, 4_500))
        sizes += [len(action.attempts) for action in actions if isinstance(action, Process)]
    assert sizes == [8, 16, 16, 24]
