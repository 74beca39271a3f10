"""The wording of a run's numbers, for terminals and plain output."""

from __future__ import annotations

from txtopo.assembly.report import Progress
from txtopo.inspect.past.wording import STATUS_WORDS
from txtopo.text.words import clock, count_of, cut
from txtopo.transactional.core.transitions import Status


def activity(progress: Progress) -> str:
    """Describe the current work while nothing is committed yet."""
    first = f"transaction {progress.committed_txid + 1:,}"
    if progress.committing:
        return f"committing {_first(progress.committing)}"
    if progress.processed:
        words = STATUS_WORDS.get(progress.first_uncommitted_status, "has not begun")
        return f"{progress.processed:,} processed, waiting for {first}, which {words}"
    if progress.processing:
        return f"processing {_first(progress.processing)}"
    if progress.ready:
        return f"{count_of(progress.ready, 'transaction')} planned; {first} {STATUS_WORDS[Status.READY.value]}"
    return "planning the first transactions"


def _first(number: int) -> str:
    return "the first transaction" if number == 1 else f"the first {number:,} transactions"


def share_of(progress: Progress) -> str:
    """Return the committed share of the input; empty if unknown."""
    if not progress.total:
        return ""
    return f"{min(100, progress.committed_txid * 100 // progress.total)} % of about {progress.total:,}"


def time_left(seconds: float) -> str:
    """Return the estimated remaining time in words."""
    return f"about {clock(seconds)} left" if seconds >= 1 else "nearly done"


def reason_of(progress: Progress, width_max: int) -> str:
    """Return the reason of the last failure as one line."""
    return cut(" ".join(progress.last_failure.split()), width_max)
