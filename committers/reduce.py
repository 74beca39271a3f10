"""Reduces a stream into a keyed table: a running sum, count, minimum or whatever a function makes of two values."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from txtopo import BatchBolt, ICommitter, OutputCollector, TopologyContext, TransactionAttempt, Tuple


class ReduceCommitter(BatchBolt, ICommitter):
    """Folds each key's values into a state, first within the batch, then into what the state holds.

    *You* group the stream by the key fields, so that a key is one task's business, and give a function that
    is associative: batches are folded on the executors before the state's value is known.

    Args:
        state: the name of the state, set by ``builder.set_state``.
        key: the fields that make up the key.
        value: the field to fold.
        function: makes one value of two; the sum unless given. A function of a module, so that it pickles.
    """

    def __init__(
        self,
        state: str,
        key: str | Sequence[str],
        value: str,
        function: Callable[[Any, Any], Any] = operator.add,
    ) -> None:
        self._state_name = state
        self._key = (key,) if isinstance(key, str) else tuple(key)
        self._value = value
        self._function = function

    def prepare(
        self,
        config: Mapping[str, Any],
        context: TopologyContext,
        collector: OutputCollector,
        attempt: TransactionAttempt,
    ) -> None:
        """Begin with nothing folded."""
        self._state = context.state(self._state_name)
        self._folded: dict[Any, Any] = {}

    def execute(self, tuple: Tuple) -> None:
        """Fold one value."""
        key: Any = tuple[self._key[0]] if len(self._key) == 1 else (*(tuple[name] for name in self._key),)
        value = tuple[self._value]
        folded = self._folded
        folded[key] = self._function(folded[key], value) if key in folded else value

    def finish_batch(self) -> None:
        """Fold the batch into the state."""
        self._state.multi_reduce(self._folded, self._function)
