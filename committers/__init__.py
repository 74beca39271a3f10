"""Ready-made committers that write a state exactly once, and the aggregates that they fold rows by."""

from committers.aggregates import Aggregate, Aggregation, Count, First, Last, Max, Mean, Min, Sum
from committers.reduce import ReduceCommitter
from committers.rows import AppendCommitter, ReplaceCommitter
from committers.sinks import DeltaAppendBolt, DeltaUpsertBolt

__all__ = [
    "Aggregate",
    "Aggregation",
    "AppendCommitter",
    "Count",
    "DeltaAppendBolt",
    "DeltaUpsertBolt",
    "First",
    "Last",
    "Max",
    "Mean",
    "Min",
    "ReduceCommitter",
    "ReplaceCommitter",
    "Sum",
]
