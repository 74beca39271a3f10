"""How statuses of transactions and readings of components are said, wherever they are shown."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import attrs

from txtopo.api.data.utc import words_at
from txtopo.files.records import in_camel_case
from txtopo.transactional.core.readings import Reading, ReadingKind
from txtopo.transactional.core.transitions import Status


@attrs.frozen(field_transformer=in_camel_case)
class StoryLine:
    """A line of a story: what it is about, in at most nine characters, and what there is to say; often a time first."""

    label: str
    text: str


STATUS_WORDS = {
    Status.READY.value: "waits to be processed",
    Status.PROCESSING.value: "is in its processing phase",
    Status.PROCESSED.value: "is processed and waits for its turn",
    Status.COMMITTING.value: "is in its commit phase",
    Status.DEAD.value: "is given up and waits for its turn",
    Status.WRITING_DEAD_LETTER.value: "goes to the dead letters",
}
"""What a transaction does in each status: a predicate for "transaction 7 ..."."""


def readings_of(readings: Sequence[Reading]) -> Iterator[tuple[str, str, str]]:
    """Yield what each component has counted and measured, with the part of its input or "", in a report's order."""
    for (component, of), of_component in itertools.groupby(readings, lambda reading: (reading.component, reading.of)):
        yield component, of, ", ".join(f"{reading.name} {_value_of(reading)}" for reading in of_component)


def _value_of(reading: Reading) -> str:
    if reading.kind is not ReadingKind.TIME:
        return f"{reading.value:,.12g}"
    return words_at(reading.value)
