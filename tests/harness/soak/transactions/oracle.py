"""The expected tables: computed in plain Python from the batches alone, and compared row by row."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import pyarrow as pa

from state import ConsistentView, read_tables
from tests.harness.soak.transactions.topology import BUCKET_SIZE, SPOUT, TOPOLOGY_ID, Setup, batches_of, data_of, moves
from txtopo.api.values import TransactionalValue
from txtopo.errors import ConfigError, StateAccessError
from txtopo.files.folder import Folder
from txtopo.files.places import folder_at
from txtopo.journal.entries import JournalEntry
from txtopo.journal.folders import find_journal
from txtopo.journal.journal import counting_entries, read_journal
from txtopo.testing.checkers import Key, Oracle, Rows, TableChecker, Violation, check_input, check_journal

TABLES = ("words", "buckets")
SHOWN_MAX = 20
"""Differences that a message shows one by one."""


def oracle_of(batches: Sequence[Sequence[str]]) -> Oracle:
    """Return the tables after each transaction without faults, from the words of each transaction."""
    tables: dict[str, dict[Key, TransactionalValue]] = {name: {} for name in TABLES}
    versions: dict[str, list[tuple[int, Rows]]] = {name: [] for name in TABLES}
    for txid, batch in enumerate(batches, 1):
        words, buckets = tables["words"], tables["buckets"]
        deltas: Counter[int] = Counter()
        for word, count in Counter(batch).items():
            old = words[word].value if word in words else 0
            words[word] = TransactionalValue(txid, old + count)
            for bucket, delta in moves(old, old + count):
                deltas[bucket] += delta
        for bucket, delta in deltas.items():
            total = (buckets[bucket].value if bucket in buckets else 0) + delta
            buckets[bucket] = TransactionalValue(txid, total)
            if total == 0:
                del buckets[bucket]
        for name, rows in tables.items():
            versions[name].append((txid, dict(rows)))
    return Oracle(versions, sum(map(len, batches)), len(batches))


def moved_in(batches: Sequence[Sequence[str]]) -> list[tuple[int, int, int]]:
    """Return the rows of the table of moves: transaction, bucket and change, from the words of each transaction."""
    words: Counter[str] = Counter()
    rows = []
    for txid, batch in enumerate(batches, 1):
        for word, count in Counter(batch).items():
            rows += [(txid, *move) for move in moves(words[word], words[word] + count)]
            words[word] += count
    return rows


def rows_of_journal(setup: Setup, entries: Sequence[JournalEntry]) -> list[list[list[Any]]]:
    """Return the rows of each transaction, as the journal records the cuts.

    Raises:
        Violation: a transaction does not begin where the one before has ended.
    """
    data = {str(partition): rows for partition, rows in data_of(setup).items()}
    ends = dict.fromkeys(data, 0)
    batches = []
    for transaction in (each for entry in entries for each in entry.transactions):
        batch: list[list[Any]] = []
        for name, (start, end) in transaction.input.items():
            partition = name.rpartition("-")[2]  # Kafka's have the topic in front
            if start != ends[partition]:
                raise Violation(
                    f"nothing is lost or doubled (promise 16): transaction {transaction.txid} takes rows {start} to "
                    f"{end} of partition {partition}, after row {ends[partition]}"
                )
            ends[partition] = end
            batch += data[partition][start:end]
        batches.append(batch)
    return batches


def rows_of(table: pa.Table) -> Rows:
    """Return a table's rows by key; raise a Violation if a key is there twice."""
    keys, counts, txids = (column.to_pylist() for column in table.columns)
    if len(set(keys)) < len(keys):
        raise Violation(f"each key has one row: {[key for key, times in Counter(keys).items() if times > 1]}")
    return {k: TransactionalValue(txid, count) for k, count, txid in zip(keys, counts, txids, strict=True)}


def differences(name: str, actual: Rows, expected: Rows) -> list[str]:
    """Return, as lines of text, how a table differs from the expected one."""
    keys = sorted(key for key in {*actual, *expected} if actual.get(key) != expected.get(key))
    lines = [f"{name}[{key!r}] is {actual.get(key)}, not {expected.get(key)}" for key in keys[:SHOWN_MAX]]
    return [*lines, f"… and {len(keys) - SHOWN_MAX} more"] if len(keys) > SHOWN_MAX else lines


def check_buckets(tables: Mapping[str, Mapping[Key, int]]) -> None:
    """Raise a Violation unless the lower table follows from the upper one, so that both are of one transaction."""
    expected = Counter(count // BUCKET_SIZE for count in tables["words"].values())
    if tables["buckets"] != expected:
        raise Violation(f"a consistent view is torn (promise 9): buckets {tables['buckets']}, of {dict(expected)}")


@attrs.define(eq=False)
class Judge:
    """Compares the tables of a round with the expected ones, and counts its checks."""

    setup: Setup
    rows_checked: int = 0
    views_checked: int = 0
    last_txid: int = 0
    _fixed: Oracle | None = None

    def __attrs_post_init__(self) -> None:
        if not self.setup.opaque and not self.setup.timed:
            self._fixed = oracle_of(batches_of(self.setup))

    @property
    def journal(self) -> Folder:
        return find_journal(folder_at(self.setup.output).below("_txtopo"), TOPOLOGY_ID)

    def check_view(self) -> None:
        """Read all tables as of one transaction; raise a Violation if they are torn, wrong, or older than before."""
        try:
            view = read_tables(self.setup.output)
        except ConfigError:  # no journal yet
            return
        except StateAccessError:  # nothing to read yet, or writers were faster
            return
        if view.txid < self.last_txid:
            raise Violation(f"what is committed stays so: a view of {view.txid} after one of {self.last_txid}")
        self.last_txid = view.txid
        self.views_checked += 1
        self.check_tables(view)

    def check_end(self, committed: int) -> int:
        """Raise a Violation unless all input is committed and every row is exact; return the last committed txid."""
        entries = check_journal(read_journal(self.journal), committed)
        rows = sum(map(len, data_of(self.setup).values()))
        check_input(entries, {SPOUT}, rows)
        if self._fixed is not None and committed != self._fixed.transactions:
            raise Violation(f"all input is committed (promise 16): {committed} of {self._fixed.transactions}")
        view = read_tables(self.setup.output)
        if view.txid != committed:
            raise Violation(f"all tables get to the end: a consistent view is of {view.txid}, of {committed}")
        self.check_tables(view)
        return committed

    def entries_until(self, txid: int) -> list[JournalEntry]:
        """Return the journal's entries up to a committed transaction."""
        entries = counting_entries(read_journal(self.journal), lambda entry: entry.last <= txid)
        return [entry for entry in entries if entry.last <= txid]

    def check_tables(self, view: ConsistentView) -> None:
        """Raise a Violation unless the tables are those after the view's transaction."""
        batches = self._batches_until(view.txid)
        oracle = self._fixed or oracle_of(batches)
        tables = {name: rows_of(view.tables[name]) for name in TABLES}
        lines = [d for name in TABLES for d in differences(name, tables[name], oracle.as_of(name, view.txid))]
        found = Counter((row["txid"], row["bucket"], row["delta"]) for row in view.tables["moves"].to_pylist())
        if found != (expected := Counter(moved_in(batches[: view.txid]))):
            lines.append(f"moves has {dict(found - expected)} too much, and lacks {dict(expected - found)}")
        if lines:
            raise Violation("\n".join([f"the tables as of transaction {view.txid} differ:", *lines]))
        TableChecker(oracle, check_buckets).settled(view.txid, tables)
        self.rows_checked += sum(map(len, tables.values())) + found.total()

    def _batches_until(self, txid: int) -> Sequence[Sequence[str]]:
        """Return the words of each transaction; those of an opaque spout only the journal knows."""
        if self._fixed is not None:
            return batches_of(self.setup)
        batches = rows_of_journal(self.setup, self.entries_until(txid))
        return [[word for (word,) in batch] for batch in batches]
