"""The rows of each transaction, their totals, which no contender calculates, and files of them for Spark to read."""

import functools
import os
from pathlib import Path
from typing import Protocol

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable

KEYS = 10_000


@functools.cache
def words(keys: int) -> list[str]:
    """Return all words; word ``i`` is the key of total ``i``."""
    return [f"w{i}" for i in range(keys)]


@functools.cache
def _word_objects(keys: int) -> np.ndarray:
    return np.array(words(keys), dtype=object)


class Rows(Protocol):
    """Rows of words with a number each, cut into transactions 1, 2, 3 …"""

    def batch(self, txid: int) -> pa.Table:
        """Return one transaction's rows: word and n."""

    def totals(self, transactions: int) -> np.ndarray:
        """Return the sum of n of each word after a number of transactions."""


@attrs.frozen
class DrawnWords:
    """Words drawn one by one, as a per-tuple emitter draws them; n is 1. Each task draws its share of a transaction."""

    tuples: int = 1_000
    keys: int = KEYS
    tasks: int = 1

    def share(self, txid: int, task: int) -> list[str]:
        drawn: list[str] = _word_objects(self.keys)[self._draw(txid, task)].tolist()
        return drawn

    def batch(self, txid: int) -> pa.Table:
        drawn = [word for task in range(self.tasks) for word in self.share(txid, task)]
        return pa.table({"word": pa.array(drawn), "n": pa.array(np.ones(len(drawn), np.int64))})

    def totals(self, transactions: int) -> np.ndarray:
        """Return the totals, from the drawn numbers instead of the words."""
        totals = np.zeros(self.keys, np.int64)
        for txid in range(1, transactions + 1):
            for task in range(self.tasks):
                totals += np.bincount(self._draw(txid, task), minlength=self.keys)
        return totals

    def _draw(self, txid: int, task: int) -> np.ndarray:
        return np.random.default_rng((txid, task)).integers(self.keys, size=self._size(task))

    def _size(self, task: int) -> int:
        return (self.tuples + task) // self.tasks


@attrs.frozen
class LargeRows:
    """Large transactions, of rows with numbers from 1 to 9."""

    rows: int
    keys: int

    def batch(self, txid: int) -> pa.Table:
        indexes, numbers = self._draw(txid)
        return pa.table({"word": pa.array(words(self.keys)).take(pa.array(indexes)), "n": pa.array(numbers)})

    def totals(self, transactions: int) -> np.ndarray:
        totals = np.zeros(self.keys, np.int64)
        for txid in range(1, transactions + 1):
            indexes, numbers = self._draw(txid)
            totals += np.bincount(indexes, weights=numbers, minlength=self.keys).astype(np.int64)
        return totals

    def _draw(self, txid: int) -> tuple[np.ndarray, np.ndarray]:
        drawing = np.random.default_rng(txid)
        return drawing.integers(self.keys, size=self.rows), drawing.integers(1, 10, size=self.rows)


@attrs.frozen
class TouchedKeys:
    """Many keys, written by the first transactions; each later one touches some of them once.

    Args:
        keys: the number of words.
        touched: the number of keys of each later transaction.
        loads: the number of first transactions, which write equal shares of all keys.
    """

    keys: int
    touched: int
    loads: int = 1

    def indexes(self, txid: int) -> np.ndarray:
        if txid <= self.loads:
            return np.arange(self.keys * (txid - 1) // self.loads, self.keys * txid // self.loads)
        return np.random.default_rng(txid).choice(self.keys, self.touched, replace=False)

    def batch(self, txid: int) -> pa.Table:
        return rows_of(self.indexes(txid))

    def totals(self, transactions: int) -> np.ndarray:
        totals = np.zeros(self.keys, np.int64)
        for txid in range(1, transactions + 1):
            totals[self.indexes(txid)] += 1
        return totals


def rows_of(indexes: np.ndarray) -> pa.Table:
    """Return a row with n = 1 for each key, without a list of all words: there may be millions."""
    digits = pa.array(indexes).cast(pa.string())
    named = pc.binary_join_element_wise("w", digits, "")
    return pa.table({"word": named, "n": pa.array(np.ones(len(indexes), np.int64))})


SCHEMA = "word string, n long"
"""The files' columns, as Spark names their types."""


def file_names(txid: int, files: int) -> list[str]:
    """Return the names of a transaction's files; names sort as txids do."""
    return [f"{txid:06d}-{part}.parquet" for part in range(files)]


def write_files(folder: Path, rows: Rows, transactions: int, files: int = 1) -> Path:
    """Write the transactions from 1 on, ``files`` files each, unless they are there; return their folder."""
    made = folder / f"{type(rows).__name__}-{abs(hash(rows)):x}-{transactions}-in-{files}"
    if made.exists():
        return made
    made.mkdir(parents=True)
    for txid in range(1, transactions + 1):
        table = rows.batch(txid)
        size = -(-len(table) // files)
        for part, name in enumerate(file_names(txid, files)):
            pq.write_table(table.slice(part * size, size), made / name)
    return made


class WrongTotalsError(Exception):
    """The totals of a contender differ from those of the rows, so none of its figures counts."""


def check_totals(who: str, table: pa.Table, totals: np.ndarray) -> None:
    """Compare every row of ``who``'s table, with the columns word and n, with the total of each word; 0 means no row.

    Raises:
        WrongTotalsError: a word is missing, doubled, unknown, or has another total.
    """
    keys = pc.cast(pc.utf8_slice_codeunits(table["word"].cast(pa.string()), 1), pa.int64()).to_numpy()
    found = np.zeros(len(totals), np.int64)
    np.add.at(found, keys, table["n"].to_numpy())
    wrong = np.flatnonzero(found != totals)
    rows = np.count_nonzero(totals)
    if len(wrong) or len(keys) != rows:
        examples = ", ".join(f"w{key}: {found[key]} instead of {totals[key]}" for key in wrong[:5])
        raise WrongTotalsError(f"{who}: {len(wrong)} wrong totals, {len(keys)} rows instead of {rows}. {examples}")


def check_delta(who: str, path: Path, totals: np.ndarray, *, has_keys: bool = True) -> None:
    """Compare every row of a Delta table, or those of each word together, with the totals; see :func:`check_totals`."""
    rows = pa.table(DeltaTable(str(path)).scan(columns=["word", "n"]))
    if not has_keys:
        rows = rows.group_by("word").aggregate([("n", "sum")]).rename_columns(["word", "n"])
    check_totals(who, rows, totals)


FILES = 2
"""Files of a transaction: one for each core of a small machine."""

_FIRST_MTIME_SECS = 1_767_225_600


def write_transactions(folder: Path, rows: pa.Table, size: int) -> Path:
    """Write transactions of ``size`` rows, ``FILES`` files each, unless they are there; return their folder.

    Files sort by name and by their time as they come: Structured Streaming takes them by time, the others by name.
    """
    if folder.exists():
        return folder
    draft = folder.with_name(f"{folder.name}-draft")
    draft.mkdir(parents=True)
    share = -(-size // FILES)
    for number, first in enumerate(range(0, rows.num_rows, size)):
        transaction = rows.slice(first, size)
        for part in range(FILES):
            path = draft / f"{number:06d}-{part}.parquet"
            pq.write_table(transaction.slice(part * share, share), path)
            mtime_secs = _FIRST_MTIME_SECS + number * FILES + part
            os.utime(path, (mtime_secs, mtime_secs))
    return draft.rename(folder)
