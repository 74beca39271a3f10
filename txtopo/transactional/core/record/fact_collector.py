"""The facts of one call of the coordinator, as they are collected."""

from __future__ import annotations

from collections.abc import Sequence

from txtopo.attempts import TransactionAttempt
from txtopo.transactional.core.events import Processed, TransactionMetadata
from txtopo.transactional.core.measures import Measures
from txtopo.transactional.core.record.facts import Fact, Trouble, of_attempts
from txtopo.transactional.core.record.history import HistoryEvent
from txtopo.transactional.core.transactions import Transaction


class FactCollector:
    """Collects the facts of one call, in order: those of consecutive transactions that are processed become one."""

    def __init__(self) -> None:
        self.at_secs = 0.0
        """The moment of the facts, on the run's clock."""
        self._facts: list[Fact] = []
        self._answers: list[Processed] = []
        """Those for consecutive transactions that are no fact yet."""

    def begin(self, at_secs: float) -> None:
        """Forget the facts of the call before."""
        self.at_secs, self._facts, self._answers = at_secs, [], []

    @property
    def facts(self) -> Sequence[Fact]:
        """The facts so far."""
        self._tell_processed()
        return self._facts

    def tell(self, fact: Fact) -> None:
        """Tell a fact."""
        self._tell_processed()
        self._facts.append(fact)

    def of_run(
        self,
        event: HistoryEvent,
        *,
        job_id: int | None = None,
        group_id: int | None = None,
        measures: Measures | None = None,
    ) -> None:
        """Tell what happened to a job or a group."""
        self.tell(Fact(self.at_secs, event, (), job_id=job_id, group_id=group_id, measures=measures))

    def begun(self, event: HistoryEvent, begun: Sequence[TransactionMetadata]) -> None:
        """Tell that transactions have begun, or were found begun."""
        if begun:
            txids = tuple([transaction.txid for transaction in begun])
            self.tell(
                Fact(self.at_secs, event, txids, planned_ms=tuple([transaction.planned.at_ms for transaction in begun]))
            )

    def processed(self, answer: Processed) -> None:
        """Tell that an attempt was processed."""
        if self._answers and self._answers[-1].attempt.txid + 1 != answer.attempt.txid:
            self._tell_processed()
        self._answers.append(answer)

    def trouble(
        self, transaction: Transaction, event: HistoryEvent, reason: str = "", component: str | None = None
    ) -> None:
        """Tell what happens to a transaction; call this before its status changes."""
        attempts = () if transaction.attempt is None else (transaction.attempt,)
        self.tell(Trouble(self.at_secs, event, (transaction.txid,), attempts, component=component, reason=reason))

    def committed(
        self,
        event: HistoryEvent,
        attempts: Sequence[TransactionAttempt],
        tuples: tuple[int, ...],
        measures: Measures | None,
    ) -> None:
        """Tell that attempts are committed, or a dead letter is written."""
        self.tell(of_attempts(self.at_secs, event, attempts, tuples=tuples, measures=measures))

    def stopped(self, error: Exception, attempt: TransactionAttempt | None) -> None:
        """Tell that an error stops the run, perhaps found in an attempt."""
        attempts = () if attempt is None else (attempt,)
        component = getattr(error, "component", None)
        self.tell(Trouble(self.at_secs, HistoryEvent.STOPPED, (), attempts, component=component, reason=str(error)))

    def _tell_processed(self) -> None:
        if self._answers:
            attempts = [answer.attempt for answer in self._answers]
            tuples = tuple([answer.tuples for answer in self._answers])
            cpu_secs = sum([answer.cpu_secs for answer in self._answers])
            self._answers = []
            fact = of_attempts(self.at_secs, HistoryEvent.PROCESSED, attempts, tuples=tuples, cpu_secs=cpu_secs)
            self._facts.append(fact)
