"""The feed: asks the spouts' coordinators for transactions, in a separate thread.

The run creates the coordinators before it takes the lead, so that bad input is reported before anything is written.
They get their places in the store later, from :meth:`SpoutFeed.open_store`.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import functools
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from typing import Any, Protocol

import attrs

from txtopo.api.components.planned import BeginReason, Planned
from txtopo.api.components.spout import Lag
from txtopo.api.reference import SeenVersion
from txtopo.api.store import Lead, Store
from txtopo.assembly.feed.asked_spout import AskedSpout
from txtopo.assembly.feed.references import References
from txtopo.assembly.feed.skew import Skew
from txtopo.assembly.threads import completed
from txtopo.attempts import FIRST_TXID, TransactionAttempt
from txtopo.errors import FailedException, InputError, StopError, TxtopoError
from txtopo.topology.user_code.blame import user_code
from txtopo.topology.user_code.output import ended
from txtopo.transactional.core.actions import CreateMetadata
from txtopo.transactional.core.events import Event, MetadataCreated, RuleBroken, SourceStatus, TransactionMetadata
from txtopo.transactional.recovery.values import as_json

WAIT_SECS = 0.1
"""How long a request waits for a source that has nothing; then the core is told, and asks again."""

BEHIND_MAX_MS = 60_000
"""How far the clock may be behind the last transaction's time without a warning; between machines it may differ."""

logger = logging.getLogger("txtopo")

_NOTHING = MetadataCreated((), SourceStatus.WAITING)


class Feed(Protocol):
    """Begins transactions: a run asks it for them, in a separate thread."""

    total: int | None
    """The approximate txid of the last transaction; None if unknown."""

    @property
    def lags(self) -> Mapping[str, Lag]:
        """How much of each spout's source no transaction has taken, as far as it is known."""
        return {}

    def open_store(self, store: Store, lead: Lead, root: str) -> None:
        """Take a place in the store of the coordinator state; called once, before all else."""

    def create(self, action: CreateMetadata, committed: int) -> Event:
        """Begin up to the requested number of transactions; wait a little if there is none."""

    def finish(self, committed: int) -> None:
        """Take in what is committed at the end of a run."""

    def close(self) -> None:
        """Release resources."""


class SpoutFeed(Feed):
    """Begins transactions as the users' coordinators of spouts decide.

    A transaction takes what each source has when it begins. None is waited for: a transaction begins without those that
    have nothing then, or do not answer.
    """

    def __init__(  # noqa: PLR0913 - its spouts, its clocks, and what the bolts ask for
        self,
        spouts: Sequence[AskedSpout],
        now_secs: Callable[[], float] = time.monotonic,
        sleep: Callable[[float, Sequence[Future[None]]], object] = lambda secs, _: time.sleep(secs),
        *,
        cpu_secs: Callable[[], float] = time.thread_time,
        aside: Callable[[Callable[[], None]], Future[None]] = completed,
        wall_secs: Callable[[], float] = time.time,
        quiet_after: dt.timedelta | None = None,
        at_end: bool = False,
        references: References | None = None,
        skew: Skew | None = None,
    ) -> None:
        self._references = references or References({})
        self._skew = skew
        self._spouts = tuple(spouts)
        self._now_secs = now_secs
        self._sleep = sleep
        self._cpu_secs = cpu_secs
        self._aside = aside
        self._wall_secs = wall_secs
        self._quiet_after_ms = None if quiet_after is None else quiet_after // dt.timedelta(milliseconds=1)
        self._at_end = at_end
        self._asked_since_ms: int | None = None
        self._has_warned_of_clock = False
        self.total: int | None = None
        """The approximate txid of the last transaction; None if a coordinator does not know it."""

    @property
    def lags(self) -> Mapping[str, Lag]:
        """How much of each spout's source no transaction has taken, as far as the coordinators know."""
        return {spout.id: spout.lag for spout in self._spouts}

    def open_store(self, store: Store, lead: Lead, root: str) -> None:
        """Set the place in the store for the users' coordinators."""
        for spout in self._spouts:
            spout.open_store(store, lead, root)

    def create(self, action: CreateMetadata, committed: int) -> Event:
        """Begin up to the requested number of transactions, and report the source's status.

        While no source has anything, this waits, in the thread that asks: so a transaction begins within two
        milliseconds, or ten after the first in a while or after a second without one, and an idle source costs little.
        After ``WAIT_SECS`` it reports that the source waits.

        Raises:
            StopError: a spout's coordinator found that the lead is lost.
        """
        deadline = self._now_secs() + WAIT_SECS
        while self._is_due_before(deadline):
            event = self._create(action, committed)
            if event != _NOTHING:
                return event
            while not self._is_failing and self._is_due_before(deadline):
                if self._has_come():
                    break
        return _NOTHING

    @property
    def _is_failing(self) -> bool:
        return any(spout.is_failing for spout in self._spouts)

    def _due(self) -> list[AskedSpout]:
        now = self._now_secs()
        return [spout for spout in self._spouts if spout.aside is None and spout.ask_again_secs <= now]

    def _is_due_before(self, deadline: float) -> bool:
        """Wait until a source is to be asked again, or until the deadline; return whether one is to be asked.

        A coordinator that can wait for its source is let wait, and is asked once something has come.
        """
        if any(spout.aside is not None and spout.aside.done() for spout in self._spouts):
            return True
        if self._due_secs(deadline) > self._now_secs() and self._is_woken(deadline):
            return True
        now, due = self._now_secs(), self._due_secs(deadline)
        asides = [spout.aside for spout in self._spouts if spout.aside is not None]
        self._sleep(max(0.0, due - now), asides)
        return max(now, due) < deadline or any(aside.done() for aside in asides)

    def _due_secs(self, deadline: float) -> float:
        """Return when the next source is to be asked, at the latest the deadline."""
        return min([deadline, *(spout.ask_again_secs for spout in self._spouts if spout.aside is None)])

    def _is_woken(self, deadline: float) -> bool:
        """Let coordinators wait, of several aside those that can; return whether one has something."""
        is_alone = len(self._spouts) == 1
        for spout in self._spouts:
            is_waiting = spout.status is SourceStatus.WAITING and spout.waits_since is not None
            if not is_waiting or spout.was_woken or spout.is_failing or spout.aside is not None:
                continue
            started = self._now_secs()
            secs = (deadline if is_alone else self._due_secs(deadline)) - started
            if spout.can_wait and not is_alone:
                spout.aside = self._aside(functools.partial(self._wait, spout, WAIT_SECS))
            elif secs > 0:
                self._wait(spout, secs)
                if spout.is_woken:
                    return True
        return False

    def _wait(self, spout: AskedSpout, secs: float) -> None:
        """Let a coordinator wait; it is asked again at once if it has something."""
        started = self._now_secs()
        try:
            with user_code(spout.id, None):
                has_come = spout.wait(secs)
        except FailedException as error:
            self._failed(spout, error, started)
            return
        spout.can_wait = has_come or self._now_secs() - started >= secs / 2
        if has_come:
            spout.ask_again_secs = started

    def _has_come(self) -> bool:
        """Ask waiting sources whether they have something now: it costs less than to begin a transaction in vain."""
        self._take_asides()
        due = self._due()
        before = [spout.status for spout in due]
        for spout in due:
            self._ask(spout, None, spout.ask)
        return [spout.status for spout in due] != before

    def _ask(self, spout: AskedSpout, attempt: TransactionAttempt | None, *questions: Callable[[], Any]) -> None:
        """Ask a source; if it has nothing, or the outside fails, it is asked again after a pause, and others go on."""
        started, cpu_before = self._now_secs(), self._cpu_secs()
        try:
            with user_code(spout.id, attempt):
                for question in questions:
                    question()
        except FailedException as error:
            self._failed(spout, error, started, self._cpu_secs() - cpu_before)
        else:
            if spout.status is not SourceStatus.READY:
                spout.pause(started, self._now_secs(), self._cpu_secs() - cpu_before)

    def _take_asides(self) -> None:
        """Take in sources that were asked, or waited, aside; one that answers again is asked anew with the others."""
        for spout in self._spouts:
            if spout.aside is not None and spout.aside.done():
                ended, spout.aside = spout.aside, None
                ended.result()
                if spout.is_failing and spout.answers:  # it was asked; after a wait it keeps its pause
                    spout.answered()
                    spout.status, spout.answers, spout.ask_again_secs = SourceStatus.WAITING, False, self._now_secs()

    def _failed(self, spout: AskedSpout, error: FailedException, started: float, cpu_secs: float = 0.0) -> None:
        self._asked_since_ms = None
        spout.failed(error)
        spout.pause(started, self._now_secs(), cpu_secs)

    def _create(self, action: CreateMetadata, committed: int) -> Event:
        last = TransactionMetadata(action.first_txid - 1, action.previous_metadata, action.previous_planned)
        attempt = TransactionAttempt(action.first_txid, 0)
        if self._asked_since_ms is None:
            self._asked_since_ms = self._now_ms()
        self._warn_of_clock(last.txid, last.planned)
        due = []
        try:
            self._take_asides()
            for spout in self._due():
                questions = (functools.partial(spout.prepare, last, committed), spout.ask)
                if spout.is_failing and len(self._spouts) > 1:
                    spout.aside = self._aside(functools.partial(self._ask, spout, attempt, *questions))
                else:
                    self._ask(spout, attempt, *questions)
                    due.append(spout)
            created = self._begin_up_to(action.count, last, due)
            last = created[-1] if created else last
            for spout in due:
                if spout.answers:
                    self._ask(spout, attempt, functools.partial(spout.look_ahead, last.metadata))
            remaining = [spout.remaining for spout in self._spouts]
            self.total = None if None in remaining else last.txid + max(filter(None, remaining), default=0)
            return self._answer(action, created, committed)
        except StopError:
            raise
        except TxtopoError as error:
            return RuleBroken(error)
        finally:
            ended(attempt)

    def _begin_up_to(
        self, count: int, last: TransactionMetadata, spouts: Sequence[AskedSpout]
    ) -> list[TransactionMetadata]:
        """Begin transactions while a source that was asked has something, each with what all of them have."""
        created: list[TransactionMetadata] = []
        while len(created) < count:
            attempt = TransactionAttempt(last.txid + 1, 0)
            ready = [spout for spout in spouts if spout.status is SourceStatus.READY]
            ahead = frozenset() if self._skew is None else self._skew.ahead([spout.id for spout in ready])
            ready = [spout for spout in ready if spout.id not in ahead]
            try:
                references = self._reference_versions(attempt.txid, last.planned, ready) if ready else ()
            except InputError:
                if not created:
                    raise
                break  # those before it begin: then they can be planned again, and the next one comes after them
            if references is None:
                break
            metadata: Any = last.metadata or {}
            used_spouts = set()
            for spout in ready:
                started = self._now_secs()
                try:
                    with user_code(spout.id, attempt):
                        spout_metadata = spout.begin(attempt.txid, metadata.get(spout.id))
                        # Through JSON, so that the first attempt sees the same metadata as one after a crash.
                        metadata = as_json({**metadata, spout.id: spout_metadata})
                    used_spouts.add(spout.id)
                except FailedException as error:
                    self._failed(spout, error, started)
            if not used_spouts:
                break
            planned = self._planned(last.planned, BeginReason.INPUT, references)
            without = tuple(spout.id for spout in self._spouts if spout.id not in used_spouts)
            planned = attrs.evolve(planned, without=without, ahead=tuple(sorted(ahead)))
            last = TransactionMetadata(attempt.txid, metadata, planned)
            created.append(last)
            for spout in ready:
                if spout.id in used_spouts:
                    self._ask(spout, attempt, spout.ask)
            ended(attempt)
        return created

    def _answer(self, action: CreateMetadata, created: list[TransactionMetadata], committed: int) -> MetadataCreated:
        """Return the answer to a request, alone with a transaction without input if it is time for one."""
        status = self._status()
        for spout in self._spouts:
            if spout.answers and spout.aside is None:
                spout.answered()
        if self._is_failing:
            return MetadataCreated(tuple(created), status)
        if not created:
            turn = self._turn_without_input(action, status, committed)
            references = (
                None
                if turn is None
                else self._reference_versions(action.first_txid, action.previous_planned, self._spouts)
            )
            if turn is not None and references is not None:
                planned = self._planned(action.previous_planned, turn, references)
                created = [TransactionMetadata(action.first_txid, action.previous_metadata, planned)]
        last = created[-1].planned if created else action.previous_planned
        has_any = created or action.first_txid > FIRST_TXID
        if status is SourceStatus.EXHAUSTED and has_any and self._owes_end(last):
            status = SourceStatus.READY if created else SourceStatus.WAITING  # so that the core asks for the end
        return MetadataCreated(tuple(created), status)

    def _status(self) -> SourceStatus:
        statuses = {SourceStatus.WAITING if spout.aside is not None else spout.status for spout in self._spouts}
        if SourceStatus.READY in statuses:
            return SourceStatus.READY
        return SourceStatus.WAITING if SourceStatus.WAITING in statuses else SourceStatus.EXHAUSTED

    def _turn_without_input(self, action: CreateMetadata, status: SourceStatus, committed: int) -> BeginReason | None:
        """Return why a transaction without input is to begin; None if none is, as after a restart at the end."""
        before = action.previous_planned
        if action.first_txid == FIRST_TXID:  # nothing has come yet, so there is nothing to end
            return None
        is_certain = committed == action.first_txid - 1 or not any(spout.may_roll_back for spout in self._spouts)
        if status is SourceStatus.EXHAUSTED:
            return BeginReason.END if is_certain and self._owes_end(before) else None
        # After an end there is nothing open. And one at a time: while a transaction is tried again and again, those
        # behind it would only take the place of input.
        if self._quiet_after_ms is None or before.turn is BeginReason.END or committed < action.first_txid - 1:
            return None
        # Silence counts while it is heard: after a stop, or while the source can't be asked, input may have piled up.
        heard_since_ms = max(before.at_ms, self._asked_since_ms or 0)
        return BeginReason.QUIET if self._now_ms() - heard_since_ms >= self._quiet_after_ms else None

    def _owes_end(self, last: Planned) -> bool:
        return self._at_end and last.turn is not BeginReason.END

    def _reference_versions(
        self, txid: int, before: Planned, waiting: Sequence[AskedSpout]
    ) -> tuple[SeenVersion, ...] | None:
        """Return the versions of reference tables for a transaction; None if one can't be read at the moment."""
        started = self._now_secs()
        try:
            return self._references.after(before, txid)
        except FailedException as error:  # nothing can begin, as if no source did answer
            for spout in waiting:
                self._failed(spout, error, started)
            return None

    def _planned(self, before: Planned, turn: BeginReason, references: tuple[SeenVersion, ...]) -> Planned:
        at_ms = max(self._now_ms(), before.at_ms)  # somebody may have set the clock back
        return Planned(at_ms, turn, references=references)

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
        """Tell the users' coordinators what is committed at the end of a run, before they are closed."""
        wait([spout.aside for spout in self._spouts if spout.aside is not None])
        for spout in self._spouts:
            spout.finish(committed)

    def close(self) -> None:
        """Close the users' coordinators."""
        with contextlib.ExitStack() as stack:
            for spout in self._spouts:
                stack.callback(spout.close)
