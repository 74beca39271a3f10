"""The wording of a run's numbers, for terminals and plain output."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from txtopo.transactional.core.transitions import Status
from txtopo.transactional.run.report import Progress
from txtopo.transactional.tasks.readings import Reading, ReadingKind
from txtopo.utc import words_at

STATUS_WORDS = {
    Status.READY.value: "waits to be processed",
    Status.PROCESSING.value: "is in its processing phase",
    Status.PROCESSED.value: "is processed and waits for its turn",
    Status.COMMITTING.value: "is in its commit phase",
    Status.DEAD.value: "is given up and waits for its turn",
    Status.WRITING_DEAD_LETTER.value: "goes to the dead letters",
}
"""What a transaction does in each status: a predicate for "transaction 7 ..."."""


def count_of(number: float, noun: str) -> str:
    """Return a whole number with its noun, in the plural unless the number is 1."""
    return f"{number:,.0f} {noun}{'' if number == 1 else 's'}"


def cut(text: str, characters_max: int) -> str:
    """Return a text in at most so many characters, with … for what is left out."""
    return text if len(text) <= characters_max else f"{text[: characters_max - 1]}…"


def clock(seconds: float) -> str:
    """Return a time as minutes and seconds."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}:{rest:02}"


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


def readings_of(readings: Sequence[Reading]) -> Iterator[tuple[str, str, str]]:
    """Yield what each component has counted and measured: the component, the part of its input or "", and the values.

    ``readings`` are in the order of a report.
    """
    for (component, of), own in itertools.groupby(readings, lambda each: (each.component, each.of)):
        yield component, of, ", ".join(f"{each.name} {_value_of(each)}" for each in own)


def _value_of(reading: Reading) -> str:
    if reading.kind is not ReadingKind.TIME:
        return f"{reading.value:,.12g}"
    return words_at(reading.value)
