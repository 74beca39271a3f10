"""The jobs in flight: the transactions of each, which ones are cancelled, and how many the next one may hold."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from txtopo.transactional.core.job_sizer import JobSizer
from txtopo.transactional.core.limits import Limits

PAUSE_DOUBLINGS_MAX = 6
"""The pause after lost jobs grows up to 64 times: from half a second to half a minute."""


class JobsInFlight:
    """The coordinator's book of jobs, which decides nothing; a job is in flight until the run loop reports its end."""

    def __init__(self, limits: Limits, transaction_us: int | None = None) -> None:
        self.txids: dict[int, tuple[int, ...]] = {}
        """The transactions of each job, by job id."""
        self.lost_in_a_row = 0
        """The losses since a job has answered for a transaction; jobs in flight together are lost together."""
        self._limits = limits
        self._sizer = JobSizer.at_start(limits, transaction_us)
        self._last_id = 0
        self._first_warm_id: int | None = None
        self._cancelled: set[int] = set()
        self._begun: set[int] = set()
        self._of_suspects: set[int] = set()
        self._last_of_loss = 0
        """The last job that had started when one was lost."""
        self._rolled_back: set[int] = set()

    @property
    def transaction_us(self) -> int | None:
        """A transaction's share of a job's time in microseconds; None if unknown."""
        return self._sizer.transaction_us

    @property
    def have_begun(self) -> bool:
        """Whether any job has started in this run."""
        return self._last_id > 0

    @property
    def transactions_max(self) -> int:
        """How many transactions the next job may hold."""
        sizer = self._sizer.behind_the_first(self._limits) if self.txids else self._sizer
        return sizer.transactions_max

    @property
    def pause_ms(self) -> int:
        """How long lost transactions wait, doubled with each loss in a row; 0 without one, as after a timeout."""
        if not self.lost_in_a_row:
            return 0
        doublings = min(self.lost_in_a_row - 1, PAUSE_DOUBLINGS_MAX)
        return self._limits.retry_delay_ms << doublings

    def prepare_for(self, waiting: int) -> None:
        """Fit the size of the first job to the ready transactions; later sizes follow from measured jobs."""
        self._sizer = self._sizer.with_backlog(waiting, self._limits)

    def start(self, txids: Iterable[int], *, of_suspect: bool = False) -> int:
        """Add a job, and return its id; a suspect's is to be the only one."""
        self._last_id += 1
        self.txids[self._last_id] = tuple(txids)
        if of_suspect:
            self._of_suspects.add(self._last_id)
        return self._last_id

    @property
    def has_suspect(self) -> bool:
        """Whether the job of a suspect is in flight."""
        return bool(self._of_suspects)

    def record_begun(self, job_id: int) -> bool:
        """Record that an executor works on a job; return whether that is news."""
        is_news = job_id in self.txids and job_id not in self._begun
        if is_news:
            self._begun.add(job_id)
        return is_news

    def was_begun(self, job_id: int) -> bool:
        """Whether an executor works, or has worked, on a job."""
        return job_id in self._begun

    def record_lost(self, job_id: int) -> None:
        """Count the loss of a job, once for all jobs that had started by then."""
        if job_id > self._last_of_loss:
            self.lost_in_a_row += 1
            self._last_of_loss = self._last_id

    def is_expected(self, job_id: int) -> bool:
        """Whether a job is in flight and was not cancelled, so that its loss is Spark's doing."""
        return job_id in self.txids and job_id not in self._cancelled

    def cancel(self, job_id: int) -> bool:
        """Record that a job is to be cancelled; return False if there is nothing to cancel any more."""
        is_expected = self.is_expected(job_id)
        if is_expected:
            self._cancelled.add(job_id)
        return is_expected

    def record_rolled_back(self, job_id: int | None) -> None:
        """Record that a transaction was rolled back whose attempt a job is still working on."""
        if job_id in self.txids:
            self._rolled_back.add(job_id)

    def useless(self, is_processing: Callable[[int, int], bool]) -> list[int]:
        """Return the jobs that hold nothing but what was rolled back or answered for, lowest first.

        ``is_processing(txid, job_id)`` says whether a job still works on a transaction that counts: earlier
        transactions of a job whose later ones were rolled back go on, and need it.
        """
        return [
            job_id
            for job_id in sorted(self._rolled_back)
            if not any(is_processing(txid, job_id) for txid in self.txids[job_id])
        ]

    def learn(self, job_id: int, elapsed_ms: int | None) -> None:
        """Set the size of later jobs by the time that a job took; call this before :meth:`end`."""
        txids = self.txids.get(job_id)
        if txids is not None and elapsed_ms is not None:
            # Jobs that started before the first one ended waited for the start of the executors.
            if self._first_warm_id is None:
                self._first_warm_id = self._last_id + 1
            is_cold = job_id < self._first_warm_id
            self._sizer = self._sizer.after(len(txids), elapsed_ms, self._limits, is_cold=is_cold)

    def end(self, job_id: int) -> tuple[int, ...]:
        """Remove a job, and return its transactions; none if it is unknown."""
        for job_ids in (self._cancelled, self._rolled_back, self._begun, self._of_suspects):
            job_ids.discard(job_id)
        return self.txids.pop(job_id, ())
