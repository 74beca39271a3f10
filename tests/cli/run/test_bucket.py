"""``txtopo bucket dev``: what it refuses, each with one line that says what to do."""

import socket

from tests.cli.conftest import CommandLine


def test_a_port_that_is_in_use(command_line: CommandLine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = command_line("bucket", "dev", "--port", str(port), "--folder", "bucket")
    assert result.exit_code == 1
    assert result.stderr == (
        f"error: port {port} of 127.0.0.1 can't be used, Address already in use: give another one\n"
    )


def test_a_folder_that_cannot_be(command_line: CommandLine) -> None:
    (command_line.folder / "file").touch()
    result = command_line("bucket", "dev", "--folder", "file/bucket")
    assert result.exit_code == 1
    assert result.stderr == "error: the folder file/bucket can't be used, Not a directory: give another folder\n"
