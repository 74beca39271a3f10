"""How numbers of a run are put into words, on a terminal and off it."""

from __future__ import annotations

from txtopo.core.transitions import Status
from txtopo.engine.report import Progress

STATUS_WORDS = {
    Status.READY.value: "waits to be processed",
    Status.PROCESSING.value: "is in its processing phase",
    Status.PROCESSED.value: "is processed and waits for its turn",
    Status.COMMITTING.value: "is in its commit phase",
    Status.DEAD.value: "is given up and waits for its turn",
    Status.WRITING_DEAD_LETTER.value: "goes to the dead letters",
}
"""What the lowest uncommitted transaction does."""


def count_of(number: int, noun: str) -> str:
    """Return a number with its noun, in the plural unless it is one."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def clock(seconds: float) -> str:
    """Return a time as minutes and seconds."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}:{rest:02}"


def activity(progress: Progress) -> str:
    """Return what is going on while nothing has committed yet."""
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
    """Return how much of the input is committed, where that is known."""
    if not progress.total:
        return ""
    return f"{min(100, progress.committed_txid * 100 // progress.total)} % of about {progress.total:,}"


def time_left(seconds: float) -> str:
    """Return how long it still takes, about."""
    return f"about {clock(seconds)} left" if seconds >= 1 else "nearly done"


def reason_of(progress: Progress, width_max: int) -> str:
    """Return the reason of the last failure as one line."""
    line = " ".join(progress.last_failure.split())
    return line if len(line) <= width_max else f"{line[: width_max - 1]}…"
