"""The readers that people have, each as a function that returns some columns of the rows that pass a filter."""

import datetime as dt
import functools
import json
import operator
import shutil
from collections.abc import Callable, Sequence
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

    def passes(self, value: Any) -> bool:
        """Say whether a row with a value passes, as a plain computation does."""
        if value is None or self.value is None:
            return (value is None) == (self.operator == "is null")
        compare = {"=": operator.eq, "<": operator.lt, ">=": operator.ge, "in": lambda each, of: each in of}
        return bool(compare[self.operator](value, self.value))


class Condition(NamedTuple):
    """A condition as a text of SQL that all engines understand, in the place of a :class:`Filter`."""

    text: str

    def sql(self, _literal: Callable[[Any], str]) -> str:
        """Return it as it is."""
        return self.text


Reader = Callable[[Path, Filter | None, Sequence[str]], pa.Table]

ID = ("id",)


def ids(rows: pa.Table) -> list[int]:
    """Return the ids of rows, sorted."""
    return sorted(rows["id"].to_pylist())


def delta_rs_dataset(path: Path, wanted: Filter | None = None, columns: Sequence[str] = ID) -> pa.Table:
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
    return DeltaTable(str(path)).to_pyarrow_dataset().to_table(columns=list(columns), filter=condition)


def delta_rs_scan(path: Path, wanted: Filter | None = None, columns: Sequence[str] = ID) -> pa.Table:
    """Read by ``scan``, delta-rs' own way."""
    predicate = None if wanted is None else wanted.sql(_data_fusion_literal)
    return pa.table(DeltaTable(str(path)).scan(columns=list(columns), predicate=predicate))


def delta_rs_query(path: Path, wanted: Filter | None = None, columns: Sequence[str] = ID) -> pa.Table:
    """Read by a query in SQL."""
    where = "" if wanted is None else f" where {wanted.sql(_data_fusion_literal)}"
    query = QueryBuilder().register("t", DeltaTable(str(path))).execute(f"select {', '.join(columns)} from t{where}")
    return pa.table(query.read_all())


def polars_scan(path: Path, wanted: Filter | None = None, columns: Sequence[str] = ID) -> pa.Table:
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
    return rows.select(columns).collect().to_arrow()


def duck_db(path: Path, wanted: Filter | None = None, columns: Sequence[str] = ID) -> pa.Table:
    """Read by DuckDB's extension for Delta."""
    where = "" if wanted is None else f" where {wanted.sql(_standard_literal)}"
    return (
        duck_db_connection()
        .execute(f"select {', '.join(columns)} from delta_scan('{path}'){where}")
        .fetch_arrow_table()
    )


@functools.cache
def duck_db_connection() -> duckdb.DuckDBPyConnection:
    """Connect once: to load the extension takes longer than all queries."""
    connection = duckdb.connect()
    extension = next(Path(duckdb_ext.__path__[0]).rglob("delta.duckdb_extension"))
    connection.execute(f"load '{extension}'")
    connection.execute("set timezone = 'UTC'")
    return connection


READERS: tuple[Reader, ...] = (
    delta_rs_dataset,
    delta_rs_scan,
    delta_rs_query,
    polars_scan,
    duck_db,
)


SQL_READERS: tuple[Callable[..., pa.Table], ...] = (delta_rs_scan, delta_rs_query, duck_db)
"""Those that take a :class:`Condition`, too."""


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
        case bytes():
            return "'" + "".join(f"\\x{byte:02X}" for byte in value) + "'::blob"
        case float():
            return f"cast('{value}' as double)"
        case Decimal():
            return f"cast('{value}' as decimal(38, 4))"
    return str(value)


def spark_literal(value: Any) -> str:
    """Return a value as a literal of Spark's SQL."""
    match value:
        case str():
            return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
        case bytes():
            return f"X'{value.hex()}'"
        case dt.datetime():
            return f"timestamp '{value.isoformat(sep=' ')}'"
    return _standard_literal(value)


def _data_fusion_literal(value: Any) -> str:
    if isinstance(value, dt.datetime):
        zone = "None" if value.tzinfo is None else 'Some("UTC")'
        return f"arrow_cast('{value.replace(tzinfo=None).isoformat()}', 'Timestamp(Microsecond, {zone})')"
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    return _standard_literal(value)
