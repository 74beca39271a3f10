"""What the tables of :mod:`tests.legacy.interrupted` hold."""

from __future__ import annotations

import pathlib
from collections import Counter

from state import read_table
from tests.legacy.interrupted import expected_rows


def tables_in(folder: pathlib.Path) -> dict[str, Counter]:
    """Return the rows of each table, the txid last."""
    return {
        name: Counter(zip(*read_table(folder / name).to_pydict().values(), strict=True)) for name in expected_rows(0)
    }
