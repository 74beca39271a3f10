"""The soak: ``python -m tests.harness.soak transactions --kills 200``.

It runs a topology of three tables in a process of its own, kills it at each failpoint in turn and at random moments, and
starts it again, until the given number of kills has struck, or each failpoint once. When a run has finished its input,
all rows are compared with the expected ones, and another round begins on new tables.
"""

import contextlib
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import attrs
import click
from rich.console import Console
from rich.table import Table

from tests.harness.soak.transactions.kills import RUN_FAILPOINTS, Kill, Plan, Victim
from tests.harness.soak.transactions.large import LOADS
from tests.harness.soak.transactions.rounds import Round
from tests.harness.soak.transactions.tidying import deeds_in, tidying
from tests.harness.soak.transactions.topology import Setup, fill_topic
from tests.harness.spark_cluster.standalone import HOST, StandaloneCluster, running_cluster
from tests.object_server import object_store
from txtopo.errors import TxtopoError
from txtopo.servers.kafka import KafkaBroker
from txtopo.servers.zookeeper import running_zookeeper
from txtopo.testing.checkers import Violation


@attrs.define(eq=False)
class Soak:
    """Rounds until all kills have struck; ``setup`` is theirs but for the output and a seed of their own.

    ``kills_max`` is None if it is to kill once at each failpoint.
    """

    kills_max: int | None
    setup: Setup
    folder: Path
    broker: KafkaBroker | None
    console: Console
    cluster: StandaloneCluster | None = None
    bucket: str | None = None
    kills: Counter[str] = attrs.field(factory=Counter)
    failpoints: Counter[str] = attrs.field(factory=Counter)
    rounds: int = 0
    lives: int = 0
    transactions: int = 0
    rows_checked: int = 0
    views_checked: int = 0
    merged: int = 0
    is_tidied: bool = False
    tidied: Counter[str] = attrs.field(factory=Counter)
    started: float = attrs.field(factory=time.monotonic)

    def run(self) -> None:
        """Run rounds until all kills have struck; the last one finishes its input."""
        rng = random.Random(self.setup.seed)
        moments = 0.7 if self.setup.real_time else 0.3 if self.kills_max else 0.0
        plan = Plan(rng, self.setup.inline, self.setup.real_time, moments, folds=bool(self.setup.keys))
        while self._kills_left() > 0:
            self.rounds += 1
            self._run_round(plan, rng.getrandbits(32))

    def _kills_left(self) -> int:
        """Return how many kills are to come, at least."""
        if self.kills_max is None:
            return len(set(RUN_FAILPOINTS) - self.failpoints.keys())
        return self.kills_max - self.kills.total()

    def _run_round(self, plan: Plan, seed: int) -> None:
        # Every other round of windows has a clock by partition.
        setup = attrs.evolve(self.setup, seed=seed, idle=self.setup.timed and self.rounds % 2 == 1)
        if self.broker is not None:
            fill_topic(setup, self.broker)
        round_ = Round(self.folder / f"round-{self.rounds:03d}", setup, self.cluster, self.bucket)
        log = round_.folder / "tidying.log"
        somebody = (
            tidying(round_.folder / "tables" / "words", "word", log) if self.is_tidied else contextlib.nullcontext()
        )
        try:
            with somebody:
                self._live_on(round_, plan)
            self.transactions += round_.check_end()
        finally:
            round_.kill_orphans()
            self.lives += round_.lives
            self.rows_checked += round_.judge.rows_checked
            self.views_checked += round_.judge.views_checked
            self.merged += len(round_.merged)
            self.tidied += deeds_in(log)
        shutil.rmtree(round_.folder)

    def _live_on(self, round_: Round, plan: Plan) -> None:
        is_finished = False
        while not is_finished:
            kills = self._next_kills(round_, plan)
            death = round_.live(*kills)
            is_finished = death.is_finished
            for kill in death.kills:
                self.kills[kill.name] += 1
                if kill.failpoint:
                    self.failpoints[kill.failpoint] += 1
                self._tell(str(kill), death.committed)
            # The run finished its input first. The failpoint waits for another run, or its turn would be lost.
            for kill in kills[len(death.kills) :]:
                plan.put_back(kill)
                self._tell(f"not reached: {kill}", death.committed)

    def _next_kills(self, round_: Round, plan: Plan) -> list[Kill]:
        left = self._kills_left()
        if left == 0:
            return []
        if round_.lives == 0 and round_.setup.keys and self.kills_max is None:
            return [Kill(Victim.ALL, count=LOADS)]  # each failpoint is to be met with all rows there
        kills = [plan.next(is_group_decided=round_.is_group_decided)]
        while len(kills) < left and (following := plan.after(kills[-1])) is not None:
            kills.append(following)
        return kills

    def _tell(self, what: str, committed: int) -> None:
        number = f"{self.kills.total():>4}/{self.kills_max or self.kills.total() + self._kills_left()}"
        clock = time.strftime("%H:%M:%S", time.gmtime(time.monotonic() - self.started))
        self.console.print(
            f"{number}  {clock}  round {self.rounds}  {what:<44} committed {committed}", highlight=False, soft_wrap=True
        )

    def tell_summary(self) -> None:
        table = Table("killed at", "times")
        for name, times in sorted(self.kills.items()):
            table.add_row(name, str(times))
        self.console.print(table)
        reached = len(self.failpoints.keys() & set(RUN_FAILPOINTS))
        seconds = time.monotonic() - self.started
        rows = {
            "kills": self.kills.total(),
            "failpoints reached": f"{reached} of {len(RUN_FAILPOINTS)}",
            "rounds": self.rounds,
            "processes": self.lives,
            "transactions": self.transactions,
            "rows compared": self.rows_checked,
            "files merged": self.merged,
            "consistent reads": self.views_checked,
            "seconds": f"{seconds:.0f}, {seconds / max(1, self.lives):.1f} a process",
            "seed": self.setup.seed,
            **{f"{name} by somebody else": times for name, times in sorted(self.tidied.items())},
        }
        summary = Table(show_header=False)
        for name, value in rows.items():
            summary.add_row(name, str(value))
        self.console.print(summary)


@click.command()
@click.option("--kills", default=25, show_default=True, type=click.IntRange(1), help="Kills in all.")
@click.option("--each", is_flag=True, help="Once at each failpoint, instead of a number of kills.")
@click.option("--seed", type=int, help="Decides where; drawn unless given.")
@click.option("--store", default="sqlite", show_default=True, type=click.Choice(["sqlite", "zookeeper", "bucket"]))
@click.option("--address", help="With '--store bucket': where it is; options from the environment. Default: a server.")
@click.option("--transactions", default=400, show_default=True, type=click.IntRange(1), help="In a round.")
@click.option("--opaque", is_flag=True, help="With a spout whose replays carry other tuples.")
@click.option("--inline", is_flag=True, help="Without Spark: quicker, and one process to kill.")
@click.option(
    "--timed",
    is_flag=True,
    help="Words with event times, which windows count; in every other round by partition, one of which falls silent.",
)
@click.option(
    "--real-time", is_flag=True, help="In real-time mode, on a standalone cluster; processes are stopped, too."
)
@click.option(
    "--keys",
    type=click.IntRange(10_000),
    help="A table of so many keys, with deletion vectors, into which rows are folded while its files are merged.",
)
@click.option(
    "--tidied", is_flag=True, help="With --keys: somebody else compacts, orders and vacuums the table all the time."
)
@click.option("--kafka", is_flag=True, help="With input from a real Kafka broker.")
@click.option(
    "--output", type=click.Path(path_type=Path), help="A new folder for tables and logs, kept if a promise is broken."
)
def main(
    kills: int,
    seed: int | None,
    store: str,
    address: str | None,
    output: Path | None,
    keys: int | None,
    *,
    each: bool,
    kafka: bool,
    tidied: bool,
    **given: Any,
) -> None:
    """Kill a topology again and again, and see that its tables are exact."""
    drawn = random.SystemRandom().getrandbits(32) if seed is None else seed
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that no process is left behind
    console = Console(width=120 if not sys.stdout.isatty() else None)
    folder = Path(tempfile.mkdtemp(prefix="txtopo-soak-")) if output is None else output.absolute()
    if address is not None and store != "bucket":
        raise click.UsageError("--address goes with --store bucket alone")
    if tidied and not keys:
        raise click.UsageError("--tidied goes with --keys alone")
    if folder.exists() and any(folder.iterdir()):
        raise click.UsageError(f"{folder} is not empty; give a new folder, or remove this one")
    if given["real_time"]:
        if given["inline"] or store == "zookeeper":  # a driver that is stopped for long loses ZooKeeper's lead
            raise click.UsageError("--real-time goes with neither --inline nor --store zookeeper")
        os.environ["SPARK_LOCAL_IP"] = HOST
    again = f"again, with the same other options: --seed {drawn}"
    console.print(again, highlight=False)
    with contextlib.ExitStack() as stack:
        hosts, bucket = "", None
        if store == "zookeeper":
            hosts = stack.enter_context(running_zookeeper(folder / "zookeeper")).hosts
        if store == "bucket" and address is not None:
            bucket = f"{address.rstrip('/')}/soak-{drawn}"
        elif store == "bucket":
            server = stack.enter_context(object_store())
            server.lose_answers(5)
            os.environ.update({name.upper(): value for name, value in server.options.items()})
            bucket = f"s3://bucket/soak-{drawn}"
        broker = stack.enter_context(KafkaBroker(folder / "kafka")) if kafka else None
        cluster = stack.enter_context(running_cluster(folder / "cluster")) if given["real_time"] else None
        setup = Setup("", drawn, hosts=hosts, kafka=broker.servers if broker else "", keys=keys or 0, **given)
        if cluster is not None:
            setup = attrs.evolve(setup, master=cluster.url)
        soak = Soak(None if each else kills, setup, folder, broker, console, cluster, bucket, is_tidied=tidied)
        try:
            soak.run()
        except (Violation, TxtopoError) as violation:
            soak.tell_summary()
            console.print(f"a promise is broken:\n{violation}", markup=False, highlight=False, soft_wrap=True)
            console.print(f"everything is kept in {folder}; {again}", soft_wrap=True)
            sys.exit(1)
        soak.tell_summary()
        console.print("all tables are exact")
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
