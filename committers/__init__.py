"""Committers: ready-made bolts that write a state exactly once."""

from committers.reduce import ReduceCommitter

__all__ = ["ReduceCommitter"]
