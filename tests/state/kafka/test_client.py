"""What the client of a KafkaState makes of the brokers' answers, where a real broker can't be made to give them."""

import json
from collections import deque

import attrs
import pytest

from state.kafka.client import KafkaMarks
from state.marks import Mark, Owner
from txtopo.text.client_properties import ClientProperties

library = pytest.importorskip("confluent_kafka")


@attrs.frozen
class _Message:
    at: int
    mark: Mark | None = None

    def error(self):
        return None if self.mark else library.KafkaError(library.KafkaError._PARTITION_EOF)

    def value(self):
        return json.dumps(self.mark.to_row()).encode()

    def offset(self):
        return self.at


class _Consumer:
    def __init__(self, messages):
        self._messages = deque(messages)

    def assign(self, partitions):
        pass

    def poll(self, secs):
        return self._messages.popleft()

    def close(self):
        pass


def test_a_new_leader_that_knows_of_less_at_first(monkeypatch):
    """The end that it tells of is before the one that was asked for: the last mark is read when it knows of it."""
    first = Mark.new(Owner("t", "s", "life"), "rows", 1)
    last = attrs.evolve(first, txid=2)
    messages = [_Message(0, attrs.evolve(first, txid=1)), _Message(2), _Message(2, last), _Message(4)]
    marks = KafkaMarks("127.0.0.1:9092", ClientProperties(None), "out", "out.txtopo")
    monkeypatch.setattr(marks, "_end", lambda *, is_committed: 4)
    monkeypatch.setattr(marks.connection, "make", lambda kind, settings: _Consumer(messages))
    assert marks.read() == last
