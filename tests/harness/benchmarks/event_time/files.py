"""Transactions as Parquet files, the same for all who read them."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

FILES = 2
"""Files of a transaction: one for each core of a small machine."""

_FIRST_MTIME_SECS = 1_767_225_600


def write_transactions(folder: Path, rows: pa.Table, size: int) -> Path:
    """Write transactions of ``size`` rows, ``FILES`` files each, unless they are there; return their folder.

    Files sort by name and by their time as they come: Structured Streaming takes them by time, the others by name.
    """
    if folder.exists():
        return folder
    draft = folder.with_name(f"{folder.name}-draft")
    draft.mkdir(parents=True)
    share = -(-size // FILES)
    for number, first in enumerate(range(0, rows.num_rows, size)):
        transaction = rows.slice(first, size)
        for part in range(FILES):
            path = draft / f"{number:06d}-{part}.parquet"
            pq.write_table(transaction.slice(part * share, share), path)
            mtime_secs = _FIRST_MTIME_SECS + number * FILES + part
            os.utime(path, (mtime_secs, mtime_secs))
    return draft.rename(folder)
