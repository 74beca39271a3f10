"""A queue that offers a dead reader's open messages again, as Kestrel did for Storm's spouts.

Storm's guarantee rests on the source: a spout keeps nothing when its worker dies, so its source must offer its open
messages again. This queue is such a source for tests and soaks. It runs in a thread of the process that makes it; its
readers may be in any process of this machine::

    with RedeliveringQueue(messages) as queue:
        builder.set_spout("messages", QueueSpout(queue.address, Fields("message")))
"""

from __future__ import annotations

import json
import socket
import socketserver
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Self

from txtopo.api.components.collector import SpoutOutputCollector
from txtopo.api.components.context import TopologyContext
from txtopo.api.components.spout import Spout
from txtopo.api.data.fields import Fields

_PAUSE_SECS = 0.01
_TAKEN_AT_ONCE = 100


class RedeliveringQueue:
    """Offers each message until somebody confirms it; use it by ``with``.

    *txtopo* guarantees that a message is with one reader at a time, and that a reader's open messages are offered
    again when it aborts them or its connection ends.

    Args:
        messages: the first messages, of types that JSON has.
        on_confirmed: called with the number of each confirmed message, in a thread of the queue.
    """

    def __init__(
        self, messages: Iterable[Any] = (), on_confirmed: Callable[[int], None] = lambda _number: None
    ) -> None:
        self._messages: dict[int, Any] = {}
        self._waiting: deque[int] = deque()
        self._lock = threading.Condition()
        self._next = 0
        self._on_confirmed = on_confirmed
        self.deliveries = 0
        """How many messages were given to readers, repeats included."""
        self.put(messages)
        outer = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                outer._serve(self)

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler, bind_and_activate=True)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="txtopo-queue", daemon=True)

    @property
    def address(self) -> tuple[str, int]:
        """Where readers connect."""
        host, port = self._server.server_address[:2]
        return str(host), port

    @property
    def unconfirmed(self) -> int:
        """How many messages nobody has confirmed."""
        with self._lock:
            return len(self._messages)

    def put(self, messages: Iterable[Any]) -> None:
        """Add messages behind the others. They are numbered from 0."""
        with self._lock:
            for message in messages:
                self._messages[self._next] = message
                self._waiting.append(self._next)
                self._next += 1

    def wait_until_empty(self, timeout_secs: float) -> None:
        """Wait until every message is confirmed; raise TimeoutError if some are not."""
        with self._lock:
            if not self._lock.wait_for(lambda: not self._messages, timeout_secs):
                raise TimeoutError(f"{len(self._messages):,} messages were not confirmed within {timeout_secs:g} s")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _serve(self, handler: socketserver.StreamRequestHandler) -> None:
        opened: set[int] = set()
        try:
            for line in handler.rfile:
                verb, argument = json.loads(line)
                if verb == "take":
                    taken = self._take(argument, opened)
                    handler.wfile.write(json.dumps(taken).encode() + b"\n")
                elif verb == "confirm":
                    self._confirm(argument, opened)
                else:
                    self._take_back([argument] if argument in opened else [])
                    opened.discard(argument)
        except OSError:
            pass  # the reader was killed; its open messages go back below
        finally:
            self._take_back(sorted(opened))

    def _take(self, count: int, opened: set[int]) -> list[tuple[int, Any]]:
        with self._lock:
            numbers = [self._waiting.popleft() for _ in range(min(count, len(self._waiting)))]
            opened.update(numbers)
            self.deliveries += len(numbers)
            return [(number, self._messages[number]) for number in numbers]

    def _confirm(self, number: int, opened: set[int]) -> None:
        with self._lock:
            if number not in opened:
                return  # another reader may have it by now
            opened.discard(number)
            del self._messages[number]
            self._on_confirmed(number)
            self._lock.notify_all()

    def _take_back(self, numbers: Sequence[int]) -> None:
        with self._lock:
            self._waiting.extendleft(reversed(numbers))


class QueueReader:
    """Reads a queue; its open messages go back when it closes or its process dies."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._connection = socket.create_connection(address)
        self._file = self._connection.makefile("rwb")

    def take(self, count: int) -> list[tuple[int, Any]]:
        """Return at most ``count`` waiting messages with their numbers."""
        self._say("take", count)
        return [(number, message) for number, message in json.loads(self._file.readline())]

    def confirm(self, number: int) -> None:
        """Confirm that a message is processed."""
        self._say("confirm", number)

    def abort(self, number: int) -> None:
        """Give a message back; it is offered again before the others."""
        self._say("abort", number)

    def close(self) -> None:
        """Give all open messages back."""
        self._file.close()
        self._connection.close()

    def _say(self, verb: str, argument: int) -> None:
        self._file.write(json.dumps([verb, argument]).encode() + b"\n")
        self._file.flush()


class QueueSpout(Spout):
    """Emits the messages of a queue: confirms what is acked, gives back what fails.

    A message that is a list has a value for each field; any other message is the value of the only field. With
    ``is_endless`` the spout waits for more messages when the queue is empty; otherwise it is exhausted then.
    """

    def __init__(self, address: tuple[str, int], fields: Fields, *, is_endless: bool = False) -> None:
        self.output_fields = fields
        self._address = address
        self._is_endless = is_endless

    def open(self, config: Mapping[str, Any], context: TopologyContext, collector: SpoutOutputCollector) -> None:
        """Connect to the queue."""
        del config, context
        self._collector = collector
        self._reader = QueueReader(self._address)
        self._taken: deque[tuple[int, Any]] = deque()
        self._look_at = 0.0
        self._is_empty = False

    def next_tuple(self) -> None:
        """Emit the next message, if there is one."""
        if not self._taken and time.monotonic() >= self._look_at:
            self._taken.extend(self._reader.take(_TAKEN_AT_ONCE))
            self._is_empty = not self._taken
            if self._is_empty:
                self._look_at = time.monotonic() + _PAUSE_SECS
        if self._taken:
            number, message = self._taken.popleft()
            self._collector.emit(message if isinstance(message, list) else (message,), message_id=number)

    def ack(self, message_id: int) -> None:
        """Confirm the message."""
        self._reader.confirm(message_id)

    def fail(self, message_id: int) -> None:
        """Give the message back."""
        self._is_empty = False
        self._reader.abort(message_id)

    def is_exhausted(self) -> bool:
        """Whether the queue had no more messages at the last look."""
        return self._is_empty and not self._taken and not self._is_endless

    def close(self) -> None:
        """Give all open messages back."""
        self._reader.close()
