"""Sinks of plain topologies: bolts that write what they receive into a Delta table, at least once.

A tuple is acked when the Delta write that holds it is durable, and failed if that write failed. So a root that is
acked is in the table. One that is replayed, because a worker died between the write and the ack for example, is
written again: appended twice, or upserted to no effect. For exactly once, use a transactional topology.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

from txtopo.api.bolt import RichBolt
from txtopo.api.collector import OutputCollector
from txtopo.api.context import TopologyContext
from txtopo.api.fields import Fields
from txtopo.api.tuples import Tuple
from txtopo.errors import ConfigError, FieldsError

ATTEMPTS_MAX = 10
"""How often a write that conflicts with somebody else's is tried."""

_PAUSE_SECS = 0.1


class _DeltaSink(RichBolt):
    """Gathers tuples and writes them together, in a thread of its own."""

    output_fields = None

    def __init__(self, path: str, fields: Fields, *, flush_secs: float, rows_max: int, bytes_max: int) -> None:
        for name, kind in zip(fields.names, fields.types, strict=True):
            if kind is None:
                raise ConfigError(f"field {name!r} of the table {path} has no type; write it as '{name}: string', say")
        if flush_secs <= 0 or rows_max < 1 or bytes_max < 1:
            raise ConfigError("flush_secs, rows_max and bytes_max must be above 0")
        self._path = str(path)
        self._fields = fields
        self._flush_secs = flush_secs
        self._rows_max = rows_max
        self._bytes_max = bytes_max

    def component_configuration(self) -> Mapping[str, Any]:
        """Ask for the ticks on which it writes."""
        return {"topology.tick.tuple.freq.secs": self._flush_secs}

    def prepare(self, config: Mapping[str, Any], context: TopologyContext, collector: OutputCollector) -> None:
        """Begin to gather."""
        del config
        self._context = context
        self._collector = collector
        self._schema = self._fields.arrow_schema()
        self._tuples: list[Tuple] = []
        self._bytes = 0

    def execute(self, tuple: Tuple) -> None:
        """Gather a tuple; write when there are enough, or on a tick."""
        if tuple.source_component.startswith("__"):
            self._flush()
            return
        self._tuples.append(tuple)
        self._bytes += sum(map(_size, tuple.values))
        if len(self._tuples) >= self._rows_max or self._bytes >= self._bytes_max:
            self._flush()

    def cleanup(self) -> None:
        """Write what is left: its roots are pending, and nobody would be told of them."""
        if self._tuples:
            self._write(self._table(self._tuples))

    @abstractmethod
    def _write(self, rows: pa.Table) -> None:
        """Write rows, durably."""

    def _flush(self) -> None:
        if not self._tuples:
            return
        gathered, self._tuples, self._bytes = self._tuples, [], 0
        try:
            rows = self._table(gathered)
        except (pa.ArrowInvalid, pa.ArrowTypeError, FieldsError):
            rows, gathered = self._without_misfits(gathered)
        if gathered:
            self._context.offload(lambda: self._write(rows), lambda done: self._written(done, gathered))

    def _written(self, done: Future[None], gathered: Sequence[Tuple]) -> None:
        error = done.exception()
        if error is not None:
            self._collector.report_error(error)
        settle = self._collector.ack if error is None else self._collector.fail
        for each in gathered:
            settle(each)

    def _table(self, tuples: Sequence[Tuple]) -> pa.Table:
        fields = tuples[0].fields
        positions = [fields.index(name) for name in self._fields]
        columns = list(zip(*(each.values for each in tuples), strict=True))
        arrays = [pa.array(columns[at], type=kind) for at, kind in zip(positions, self._schema.types, strict=True)]
        return pa.Table.from_arrays(arrays, schema=self._schema)

    def _without_misfits(self, tuples: Sequence[Tuple]) -> tuple[pa.Table, list[Tuple]]:
        """Fail the tuples whose values do not fit the table, with an error for each, and return the others."""
        fitting = []
        for each in tuples:
            try:
                self._table([each])
            except (pa.ArrowInvalid, pa.ArrowTypeError, FieldsError) as error:
                self._collector.report_error(FieldsError(f"{each!r} does not fit the table {self._path}: {error}"))
                self._collector.fail(each)
            else:
                fitting.append(each)
        return (self._table(fitting) if fitting else self._schema.empty_table()), fitting


class DeltaAppendBolt(_DeltaSink):
    """Appends every tuple to a Delta table, at least once.

    *You* give it any grouping and any number of tasks. *txtopo* guarantees that a root is acked only after the rows
    of its tuples are in the table.

    Args:
        path: of the table; it is made when it is first written to.
        fields: the fields to write, each with a type, by their names in the stream.
        flush_secs: how long a tuple waits at most for others.
        rows_max: tuples that are written together at most.
        bytes_max: about how many bytes of values are written together at most.

    Raises:
        ConfigError: a field has no type, or a bound is not above 0.
    """

    def __init__(
        self,
        path: str,
        fields: Fields,
        *,
        flush_secs: float = 1.0,
        rows_max: int = 10_000,
        bytes_max: int = 16 << 20,
    ) -> None:
        super().__init__(path, fields, flush_secs=flush_secs, rows_max=rows_max, bytes_max=bytes_max)

    def _write(self, rows: pa.Table) -> None:
        write_deltalake(self._path, rows, mode="append")


class DeltaUpsertBolt(_DeltaSink):
    """Keeps the newest version of each key in a Delta table; a tuple that comes again changes nothing.

    Of two tuples with equal keys the one with the higher version wins, whichever comes first; one with an equal
    version changes nothing. So a replay is harmless.

    *You* give it a fields grouping on the key, so that its tasks do not write the same rows. *txtopo* guarantees that
    a root is acked only after the table holds its tuples, or newer ones.

    Args:
        path: of the table; it is made when it is first written to.
        key: the key's fields, each with a type.
        value: the other fields to write, each with a type.
        version: the name of the value field that says which tuple of a key is newer.
        flush_secs: how long a tuple waits at most for others.
        rows_max: tuples that are written together at most.
        bytes_max: about how many bytes of values are written together at most.

    Raises:
        ConfigError: a field has no type, a bound is not above 0, or there is no such version field.
    """

    def __init__(  # noqa: PLR0913 - a table, and three bounds
        self,
        path: str,
        key: Fields,
        value: Fields,
        *,
        version: str,
        flush_secs: float = 1.0,
        rows_max: int = 10_000,
        bytes_max: int = 16 << 20,
    ) -> None:
        super().__init__(path, key + value, flush_secs=flush_secs, rows_max=rows_max, bytes_max=bytes_max)
        if version not in value:
            raise ConfigError(f"there is no value field {version!r}; the version must be one of {', '.join(value)}")
        self._key = key
        self._version = version

    def _write(self, rows: pa.Table) -> None:
        newest = self._newest(rows)
        for attempt in range(ATTEMPTS_MAX):
            try:
                self._merge(newest)
            except CommitFailedError:  # another task, or somebody else, has written meanwhile
                if attempt == ATTEMPTS_MAX - 1:
                    raise
                time.sleep(_PAUSE_SECS * (attempt + 1))
            else:
                return

    def _merge(self, rows: pa.Table) -> None:
        try:
            table = DeltaTable(self._path)
        except TableNotFoundError:
            try:
                table = DeltaTable.create(self._path, rows.schema, mode="error")
            except DeltaError:  # another task has made it just now
                table = DeltaTable(self._path)
        same_key = " AND ".join(f"old.`{name}` IS NOT DISTINCT FROM new.`{name}`" for name in self._key)
        (
            table.merge(rows, same_key, source_alias="new", target_alias="old")
            .when_matched_update_all(f"new.`{self._version}` > old.`{self._version}`")
            .when_not_matched_insert_all()
            .execute()
        )

    def _newest(self, rows: pa.Table) -> pa.Table:
        """Return the row of the highest version of each key; of equal versions, the first."""
        numbered = rows.append_column("__row", pa.array(range(len(rows))))
        order = pc.sort_indices(numbered, [(self._version, "descending"), ("__row", "ascending")])
        ordered = numbered.take(order)
        first = ordered.group_by(list(self._key), use_threads=False).aggregate([("__row", "first")])
        return rows.take(first["__row_first"])


def _size(value: Any) -> int:
    return len(value) if isinstance(value, (str, bytes)) else 8
