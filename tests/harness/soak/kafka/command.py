"""The soak of KafkaSpout: ``python -m tests.harness.soak kafka --records 200000``.

Processes of their own read three topics, and 5 % of the tuples fail at random. Two tasks of one process share the
topic *manual*; the process is killed three times, and has three tasks from the first kill on. Two members of a group
read the topic *subscribed*; each is killed once, while a third one joins and leaves again. The topic *leaders* has
three brokers, each of which is killed and comes back.

At every look, each record below the group's committed offset must have been processed. In the end all are processed,
and the committed offset is the log end.
"""

import contextlib
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import click

from spouts.kafka.confluent.connection import BrokerConnection
from spouts.kafka.confluent.log import BrokerLog
from spouts.kafka.log import TopicPartition
from txtopo.errors import SourceFailure
from txtopo.servers.kafka import KafkaBroker, KafkaCluster, KafkaTopics
from txtopo.text.client_properties import ClientProperties

PARTITIONS = 6
TRICKLE = 60
START_SECS = 120.0
"""How long nothing may happen before the soak fails."""

ANSWER_SECS = 10.0
"""How long Kafka may take to say what is committed."""

_POLL_SECS = 0.1


@attrs.define
class Outcome:
    """The result of one topic."""

    topic: str
    records: int = 0
    processed: int = 0
    """How often records were processed: replays count, too."""
    kills: int = 0
    looks: int = 0
    """How often the committed offsets were checked."""
    secs: float = 0.0


class Soak:
    """One topic and the processes that read it; the topic's name is also the group's."""

    def __init__(self, broker: KafkaTopics, topic: str, folder: Path, *, spark: bool) -> None:
        self.outcome = Outcome(topic)
        self._broker = broker
        self._topic = topic
        self._folder = folder
        self._spark = spark
        self._members: list[subprocess.Popen[bytes]] = []
        self._read: dict[Path, int] = {}
        self._processed: Counter[tuple[int, int]] = Counter()
        self._log = BrokerLog(BrokerConnection(broker.servers, ClientProperties()), ANSWER_SECS)
        self._partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        folder.mkdir()
        broker.create_topic(topic, PARTITIONS)

    def append(self, records: int) -> None:
        """Write records, spread evenly over the partitions."""
        for number in range(PARTITIONS):
            share = records // PARTITIONS + (number < records % PARTITIONS)
            self._broker.produce(self._topic, ["x" * 20] * share, number)
        self.outcome.records += records

    def start(self, mode: str, name: str, tasks: int = 1) -> subprocess.Popen[bytes]:
        kind = "spark" if self._spark else "inline"
        arguments = [self._broker.servers, self._topic, str(self._folder), name, str(tasks), mode, kind]
        command = [sys.executable, "-m", "tests.harness.soak.kafka.member", *arguments]
        # The pipe's other end closes with this process, however it ends, and the member ends then.
        member = subprocess.Popen(command, cwd=Path(__file__).parents[4], stdin=subprocess.PIPE, start_new_session=True)
        self._members.append(member)
        return member

    def kill(self, member: subprocess.Popen[bytes]) -> None:
        member.kill()
        member.wait()
        self._members.remove(member)
        self.outcome.kills += 1

    def stop(self, member: subprocess.Popen[bytes]) -> None:
        """Stop a process cleanly; fail if it ends with an error."""
        member.send_signal(signal.SIGTERM)
        code = member.wait(START_SECS)
        assert code == 0, f"a member ended with exit code {code}"
        self._members.remove(member)

    def wait_for(self, share: float) -> None:
        """Wait until a share of the records is processed."""
        self._wait(lambda: len(self._processed) >= share * self.outcome.records, f"{share:.0%} of the records")

    def wait_for_member(self, name: str) -> None:
        """Wait until a process has processed a record; write a few records meanwhile, so that it gets one."""

        def has_processed() -> bool:
            if any(path.stat().st_size for path in self._folder.glob(f"{name}-*")):
                return True
            self._broker.produce(self._topic, ["x" * 20] * TRICKLE)
            self.outcome.records += TRICKLE
            return False

        self._wait(has_processed, f"record processed by {name}")

    def wait_for_end(self) -> None:
        """Wait until all is committed, and check that no process takes a commit back when it ends."""
        ends = self._broker.end_offsets(self._topic)
        self._wait(lambda: self._committed() == ends, "commits up to the log end")
        self._look()
        assert len(self._processed) == self.outcome.records, "a record was not processed"
        for member in list(self._members):
            self.stop(member)
        assert self._committed() == ends, "the end of a process took a commit back"
        self.outcome.processed = self._processed.total()

    def close(self) -> None:
        """Kill the processes that still run."""
        for member in self._members:
            member.kill()
            member.wait()
        self._log.close()

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        end, before = time.monotonic() + START_SECS, -1
        while True:
            self._look()
            if condition():
                return
            # New records are progress, and begin the time limit anew; replays are not.
            if len(self._processed) > before:
                before, end = len(self._processed), time.monotonic() + START_SECS
            ended = [member.returncode for member in self._members if member.poll() is not None]
            if time.monotonic() > end or ended:
                committed, ends = self._committed(), self._broker.end_offsets(self._topic)
                raise TimeoutError(f"no {what}; exit codes {ended}; committed {committed}, the log ends at {ends}")
            time.sleep(_POLL_SECS)

    def _look(self) -> None:
        """Check that all records below the committed offsets were processed.

        The offsets are read before the files. A record's line is written before its tuple is acked, and so before its
        offset is committed. The other way round, a line written between the two reads would be missed.
        """
        committed = self._committed()
        for path in self._folder.iterdir():
            with path.open() as file:
                file.seek(self._read.get(path, 0))
                lines = file.read()
            lines = lines[: lines.rfind("\n") + 1]  # a killed process leaves half a line, a running one may be at it
            self._read[path] = self._read.get(path, 0) + len(lines)
            self._processed.update(
                (int(partition), int(offset)) for partition, offset in map(str.split, lines.splitlines())
            )
        for partition, offset in committed.items():
            missing = [number for number in range(offset) if (partition, number) not in self._processed]
            assert not missing, f"partition {partition}: {offset} is committed, and {missing[:5]} were not processed"
        self.outcome.looks += 1

    def _committed(self) -> dict[int, int]:
        try:
            found = self._log.stored(self._partitions, self._topic)
        except SourceFailure:
            # Kafka does not answer while a broker is gone. Zeros check nothing now; the next look checks the offsets.
            return dict.fromkeys(range(PARTITIONS), 0)
        return {
            partition.partition: found[partition].offset if partition in found else 0 for partition in self._partitions
        }


@contextlib.contextmanager
def soaking(broker: KafkaTopics, topic: str, folder: Path, *, spark: bool) -> Iterator[Soak]:
    """Soak one topic; leave no process behind."""
    made = Soak(broker, topic, folder / topic, spark=spark)
    began = time.monotonic()
    try:
        yield made
    finally:
        made.outcome.secs = time.monotonic() - began
        made.close()


def soak_manual(broker: KafkaBroker, records: int, folder: Path, *, spark: bool = False) -> Outcome:
    """Read a topic by manual assignment: three kills, and three tasks from the first kill on."""
    with soaking(broker, "manual", folder, spark=spark) as soak:
        soak.append(records // 2)
        member = soak.start("manual", "two", tasks=2)
        for kill in range(3):
            soak.wait_for(0.2 + 0.3 * kill)
            soak.kill(member)
            if kill == 1:
                soak.append(records - records // 2)
            member = soak.start("manual", "three", tasks=3)
        soak.wait_for_end()
    return soak.outcome


def soak_subscribed(broker: KafkaBroker, records: int, folder: Path, *, spark: bool = False) -> Outcome:
    """Read a topic by subscription: a third member joins and leaves, and the two others are killed once each."""
    with soaking(broker, "subscribed", folder, spark=spark) as soak:
        soak.append(records // 4)
        members = [soak.start("subscribe", name) for name in ("first", "second")]
        soak.wait_for(0.5)
        third = soak.start("subscribe", "third")
        soak.append(records // 4)
        soak.wait_for_member("third")
        soak.kill(members[0])
        soak.start("subscribe", "fourth")
        soak.append(records // 4)
        soak.wait_for(0.7)
        soak.stop(third)
        soak.kill(members[1])
        soak.start("subscribe", "fifth")
        soak.append(records - 3 * (records // 4))
        soak.wait_for_end()
    return soak.outcome


def soak_leaders(cluster: KafkaCluster, records: int, folder: Path, *, spark: bool = False) -> Outcome:
    """Read a topic by manual assignment, while each broker in turn is killed and comes back."""
    with soaking(cluster, "leaders", folder, spark=spark) as soak:
        soak.append(records // 4)
        soak.start("manual", "two", tasks=2)
        for kill, broker in enumerate(cluster.brokers, 1):
            soak.wait_for(0.3 * kill)
            broker.kill()
            soak.append(records // 4)
            soak.wait_for(0.25 + 0.2 * kill)
            cluster.start()
        soak.append(records - 4 * (records // 4))
        soak.wait_for_end()
        soak.outcome.kills += len(cluster.brokers)
    return soak.outcome


@click.command()
@click.option("--records", default=200_000, show_default=True, type=click.IntRange(100), help="Of each topic.")
@click.option("--spark", is_flag=True, help="Run the topologies on Spark rather than in a process alone.")
@click.option("--only", type=click.Choice(["manual", "subscribed", "leaders"]), help="Soak one of the topics.")
def main(records: int, only: str | None, *, spark: bool) -> None:
    """Read topics under kills, rebalances and failures."""
    soaks: dict[str, tuple[Callable[[Path], Any], Any]] = {
        "manual": (KafkaBroker, soak_manual),
        "subscribed": (KafkaBroker, soak_subscribed),
        "leaders": (KafkaCluster, soak_leaders),
    }
    for topic, (kind, soak) in soaks.items():
        if only in {None, topic}:
            with tempfile.TemporaryDirectory(prefix="txtopo-kafka-soak-") as name, kind(Path(name)) as servers:
                outcome = soak(servers, records, Path(name), spark=spark)
                again = outcome.processed - outcome.records
                click.echo(
                    f"{outcome.topic}: {outcome.records:,} records processed and committed in {outcome.secs:.0f} s; "
                    f"{outcome.kills} kills; {again:,} were processed again; {outcome.looks} looks, no commit ahead"
                )


if __name__ == "__main__":
    main()
