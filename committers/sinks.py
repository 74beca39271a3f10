"""Sinks of plain topologies: bolts that write their tuples into a Delta table, at least once.

A tuple is acked when the Delta write that holds it is durable, and fails if that write fails. So a root that is acked
is in the table. A root that is replayed, for example because a worker died between the write and the ack, is written
again: appended twice, or upserted to no effect. For exactly once, use a transactional topology.
"""

from __future__ import annotations

import os
import reprlib
import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

from state.delta.log.location import Location
from txtopo.api.arguments import checked_arguments
from txtopo.api.components.bolt import RichBolt
from txtopo.api.components.collector import OutputCollector
from txtopo.api.components.context import TopologyContext
from txtopo.api.data.fields import Fields
from txtopo.api.data.tuples import Tuple
from txtopo.api.data.types import ddl_name
from txtopo.columnar.conversion import fit_array
from txtopo.errors import ConfigError, FieldsError

ATTEMPTS_MAX = 10
"""How often a write that conflicts with another writer's is tried."""

_PAUSE_SECS = 0.1
"""The pause before the second try, as much longer before each further one: a Delta write takes about as long."""

_REFUSALS = ("Invalid data found", "Cast error")
"""How delta-rs says that a table refuses a value: a column is not nullable or is narrower, or a constraint fails. There
is no class of errors for it."""

DIVISIONS_MAX = 64
"""How often a refused write is divided to find the bad rows: enough for about five among 10,000."""


class _DeltaSink(RichBolt):
    """Gathers tuples and writes them together, in a thread beside the worker's loop."""

    output_fields = None

    def __init__(  # noqa: PLR0913 - a table, and three bounds
        self,
        path: str | os.PathLike[str],
        fields: Fields,
        *,
        compared: Sequence[str] = (),
        flush_secs: float,
        rows_max: int,
        bytes_max: int,
    ) -> None:
        for name, kind in zip(fields.names, fields.types, strict=True):
            if kind is None:
                raise ConfigError(f"field {name!r} of the table {path} has no type; write it as '{name}: string', say")
            if name in compared and pa.types.is_nested(kind):
                raise ConfigError(
                    f"field '{name}: {ddl_name(kind)}' of the table {path} is a key or version, which must be a single "
                    "value: values of this type are neither equal nor in order"
                )
        if flush_secs <= 0 or rows_max < 1 or bytes_max < 1:
            raise ConfigError("flush_secs, rows_max and bytes_max must be above 0")
        self._path = os.fspath(path)
        if not self._path:
            raise ConfigError(f"a {type(self).__name__} needs the path of its table")
        Location.resolve(self._path, None)  # refuses what delta-rs can't use
        self._fields = fields
        self._compared = frozenset(compared)
        self._flush_secs = flush_secs
        self._rows_max = rows_max
        self._bytes_max = bytes_max

    def component_configuration(self) -> Mapping[str, Any]:
        """Ask for the ticks that make it write."""
        return {"topology.tick.tuple.freq.secs": self._flush_secs}

    def prepare(self, config: Mapping[str, Any], context: TopologyContext, collector: OutputCollector) -> None:
        """Start with no tuples."""
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
        """Write what is left. It is too late for acks, so a source that redelivers sends these roots again."""
        rows, _ = self._take_gathered()
        if len(rows):
            self._write_what_fits(rows, {})

    @abstractmethod
    def _write(self, rows: pa.Table) -> None:
        """Write rows, durably."""

    def _flush(self) -> None:
        rows, tuples = self._take_gathered()
        if tuples:
            refused: dict[int, Exception] = {}
            self._context.offload(
                lambda: self._write_what_fits(rows, refused),
                lambda future: self._on_written(future.exception(), refused, tuples),
            )

    def _write_what_fits(self, rows: pa.Table, refused: dict[int, Exception]) -> None:
        """Write rows, dividing refused ones to find the culprits, whose positions and reasons go to ``refused``."""
        divisions = 0
        parts = [(0, len(rows))]
        while parts:
            start, end = parts.pop()
            try:
                self._write(rows.slice(start, end - start))
            except Exception as error:
                if not any(text in str(error) for text in _REFUSALS):
                    raise  # no row is to blame, so parts would fail as well
                if end - start == 1 or divisions == DIVISIONS_MAX:
                    # Past the bound, good rows of the part fail with the bad ones; they are replayed.
                    refused.update(dict.fromkeys(range(start, end), error))
                else:
                    divisions += 1
                    middle = (start + end) // 2
                    parts += [(middle, end), (start, middle)]  # a stack: the first half is next, so rows stay in order

    def _on_written(
        self, error: BaseException | None, refused: Mapping[int, Exception], tuples: Sequence[Tuple]
    ) -> None:
        # One report for each first line: many rows are refused for the same reason.
        causes: dict[str, BaseException] = {str(each).partition("\n")[0]: each for each in refused.values()}
        if error is not None:
            causes = {"": error}
        for cause in causes.values():
            self._collector.report_error(cause)
        for position, each in enumerate(tuples):
            settle = self._collector.ack if error is None and position not in refused else self._collector.fail
            settle(each)

    def _take_gathered(self) -> tuple[pa.Table, list[Tuple]]:
        """Return what was gathered, as rows and as tuples, and begin anew; fail the tuples that do not fit."""
        gathered, self._tuples, self._bytes = self._tuples, [], 0
        by_fields: dict[Fields, list[Tuple]] = {}  # streams may have their fields in another order
        for each in gathered:
            by_fields.setdefault(each.fields, []).append(each)
        tables, fitting = [self._schema.empty_table()], []
        for fields, tuples in by_fields.items():
            rows, fit = self._as_rows(fields, tuples)
            tables.append(rows)
            fitting += fit
        return pa.concat_tables(tables), fitting

    def _as_rows(self, fields: Fields, tuples: list[Tuple]) -> tuple[pa.Table, list[Tuple]]:
        """Return the tuples that fit, as rows and as tuples; fail the others."""
        try:
            positions = [fields.index(name) for name in self._fields]
        except FieldsError as error:
            self._refuse(f"{error}; the table {self._path} needs {self._fields}", tuples)
            return self._schema.empty_table(), []
        columns = list(zip(*(each.values for each in tuples), strict=True)) if tuples else [()] * len(fields)
        arrays = [self._column(field, columns[at]) for field, at in zip(self._schema, positions, strict=True)]
        if all(array is not None for array in arrays):
            return pa.Table.from_arrays(arrays, schema=self._schema), tuples
        misfits: set[int] = set()
        for field, at, array in zip(self._schema, positions, arrays, strict=True):
            if array is None:
                values = columns[at]
                found = [n for n, each in enumerate(values) if n not in misfits and self._column(field, [each]) is None]
                if found:  # otherwise its misfits have failed for another field
                    misfits.update(found)
                    why = f"field '{field.name}: {ddl_name(field.type)}': {_shown(values[found[0]])} does not fit the"
                    self._refuse(f"{why} table {self._path}", [tuples[n] for n in found])
        # Again, without the misfits: it ends, since a column without misfits is an array.
        return self._as_rows(fields, [each for row, each in enumerate(tuples) if row not in misfits])

    def _column(self, field: pa.Field, values: Sequence[Any]) -> Any:
        """Return a column; None if a value does not fit, or is NaN where values are compared."""
        array = fit_array(values, field.type)
        if array is None or field.name not in self._compared or not pa.types.is_floating(field.type):
            return array
        if pc.any(pc.is_nan(array)).as_py():
            return None
        return pc.add(array, pa.scalar(0.0, field.type))  # -0.0, which equals 0.0, becomes 0.0

    def _refuse(self, why: str, tuples: Sequence[Tuple]) -> None:
        """Fail tuples, with one error for all."""
        self._collector.report_error(FieldsError(f"{why}; {len(tuples)} of the batch failed for it"))
        for each in tuples:
            self._collector.fail(each)


class DeltaAppendBolt(_DeltaSink):
    """Appends every tuple to a Delta table, at least once.

    *You* give it any grouping and any number of tasks. *txtopo* guarantees that a root is acked only after the rows
    of its tuples are in the table. A tuple that does not fit the fields or the table fails alone, and the reason is
    reported; values fit as they do in a ``DeltaRows``.

    Args:
        path: of the table; it is made when it is first written to.
        fields: the fields to write, each with a type, by their names in the stream.
        flush_secs: how long a tuple waits at most for others.
        rows_max: tuples that are written together at most.
        bytes_max: about how many bytes of values are written together at most.

    Raises:
        ConfigError: a field has no type, or a bound is not above 0.
    """

    @checked_arguments
    def __init__(
        self,
        path: str | os.PathLike[str],
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

    Of two tuples with equal keys the one with the higher version wins, whichever comes first; a tuple with an equal
    version changes nothing. So a replay is harmless. Null as a version is older than any other; null as a key is a key
    like any other. NaN is neither a key nor a version.

    *You* give it a fields grouping on the key, so that its tasks do not write the same rows. *txtopo* guarantees that
    a root is acked only after the table holds its tuples, or newer ones. A tuple that does not fit the fields or the
    table fails alone, and the reason is reported; values fit as they do in a ``DeltaState``.

    Args:
        path: of the table; it is made when it is first written to.
        key: the key's fields, each with a type.
        value: the other fields to write, each with a type.
        version: the name of the value field that says which tuple of a key is newer.
        flush_secs: how long a tuple waits at most for others.
        rows_max: tuples that are written together at most.
        bytes_max: about how many bytes of values are written together at most.

    Raises:
        ConfigError: a field has no type, a bound is not above 0, there is no such version field, or a key or version is
            an array, map or struct.
    """

    @checked_arguments
    def __init__(  # noqa: PLR0913 - a table, and three bounds
        self,
        path: str | os.PathLike[str],
        key: Fields,
        value: Fields,
        *,
        version: str,
        flush_secs: float = 1.0,
        rows_max: int = 10_000,
        bytes_max: int = 16 << 20,
    ) -> None:
        if version not in value:
            raise ConfigError(f"there is no value field {version!r}; the version must be one of {', '.join(value)}")
        super().__init__(
            path, key + value, compared=[*key, version], flush_secs=flush_secs, rows_max=rows_max, bytes_max=bytes_max
        )
        self._key = key
        self._version = version

    def _write(self, rows: pa.Table) -> None:
        newest = self._newest(rows)
        for attempt in range(ATTEMPTS_MAX):
            try:
                self._merge(newest)
            except CommitFailedError:  # another task, or another writer, has written meanwhile
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
            except DeltaError:  # another task has created it meanwhile
                table = DeltaTable(self._path)
        same_key = " AND ".join(f"old.`{name}` IS NOT DISTINCT FROM new.`{name}`" for name in self._key)
        old, new = f"old.`{self._version}`", f"new.`{self._version}`"
        is_newer = f"{new} > {old} OR ({old} IS NULL AND {new} IS NOT NULL)"
        if pa.types.is_floating(rows.schema.field(self._version).type):
            # Another writer may have written NaN, which is above every number: no version would ever replace it.
            is_newer += f" OR isnan({old})"
        (
            table.merge(rows, same_key, source_alias="new", target_alias="old")
            .when_matched_update_all(is_newer)
            .when_not_matched_insert_all()
            .execute()
        )

    def _newest(self, rows: pa.Table) -> pa.Table:
        """Return the row of the highest version of each key; of equal versions, the first. Null is the lowest."""
        numbered = rows.append_column("__row", pa.array(range(len(rows))))
        order = pc.sort_indices(numbered, [(self._version, "descending"), ("__row", "ascending")])
        ordered = numbered.take(order)
        first = ordered.group_by(list(self._key), use_threads=False).aggregate([("__row", "first")])
        return rows.take(first["__row_first"])


def _shown(value: Any) -> str:
    """Return the beginning of a value, and its type."""
    try:
        text = reprlib.repr(value)
    except ValueError:  # Python refuses to print an integer of more than 4,300 digits
        text = "a value"
    return f"{text} ({type(value).__name__})"


def _size(value: Any) -> int:
    return len(value) if isinstance(value, (str, bytes)) else 8
