"""The data files of a Delta table, written and read by txtopo itself, beside what delta-rs does."""

from __future__ import annotations

import os
from pathlib import Path

import attrs
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake.fs import DeltaStorageHandler
from pyarrow import fs

from state.delta_location import Location

__all__ = ["DataFolder"]


@attrs.frozen
class DataFolder:
    """Where a table's data files lie. It pickles.

    Args:
        location: where the table lies.
    """

    location: Location

    def write(self, path: str, rows: pa.Table) -> int:
        """Write a new Parquet file, durable on return, and return its bytes."""
        folder = self.location.folder
        if folder is None:
            with self._remote().open_output_stream(path) as sink:
                pq.write_table(rows, sink, compression="snappy")
            size = self.size_of(path)
            assert size is not None, "it was just written"
            return size
        place = folder / path
        with place.open("xb") as file:
            pq.write_table(rows, file, compression="snappy")
            file.flush()
            os.fsync(file.fileno())
        return place.stat().st_size

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

    def _remote(self) -> fs.FileSystem:
        return fs.PyFileSystem(DeltaStorageHandler(self.location.address, self.location.options))
