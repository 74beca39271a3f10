"""Lets orders come, some twice and some late, or checks the tables of ``examples.orders_by_minute`` against them.

``python -m examples.orders_by_minute_load``, then ``--check`` with the same numbers. Order number n is the same in
every load, so a second load of 1,000 orders with ``--first 1000`` continues one of 1,000.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import time
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path

import click

from examples.orders_by_minute import FOLDER, MINUTE, OUTPUT, SERVERS, TOPIC, Results, results_in
from txtopo.errors import TxtopoError
from txtopo.text.extras import how_to_install

SHOPS = ("Aachen", "Bergen", "Cork", "Dijon", "Evora")
ORDERS_A_FILE = 200

_FIRST = dt.datetime(2026, 3, 1, 8, tzinfo=dt.UTC)
_BETWEEN = dt.timedelta(milliseconds=300)
_LATE = dt.timedelta(minutes=20)
_LATE_EVERY, _TWICE_EVERY = 97, 40


def order(number: int) -> dict[str, str]:
    """Return an order; one in 97 comes 20 minutes late, the others up to 17 seconds."""
    late = _LATE if is_late(number) else dt.timedelta(seconds=number * 7 % 18)
    return {
        "id": f"order-{number}",
        "at": (_FIRST + number * _BETWEEN - late).isoformat(),
        "shop": SHOPS[number * number % 7 % len(SHOPS)],
        "price": f"{number * 37 % 9_000 / 100:.2f}",
    }


def is_late(number: int) -> bool:
    """Whether an order comes 20 minutes late."""
    return number % _LATE_EVERY == _LATE_EVERY - 1


def lines(first: int, count: int) -> Iterator[bytes]:
    """Yield orders as JSON; one in 40 comes a second time."""
    for number in range(first, first + count):
        line = json.dumps(order(number)).encode()
        yield line
        if number % _TWICE_EVERY == 0:
            yield line


def write_file(folder: Path, first: int, count: int) -> None:
    """Write a file of orders under a name that the spout skips, and rename it into place when it is whole."""
    folder.mkdir(parents=True, exist_ok=True)
    waiting = folder / f".orders-{first:09}.jsonl"
    waiting.write_bytes(b"".join(line + b"\n" for line in lines(first, count)))
    waiting.rename(folder / waiting.name[1:])


def producing(servers: str, topic: str) -> Callable[[int, int], None]:
    """Return a function that produces orders from a number on to Kafka."""
    try:
        from confluent_kafka import KafkaException, Producer  # noqa: PLC0415 - an extra of the installation
    except ImportError:
        raise click.ClickException(f"Kafka needs confluent-kafka: {how_to_install('kafka')}") from None
    producer = Producer({"bootstrap.servers": servers, "transactional.id": f"{topic}-load", "log_level": 3})

    def produce(first: int, count: int) -> None:
        try:
            if not started:
                producer.init_transactions()
                started.append(True)
            producer.begin_transaction()
            for line in lines(first, count):
                producer.produce(topic, line)
                producer.poll(0)
            producer.commit_transaction()  # raises if a record was not written
        except KafkaException as error:
            raise click.ClickException(f"Kafka at {servers}, topic {topic!r}: {error.args[0].str()}") from None

    started: list[bool] = []
    return produce


def differences(found: Results, first: int, count: int) -> Iterator[str]:
    """Yield what is wrong in the tables after a load.

    Which of the late orders are too late depends on how the run has cut its input into transactions. So whatever is
    not among the orders must be among the late ones, and minutes and totals must be those of the orders.
    """
    if found.doubled:
        yield f"{found.doubled:,} orders or minutes are in a table twice"
    seen = {**found.late, **found.orders}
    if found.late.keys() & found.orders.keys():
        yield f"orders are late and not late: {sorted(found.late.keys() & found.orders.keys())[:5]}"
    wanted = {}
    for number in range(first, first + count):
        each = order(number)
        wanted[each["id"]] = dt.datetime.fromisoformat(each["at"]), each["shop"], Decimal(each["price"])
    for name in sorted(wanted.keys() | seen.keys()):
        if wanted.get(name) != seen.get(name):
            yield f"{name} is {seen.get(name)}, and not {wanted.get(name)}"
    minutes: dict[tuple[str, dt.datetime], tuple[int, Decimal]] = {}
    totals: dict[str, tuple[int, Decimal, Decimal]] = {}
    for at, shop, price in found.orders.values():
        minute = shop, at - (at - _FIRST) % MINUTE
        orders, revenue = minutes.get(minute, (0, Decimal(0)))
        minutes[minute] = orders + 1, revenue + price
        orders, revenue, largest = totals.get(shop, (0, Decimal(0), price))
        totals[shop] = orders + 1, revenue + price, max(largest, price)
    for minute, said in found.minutes.items():
        if said != minutes.get(minute):
            yield f"minute {minute} says {said}, and not {minutes.get(minute)}"
    if found.totals != totals:
        yield f"the totals are {found.totals}, and not {totals}"


@click.command()
@click.option("--orders", "count", default=10_000, show_default=True, help="The number of orders.")
@click.option("--first", default=0, show_default=True, help="The number of the first order.")
@click.option("--pause", default=0.2, show_default=True, help="Seconds between 200 orders and the next.")
@click.option("--folder", default=FOLDER, show_default=True, help="The folder of orders.")
@click.option("--output", default=OUTPUT, show_default=True, help="The folder of the tables, for --check.")
@click.option("--check", is_flag=True, help="Write no orders; check the tables.")
def main(  # noqa: PLR0913, PLR0917 - the options of a command
    count: int,
    first: int,
    pause: float,
    folder: str,
    output: str,
    check: bool,  # noqa: FBT001 - as above
) -> None:
    """Let orders come for examples.orders_by_minute, to Kafka if ORDERS_KAFKA names servers, or check the tables."""
    if check:
        try:
            found = results_in(output)
        except TxtopoError as error:
            raise click.ClickException(f"{error}; run examples.orders_by_minute first") from None
        wrong = list(differences(found, first, count))
        if wrong:
            raise click.ClickException("\n".join(["the tables differ:", *wrong[:10]]))
        minutes = len({start for _shop, start in found.minutes})
        click.echo(f"the tables are exact: {len(found.late):,} orders were late, {minutes:,} minutes are closed")
        return
    produce = producing(SERVERS, TOPIC) if SERVERS else None
    for start in range(first, first + count, ORDERS_A_FILE):
        part = min(ORDERS_A_FILE, first + count - start)
        if produce is None:
            write_file(Path(folder), start, part)
        else:
            produce(start, part)
        time.sleep(pause)
    click.echo(f"{count:,} orders are in {'topic ' + TOPIC if SERVERS else os.path.normpath(folder)}")


if __name__ == "__main__":
    main()
