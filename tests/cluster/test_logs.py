"""Logs of daemons and drivers: formats and rotation."""

import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.waiting import DEADLINE_SECS
from txtopo.cluster.logs import Throttle, log_to, rotate

LOG = logging.getLogger("txtopo.cluster.test")

DRIVER = """
import logging, os, subprocess, sys
from txtopo.attempts import attempt_number
from txtopo.cluster.logs import driver_log
from txtopo.topology.user_code.output import Line, log_line

with driver_log(sys.argv[1]):
    logging.getLogger("txtopo.cluster.driver.process").info("begins")
    log_line(Line(25, "a printed line", "stdout", "count", 2, 17, attempt_number(3, 0)))
    try:
        raise ValueError("two\\nlines")
    except ValueError:
        logging.getLogger("txtopo.cluster.driver.process").exception("it broke")
    print("from Python")
    os.write(2, b"at java.base/java.lang.Thread.run\\n" + b"x" * 200_000 + b"\\n")
    subprocess.run(["sh", "-c", "echo from a child; echo to standard error >&2"], check=True)
    os.write(1, b"no end of the line")
logging.getLogger("txtopo.cluster.driver.process").info("ends")
"""


@pytest.fixture
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


@pytest.mark.usefixtures("_logging_as_before")
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


@pytest.mark.usefixtures("_logging_as_before")
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


def _log_of_driver(log_format: str) -> list[str]:
    """Return the lines of a driver's log, whose processes write to the same file."""
    ended = subprocess.run(
        [sys.executable, "-c", DRIVER, log_format],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=DEADLINE_SECS,
        check=True,
    )
    return ended.stdout.splitlines()


@pytest.mark.slow
def test_json_of_a_driver() -> None:
    """Every line is an object: records with their origin, tracebacks, and what Spark's JVM and other children write."""
    records = [json.loads(line) for line in _log_of_driver("json")]
    by_message = {record["message"]: record for record in records}
    printed = by_message["[component 'count', task 2, txid 17, attempt 1, epoch 3] a printed line"]
    origin = {name: printed[name] for name in ("level", "component", "task", "txid", "source")}
    assert origin == {"level": "PRINT", "component": "count", "task": 2, "txid": 17, "source": "stdout"}
    assert by_message["it broke"]["exception"].endswith("ValueError: two\nlines")
    raw = [record["message"] for record in records if record["logger"] == "output"]
    assert {"at java.base/java.lang.Thread.run", "from a child", "to standard error", "no end of the line"} <= {*raw}
    assert "from Python" in raw
    assert sum(map(len, raw)) > 200_000
    assert records[-1]["message"] == "ends"


def test_rotation_of_a_file_that_others_have_open(tmp_path: Path) -> None:
    """The old lines are in NAME.1; whoever has the file open goes on at its new end."""
    path = tmp_path / "driver.log"
    with path.open("ab", buffering=0) as one, path.open("ab", buffering=0) as other:
        one.write(b"a" * 600)
        rotate(path, 1000)
        assert not path.with_name("driver.log.1").exists()
        other.write(b"b" * 600)
        rotate(path, 1000)
        assert path.read_bytes() == b""
        assert path.with_name("driver.log.1").read_bytes() == b"a" * 600 + b"b" * 600
        one.write(b"c")
        other.write(b"d")
    assert path.read_bytes() == b"cd"
    rotate(tmp_path / "none.log", 1000)


def test_same_warning_again_and_again(caplog: pytest.LogCaptureFixture) -> None:
    """A flood of one warning leaves twenty lines a minute, and the next one says how many it left out.

    Other warnings are logged all the same; of what is no warning, and of what ends the process, nothing is left out.
    """
    now = 0.0
    throttle = Throttle(lambda: now)
    caplog.handler.addFilter(throttle)
    try:
        with caplog.at_level(logging.INFO, LOG.name):
            for number in range(101):
                now = 60.0 if number == 100 else 0.0
                LOG.warning("no file is left: %d", number)
                LOG.info("an event")
                LOG.critical("the end")
            LOG.warning("another one")
    finally:
        caplog.handler.removeFilter(throttle)
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert warnings[:20] == [f"no file is left: {number}" for number in range(20)]
    assert warnings[20:] == ["no file is left: 100 (and 80 times before, which was not logged)", "another one"]
    assert caplog.messages.count("an event") == caplog.messages.count("the end") == 101
