"""``txtopo kafka``: a Kafka broker to try things with."""

from __future__ import annotations

from pathlib import Path

import click

from txtopo.cli.command import Command, CommandLineError, WholeNumber
from txtopo.cli.run.asked import stop_asked
from txtopo.errors import ConfigError
from txtopo.servers.kafka import KafkaBroker

_POLL_SECS = 0.5


@click.group("kafka")
def kafka() -> None:
    """Run a Kafka broker for development."""


@kafka.command("dev", cls=Command)
@click.option("--port", type=WholeNumber(1), default=9092, show_default=True, help="The port on 127.0.0.1.")
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("out/kafka"),
    show_default=True,
    help="The folder of its data; the next start continues with them.",
)
@click.option(
    "--topic", "topics", multiple=True, metavar="NAME[:N]", help="Create this topic of N partitions; repeatable."
)
def dev(port: int, folder: Path, topics: tuple[str, ...]) -> None:
    """Run one broker on this machine until Ctrl-C.

    It is a real broker, but without replicas, TLS and passwords: for development and tests only. The first time, Spark
    downloads its JARs from Maven.
    """
    partitions_by_topic = dict(map(_topic, topics))
    broker = KafkaBroker(folder, port=port)
    with stop_asked() as stop:
        try:
            broker.start()
            existing_topics = broker.admin().list_topics(timeout=10).topics
            for topic, partitions in partitions_by_topic.items():
                if topic not in existing_topics:
                    _create(broker, topic, partitions)
            click.echo(f"Kafka serves on {broker.servers}; its data are in {folder}; Ctrl-C stops it")
            # In slices, to notice a broker that ends by itself.
            while broker.is_running and not stop.wait(_POLL_SECS):
                pass
            if not broker.is_running:
                raise ConfigError(f"the broker has ended; see {broker.log}")
        except RuntimeError as error:
            raise ConfigError(str(error)) from error
        finally:
            broker.stop()


def _create(broker: KafkaBroker, topic: str, partitions: int) -> None:
    from confluent_kafka import KafkaException  # noqa: PLC0415 - an extra of the installation

    try:
        broker.create_topic(topic, partitions)
    except KafkaException as error:
        raise CommandLineError(f"--topic {topic!r}: {error.args[0].str()}") from None


def _topic(text: str) -> tuple[str, int]:
    name, _, partitions = text.partition(":")
    if not name or not (partitions or "1").isdecimal() or int(partitions or 1) < 1:
        raise CommandLineError(f"--topic {text!r} is not NAME or NAME:PARTITIONS, such as clicks:4")
    return name, int(partitions or 1)
