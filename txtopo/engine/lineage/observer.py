"""The observer that tells a collector of lineage what a run does.

The run loop's thread only keeps facts. A thread of its own adds them up and sends what they amount to: an event says
all that the run has read and written so far, so those that a slow or broken collector does not take are not missed when
it takes a later one, and nothing queues up for it.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Protocol, Self

import attrs
from openlineage.client.client import OpenLineageClient
from openlineage.client.event_v2 import RunState

from txtopo.api.state import State
from txtopo.assembly.parts import Observer
from txtopo.assembly.snapshot import read_snapshot, snapshots_in
from txtopo.assembly.storage import metadata_dir_of
from txtopo.config import Config
from txtopo.engine.lineage.account import Account
from txtopo.engine.lineage.events import Events
from txtopo.errors import ConfigError, TxtopoError
from txtopo.journal.folders import find_journal
from txtopo.journal.journal import counting_parts, read_journal
from txtopo.text.secrecy import without_secrets
from txtopo.topology.topology import TransactionalTopology
from txtopo.transactional.core.actions import StopReason
from txtopo.transactional.core.record.facts import Fact
from txtopo.transactional.core.record.history import HistoryEvent, shortened
from txtopo.transactional.core.record.record import Record

RUNNING_SECS = 30.0
"""How often a run says that it goes on, if it has committed something."""

_FACTS_MAX = 256
"""Of more facts that wait, the run loop's thread adds up those that are there: they must not become ever more."""

CLOSE_SECS = 10.0
"""How long the end of a run waits for a collector."""

_TOLD = {HistoryEvent.COMMITTED, HistoryEvent.DEAD_LETTER_WRITTEN, HistoryEvent.FAILED}

logger = logging.getLogger("txtopo")


class Collector(Protocol):
    """What takes events: OpenLineage's client."""

    def emit(self, event: Any) -> None:
        """Send an event."""

    def close(self, timeout: float) -> Any:
        """Send what waits."""


def collector() -> Collector:
    """Return OpenLineage's client by environment and ``openlineage.yml``; raise ConfigError if these are wrong."""
    try:
        return OpenLineageClient()
    except Exception as error:  # of whatever a transport raises
        raise ConfigError(f"topology.lineage: OpenLineage's client can't be made of its settings: {error}") from error


@attrs.frozen
class _Event:
    """An event that was not sent yet; ``account`` is None for that of this run, as it is then."""

    kind: RunState
    epoch: int
    at_secs: float
    account: Callable[[], Account] | None = None
    error: str = ""


class Lineage(Observer):
    """Observes a run, and tells of it.

    ``states`` has those that txtopo adds, too; ``has_files``: whether the run leaves files, to find a killed one by;
    ``to`` takes the events, by default OpenLineage's client, each ``running_secs`` while the run goes on.
    """

    def __init__(  # noqa: PLR0913 - what a run has, and what tests replace
        self,
        topology: TransactionalTopology,
        states: Mapping[str, State],
        config: Config,
        *,
        has_files: bool = True,
        to: Collector | None = None,
        running_secs: float = RUNNING_SECS,
        close_secs: float = CLOSE_SECS,
    ) -> None:
        self._events = Events(topology, states)
        self._topology = topology
        self._config = config
        self._has_files = has_files
        self._to = to or collector()
        self._running_secs = running_secs
        self._close_secs = close_secs
        self._account = Account()
        self._facts: deque[Fact] = deque()
        self._lock = threading.Lock()
        self._unsent: deque[_Event] = deque()
        """The first and the last event of this run, and the last one of a run before it."""
        self._killed: _Event | None = None
        self._wake = threading.Event()
        self._is_over = False
        self._has_warned = False
        self._incarnation, self._epoch = "", 0
        self._thread = threading.Thread(target=self._run, name="txtopo-lineage", daemon=True)
        self.ended: str | None = None
        """Why the run has ended, in a StopReason's words; None if it has not, or with an error."""

    # The observer of a run, called in the run loop's thread.

    def leads(self, incarnation: str, epoch: int) -> None:
        """Tell that a run has started, and look whether the one before was killed."""
        self._incarnation, self._epoch = incarnation, epoch
        self._killed = self._killed_before()
        self._unsent.append(_Event(RunState.START, epoch, time.time()))
        self._thread.start()
        self._wake.set()

    def began(self, record: Record, executors_lost: Callable[[], int]) -> None:
        """Tell of the run that was killed: now the journal says what of it counts."""
        del record, executors_lost
        if self._killed is not None:
            self._unsent.appendleft(self._killed)
            self._wake.set()

    def recorded(self, fact: Fact) -> None:
        """Keep a fact."""
        if fact.what in _TOLD:
            self._facts.append(fact)
            if len(self._facts) > _FACTS_MAX:
                self._add_up()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, *_: object) -> None:
        """Tell how the run has ended; wait some seconds at most for a collector that hangs."""
        if not self._epoch:
            return
        if error is not None:
            text = error.message if isinstance(error, TxtopoError) else str(error)
            kind, why = RunState.FAIL, shortened(f"{type(error).__name__}: {without_secrets(text, self._config.given)}")
        else:
            kind, why = (RunState.ABORT if self.ended == StopReason.REQUESTED.value else RunState.COMPLETE), ""
        self._unsent.append(_Event(kind, self._epoch, time.time(), error=why))
        self._is_over = True
        self._wake.set()
        self._thread.join(self._close_secs)
        if self._thread.is_alive():
            self._warn("it did not answer in time")

    def _killed_before(self) -> _Event | None:
        """Return the event that ends the run before, if it could not tell so itself."""
        if not self._has_files:
            return None
        metadata_dir = metadata_dir_of(self._topology.plan, self._config)
        with contextlib.suppress(OSError, TxtopoError):
            last_snapshot = read_snapshot(snapshots_in(metadata_dir), self._topology.id)
            if last_snapshot is not None:
                writer, snapshot = last_snapshot
                is_before = writer.incarnation == self._incarnation and writer.epoch < self._epoch
                if is_before and not snapshot.ended:
                    return _Event(
                        RunState.ABORT, writer.epoch, writer.written_secs, lambda: self._recorded_of(writer.epoch)
                    )
        return None

    def _recorded_of(self, epoch: int) -> Account:
        """Return what a run of an earlier epoch has read and written, by the journal."""
        account = Account()
        with contextlib.suppress(OSError, TxtopoError):
            journal = find_journal(metadata_dir_of(self._topology.plan, self._config), self._topology.id)
            for part in counting_parts(read_journal(journal), lambda _: True):
                for entry in part.entries if part.header.epoch == epoch else ():
                    account.add_recorded(entry)
        return account

    # The thread that tells.

    def _run(self) -> None:
        last_epoch: int | None = None
        while True:
            is_woken = self._wake.wait(self._running_secs)
            self._wake.clear()
            is_over = self._is_over
            self._add_up()
            is_all_sent = self._send_waiting()
            if is_over:
                with contextlib.suppress(Exception):
                    self._to.close(self._close_secs)
                return
            last = self._account.last
            if is_all_sent and not is_woken and last != last_epoch:
                last_epoch = last if self._send(_Event(RunState.RUNNING, self._epoch, time.time())) else last_epoch

    def _add_up(self) -> None:
        with self._lock:
            while self._facts:
                self._account.add(self._facts.popleft())

    def _send_waiting(self) -> bool:
        while self._unsent:
            event = self._unsent[0]
            if not self._send(event):
                return False
            with contextlib.suppress(ValueError):
                self._unsent.remove(event)
        return True

    def _send(self, event: _Event) -> bool:
        try:
            if event.account is None:
                with self._lock:
                    lineage_event = self._lineage_event(event, self._account)
            else:
                lineage_event = self._lineage_event(event, event.account())
            self._to.emit(lineage_event)
        except Exception as error:  # noqa: BLE001 - whatever a collector raises, the run goes on
            self._warn(f"{type(error).__name__}: {error}")
            return False
        return True

    def _lineage_event(self, event: _Event, account: Account) -> Any:
        return self._events.event(event.kind, self._incarnation, event.epoch, account, event.at_secs, event.error)

    def _warn(self, why: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            logger.warning(
                "lineage: the collector does not take events (%s); the run goes on, and tells all again with the next",
                without_secrets(why, self._config.given),
            )
