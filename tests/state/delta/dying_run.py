"""A run over one table whose coordinator dies again and again, and what the table should hold at its end."""

import json
import random
from collections import Counter

import pyarrow as pa

from state import DeltaRows, DeltaState, read_table
from tests.state.delta.delta_tables import fold, sized
from tests.state.delta.inline_executors import InlineExecutors
from txtopo import Fields
from txtopo.api.values import TransactionalValue
from txtopo.api.writes import RowsMode, TransactionRows
from txtopo.errors import FailedException
from txtopo.failpoints import armed

KINDS = ("keyed", "vectors", "executors", "rows")
"""A keyed table; one with deletion vectors, folded by the driver or by executors; and a table of rows."""


class Killed(BaseException):
    """The coordinator is dead."""


class DyingRun:
    """A run over a table of one of :data:`KINDS`, with upkeep, and a coordinator that dies every few steps."""

    def __init__(self, path, kind: str, keys: int, **sizes: int) -> None:
        seed = random.randrange(1 << 32)
        print("seed", seed)
        self.path = path
        self.chance = random.Random(seed)
        self.deaths = 0
        self._kind = kind
        self._keys = keys
        self._model: Counter = Counter()
        often = {"upkeep_every_writes": 3, "files_max": 2}
        declared = (
            DeltaRows(path, Fields("k: long", "n: long"), **often)
            if kind == "rows"
            else DeltaState(path, Fields("k: long"), Fields("n: long"), deletion_vectors=kind != "keyed", **often)
        )
        self._declared = sized(declared, **sizes)
        self._epoch = 0
        self._open()

    def _open(self) -> None:
        self._epoch += 1
        self._state = self._declared.open("topology", "s", "life", self._epoch)
        if self._kind == "executors":
            self._state.use_executors(InlineExecutors(), 0)

    def _die(self, _name) -> None:
        if self.chance.random() < 0.06:
            raise Killed

    def _prepared(self, txid: int, batch: list[int]):
        state = self._state
        if self._kind == "rows":
            rows = pa.table({"k": batch, "n": [txid] * len(batch)})
            return state.prepare(txid, state.write_rows([TransactionRows(txid, rows, RowsMode.APPEND)]))
        if self._kind == "executors":
            return state.prepare(txid, fold(state, (txid, dict.fromkeys(batch, txid))))
        values = zip(batch, state.multi_get(batch), strict=True)
        return state.prepare(
            txid, {key: TransactionalValue(txid, (0 if value is None else value.value) + txid) for key, value in values}
        )

    def write(self, txid: int) -> None:
        """Write a transaction, in as many lives as that takes."""
        batch = self.chance.sample(range(self._keys), max(2, self._keys // 20))
        note, failures = None, 0
        while True:
            try:
                with armed(self._die):
                    if note is None and not (self._state.last_txid or 0) >= txid:
                        note = self._prepared(txid, batch)
                    self._state.publish(txid, json.loads(json.dumps(note)))
                    self._state.maintain()
                break
            except Killed:
                self.deaths += 1
                self._open()
            except FailedException:
                failures += 1
                if failures > 20:
                    raise
        is_of_rows = self._kind == "rows"
        self._model.update({(key, txid): 1 for key in batch} if is_of_rows else dict.fromkeys(batch, txid))

    def is_exact(self) -> bool:
        """End the run, and say whether each transaction is in the table once, and so is each row."""
        self._state.close()
        found = read_table(self.path).to_pydict()
        pairs = Counter(zip(found["k"], found["n"], strict=True))
        return pairs == (self._model if self._kind == "rows" else Counter(self._model.items()))
