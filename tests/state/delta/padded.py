"""Tables whose files all have dead rows, so that whatever is tested with them meets deletion vectors."""

from collections.abc import Callable, Sequence

import attrs
import numpy as np
import pyarrow as pa
import pytest
from pyroaring import BitMap64

from state import DeltaState
from state.delta.declared import DeclaredDeltaTable
from state.delta.log.data_files import DataFile, DataFolder
from state.delta.log.put import Change
from state.delta.schema import TXID_FIELD
from state.delta.writer import TableWriter

DEAD_TXID = 10**9


def pad_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every write of a state's table be followed by one that moves its rows to files with dead rows.

    A dead row equals a live one, but for its transaction. The version after that has other vectors of the same rows.
    """
    monkeypatch.setattr(DeclaredDeltaTable, "deletion_vectors", True)
    monkeypatch.setattr(DeltaState, "deletion_vectors", property(lambda _: True, lambda *_: None), raising=False)
    put = TableWriter.put

    def put_and_pad(writer: TableWriter, txid: int, change: Callable[[], Change]) -> Change | None:
        made = put(writer, txid, change)
        if made is not None:
            pad(writer)
        return made

    monkeypatch.setattr(TableWriter, "put", put_and_pad)


def pad(writer: TableWriter) -> None:
    """Move the rows of files without a vector to such with dead rows: before, between and behind them."""
    data, schema = DataFolder(writer.location), pa.schema(writer.table.schema())
    old = [file for file in writer.head.files.values() if file.vector is None and file.rows]
    if not old:
        return
    padded = [_padded(data, schema, file) for file in old]
    dead = [own for _, own in padded]
    once = _marked(data, [file for file, _ in padded], dead)
    assert [file.live for file in once] == [file.live for file in old]
    assert writer.put_next(Change(once, old, is_of_rows=False))
    again = _marked(data, once, dead)
    assert writer.put_next(Change(again, once, is_of_rows=False))


def _marked(data: DataFolder, files: Sequence[DataFile], dead: Sequence[BitMap64]) -> list[DataFile]:
    vectors = data.put_vectors(dead)
    return [attrs.evolve(file, vector=vector) for file, vector in zip(files, vectors, strict=True)]


def _padded(data: DataFolder, schema: pa.Schema, file: DataFile) -> tuple[DataFile, BitMap64]:
    """Write the rows of a file with dead ones between them, and return the new file and their positions."""
    rows = data.read(file, schema)
    number = schema.get_field_index(TXID_FIELD)
    dead = rows.set_column(number, schema.field(number), pa.array(np.full(rows.num_rows, DEAD_TXID)))
    order = np.arange(2 * rows.num_rows).reshape(2, -1).T[:, ::-1].ravel()  # a dead one, a live one, and so on
    every = pa.concat_tables([rows, dead, dead.slice(0, 1)]).take(pa.array([*order, 2 * rows.num_rows]))
    made = data.put("padded", every, file.partition)
    return made, BitMap64(np.flatnonzero(np.asarray(every[TXID_FIELD]) == DEAD_TXID).tolist())
