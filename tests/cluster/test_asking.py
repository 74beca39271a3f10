"""Several are asked at once."""

import threading
import time

import pytest

from txtopo.cluster.asking import NobodyAnswers, first_answer

DEADLINE_SECS = 60.0


class Away(Exception):
    """What somebody says who cannot answer."""


def away() -> str:
    raise Away("away")


def test_one_that_hangs() -> None:
    """It makes nobody wait: the first sound answer counts, whoever was asked first."""
    never = threading.Event()
    started = time.monotonic()
    asks = [lambda: str(never.wait(2 * DEADLINE_SECS)), away, lambda: "here"]
    assert first_answer(asks, (Away,)) == "here"
    assert time.monotonic() - started < DEADLINE_SECS
    never.set()


def test_nobody() -> None:
    """All that came instead is told; so is that nothing came in time."""
    with pytest.raises(NobodyAnswers, match="away; away"):
        first_answer([away, away], (Away,))
    with pytest.raises(NobodyAnswers):
        first_answer([], (Away,))
    never = threading.Event()
    with pytest.raises(NobodyAnswers, match=r"away; no answer within 0\.1 s"):
        first_answer([away, never.wait], (Away,), secs=0.1)
    never.set()


def test_time_that_is_over_before_the_next_is_asked() -> None:
    """It is over nonetheless, and nobody else is asked."""
    never, started = threading.Event(), time.monotonic()
    with pytest.raises(NobodyAnswers, match=r"no answer within 0\.1 s"):
        first_answer([never.wait, never.wait], (Away,), apart_secs=2 * DEADLINE_SECS, secs=0.1)
    assert time.monotonic() - started < DEADLINE_SECS
    never.set()


def test_error_that_is_an_answer() -> None:
    """It is raised at once."""
    never = threading.Event()

    def wrong() -> bool:
        raise ValueError("no such topology")

    with pytest.raises(ValueError, match="no such"):
        first_answer([never.wait, wrong], (Away,))
    never.set()


def test_one_after_another() -> None:
    """With time between them, the next is asked when the one before fails or takes long; not otherwise."""
    asked = []
    assert first_answer([lambda: "first", lambda: asked.append("second")], (Away,), apart_secs=DEADLINE_SECS) == "first"
    assert asked == []
    assert first_answer([away, lambda: "second"], (Away,), apart_secs=DEADLINE_SECS) == "second"
    never = threading.Event()
    assert first_answer([never.wait, lambda: "second"], (Away,), apart_secs=0.05) == "second"
    never.set()
