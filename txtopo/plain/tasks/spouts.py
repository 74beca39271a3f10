"""Tasks of spouts, and the executors that call them."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import attrs

from txtopo.api.components.context import SpoutEvent
from txtopo.api.components.spout import Spout, SpoutWaitStrategy
from txtopo.plain.tasks.collectors import SpoutCollector
from txtopo.plain.tasks.metrics import Counts, LatencyHistogram
from txtopo.plain.tasks.task import WEIGHED_SECS, Observer, Shared, Task
from txtopo.plain.trees.pending import PendingRoots
from txtopo.topology.plans.plain_plan import PlainComponent

SPOUT_CALLS_MAX = 256
"""The most calls of a spout executor's tasks in one pass. Then bolts work on what they emitted.

With 64, what a pass itself costs made tuples that are quickly executed 6 % dearer.
"""

SPOUT_UNCHECKED_MAX = 16
"""The most calls of quick tasks between two looks at the clock. Slow tasks are called once."""

POLL_SPOUT_SECS = 0.001
"""How long a spout that emitted nothing waits until its next call, as in Storm: nothing else would wake it up."""

IDLE_STREAK = 1_000
"""After this many passes in a row without a tuple, about a second, a spout waits for longer."""

POLL_IDLE_SPOUT_SECS = 0.01
"""How long it waits then: a core is not kept awake, and no tuple is later than that."""


class SpoutTask(Task):
    """A task of a spout. It opens its object when the topology is first active."""

    def __init__(self, shared: Shared, component: PlainComponent, task: int) -> None:
        super().__init__(shared, component, task)
        config = shared.config
        self.pending = PendingRoots(config.message_timeout_secs if config.enable_message_timeouts else None)
        self.latencies = LatencyHistogram()
        self._clock = shared.clock
        self.collector = SpoutCollector(
            self.output, self.pending, shared.assignment.ackers_of(shared.worker), shared.clock, self._acked_at_once
        )
        self._given = shared.observer.watched_spout(self.collector)
        """What the spout emits with."""
        self._acked = self._failed = 0
        self._is_open = self._is_active = False
        self._at_close: tuple[bool, int | None] | None = None
        """Whether it was exhausted, and its lag, once it is closed: reports ask for them later, too."""
        with self.user_code():
            self._spout: Spout = shared.make_object(component.id)

    @property
    def counts(self) -> Counts:
        """The counts of the task."""
        return attrs.evolve(self.collector.counts(), acked=self._acked, failed=self._failed)

    @property
    def is_done(self) -> bool:
        """Whether the spout is exhausted, with nothing pending."""
        if self._at_close is not None:
            return self._at_close[0] and not self.pending
        with self.user_code():
            return self._is_open and not self.pending and self._spout.is_exhausted()

    def lag(self) -> int | None:
        """Return how many records are between the spout and the end of its source; None if it does not know."""
        if not self._is_open:
            return None
        if self._at_close is not None:
            return self._at_close[1]
        with self.user_code():
            return self._spout.lag()

    def set_active(self, *, is_active: bool) -> None:
        """Activate or deactivate the spout; the first activation opens it."""
        with self.user_code():
            if is_active and not self._is_open:
                self._is_open = True
                self._spout.open(self.config, self.context, self._given)
            if is_active != self._is_active:
                self._is_active = is_active
                if is_active:
                    self._spout.activate()
                elif self._is_open:
                    self._spout.deactivate()

    def next_tuples(self, times: int, pending_max: int) -> int:
        """Call ``next_tuple``, up to ``times`` times, until it emits nothing or too much is pending.

        Return how often it emitted.
        """
        collector, roots, next_tuple = self.collector, self.pending.roots, self._spout.next_tuple
        try:
            for number in range(times):
                before = collector.emitted
                if len(roots) >= pending_max:
                    return number
                next_tuple()
                if collector.emitted == before:
                    return number
        except BaseException as error:  # noqa: BLE001 - the user's code
            raise self.blamed(error) from None
        return times

    def ack(self, roots: Sequence[int]) -> None:
        """Tell the spout that roots were acked, except those that are no longer pending: they have timed out."""
        now, hooks, settle = self._clock(), self._hooks, self.pending.settle
        acked = [pending for root in roots if (pending := settle(root)) is not None]
        self.latencies.add([now - pending.emitted_at for pending in acked])
        self._acked += len(acked)
        with self.user_code():
            tell_spout = self._spout.ack
            for pending in acked:
                if hooks:
                    self._tell("spout_acked", pending.message_id, now - pending.emitted_at)
                tell_spout(pending.message_id)

    def fail(self, roots: Sequence[int]) -> None:
        """Tell the spout that roots failed, except those that are no longer pending."""
        for root in roots:
            pending = self.pending.settle(root)
            if pending is not None:
                self._fail(pending.message_id, self._clock() - pending.emitted_at)

    def reset_timeouts(self, roots: Sequence[int]) -> None:
        """Begin the timeouts of roots again, except of those that are no longer pending."""
        for root in roots:
            self.pending.reset(root, self._clock())

    def expire(self) -> list[int]:
        """Fail the roots whose timeout has passed, and return them."""
        now = self._clock()
        expired = self.pending.expire(now)
        for _, pending in expired:
            self._fail(pending.message_id, now - pending.emitted_at)
        return [root for root, _ in expired]

    def close(self) -> None:
        """Close the spout if it was opened."""
        with self.user_code():
            if self._is_open:
                try:
                    is_exhausted, lag = self._spout.is_exhausted(), self._spout.lag()
                finally:
                    self._spout.close()
                with contextlib.suppress(Exception):  # it may commit in close(), and it may have nothing left to ask
                    lag = self._spout.lag()
                self._at_close = is_exhausted, lag
            self.close_hooks()

    def _fail(self, message_id: Any, latency: float) -> None:
        with self.user_code():
            self._failed += 1
            self._tell("spout_failed", message_id, latency)
            self._spout.fail(message_id)

    def _acked_at_once(self, message_id: Any) -> None:
        # The spout is in its own call of emit, so this needs no user_code().
        self._acked += 1
        self._tell("spout_acked", message_id, None)
        self._spout.ack(message_id)

    def _tell(self, method: str, message_id: Any, latency: float | None) -> None:
        for hook in self._hooks:
            getattr(hook, method)(SpoutEvent(message_id, self.id, latency))


@attrs.define(eq=False)
class SpoutExecutor:
    """Tasks of a spout that stay together; their pending roots have a common limit."""

    tasks: list[SpoutTask]
    pending_max: int = attrs.field(init=False)
    """``topology.max.spout.pending`` times the number of tasks."""
    wait: SpoutWaitStrategy | None = attrs.field(init=False)
    unchecked: int = 1
    """How often the tasks are called until the executor reads the clock."""
    streak: int = 0
    """Passes in a row in which no task emitted."""
    wait_secs: float | None = None
    """How long the spout waits until its next call; None: until something happens."""

    def __attrs_post_init__(self) -> None:
        config = self.tasks[0].config
        self.pending_max = config["topology.max.spout.pending"] * len(self.tasks)
        self.wait = config["topology.spout.wait.strategy"]

    def run(self, shared: Shared, *, is_throttled: bool) -> bool:
        """Call the tasks while they emit; return whether any of them did."""
        clock, tasks = shared.clock, self.tasks
        weighed_at = checked_at = clock()
        emitted, calls_left = False, 0 if is_throttled else SPOUT_CALLS_MAX
        shared.observer.turn(tasks[0].component.id, tasks[0].id)
        while calls_left > 0:
            times = min(self.unchecked, calls_left)
            called = self._call(times, shared.observer)
            emitted = emitted or called > 0
            if called < times:
                break
            calls_left -= called
            now = clock()
            self.unchecked = min(2 * self.unchecked, SPOUT_UNCHECKED_MAX) if now - checked_at < WEIGHED_SECS else 1
            checked_at = now
            if now - weighed_at >= WEIGHED_SECS:
                if shared.is_full():
                    break
                weighed_at = now
        self.streak = 0 if emitted else self.streak + 1
        self.wait_secs = None if emitted else self._wait_after_nothing(is_throttled=is_throttled)
        return emitted

    def _call(self, times: int, observer: Observer) -> int:
        """Call the tasks ``times`` times, or until none emits or too much is pending; return how often they emitted."""
        tasks, pending_max = self.tasks, self.pending_max
        if len(tasks) == 1:
            return tasks[0].next_tuples(times, pending_max)
        for number in range(times):
            if sum(len(task.pending) for task in tasks) >= pending_max:
                return number
            emitted = 0
            for task in tasks:  # all of them, whichever emits
                observer.turn(task.component.id, task.id)
                emitted += task.next_tuples(1, pending_max)
            if not emitted:
                return number
        return times

    def _wait_after_nothing(self, *, is_throttled: bool) -> float | None:
        """Return how long to wait; None if the spout waits for acks or is throttled: a frame ends either."""
        if self.wait is not None:
            with self.tasks[0].user_code():
                return self.wait.empty_emit(self.streak)
        if is_throttled or sum(len(task.pending.roots) for task in self.tasks) >= self.pending_max:
            return None
        return POLL_SPOUT_SECS if self.streak < IDLE_STREAK else POLL_IDLE_SPOUT_SECS
