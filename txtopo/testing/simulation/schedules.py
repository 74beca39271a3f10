"""Run thousands of schedules on all cores, and shrink one that fails to the faults that matter."""

from __future__ import annotations

import gc
import logging
import multiprocessing
import os
import pickle
import signal
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs

from txtopo.errors import TopologyError, TxtopoError
from txtopo.garbage import collected_when_told
from txtopo.testing.checkers import Oracle, Rows, Version, Violation
from txtopo.testing.simulation.schedule import Kinds, Schedule, Simulated
from txtopo.testing.simulation.sources import standing_in
from txtopo.testing.simulation.world import Invariant, Subject, World
from txtopo.topology.topology import TransactionalTopology

SHARE = 50
"""The number of seeds that a process takes at a time."""

SHARES_PER_PROCESS = 4
"""The number of shares that a process runs before it ends. Only a garbage collection finds what is left of each world,
and that costs time. Ending the process instead costs almost nothing, because its learned results are passed on."""

SCHEDULES_PER_COLLECTION = 10
"""The number of schedules that a process which does not end runs between two garbage collections: that costs much less
than Python's automatic collections."""

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
    """The number of injected faults, by workload."""
    failures: tuple[Failure, ...]
    elapsed_secs: float


def make_subject(
    topology: TransactionalTopology,
    *,
    until: int | None = None,
    invariant: Invariant | None = None,
    log: Callable[[str], None] | None = None,
) -> Subject:
    """Run a topology once without faults, and return it with the result of that run as its oracle.

    The input of an endless source is what it gives until it pauses for half a minute of simulated time.

    Args:
        topology: the topology; its spout and bolts run in this process.
        until: the last txid to simulate; None for all.
        invariant: called with all tables, as ``{state: {key: value}}``, whenever they are settled; must raise if
            they are wrong.
        log: called with each step of that run as a line.

    Raises:
        TopologyError: the source never ends and gives nothing, so there is nothing to simulate.
        Exception: the topology fails without a fault.
    """
    subject = Subject(TransactionalTopology(standing_in(topology.plan)), until, invariant)
    rows: dict[str, list[tuple[int, Rows]]] = {name: [] for name in topology.plan.states}

    def note(name: str, version: Version) -> None:
        if version.txid is not None and (not rows[name] or rows[name][-1][0] < version.txid):
            rows[name].append((version.txid, version.rows))

    world = World(subject, seed=FAULTLESS, workloads=(), log=log)
    world.on_version = note
    world.run()
    # The first version with a txid is the write; a coordinator that opens the table adds versions with the same txid.
    transactions = [each for part in world.journal() for entry in part.entries for each in entry.transactions]
    tuples = sum(each.fingerprints.get(topology.plan.spout.id, (0, 0))[0] for each in transactions)
    oracle = Oracle(rows, tuples, len(transactions), world.has_failures)
    if world.has_dried_up and not transactions:
        raise TopologyError(
            f"{topology.plan.spout.id!r} gives no transaction in a simulated run, so there is nothing to check: it "
            "never ends, and time is simulated; give it some input that is there, and can be reached, when it begins"
        )
    if not world.has_dried_up:
        return attrs.evolve(subject, oracle=oracle)
    if topology.plan.semantics.policy.repeats:
        return attrs.evolve(subject, oracle=oracle, until=len(transactions))
    return attrs.evolve(subject, oracle=oracle, until=None, dries_up=True)


def run_schedule(
    subject: Simulated,
    seed: int,
    kinds: Kinds | None = None,
    only: frozenset[int] | None = None,
    log: Callable[[str], None] | None = None,
) -> tuple[Schedule, Failure | None]:
    """Run one schedule; return its world, and the failure if it broke a promise.

    The kinds of fault are drawn from ``kinds``; None for all. See :class:`Schedule` for ``only`` and ``log``.
    """
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
            kept = frozenset(each for each, _ in smallest.faults if each != number)
            _, found = run_schedule(subject, failure.seed, kinds, kept)
            if found is not None and len(found.faults) < len(smallest.faults):
                smallest, is_smaller = found, True
                break
    return smallest


def run_schedules(  # noqa: PLR0913 - the options of the command
    subject: Simulated,
    seeds: range,
    kinds: Kinds | None = None,
    *,
    processes: int | None = None,
    failures_max: int = 1,
    on_progress: Callable[[int], None] | None = None,
) -> Result:
    """Run schedules on all cores, until they are done or ``failures_max`` have failed.

    Other processes inherit the subject by fork; ``processes`` defaults to one per core. ``on_progress`` is called with
    the number of schedules done.
    """
    started = time.monotonic()
    shares = [seeds[start : start + SHARE] for start in range(0, len(seeds), SHARE)]
    count, faults, failures = 0, Counter[str](), list[Failure]()
    with _results(
        subject, shares, subject.kinds if kinds is None else kinds, processes or os.cpu_count() or 1
    ) as results:
        for share in results:
            count += share.schedules
            faults.update(share.faults)
            failures += share.failures
            if share.learned is not None:
                subject.learn(pickle.loads(share.learned))  # noqa: S301 - our own bytes
            if on_progress is not None:
                on_progress(count)
            if len(failures) >= failures_max:
                break
    failures.sort(key=lambda failure: failure.seed)
    return Result(count, faults, tuple(failures[:failures_max]), time.monotonic() - started)


@attrs.frozen
class _Share:
    """The result of a share of the seeds."""

    schedules: int
    faults: Counter[str]
    failures: list[Failure]
    learned: bytes | None = None
    """The pickled job results of another process; None if they do not pickle."""


@attrs.frozen
class _Job:
    """What every process inherits."""

    subject: Simulated
    kinds: Kinds

    def run(self, seeds: range) -> _Share:
        """Run a share in a process that continues afterwards."""
        with collected_when_told() as collect:
            return self._run(seeds, collect)

    def run_apart(self, seeds: range) -> _Share:
        """Run a share in a process that ends soon, and return its learned results of jobs with it."""
        share = self._run(seeds, lambda: None)
        try:
            return attrs.evolve(share, learned=pickle.dumps(self.subject.take_learned()))
        except Exception:  # noqa: BLE001 - an emitted value may raise anything when pickled; other processes do without
            return share

    def _run(self, seeds: range, collect: Callable[[], None]) -> _Share:
        faults, failures = Counter[str](), []
        logger = logging.getLogger("txtopo")
        level = logger.level
        logger.setLevel(logging.CRITICAL)  # thousands of injected failures would be logged
        try:
            for count, seed in enumerate(seeds, 1):
                world, failure = run_schedule(self.subject, seed, self.kinds)
                faults.update(fault.partition(" ")[0] for _, fault in world.struck)
                if failure is not None:
                    failures.append(failure)
                world.dissolve()
                if count % SCHEDULES_PER_COLLECTION == 0:
                    collect()
        finally:
            logger.setLevel(level)
        return _Share(len(seeds), faults, failures)


_job: _Job | None = None


def _run_share(seeds: range) -> _Share:
    assert _job is not None, "it was inherited"
    return _job.run_apart(seeds)


def _prepare_process() -> None:
    """Ignore Ctrl-C, which the waiting parent handles by ending this process."""
    assert _job is not None, "it was inherited"
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.disable()  # the process ends before its garbage matters; see SHARES_PER_PROCESS
    _job.subject.take_learned()  # the parent process already has these results


class _results:  # noqa: N801 - reads as a function
    """The results of all shares, as they complete; one process or one share runs in this process."""

    def __init__(self, subject: Simulated, shares: list[range], kinds: Kinds, size: int) -> None:
        global _job  # noqa: PLW0603 - what fork passes on
        self._job = _job = _Job(subject, kinds)
        self._shares = shares
        self._pool: Any = None
        if size > 1 and len(shares) > 1:
            # fork passes the subject on without pickling it: a topology may hold what does not pickle.
            context = multiprocessing.get_context("fork")
            self._pool = context.Pool(size, initializer=_prepare_process, maxtasksperchild=SHARES_PER_PROCESS)

    def __enter__(self) -> Iterator[_Share]:
        if self._pool is None:
            return map(self._job.run, self._shares)
        found: Iterator[_Share] = self._pool.imap_unordered(_run_share, self._shares)
        return found

    def __exit__(self, *error: object) -> None:
        if self._pool is not None:
            self._pool.terminate()  # shares may still be running if enough have failed
            self._pool.join()
