"""``txtopo blame``: the transactions that wrote a key."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import click
from rich.table import Table
from rich.text import Text

from state.delta.read.blame import Blame, KeyEnd, KeyGap, KeyWrite, blame
from txtopo.api.components.planned import NEVER
from txtopo.attempts import TransactionAttempt
from txtopo.cli.command import Command, WholeNumber
from txtopo.cli.console import Console, table_console
from txtopo.cli.target import OutputFolder, journal_place, takes_folder_or_target
from txtopo.errors import ConfigError
from txtopo.journal.folders import find_journal
from txtopo.journal.search import JournalSearch
from txtopo.text.printable import escaped
from txtopo.topology.user_code.loading import Target

PARTITIONS_SHOWN = 3


@click.command("blame", cls=Command)
@takes_folder_or_target
@click.argument("key", metavar="KEY", nargs=-1, required=True)
@click.option("--state", metavar="NAME", help="Look only into this state; by default into all whose keys KEY fits.")
@click.option(
    "--limit", type=WholeNumber(1), default=20, metavar="N", help="Show the last N writes of each state; 20 by default."
)
def blame_command(target: OutputFolder | Target, key: tuple[str, ...], state: str | None, limit: int) -> None:
    """Show which transactions wrote a key: when, in which epoch, from which input, and the value after each.

    OUTPUT is the folder that holds a topology's tables and its folder '_txtopo'; MODULE stands for the folder of that
    topology. KEY is given once for each key field.

    The newest write comes first. Transactions that were committed together are one write of a table: only the last of
    them that wrote the key is shown, with its group. So it is between two points, of which alone older versions are
    kept. The last line says where the history begins, and why. Nothing is run or written; the topology may be running.
    """
    metadata_dir, topology_id = journal_place(target)
    journal = JournalSearch(find_journal(metadata_dir, topology_id))
    if not journal.headers():
        raise ConfigError(f"the journal in {metadata_dir} has no complete line yet: nothing is written")
    console = table_console()
    for number, found in enumerate(blame(metadata_dir, journal, key, state)):
        if number:
            console.print()
        _print(found, limit, console)


def _print(found: Blame, limit: int, console: Console) -> None:
    shown = ", ".join(f"{name} {escaped(str(value))}" for name, value in found.key.items())
    console.say(f"state {found.state}, {shown}", "bold")
    steps = list(itertools.islice(found.steps, limit + 1))
    writes = [step for step in steps[:limit] if not isinstance(step, KeyEnd)]
    if writes:
        console.print(_drawn(writes))
    end = steps[-1]
    text = end.text if isinstance(end, KeyEnd) else f"and earlier ones; --limit shows more than {limit}"
    console.say(text if writes or not isinstance(end, KeyEnd) else f"no write: {text}", "dim")


def _drawn(writes: list[KeyWrite | KeyGap]) -> Table:
    drawn = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("transaction", "group", "epoch"):
        drawn.add_column(name, justify="right")
    values = [write.value or {} for write in writes if isinstance(write, KeyWrite)]
    names = list(dict.fromkeys(name for value in values for name in value))
    for name in ("planned (UTC)", "input", *names):
        drawn.add_column(name)
    for write in writes:
        drawn.add_row(*map(Text, _cells(write, names) if isinstance(write, KeyWrite) else _gap_cells(write)))
    return drawn


def _gap_cells(gap: KeyGap) -> Iterator[str]:
    """Yield the cells of transactions between points, of which no version is left to tell whether they wrote it."""
    yield from ("?", f"{gap.first}-{gap.last}", "", "", "not known: only the versions of points are kept")


def _cells(write: KeyWrite, names: list[str]) -> Iterator[str]:
    """Yield the cells of a write: what the journal does not have is empty."""
    entry, transaction = write.entry, write.transaction
    yield f"{write.txid}"
    yield "" if entry is None or entry.first == entry.last else f"{entry.first}-{entry.last}"
    yield "" if transaction is None else f"{TransactionAttempt(write.txid, transaction.attempt).epoch}"
    is_dated = transaction is not None and transaction.planned != NEVER
    yield f"{transaction.planned.at:%Y-%m-%d %H:%M:%S}" if transaction is not None and is_dated else ""
    ranges = [] if transaction is None else list(transaction.input.items())
    more = "" if len(ranges) <= PARTITIONS_SHOWN else f", and {len(ranges) - PARTITIONS_SHOWN} more"
    yield ", ".join(f"{partition}: {start} to {end}" for partition, (start, end) in ranges[:PARTITIONS_SHOWN]) + more
    if write.value is None:
        yield from ["removed" if not number else "" for number, _ in enumerate(names or [""])]
        return
    for name in names:
        value = write.value[name]
        yield "" if value is None else escaped(str(value))
