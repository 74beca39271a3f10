"""A transaction: its status, its live attempt, its tries."""

import pytest

from txtopo.api.components.planned import NEVER
from txtopo.attempts import TransactionAttempt
from txtopo.errors import InternalError
from txtopo.transactional.core.transactions import Transaction, Tries
from txtopo.transactional.core.transitions import Trigger


def test_the_live_attempt() -> None:
    """An attempt is live from its beginning until the transaction has none; then it is in no job either."""
    transaction = Transaction(7, "m7", NEVER, Tries())
    attempt = transaction.begin_attempt(1, Trigger.START)
    transaction.job_id = 3
    assert attempt == TransactionAttempt(7, 1)
    assert transaction.is_live(attempt)
    transaction.move(Trigger.PROCESSED)
    assert (transaction.is_live(attempt), transaction.job_id) == (True, 3)
    transaction.move(Trigger.FAIL)
    assert (transaction.is_live(attempt), transaction.attempt, transaction.job_id) == (False, None, None)


def test_attempts_rise_when_a_transaction_is_begun_anew() -> None:
    """Tries outlive the transaction, so its next incarnation goes on counting."""
    tries = Tries()
    first = Transaction(7, "m", NEVER, tries).begin_attempt(1, Trigger.START)
    second = Transaction(7, "M", NEVER, tries).begin_attempt(1, Trigger.START)
    assert first < second


def test_no_attempt_begins_in_a_wrong_status() -> None:
    """A transition that is not in the table leaves all as it was."""
    transaction = Transaction(7, "m7", NEVER, Tries())
    with pytest.raises(InternalError):
        transaction.begin_attempt(1, Trigger.WRITE_DEAD_LETTER)
    assert (transaction.attempt, transaction.tries.attempts) == (None, 0)
