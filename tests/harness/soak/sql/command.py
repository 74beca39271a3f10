"""Writers that insert, update, wait, roll back and prepare at random, a server that is killed, and two readers."""

import contextlib
import random
import tempfile
import threading
import time
from pathlib import Path

import click
import psycopg

from committers import AppendCommitter, ApplyChanges
from spouts import OpaqueSqlTransactionalSpout, SqlTransactionalSpout
from state import DeltaRows, read_table
from tests.postgres import PostgresServer
from txtopo import Config, Fields, TransactionalTopology, TransactionalTopologyBuilder
from txtopo.testing import run_inline

EVENT = Fields("id: long", "what: string")
ITEM = Fields("id: long", "what: string", "updated_at: timestamp")
MADE = (
    "CREATE TABLE events (id bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY, what text)",
    "CREATE TABLE items (id bigint PRIMARY KEY, what text, updated_at timestamptz NOT NULL DEFAULT now())",
)
_ITEMS = 50


class _Writer(threading.Thread):
    """Writes to both tables, in transactions of its own, until it is stopped."""

    def __init__(self, url: str, number: int, seed: int) -> None:
        super().__init__(daemon=True)
        self.number, self.stopped, self.transactions = number, threading.Event(), 0
        self._url, self._random = url, random.Random(seed * 1000 + number)

    def run(self) -> None:
        while not self.stopped.is_set():
            # A killed server ends all connections; what was not committed is gone, and begun anew.
            with contextlib.suppress(psycopg.Error), psycopg.connect(self._url) as connection:
                while not self.stopped.is_set():
                    self._transact(connection)

    def _transact(self, connection: psycopg.Connection) -> None:
        draw, name = self._random.random(), f"writer-{self.number}"
        is_prepared = draw < 0.1
        if is_prepared:
            connection.tpc_begin(connection.xid(1, f"{name}-{self.transactions}", name))
        for _ in range(self._random.randint(1, 4)):
            connection.execute("INSERT INTO events (what) VALUES (%s)", [name])
            item, what = self._random.randrange(_ITEMS) * 10 + self.number, f"{name} {self.transactions}"
            connection.execute(
                "INSERT INTO items VALUES (%s, %s) ON CONFLICT (id) DO UPDATE SET what = EXCLUDED.what, updated_at = now()",
                [item, what],
            )
            self.stopped.wait(self._random.choice([0, 0, 0.01, 0.3]))
        self.transactions += 1
        if is_prepared:
            connection.tpc_prepare()
            self.stopped.wait(self._random.random() / 2)
            connection.tpc_rollback() if draw < 0.03 else connection.tpc_commit()
        elif draw < 0.3:
            connection.rollback()
        else:
            connection.commit()


def copying(url: str, folder: Path) -> TransactionalTopology:
    """Append the rows of one table, and apply the changes of the other."""
    builder = TransactionalTopologyBuilder(
        "copying", "events", SqlTransactionalSpout(url, "events", EVENT, rows_max=20)
    )
    builder.add_spout(
        "items", OpaqueSqlTransactionalSpout(url, "items", ITEM, key=["id"], updated_at="updated_at", rows_max=20)
    )
    builder.set_bolt("append", AppendCommitter("events")).shuffle_grouping("events")
    builder.set_state("events", DeltaRows(folder / "events", EVENT))
    apply = ApplyChanges(
        "items", "gone", key=Fields("id: long"), values=Fields("what: string"), sequence=Fields("updated_at: timestamp")
    )
    builder.set_committer_bolt("apply", apply).fields_grouping("items", Fields("id"))
    builder.set_state("items", apply.state(folder / "items"))
    builder.set_state("gone", apply.tombstones(folder / "gone"))
    return builder.build()


def _end_prepared(connection: psycopg.Connection) -> None:
    """Roll back what killed writers have prepared, which nobody else ends."""
    for xid in connection.tpc_recover():
        connection.tpc_rollback(xid)


@click.command()
@click.option("--writers", default=5)
@click.option("--secs", default=120.0, help="for how long they write")
@click.option("--restarts", default=5, help="how often the server is killed meanwhile")
@click.option("--seed", default=None, type=int, help="of what writers do; by default another one each time")
def main(writers: int, secs: float, restarts: int, seed: int | None) -> None:
    """Read both tables again and again while they are written, then compare the copies with them."""
    seed = random.randrange(1 << 32) if seed is None else seed
    click.echo(f"seed {seed}")
    with PostgresServer({"max_prepared_transactions": 50}) as server, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with psycopg.connect(server.url) as connection:
            for statement in MADE:
                connection.execute(statement)
        threads = [_Writer(server.url, number, seed) for number in range(writers)]
        for thread in threads:
            thread.start()
        began, runs, killed = time.monotonic(), 0, 0
        while time.monotonic() < began + secs or killed < restarts:
            if killed < restarts and time.monotonic() >= began + secs * (killed + 1) / (restarts + 1):
                server.kill()
                server.start()
                with psycopg.connect(server.url, autocommit=True) as connection:
                    _end_prepared(connection)
                killed += 1
            run_inline(copying(server.url, folder), Config(group_transactions_max=3))
            runs += 1
        for thread in threads:
            thread.stopped.set()
        for thread in threads:
            thread.join()
        with psycopg.connect(server.url, autocommit=True) as connection:
            _end_prepared(connection)
            run_inline(copying(server.url, folder))
            for table in ("events", "items"):
                _compare(table, connection.execute(f"SELECT id, what FROM {table} ORDER BY id").fetchall(), folder)
    transactions = sum(thread.transactions for thread in threads)
    click.echo(
        f"{transactions} transactions of {writers} writers, {killed} restarts, {runs} runs: both copies are exact"
    )


def _compare(table: str, expected: list[tuple[int, str]], folder: Path) -> None:
    rows = read_table(folder / table).sort_by("id")
    found = list(zip(rows["id"].to_pylist(), rows["what"].to_pylist(), strict=True))
    if found != expected:
        wrong = sorted({*found} ^ {*expected})[:10]
        raise click.ClickException(f"{table}: {len(found)} rows of {len(expected)}; these differ: {wrong}")
