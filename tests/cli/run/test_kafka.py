"""``txtopo kafka dev``: what it refuses, each with one line that says what to do."""

import socket

import pytest

from txtopo.servers.kafka import KafkaBroker
from txtopo.servers.server import free_port


def test_a_port_that_is_in_use(command_line):
    """Is found before anything is started."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = command_line("kafka", "dev", "--port", str(port), "--folder", "kafka")
    assert result.exit_code == 1
    assert "serves" not in result.output
    assert result.stderr.startswith(
        f"error: port {port} of 127.0.0.1 can't be used, Address already in use: give another"
    )
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--port", "70000"), "port 70000 of 127.0.0.1 can't be used, "),
        (("--folder", "file/kafka"), "the folder file/kafka can't be used, Not a directory: give another folder"),
    ],
)
def test_a_port_or_a_folder_that_cannot_be(command_line, options, said):
    (command_line.folder / "file").touch()
    result = command_line("kafka", "dev", *options)
    assert result.exit_code == 1
    assert result.stderr.startswith(f"error: {said}")
    assert result.stderr.count("\n") == 1


@pytest.mark.long
@pytest.mark.slow
def test_a_topic_that_kafka_refuses(kafka, command_line):
    del kafka  # which skips if a broker can't be had
    port = free_port()
    result = command_line("kafka", "dev", "--folder", "kafka", "--port", str(port), "--topic", "a b")
    assert result.exit_code == 2
    assert "error: --topic 'a b': " in result.output
    assert "serves" not in result.output


@pytest.mark.long
@pytest.mark.slow
def test_a_second_broker_in_a_folder(kafka, command_line):
    """Is refused, whatever its port, and the first one goes on to serve with all its records."""
    del kafka  # which skips if a broker can't be had
    with KafkaBroker(command_line.folder / "kafka") as first:
        first.create_topic("kept")
        first.produce("kept", ["a"])
        for more in ((), ("--port", str(first.port))):
            result = command_line("kafka", "dev", "--folder", "kafka", *more)
            assert result.exit_code == 1
            assert result.output == (
                "error: another broker uses the folder kafka: stop it, or give this one a folder and a port of its own\n"
            )
        first.produce("kept", ["b"])
        assert first.end_offsets("kept") == {0: 2}
        assert first.is_running
