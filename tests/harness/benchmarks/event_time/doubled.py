"""Events of which some come twice, for deduplication."""

from __future__ import annotations

import attrs
import numpy as np
import pyarrow as pa

from tests.harness.benchmarks.event_time.events import START_MS, TIMESTAMP

KEYS = 2_000_000
DOUBLED_SHARE = 0.05
WITHIN_SECS = 600
"""For how long a key is known: as long as all events together last, so that all keys are known in the end."""

_ODD = 0x5851F42D4C957F2D


@attrs.frozen
class DoubledEvents:
    """Events with an id each, over ten minutes; 5 % come again, the same in every field, up to a minute later.

    No event is later than the ten minutes for which an id is known, so every rule for late rows says the same: each id
    once. Ids are odd multiples modulo 2**63, so they are distinct and in no order.
    """

    keys: int
    seed: int = 5

    def once(self) -> pa.Table:
        """Return each event once: id, at and value."""
        drawing = np.random.default_rng((self.seed, self.keys))
        due_ms = np.arange(self.keys) * (WITHIN_SECS * 1000) // self.keys
        ids = (np.arange(self.keys, dtype=np.uint64) * np.uint64(_ODD)) & np.uint64(2**63 - 1)
        return pa.table(
            {
                "id": pa.array(ids.astype(np.int64)),
                "at": pa.array((START_MS + due_ms) * 1000).cast(TIMESTAMP),
                "value": pa.array(drawing.integers(1, 100, size=self.keys)),
            }
        )

    def table(self) -> pa.Table:
        """Return the events in the order in which they come."""
        drawing = np.random.default_rng((self.seed, self.keys, 2))
        again = np.flatnonzero(drawing.random(self.keys) < DOUBLED_SHARE)
        minute = max(1, self.keys * 60 // WITHIN_SECS)
        comes = np.concatenate([np.arange(self.keys), again + drawing.integers(1, minute + 1, size=len(again))])
        order = np.argsort(comes, kind="stable")
        return self.once().take(pa.array(np.concatenate([np.arange(self.keys), again])[order]))
