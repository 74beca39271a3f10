"""The examples with a topology, each with some input that ends."""

import contextlib
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from examples import (
    clickstream,
    global_count,
    going_back,
    named_orders,
    no_reading,
    orders,
    orders_by_minute,
    orders_flow,
    payments,
    ring,
    single_join,
    transactional_words,
    word_count,
)
from examples.clickstream_load import clicks
from examples.orders_by_minute_load import lines
from tests.examples.test_orders_by_minute import load
from tests.spouts.kafka.in_memory import TransactionalInMemory
from txtopo import PlainTopology, TransactionalTopology
from txtopo.testing import MemoryLog

CLICKS, LINES = 1_100, 1
"""How many clicks the clickstream has, and how many times its lines each text."""


def _words(folder: Path, output: str) -> TransactionalTopology:
    texts = folder / "texts"
    texts.mkdir(exist_ok=True)
    for number in range(12):
        (texts / f"{number}.txt").write_text("a word and another word\nthe end\n" * (number + 1) * LINES)
    return transactional_words.topology(str(texts), output, 2)


def _by_minute(folder: Path, output: str) -> TransactionalTopology:
    load(folder / "orders", range(10))
    return orders_by_minute.topology(str(folder / "orders"), output, watch=False, servers="")


def _flow(folder: Path, output: str) -> TransactionalTopology:
    load(folder / "orders", range(10))
    return orders_flow.topology(str(folder / "orders"), output, watch=False)


def _going_back(_: Path, output: str) -> TransactionalTopology:
    going_back.write_orders(Path(output) / "in")
    return going_back.topology(output)


def reading_clicks() -> contextlib.AbstractContextManager[None]:
    """Have the clickstream's spout read some clicks in memory."""
    records = ["not a click" if click is None else json.dumps(click) for click in clicks(0, CLICKS)]
    return _reading(clickstream, {"clicks": records})


def _clicks(_: Path, output: str) -> TransactionalTopology:
    with reading_clicks():
        return clickstream.topology("memory", "clicks", output, 2, until_end=True)


def _by_minute_of_topic(_: Path, output: str) -> TransactionalTopology:
    with _reading(orders_by_minute, {"orders": lines(0, 1_000)}):
        return orders_by_minute.topology(output=output, servers="memory", topic="orders", watch=False)


@contextlib.contextmanager
def _reading(example: ModuleType, topics: Mapping[str, Iterable[bytes | str]]) -> Iterator[None]:
    """Have an example's spout read records in memory, some dozens a transaction, instead of a broker's."""
    log = MemoryLog()
    for topic, records in topics.items():
        log.create_topic(topic, partitions := 3)
        for partition, record in zip(itertools.cycle(range(partitions)), records, strict=False):
            log.append(topic, [record], partition)

    def spout(_: str, *arguments: Any, **options: Any) -> TransactionalInMemory:
        return TransactionalInMemory(log, *arguments, batch_records_max=50, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(example, "TransactionalKafkaSpout", spout)
        yield


EXAMPLES: Mapping[str, Callable[[Path, str], TransactionalTopology]] = {
    "clickstream": _clicks,
    "global_count": lambda _, output: global_count.topology(output),
    "going_back": _going_back,
    "transactional_words": _words,
    "named_orders": lambda folder, output: named_orders.topology(str(folder / "customers"), output),
    "no_reading": lambda _, output: no_reading.topology(output, hours=3),
    "orders": lambda _, output: orders.topology(output=output, orders=400),
    "orders_by_minute": _by_minute,
    "orders_flow": _flow,
    "orders_by_minute of a topic": _by_minute_of_topic,
    "payments": lambda _, output: payments.topology(output),
    "ring": lambda _, output: ring.topology(output, turns=40),
}
"""By the name of its module, from a folder for its input and one for its tables."""

PLAIN: Mapping[str, Callable[[str], PlainTopology]] = {
    "word_count": lambda output: word_count.topology(output=output),
    "single_join": lambda output: single_join.topology(output=output),
}
