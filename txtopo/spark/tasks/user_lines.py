"""Sends the output of user code from executors to the driver, line by line, over one TCP connection per task.

``print`` returns once the kernel has the line, so the output of a killed worker still arrives. A task ends after the
driver has received all its lines, so they are logged before the attempt commits, and none is logged twice. A task
without output opens no connection. If the driver can't be reached, lines go to the executor's standard error.
"""

from __future__ import annotations

import contextlib
import json
import logging
import selectors
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import attrs

from txtopo.errors import UserCodeError
from txtopo.network.acceptor import Acceptor
from txtopo.network.channel import Channel, ChannelClosed, WakeUp, framed
from txtopo.topology.user_code.output import LINE_CHARACTERS_MAX, Capture, Line, capturing, log_line

_MESSAGE_BYTES_MAX = 64 * LINE_CHARACTERS_MAX
_TIMEOUT_SECS = 5.0
"""How long the end of a run waits for the lines of its tasks, and a task for the driver."""

LATE = "txtopo.late"
"""The source of a line that is not output: it tells the driver what a user's thread did too late."""

logger = logging.getLogger("txtopo")


def take_line(line: Line, record_late: Callable[[UserCodeError], None]) -> None:
    """Log a line, or note what it tells of."""
    if line.source == LATE:
        record_late(UserCodeError(line.text, component=line.component, txid=line.txid, attempt=line.attempt))
    else:
        log_line(line)


@attrs.frozen
class LinesAddress:
    """The address at which the driver receives lines, and the minimum level of log records to send."""

    host: str
    port: int
    level: int


class LineListener:
    """Receives lines in the driver and logs them.

    Executors reach it at ``host``; it binds to ``bind_host`` if that differs. A connection whose first message is not
    ``run_key`` is closed.
    """

    def __init__(
        self, host: str, run_key: bytes, bind_host: str | None = None, take: Callable[[Line], None] = log_line
    ) -> None:
        self._run_key = run_key
        self._take = take
        self._closing = WakeUp()
        self._channels: dict[socket.socket, Channel] = {}
        self._of_run: set[socket.socket] = set()
        """The connections that have begun with the run's key."""
        self._selector = selectors.DefaultSelector()
        self._acceptor = Acceptor(bind_host or host, self._selector, self._drop)
        self.port = self._acceptor.port
        self._selector.register(self._closing, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._listen, name="txtopo-lines", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Receive the lines that have arrived, and stop."""
        self._closing.wake()
        self._thread.join(_TIMEOUT_SECS)

    def _listen(self) -> None:
        ready: list[Any] = []
        while ready != [self._closing]:  # which stays ready once it is woken, so this ends when nothing else is
            ready = [key.fileobj for key, _ in self._selector.select(self._acceptor.wait_secs)]
            for source in ready:
                if source is self._acceptor:
                    self._accept()
                elif source is not self._closing:
                    self._hear(source)
            self._acceptor.run_timers()
        self._acceptor.close()
        for connection in list(self._channels):
            self._forget(connection)
        self._selector.close()
        self._closing.close()

    def _accept(self) -> None:
        connection = self._acceptor.accept()
        if connection is None:
            return
        try:
            self._channels[connection] = Channel(connection, _MESSAGE_BYTES_MAX)
        except OSError:  # the other side has left already
            self._forget(connection)
            return
        self._selector.register(connection, selectors.EVENT_READ)

    def _hear(self, connection: socket.socket) -> None:
        channel = self._channels.get(connection)
        if channel is None:  # it was displaced just before
            return
        try:
            messages = channel.receive()
        except ChannelClosed:
            self._forget(connection)
            return
        for message in messages or ():
            if connection in self._of_run:
                try:
                    self._take(Line(*json.loads(message)))
                except Exception:
                    logger.exception("a line of user code could not be logged")
            elif message == self._run_key:
                self._of_run.add(connection)
                self._acceptor.leave(connection)
            else:
                self._forget(connection)
                return

    def _forget(self, connection: socket.socket) -> None:
        self._acceptor.leave(connection)
        self._drop(connection)

    def _drop(self, connection: socket.socket) -> None:
        with contextlib.suppress(KeyError):  # not registered yet
            self._selector.unregister(connection)
        self._of_run.discard(connection)
        channel = self._channels.pop(connection, None)
        if channel is not None:
            channel.close()
        connection.close()


class LineSender:
    """Sends the lines of one Spark task."""

    def __init__(self, address: LinesAddress, run_key: bytes) -> None:
        self._address = address
        self._run_key = run_key
        self._socket: socket.socket | None = None
        self._lock = threading.Lock()
        self._is_cut_off = False

    def send(self, line: Line) -> None:
        """Send a line; it returns once the kernel has the line."""
        content = json.dumps(attrs.astuple(line)).encode()
        if not self._is_cut_off:
            try:
                with self._lock:
                    if self._socket is None:
                        self._socket = socket.create_connection((self._address.host, self._address.port), _TIMEOUT_SECS)
                        self._socket.sendall(framed(self._run_key))
                    self._socket.sendall(framed(content))
            except OSError:  # for good: otherwise each line might wait for the timeout
                self._is_cut_off = True
        if self._is_cut_off and sys.__stderr__ is not None:
            print(f"{line.origin} {line.text}", file=sys.__stderr__, flush=True)

    def flush(self) -> None:
        """Wait until the driver has received all lines; the next one opens another connection."""
        if self._socket is None:  # most attempts print nothing
            return
        with self._lock:
            connection, self._socket = self._socket, None
        if connection is not None:
            # The driver closes its side only after it has read to the end.
            with connection, contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_WR)
                connection.recv(1)


@contextlib.contextmanager
def lines_sent(address: LinesAddress, run_key: bytes) -> Iterator[LineSender]:
    """Send the output of this process, which runs a Spark task, to the driver within the context."""
    sender = LineSender(address, run_key)
    try:
        with capturing(Capture(sender.send, is_worker=True), address.level):
            yield sender
    finally:
        sender.flush()
