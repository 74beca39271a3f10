"""Reports of a run: its result, and its progress while it runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from txtopo.api.components.spout import Lag
from txtopo.transactional.core.readings import Reading


@attrs.frozen
class RunReport:
    """The result of a run.

    Args:
        topology_id: the topology.
        reason: why the run stopped, in words.
        committed_txid: the last committed transaction, of this run or an earlier one.
        transactions: the number of transactions that this run committed, without dead letters.
        dead_letters: the number of transactions that were given up and written to the dead-letter table.
        attempts: the number of attempts whose processing phase began.
        tuples: the number of tuples that the spout emitted in the committed transactions.
        failures: the number of failed attempts.
        processing_secs: the time from the start of each job to its end, summed over jobs in flight.
        commit_secs: the time from the start of each commit group to its end: commit phases and Delta writes.
        elapsed_secs: the time from start to stop.
        executor_secs: the CPU time of spouts and bolts in the executors, including txtopo's overhead; without that of
            attempts that were given up before they answered.
        step_secs: the time of each step of the commits, by name; in a bucket phases run, or wait, beside other steps.
        last_failure: the reason of the last failed attempt; empty if none failed.
        spout_rows: the number of rows written to the spout's tables, by the name of the state, such as
            ``spout.bad-records``; without states that got none.
        readings: what components have counted and measured in the committed transactions.
    """

    topology_id: str
    reason: str
    committed_txid: int
    transactions: int
    dead_letters: int
    attempts: int
    tuples: int
    failures: int
    processing_secs: float
    commit_secs: float
    elapsed_secs: float
    executor_secs: float = 0.0
    step_secs: Mapping[str, float] = attrs.field(factory=dict)
    last_failure: str = ""
    spout_rows: Mapping[str, int] = attrs.field(factory=dict)
    readings: tuple[Reading, ...] = ()

    @property
    def replays(self) -> int:
        """The number of replays, which is the number of failed attempts."""
        return self.failures


@attrs.frozen
class Progress:
    """The progress of a run at one moment."""

    topology_id: str
    committed_txid: int
    processing: int
    """Transactions whose processing phase is running."""
    processed: int
    """Transactions that wait for their turn to commit."""
    committing: int
    """Transactions in the commit phase."""
    ready: int
    """Transactions that wait to be processed."""
    first_uncommitted_status: str
    transactions: int
    dead_letters: int
    tuples: int
    failures: int
    """The number of failed attempts so far."""
    elapsed_secs: float
    last_failure: str = ""
    """The reason of the last failed attempt, perhaps of several lines; empty if none failed."""
    last_failure_txid: int | None = None
    """The transaction of that attempt; None if none failed. It is resolved once ``committed_txid`` reaches it."""
    last_failure_times: int = 0
    """The number of failed attempts of that transaction in this run."""
    total: int | None = None
    """The approximate txid of the last transaction; None if the spout does not know it."""
    attempts: int = 0
    """The number of attempts whose processing phase began."""
    lags: Mapping[str, Lag] = attrs.field(factory=dict)
    """How much of each spout's source no transaction has taken, as far as the spout knows."""
    readings: tuple[Reading, ...] = ()
    """What components have counted and measured in the committed transactions."""
    emitted: Mapping[str, int] = attrs.field(factory=dict)
    """The tuples that each component emitted in the committed transactions."""
    emitted_on: Mapping[tuple[str, str], int] = attrs.field(factory=dict)
    """Of those, the tuples on each stream but the default one, by component and stream."""

    @property
    def lag(self) -> int | None:
        """The records of all sources that no transaction has taken; None if no spout knows them."""
        return _known_sum(lag.records for lag in self.lags.values())

    @property
    def lag_files(self) -> int | None:
        """The files of all sources that no transaction has taken whole; None if no spout knows them."""
        return _known_sum(lag.files for lag in self.lags.values())

    @property
    def lag_bytes(self) -> int | None:
        """About how many bytes of these files are left; None if no spout knows."""
        return _known_sum(lag.bytes for lag in self.lags.values())


def _known_sum(numbers: Iterable[int | None]) -> int | None:
    known_numbers = [number for number in numbers if number is not None]
    return sum(known_numbers) if known_numbers else None
