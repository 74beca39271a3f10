"""Asks whether a source still has what a backfill needs, before anything is written.

The spout emits the first transaction that the backfill needs, to nobody, and its tuples are compared with those at the
commit. A source loses its oldest input first, so if they differ, a binary search finds where it begins.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Sequence
from typing import Any

import attrs

from txtopo.api.components.planned import metadata_of
from txtopo.attempts import TransactionAttempt
from txtopo.backfill.difference import difference_between
from txtopo.config import Config
from txtopo.errors import ConfigError, FailedException, RuleError
from txtopo.journal.entries import JournalTransaction
from txtopo.journal.following import JournalFollower
from txtopo.topology.plans.plan import DATAFRAMES, Plan, PlannedComponent
from txtopo.transactional.tasks.batch_run import BatchRun
from txtopo.transactional.tasks.collector import TaskCollector
from txtopo.transactional.tasks.factory import TaskFactory

TRIES_MAX = 5
"""How often a spout that raises FailedException is asked."""


def refuse_missing_input(plan: Plan, config: Config, follower: JournalFollower, committed: int) -> None:
    """Raise a ConfigError if the source no longer emits the first of some transactions; name the first that it does.

    A spout that Spark runs is not asked: the run will find out, at its first transaction. A FailedException says that
    the source does not answer.
    """
    inputs = _with_input(follower.read(committed))
    spouts = {spout.id for spout in plan.spouts if spout.kind not in DATAFRAMES}
    if not spouts or not inputs:
        return
    with _trial(plan.part(spouts, {}), config) as trial:
        problem = trial.problem(inputs[0])
        if problem is None:
            return
        while more := follower.read(committed):
            inputs += _with_input(more)
        low, high = 1, len(inputs)
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if trial.problem(inputs[middle]) is None else (middle + 1, high)
    way_on = "nor has it any later one as it was"
    if low < len(inputs):
        begin = inputs[low].txid
        way_on = f"it has those from {begin} on: with --from {begin}, the table has nothing of the transactions before"
    raise ConfigError(
        f"the source no longer has transaction {inputs[0].txid} as it was committed ({problem}); {way_on}. Nothing was "
        "written"
    )


def _with_input(transactions: Sequence[JournalTransaction]) -> list[JournalTransaction]:
    return [
        transaction for transaction in transactions if transaction.planned.has_input and not transaction.is_dead_letter
    ]


@contextlib.contextmanager
def _trial(spouts_only: Plan, config: Config) -> Iterator[_Trial]:
    trial = _Trial(spouts_only, config)
    try:
        yield trial
    finally:
        trial.factory.close()


class _Trial:
    """Emits transactions to nobody."""

    def __init__(self, spouts_only: Plan, config: Config) -> None:
        self._plan = spouts_only
        self.factory = TaskFactory(spouts_only, config, {})

    def problem(self, recorded: JournalTransaction) -> str | None:
        """Return why a transaction can't be emitted as it was; None if it can."""
        for _ in range(TRIES_MAX):
            try:
                return self._difference(recorded)
            except FailedException as error:
                failure = error
            except RuleError as error:
                return error.message.rstrip(".")
        raise failure

    def _difference(self, recorded: JournalTransaction) -> str | None:
        attempt = TransactionAttempt(recorded.txid, recorded.attempt)
        run = BatchRun(self.factory, attempt, recorded.planned)

        def emit(spout: PlannedComponent, task: int, collector: TaskCollector) -> Any:
            emitter, metadata = self.factory.emitter(spout, task), metadata_of(recorded.metadata, spout.id)
            emissions = self._plan.semantics[spout.id].emissions(None)
            return emissions.emit(emitter, (task, spout.tasks), attempt, metadata, collector)

        try:
            for spout in self._plan.spouts:
                for task in range(spout.tasks if recorded.planned.has_input_of(spout.id, recorded.metadata) else 0):
                    run.emit(spout, task, functools.partial(emit, spout, task))
        finally:
            run.close()
        fingerprints = {
            name: (fingerprint.tuples, fingerprint.checksum) for name, fingerprint in run.tracer.fingerprints().items()
        }
        now = attrs.evolve(recorded, fingerprints=fingerprints)
        spouts = tuple(spout.id for spout in self._plan.spouts)
        return difference_between(recorded, now, spouts, set(spouts))
