"""``txtopo diff``: compare the tables of two outputs as of the same transaction."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import click
import pyarrow as pa
from rich.text import Text

from state.delta.log.location import LOG_FOLDER
from state.delta.read.consistent import ConsistentView, committed_in_tables, end_of, read_tables
from state.delta.read.difference import TableDifference, difference
from state.delta.read.history import last_transaction, read_table
from txtopo.cli.command import Command, CommandLineError, WholeNumber
from txtopo.cli.console import Console
from txtopo.columnar.conversion import python_rows
from txtopo.errors import ConfigError
from txtopo.files.durable import is_folder
from txtopo.printable import escaped
from txtopo.text.words import count_of
from txtopo.transactional.journal.backfills import backfills_of
from txtopo.transactional.journal.ending import journal_below
from txtopo.transactional.journal.journal import JournalPart, counting_parts, find_journal, read_journal

SAMPLES_SHOWN = 5

_SIDES = 2

_Tables = Mapping[str, pa.Table]


class _Comparison(Command):
    """A command whose exit status 1 says that there is a difference."""

    error_status = CommandLineError.exit_code


@click.command("diff", cls=_Comparison)
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
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
    to: int | None,
    since: int | None,
    with_txids: bool,  # noqa: FBT001 - an option
    limit: int,
    topologies: tuple[str, ...],
) -> None:
    """Compare the tables of two outputs, for example of a topology and its fork, as of the same transaction.

    A and B are folders that hold a topology's tables and its folder '_txtopo', or two tables. Nothing is run or
    written, and the topologies may be running. Tables are compared as of M; by default as of the newest transaction
    that ends a commit group in both outputs, because between two Delta writes a table can't always be shown.

    Rows with equal keys are compared by their other columns; those of a table without keys as a multiset. The exit
    status is 0 if there is no difference, 1 if there is one, and 2 if the tables can't be compared.
    """
    if since is not None and to is not None and since > to:
        raise CommandLineError(f"--from {since} is after --to {to}")
    if _is_table(a) != _is_table(b):
        raise CommandLineError("A and B must both be tables, or both be folders with the tables of a topology")
    if len(topologies) > _SIDES or (topologies and _is_table(a)):
        raise CommandLineError("--topology is for two folders, once for both or twice: first that of A, then that of B")
    console = Console()

    def say(text: str, style: str = "") -> None:
        console.print(Text(text, style), soft_wrap=True)

    if _is_table(a):
        tables_a, tables_b = _tables(a, b, to, say)
    else:
        own_a, own_b = (topologies or (None,))[0], (topologies or (None,))[-1]
        tables_a, tables_b = _outputs(_Folder.of(a, own_a), _Folder.of(b, own_b), to, say)
    found = {name: difference(tables_a[name], tables_b[name], since=since, with_txids=with_txids) for name in tables_a}
    for name, each in found.items():
        say(f"{name}: {_numbers(each)}", "bold" if each.count else "")
        for line in _samples(each, limit):
            say(f"  {line}")
    if any(each.count for each in found.values()):
        say("✘ different", "bold red")
        ctx.exit(1)
    say("✔ the same", "bold green")


@attrs.frozen
class _Folder:
    """A topology's output folder."""

    path: str
    metadata_dir: Path
    topology_id: str

    @classmethod
    def of(cls, path: str, topology_id: str | None) -> _Folder:
        """Find the journal of the topology that is meant."""
        return cls(path, *journal_below(path, topology_id))

    def states(self) -> list[str]:
        """Return the states with a table that the topology has now."""
        return list(end_of(self.metadata_dir, self.topology_id).header.tables)

    def read(self, txid: int | None, states: Collection[str] | None = None) -> ConsistentView:
        """Read the tables."""
        return read_tables(self.path, txid, states=states, topology=self.topology_id)


@attrs.frozen
class _Output:
    """An output folder, as far as it is committed."""

    committed: int
    """The last transaction that all tables have."""
    ends: frozenset[int]
    """The transactions up to it that end a commit group, as far as the journal goes back."""

    @classmethod
    def of(cls, folder: _Folder, states: Collection[str]) -> _Output:
        """Look at the tables of some states."""
        place = folder.metadata_dir, folder.topology_id
        found = committed_in_tables(*place)
        # If it can't be told, reading the tables says why.
        committed = folder.read(None).txid if found is None else found[0]
        parts = counting_parts(read_journal(find_journal(*place)), lambda entry: entry.last <= committed)
        ends = {end for end in _ends_in(parts) if end <= committed}
        for name, filled in backfills_of(folder.metadata_dir, parts).items() if parts else ():
            # Up to where it joined, the groups of its backfill are those that a state's table can show.
            if name in states:
                own = _ends_in(filled)
                ends = {end for end in ends if end in own or end > max(own)}
        return cls(committed, frozenset(ends))


def _ends_in(parts: Sequence[JournalPart]) -> set[int]:
    ends: set[int] = set()
    for part in parts:
        # A rewind may have gone back to where a part begins: groups after it are undone, and later ones end elsewhere.
        ends = {end for end in ends if end <= part.header.committed} | {part.header.committed}
        ends |= {entry.last for entry in part.entries}
    return ends


def _outputs(a: _Folder, b: _Folder, to: int | None, say: Callable[[str], None]) -> tuple[_Tables, _Tables]:
    """Return the tables of both folders that both have, as of the same transaction."""
    states_a, states_b = a.states(), b.states()
    states = [name for name in states_a if name in states_b]
    if not states:
        raise ConfigError(f"{a.path} and {b.path} have no state in common")
    for here, which in ((states_a, "A"), (states_b, "B")):
        if len(here) > len(states):
            missing = ", ".join(name for name in here if name not in states)
            say(f"not compared, because only {which} has them: {missing}")
    if to is None:
        found_a, found_b = _Output.of(a, states), _Output.of(b, states)
        common = found_a.ends & found_b.ends
        if not common:
            raise ConfigError(
                f"no transaction ends a commit group in both {a.path} and {b.path}: name one with --to that both can "
                "show"
            )
        to = max(common)
        say(f"A, {a.path}, is at transaction {found_a.committed}; B, {b.path}, at {found_b.committed}")
        behind, ahead = sorted((found_a, found_b), key=lambda each: each.committed)
        later = min((end for end in ahead.ends if end > behind.committed), default=None)
        if to < behind.committed and later is not None:
            say(f"to compare them later, run {'A' if behind is found_a else 'B'} with --until {later}")
    tables = a.read(to, states).tables, b.read(to, states).tables
    say(f"as of transaction {to}")
    return tables


def _tables(a: str, b: str, to: int | None, say: Callable[[str], None]) -> tuple[_Tables, _Tables]:
    """Return two single tables, by default as of the last transaction that both have."""
    last = [last_transaction(a), last_transaction(b)]
    if to is None and None not in last and last[0] != last[1]:
        to = min(each for each in last if each is not None)
        say(f"as of transaction {to}")
    name = Path(a).name
    return {name: read_table(a, to)}, {name: read_table(b, to)}


def _numbers(found: TableDifference) -> str:
    rows = [
        (f"{count_of(found.only_in_a.num_rows, 'row')} only in A", found.only_in_a.num_rows),
        (f"{count_of(found.only_in_b.num_rows, 'row')} only in B", found.only_in_b.num_rows),
        (f"{count_of(found.differing_a.num_rows, 'row')} with other values", found.differing_a.num_rows),
        (f"{count_of(found.equal, 'row')} equal", 1),
    ]
    unlike = f"; not compared: column {', '.join(found.unlike)}" if found.unlike else ""
    return ", ".join(text for text, number in rows if number) + unlike


def _samples(found: TableDifference, limit: int) -> Iterator[str]:
    for rows, which in ((found.only_in_a, "only in A"), (found.only_in_b, "only in B")):
        for row in python_rows(rows.slice(0, limit)):
            yield f"{which}  {_shown(row)}"
    pairs = zip(*(python_rows(each.slice(0, limit)) for each in (found.differing_a, found.differing_b)), strict=True)
    for in_a, in_b in pairs:
        key = {name: in_a[name] for name in found.keys}
        changed = [name for name in found.values if repr(in_a[name]) != repr(in_b[name])]
        values = ", ".join(f"{name}: {_text(in_a[name])} in A, {_text(in_b[name])} in B" for name in changed)
        yield f"differs    {_shown(key)}  {values}"


def _shown(row: Mapping[str, Any]) -> str:
    return "  ".join(f"{name}={_text(value)}" for name, value in row.items())


def _text(value: Any) -> str:
    return "null" if value is None else escaped(str(value))


def _is_table(path: str) -> bool:
    return "://" in path or is_folder(Path(path) / LOG_FOLDER)
