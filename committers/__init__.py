"""Committers: ready-made bolts that write a state exactly once."""

from committers.append import AppendCommitter
from committers.reduce import ReduceCommitter
from committers.replace import ReplaceCommitter

__all__ = ["AppendCommitter", "ReduceCommitter", "ReplaceCommitter"]
