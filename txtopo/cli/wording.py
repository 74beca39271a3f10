"""How numbers of a run are put into words, on a terminal and off it."""

from __future__ import annotations

from txtopo.core.transitions import Status

STATUS_WORDS = {
    Status.READY.value: "waits to be processed",
    Status.PROCESSING.value: "is in its processing phase",
    Status.PROCESSED.value: "is processed and waits for its turn",
    Status.COMMITTING.value: "is in its commit phase",
    Status.DEAD.value: "is given up and waits for its turn",
    Status.BURYING.value: "goes to the dead letters",
}
"""What the lowest uncommitted transaction does."""


def count_of(number: int, noun: str) -> str:
    """Return a number with its noun, in the plural unless it is one."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def clock(seconds: float) -> str:
    """Return a time as minutes and seconds."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}:{rest:02}"
