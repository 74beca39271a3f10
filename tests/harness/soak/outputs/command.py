"""Random kills of a topology that writes a topic of Kafka and a table of PostgreSQL, with aborted producers beside."""

import random
import subprocess
import sys
import tempfile
import time

import click
from confluent_kafka import Producer

from state import SqlRows
from tests.harness.soak.outputs.topology import FIELDS
from tests.postgres import PostgresServer
from tests.state.kafka.test_state import values
from txtopo.servers.kafka import KafkaBroker

_ALIVE_SECS = (1.2, 5.0)
"""How long a run may live before it is killed: a start takes a second or two."""


@click.command()
@click.option("--kills", default=50, help="how many runs are killed")
@click.option("--rows", default=2_000, help="rows of the input")
@click.option("--seed", default=None, type=int, help="of the moments; by default another one each time")
def main(kills: int, rows: int, seed: int | None) -> None:
    """Kill runs at random moments, let the last one end, and look at what a reader of committed records gets."""
    seed = random.randrange(1 << 32) if seed is None else seed
    click.echo(f"seed {seed}")
    drawing, killed = random.Random(seed), 0
    with PostgresServer() as postgres, KafkaBroker() as kafka, tempfile.TemporaryDirectory() as folder:
        kafka.create_topic("out", 2)
        words = ["-m", "tests.harness.soak.outputs.topology", kafka.servers, postgres.url, str(rows), folder]
        other = Producer({"bootstrap.servers": kafka.servers, "transactional.id": "other"})
        other.init_transactions()
        while True:
            process = subprocess.Popen([sys.executable, *words])
            if killed == kills:
                if process.wait():
                    raise click.ClickException(f"the last run ended with {process.returncode}")
                break
            deadline = time.monotonic() + drawing.uniform(*_ALIVE_SECS)
            while time.monotonic() < deadline and process.poll() is None:
                time.sleep(0.01)
            other.begin_transaction()
            other.produce("out", "of others", "k")
            other.flush()
            other.abort_transaction()
            if process.poll() == 0:
                click.echo(f"all rows are written after {killed} kills; --rows gives more")
                break
            killed += process.poll() is None
            process.kill()
            process.wait()
        _check([[int(value) for value in own] for own in values(kafka.servers, "out")], rows, "the topic")
        log = SqlRows(postgres.url, "log", FIELDS).snapshot()
        _check([[int(value) for value in log["value"].to_pylist()]], rows, "the table")
    click.echo(f"{killed} kills, {rows} rows, each once in the topic and in the table, in order")


def _check(parts: list[list[int]], rows: int, where: str) -> None:
    if sorted(number for part in parts for number in part) != list(range(rows)):
        raise click.ClickException(f"rows are lost or doubled in {where}: {parts}")
    if any(part != sorted(part) for part in parts):
        raise click.ClickException(f"rows are out of order in {where}: {parts}")
