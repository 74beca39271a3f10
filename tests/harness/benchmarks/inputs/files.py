"""Rows in Parquet files, a number of files for each transaction, for Spark to read."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq

from tests.harness.benchmarks.inputs.rows import Rows

SCHEMA = "word string, n long"
"""The files' columns, as Spark names their types."""


def file_names(txid: int, files: int) -> list[str]:
    """Return the names of a transaction's files; names sort as txids do."""
    return [f"{txid:06d}-{part}.parquet" for part in range(files)]


def write_files(folder: Path, rows: Rows, transactions: int, files: int = 1) -> Path:
    """Write the transactions from 1 on, ``files`` files each, unless they are there; return their folder."""
    made = folder / f"{type(rows).__name__}-{abs(hash(rows)):x}-{transactions}-in-{files}"
    if made.exists():
        return made
    made.mkdir(parents=True)
    for txid in range(1, transactions + 1):
        table = rows.batch(txid)
        size = -(-len(table) // files)
        for part, name in enumerate(file_names(txid, files)):
            pq.write_table(table.slice(part * size, size), made / name)
    return made
