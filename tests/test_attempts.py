"""Attempt numbers rise, across crashes and leaders too."""

import pytest
from hypothesis import given, strategies as st

from txtopo.attempts import ATTEMPTS_PER_EPOCH_BITS, FIRST_EPOCH, TransactionAttempt, attempt_number
from txtopo.errors import TxtopoError

TRIES_MAX = (1 << ATTEMPTS_PER_EPOCH_BITS) - 2
EPOCHS = st.integers(FIRST_EPOCH, 1 << 30)
TRIES = st.integers(0, TRIES_MAX)


def test_in_the_first_epoch_attempts_are_plain() -> None:
    """Attempts of a topology that never crashed are 1, 2, 3."""
    assert [attempt_number(FIRST_EPOCH, tries) for tries in range(3)] == [1, 2, 3]


@given(epoch=EPOCHS, tries=TRIES)
def test_the_epoch_can_be_read_from_an_attempt(epoch: int, tries: int) -> None:
    """Every attempt tells which leader made it."""
    assert TransactionAttempt(1, attempt_number(epoch, tries)).epoch == epoch


@given(first=st.tuples(EPOCHS, TRIES), second=st.tuples(EPOCHS, TRIES))
def test_later_epochs_are_above_all_earlier_ones(first: tuple[int, int], second: tuple[int, int]) -> None:
    """Attempts are ordered by epoch, and by tries within one; a later leader needs no durable count."""
    assert (attempt_number(*first) < attempt_number(*second)) == (first < second)
    assert (attempt_number(*first) == attempt_number(*second)) == (first == second)


@pytest.mark.parametrize(("epoch", "tries"), [(0, 0), (1, -1), (1, TRIES_MAX + 1)])
def test_what_does_not_fit_is_refused(epoch: int, tries: int) -> None:
    """An epoch below the first, or more tries than an epoch has room for, is our mistake."""
    with pytest.raises(AssertionError):
        attempt_number(epoch, tries)


def test_attempts_are_shown_in_words() -> None:
    """A message tells epoch and try, not the number that both make."""
    attempt = TransactionAttempt(7, attempt_number(3, 0))
    assert str(attempt) == "transaction 7, attempt 1, epoch 3"
    assert repr(attempt) == "TransactionAttempt(txid=7, attempt=1, epoch=3)"
    assert attempt.attempt == 2 * (1 << ATTEMPTS_PER_EPOCH_BITS) + 1
    error = TxtopoError("no", component="count", txid=7, attempt=attempt.attempt)
    assert str(error) == "[component 'count', txid 7, attempt 1, epoch 3] no"
