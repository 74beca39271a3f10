"""The data files of a Delta table, written and read by txtopo itself, beside what delta-rs does.

They are written before the log knows of them, which may take long: a coordinator that staged them may be down. So
they lie in a folder whose name begins with an underscore, where no vacuum looks for files that the log does not
name. They stay there when the log names them, so that none is ever moved; :mod:`state.delta.upkeep` removes those
that are no longer needed, for nobody else does. In an object store nothing can be staged, and they lie beside the rest.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import attrs
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake.fs import DeltaStorageHandler
from pyarrow import fs

from state.delta.log.location import Location

__all__ = ["DATA_FOLDER", "DataFolder"]

DATA_FOLDER = "_data"
"""The folder of a table's own that txtopo writes data files into."""

PORTION_ROWS = 250_000
"""Rows of a file that are read at a time."""


@attrs.frozen
class DataFolder:
    """Where a table's data files lie. It pickles.

    Args:
        location: where the table lies.
    """

    location: Location

    def path_of(self, name: str) -> str:
        """Return where a new file of that name is to lie, relative to the table."""
        return name if self.location.folder is None else f"{DATA_FOLDER}/{name}"

    def write(self, path: str, rows: pa.Table) -> int:
        """Write a new Parquet file, durable on return, and return its bytes."""
        folder = self.location.folder
        if folder is None:
            with self._remote().open_output_stream(path) as sink:
                pq.write_table(rows, sink, compression="snappy")
            size = self.size_of(path)
            assert size is not None, "it was just written"
            return size
        with self.writer(path, rows.schema) as writer:
            writer.write_table(rows)
        return (folder / path).stat().st_size

    @contextlib.contextmanager
    def writer(self, path: str, schema: pa.Schema) -> Iterator[pq.ParquetWriter]:
        """Give what writes a new Parquet file to a local table, a portion at a time; durable at the end."""
        place = self._local() / path
        place.parent.mkdir(exist_ok=True)
        with place.open("xb") as file:
            with pq.ParquetWriter(file, schema, compression="snappy") as writer:
                yield writer
            file.flush()
            os.fsync(file.fileno())

    def portions(self, path: str, schema: pa.Schema) -> Iterator[pa.Table]:
        """Yield the rows of a local table's file, a portion at a time, as :meth:`read` returns them."""
        with (self._local() / path).open("rb") as file:
            for batch in pq.ParquetFile(file).iter_batches(PORTION_ROWS, columns=schema.names):
                yield pa.Table.from_batches([batch]).select(schema.names).cast(schema)

    def remove(self, path: str) -> None:
        """Remove a local table's file, which the log must not name."""
        (self._local() / path).unlink()

    def read(self, path: str, schema: pa.Schema) -> pa.Table:
        """Return the columns of a file that ``schema`` names, with its types."""
        folder = self.location.folder
        if folder is None:
            with self._remote().open_input_file(path) as file:
                return pq.ParquetFile(file).read(columns=schema.names).select(schema.names).cast(schema)
        with Path(folder / path).open("rb") as file:
            return pq.ParquetFile(file).read(columns=schema.names).select(schema.names).cast(schema)

    def size_of(self, path: str) -> int | None:
        """Return the bytes of a file; None if it is not there."""
        folder = self.location.folder
        if folder is None:
            found = self._remote().get_file_info(path)
            return None if found.type is not fs.FileType.File else int(found.size)
        place = folder / path
        return place.stat().st_size if place.is_file() else None

    def _local(self) -> Path:
        assert self.location.folder is not None, "the table lies in a local folder"
        return self.location.folder

    def _remote(self) -> fs.FileSystem:
        return fs.PyFileSystem(DeltaStorageHandler(self.location.address, self.location.options))
