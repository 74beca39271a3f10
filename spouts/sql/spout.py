"""``SqlTransactionalSpout``: the rows of an SQL table that only grows, by a rising id.

Metadata is a range of ids, and how many rows it has: ``{"after": id or null, "until": id or null, "rows": 100, "of":
"orders by id"}``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import attrs

from spouts.sql.table import INTEGERS, PREPARED, InputTable, OpenedTable
from state.sql.database import dataset_of_table
from txtopo.api.arguments import check_positive, check_secs, checked_arguments
from txtopo.api.components.collector import BatchOutputCollector
from txtopo.api.components.context import TopologyContext
from txtopo.api.components.spout import Coordinator, Emitter, Metadata, TransactionalSpout
from txtopo.api.data.fields import Fields
from txtopo.api.dataset import Dataset
from txtopo.attempts import TransactionAttempt
from txtopo.errors import InputError


class SqlTransactionalSpout(TransactionalSpout):
    """Emits the rows of a table in a database that rows are only added to, in the order of a rising id; in columns.

    For example an outbox, or a log of events. If rows are updated, read the table by
    :class:`OpaqueSqlTransactionalSpout`.

    *You* draw each id in the statement that inserts its row, as an identity column or a ``serial`` does, never by hand
    from a cache or earlier in the transaction, and neither update nor delete rows until their transactions are
    committed.

    *txtopo* guarantees that each row belongs to exactly one transaction, over any number of runs, in whatever order the
    writers commit: a row is read once no smaller id can come. So a writer that takes long holds up the rows after its
    own, as long as it has written to the table and is not done.

    Args:
        url: the URL of the database, ``postgresql://USER@HOST/DATABASE`` or ``sqlite:///FILE``; or where it is, as
            ``env:NAME`` or ``file:PATH``, for a URL with a password.
        table: the table's name.
        fields: the columns to emit, each with a type. A text reads any column as the database writes it.
        id: the column with the id, among the fields: an integer that is never null.
        schema: the schema of the table; by default the database's.
        rows_max: the maximum number of rows in a transaction.
        watch: whether to go on with rows that come later. The run then ends only by ``run(…, until=…)``, SIGINT or
            SIGTERM; without it, with the largest id that there is when it starts.
        poll_secs: the seconds between two looks for what is new, and for whether writers are done.

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
        id: str = "id",
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
        self.table.check_fields("id", [id])
        self.output_fields = self.values.with_attempt()
        self.id, self.order = id, self.table.order([id])
        self.rows_max = rows_max
        self.watch = watch
        self.poll_secs = poll_secs

    def coordinator(self, config: Mapping[str, Any], context: TopologyContext) -> Coordinator:
        """Return the coordinator."""
        del config, context
        return _SqlCoordinator(self, self.table.opened())

    def emitter(self, config: Mapping[str, Any], context: TopologyContext) -> Emitter:
        """Return the emitter of every n-th id from ``this_task_index`` on, where n is the number of tasks."""
        del config
        tasks = len(context.component_tasks(context.this_component_id))
        return _SqlEmitter(self, self.table.opened(), context.this_task_index, tasks)

    def datasets(self, partitions: Collection[str]) -> Mapping[str, Dataset]:
        """Return the table."""
        del partitions
        return {"": dataset_of_table(self.table.url, self.table.name, self.table.schema)}

    def input_ranges(self, metadata: Metadata, previous_metadata: Metadata) -> Mapping[str, tuple[Any, Any]] | None:
        """Return the id before the first one, and the last."""
        del previous_metadata
        return {self.table.name: (metadata["after"], metadata["until"])} if metadata["rows"] else {}


@attrs.frozen
class _Largest:
    """The largest id of a moment, and who might bring a smaller one then."""

    id: int
    writers: frozenset[str]


@attrs.define(eq=False)
class _SqlCoordinator(Coordinator):
    _spout: SqlTransactionalSpout
    _opened: OpenedTable
    _now_secs: Callable[[], float] = time.monotonic
    _position: int | None = None
    _final: int | None = None
    """The largest id up to which no row can come any more."""
    _waiting: _Largest | None = None
    """What becomes that once its writers are done."""
    _has_ended: bool = False
    """Whether a run without ``watch`` knows the last row."""
    _polled_secs: float | None = None

    def resume(self, txid: int, metadata: Metadata) -> None:
        """Begin after the last transaction."""
        del txid
        self._spout.table.check_order(self._spout.order, metadata)
        self._position = self._final = None if metadata is None else metadata["until"]
        self._opened.check((self._spout.id,), INTEGERS)
        self._opened.check_sequence(self._spout.id, self._position)

    def rewind(self, txid: int, metadata: Metadata, undone: Sequence[Metadata]) -> bool:
        """Return True: nothing is kept in the store; what is gone of a range is found when it is read."""
        del txid, metadata, undone
        return True

    def is_ready(self) -> bool:
        """Whether there are ids after the last transaction that are final."""
        now_secs, due_secs = self._now_secs(), (self._polled_secs or 0.0) + self._spout.poll_secs
        if self._final == self._position and (self._polled_secs is None or now_secs >= due_secs):
            self._polled_secs = now_secs
            self._poll()
        return self._final != self._position

    def is_exhausted(self) -> bool:
        """Whether all rows up to the end are taken."""
        return not self._spout.watch and not self.is_ready() and self._has_ended

    def initialize_transaction(self, txid: int, previous_metadata: Metadata) -> Metadata:
        """Take the ids that come next."""
        del txid
        if previous_metadata is not None and previous_metadata["until"] != self._position:
            self._position = previous_metadata["until"]
        if not self.is_ready():
            return {"after": self._position, "until": self._position, "rows": 0, "of": self._spout.order}
        column = self._opened.quoted(self._spout.id)
        condition, parameters = _range(column, self._opened.placeholder, self._position, self._final)
        nth = f"{condition} ORDER BY {column} LIMIT 1 OFFSET {self._spout.rows_max - 1:d}"
        last = self._opened.ask(column, nth, parameters)
        until = self._final if last is None else last
        rows = self._opened.ask("count(*)", *_range(column, self._opened.placeholder, self._position, until))
        metadata = {"after": self._position, "until": until, "rows": rows, "of": self._spout.order}
        self._position = until
        return metadata

    def close(self) -> None:
        """Close the connection."""
        self._opened.database.close()

    def _poll(self) -> None:
        """Look whether the writers are done, and for the largest id and its writers."""
        if self._has_ended and not self._spout.watch:
            return
        if self._waiting is None:
            # In this order: who draws a smaller id has locked the table before the largest was drawn.
            largest = self._opened.ask(f"max({self._opened.quoted(self._spout.id)})")
            if self._position is not None and (largest is None or largest < self._position):
                self._opened.check_sequence(self._spout.id, self._position)  # rows were deleted, or ids begin again
            self._waiting = None if largest is None else _Largest(largest, self._opened.writers())
        else:
            writers = self._opened.writers()
            # One that was prepared outlives its server, and has another name after a restart.
            writers = frozenset(each for each in writers if each in self._waiting.writers or each.startswith(PREPARED))
            self._waiting = attrs.evolve(self._waiting, writers=writers)
        if self._waiting is None:
            self._has_ended = True
        elif not self._waiting.writers:
            if self._position is None or self._waiting.id > self._position:
                self._final = self._waiting.id
            self._waiting, self._has_ended = None, True


@attrs.frozen(eq=False)
class _SqlEmitter(Emitter):
    spout: SqlTransactionalSpout
    opened: OpenedTable
    task: int
    tasks: int

    def emit_batch(self, attempt: TransactionAttempt, metadata: Metadata, collector: BatchOutputCollector) -> None:
        del attempt
        self.spout.table.check_order(self.spout.order, metadata)
        if not metadata["rows"]:
            return
        column = self.opened.quoted(self.spout.id)
        condition, parameters = _range(column, self.opened.placeholder, metadata["after"], metadata["until"])
        # Without the sign for a remainder, which drivers take for one of a parameter.
        share = f" AND abs({column} - {column} / {self.tasks:d} * {self.tasks:d}) = {self.task:d}"
        rows = self.opened.read(f"{condition}{share if self.tasks > 1 else ''} ORDER BY {column}", parameters)
        if self.task == 0:
            count = rows.num_rows if self.tasks == 1 else self.opened.ask("count(*)", condition, parameters)
            self._check_count(count, metadata)
        for batch in rows.to_batches():
            collector.emit_batch(batch)

    def close(self) -> None:
        self.opened.database.close()

    def _check_count(self, rows: int, metadata: Metadata) -> None:
        """Refuse a range that has not the rows any more that it had when its transaction began."""
        if rows != metadata["rows"]:
            raise InputError(
                f"the table {self.opened.address} has {rows} rows with ids after {metadata['after']} up to "
                f"{metadata['until']}, and had {metadata['rows']} when their transaction began: rows were deleted, or "
                "were inserted with ids that had been drawn before"
            )


def _range(column: str, placeholder: str, after: int | None, until: int | None) -> tuple[str, tuple[Any, ...]]:
    if after is None:
        return f"{column} <= {placeholder}", (until,)
    return f"{column} > {placeholder} AND {column} <= {placeholder}", (after, until)
