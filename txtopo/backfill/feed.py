"""Begins the transactions that a topology has committed, with the metadata and the times that its journal records.

A transaction that was given up begins without input, and its commit phase is left out; see
:func:`without_given_up`. It takes the place of the spout's coordinator, which is not asked.

The epoch of the journal's part that they are read from is kept with them. What a later part goes back behind is
undone, though the topology may have transactions of the same numbers and times again.

The topology may go on meanwhile, and then this follows. Once it has caught up, it tries to take the topology's lead,
which it gets if the topology is at rest. Then nobody commits any more: it begins what is left, and is exhausted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import attrs

from txtopo.api.components.planned import BeginReason
from txtopo.api.state import OpenedState
from txtopo.api.store import Lead, Put, Store
from txtopo.assembly.feed.feed import WAIT_SECS, Feed
from txtopo.assembly.feed.references import References
from txtopo.attempts import TransactionAttempt
from txtopo.backfill.joining import JoinedTopology
from txtopo.columnar.progress_probe import ProgressProbe
from txtopo.errors import DivergenceError
from txtopo.failpoints import durable_step
from txtopo.files.folder import Folder
from txtopo.journal.entries import JournalHeader, JournalTransaction
from txtopo.journal.following import JournalFollower
from txtopo.transactional.commit.phases import GroupOutcome, LoadCarried, RunCommitPhases, run_commit_phases
from txtopo.transactional.core.actions import AssignedAttempt, CreateMetadata
from txtopo.transactional.core.events import Event, MetadataCreated, SourceStatus, TransactionMetadata
from txtopo.transactional.tasks.factory import TaskFactory

REST_SECS = 0.5
"""The pause between two tries to take the lead of the topology."""


class Recorded(dict[int, JournalTransaction]):
    """The transactions that were read from the journal and are not committed here yet, by txid."""

    def __missing__(self, txid: int) -> JournalTransaction:
        raise gone_back(f"its journal has no transaction {txid} any more, which the backfill began")


def gone_back(why: str) -> DivergenceError:
    """Return the error for a backfill whose transactions the topology no longer has."""
    return DivergenceError(
        f"{why.rstrip('.')}: the topology has gone back since. Remove the backfill's folder and the table, and begin "
        "again"
    )


class JournalFeed(Feed):
    """Begins recorded transactions.

    Args:
        topology: the topology that has committed them.
        recorded: gets what is read, for those who compare with it.
        on_caught_up: called with the last transaction once the topology is caught up with while it runs.
        references: finds versions of reference tables that the topology did not have at a transaction.
    """

    def __init__(  # noqa: PLR0913 - what it reads, who is told, and the clock
        self,
        topology: JoinedTopology,
        recorded: Recorded,
        on_caught_up: Callable[[int], None],
        *,
        references: References,
        now_secs: Callable[[], float],
        sleep: Callable[[float], None],
    ) -> None:
        self._references = references
        self._topology = topology
        self._recorded = recorded
        self._on_caught_up = on_caught_up
        self._now_secs = now_secs
        self._sleep = sleep
        self._asked_secs = -REST_SECS
        self._has_caught_up = False
        self._kept_epoch = 0
        self.last: int | None = None
        """The last transaction of all, once the topology is at rest."""
        self.total: int | None = None

    def follow(self, journal: Folder, header: JournalHeader) -> None:
        """Begin to read the topology's journal after what is committed here; DivergenceError if it went back behind."""
        epoch_value = self._place[0].read(self._epoch_path)
        self._kept_epoch = 0 if epoch_value is None else int(epoch_value)
        self._follower = follower = JournalFollower(journal, header.committed, self._kept_epoch)
        try:
            self._recorded.update(
                (transaction.txid, transaction) for transaction in follower.read(self._topology.committed().txid)
            )
        except DivergenceError as error:
            raise gone_back(error.message) from error
        found_here = (follower.metadata, follower.planned.at_ms)
        if follower.after > header.committed and found_here != (header.metadata, header.planned.at_ms):
            raise gone_back(f"its journal has another transaction {header.committed} than the backfill committed")

    def open_store(self, store: Store, lead: Lead, root: str) -> None:
        """Take the place for the epoch that transactions are read from."""
        self._place = store, lead, root
        self._epoch_path = f"{root}/epoch"

    def create(self, action: CreateMetadata, committed: int) -> Event:
        """Begin the next recorded transactions; see :meth:`Feed.create`.

        Raises:
            DivergenceError: the topology has gone back behind what was read, or its journal is damaged.
        """
        del committed  # it is what is committed here
        txids = range(action.first_txid, action.first_txid + action.count)
        while self._follower.after < txids[-1]:
            committed_there = self._topology.committed().txid
            transactions = self._follower.read(committed_there)
            self.total = max(committed_there, self._follower.after)
            self._recorded.update((transaction.txid, transaction) for transaction in transactions)
            if not transactions and not self._is_at_rest(txids[0]):
                break
        created = tuple(_metadata_of(self._recorded[txid]) for txid in txids if txid <= self._follower.after)
        news = {transaction.txid: transaction for transaction in self._references.completed(created)}
        created = tuple(news.get(transaction.txid, transaction) for transaction in created)
        if created:
            # Before any of them is begun: whatever goes back behind them later has a higher epoch.
            if self._follower.epoch != self._kept_epoch:
                self._kept_epoch = self._follower.epoch
                with durable_step("backfill.epoch"):
                    self._place[1].write([Put(self._epoch_path, str(self._kept_epoch).encode())])
            return MetadataCreated(created, SourceStatus.READY)
        if self.last is not None and self.last > self._follower.after:
            raise DivergenceError(
                f"the topology is at transaction {self.last}, but its journal ends with {self._follower.after}: it ran "
                "without a journal, so nobody knows what the transactions in between held"
            )
        if self.last is not None:
            return MetadataCreated((), SourceStatus.EXHAUSTED)
        self._sleep(WAIT_SECS)
        return MetadataCreated((), SourceStatus.WAITING)

    def finish(self, committed: int) -> None:
        """Do nothing: what the emitters keep is the topology's."""

    def close(self) -> None:
        """Do nothing."""

    def _is_at_rest(self, next_txid: int) -> bool:
        """Whether the topology was just found at rest, so that more of its journal is certain."""
        now = self._now_secs()
        if self._follower.after >= next_txid or self.last is not None or now - self._asked_secs < REST_SECS:
            return False
        self._asked_secs = now
        self.last = self._topology.lead_if_free()
        if self.last is None:
            if not self._has_caught_up:
                self._has_caught_up = True
                self._on_caught_up(self._follower.after)
            return False
        if self.last < self._follower.after:
            raise gone_back(f"it is at transaction {self.last}, but {self._follower.after} was read from its journal")
        return True


def without_given_up(
    recorded: Mapping[int, JournalTransaction], run_phases: RunCommitPhases = run_commit_phases
) -> RunCommitPhases:
    """Return what runs commit phases as ``run_phases`` does, but not those of transactions that were given up."""

    def run(
        task_factory: TaskFactory,
        states: Mapping[str, OpenedState],
        assigned: Sequence[AssignedAttempt],
        load_carried: LoadCarried,
        probe: ProgressProbe,
    ) -> GroupOutcome:
        alive = [attempt for attempt in assigned if not recorded[attempt.attempt.txid].is_dead_letter]
        outcome = run_phases(task_factory, states, alive, load_carried, probe)
        return attrs.evolve(
            outcome,
            finished=_up_to(assigned, outcome.failed),
            fingerprints={**{attempt.attempt: {} for attempt in assigned}, **outcome.fingerprints},
        )

    return run


def _up_to(assigned: Sequence[AssignedAttempt], failed: TransactionAttempt | None) -> tuple[TransactionAttempt, ...]:
    attempts = [attempt.attempt for attempt in assigned]
    return tuple(attempts if failed is None else attempts[: attempts.index(failed)])


def _metadata_of(recorded: JournalTransaction) -> TransactionMetadata:
    planned = attrs.evolve(recorded.planned, turn=BeginReason.QUIET) if recorded.is_dead_letter else recorded.planned
    return TransactionMetadata(recorded.txid, recorded.metadata, planned)
