"""Event time: clocks, windows, late rows, deduplication and timers."""

from committers.event_time.clock import EventClock
from committers.event_time.deduplicate import Deduplicate
from committers.event_time.interval_join import IntervalJoin
from committers.event_time.join_streams import JoinStream
from committers.event_time.sources import EventTime
from committers.event_time.timers import TimerCommitter
from committers.event_time.windowed import WindowCommitter, WindowUpdateCommitter
from committers.event_time.windows import Days, Hours, Sessions, Sliding, Tumbling, Window

__all__ = [
    "Days",
    "Deduplicate",
    "EventClock",
    "EventTime",
    "Hours",
    "IntervalJoin",
    "JoinStream",
    "Sessions",
    "Sliding",
    "TimerCommitter",
    "Tumbling",
    "Window",
    "WindowCommitter",
    "WindowUpdateCommitter",
]
