"""A process that was stopped while it waited for ZooKeeper blames the lost lead, not the server."""

import os
import select
import signal
import subprocess
import time

import pytest

from state.stores.zookeeper_session import _PATIENCE_MARGIN_SECS
from tests.fencing.zookeeper_view import viewing
from tests.processes import python
from tests.waiting import DEADLINE_SECS, wait_for
from txtopo.servers.zookeeper import ZooKeeperServer

pytestmark = pytest.mark.slow

SESSION_SECS = 0.6
PATIENCE_SECS = SESSION_SECS + _PATIENCE_MARGIN_SECS
SILENT_SECS = 0.2
PROGRAM = """
import itertools, sys
from state.stores.zookeeper import ZooKeeperStore
from txtopo.api.store import Put
lead = ZooKeeperStore(sys.argv[1], sys.argv[2], float(sys.argv[3])).take_lead("words", "test")
for number in itertools.count():
    print(number, flush=True)
    lead.write([Put("words/x", str(number).encode())])
"""


@pytest.mark.long
def test_stopped_while_it_waits_for_an_answer(server: ZooKeeperServer, root: str) -> None:
    """Stopped in the middle of a write for longer than answers are waited for, a leader says that its lead is lost."""
    with (
        viewing(server.hosts, root) as view,
        python("-c", PROGRAM, server.hosts, root, SESSION_SECS, stderr=subprocess.PIPE) as writer,
    ):
        try:
            assert writer.stdout is not None
            assert os.read(writer.stdout.fileno(), 1 << 16), "it writes"
            try:
                server.signal(signal.SIGSTOP)
                while select.select([writer.stdout], [], [], SILENT_SECS)[0]:  # until it waits for an answer
                    assert os.read(writer.stdout.fileno(), 1 << 16)
                writer.send_signal(signal.SIGSTOP)
                stopped_at = time.monotonic()
            finally:
                server.signal(signal.SIGCONT)
            wait_for("its session ends", lambda: view.leading_session() is None)
            wait_for("its patience is over", lambda: time.monotonic() > stopped_at + PATIENCE_SECS + 1)
            writer.send_signal(signal.SIGCONT)
            _, errors = writer.communicate(timeout=DEADLINE_SECS)
        finally:
            writer.kill()
    assert writer.returncode == 1
    assert "LostLead: the lead of topology 'words', epoch 1, is lost" in errors
