"""What the simulator remembers of jobs: told again only where a run would come to the same."""

from __future__ import annotations

import collections

import attrs
import pytest

import examples.orders
import examples.ring
from spouts import Coordinator, Emitter
from state import MemoryState
from txtopo import BatchBolt, Fields, ICommitter, TransactionalSpout, TransactionalTopologyBuilder
from txtopo.testing.simulation import memory
from txtopo.testing.simulation.memory import JobMemory
from txtopo.testing.simulation.process import ObservedCoordinator
from txtopo.testing.simulation.schedules import make_subject, run_schedule
from txtopo.testing.simulation.workloads import RATES, Failures
from txtopo.testing.simulation.world import Subject, World

runs: collections.Counter[str] = collections.Counter()


class Numbers(TransactionalSpout, Coordinator, Emitter):
    """Emits its transaction's number, and from some attempt on another one."""

    output_fields = Fields("attempt", "n")

    def __init__(self, changes_after: int | None = None) -> None:
        self.changes_after = changes_after

    def coordinator(self, config, context):
        return self

    def emitter(self, config, context):
        return self

    def initialize_transaction(self, txid, previous_metadata):
        return txid

    def emit_batch(self, attempt, metadata, collector):
        runs["emit"] += 1
        is_other = self.changes_after is not None and runs["emit"] > self.changes_after
        collector.emit((attempt, metadata + is_other))


class Sum(BatchBolt, ICommitter):
    counts_runs = False

    def prepare(self, config, context, collector, attempt):
        self.state, self.sum = context.state("sum"), 0

    def execute(self, tuple):
        runs["execute"] += 1
        self.sum += tuple["n"] + self.counts_runs * runs["execute"]

    def finish_batch(self):
        runs["finish"] += 1
        self.state.update("n", lambda old: (old or 0) + self.sum)


class CountRuns(Sum):
    counts_runs = True


class CountCommits(Sum):
    def finish_batch(self):
        self.sum += runs["finish"]
        super().finish_batch()


class KeepsEpochInTable(Sum):
    def finish_batch(self):
        runs["finish"] += 1
        self.state.put("epoch", self.attempt.epoch)


class KeepsAttempt(Sum):
    def execute(self, tuple):
        super().execute(tuple)
        self.seen = tuple.attempt

    def finish_batch(self):
        assert self.seen == self.attempt
        super().finish_batch()


class KeepsAttemptInWords(Sum):
    def execute(self, tuple):
        super().execute(tuple)
        self.seen = str(tuple.attempt)

    def finish_batch(self):
        assert self.seen == str(self.attempt)
        super().finish_batch()


def subject(spout: TransactionalSpout, bolt: Sum) -> Subject:
    runs.clear()
    builder = TransactionalTopologyBuilder("numbers", "spout", spout, 1)
    builder.set_committer_bolt("sum", bolt, 1).global_grouping("spout")
    builder.set_state("sum", MemoryState(Fields("name"), Fields("n")))
    return make_subject(builder.build(), until=6)


def story(world: World) -> tuple:
    """Return all that a schedule came to."""
    tables = {name: (t.newest.number, t.newest.txid, dict(t.newest.rows)) for name, t in world.tables.items()}
    return world.struck, world.clock.now_ms, world.random.random(), tables


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("ring", tuple(RATES)),
        pytest.param("orders", tuple(RATES), marks=pytest.mark.slow),
        ("orders", (Failures,)),
    ],
)
def test_what_is_remembered_changes_no_schedule(name, kinds, tmp_path):
    """The same seeds come to the very same, with what earlier schedules have left and without."""
    made = examples.ring.topology() if name == "ring" else examples.orders.topology(output=str(tmp_path))
    module = getattr(examples, name)
    remembering = make_subject(made, until=12, invariant=module.check_state)
    seeds = range(1, 41 if name == "ring" else 26)
    with_memory = [story(run_schedule(remembering, seed, kinds)[0]) for seed in seeds]
    assert remembering.memory.told > len(seeds) / 2, "jobs were told again"
    assert remembering.memory.groups_told > len(seeds) / 2, "commit phases were told again"
    without = attrs.evolve(remembering, memory=JobMemory(is_on=False))
    assert [story(run_schedule(without, seed, kinds)[0]) for seed in seeds] == with_memory
    assert (without.memory.told, without.memory.groups_told) == (0, 0)


def test_what_is_remembered_changes_nothing_that_a_core_is_told(monkeypatch):
    """That the commit phases of a group get on, too, though nobody runs them."""
    told = []

    def handle(core, *events):
        told.append(repr(events))
        return handled(core, *events)

    handled = ObservedCoordinator.handle
    monkeypatch.setattr(ObservedCoordinator, "handle", handle)
    plain = subject(Numbers(), Sum())
    for seed in range(1, 61):
        run_schedule(plain, seed)
    assert plain.memory.groups_told > 60
    with_memory = list(told)
    told.clear()
    without = attrs.evolve(plain, memory=JobMemory(is_on=False))
    for seed in range(1, 61):
        run_schedule(without, seed)
    assert told == with_memory[-len(told) :]


def test_what_a_fault_struck_is_told_again_too(monkeypatch):
    """Where a fault has struck a bolt at the same step twice before, no bolt is run for it any more."""
    monkeypatch.setattr(memory, "RUN_ALL_THE_SAME", 1_000_000)
    plain = subject(Numbers(), Sum())
    stories = []
    for _ in range(3):
        runs.clear()
        stories.append([story(run_schedule(plain, seed, [Failures])[0]) for seed in range(1, 61)])
    assert any("bolt.execute" in fault for struck, *_ in stories[0] for _, fault in struck)
    assert runs["execute"] == 0
    assert stories[0] == stories[1] == stories[2]


def test_attempts_of_later_epochs_are_the_same_but_for_their_number():
    """What two epochs have come to is told to a third one, with the number of its own attempt in what bolts keep."""
    keeping = subject(Numbers(), KeepsAttempt())
    seeds = range(1, 81)
    with_memory = [story(run_schedule(keeping, seed)[0]) for seed in seeds]
    assert keeping.memory.told > 80
    without = attrs.evolve(keeping, memory=JobMemory(is_on=False))
    assert [story(run_schedule(without, seed)[0]) for seed in seeds] == with_memory
    assert not keeping.memory.knows_epochs


def test_a_bolt_that_depends_on_the_epoch_is_known_by_it():
    """Its attempts are told again where the very same number has come to the same twice, and no other is."""
    depending = subject(Numbers(), KeepsAttemptInWords())
    for seed in range(1, 81):
        assert run_schedule(depending, seed)[1] is None
    assert depending.memory.knows_epochs
    told = depending.memory.told
    for seed in range(1, 41):
        run_schedule(depending, seed)
    assert depending.memory.told > told


def test_a_process_that_trusts_its_memory_no_more_tells_the_others():
    """A bolt that depends on something else than its batch is found in one process, and run in all."""
    counting = subject(Numbers(), CountRuns())
    distrusting, trusting = JobMemory(), JobMemory()
    for seed in range(1, 11):
        run_schedule(attrs.evolve(counting, memory=distrusting), seed)
    plain = attrs.evolve(subject(Numbers(), Sum()), memory=trusting)
    for seed in range(1, 21):
        run_schedule(plain, seed)
    told = trusting.told
    assert told > 0
    trusting.learn(distrusting.take_learned())
    run_schedule(plain, 1)
    assert trusting.told == told


def test_a_spout_that_emits_something_else_is_found():
    """Its jobs were told again for long; from its first other tuple on they are run, and the schedule fails."""
    changing = subject(Numbers(changes_after=800), Sum())
    seed = 0
    while runs["emit"] <= 800:
        seed += 1
        run_schedule(changing, seed, ())
    told = changing.memory.told
    assert told > 50
    failures = [run_schedule(changing, later, ())[1] for later in range(seed + 1, seed + 6)]
    assert changing.memory.told == told
    assert not changing.memory.is_on
    assert any(
        failure and "as if every transaction had run once (promise 8)" in failure.violation for failure in failures
    )


def test_a_bolt_that_depends_on_something_else_is_always_run():
    """A job that comes to something else the second time is remembered no more, nor is any other."""
    counting = subject(Numbers(), CountRuns())
    failures = [run_schedule(counting, seed)[1] for seed in range(1, 11)]
    assert counting.memory.told == 0
    assert any(failures)


def test_known_commit_phases_are_not_run(monkeypatch):
    """A group that has come to the same twice costs the bolts nothing, whatever its epoch."""
    monkeypatch.setattr(memory, "RUN_ALL_THE_SAME", 1_000_000)
    plain = subject(Numbers(), Sum())
    kinds = [kind for kind in RATES if kind is not Failures]
    for seed in range(1, 121):
        assert run_schedule(plain, seed, kinds)[1] is None
    stories = []
    for _ in range(2):
        told, ran = plain.memory.groups_told, runs["finish"]
        stories.append([story(run_schedule(plain, seed, kinds)[0]) for seed in range(1, 61)])
    assert plain.memory.groups_told - told > 10 * (runs["finish"] - ran)
    without = attrs.evolve(plain, memory=JobMemory(is_on=False))
    stories.append([story(run_schedule(without, seed, kinds)[0]) for seed in range(1, 61)])
    assert stories[0] == stories[1] == stories[2]


def test_commit_phases_that_are_known_are_run_now_and_then(monkeypatch):
    """Of so many that could be told, one is run all the same."""
    monkeypatch.setattr(memory, "RUN_ALL_THE_SAME", 4)
    plain = subject(Numbers(), Sum())
    for seed in range(1, 121):
        run_schedule(plain, seed, ())
    told, ran = plain.memory.groups_told, runs["finish"]
    for seed in range(1, 13):
        run_schedule(plain, seed, ())  # six groups, each of one transaction
    assert (plain.memory.groups_told - told, runs["finish"] - ran) == (54, 18)


def test_a_group_is_known_by_what_stands_in_the_tables(monkeypatch):
    """Where transactions were given up before, those after them find something else and are not told what they put."""
    monkeypatch.setitem(RATES, Failures, 0.2)
    plain = subject(Numbers(), Sum())
    kinds, seeds = (Failures,), range(1, 81)
    skipping = [run_schedule(plain, seed, kinds)[0] for seed in seeds]
    sums = {world.tables["sum"].newest.rows["n"].value for world in skipping}
    assert len(sums) > 1, "some transactions were given up"
    without = attrs.evolve(plain, memory=JobMemory(is_on=False))
    again = [run_schedule(without, seed, kinds)[0] for seed in seeds]
    assert list(map(story, again)) == list(map(story, skipping))


def test_a_commit_phase_that_depends_on_something_else_is_always_run():
    """A group that comes to something else the second time is remembered no more, nor is anything."""
    counting = subject(Numbers(), CountCommits())
    failures = [run_schedule(counting, seed)[1] for seed in range(1, 11)]
    assert counting.memory.groups_told == 0
    assert not counting.memory.is_on
    assert any(failures)


def test_a_commit_phase_that_depends_on_the_epoch_is_known_by_it():
    """Its groups are told again to attempts of the very same number only."""
    depending = subject(Numbers(), KeepsEpochInTable())
    depending = attrs.evolve(depending, oracle=None)
    seeds = range(1, 61)
    with_memory = [story(run_schedule(depending, seed)[0]) for seed in seeds]
    assert depending.memory.knows_epochs
    assert depending.memory.groups_told > 0
    without = attrs.evolve(depending, memory=JobMemory(is_on=False))
    assert [story(run_schedule(without, seed)[0]) for seed in seeds] == with_memory
