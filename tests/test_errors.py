"""Errors: what they hold is bounded."""

import pickle

from txtopo.errors import FailedException
from txtopo.topology.user_code.blame import blame


def test_long_message() -> None:
    """Of a long text its beginning and its end are kept: it goes to the driver, into each log and into records."""
    error = blame(ValueError(f"first {'x' * 20_000_000} last"), "remedy", component="parse")
    for text in (str(error), str(pickle.loads(pickle.dumps(error)))):
        assert "ValueError: first x" in text
        assert "x last; remedy" in text
        assert len(text) < 200_000
    assert len(str(FailedException("x" * 20_000_000))) < 100_000


def test_message_that_is_no_text() -> None:
    """User code may raise a failure with any object: it is shown as Python shows it."""
    assert str(FailedException(17)) == "17"
