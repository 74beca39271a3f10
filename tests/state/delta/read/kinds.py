"""A table of each kind with values of each kind, for readers, beside the rows that are in it by a plain computation."""

import datetime as dt
import math
import random
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from state import DeltaExpiringRows, DeltaRows, DeltaState
from tests.state.delta.rows.rows_tables import put
from txtopo import Fields, StateKind
from txtopo.api.values import OpaqueValue, TransactionalValue
from txtopo.transactional.commit.write_buffer import group_state

UTC = dt.UTC

VALUES: Mapping[str, list[Any]] = {
    "s": ["a", "b", "", "z" * 40, "z" * 40 + "x", "\uffff", "\U0001f600", "é", "a'b", "y" * 32 + "\U0001f600", "null"],
    "d": [math.nan, -0.0, 0.0, 1.5, -1.5, math.inf, -math.inf, 1e308, 0.1, 5e-324],
    "f": [-0.0, 0.0, 1.5, 0.10000000149011612],
    "t": [
        dt.datetime(2024, 1, 1, tzinfo=UTC),
        dt.datetime(2024, 1, 1, 0, 0, 0, 123456, UTC),
        dt.datetime(2024, 1, 1, 0, 0, 0, 123999, UTC),
        dt.datetime(1960, 1, 1, 0, 0, 0, 1, UTC),
        dt.datetime(1500, 3, 1, 12, tzinfo=UTC),
        dt.datetime(1, 1, 1, 0, 0, 0, 1, UTC),
        dt.datetime(9999, 12, 31, 23, 59, 59, 999999, UTC),
    ],
    "m": [Decimal(text) for text in ("0.0000", "-0.1000", "9" * 34 + ".9999", "-" + "9" * 34 + ".9999", "1E-4")],
    "n": [0, -1, 2**63 - 1, -(2**63), 2**53 + 1, 2**53],
    "a": [
        dt.date(2024, 1, 1),
        dt.date(9999, 12, 31),
        dt.date(1969, 12, 31),
        dt.date(1582, 10, 15),
        dt.date(1582, 10, 4),
        dt.date(1500, 2, 28),
        dt.date(1, 1, 1),
    ],
    "b": [True, False],
    "y": [b"", b"\0", b"\xff" * 40],
}
KINDS_OF_VALUES = {
    "s": "string",
    "d": "double",
    "f": "float",
    "t": "timestamp",
    "m": "decimal(38,4)",
    "n": "long",
    "a": "date",
    "b": "boolean",
    "y": "binary",
}
PARTITIONS = [
    "a=b",
    "a/b",
    "ü",
    "%",
    "%41",
    " ",
    "a ",
    "a:b",
    "\U0001f600",
    "a'b",
    'a"b',
    "a\\b",
    "a?b",
    "a+b",
    "null",
    "01",
]


class Filled(NamedTuple):
    """A table and what is in it."""

    path: Path
    rows: list[dict[str, Any]]


def fields_of(*names: str) -> Fields:
    """Return fields with the names of values."""
    return Fields(*(f"{name}: {KINDS_OF_VALUES[name]}" for name in names))


ALL = tuple(KINDS_OF_VALUES)
BOUNDED = tuple(name for name in ALL if name not in {"m", "y"})
"""Those of which the log has bounds."""


def drawn(names: tuple[str, ...], ids: range, seed: int = 5) -> list[dict[str, Any]]:
    """Return rows with an id and values: columns with one value, with nulls only, and mixed ones, three rows at a time."""
    draw = random.Random(seed)
    rows: list[dict[str, Any]] = []
    for first in range(ids.start, ids.stop, 3):
        some: list[dict[str, Any]] = [{"id": n} for n in range(first, min(first + 3, ids.stop))]
        for name in names:
            kind, same = draw.random(), draw.choice(VALUES[name])
            for row in some:
                row[name] = same if kind < 0.4 else None if kind < 0.5 else draw.choice([*VALUES[name], None])
        rows += some
    return rows


def _opened(state: Any, epoch: int = 1) -> Any:
    return state.open("topology", "s", "life", epoch)


def _keyed(root: Path, names: tuple[str, ...], kind: StateKind = StateKind.TRANSACTIONAL, **options: Any) -> Filled:
    """Fill a keyed table in several groups: some keys are written again, and some are removed."""
    state = DeltaState(root / "t", Fields("id: long"), fields_of(*names), kind, **options)
    opened = _opened(state)
    held: dict[int, dict[str, Any]] = {}
    for txid, some in enumerate((range(24), range(18, 36), range(9), range(36, 42)), 1):
        rows = {row["id"]: row for row in drawn(names, some, txid)}
        _write(opened, txid, names, rows, held)
        held |= rows
    _write(opened, 5, names, {3: None, 20: None}, held)
    opened.close()
    return Filled(root / "t", [row for key, row in held.items() if key not in {3, 20}])


def _write(
    opened: Any,
    txid: int,
    names: tuple[str, ...],
    rows: Mapping[int, dict[str, Any] | None],
    held: Mapping[int, dict[str, Any]],
) -> None:
    """Write rows by key, None for one to remove; ``held`` are the rows before."""

    def value_of(row: dict[str, Any] | None) -> Any:
        return None if row is None else tuple(row[name] for name in names)

    is_opaque = opened.declared.kind is StateKind.OPAQUE
    opened.write(
        txid,
        {
            key: None
            if row is None
            else OpaqueValue(txid, value_of(row), value_of(held.get(key)))
            if is_opaque
            else TransactionalValue(txid, value_of(row))
            for key, row in rows.items()
        },
    )


def _evolved_keys(root: Path) -> Filled:
    """Fill a keyed table, add a column of each kind, and write some keys again."""
    opened = _opened(DeltaState(root / "t", Fields("id: long"), fields_of("s", "n")))
    held = {row["id"]: row for row in drawn(("s", "n"), range(24))}
    _write(opened, 1, ("s", "n"), held, {})
    opened.close()
    opened = _opened(DeltaState(root / "t", Fields("id: long"), fields_of(*_GROWN), schema_evolution="add"), 2)
    opened.grow()
    later = {row["id"]: row for row in drawn(_GROWN, range(18, 33), 6)}
    _write(opened, 2, _GROWN, later, {})
    opened.close()
    return Filled(root / "t", [dict.fromkeys(_GROWN) | row for row in (held | later).values()])


def _rows(root: Path, names: tuple[str, ...], partition_by: tuple[str, ...] = ()) -> Filled:
    fields = Fields("id: long") + fields_of(*names)
    rows = drawn(names, range(60))
    if partition_by:
        fields += Fields("p: string", "day: date", "k: int", "flag: boolean")
        for number, row in enumerate(rows):
            days = dt.date(1500, 2, 1), dt.date(2024, 1, 1)
            row |= {"p": PARTITIONS[number % len(PARTITIONS)], "day": days[number % 2], "k": number % 3 - 1}
            row["flag"] = number % 5 == 0
    opened = _opened(DeltaRows(root / "t", fields, partition_by=partition_by))
    for txid, first in enumerate(range(0, 60, 12), 1):
        put(opened, (txid, ("append", pa.Table.from_pylist(rows[first : first + 12], schema=fields.arrow_schema()))))
    opened.close()
    return Filled(root / "t", rows)


def _evolved_rows(root: Path) -> Filled:
    fields = Fields("id: long") + fields_of("s", "n")
    opened = _opened(DeltaRows(root / "t", fields))
    rows = drawn(("s", "n"), range(24))
    put(opened, (1, ("append", pa.Table.from_pylist(rows, schema=fields.arrow_schema()))))
    opened.close()
    fields = Fields("id: long") + fields_of(*_GROWN)
    opened = _opened(DeltaRows(root / "t", fields, schema_evolution="add"), 2)
    opened.grow()
    later = drawn(_GROWN, range(24, 45), 6)
    put(opened, (2, ("append", pa.Table.from_pylist(later, schema=fields.arrow_schema()))))
    opened.close()
    return Filled(root / "t", [dict.fromkeys(_GROWN) | row for row in (*rows, *later)])


def _expiring_rows(root: Path) -> Filled:
    """Fill a table of rows that expire, some of which are taken."""
    fields = Fields("id: long", "until: timestamp") + fields_of(*BOUNDED)
    opened = _opened(DeltaExpiringRows(root / "t", fields, "until"))
    start = dt.datetime(2024, 1, 1, tzinfo=UTC)
    rows = [{"until": start + dt.timedelta(hours=row["id"])} | row for row in drawn(BOUNDED, range(45))]
    for txid, first in enumerate(range(0, 45, 15), 1):
        group = group_state(opened)
        view = group.begin(txid)
        view.append(pa.Table.from_pylist(rows[first : first + 15], schema=fields.arrow_schema()))
        view.take_expired(int((start + dt.timedelta(hours=first)).timestamp()) * 1_000_000)
        view.check()
        view.finish()
        opened.write(txid, group.writes())
    opened.close()
    return Filled(root / "t", rows[31:])


_GROWN = ("s", "n", "d", "t", "a", "b")

KINDS: Mapping[str, Callable[[Path], Filled]] = {
    "keys": lambda root: _keyed(root, ALL),
    "keys, all columns with bounds": lambda root: _keyed(root, BOUNDED),
    "keys that expire": lambda root: _keyed(root, BOUNDED, ttl=dt.timedelta(days=1), clock="clock", time="t"),
    "opaque keys": lambda root: _keyed(root, BOUNDED, StateKind.OPAQUE),
    "keys with columns added": _evolved_keys,
    "rows": lambda root: _rows(root, ALL),
    "rows in partitions": lambda root: _rows(root, BOUNDED, ("p", "day", "k", "flag")),
    "rows with columns added": _evolved_rows,
    "rows that expire": _expiring_rows,
}
"""By name, how to make a table of each kind in a folder."""
