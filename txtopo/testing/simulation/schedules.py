"""Run thousands of schedules on all cores, and shrink one that fails to the faults that matter."""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import signal
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import attrs

from txtopo.errors import TopologyError, TxtopoError
from txtopo.testing.checkers import Oracle, Rows, Version, Violation
from txtopo.testing.simulation.schedule import Kinds, Log, Schedule, Simulated
from txtopo.testing.simulation.sources import standing_in
from txtopo.testing.simulation.world import Invariant, Subject, World
from txtopo.topology.topology import TransactionalTopology
from txtopo.transactional.core.spout_policy import policy_of
from txtopo.workers.garbage import collected_when_told

SHARE = 50
"""The schedules of a share, which one process runs: some seconds, so that processes end at about the same time and the
start of a share counts for nothing."""

SCHEDULES_PER_COLLECTION = 10
"""The number of schedules that a process runs between two garbage collections: that costs much less than Python's
automatic collections."""

FAULTLESS = 0
"""The seed of the schedule without faults, which is run before the others."""


@attrs.frozen
class Failure:
    """A schedule that broke a promise."""

    seed: int
    faults: tuple[tuple[int, str], ...]
    """The faults that struck, each with its number in the schedule."""
    violation: str
    """The broken promise."""
    trace: str
    """The traceback of the violation."""
    says_all: bool = False
    """Whether ``violation`` says enough, so that the traceback need not be shown."""

    @classmethod
    def of(cls, seed: int, faults: Sequence[tuple[int, str]], error: Exception) -> Failure:
        """Return the failure of a schedule that an exception has ended."""
        trace = "".join(traceback.format_exception(error))
        text = str(error)
        match error:
            case Violation():
                return cls(seed, tuple(faults), text, trace, says_all=True)
            case TxtopoError():
                first, _, rest = text.partition("\n")  # what follows is the traceback of the user's code
                return cls(seed, tuple(faults), first, trace, says_all=not rest)
            case _ if not text:  # such as a bare assert
                at = traceback.extract_tb(error.__traceback__)[-1]
                text = f"{at.line} ({at.filename}:{at.lineno})"
        return cls(seed, tuple(faults), f"{type(error).__name__}: {text}", trace)


@attrs.frozen
class Result:
    """The result of some schedules."""

    schedules: int
    faults: Counter[str]
    """The number of injected faults, by kind."""
    failures: tuple[Failure, ...]
    elapsed_secs: float


def make_subject(
    topology: TransactionalTopology,
    *,
    until: int | None = None,
    invariant: Invariant | None = None,
    is_real_time: bool = False,
    log: Log | None = None,
) -> Subject:
    """Run a topology once without faults, and return it with the result of that run as its oracle.

    That run is one of micro-batches in either mode, since the tables of both are equal.

    The input of an endless source is what it gives until it pauses for half a minute of simulated time.

    Args:
        topology: the topology; its spout and bolts run in this process.
        until: the last txid to simulate; None for all.
        invariant: called with all tables, as ``{state: {key: value}}``, whenever they are settled; must raise if
            they are wrong.
        is_real_time: whether the schedules are those of real-time mode.
        log: called with each step of that run as a line.

    Raises:
        TopologyError: the source never ends and gives nothing, so there is nothing to simulate.
        Exception: the topology fails without a fault.
    """
    subject = Subject(TransactionalTopology(standing_in(topology.plan)), until, invariant)
    world, rows = _faultless(subject, log)
    # Of others, nothing compares the tables with the oracle.
    if topology.plan.is_cut_by_input:
        timed = attrs.evolve(subject, is_timed=True)
        at_one_time, timed_rows = _faultless(timed)
        if timed_rows != rows:
            subject, world, rows = timed, at_one_time, timed_rows
    transactions = [
        transaction for part in world.durable.journal() for entry in part.entries for transaction in entry.transactions
    ]
    spouts = topology.plan.semantics
    tuples = sum(transaction.fingerprints.get(spout, (0, 0))[0] for transaction in transactions for spout in spouts)
    oracle = Oracle(rows, tuples, len(transactions), world.has_failures)
    if world.has_dried_up and not transactions:
        raise TopologyError(
            f"{' or '.join(map(repr, spouts))} gives no transaction in a simulated run, so there is nothing to check: "
            "it never ends, and time is simulated; give it some input that is there, and can be reached, when it begins"
        )
    subject = attrs.evolve(subject, oracle=oracle, is_real_time=is_real_time)
    if not world.has_dried_up:
        return subject
    if policy_of(topology.plan.kinds).repeats and topology.plan.is_cut_by_input:
        return attrs.evolve(subject, until=len(transactions))
    return attrs.evolve(subject, until=None, dries_up=True)


def _faultless(subject: Subject, log: Log | None = None) -> tuple[World, dict[str, list[tuple[int, Rows]]]]:
    """Run the schedule without faults; return its world, and for each table its rows after each txid."""
    rows: dict[str, list[tuple[int, Rows]]] = {name: [] for name in subject.topology.plan.states}

    def note(name: str, version: Version) -> None:
        # The first version with a txid is the write; a coordinator that opens the table adds others with the same txid.
        if version.txid is not None and (not rows[name] or rows[name][-1][0] < version.txid):
            rows[name].append((version.txid, version.rows))

    world = World(subject, seed=FAULTLESS, kinds=(), log=log)
    world.on_version = note
    world.run()
    return world, rows


@contextlib.contextmanager
def faults_unlogged() -> Iterator[None]:
    """Log none of the thousands of simulated faults within the context."""
    logger = logging.getLogger("txtopo")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


def run_schedule(
    subject: Simulated,
    seed: int,
    kinds: Kinds | None = None,
    only: frozenset[int] | None = None,
    log: Log | None = None,
) -> tuple[Schedule, Failure | None]:
    """Run one schedule with ``kinds`` of fault (None: all); return its world, and the failure if it broke a promise."""
    world = subject.world(seed, subject.kinds if kinds is None else kinds, only, log)
    try:
        world.run()
    except Exception as error:  # noqa: BLE001 - whatever a schedule raises is its failure
        return world, Failure.of(seed, world.struck, error)
    return world, None


def shrink(subject: Simulated, failure: Failure, kinds: Kinds | None = None) -> Failure:
    """Return a failure of the same schedule with fewer faults, found by leaving them out one by one.

    Its violation may be another one. Each round replays the schedule up to once per fault, so the number of replays is
    at most the square of the number of faults.
    """
    smallest = failure
    is_smaller = True
    while is_smaller:
        is_smaller = False
        for number, _ in reversed(smallest.faults):
            kept = frozenset(fault for fault, _ in smallest.faults if fault != number)
            _, found = run_schedule(subject, failure.seed, kinds, kept)
            if found is not None and len(found.faults) < len(smallest.faults):
                smallest, is_smaller = found, True
                break
    return smallest


def run_schedules(
    subject: Simulated,
    seeds: range,
    kinds: Kinds | None = None,
    *,
    processes: int | None = None,
    on_progress: Callable[[int], None] | None = None,
) -> Result:
    """Run schedules on all cores, until they are done or one has failed.

    Other processes inherit the subject by fork; ``processes`` defaults to one per core. ``on_progress`` is called with
    the number of schedules done.
    """
    started = time.monotonic()
    shares = [seeds[start : start + SHARE] for start in range(0, len(seeds), SHARE)]
    count, faults, failures = 0, Counter[str](), list[Failure]()
    job = _Job(subject, subject.kinds if kinds is None else kinds)
    with _results(job, shares, processes or os.cpu_count() or 1) as results:
        for share in results:
            count += share.schedules
            faults.update(share.faults)
            failures += share.failures
            if on_progress is not None:
                on_progress(count)
            if failures:
                break
    return Result(count, faults, tuple(failures[:1]), time.monotonic() - started)


@attrs.frozen
class _Share:
    schedules: int
    faults: Counter[str]
    failures: list[Failure]


@attrs.frozen
class _Job:
    subject: Simulated
    kinds: Kinds

    def run(self, seeds: range) -> _Share:
        """Run a share."""
        faults, failures = Counter[str](), []
        with faults_unlogged(), collected_when_told() as collect:
            for count, seed in enumerate(seeds, 1):
                world, failure = run_schedule(self.subject, seed, self.kinds)
                faults.update(fault.partition(" ")[0] for _, fault in world.struck)
                if failure is not None:
                    failures.append(failure)
                world.dissolve()
                if count % SCHEDULES_PER_COLLECTION == 0:
                    collect()
        return _Share(len(seeds), faults, failures)


_job: _Job | None = None


def _run_share(seeds: range) -> _Share:
    assert _job is not None, "it was inherited"
    return _job.run(seeds)


def _ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the waiting parent handles Ctrl-C by ending this process


@contextlib.contextmanager
def _results(job: _Job, shares: list[range], processes: int) -> Iterator[Iterator[_Share]]:
    global _job  # noqa: PLW0603 - what fork passes on
    if processes == 1 or len(shares) == 1:
        yield map(job.run, shares)
        return
    _job = job
    # fork passes the subject on without pickling it: a topology may hold what does not pickle.
    pool = multiprocessing.get_context("fork").Pool(processes, initializer=_ignore_interrupts)
    try:
        yield pool.imap_unordered(_run_share, shares)
    finally:
        pool.terminate()  # shares may still be running if enough have failed
        pool.join()
