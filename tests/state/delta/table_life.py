"""The life of a table by a clock of its own: what it keeps, and what of it can be read."""

import contextlib
import functools
import os
import time
import types

import pyarrow as pa

import state.delta.writer
from state import DeltaExpiringRows, DeltaRows, DeltaState, TransactionalValue, read_table
from state.delta.log.data_files import DATA_FOLDER, files_of
from state.delta.log.entries import read_entry
from state.delta.log.kept import KeptLog
from state.delta.log.location import Location
from tests.state.delta.delta_tables import LARGE, maintain, scheduled, sized
from tests.state.delta.expiring.expiring_tables import FIELDS, held, put
from txtopo import Fields
from txtopo.api.state import History
from txtopo.api.writes import RowsMode, TransactionRows
from txtopo.errors import FailedException

RECENT_SECS = 300
BEGAN_SECS = time.time() - 24 * 3600  # delta-rs forgets the removals of the week before today


class Life:
    """A table that a transaction is written to every so many seconds, by a clock of its own."""

    def __init__(self, monkeypatch, path, *, recent_secs=RECENT_SECS, epoch=1, sizes=LARGE, upkeep=None, **options):
        clock = types.SimpleNamespace(time=lambda: self.now_secs, clock_gettime=lambda _clock: self.now_secs)
        monkeypatch.setattr(state.delta.writer, "time", clock)
        self.now_secs = BEGAN_SECS
        self.txid = 0
        self.path = path
        self.declared = scheduled(sized(self._declare(**options), **sizes), **(upkeep or {}))
        self.opened = self.declared.open("topology", "s", "life", epoch)
        self.recent_secs = recent_secs
        self.rewind_hours = 168
        self.points: list[int] = []
        self._dated: set[str] = set()
        self.date()

    def _declare(self, **options):
        return DeltaState(self.path, Fields("id: long"), Fields("n: long"), **options)

    def date(self):
        """Let the files that are new be of now."""
        for file in [*(self.path / "_delta_log").iterdir(), *(self.path / DATA_FOLDER).iterdir()]:
            if str(file) not in self._dated:
                self._dated.add(str(file))
                os.utime(file, (self.now_secs,) * 2)

    def write(self, txid, *, every_secs=10):
        """Write a transaction, which puts its number into the keys of its last digits, and do the upkeep."""
        self.now_secs += every_secs
        self._write(txid)
        self.txid = txid
        self.date()

    def _write(self, txid):
        self.opened.write(txid, {key: TransactionalValue(txid, txid) for key in keys_of(txid)})

    def maintain(self, later_secs=0):
        """Do the upkeep that is due, as of some time later, as after each group; wait for it."""
        self.now_secs += later_secs
        history = History(tuple(self.points), self.recent_secs, self.rewind_hours, self.now_secs, self.txid)
        self.opened.keep_history(history)
        with contextlib.suppress(FailedException):  # of the round before: a run goes on, too
            maintain(self.opened)
        self.date()

    def versions(self):
        """Return the versions that can be opened."""
        return KeptLog.of(Location.resolve(str(self.path), None).folder).versions()

    def txid_of(self, version):
        """Return the transaction that a version has made visible; None if none."""
        entry = read_entry(Location.resolve(str(self.path), None), version)
        return None if entry is None else entry.txid

    def run(self, txids, *, point_every=20):
        """Write transactions, of which some are points."""
        for txid in txids:
            self.write(txid)
            if txid % point_every == 0:
                self.points.append(txid)
            self.maintain()

    def check(self, *txids):
        """Check that the table has the rows as of some transactions."""
        for txid in txids:
            assert self.rows_in(read_table(self.path, txid)) == self.rows_after(txid), txid

    def rows_in(self, table: pa.Table):
        """Return what a table that was read has, sorted."""
        return sorted_rows(table)

    def rows_after(self, txid):
        """Return that of a table that all transactions up to one have written."""
        return rows_after(txid)


class LifeOfRows(Life):
    """Of a table to which each transaction appends a row."""

    def _declare(self, **options):
        return DeltaRows(self.path, Fields("id: long", "n: long"), **options)

    def _write(self, txid):
        rows = TransactionRows(txid, pa.table({"id": [txid], "n": [txid]}), RowsMode.APPEND)
        self.opened.write(txid, self.opened.write_rows([rows]))

    def rows_after(self, txid):
        return [(number, number, number) for number in range(1, txid + 1)]


class LifeOfRowsThatExpire(Life):
    """Of a table as committers have for what they remember for a while."""

    def _declare(self, **options):
        return DeltaExpiringRows(self.path, FIELDS, "end", **options)

    def _write(self, txid):
        put(self.opened, (txid, [("k", 10 * txid + 100)], 10 * txid))

    def rows_in(self, table: pa.Table):
        return sorted(held(table))

    def rows_after(self, txid):
        return [("k", 10 * number + 100) for number in range(max(1, txid - 9), txid + 1)]


LIVES = {
    "keyed": Life,
    "keyed, vectors": functools.partial(Life, deletion_vectors=True),
    "rows": LifeOfRows,
    "rows that expire": LifeOfRowsThatExpire,
}
"""By kind of table, the lives that there are: also as committers have for what they remember."""


def keys_of(txid):
    return {txid % 7, txid % 3}


def rows_after(txid):
    """Return the rows of a table that all transactions up to one have written."""
    last = {key: number for number in range(1, txid + 1) for key in keys_of(number)}
    return sorted((key, each, each) for key, each in last.items())


def sorted_rows(rows: pa.Table):
    return sorted(zip(*rows.to_pydict().values(), strict=True))


def files(path):
    return {file.name for file in (path / DATA_FOLDER).iterdir()}


def places(path, version):
    location = Location.resolve(str(path), None)
    return {place for file in files_of(location, location.handle(version)).values() for place in file.places}
