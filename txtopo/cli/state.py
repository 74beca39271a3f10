"""``txtopo state``: the rows of a state's table, now or as of a past transaction."""

from __future__ import annotations

import csv
import importlib
import json
import sys
from collections.abc import Sequence
from typing import cast

import click
import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console
from rich.table import Table
from rich.text import Text

from txtopo.cli.command import Command
from txtopo.errors import ConfigError

READER = "state.delta:read_table"
"""What reads a table; resolved by name, for the framework imports no state of its users."""

TXID = "txid"
ROWS_SHOWN = 20


@click.command(cls=Command)
@click.argument("table", metavar="TABLE")
@click.option("--txid", type=click.IntRange(min=0), metavar="N", help="Show the rows as of this transaction.")
@click.option("--limit", type=click.IntRange(min=0), metavar="N", help="Show at most N rows; 20 in a table.")
@click.option("--key", "keys", multiple=True, metavar="VALUE", help="Show this key; once for each key field.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "json", "csv"]),
    default="table",
    show_default=True,
    help="A table for the terminal, a JSON object a line, or CSV.",
)
def state(table: str, txid: int | None, limit: int | None, keys: tuple[str, ...], form: str) -> None:
    """Show the keys and values of a state's Delta table, each with the last transaction that touched it.

    TABLE is the folder of the table, as 'txtopo show' prints it.
    """
    rows = _read(table, txid)
    last = pc.max(rows[TXID]).as_py() if TXID in rows.column_names else None
    found = _with_keys(rows, keys).sort_by([(name, "ascending") for name in _sortable(rows)])
    shown = found.slice(0, ROWS_SHOWN if limit is None and form == "table" else limit)
    match form:
        case "json":
            for row in shown.to_pylist():
                click.echo(json.dumps(row, default=str, ensure_ascii=False))
        case "csv":
            writer = csv.writer(sys.stdout, lineterminator="\n")
            writer.writerow(shown.column_names)
            writer.writerows(row.values() for row in shown.to_pylist())
        case _:
            _print(shown)
    written = "nothing is written yet" if last is None else f"the last transaction is {last}"
    _say(f"{_count(shown, found, rows)}; {written}")


def _read(table: str, txid: int | None) -> pa.Table:
    module, _, attribute = READER.partition(":")
    reader = getattr(importlib.import_module(module), attribute)
    return cast("pa.Table", reader(table, txid))


def _with_keys(rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Return the rows whose first columns, the key fields, have these values."""
    if len(keys) >= rows.num_columns:
        raise ConfigError(f"{len(keys)} keys are given; the columns are {', '.join(rows.column_names)}")
    for name, text in zip(rows.column_names, keys, strict=False):
        kind = rows.schema.field(name).type
        try:
            value = pa.scalar(text).cast(kind)
        except pa.ArrowException as error:
            raise ConfigError(f"--key {text!r} is no {kind}, as key field {name!r} asks for") from error
        rows = rows.filter(pc.equal(rows[name], value))
    return rows


def _sortable(rows: pa.Table) -> list[str]:
    return [field.name for field in rows.schema if not pa.types.is_nested(field.type)]


def _print(rows: pa.Table) -> None:
    drawn = Table(box=None, pad_edge=False, header_style="bold")
    for field in rows.schema:
        number = pa.types.is_integer(field.type) or pa.types.is_floating(field.type)
        style = "dim" if field.name == TXID else ""
        drawn.add_column(Text(field.name), justify="right" if number else "left", style=style)
    for row in rows.to_pylist():
        drawn.add_row(*(Text("" if value is None else str(value)) for value in row.values()))
    Console(highlight=False).print(drawn)


def _count(shown: pa.Table, found: pa.Table, rows: pa.Table) -> str:
    words = "1 row" if shown.num_rows == 1 else f"{shown.num_rows:,} rows"
    if shown.num_rows == rows.num_rows:
        return words
    more = "; --limit N shows more" if shown.num_rows < found.num_rows else ""
    return f"{words} of {rows.num_rows:,}{more}"


def _say(text: str) -> None:
    """Print what is said about the rows, where it does not get among them."""
    Console(stderr=True, highlight=False).print(Text(text, "dim"), soft_wrap=True)
