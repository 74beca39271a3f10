"""Ready-made committers that write a state exactly once."""

from committers.reduce import ReduceCommitter
from committers.rows import AppendCommitter, ReplaceCommitter

__all__ = ["AppendCommitter", "ReduceCommitter", "ReplaceCommitter"]
