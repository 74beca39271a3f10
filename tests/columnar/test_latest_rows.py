"""Rows in portions, of which the last one of each key counts, beside a dict."""

import pyarrow as pa
from hypothesis import given, settings, strategies as st

from tests.budgets import examples
from txtopo.columnar.latest_rows import LatestRows

SCHEMA = pa.schema([("a", pa.string()), ("b", pa.int64()), ("at", pa.timestamp("us", tz="UTC")), ("txid", pa.int64())])


def rows_of(values: dict[tuple[str, int], tuple[int | None, int]]) -> pa.Table:
    columns = zip(*((*key, *value) for key, value in values.items()), strict=True)
    return pa.Table.from_arrays([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)


KEYS = st.tuples(st.sampled_from(["", "x", "y"]), st.integers(-2, 2))


@settings(max_examples=examples(60), deadline=None)
@given(
    portions=st.lists(
        st.dictionaries(KEYS, st.none() | st.integers(0, 9), min_size=1, max_size=9), min_size=1, max_size=12
    ),
    sought=st.lists(KEYS, min_size=1, max_size=9, unique=True),
    until=st.integers(-1, 10),
)
def test_the_last_row_of_each_key(portions, sought, until) -> None:
    """Keys are found with their last row, whether they were looked up before it was added; so are times that passed."""
    rows, model = LatestRows(["a", "b"]), {}
    for txid, portion in enumerate(portions):
        made = rows_of({key: (at, txid) for key, at in portion.items()})
        looked_up = rows.look_up(made.select(["a", "b"]))
        rows.add(made, looked_up if txid % 2 else None)
        model.update({key: (at, txid) for key, at in portion.items()})
    keys = rows_of(dict.fromkeys(sought, (0, 0))).select(["a", "b"])
    own, parts = rows.rows_of(rows.look_up(keys))
    found = [tuple(row.values()) for part in parts for row in part.cast(_plain()).to_pylist()]
    assert {sought[at]: row for at, row in zip(own.tolist(), found, strict=True)} == {
        key: (*key, *model[key]) for key in sought if key in model
    }
    over = {
        (row["a"], row["b"]): row["txid"] for part in rows.over("at", until) for row in part.cast(_plain()).to_pylist()
    }
    assert over == {key: txid for key, (at, txid) in model.items() if at is not None and at <= until}


def _plain() -> pa.Schema:
    return pa.schema([field.with_type(pa.int64()) if field.name == "at" else field for field in SCHEMA])


def test_many_keys() -> None:
    """There is room for as many keys as come, also while others are looked up."""
    rows = LatestRows(["k"])
    for start in range(0, 5_000, 500):
        made = pa.table({"k": range(start, start + 1_000), "txid": [start] * 1_000})
        rows.add(made, rows.look_up(made.select(["k"])))
    own, parts = rows.rows_of(rows.look_up(pa.table({"k": range(6_000)})))
    found = pa.Table.from_batches(parts)
    assert sorted(found["k"].to_pylist()) == sorted(own.tolist()) == list(range(5_500))
    assert dict(zip(*(found[name].to_pylist() for name in ("k", "txid")), strict=True)) == {
        key: min(key // 500 * 500, 4_500) for key in range(5_500)
    }
