"""Repeated failures: what is logged of them."""

import logging
import os
import traceback

import pytest

from spouts import MemoryTransactionalSpout
from state import MemoryState
from state.memory import OpenedMemoryState
from tests.bolts import Count
from tests.topologies import committing, run_pausing
from txtopo import Config, FailedException, Fields, ReportedFailedException
from txtopo.attempts import TransactionAttempt
from txtopo.errors import TxtopoError
from txtopo.testing import run_inline
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


class Telling(Count):
    """Fails for a reason that has secrets in it."""

    def __init__(self, failure: type[Exception]) -> None:
        super().__init__()
        self.failure = failure

    def finish_batch(self):
        raise self.failure("hunter2 at postgresql://me:swordfish@host/shop")


@pytest.mark.parametrize("policy", ["SKIP", "WAIT"])
@pytest.mark.parametrize("failure", [FailedException, ReportedFailedException, ValueError])
def test_reasons_have_no_secrets(caplog, monkeypatch, tmp_path, failure, policy):
    """Whoever calls ``run()`` has handlers of their own: neither the log, nor the report, nor the error that is raised
    has a secret of the settings, or of a known form.
    """
    monkeypatch.chdir(tmp_path)
    topology = committing(
        MemoryTransactionalSpout(["a"], Fields("word"), 1),
        Telling(failure),
        words=MemoryState(Fields("word"), Fields("n")),
    )
    tries = {"topology.transaction.max.attempts": 2, "topology.transaction.max.attempts.policy": policy}
    config = Config({**tries, "my.password": "hunter2"})
    told = []
    with caplog.at_level(logging.DEBUG, "txtopo"):
        try:
            told.append(run_inline(topology, config).last_failure)
        except TxtopoError as error:
            told += [*traceback.format_exception(error), repr(error), str(vars(error))]
    for text in ("".join(told), caplog.text):
        assert "… at postgresql://…@host/shop" in text
        assert "hunter2" not in text
        assert "swordfish" not in text


def test_reasons_of_tables_have_none(caplog, monkeypatch, tmp_path):
    """Nor has what is said of a table that can't be written, at each try and at last."""
    monkeypatch.chdir(tmp_path)

    def refuse(*_):
        raise FailedException("hunter2 at postgresql://me:swordfish@host/shop")

    monkeypatch.setattr(OpenedMemoryState, "publish", refuse)
    state = MemoryState(Fields("word"), Fields("n"))
    topology = committing(MemoryTransactionalSpout(["a"], Fields("word"), 1), Count(), words=state)
    config = Config({"my.password": "hunter2"})
    with caplog.at_level(logging.DEBUG, "txtopo"), pytest.raises(TxtopoError) as raised:
        run_pausing(topology, config=config)
    for text in ("".join(traceback.format_exception(raised.value)), caplog.text):
        assert "… at postgresql://…@host/shop" in text
        assert "hunter2" not in text
        assert "swordfish" not in text
