"""The checkers see what they are there to see."""

import pytest

from state import OpaqueValue, TransactionalValue
from txtopo.api.components.planned import Planned
from txtopo.attempts import TransactionAttempt
from txtopo.journal.entries import JournalEntry, JournalHeader, JournalPart, JournalTransaction
from txtopo.testing.checkers import (
    AttemptChecker,
    BlameChecker,
    Oracle,
    TableChecker,
    Version,
    Violation,
    check_input,
    check_journal,
)
from txtopo.transactional.core.actions import AssignedAttempt

ORACLE = Oracle({"t": [(1, {"a": TransactionalValue(1, 5)}), (3, {"a": TransactionalValue(3, 9)})]}, 9, 3)


def entry(*txids: int, tuples: int = 3) -> JournalEntry:
    return JournalEntry({"t": (1, 0)}, tuple(JournalTransaction(t, 1, None, {"spout": (tuples, 0)}) for t in txids))


def part(epoch: int, committed: int, *entries: JournalEntry) -> JournalPart:
    return JournalPart(JournalHeader("x", "life", epoch, {"spout": "repeatable"}, committed, None, {}, {}), entries)


def assigned(txid: int, attempt: int, metadata: str, at_ms: int = 7) -> AssignedAttempt:
    return AssignedAttempt(TransactionAttempt(txid, attempt), metadata, Planned(at_ms))


def test_attempts_that_repeat() -> None:
    """An attempt number comes once (promise 3)."""
    checker = AttemptChecker()
    checker.began(assigned(1, 1, "m"))
    with pytest.raises(Violation, match="promise 3"):
        checker.began(assigned(1, 1, "m"))


def test_metadata_that_changes() -> None:
    """Every attempt gets the same metadata and the same time, durable before it emits (promise 2)."""
    checker = AttemptChecker()
    checker.emits(assigned(1, 1, "m"), ("m", Planned(7)))
    for other in (assigned(1, 2, "other"), assigned(1, 3, "m", at_ms=8)):
        with pytest.raises(Violation, match="promise 2"):
            checker.began(other)
    with pytest.raises(Violation, match="promise 2"):
        checker.emits(assigned(2, 1, "m"), None)


def test_blame() -> None:
    """Only what was lost alone, again, and between others that were processed is held against a transaction."""
    for first, is_alone, is_well, is_proven, is_own in (
        (True, True, True, True, True),
        (False, True, True, True, False),
        (True, False, True, True, False),
        (True, True, False, True, False),
        (True, True, True, False, False),
    ):
        checker = BlameChecker()
        if first:
            checker.lost(1, is_alone=False, has_others=True)
        if is_well:
            checker.processed(2)
        else:
            checker.lost(2, is_alone=True, has_others=True)
        checker.lost(1, is_alone=is_alone, has_others=True)
        if is_proven:
            checker.processed(3)
        if is_own:
            checker.given_up(1, tries_max=1)
        else:
            with pytest.raises(Violation, match="promise 6"):
                checker.given_up(1, tries_max=1)
    checker = BlameChecker()
    checker.failed(1)
    checker.lost(1, is_alone=True, has_others=False)
    checker.lost(1, is_alone=True, has_others=False)
    checker.given_up(1, tries_max=2)
    with pytest.raises(Violation, match="promise 6"):
        checker.given_up(1, tries_max=3)


def test_tables() -> None:
    """A version that is not the oracle's, an older epoch, a txid that falls, and a table left behind are seen."""
    checker = TableChecker(ORACLE)
    empty, first = Version(0, None, 0, {}), Version(1, 1, 1, {"a": TransactionalValue(1, 5)})
    checker.written("t", empty, first)
    with pytest.raises(Violation, match="promise 8"):
        checker.written("t", first, Version(2, 3, 1, {"a": TransactionalValue(3, 10)}))
    with pytest.raises(Violation, match="promise 11"):
        checker.written("t", first, Version(2, 3, 0, {"a": TransactionalValue(3, 9)}))
    with pytest.raises(Violation, match="promise 1"):
        checker.written("t", Version(2, 3, 1, {}), Version(3, 2, 1, {}))
    with pytest.raises(Violation, match="promise 10"):
        checker.written(
            "o", Version(1, 1, 1, {"a": OpaqueValue(1, 5, None)}), Version(2, 2, 1, {"a": OpaqueValue(2, 7, 4)})
        )
    checker.settled(2, {"t": {"a": TransactionalValue(1, 5)}})
    with pytest.raises(Violation, match="promise 9"):
        checker.settled(3, {"t": {"a": TransactionalValue(1, 5)}})


def test_journal() -> None:
    """A void entry does not count; a transaction that is missing or there twice is seen (promise 1)."""
    parts = [part(1, 0, entry(1), entry(2, 3)), part(2, 1, entry(2), entry(3))]
    assert [each.last for each in check_journal(parts, 3)] == [1, 2, 3]
    for wrong in ([part(1, 0, entry(1), entry(3))], [part(1, 0, entry(1), entry(1, 2, 3))]):
        with pytest.raises(Violation, match="promise 1"):
            check_journal(wrong, 3)


def test_input() -> None:
    """Tuples that are missing are seen (promise 16)."""
    check_input([entry(1), entry(2, 3)], {"spout"}, 9)
    with pytest.raises(Violation, match="promise 16"):
        check_input([entry(1), entry(2, 3)], {"spout"}, 10)
