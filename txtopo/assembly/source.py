"""The source: asks the spout's coordinator for transactions, in its own thread.

The run creates the coordinator before it takes the lead, so that bad input is reported before anything is written. The
coordinator gets its place in the store later, from :meth:`Source.open_store`.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from txtopo.api.components.optional import call_if_there
from txtopo.api.components.planned import Planned, Turn
from txtopo.api.components.spout import Lag
from txtopo.api.data.copying import copied_json
from txtopo.api.store import Change, Lead, Store
from txtopo.attempts import FIRST_TXID, TransactionAttempt
from txtopo.errors import FailedException, StopError, TxtopoError
from txtopo.failpoints import durable_step
from txtopo.topology.spout_semantics import SpoutSemantics
from txtopo.topology.user_code.blame import user_code
from txtopo.topology.user_code.output import ended
from txtopo.transactional.core.actions import CreateMetadata
from txtopo.transactional.core.events import Event, MetadataCreated, RuleBroken, SourceStatus, TransactionMetadata
from txtopo.transactional.recovery.coordinator_state import as_json
from txtopo.transactional.tasks.failures import FailureLog

WAIT_SECS = 0.1
"""How long a request waits for a source that has nothing; then the core is told, and asks again."""

ASK_SECS = 0.002
"""The pause before a source that has just begun to wait is asked again; to wake a thread costs more than to ask."""

IDLE_SHARE = 100
"""While the source waits, the pause grows to a hundredth of the time that it has waited, up to ``IDLE_ASK_SECS``: what
comes every 200 ms waits for 1 ms on average."""

IDLE_ASK_SECS = 0.01
"""The longest of these pauses: an idle topology would take 3 % of a core if its source were asked every 2 ms."""

ASK_SHARE = 100
"""The pause is at least 100x the time that the answer took, so that asking takes at most 1 % of a core."""

ASK_PAUSE_MAX_SECS = 1.0
"""The longest pause: an answer that took long was waited for, and took no core. A broker that restarts lets a question
wait for half a second, and 100x that would leave its records unread for most of a minute."""

FAILED_SECS = 0.02
"""The pause after a source has failed."""

BEHIND_MAX_MS = 60_000
"""How far the clock may be behind the last transaction's time without a warning; between machines it may differ."""

logger = logging.getLogger("txtopo")

_NOTHING = MetadataCreated((), SourceStatus.WAITING)


class Begins(Protocol):
    """Begins transactions: a run asks it for them, in a thread of its own."""

    total: int | None
    """The approximate txid of the last transaction; None if unknown."""
    lag: Lag
    """How much of the source no transaction has taken, as far as it is known."""

    def open_store(self, store: Store, lead: Lead, root: str) -> None:
        """Take a place in the store of the coordinator state; called once, before all else."""

    def create(self, action: CreateMetadata, committed: int) -> Event:
        """Begin up to the requested number of transactions; wait a little if there is none."""

    def finish(self, committed: int) -> None:
        """Take in what is committed at the end of a run."""

    def close(self) -> None:
        """Release resources."""


class Source(Begins):
    """Begins transactions as the user's ``coordinator`` of a spout decides."""

    def __init__(  # noqa: PLR0913 - its parts, its clocks, and what the bolts ask for
        self,
        spout_id: str,
        coordinator: Any,
        semantics: SpoutSemantics,
        now_secs: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        *,
        wall_secs: Callable[[], float] = time.time,
        quiet_after: dt.timedelta | None = None,
        at_end: bool = False,
    ) -> None:
        self._spout_id = spout_id
        self._semantics = semantics
        self._coordinator = coordinator
        self._now_secs = now_secs
        self._sleep = sleep
        self._wall_secs = wall_secs
        self._quiet_after_ms = None if quiet_after is None else quiet_after // dt.timedelta(milliseconds=1)
        self._at_end = at_end
        self._asked_since_ms: int | None = None
        self._has_resumed = False
        self._has_warned_of_clock = False
        self._failures = FailureLog()
        self._ask_again_secs = 0.0
        self._waits_since: float | None = None
        self._store: tuple[Store, Lead, str] | None = None
        self._committed = -1
        self.total: int | None = None
        """The approximate txid of the last transaction; None if the coordinator does not know it."""
        self.lag = Lag()
        """How much of the source no transaction has taken, as far as the coordinator knows."""

    def open_store(self, store: Store, lead: Lead, root: str) -> None:
        """Set the place in the store for the user's coordinator, which gets it before ``resume``."""
        self._store = store, _KeepingLead(lead), root

    def create(self, action: CreateMetadata, committed: int) -> Event:
        """Begin up to the requested number of transactions, and report the source's status.

        While the source has nothing, this waits for it, in the thread that asks: so a transaction begins within two
        milliseconds, or ten after a second without one, and an idle source costs next to nothing. After
        ``WAIT_SECS`` it reports that the source waits.

        Raises:
            StopError: the spout's coordinator found that the lead is lost.
        """
        deadline = self._now_secs() + WAIT_SECS
        while self._is_due_before(deadline):
            started = self._now_secs()
            event = self._create(action, committed)
            if event != _NOTHING:
                self._waits_since = None
                return event
            self._pause_after(started)
            while not self._failures.is_source_failing and self._is_due_before(deadline):
                if self._has_come():
                    break
        return _NOTHING

    def _is_due_before(self, deadline: float) -> bool:
        """Wait until the source is to be asked again, or until the deadline; return whether it is to be asked.

        A coordinator that can wait for its source is let wait, and is asked once something has come: the pauses are
        there because asking costs something.
        """
        now, until = self._now_secs(), min(self._ask_again_secs, deadline)
        if now < until:
            if self._is_woken(until - now):
                self._ask_again_secs = self._now_secs()
                return True
            self._sleep(max(0.0, until - self._now_secs()))
        return max(now, self._ask_again_secs) < deadline

    def _is_woken(self, secs: float) -> bool:
        """Let a coordinator that can wait do so, up to some seconds; return whether something has come."""
        if self._waits_since is None or self._failures.is_source_failing:
            return False
        started = self._now_secs()
        try:
            with user_code(self._spout_id, None):
                return bool(call_if_there(self._coordinator, "wait_ready", secs, default=False))
        except FailedException as error:
            self._source_failed(error)
            self._pause_after(started)
            return False

    def _pause_after(self, started: float) -> None:
        """Set when the source is asked again, after an answer to a question of that time."""
        now = self._now_secs()
        if self._waits_since is None:
            self._waits_since = started
        pause_secs = min(max(ASK_SECS, (now - self._waits_since) / IDLE_SHARE), IDLE_ASK_SECS)
        if self._failures.is_source_failing:
            pause_secs = FAILED_SECS
        self._ask_again_secs = now + max(pause_secs, min(ASK_SHARE * (now - started), ASK_PAUSE_MAX_SECS))

    def _has_come(self) -> bool:
        """Ask a waiting source whether it has something now, which costs less than to begin a transaction in vain."""
        started = self._now_secs()
        try:
            with user_code(self._spout_id, None):
                if self._status() is not SourceStatus.WAITING:
                    return True
        except FailedException as error:
            self._source_failed(error)
        self._pause_after(started)
        return False

    def _create(self, action: CreateMetadata, committed: int) -> Event:
        begun: list[TransactionMetadata] = []
        previous = action.previous_metadata
        attempt = TransactionAttempt(action.first_txid, 0)
        if self._asked_since_ms is None:
            self._asked_since_ms = self._now_ms()
        self._warn_of_clock(action.first_txid - 1, action.previous_planned)
        try:
            with user_code(self._spout_id, attempt):
                self._resume(action.first_txid - 1, previous, action.previous_planned)
                self._clean_up(committed)
            for txid in range(action.first_txid, action.first_txid + action.count):
                attempt = TransactionAttempt(txid, 0)
                with user_code(self._spout_id, attempt):
                    status = self._status()
                    if status is not SourceStatus.READY:
                        self._failures.source_answered()
                        self._look_ahead(txid - 1, previous)
                        return self._answer(action, begun, status, committed)
                    # Through JSON, so that the first attempt sees the same metadata as one after a crash.
                    previous = as_json(self._semantics.begin(self._coordinator, txid, previous))
                planned = self._planned(begun[-1].planned if begun else action.previous_planned, Turn.INPUT)
                begun.append(TransactionMetadata(txid, previous, planned))
                ended(attempt)
            with user_code(self._spout_id, attempt):
                self._look_ahead(action.first_txid + len(begun) - 1, previous)
                status = self._status()
            self._failures.source_answered()
            return self._answer(action, begun, status, committed)
        except FailedException as error:
            # An external failure: what was begun before it counts, and the core asks again after its poll interval.
            self._source_failed(error)
            return MetadataCreated(tuple(begun), SourceStatus.WAITING)
        except StopError:
            raise
        except TxtopoError as error:
            return RuleBroken(error)
        finally:
            ended(attempt)

    def _source_failed(self, error: FailedException) -> None:
        self._asked_since_ms = None
        self._failures.source_failed(error)

    def _answer(
        self, action: CreateMetadata, begun: list[TransactionMetadata], status: SourceStatus, committed: int
    ) -> MetadataCreated:
        """Return the answer to a request, with a transaction without input if it is time for one.

        It begins alone, when it is known where the transaction before has ended: its metadata is the same.
        """
        if not begun:
            turn = self._turn_without_input(action, status, committed)
            if turn is not None:
                planned = self._planned(action.previous_planned, turn)
                begun = [TransactionMetadata(action.first_txid, action.previous_metadata, planned)]
        last = begun[-1].planned if begun else action.previous_planned
        if status is SourceStatus.EXHAUSTED and begun and self._owes_end(last):
            status = SourceStatus.READY  # so that the core asks again, and gets the end
        return MetadataCreated(tuple(begun), status)

    def _turn_without_input(self, action: CreateMetadata, status: SourceStatus, committed: int) -> Turn | None:
        """Return why a transaction without input is to begin; None if none is.

        What the last transaction was is durable, so a restart begins no second end.
        """
        before = action.previous_planned
        if action.first_txid == FIRST_TXID:  # nothing has come yet, so there is nothing to end
            return None
        if status is SourceStatus.EXHAUSTED:
            return Turn.END if self._owes_end(before) else None
        # After an end there is nothing open. And one at a time: while a transaction is tried again and again, those
        # behind it would only take the place of input.
        if self._quiet_after_ms is None or before.turn is Turn.END or committed < action.first_txid - 1:
            return None
        # Silence counts while it is heard: after a stop, or while the source can't be asked, input may have piled up.
        heard_since_ms = max(before.at_ms, self._asked_since_ms or 0)
        return Turn.QUIET if self._now_ms() - heard_since_ms >= self._quiet_after_ms else None

    def _owes_end(self, last: Planned) -> bool:
        return self._at_end and last.turn is not Turn.END

    def _planned(self, before: Planned, turn: Turn) -> Planned:
        return Planned(max(self._now_ms(), before.at_ms), turn)  # somebody may have set the clock back

    def _warn_of_clock(self, txid: int, before: Planned) -> None:
        """Log once that transactions are planned at a time that has not come yet."""
        if self._has_warned_of_clock or before.at_ms - self._now_ms() <= BEHIND_MAX_MS:
            return
        self._has_warned_of_clock = True
        held_up = "" if self._quiet_after_ms is None else "; no idle timeout of event time passes before then"
        logger.warning(
            "the clock shows %s, but transaction %d was planned at %s: either it was ahead then, or it is behind now "
            "and must be set. Until it shows that time, all transactions are planned at it%s",
            Planned(self._now_ms()).at.isoformat(" ", "seconds"),
            txid,
            before.at.isoformat(" ", "seconds"),
            held_up,
        )

    def _now_ms(self) -> int:
        return int(self._wall_secs() * 1000)

    def finish(self, committed: int) -> None:
        """Tell the user's coordinator what is committed at the end of a run, before it is closed."""
        if self._has_resumed:
            # A failure costs nothing: the next run calls cleanup_before again.
            with contextlib.suppress(FailedException, StopError), user_code(self._spout_id, None):
                self._clean_up(committed)

    def close(self) -> None:
        """Close the user's coordinator."""
        with user_code(self._spout_id, None):
            call_if_there(self._coordinator, "close")

    def _resume(self, txid: int, metadata: Any, planned: Planned) -> None:
        """Pass the last transaction to the spout's coordinator, which has not to know of those without input."""
        if self._has_resumed and not planned.has_input:
            return  # an opaque spout's coordinator may look for transactions that took nothing, and ask less often
        if not self._has_resumed and self._store is not None:
            call_if_there(self._coordinator, "open_store", *self._store)
        self._semantics.resume(self._coordinator, txid, metadata, is_first=not self._has_resumed)
        self._has_resumed = True

    def _clean_up(self, committed: int) -> None:
        if committed > self._committed:
            call_if_there(self._coordinator, "cleanup_before", committed + 1)
            self._committed = committed

    def _look_ahead(self, txid: int, metadata: Any) -> None:
        """Ask how much is left, for displays and metrics."""
        remaining = call_if_there(self._coordinator, "remaining", copied_json(metadata))
        self.total = None if remaining is None else txid + remaining
        lag = call_if_there(self._coordinator, "lag")
        self.lag = lag if isinstance(lag, Lag) else Lag(records=lag)

    def _status(self) -> SourceStatus:
        if call_if_there(self._coordinator, "is_exhausted", default=False):
            return SourceStatus.EXHAUSTED
        is_ready = call_if_there(self._coordinator, "is_ready", default=True)
        return SourceStatus.READY if is_ready else SourceStatus.WAITING


class _KeepingLead(Lead):
    """A lead for the spout's coordinator, whose writes are a failpoint's durable step."""

    def __init__(self, lead: Lead) -> None:
        self._lead = lead

    @property
    def epoch(self) -> int:
        return self._lead.epoch

    def write(self, changes: Sequence[Change]) -> None:
        # The coordinator of a spout keeps what it needs for transactions that it is about to begin. A crash after this
        # leaves values of a transaction that never began; the spout overwrites them when it begins that transaction.
        with durable_step("spout.keep"):
            self._lead.write(changes)

    def is_held(self) -> bool:
        return self._lead.is_held()

    def release(self) -> None:
        self._lead.release()
