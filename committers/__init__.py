"""Ready-made committers that write a state exactly once, their aggregates, and what they need for event time."""

import txtopo as txtopo  # first: it refuses modules that hide those of txtopo, which would be a traceback here
from committers.aggregates.approximate import ApproxCountDistinct, ApproxQuantile
from committers.aggregates.numbers import Count, Mean, Sum
from committers.aggregates.ordered import Collect, CountDistinct, First, Last, Max, Min
from committers.aggregates.rankings import ArgMax, ArgMin, LastN, TopN
from committers.apply_changes import ApplyChanges
from committers.event_time import (
    Days,
    Deduplicate,
    EventClock,
    EventTime,
    Hours,
    IntervalJoin,
    JoinStream,
    Sessions,
    Sliding,
    TimerCommitter,
    Tumbling,
    WindowCommitter,
    WindowUpdateCommitter,
)
from committers.lookup_join import LookupJoin
from committers.reduce import ReduceCommitter
from committers.rows import AppendCommitter, ReplaceCommitter
from committers.sinks import DeltaAppendBolt, DeltaUpsertBolt
from committers.stream_join import StreamJoin

__all__ = [
    "AppendCommitter",
    "ApplyChanges",
    "ApproxCountDistinct",
    "ApproxQuantile",
    "ArgMax",
    "ArgMin",
    "Collect",
    "Count",
    "CountDistinct",
    "Days",
    "Deduplicate",
    "DeltaAppendBolt",
    "DeltaUpsertBolt",
    "EventClock",
    "EventTime",
    "First",
    "Hours",
    "IntervalJoin",
    "JoinStream",
    "Last",
    "LastN",
    "LookupJoin",
    "Max",
    "Mean",
    "Min",
    "ReduceCommitter",
    "ReplaceCommitter",
    "Sessions",
    "Sliding",
    "StreamJoin",
    "Sum",
    "TimerCommitter",
    "TopN",
    "Tumbling",
    "WindowCommitter",
    "WindowUpdateCommitter",
]
