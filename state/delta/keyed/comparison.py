"""Compare what a replay puts into a keyed table with what the transaction has put."""

from __future__ import annotations

import attrs
import pyarrow as pa

from state.delta.read.past import Change, Compares
from state.delta.schema import RowFormat
from txtopo.api.state import KeyedWrites, Writes, by_key
from txtopo.api.values import StateKind, StateValue

__all__ = ["ComparesKeys"]


@attrs.frozen
class ComparesKeys(Compares):
    """Compares keys and their values."""

    rows: RowFormat

    def is_comparable(self, txid: int, last: int) -> bool:
        """Return whether values say if a later transaction has put them anew, or none can have."""
        return self.rows.kind is not StateKind.NON_TRANSACTIONAL or txid == last

    def put_now(self, txid: int, writes: Writes, then: pa.Table, table: pa.Table) -> pa.Table:  # noqa: ARG002 - a key has one row
        """Return the rows of the keys that a transaction puts."""
        own = KeyedWrites.of(self.rows.kind, txid, by_key(writes))
        values = {key: own[key] for key, put_by in zip(own.keys_put, own.txids, strict=True) if put_by == txid}
        return self.rows.fit(txid, values).table

    def difference(self, change: Change) -> str | None:
        """Describe the first key that differs; None if none does."""
        then, now, txid = self.rows.read(change.then), self.rows.read(change.now), change.txid
        for key, value in then.items():
            if key not in now:
                return f"key {key!r} was {_shown(value)}, but is not put now"
            # By repr(): NaN then equals itself, and 1 differs from 1.0.
            if repr(now[key]) != repr(value):
                return f"key {key!r} was {_shown(value)}, but is {_shown(now[key])} now"
        others = [key for key in now if key not in then]
        for key, held in zip(others, change.table.multi_get(others), strict=True):
            is_later = change.may_be_removed if held is None else getattr(held, "txid", 0) > txid
            if not is_later:
                return f"key {key!r} is {_shown(now[key])} now, but was not put then"
        removed = [key for key, value in by_key(change.writes).items() if value is None]
        for key, held in zip(removed, change.table.multi_get(removed), strict=True):
            if held is not None and getattr(held, "txid", 0) <= txid:
                return f"key {key!r} is removed now, but was {_shown(held)} then"
        return None


def _shown(value: StateValue | None) -> str:
    return "gone" if value is None else repr(value.value)
