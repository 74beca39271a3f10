"""What daemons share: logs and sockets."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from txtopo.cluster.daemon import listen, log_to
from txtopo.errors import ConfigError

LOG = logging.getLogger("txtopo.cluster.test")


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    """Leave the loggers of this process as they were."""
    loggers = [logging.getLogger(name) for name in ("", "txtopo", "kazoo")]
    before = [(logger, logger.level, list(logger.handlers)) for logger in loggers]
    yield
    for logger, level, handlers in before:
        logger.setLevel(level)
        for handler in set(logger.handlers) - set(handlers):
            logger.removeHandler(handler)
            handler.close()


def _break() -> None:
    raise ValueError("two\nlines")


def _log_an_error() -> None:
    try:
        _break()
    except ValueError:
        LOG.exception("it broke: %s", "Wörter")


def test_text_is_a_line_each(tmp_path: Path) -> None:
    """A traceback and a message of several lines do not break the line."""
    log_to(tmp_path / "logs" / "nimbus.log", "text")
    LOG.info("begins")
    _log_an_error()
    LOG.info("goes on")
    first, second, third = (tmp_path / "logs" / "nimbus.log").read_text().splitlines()
    assert first.endswith("INFO txtopo.cluster.test: begins")
    assert "it broke: Wörter\\nTraceback" in second
    assert third.endswith("goes on")


def test_json_is_an_object_a_line(tmp_path: Path) -> None:
    """With time, level, logger, message, and the traceback of an error."""
    log_to(tmp_path / "nimbus.log", "json")
    LOG.info("begins")
    _log_an_error()
    first, second = map(json.loads, (tmp_path / "nimbus.log").read_text().splitlines())
    assert first == {"time": first["time"], "level": "INFO", "logger": "txtopo.cluster.test", "message": "begins"}
    assert first["time"].endswith("Z")
    assert second["message"] == "it broke: Wörter"
    assert second["exception"].endswith("ValueError: two\nlines")


def test_port_that_is_taken() -> None:
    """The error says so, before anything is announced."""
    with listen("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1:{port}"):
            listen("127.0.0.1", port)
