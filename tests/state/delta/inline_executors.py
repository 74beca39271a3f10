"""Executors in this process, for what a state has its executors do."""

import pickle
from collections.abc import Callable, Sequence
from typing import Any


class InlineExecutors:
    """Runs each item where it is called; what travels pickles.

    Args:
        slots: how many there are.
    """

    def __init__(self, slots: int = 2) -> None:
        self.slots = slots
        self.calls: list[list[Any]] = []
        """The items of each call."""

    def compute(self, function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        self.calls.append(list(items))
        return [pickle.loads(pickle.dumps(function(pickle.loads(pickle.dumps(item))))) for item in items]
