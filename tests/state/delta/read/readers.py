"""The readers that people have, each as a function that returns the ids of the rows that pass a filter."""

from __future__ import annotations

import datetime as dt
import functools
import json
import shutil
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import duckdb_ext
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import DeltaTable, QueryBuilder


class Filter(NamedTuple):
    """A condition on a column: an operator of SQL, and the value; ``is null`` and ``is not null`` have none."""

    column: str
    operator: str
    value: Any = None

    def sql(self, literal: Callable[[Any], str]) -> str:
        """Return it as a condition of SQL."""
        if self.operator == "in":
            return f"{self.column} in ({', '.join(map(literal, self.value))})"
        return f"{self.column} {self.operator}" + ("" if "null" in self.operator else f" {literal(self.value)}")


def delta_rs_dataset(path: Path, wanted: Filter | None) -> list[int]:
    """Read as ``to_pyarrow_table(filters=…)`` and ``to_pandas(filters=…)`` do."""
    condition = None
    if wanted is not None:
        field = ds.field(wanted.column)
        condition = {
            "=": lambda: field == wanted.value,
            "<": lambda: field < wanted.value,
            ">=": lambda: field >= wanted.value,
            "in": lambda: field.isin(list(wanted.value)),
            "is null": field.is_null,
            "is not null": field.is_valid,
        }[wanted.operator]()
    return DeltaTable(str(path)).to_pyarrow_dataset().to_table(columns=["id"], filter=condition)["id"].to_pylist()


def delta_rs_scan(path: Path, wanted: Filter | None) -> list[int]:
    """Read by ``scan``, delta-rs' own way."""
    predicate = None if wanted is None else wanted.sql(_data_fusion_literal)
    return pa.table(DeltaTable(str(path)).scan(columns=["id"], predicate=predicate))["id"].to_pylist()


def delta_rs_query(path: Path, wanted: Filter | None) -> list[int]:
    """Read by a query in SQL."""
    where = "" if wanted is None else f" where {wanted.sql(_data_fusion_literal)}"
    query = QueryBuilder().register("t", DeltaTable(str(path))).execute(f"select id from t{where}")
    return pa.table(query.read_all())["id"].to_pylist()


def polars_scan(path: Path, wanted: Filter | None) -> list[int]:
    """Read by polars' ``scan_delta``."""
    rows = pl.scan_delta(str(path))
    if wanted is not None:
        column, value = pl.col(wanted.column), wanted.value
        rows = rows.filter(
            {
                "=": lambda: column == value,
                "<": lambda: column < value,
                ">=": lambda: column >= value,
                "in": lambda: column.is_in(list(value)),
                "is null": column.is_null,
                "is not null": column.is_not_null,
            }[wanted.operator]()
        )
    return rows.select("id").collect()["id"].to_list()


def duck_db(path: Path, wanted: Filter | None) -> list[int]:
    """Read by DuckDB's extension for Delta."""
    where = "" if wanted is None else f" where {wanted.sql(_standard_literal)}"
    found = _duck_db().execute(f"select id from delta_scan('{path}'){where}").fetchall()
    return [row[0] for row in found]


@functools.cache
def _duck_db() -> duckdb.DuckDBPyConnection:
    """Connect once: to load the extension takes longer than all queries."""
    connection = duckdb.connect()
    extension = next(Path(duckdb_ext.__path__[0]).rglob("delta.duckdb_extension"))
    connection.execute(f"load '{extension}'")
    connection.execute("set timezone = 'UTC'")
    return connection


READERS: tuple[Callable[[Path, Filter | None], list[int]], ...] = (
    delta_rs_dataset,
    delta_rs_scan,
    delta_rs_query,
    polars_scan,
    duck_db,
)


def without_statistics(path: Path, to: Path) -> Path:
    """Copy a table as one whose log says nothing of the columns, so that no reader can skip a file by it."""
    shutil.copytree(path, to)
    for entry in (to / "_delta_log").glob("*.json"):
        actions = [json.loads(line) for line in entry.read_text().splitlines()]
        for action in actions:
            action.get("add", {}).pop("stats", None)
        entry.write_text("\n".join(map(json.dumps, actions)))
    return to


def _standard_literal(value: Any) -> str:
    match value:
        case bool():
            return str(value).lower()
        case dt.datetime():
            return f"timestamp{'' if value.tzinfo is None else 'tz'} '{value.isoformat(sep=' ')}'"
        case dt.date():
            return f"date '{value.isoformat()}'"
        case str():
            return "'" + value.replace("'", "''") + "'"
        case float():
            return f"cast('{value}' as double)"
        case Decimal():
            return f"cast('{value}' as decimal(38, 4))"
    return str(value)


def _data_fusion_literal(value: Any) -> str:
    if isinstance(value, dt.datetime):
        zone = "None" if value.tzinfo is None else 'Some("UTC")'
        return f"arrow_cast('{value.replace(tzinfo=None).isoformat()}', 'Timestamp(Microsecond, {zone})')"
    return _standard_literal(value)
