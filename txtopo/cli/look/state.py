"""``txtopo state``: print the rows of a state's table, now or as of a past transaction."""

from __future__ import annotations

import csv
import sys
from collections.abc import Mapping

import click
import pyarrow as pa
from rich.table import Table
from rich.text import Text

from state.delta.read.consistent import look_at_tables, read_points
from state.delta.read.history import look_up
from state.delta.read.points import ShownPoints
from state.delta.read.row_search import FoundRows
from state.delta.schema import TXID_FIELD
from txtopo.cli.command import Command, CommandLineError, WholeNumber, format_option
from txtopo.cli.console import Console, table_console
from txtopo.columnar.conversion import python_rows
from txtopo.files.records import dumped
from txtopo.inspect.past.difference import Output, is_table
from txtopo.inspect.past.tables import Kept
from txtopo.text.printable import escaped
from txtopo.text.words import count_of, size

ROWS_SHOWN = 20


@click.command(cls=Command)
@click.argument("table", metavar="TABLE")
@click.option("--txid", type=WholeNumber(0), metavar="N", help="Show the rows as of this transaction.")
@click.option(
    "--consistent",
    is_flag=True,
    help="Show all tables of a topology as of one transaction; TABLE is the folder that holds them.",
)
@click.option(
    "--topology",
    metavar="ID",
    help="With --consistent or --points: the topology's id, if the folder has records of several.",
)
@click.option("--nearest", is_flag=True, help="With --txid: if it can't be shown, show the nearest one before it.")
@click.option("--points", "is_list", is_flag=True, help="List the transactions that --txid can show, with their times.")
@click.option("--limit", type=WholeNumber(0), metavar="N", help="Show at most N rows. Default for --format table: 20.")
@click.option("--key", "keys", multiple=True, metavar="VALUE", help="Show only this key; once for each key field.")
@format_option("table", "jsonl", "csv", json="jsonl")
def state(  # noqa: PLR0913, PLR0917 - one for each option
    table: str,
    txid: int | None,
    nearest: bool,  # noqa: FBT001 - an option
    consistent: bool,  # noqa: FBT001 - an option
    topology: str | None,
    is_list: bool,  # noqa: FBT001 - an option
    limit: int | None,
    keys: tuple[str, ...],
    form: str,
) -> None:
    """Show the keys and values of a state's Delta table, each with the last transaction that touched it.

    TABLE is the folder of the table, as 'txtopo show' prints it. It may also be another Delta table, such as those that
    plain topologies write; its rows have no transactions.

    With --consistent it is the folder that holds all tables of a topology. They are shown as of the same transaction:
    that of --txid, or the last one that every table has. The topology may be running.

    Transactions that were committed together are one write to a table. If the state between two of them can't be
    shown, the error of --txid names the nearest transactions that can; --nearest shows the one before. Of older
    versions only those of points are kept: --points lists them, and says what the table takes on disk.
    """
    if is_list:
        if txid is not None or keys:
            raise CommandLineError("--points lists what --txid can show, and no rows; leave out --txid and --key")
        found = read_points(table, topology=topology)
        _list(found)
        for name, path in ({"": table} if is_table(table) else Output.of(table, topology).tables()).items():
            _say(f"{name}{': ' * bool(name)}{_kept(Kept.at(path))}")
        return
    if nearest and txid is None:
        raise CommandLineError("--nearest needs --txid")
    if topology is not None and not consistent:
        raise CommandLineError("--topology needs --consistent")
    if consistent:
        if keys:
            raise CommandLineError("--key needs a single table; leave out --consistent and name the table")
        seen, tables = look_at_tables(table, txid, _shown_max(limit, form), nearest=nearest, topology=topology)
        if txid is not None and seen < txid:
            _say(f"as of transaction {seen}, the last one before {txid} that all tables can be shown as of")
        _show_all(tables, form)
        _say(f"all tables as of transaction {seen}")
        return
    rows = look_up(table, keys, txid, _shown_max(limit, form), nearest=nearest)
    if txid is not None and nearest:
        _say_point(read_points(table), txid)
    _show(rows.first, form)
    _say(f"{_count(rows)}; {_written(rows, txid)}")


def _say_point(found: ShownPoints, txid: int) -> None:
    """Say which point is shown in place of a transaction."""
    before, _ = (None, None) if found.shows(txid) else found.around(txid)
    if before is not None:  # otherwise it has gone since
        _say(f"as of transaction {before}: the point before {txid}")


def _list(found: ShownPoints) -> None:
    for point in found.points:
        click.echo(point)
    if found.since.txid < found.last.txid:
        click.echo(f"{found.since}, and then each commit group up to")
    click.echo(found.last)


def _kept(kept: Kept) -> str:
    return (
        f"{size(kept.bytes)} in {count_of(kept.files, 'file')} on disk, those of the log and of old versions among them"
    )


def _shown_max(limit: int | None, form: str) -> int | None:
    return ROWS_SHOWN if limit is None and form == "table" else limit


def _show_all(tables: Mapping[str, FoundRows], form: str) -> None:
    if form == "csv" and len(tables) > 1:
        raise CommandLineError(f"CSV can hold only one table, but there are {', '.join(tables)}; use --format jsonl")
    for name, rows in sorted(tables.items()):
        _show(rows.first, form, name)
        _say(f"{name}: {_count(rows)}")


def _show(shown: pa.Table, form: str, name: str | None = None) -> None:
    match form:
        case "jsonl":
            for row in python_rows(shown):
                line = row if name is None else {"state": name, "row": row}
                click.echo(dumped(line, default=str, ensure_ascii=False))
        case "csv":
            _write_csv(shown)
        case _:
            if name is not None:
                Console().print(Text(name, "bold"))
            _print(shown)


def _write_csv(rows: pa.Table) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(rows.column_names)
    writer.writerows(row.values() for row in python_rows(rows))


def _print(rows: pa.Table) -> None:
    if not rows.num_rows:
        return  # a lone header looks like a row, and the row count is printed anyway
    drawn = Table(box=None, pad_edge=False, header_style="bold")
    for field in rows.schema:
        number = pa.types.is_integer(field.type) or pa.types.is_floating(field.type)
        style = "dim" if field.name == TXID_FIELD else ""
        drawn.add_column(Text(field.name), justify="right" if number else "left", style=style)
    for row in python_rows(rows):
        drawn.add_row(*(Text("" if value is None else escaped(str(value))) for value in row.values()))
    table_console().print(drawn)


def _count(rows: FoundRows) -> str:
    shown = rows.first.num_rows
    words = "1 row" if shown == 1 else f"{shown:,} rows"
    if shown == rows.total:
        return words
    more = "; --limit N shows more" if shown < rows.found else ""
    return f"{words} of {rows.total:,}{more}"


def _written(rows: FoundRows, txid: int | None) -> str:
    if TXID_FIELD not in rows.first.column_names:
        return "the table is of no state, so its rows have no transactions"
    if rows.last_txid is None:
        return "nothing is written yet" if txid is None else "nothing was written by then"
    return f"the last transaction is {rows.last_txid}"


def _say(text: str) -> None:
    Console(stderr=True).say(text, "dim")
