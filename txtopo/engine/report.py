"""What a run did, and what it is doing."""

from __future__ import annotations

from collections.abc import Mapping

import attrs


@attrs.frozen
class RunReport:
    """What a run did.

    Args:
        topology_id: which topology ran.
        reason: why it stopped, in words.
        committed_txid: the last committed transaction, of this run or an earlier one.
        transactions: transactions committed by this run, dead letters not included.
        dead_letters: transactions that were given up and written to the dead-letter table.
        attempts: attempts whose processing phase was begun.
        tuples: tuples that the spout emitted in the committed transactions.
        failures: attempts that failed.
        processing_secs: time spent in the jobs of processing phases, summed over jobs in flight.
        commit_secs: time spent in commit phases and Delta writes.
        elapsed_secs: time from start to stop.
        executor_secs: processor time that spouts and bolts took in the executors, what txtopo adds included.
        step_secs: time that each step of the commits took, by its name.
        last_failure: why the last attempt that failed did; empty if none has.
        spout_rows: rows written to tables that the spout fills itself, by the name of the state:
            ``spout.bad-records``, for example. A state that got none is left out.
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

    @property
    def replays(self) -> int:
        """Attempts beyond the first of each transaction, of those this run finished or gave up."""
        return self.failures


@attrs.frozen
class Progress:
    """What a run is doing at a moment."""

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
    """Attempts that have failed so far."""
    elapsed_secs: float
    last_failure: str = ""
    """Why the last attempt that failed did; empty if none has. It may have several lines."""
    last_failure_txid: int | None = None
    """The transaction of that attempt; None if none has failed. It is settled once ``committed_txid`` reaches it."""
    last_failure_times: int = 0
    """How many attempts of that transaction have failed in this run."""
    total: int | None = None
    """The last transaction that there will be, about; None where the spout does not know its end."""
