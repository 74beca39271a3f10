"""Repeated failures: what is logged of them."""

from __future__ import annotations

import logging
import os

import pytest

from txtopo.attempts import TransactionAttempt
from txtopo.transactional.core.record.facts import Trouble
from txtopo.transactional.core.record.history import HistoryEvent
from txtopo.transactional.tasks.failures import FailureLog


@pytest.mark.parametrize(
    ("error", "load", "is_hinted"),
    [("no progress for 30 s", 9.0, True), ("no progress for 30 s", 3.9, False), ("not a word", 9.0, False)],
)
def test_a_busy_machine(caplog, monkeypatch, error, load, is_hinted):
    """An attempt without progress is no riddle where more processes want the cores than there are."""
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    with caplog.at_level(logging.INFO, "txtopo"):
        FailureLog().add(Trouble(0.0, HistoryEvent.FAILED, (7,), (TransactionAttempt(7, 1),), reason=error, times=1))
    assert ("raise topology.message.timeout.secs" in caplog.text) == is_hinted
