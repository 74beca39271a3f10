"""Ready-made committers that write a state exactly once."""

from committers.reduce import ReduceCommitter
from committers.rows import AppendCommitter, ReplaceCommitter
from committers.sinks import DeltaAppendBolt, DeltaUpsertBolt

__all__ = ["AppendCommitter", "DeltaAppendBolt", "DeltaUpsertBolt", "ReduceCommitter", "ReplaceCommitter"]
