"""``OpaqueSqlTransactionalSpout``: the rows of an SQL table that are added or updated, by the time of the change.

Metadata is the place of the last row, and of the one before the first: ``{"after": …, "until": [time, key, …],
"of": "orders by updated_at, id"}``, as texts of the database.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import attrs
import pyarrow as pa

from spouts.sql.table import TIMES, InputTable, OpenedTable
from state.sql.database import dataset_of_table
from txtopo.api.arguments import check_positive, check_secs, checked_arguments
from txtopo.api.components.collector import BatchOutputCollector
from txtopo.api.components.context import TopologyContext
from txtopo.api.components.spout import (
    Metadata,
    OpaquePartitionedEmitter,
    OpaquePartitionedTransactionalSpout,
    PartitionedCoordinator,
)
from txtopo.api.data.fields import Fields
from txtopo.api.dataset import Dataset
from txtopo.attempts import TransactionAttempt
from txtopo.errors import ConfigError, InputError


class OpaqueSqlTransactionalSpout(OpaquePartitionedTransactionalSpout):
    """Emits the rows of a table in PostgreSQL, and each one again when it was updated; in columns.

    The spout is opaque: a row that is updated before its transaction is committed leaves it, and comes later with its
    new values. It comes with the values that it has when it is read, not with each that it had, and a deleted row not
    at all. ``ApplyChanges`` makes the same table of it, with ``updated_at`` as the sequence.

    *You* set ``updated_at`` at each insert and update, in the database, to ``now()`` or a later time of its clock, with
    a trigger for example. The server's clock must not go back, and its user must be allowed to see when others'
    transactions began (``GRANT pg_read_all_stats TO …``).

    *txtopo* guarantees that each row is in a committed transaction as it was after its last update, over any number of
    runs, in whatever order the writers commit. Rows are read once they are older than the oldest transaction that runs
    in the database, and than a second. So one that takes long holds up what is changed meanwhile.

    Args:
        url: the URL of the database, ``postgresql://USER@HOST/DATABASE``; or where it is, as ``env:NAME`` or
            ``file:PATH``, for a URL with a password.
        table: the table's name.
        fields: the columns to emit, each with a type. A text reads any column as the database writes it.
        key: the columns that tell rows apart that were updated at the same time, such as the primary key, among the
            fields. An index on ``updated_at`` and them makes looks cheap.
        updated_at: the column with the time, among the fields: a ``timestamptz`` that is never null.
        schema: the schema of the table; by default the database's.
        rows_max: the maximum number of rows in a transaction.
        watch: whether to go on with later changes. The run then ends only by ``run(…, until=…)``, SIGINT or SIGTERM;
            without it, with the changes of before its start.
        poll_secs: the seconds between two looks for changes.

    Raises:
        FieldsError: a field has no type, or one that no column has.
        ConfigError: another argument is wrong, or SQLAlchemy is missing.
    """

    @checked_arguments
    def __init__(  # noqa: PLR0913 - all but three by name
        self,
        url: str,
        table: str,
        fields: Fields,
        *,
        key: Sequence[str] = ("id",),
        updated_at: str = "updated_at",
        schema: str | None = None,
        rows_max: int = 10_000,
        watch: bool = False,
        poll_secs: float = 1.0,
    ) -> None:
        check_positive("rows_max", rows_max)
        check_secs("poll_secs", poll_secs)
        self.values = fields.with_attempt().without_attempt()
        """The fields after the attempt."""
        self.table = InputTable(url, table, schema, self.values)
        self.ordering = (updated_at, *key)
        self.order = self.table.order(self.ordering)
        if len(self.ordering) == 1:
            raise ConfigError("key has no column; give those of the table's primary key")
        self.table.check_fields("updated_at or key", self.ordering)
        unfit = [each for each in self.ordering if not _is_ordering(self.values.arrow_schema().field(each).type)]
        if unfit:
            raise ConfigError(f"updated_at or key is {unfit[0]!r}, which is a float or binary: that has no exact text")
        self.output_fields = self.values.with_attempt()
        self.rows_max = rows_max
        self.watch = watch
        self.poll_secs = poll_secs

    def coordinator(self, config: Mapping[str, Any], context: TopologyContext) -> PartitionedCoordinator:
        """Return the coordinator."""
        del config, context
        return _OpaqueCoordinator(self, self.table.opened())

    def emitter(self, config: Mapping[str, Any], context: TopologyContext) -> OpaquePartitionedEmitter:
        """Return the emitter of a task."""
        del config, context
        return _OpaqueEmitter(self, self.table.opened())

    def datasets(self, partitions: Collection[str]) -> Mapping[str, Dataset]:
        """Return the table."""
        del partitions
        return {"": dataset_of_table(self.table.url, self.table.name, self.table.schema)}

    def input_ranges(self, metadata: Metadata, previous_metadata: Metadata) -> Mapping[str, tuple[Any, Any]] | None:
        """Return the place before the first row, and that of the last."""
        previous = previous_metadata or {}
        moved = {key: part for key, part in (metadata or {}).items() if previous.get(key) != part}
        return {key: (part["after"], part["until"]) for key, part in moved.items()}


@attrs.define(eq=False)
class _OpaqueCoordinator(PartitionedCoordinator):
    _spout: OpaqueSqlTransactionalSpout
    _opened: OpenedTable
    _now_secs: Callable[[], float] = time.monotonic
    _place: Sequence[str] | None = None
    _has_begun: bool = False
    """Whether a transaction has begun whose end only its emitter knows."""
    _has_more: bool = False
    _is_checked: bool = False
    _start: Any = None
    """When the run started, as the server's time."""
    _has_ended: bool = False
    _polled_secs: float | None = None

    def partitions(self) -> list[str]:
        """Return the table."""
        self._has_begun, self._has_more = True, False
        return [self._spout.table.name]

    def resume(self, txid: int, metadata: Mapping[str, Metadata]) -> None:
        """Go on after the last transaction."""
        del txid
        for each in metadata.values():
            self._spout.table.check_order(self._spout.order, each)
        if not self._is_checked:
            if not self._opened.is_postgresql:
                raise ConfigError(
                    f"{self._opened.database.shown} is SQLite, which does not tell when transactions began; an "
                    "OpaqueSqlTransactionalSpout reads PostgreSQL"
                )
            self._opened.check(self._spout.ordering, TIMES)
            self._start = self._opened.now()
            self._is_checked = True
        place = next((each["until"] for each in metadata.values()), None)
        if place != self._place:  # after a roll-back there is more than there was at the end
            self._polled_secs, self._has_ended = None, False
        self._place, self._has_begun, self._has_more = place, False, False

    def rewind(self, txid: int, metadata: Mapping[str, Metadata], undone: Sequence[Mapping[str, Metadata]]) -> bool:
        """Return True: nothing is kept in the store, and rows are read again as they are now."""
        del txid, metadata, undone
        return True

    def is_ready(self) -> bool:
        """Whether there is a row after the last transaction that is final."""
        if not self._spout.watch and self._place is not None and _time_of(self._place) >= self._start:
            self._has_ended = True  # rows come in the order of their times; else a run would end only with the writers
        if self._has_begun or self._has_ended:
            return False
        now_secs, due_secs = self._now_secs(), (self._polled_secs or 0.0) + self._spout.poll_secs
        if not self._has_more and (self._polled_secs is None or now_secs >= due_secs):
            self._polled_secs = now_secs
            before = self._opened.finished_before()
            rows = None if before is None else _rows_after(self._opened, self._spout.ordering, self._place, before, 1)
            self._has_more = rows is not None and rows.num_rows > 0
            is_past = before is not None and before > self._start
            self._has_ended = not self._spout.watch and not self._has_more and is_past
        return self._has_more

    def is_exhausted(self) -> bool:
        """Whether all changes of before the start are taken."""
        return not self._has_begun and not self.is_ready() and self._has_ended

    def close(self) -> None:
        """Close the connection."""
        self._opened.database.close()


@attrs.frozen(eq=False)
class _OpaqueEmitter(OpaquePartitionedEmitter):
    spout: OpaqueSqlTransactionalSpout
    opened: OpenedTable

    def emit_batch(
        self, attempt: TransactionAttempt, collector: BatchOutputCollector, partition: Any, previous_metadata: Metadata
    ) -> Metadata:
        del attempt, partition
        place = None if previous_metadata is None else previous_metadata["until"]
        before = self.opened.finished_before()
        if before is None:
            return None
        rows = _rows_after(self.opened, self.spout.ordering, place, before, self.spout.rows_max)
        if not rows.num_rows:
            return None
        for batch in rows.to_batches():
            collector.emit_batch(batch)
        last = rows.select(self.spout.ordering).slice(rows.num_rows - 1).to_pylist()[0]
        until = [_text(value) for value in last.values()]
        if rows.num_rows == self.spout.rows_max:
            self._check_told_apart(until)
        return {"after": place, "until": until, "of": self.spout.order}

    def _check_told_apart(self, place: Sequence[str]) -> None:
        """Refuse a key that is that of other rows, too: those that are not in this transaction would be in none."""
        names = ", ".join(map(self.opened.quoted, self.spout.ordering))
        count = self.opened.ask("count(*)", f"({names}) = ({', '.join(['%s'] * len(place))})", place)
        if count > 1:
            raise InputError(
                f"{count} rows of the table {self.opened.address} have the same {' and '.join(self.spout.ordering)}: "
                f"{', '.join(place)}; rows would be left out. Give the spout a key that tells them apart"
            )

    def close(self) -> None:
        self.opened.database.close()


def _rows_after(
    opened: OpenedTable, ordering: Sequence[str], place: Sequence[str] | None, before: dt.datetime, rows_max: int
) -> pa.Table:
    """Return the rows that come next after a place and are from before a time."""
    names = ", ".join(map(opened.quoted, ordering))
    condition, parameters = f"{opened.quoted(ordering[0])} < %s", list[Any]([before])
    if place is not None:
        # The server takes each text for a value of its column's type.
        condition, parameters = f"{condition} AND ({names}) > ({', '.join(['%s'] * len(place))})", [before, *place]
    return opened.read(f"{condition} ORDER BY {names} LIMIT {rows_max:d}", parameters)


def _is_ordering(kind: pa.DataType) -> bool:
    return not pa.types.is_floating(kind) and not pa.types.is_binary(kind)


def _time_of(place: Sequence[str]) -> dt.datetime:
    return dt.datetime.fromisoformat(place[0])


def _text(value: Any) -> str:
    return value.isoformat() if isinstance(value, dt.date) else str(value)
