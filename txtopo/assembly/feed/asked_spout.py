"""One spout, as the feed asks it: what its coordinator has, and when to ask again."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

from txtopo.api.components.optional import call_if_there
from txtopo.api.components.planned import last_txid_of, metadata_of
from txtopo.api.components.spout import Lag
from txtopo.api.data.copying import copied_json
from txtopo.api.store import Change, Lead, Store
from txtopo.errors import FailedException, StopError
from txtopo.failpoints import durable_step
from txtopo.topology.spout_semantics import SpoutSemantics
from txtopo.topology.user_code.blame import user_code
from txtopo.transactional.core.events import SourceStatus, TransactionMetadata
from txtopo.transactional.recovery.values import room_of_spout
from txtopo.transactional.tasks.failures import FailureLog

ASK_SECS = 0.002
"""The pause before a source that has just begun to wait is asked again; to wake a thread costs more than to ask."""

IDLE_SHARE = 100
"""While the source waits, the pause grows to a hundredth of the time that it has waited, up to ``IDLE_ASK_SECS``: what
comes every 200 ms waits for 1 ms on average."""

IDLE_ASK_SECS = 0.01
"""The longest of these pauses: an idle topology would take 3 % of a core if its source were asked every 2 ms."""

FIRST_ASK_SECS = 0.01
"""The pause after a source has just had something: each question would hold up the transaction that is under way.

Not if it had something again within two of them: the tuples of a steady stream would wait for it each time."""

ASK_SHARE = 100
"""The pause is at least 100x the processor time of the answer, so that asking takes at most 1 % of a core. Not 100x the
time: an answer that waited 7 ms for a core, or for Python's interpreter lock, left its source unasked for 0.7 s. But it
is at least as long as the answer took: a service that needs 50 ms for each is not asked all the time."""

ASK_PAUSE_MAX_SECS = 1.0
"""The longest pause."""

FAILED_SECS = 0.02
"""The pause after a source has failed."""


class AskedSpout:
    """What the coordinator of one spout, the user's, has, asked no more often than is worth it."""

    def __init__(self, spout_id: str, coordinator: Any, semantics: SpoutSemantics) -> None:
        self.id = spout_id
        self.status = SourceStatus.WAITING
        """What it answered last; a source that has failed waits."""
        self.answers = False
        """Whether it answered the last question."""
        self.ask_again_secs = 0.0
        """When it is to be asked again."""
        self.waits_since: float | None = None
        self._had_something_secs = float("-inf")
        """When it had nothing more, after it had something."""
        self.lag = Lag()
        """How much of the source no transaction has taken, as far as the coordinator knows."""
        self.remaining: int | None = None
        """About how many transactions are left, if the coordinator knows."""
        self.aside: Future[None] | None = None
        """A question to a source that did not answer the one before, or its wait; others do not wait for it."""
        self.can_wait = False
        """Whether it did wait when it was let to, or had something."""
        self.is_woken = False
        """Whether something has come while it waited, for which it was not asked yet."""
        self.was_woken = False
        """Whether it was asked last for that; if it had nothing, it does not wait before it was asked after a pause."""
        self._coordinator = coordinator
        self._semantics = semantics
        self._failures = FailureLog()
        self._store: tuple[Store, Lead, str] | None = None
        self._told: Any = None
        self._has_resumed = False
        self._has_begun = False
        """Whether it has begun a transaction since it was told of the last one: that may be rolled back."""
        self._committed = -1

    @property
    def may_roll_back(self) -> bool:
        """Whether it may have more again: what it had in transactions is cut anew if one of them fails."""
        return self._semantics.emits_in_turn

    @property
    def is_failing(self) -> bool:
        """Whether the last question has failed."""
        return self._failures.is_source_failing

    def open_store(self, store: Store, lead: Lead, root: str) -> None:
        """Set the place in the store for the user's coordinator, which gets it before ``resume``."""
        self._store = store, _KeepingLead(lead), room_of_spout(root, self.id)

    def prepare(self, last: TransactionMetadata, committed: int) -> None:
        """Tell the coordinator of the last transaction begun, and of what is committed, as far as it has to know."""
        self._resume(last)
        self._clean_up(committed)

    def ask(self) -> None:
        """Ask whether there is input."""
        self.status, self.answers = SourceStatus.WAITING, True
        self.was_woken, self.is_woken = self.is_woken, False
        if call_if_there(self._coordinator, "is_exhausted", default=False):
            self.status = SourceStatus.EXHAUSTED
        elif call_if_there(self._coordinator, "is_ready", default=True):
            self.status = SourceStatus.READY
            self.waits_since = None

    def begin(self, txid: int, previous: Any) -> Any:
        """Return this spout's part of a new transaction's metadata."""
        self._has_begun = True
        return self._semantics.begin(self._coordinator, txid, previous)

    def wait(self, secs: float) -> bool:
        """Let a coordinator that can wait do so, up to some seconds; return whether something has come."""
        self.is_woken = bool(call_if_there(self._coordinator, "wait_ready", secs, default=False))
        return self.is_woken

    def look_ahead(self, metadata: Any) -> None:
        """Ask how much is left, for displays and metrics."""
        self.remaining = call_if_there(self._coordinator, "remaining", copied_json(metadata_of(metadata, self.id)))
        lag = call_if_there(self._coordinator, "lag")
        self.lag = lag if isinstance(lag, Lag) else Lag(records=lag)

    def pause(self, started: float, now: float, cpu_secs: float) -> None:
        """Set when the source is asked again, after an answer without input to a question of a time."""
        if self.is_failing:
            pause_secs = FAILED_SECS
        elif self.waits_since is None:
            is_steady = started - self._had_something_secs <= 2 * FIRST_ASK_SECS
            pause_secs = ASK_SECS if is_steady else FIRST_ASK_SECS
        else:
            pause_secs = min(max(ASK_SECS, (now - self.waits_since) / IDLE_SHARE), IDLE_ASK_SECS)
        if self.waits_since is None:
            self.waits_since = self._had_something_secs = started
        again_secs = now + max(pause_secs, min(max(ASK_SHARE * cpu_secs, now - started), ASK_PAUSE_MAX_SECS))
        self.ask_again_secs = max(self.ask_again_secs, again_secs)

    def failed(self, error: FailedException) -> None:
        """Count a question that has failed."""
        self.status, self.answers = SourceStatus.WAITING, False
        self._failures.source_failed(error)

    def answered(self) -> None:
        """Record that a source that may have failed before answers again."""
        self._failures.source_answered()

    def finish(self, committed: int) -> None:
        """Tell the user's coordinator what is committed at the end of a run, before it is closed."""
        if self._has_resumed:
            # A failure costs nothing: the next run calls cleanup_before again.
            with contextlib.suppress(FailedException, StopError), user_code(self.id, None):
                self._clean_up(committed)

    def close(self) -> None:
        """Close the user's coordinator."""
        with user_code(self.id, None):
            call_if_there(self._coordinator, "close")

    def _resume(self, last: TransactionMetadata) -> None:
        """Pass the last transaction to the spout's coordinator, which has not to know of those without its input."""
        metadata = metadata_of(last.metadata, self.id)
        has_input = last.planned.has_input_of(self.id, last.metadata)
        if self._has_resumed and not self._has_begun and not has_input and metadata == self._told:
            return  # an opaque spout's coordinator may look for transactions that took nothing, and ask less often
        if not self._has_resumed and self._store is not None:
            call_if_there(self._coordinator, "open_store", *self._store)
        txid = last_txid_of(self.id, last.txid, last.metadata)
        self._semantics.resume(self._coordinator, txid, metadata, is_first=not self._has_resumed)
        self._has_resumed, self._has_begun, self._told = True, False, metadata

    def _clean_up(self, committed: int) -> None:
        if committed > self._committed:
            call_if_there(self._coordinator, "cleanup_before", committed + 1)
            self._committed = committed


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
