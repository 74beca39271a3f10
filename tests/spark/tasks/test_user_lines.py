"""Lines of user code on their way to the driver: all of them, once, in order, from killed processes too."""

import contextlib
import queue
import socket
import subprocess
import sys

import pytest

from tests.waiting import DEADLINE_SECS
from txtopo.attempts import TransactionAttempt
from txtopo.network.channel import framed
from txtopo.spark.tasks.user_lines import LineListener, LinesAddress, LineSender, lines_sent
from txtopo.topology.user_code.blame import user_code
from txtopo.topology.user_code.output import PRINT, Line

KEY, OTHER = b"k" * 16, b"o" * 16

KILLED = """
import os, signal, sys
from txtopo.attempts import TransactionAttempt
from txtopo.topology.user_code.blame import user_code
from txtopo.spark.tasks.user_lines import LinesAddress, lines_sent

with lines_sent(LinesAddress("127.0.0.1", int(sys.argv[1]), 20), b"k" * 16):
    with user_code("bolt", TransactionAttempt(1, 1), 0):
        print("last words")
        print("never ended", end="")
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def taken():
    return queue.Queue()


@pytest.fixture
def listener(taken):
    listener = LineListener("127.0.0.1", KEY, take=taken.put)
    yield listener
    listener.close()


def texts(taken):
    return [taken.get_nowait().text for _ in range(taken.qsize())]


def test_a_task_ends_once_its_lines_are_taken(listener, taken, capsys):
    """When the context is left, the driver has every line, in order, with where it comes from."""
    with lines_sent(LinesAddress("127.0.0.1", listener.port, 20), KEY), user_code("bolt", TransactionAttempt(3, 1), 4):
        for number in range(500):
            print(number)
        print("𝄞 \udcff", end="")
    got = [taken.get_nowait() for _ in range(taken.qsize())]
    assert got[0] == Line(PRINT, "0", "stdout", "bolt", 4, 3, 1)
    assert [line.text for line in got] == [*(str(number) for number in range(500)), "𝄞 \\udcff"]
    assert capsys.readouterr() == ("", "")


def test_a_killed_process_has_told_all_its_lines(listener, taken):
    """What was printed before a ``kill -9`` arrives."""
    done = subprocess.run([sys.executable, "-c", KILLED, str(listener.port)], check=False, timeout=DEADLINE_SECS)
    assert done.returncode == -9
    assert taken.get(timeout=DEADLINE_SECS).text == "last words"
    assert taken.empty()


def test_closing_takes_what_has_arrived(listener, taken):
    """Lines of a connection that nobody has closed are taken before the listener is gone."""
    sender = LineSender(LinesAddress("127.0.0.1", listener.port, 20), KEY)
    sender.send(Line(PRINT, "sent", "stdout"))
    listener.close()
    assert texts(taken) == ["sent"]


def test_silence_opens_no_connection():
    """A task that prints nothing needs no driver that listens."""
    with lines_sent(LinesAddress("127.0.0.1", 1, 20), KEY):
        pass


def test_strangers_are_not_listened_to(listener, taken):
    """Without the run's key, and with a frame beyond the bound, a connection is closed and nothing is taken."""
    for hello in (framed(OTHER) + framed(b"[]"), b"GET / HTTP/1.1\r\n\r\n", framed(KEY) + b"\xff\xff\xff\xff"):
        with socket.create_connection(("127.0.0.1", listener.port), 30) as stranger:
            stranger.sendall(hello)
            stranger.settimeout(DEADLINE_SECS)
            with contextlib.suppress(ConnectionResetError):
                assert stranger.recv(1) == b""
    assert taken.empty()


def test_a_driver_that_can_not_be_reached(capfd):
    """Lines stay with the executor: they go to its standard error, and the task goes on."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    sender = LineSender(LinesAddress("127.0.0.1", port, 20), KEY)
    sender.send(Line(PRINT, "kept here", "stdout", "bolt", 0, 3, 1))
    sender.flush()
    assert capfd.readouterr().err == "[component 'bolt', task 0, txid 3, attempt 1, epoch 1] kept here\n"


def test_a_line_that_can_not_be_logged_harms_no_other(capfd):
    """What takes lines may fail: the next one is taken all the same."""
    taken = queue.Queue()

    def take(line):
        taken.put(line)
        if line.text == "bad":
            raise ValueError("a handler's bug")

    listener = LineListener("127.0.0.1", KEY, take=take)
    sender = LineSender(LinesAddress("127.0.0.1", listener.port, 20), KEY)
    for text in ("bad", "good"):
        sender.send(Line(PRINT, text, "stdout"))
    sender.flush()
    listener.close()
    assert texts(taken) == ["bad", "good"]
