"""Produces a known load of clicks, or checks the tables of the topology ``examples.clickstream`` against it.

``python -m examples.clickstream_load --clicks 100000``, then ``--check`` with the same numbers. Click number n is the
same in every load, so a second load of 1,000 clicks with ``--first 1000`` continues one of 1,000.
"""

from __future__ import annotations

import datetime as dt
import json
import sys
from collections import Counter
from collections.abc import Iterator

import click

from examples.clickstream import ERROR_STATUS, OUTPUT, SERVERS, TOPIC, Results, results_in
from txtopo.errors import TxtopoError
from txtopo.text.extras import how_to_install

PAGES, USERS, DAYS = 50, 997, 3
_FIRST_DAY = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
_CLICKS_A_TRANSACTION = 1_000


def clicks(first: int, count: int) -> Iterator[dict[str, object] | None]:
    """Yield clicks in the order of their numbers; None for a click that is not readable."""
    for n in range(first, first + count):
        if n % 5_003 == 5_002:  # noqa: PLR2004 - any rare number
            yield None
            continue
        time = _FIRST_DAY + dt.timedelta(days=n * 7 % DAYS, seconds=n % 86_400)
        yield {
            "time": time.isoformat(timespec="seconds").replace("+00:00", "Z"),
            "page": f"/page/{n * n % PAGES}",
            "user": f"user-{n * 31 % USERS}",
            "status": ERROR_STATUS if n % 101 == 0 else 200,
            "bytes": n * 37 % 5_000,
        }


def expected(first: int, count: int) -> Results:
    """Return what the tables must hold after a load."""
    numbers: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    visits: set[tuple[str, str]] = set()
    errors = unreadable = 0
    for each in clicks(first, count):
        if each is None:
            unreadable += 1
            continue
        page, size, status = str(each["page"]), int(str(each["bytes"])), int(str(each["status"]))
        numbers[page] += 1
        sizes[page] += size
        visits.add((str(each["time"])[:10], str(each["user"])))
        errors += status >= ERROR_STATUS
    pages = {page: (number, sizes[page]) for page, number in numbers.items()}
    return Results(pages, dict(Counter(day for day, _ in visits)), errors, unreadable)


def produce(servers: str, topic: str, first: int, count: int) -> None:
    """Produce clicks in transactions of Kafka, each of which is written whole."""
    try:
        from confluent_kafka import KafkaException, Producer  # noqa: PLC0415 - an extra of the installation
    except ImportError:
        raise click.ClickException(f"a load needs confluent-kafka: {how_to_install('kafka')}") from None
    producer = Producer({"bootstrap.servers": servers, "transactional.id": f"{topic}-load", "log_level": 3})
    try:
        producer.init_transactions()
        for start in range(first, first + count, _CLICKS_A_TRANSACTION):
            producer.begin_transaction()
            part = min(_CLICKS_A_TRANSACTION, first + count - start)
            for number, each in enumerate(clicks(start, part), start):
                value = b"not a click" if each is None else json.dumps(each).encode()
                producer.produce(topic, value, b"%d" % (number % USERS))
                producer.poll(0)
            producer.commit_transaction()  # raises if a record was not written
    except KafkaException as error:
        raise click.ClickException(f"Kafka at {servers}, topic {topic!r}: {error.args[0].str()}") from None


@click.command()
@click.option("--clicks", "count", default=10_000, show_default=True, help="The number of clicks.")
@click.option("--first", default=0, show_default=True, help="The number of the first click.")
@click.option("--servers", default=SERVERS, show_default=True, help="Kafka's brokers.")
@click.option("--topic", default=TOPIC, show_default=True)
@click.option("--output", default=OUTPUT, show_default=True, help="The folder of the tables, for --check.")
@click.option("--check", is_flag=True, help="Produce nothing; check the tables.")
def main(  # noqa: PLR0913, PLR0917 - the options of a command
    count: int,
    first: int,
    servers: str,
    topic: str,
    output: str,
    check: bool,  # noqa: FBT001 - as above
) -> None:
    """Produce a load of clicks for examples.clickstream, or check the tables."""
    if not check:
        produce(servers, topic, first, count)
        click.echo(f"{count:,} clicks are in topic {topic}")
        return
    try:
        found, wanted = results_in(output), expected(first, count)
    except TxtopoError as error:
        raise click.ClickException(f"{error}; run examples.clickstream first") from None
    if found != wanted:
        click.echo(f"the tables differ:\n{found}\ninstead of\n{wanted}")
        sys.exit(1)
    click.echo("the tables are exact")


if __name__ == "__main__":
    main()
