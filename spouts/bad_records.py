"""The table of a spout's bad records: those that do not fit its fields.

Without such a table the first bad record stops the run. With one, the spout emits bad records on a stream of their own,
and a committer of the topology appends them to the table, each exactly once.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self

import pyarrow as pa

from txtopo.api.components.bolt import Component, OutputFieldsDeclarer
from txtopo.api.components.spout import SpoutTable
from txtopo.api.data.fields import Fields
from txtopo.errors import ConfigError

BAD_RECORDS = "bad-records"
"""The stream of bad records, and the name of their table."""

BYTES_WAITING_MAX = 4 * 1024 * 1024
"""The maximum number of bytes of bad records that wait to be emitted."""


class BadRecordRows:
    """Emits the rows of bad records, at most ``rows_max`` at a time."""

    def __init__(self, fields: Fields, emit: Callable[[pa.RecordBatch], None], rows_max: int = 4096) -> None:
        self._fields = fields
        self._rows_max = rows_max
        self._emit = emit
        self._rows: list[tuple[Any, ...]] = []
        self._bytes = 0

    def add(self, row: tuple[Any, ...], size_bytes: int) -> None:
        """Add a row; emit the waiting rows if there are enough."""
        self._rows.append(row)
        self._bytes += size_bytes
        if len(self._rows) >= self._rows_max or self._bytes >= BYTES_WAITING_MAX:
            self.finish()

    def finish(self) -> None:
        """Emit the waiting rows."""
        if self._rows:
            columns = [list(column) for column in zip(*self._rows, strict=True)]
            self._rows, self._bytes = [], 0
            arrays = list(map(pa.array, columns, self._fields.types))
            self._emit(pa.RecordBatch.from_arrays(arrays, names=list(self._fields)))


class WithBadRecords(Component):
    """A spout that may have a table of bad records; name this base class before the spout's."""

    dead_letter: str | None
    """The path of the table, if the spout has one."""
    bad_records_fields: ClassVar[Fields]

    def declare_output_fields(self, declarer: OutputFieldsDeclarer) -> None:
        """Declare the stream of records and, with ``dead_letter``, the stream of bad records."""
        super().declare_output_fields(declarer)
        if self.dead_letter is not None:
            declarer.declare_stream(BAD_RECORDS, self.bad_records_fields.with_attempt())

    def with_dead_letter(self, path: str) -> Self:
        """Return this spout with a table of bad records; raise ConfigError if it has one already."""
        if self.dead_letter is not None:
            raise ConfigError(f"the spout has a table of bad records already, at {self.dead_letter}; give it only one")
        spout = copy.copy(self)
        spout.dead_letter = path
        return spout

    def own_tables(self) -> Mapping[str, SpoutTable]:
        """Return the table of bad records if ``dead_letter`` is given."""
        if self.dead_letter is None:
            return {}
        # Imported here, so that processes without such a table do not pay for the imports.
        from committers import AppendCommitter  # noqa: PLC0415
        from state import DeltaRows  # noqa: PLC0415

        table = DeltaRows(self.dead_letter, self.bad_records_fields)
        return {BAD_RECORDS: SpoutTable(BAD_RECORDS, AppendCommitter, table)}
