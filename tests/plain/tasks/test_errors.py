"""Errors that components of plain topologies report."""

from threading import get_ident

import pytest

from txtopo.plain.tasks.errors import ErrorReporter
from txtopo.topology.user_code.output import OutputOrigin, user_output_logged


def test_a_reported_error_is_of_the_task_that_reports_it(caplog: pytest.LogCaptureFixture) -> None:
    """Also while another task has the turn; its text stands there once, before the traceback."""
    reporter = ErrorReporter("bolt", 5, lambda: 0.0, 10.0, 5)
    with pytest.raises(ValueError, match="invalid literal") as raised:
        int("five")
    with user_output_logged({}):
        OutputOrigin.running[get_ident()] = OutputOrigin("other", task=1)
        reporter.report(raised.value)
        OutputOrigin.running.pop(get_ident())
        reporter.report(KeyError("raised by nobody"))
    traced, untraced = (record.getMessage() for record in caplog.records)
    first, *frames = traced.splitlines()
    assert (first, frames[0]) == (
        "[component 'bolt', task 5] ValueError: invalid literal for int() with base 10: 'five'",
        "Traceback (most recent call last):",
    )
    assert not any("invalid literal for" in line for line in frames)
    assert untraced == "[component 'bolt', task 5] KeyError: 'raised by nobody'"
