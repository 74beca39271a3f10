"""Tables with deletion vectors, made through the parts of the log alone, and what they should hold."""

import json
import random
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import Schema
from pyroaring import BitMap64

from state.delta.log.data_files import DATA_FOLDER, DataFile, DataFolder
from state.delta.log.entries import entry_path
from state.delta.log.location import LOG_FOLDER, Location
from state.delta.log.ownership import Owner
from state.delta.log.put import Change, entry_of
from state.delta.writer import TableWriter
from tests.state.delta.read.kinds import VALUES

SCHEMA = pa.schema([("id", pa.int64()), ("s", pa.string())])


class VectorTable:
    """A table of ids, whose files and dead rows a test chooses; ``alive`` are the ids that each file should show."""

    def __init__(self, root: Path, configuration: Mapping[str, str] | None = None) -> None:
        self.root = root
        self.location = Location.resolve(str(root), None)
        self.data = DataFolder(self.location)
        self.files: dict[str, DataFile] = {}
        self.alive: dict[str, list[int]] = {}
        self.ids: dict[str, list[int]] = {}
        self.version = 0
        for folder in (LOG_FOLDER, DATA_FOLDER):
            (root / folder).mkdir(parents=True)
        features = {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}
        metadata = {
            "id": str(uuid.uuid4()),
            "format": {"provider": "parquet", "options": {}},
            "schemaString": Schema.from_arrow(SCHEMA).to_json(),
            "partitionColumns": [],
            "configuration": {"delta.enableDeletionVectors": "true", **(configuration or {})},
        }
        actions = [{"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}}, {"metaData": metadata}]
        (root / entry_path(0)).write_text("\n".join(map(json.dumps, actions)))

    def put(self, change: Change) -> None:
        """Put the next version."""
        self.version += 1
        assert self.location.folder.put_if_absent(entry_path(self.version), entry_of(change, {}, {}, self.version))

    def add(self, ids: list[int], group_rows: int | None = None) -> str:
        """Add a file, with so many rows in a row group, and return its path."""
        rows = pa.table({"id": ids, "s": [VALUES["s"][n % len(VALUES["s"])] for n in ids]}, schema=SCHEMA)
        file = self.data.put("rows", rows)
        if group_rows is not None:
            pq.write_table(rows, self.root / file.place, row_group_size=group_rows)
            file = attrs.evolve(file, size=(self.root / file.place).stat().st_size)
        self.put(Change([file]))
        self.files[file.path], self.ids[file.path], self.alive[file.path] = file, ids, ids
        return file.path

    def mark(self, **dead: BitMap64) -> None:
        """Give files other dead rows, in one version; none: no vector, and nothing happens to a file without one."""
        dead = {path: rows for path, rows in dead.items() if rows or self.files[path].vector}
        vectors = iter(self.data.put_vectors([rows for rows in dead.values() if rows]))
        old = [self.files[path] for path in dead]
        new = [
            DataFile(file.path, file.size, file.rows, file.stats, vector=next(vectors) if rows else None)
            for file, rows in zip(old, dead.values(), strict=True)
        ]
        self.put(Change(new, old))
        for file in new:
            self.files[file.path] = file
            rows = dead[file.path]
            self.alive[file.path] = [own for n, own in enumerate(self.ids[file.path]) if n not in rows]

    def remove(self, path: str) -> None:
        """Remove a file."""
        self.put(Change(removed=[self.files.pop(path)]))
        del self.alive[path]

    def step(self, draw: random.Random) -> None:
        """Do one of these."""
        deed = draw.random()
        if not self.files or deed < 0.3:
            first = sum(map(len, self.ids.values()))
            self.add(list(range(first, first + draw.randrange(1, 20))))
        elif deed < 0.4:
            self.remove(draw.choice(list(self.files)))
        else:
            paths = draw.sample(list(self.files), draw.randrange(1, len(self.files) + 1))
            self.mark(**{path: self.some(path, draw) for path in paths})

    def some(self, path: str, draw: random.Random) -> BitMap64:
        """Return some positions in a file."""
        count = self.files[path].rows
        return BitMap64(draw.sample(range(count), draw.randrange(count)))

    @property
    def shown(self) -> list[int]:
        """The ids that readers should see, sorted."""
        return sorted(own for ids in self.alive.values() for own in ids)


def mark_dead(path: Path, txid: int | None, is_dead: Callable[[pa.Table], Any], epoch: int = 9) -> int:
    """Mark rows of a state's table dead, as the write of a transaction by a new coordinator; return how many are.

    ``is_dead`` returns for each row of a file whether it is.
    """
    location = Location.resolve(str(path), None)
    table, data = location.handle(), DataFolder(location)
    owner = Owner.of(table)
    assert owner is not None
    partition_by, schema = table.metadata().partition_columns, pa.schema(table.schema())
    writer = TableWriter.open(location, table, owner.fence(epoch), partition_by)
    old, bitmaps = [], []
    for file in writer.head.files.values():
        rows = data.read(file, schema, with_dead=True)
        found = BitMap64(np.flatnonzero(np.asarray(is_dead(rows))))
        if found - data.dead(file):
            old.append(file)
            bitmaps.append(found | data.dead(file))
    vectors = data.put_vectors(bitmaps)
    new = [attrs.evolve(file, vector=vector) for file, vector in zip(old, vectors, strict=True)]
    assert writer.put_next(Change(new, old, txid=txid))
    return sum(file.live for file in old) - sum(file.live for file in new)
