"""Kafka brokers: one or three, without ZooKeeper (KRaft), from JARs that Spark's Ivy fetches.

They need confluent-kafka (the extra ``kafka``) and Java 17. The first start also needs Maven Central, or a mirror of it
that Spark knows.
"""

from __future__ import annotations

import atexit
import fcntl
import functools
import importlib.metadata
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any

from txtopo.errors import ConfigError
from txtopo.servers.server import READY_SECS, JavaServer, Server, free_port, pyspark_jars
from txtopo.spark.session.packages import fetched_jars
from txtopo.spark.session.versions import check_java
from txtopo.text.extras import how_to_install

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

_KAFKA = "org.apache.kafka:kafka_2.13:4.1.0"
_UNUSED = (
    "com.fasterxml.jackson.dataformat:jackson-dataformat-yaml",
    "commons-beanutils:*",
    "commons-collections:*",
    "commons-digester:*",
    "commons-logging:*",
    "org.jspecify:*",
    "org.yaml:*",
)
_SHIPPED = (
    "com.fasterxml.jackson.core:*",
    "com.fasterxml.jackson.module:*",
    "com.github.luben:*",
    "org.apache.logging.log4j:*",
    "org.lz4:*",
    "org.scala-lang:*",
    "org.slf4j:*",
    "org.xerial.snappy:*",
)
"""What PySpark 4 ships in a version that suits Kafka; the Scala and the Jackson of PySpark 3.5 are too old."""
_SHIPPED_JARS = [
    "scala-*.jar",
    "jackson-*.jar",
    "slf4j-*.jar",
    "log4j-*.jar",
    "zstd-jni*.jar",
    "lz4-java*.jar",
    "snappy-java*.jar",
]

_CLUSTER = "dHh0b3BvLWthZmthLWRldg"
"""The id of every cluster, any 16 bytes in base64."""

_ANSWER_SECS = 10.0
_POLL_SECS = 0.05
_LOCK_SECS = 2.0
"""A broker that is killed with its parent holds the lock for a moment longer."""

_SETTINGS: Mapping[str, object] = {
    "process.roles": "broker,controller",
    "node.id": 1,
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "auto.create.topics.enable": "false",
    "offsets.topic.replication.factor": 1,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "transaction.state.log.num.partitions": 1,
    "share.coordinator.state.topic.replication.factor": 1,
    "share.coordinator.state.topic.min.isr": 1,
    "group.initial.rebalance.delay.ms": 0,  # by default a new group waits 3 s for further members
    # A killed broker comes back only after its last session has ended; the default is 9 s.
    "broker.session.timeout.ms": 2000,
    "broker.heartbeat.interval.ms": 300,
    "num.network.threads": 2,
    "num.io.threads": 2,
    "log.segment.bytes": 64 * 1024 * 1024,
    # Tests of compaction and retention wait for these.
    "log.cleaner.dedupe.buffer.size": 8 * 1024 * 1024,
    "log.cleaner.backoff.ms": 500,
    "log.cleaner.min.cleanable.ratio": 0.01,
    "log.retention.check.interval.ms": 500,
    "log.initial.task.delay.ms": 500,
}

_REPLICAS = 3
_REPLICATED_SETTINGS: Mapping[str, object] = {
    **{
        f"{name}.replication.factor": _REPLICAS
        for name in ("default", "offsets.topic", "transaction.state.log", "share.coordinator.state.topic")
    },
    # What was acknowledged is on two brokers, so one may die.
    "min.insync.replicas": 2,
    "transaction.state.log.min.isr": 2,
    "share.coordinator.state.topic.min.isr": 2,
}


class KafkaTopics:
    """The topics of a cluster and their records. Methods raise ``confluent_kafka.KafkaException`` if Kafka refuses.

    Args:
        servers: ``host:port`` of its brokers, with commas between them.
        replicas: how many brokers keep a topic's records unless :meth:`create_topic` gets another number.
    """

    def __init__(self, servers: str, replicas: int = 1) -> None:
        self.servers = servers
        """What clients take as ``bootstrap.servers``."""
        self._replicas = replicas
        self._admin: AdminClient | None = None

    def create_topic(
        self,
        topic: str,
        partitions: int = 1,
        config: Mapping[str, str] | None = None,
        replicas: int | None = None,
    ) -> None:
        """Create a topic with settings such as ``{"cleanup.policy": "compact"}``, and wait until it can be written."""
        new = _client().admin.NewTopic(topic, partitions, replicas or self._replicas, config=dict(config or {}))
        self._wait_for_answers(self.admin().create_topics([new]))
        self._wait(lambda: self._serves(topic, partitions), f"topic {topic!r} is not served")

    def add_partitions(self, topic: str, partitions: int) -> None:
        """Give a topic ``partitions`` partitions in all, and wait until they can be written."""
        self._wait_for_answers(self.admin().create_partitions([_client().admin.NewPartitions(topic, partitions)]))
        self._wait(lambda: self._serves(topic, partitions), f"topic {topic!r} is not served")

    def delete_topic(self, topic: str) -> None:
        """Delete a topic, and wait until it is gone."""
        self._wait_for_answers(self.admin().delete_topics([topic]))
        self._wait(lambda: self._led(topic) is None, f"topic {topic!r} is still there")

    def delete_records(self, topic: str, before: Mapping[int, int]) -> None:
        """Delete the records of partitions before an offset each, as retention does."""
        kind = _client().TopicPartition
        places = [kind(topic, partition, offset) for partition, offset in before.items()]
        self._wait_for_answers(self.admin().delete_records(places))

    def produce(
        self,
        topic: str,
        records: Iterable[bytes | str | tuple[bytes | None, bytes | None]],
        partition: int | None = None,
        **properties: Any,
    ) -> None:
        """Write records, and wait until all of them are acknowledged.

        Records are values, or pairs of key and value. Without a partition, the client chooses one by the key.
        Properties are the producer's settings, with ``_`` for ``.``. A ``transactional_id`` makes the records one
        transaction of Kafka, whose end readers see a moment later.

        Raises:
            confluent_kafka.KafkaException: a record was not written.
        """
        client = _client()
        settings = {name.replace("_", "."): value for name, value in properties.items()}
        producer = client.Producer({"bootstrap.servers": self.servers, "linger.ms": 5, "log_level": 3, **settings})
        errors: list[Any] = []

        def delivered(error: Any, _message: Any) -> None:
            if error is not None:
                errors.append(error)

        if "transactional.id" in settings:
            producer.init_transactions()
            producer.begin_transaction()
        where = {} if partition is None else {"partition": partition}
        for record in records:
            key, value = record if isinstance(record, tuple) else (None, record)
            while True:
                try:
                    producer.produce(topic, value, key, on_delivery=delivered, **where)
                    break
                except BufferError:  # its queue is full; a poll settles records
                    producer.poll(0.1)
            producer.poll(0)
        producer.flush()
        if errors:
            raise client.KafkaException(errors[0])
        if "transactional.id" in settings:
            producer.commit_transaction()

    def end_offsets(self, topic: str) -> dict[int, int]:
        """Return the end of each partition as a reader of committed records sees it."""
        ends: list[dict[int, int]] = []
        self._wait(lambda: self._finds_ends(topic, ends), f"topic {topic!r} has a new leader all the time")
        return ends[0]

    def _finds_ends(self, topic: str, ends: list[dict[int, int]]) -> bool:
        client = _client()
        latest = client.admin.OffsetSpec.latest()
        places = {client.TopicPartition(topic, number): latest for number in range(self._led(topic) or 0)}
        level = client.IsolationLevel.READ_COMMITTED
        answers = self.admin().list_offsets(places, isolation_level=level, request_timeout=_ANSWER_SECS)
        try:
            ends.append({place.partition: answer.result().offset for place, answer in answers.items()})
        except client.KafkaException as error:
            # A leader was chosen anew since the client asked who it is: to ask again finds it.
            if error.args[0].code() != client.KafkaError.FENCED_LEADER_EPOCH:
                raise
        return bool(ends)

    def admin(self) -> AdminClient:
        """Return the admin client, which the first call makes."""
        if self._admin is None:
            # While the broker is down, librdkafka would complain on standard error.
            self._admin = _client().admin.AdminClient({"bootstrap.servers": self.servers, "log_level": 0})
        return self._admin

    def _led(self, topic: str) -> int | None:
        """Return how many partitions of a topic have a leader; None if the topic does not exist."""
        topic_metadata = self.admin().list_topics(timeout=_ANSWER_SECS).topics.get(topic)
        if topic_metadata is None or topic_metadata.error is not None:
            return None
        return len([partition for partition in topic_metadata.partitions.values() if partition.leader >= 0])

    def _serves(self, topic: str, partitions: int) -> bool:
        """Return whether all partitions of a topic answer; a partition with a leader may not answer yet."""
        try:
            return len(self.end_offsets(topic)) == partitions
        except _client().KafkaException:
            return False

    @staticmethod
    def _wait_for_answers(answers: Mapping[Any, Future[Any]]) -> None:
        for answer in answers.values():
            answer.result(READY_SECS)

    @staticmethod
    def _wait(condition: Callable[[], bool], purpose: str) -> None:
        deadline = time.monotonic() + READY_SECS
        while not condition():
            if time.monotonic() > deadline:
                raise RuntimeError(purpose)
            time.sleep(_POLL_SECS)


class KafkaBroker(KafkaTopics, JavaServer):
    """A Kafka broker on 127.0.0.1 that can be stopped, killed and restarted on the same data.

    As a context manager it starts, and is killed at the end. It also dies with this process.

    Args:
        folder: the folder of its data and log; created if it does not exist. None: a temporary one, removed when this
            process ends.
        port: the port to listen on; None for a free one.
        heap_mb: its heap in MiB.
        settings: the broker's settings by name; they override those for a small broker of tests.
        listeners: further ports by their security protocol, for example ``{"SASL_SSL": 9093}``; the settings have what
            the protocol needs, such as certificates.
    """

    def __init__(
        self,
        folder: Path | str | None = None,
        *,
        port: int | None = None,
        heap_mb: int = 256,
        settings: Mapping[str, object] | None = None,
        listeners: Mapping[str, int] | None = None,
    ) -> None:
        self.folder = _temporary_folder() if folder is None else Path(folder)
        self.port = port or free_port()
        KafkaTopics.__init__(self, f"127.0.0.1:{self.port}")
        JavaServer.__init__(self, self.folder / "broker.log", heap_mb)
        self.data = self.folder / "data"
        self._settings = settings or {}
        self._ports = {"PLAINTEXT": self.port, **(listeners or {})}
        self._controller_port = free_port()

    def launch(self) -> None:
        """Start the process without waiting for it.

        Raises:
            ConfigError: confluent-kafka or Java is missing, a JAR can't be fetched, the port is in use, or another
                broker uses the folder.
        """
        _client()
        check_java()
        lock = _locked(self.folder)
        try:
            for port in self._ports.values():
                _check_port(port)
            class_path = _class_path()
            settings = self.folder / "server.properties"
            settings.write_text("".join(f"{name}={value}\n" for name, value in self._all_settings().items()))
            if not (self.data / "meta.properties").exists():
                self.run_java(
                    class_path, "kafka.tools.StorageTool", "format", "--cluster-id", _CLUSTER, "--config", str(settings)
                )
            self.launch_java(class_path, "-Dlog4j2.level=WARN", "kafka.Kafka", str(settings), lock=lock)
        finally:
            os.close(lock)  # the server has inherited it, and holds it until it ends

    def wait_until_ready(self) -> None:
        """Wait until it serves requests and leads all partitions."""
        self.wait_until(self.is_ready, f"Kafka does not serve on {self.servers}")

    def is_ready(self) -> bool:
        """Return whether it serves requests and leads all partitions."""
        try:
            metadata = self.admin().list_topics(timeout=1)
        except _client().KafkaException:
            return False
        led = (partition.leader >= 0 for topic in metadata.topics.values() for partition in topic.partitions.values())
        return bool(metadata.brokers) and all(led)

    def _all_settings(self) -> dict[str, object]:
        listeners = ",".join(f"{protocol}://127.0.0.1:{port}" for protocol, port in self._ports.items())
        protocols = ",".join(f"{protocol}:{protocol}" for protocol in self._ports)
        return {
            **_SETTINGS,
            "controller.quorum.voters": f"1@127.0.0.1:{self._controller_port}",
            "listeners": f"{listeners},CONTROLLER://127.0.0.1:{self._controller_port}",
            "advertised.listeners": listeners,
            "listener.security.protocol.map": f"CONTROLLER:PLAINTEXT,{protocols}",
            "log.dirs": self.data,
            **self._settings,
        }


class KafkaCluster(KafkaTopics, Server):
    """Three Kafka brokers on 127.0.0.1, one of which at a time may be stopped, killed and restarted.

    Each broker keeps the records of all topics. Arguments are as for :class:`KafkaBroker`, for all brokers, which have
    folders of their own in the folder. As a context manager it starts, and is killed at the end.
    """

    def __init__(
        self, folder: Path | str | None = None, *, heap_mb: int = 256, settings: Mapping[str, object] | None = None
    ) -> None:
        folder = _temporary_folder() if folder is None else Path(folder)
        ports = {node: (free_port(), free_port()) for node in range(1, _REPLICAS + 1)}
        shared = {
            **_REPLICATED_SETTINGS,
            "controller.quorum.voters": ",".join(f"{node}@127.0.0.1:{at}" for node, (_, at) in ports.items()),
            **(settings or {}),
        }
        self._by_node = {
            node: KafkaBroker(
                folder / f"broker-{node}",
                port=port,
                heap_mb=heap_mb,
                settings={
                    **shared,
                    "node.id": node,
                    "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
                },
            )
            for node, (port, controller_port) in ports.items()
        }
        super().__init__(",".join(broker.servers for broker in self.brokers), _REPLICAS)

    @property
    def brokers(self) -> list[KafkaBroker]:
        """All brokers, running or not."""
        return list(self._by_node.values())

    def start(self) -> None:
        """Start the brokers that do not run, and wait until all serve."""
        # All are launched before any is waited for: a broker serves only once most of them have elected a controller.
        for broker in self.brokers:
            if not broker.is_running:
                broker.launch()
        for broker in self.brokers:
            broker.wait_until_ready()

    def kill(self) -> None:
        """Kill the brokers."""
        for broker in self.brokers:
            broker.kill()

    def leader(self, topic: str, partition: int) -> KafkaBroker | None:
        """Return the broker that leads a partition; None if none does."""
        partition_metadata = self.admin().list_topics(topic, timeout=_ANSWER_SECS).topics[topic].partitions[partition]
        return self._by_node.get(partition_metadata.leader)


def _client() -> Any:
    try:
        import confluent_kafka.admin  # noqa: PLC0415 - an extra of the installation
    except ImportError:
        raise ConfigError(f"confluent-kafka is not installed: {how_to_install('kafka')}") from None
    return confluent_kafka


@functools.cache
def _class_path() -> str:
    is_new = int(importlib.metadata.version("pyspark").split(".")[0]) >= 4  # noqa: PLR2004 - Spark 4
    jars = list(fetched_jars([_KAFKA], (*_UNUSED, *_SHIPPED) if is_new else _UNUSED))
    shipped = [jar for pattern in _SHIPPED_JARS for jar in sorted(pyspark_jars().glob(pattern))]
    return ":".join(map(str, [*jars, *shipped]))


def _locked(folder: Path) -> int:
    """Make and lock the folder of a broker, whose data two brokers would destroy; return the lock's descriptor."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise ConfigError(f"the folder {folder} can't be used, {error.strerror}: give another folder") from None
    # A broker that is killed with its parent may hold the lock for a moment longer.
    deadline = time.monotonic() + _LOCK_SECS
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() < deadline:
                time.sleep(_POLL_SECS)
                continue
            os.close(lock)
            raise ConfigError(
                f"another broker uses the folder {folder}: stop it, or give this one a folder and a port of its own"
            ) from None
        return lock


def _check_port(port: int) -> None:
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # else connections in TIME_WAIT count as in use
        try:
            listener.bind(("127.0.0.1", port))
        except (OSError, OverflowError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise ConfigError(f"port {port} of 127.0.0.1 can't be used, {why}: give another port") from None


def _temporary_folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="kafka-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
