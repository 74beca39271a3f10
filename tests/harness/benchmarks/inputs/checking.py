"""Checks of totals: a wrong one ends a benchmark."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable


class WrongTotalsError(Exception):
    """The totals of a contender differ from those of the rows, so none of its figures counts."""


def check_totals(who: str, table: pa.Table, totals: np.ndarray) -> None:
    """Compare every row of ``who``'s table, with the columns word and n, with the total of each word; 0 means no row.

    Raises:
        WrongTotalsError: a word is missing, doubled, unknown, or has another total.
    """
    keys = pc.cast(pc.utf8_slice_codeunits(table["word"].cast(pa.string()), 1), pa.int64()).to_numpy()
    found = np.zeros(len(totals), np.int64)
    np.add.at(found, keys, table["n"].to_numpy())
    wrong = np.flatnonzero(found != totals)
    rows = np.count_nonzero(totals)
    if len(wrong) or len(keys) != rows:
        examples = ", ".join(f"w{key}: {found[key]} instead of {totals[key]}" for key in wrong[:5])
        raise WrongTotalsError(f"{who}: {len(wrong)} wrong totals, {len(keys)} rows instead of {rows}. {examples}")


def check_delta(who: str, path: Path, totals: np.ndarray) -> None:
    """Compare every row of a Delta table with the totals; see :func:`check_totals`."""
    check_totals(who, pa.table(DeltaTable(str(path)).scan(columns=["word", "n"])), totals)
