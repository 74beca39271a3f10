"""``txtopo diff``: compare the tables of two outputs as of the same transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import click

from state.delta.read.difference import TableDifference
from txtopo.cli.command import CommandLineError, Verdict, WholeNumber
from txtopo.cli.console import Console
from txtopo.columnar.conversion import python_rows
from txtopo.inspect.past.difference import Compared, Comparison, Output, is_table
from txtopo.text.printable import escaped
from txtopo.text.words import count_of

SAMPLES_SHOWN = 5

_SIDES = 2


@click.command("diff", cls=Verdict)
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@click.argument("names", metavar="[TABLE]…", nargs=-1)
@click.option("--to", "--txid", "to", type=WholeNumber(0), metavar="M", help="Compare as of this transaction.")
@click.option(
    "--from", "since", type=WholeNumber(1), metavar="N", help="Only what transactions from N on have written."
)
@click.option("--txids", "with_txids", is_flag=True, help="Rows differ, too, if other transactions wrote them.")
@click.option(
    "--limit",
    type=WholeNumber(0),
    metavar="N",
    default=SAMPLES_SHOWN,
    help="Show at most N rows of a kind. Default: 5.",
)
@click.option(
    "--topology",
    "topologies",
    multiple=True,
    metavar="ID",
    help="The topology's id, if a folder has records of several. Given twice: first that of A, then that of B.",
)
@click.pass_context
def diff(  # noqa: PLR0913, PLR0917 - one for each option
    ctx: click.Context,
    a: str,
    b: str,
    names: tuple[str, ...],
    to: int | None,
    since: int | None,
    with_txids: bool,  # noqa: FBT001 - an option
    limit: int,
    topologies: tuple[str, ...],
) -> None:
    """Compare the tables of two outputs, for example of a topology and its fork, as of the same transaction.

    A and B are folders that hold a topology's tables and its folder '_txtopo', or two tables. Of folders, only the
    tables of each state TABLE are compared, or all that both have. Nothing is run or written, and the topologies may be
    running. Tables are compared as of M, or of the newest transaction before it as
    of which both can be shown, which is said; by default as of the newest transaction that ends a commit group in both
    outputs, because between two Delta writes a table can't always be shown.

    Rows with equal keys are compared by their other columns; those of a table without keys as a multiset. The exit
    status is 0 if there is no difference, 1 if there is one, and 2 if the tables can't be compared.
    """
    if since is not None and to is not None and since > to:
        raise CommandLineError(f"--from {since} is after --to {to}")
    _check_sides(a, b, names, topologies)
    say = Console().say
    comparison = Comparison(since, with_txids, limit)
    if is_table(a):
        compared = Compared.pair(a, b, to, comparison)
        if compared.txid is not None and to is None:
            say(f"as of transaction {compared.txid}")
    else:
        own_a, own_b = (topologies or (None,))[0], (topologies or (None,))[-1]
        of_a, of_b = Output.of(a, own_a), Output.of(b, own_b)
        compared = Compared.outputs(of_a, of_b, names, to, comparison)
        _tell_outputs(of_a, of_b, compared, say)
    _tell_moved(to, compared.txid, since, say)
    for name, table in compared.tables.items():
        say(f"{name}: {_numbers(table)}", "bold" if table.count else "")
        for line in _samples(table):
            say(f"  {line}")
    if any(table.count for table in compared.tables.values()):
        say("✘ different", "bold red")
        ctx.exit(1)
    say("✔ the same", "bold green")


def _check_sides(a: str, b: str, names: Sequence[str], topologies: Sequence[str]) -> None:
    if is_table(a) != is_table(b):
        raise CommandLineError("A and B must both be tables, or both be folders with the tables of a topology")
    if len(topologies) > _SIDES or (topologies and is_table(a)):
        raise CommandLineError("--topology is for two folders, once for both or twice: first that of A, then that of B")
    if names and is_table(a):
        raise CommandLineError("TABLE is for two folders; A and B are tables already")


def _tell_outputs(a: Output, b: Output, compared: Compared, say: Callable[[str], None]) -> None:
    for names, which in zip(compared.only_in, "AB", strict=True):
        if names:
            say(f"not compared, because only {which} has them: {', '.join(names)}")
    if compared.moment is not None:
        of_a, of_b = compared.moment.committed
        say(f"A, {a.path}, is at transaction {of_a}; B, {b.path}, at {of_b}")
        if compared.moment.later is not None:
            say(f"to compare them later, run {'A' if of_a <= of_b else 'B'} with --until {compared.moment.later}")
    say(f"as of transaction {compared.txid}")


def _tell_moved(to: int | None, txid: int | None, since: int | None, say: Callable[[str], None]) -> None:
    """Tell that tables are compared as of an earlier transaction than the one that was asked for, if they are."""
    if to is None or txid is None or txid == to:
        return
    say(f"both can't be shown as of transaction {to}; as of {txid}, the newest before it, they can")
    if since is not None and since > txid:
        raise CommandLineError(f"--from {since} is after that; give a later --to")


def _numbers(found: TableDifference) -> str:
    rows = [
        (f"{count_of(found.only_in_a.count, 'row')} only in A", found.only_in_a.count),
        (f"{count_of(found.only_in_b.count, 'row')} only in B", found.only_in_b.count),
        (f"{count_of(found.differing_a.count, 'row')} with other values", found.differing_a.count),
        (f"{count_of(found.equal, 'row')} equal", 1),
    ]
    unlike = f"; not compared: column {', '.join(found.unlike)}" if found.unlike else ""
    return ", ".join(text for text, number in rows if number) + unlike


def _samples(found: TableDifference) -> Iterator[str]:
    for each, which in ((found.only_in_a, "only in A"), (found.only_in_b, "only in B")):
        for row in python_rows(each.rows):
            yield f"{which}  {_shown(row)}"
    pairs = zip(*(python_rows(each.rows) for each in (found.differing_a, found.differing_b)), strict=True)
    for in_a, in_b in pairs:
        key = {name: in_a[name] for name in found.keys}
        changed = [name for name in found.values if repr(in_a[name]) != repr(in_b[name])]
        values = ", ".join(f"{name}: {_text(in_a[name])} in A, {_text(in_b[name])} in B" for name in changed)
        yield f"differs    {_shown(key)}  {values}"


def _shown(row: Mapping[str, Any]) -> str:
    return "  ".join(f"{name}={_text(value)}" for name, value in row.items())


def _text(value: Any) -> str:
    return "null" if value is None else escaped(str(value))
