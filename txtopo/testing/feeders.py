"""Spouts and trackers for tests of plain topologies, shared by a test and the tasks of an in-process cluster."""

from __future__ import annotations

import itertools
import threading
import time
import uuid
import weakref
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from txtopo.api.components.bolt import OutputFieldsDeclarer
from txtopo.api.components.collector import SpoutOutputCollector
from txtopo.api.components.context import TopologyContext
from txtopo.api.components.spout import Spout
from txtopo.api.data.fields import Fields
from txtopo.api.data.tuples import DEFAULT_STREAM

WAIT_SECS = 120.0
"""How long a test waits for a condition; only one that fails waits so long, and a busy machine is slow."""

_PAUSE_SECS = 0.001


class Shared:
    """An object that pickles as a reference to itself: unpickled in this process, it is the same object."""

    _objects: ClassVar[weakref.WeakValueDictionary[str, Shared]] = weakref.WeakValueDictionary()

    def __init__(self) -> None:
        self._key = uuid.uuid4().hex
        Shared._objects[self._key] = self

    def __reduce__(self) -> tuple[Any, ...]:
        return _shared, (self._key, type(self).__name__)


def _shared(key: str, name: str) -> Shared:
    found = Shared._objects.get(key)  # noqa: SLF001 - of the same file
    if found is None:
        raise LookupError(
            f"a {name} is shared by a test and the tasks in its own process; another process, as on Spark, has none"
        )
    return found


class AckTracker(Shared):
    """Counts the roots that are acked."""

    def __init__(self) -> None:
        super().__init__()
        self._acked = 0
        self._lock = threading.Lock()

    def ack(self, message_id: Any) -> None:  # noqa: ARG002 - as a spout's
        """Count a root."""
        with self._lock:
            self._acked += 1

    def fail(self, message_id: Any) -> None:
        """Ignore a root."""

    def check(self, acked: int) -> None:
        """Assert that so many roots were acked since the last check."""
        with self._lock:
            found, self._acked = self._acked, 0
        assert found == acked, f"{found} roots were acked, not {acked}"


class AckFailMapTracker(Shared):
    """Keeps which message ids were acked and which failed, and how often."""

    def __init__(self) -> None:
        super().__init__()
        self.acked: Counter[Any] = Counter()
        self.failed: Counter[Any] = Counter()

    def ack(self, message_id: Any) -> None:
        """Record a root that was acked."""
        self.acked[message_id] += 1

    def fail(self, message_id: Any) -> None:
        """Record a root that failed."""
        self.failed[message_id] += 1

    def is_acked(self, message_id: Any) -> bool:
        """Whether a message was acked."""
        return message_id in self.acked

    def is_failed(self, message_id: Any) -> bool:
        """Whether a message failed."""
        return message_id in self.failed

    def assert_acked(self, *message_ids: Any) -> None:
        """Wait until these messages were acked; fail if some are not in time."""
        _wait_for(self.acked, message_ids, "acked")

    def assert_failed(self, *message_ids: Any) -> None:
        """Wait until these messages have failed; fail if some have not in time."""
        _wait_for(self.failed, message_ids, "failed")


def wait_until(condition: Callable[[], bool], timeout_secs: float = WAIT_SECS, pause_secs: float = _PAUSE_SECS) -> bool:
    """Wait until a condition holds, and return whether it does within a time; it is asked after each pause."""
    end = time.monotonic() + timeout_secs
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(pause_secs)
    return True


def _wait_for(found: Mapping[Any, int], message_ids: Sequence[Any], what: str) -> None:
    if not wait_until(lambda: found.keys() >= set(message_ids)):
        missing = [each for each in message_ids if each not in found]
        raise AssertionError(f"not {what} within {WAIT_SECS:g} s: {missing}")


class FeederSpout(Spout, Shared):
    """Emits what a test feeds it, one tuple a call; its tracker learns of every ack and failure."""

    def __init__(self, fields: Fields, tracker: AckTracker | AckFailMapTracker | None = None) -> None:
        Shared.__init__(self)
        self.output_fields = fields
        self.tracker = tracker
        self._waiting: deque[tuple[Sequence[Any], Any]] = deque()
        self._ids = itertools.count(1)
        self.collector: SpoutOutputCollector | None = None

    def feed(self, values: Sequence[Any], message_id: Any = None) -> None:
        """Give a tuple to the spout and wait until it has emitted it. Without a message id it gets one.

        Raises:
            TimeoutError: no task has emitted it: the topology is not active, or max spout pending is reached.
        """
        self.feed_no_wait(values, message_id)
        if not wait_until(lambda: not self._waiting):
            raise TimeoutError(f"no task has emitted {values!r} within {WAIT_SECS:g} s; is the topology active?")

    def feed_no_wait(self, values: Sequence[Any], message_id: Any = None) -> None:
        """Give a tuple to the spout, which emits it when it can."""
        self._waiting.append((values, f"fed-{next(self._ids)}" if message_id is None else message_id))

    def open(self, config: Mapping[str, Any], context: TopologyContext, collector: SpoutOutputCollector) -> None:
        """Keep the task's collector; of several tasks, the last one's."""
        del config, context
        self.collector = collector

    def next_tuple(self) -> None:
        """Emit the next tuple, if there is one."""
        if self._waiting:
            values, message_id = self._waiting[0]
            assert self.collector is not None, "a spout is opened first"
            self.collector.emit(values, message_id=message_id)
            self._waiting.popleft()  # after the emit: feed() returns once nothing waits

    def ack(self, message_id: Any) -> None:
        """Tell the tracker."""
        if self.tracker is not None:
            self.tracker.ack(message_id)

    def fail(self, message_id: Any) -> None:
        """Tell the tracker."""
        if self.tracker is not None:
            self.tracker.fail(message_id)


class FixedTupleSpout(Spout):
    """Emits a fixed list of tuples once; task i of n emits those at i, i + n and so on.

    Args:
        tuples: the values of each; or of each on a stream, by the stream's name.
        fields: the fields of its default stream, or of each stream by name.
    """

    def __init__(
        self,
        tuples: Sequence[Sequence[Any]] | Mapping[str, Sequence[Sequence[Any]]],
        fields: Fields | Mapping[str, Fields],
    ) -> None:
        by_stream = tuples if isinstance(tuples, Mapping) else {DEFAULT_STREAM: tuples}
        self._tuples = [(stream, tuple(values)) for stream, all_of_it in by_stream.items() for values in all_of_it]
        self._streams = {DEFAULT_STREAM: fields} if isinstance(fields, Fields) else dict(fields)

    def declare_output_fields(self, declarer: OutputFieldsDeclarer) -> None:
        """Declare the streams."""
        for name, fields in self._streams.items():
            declarer.declare_stream(name, fields)

    def open(self, config: Mapping[str, Any], context: TopologyContext, collector: SpoutOutputCollector) -> None:
        """Take the share of this task."""
        del config
        tasks = len(context.component_tasks(context.this_component_id))
        self._share = self._tuples[context.this_task_index :: tasks]
        self._collector = collector
        self._next = self._settled = 0

    def next_tuple(self) -> None:
        """Emit the next tuple, if there is one."""
        if self._next < len(self._share):
            stream, values = self._share[self._next]
            self._next += 1
            self._collector.emit(values, stream, message_id=self._next)

    def ack(self, message_id: Any) -> None:  # noqa: ARG002 - they only count
        """Count a tuple."""
        self._settled += 1

    def fail(self, message_id: Any) -> None:  # noqa: ARG002 - as above
        """Count a tuple."""
        self._settled += 1

    def is_exhausted(self) -> bool:
        """Whether all tuples were acked or failed."""
        return self._settled == len(self._share)
