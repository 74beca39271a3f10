"""Fingerprints: equal where the tuples are equal, in every process; different where they or their order are."""

import datetime
import zlib
from typing import Any

import pyarrow as pa
import pytest

from tests.processes import ran
from txtopo import Fields, TransactionAttempt
from txtopo.api.data.tuples import TupleSource
from txtopo.columnar.chunks import Chunk
from txtopo.transactional.tasks.fingerprint import _COPIED_BYTES_MAX, Fingerprint, Tracer, _checksum_of, joined

SOURCE = TupleSource("spout", "default", 0, Fields("attempt", "a", "b"))


def checksum(*values: tuple[Any, Any], attempt: int = 1) -> int | None:
    tracer = Tracer()
    rows = [(TransactionAttempt(1, attempt), *value) for value in values]
    tracer.trace("spout", 0, Chunk(SOURCE, rows=rows))
    return tracer.fingerprints()["spout"].checksum


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([("a", 1), ("b", 2)], [("b", 1), ("a", 2)]),
        ([("a", 1), ("b", 2)], [("a", 1), ("b", 3)]),
        ([("a\0b", 1), ("c", 1)], [("a", 1), ("b\0c", 1)]),
        ([("ab", "c")], [("a", "bc")]),
        ([("1", 1)], [(1, 1)]),
        ([("a", 1), (None, 1)], [("a", 1), ("None", 1)]),
        ([(b"a", 1)], [("a", 1)]),
    ],
)
def test_different(one: list[tuple[Any, Any]], other: list[tuple[Any, Any]]) -> None:
    """Another order, another value, another type, or a text that ends elsewhere shows."""
    assert checksum(*one) != checksum(*other)


@pytest.mark.slow
def test_independent_of_attempt() -> None:
    """A later attempt that emits the same has the same checksum, in every process."""
    values = [("kätzchen", (1, 2.5, None)), ("dog", frozenset({"x", "y", "z"}))]
    code = (
        "from tests.transactional.tasks.test_fingerprint import checksum\n"
        "print(checksum(('kätzchen', (1, 2.5, None)), ('dog', frozenset({'x', 'y', 'z'})), attempt=2))"
    )
    outputs = {ran("-c", code, PYTHONHASHSEED=seed).stdout for seed in ("0", "1", "77")}
    assert outputs == {f"{checksum(*values)}\n"}


@pytest.mark.parametrize(
    ("before", "values", "after"),
    [
        ([7], [1, 2, 3], [4]),
        ([7], [1, None, 3], [None]),
        (["seven"], ["a", "bc", None], ["d"]),
        ([False], [True, False, True], [True]),
        ([[7]], [[1], [], [2, 3]], [[4, 5]]),
        ([{"x": "seven"}], [{"x": "a"}, None, {"x": None}], [{"x": "b"}]),
    ],
    ids=lambda values: str(values[0]),
)
def test_independent_of_what_it_was_cut_from(before: list[Any], values: list[Any], after: list[Any]) -> None:
    """A spout that has more rows later, and emits a slice of them, has emitted the same rows."""

    cut = pa.record_batch({"a": before + values + after}).slice(len(before), len(values))
    assert checksum_of(cut) == checksum_of(pa.record_batch({"a": values}))


def checksum_of(batch: pa.RecordBatch) -> int | None:
    """Return the checksum of the only task that emits a batch."""
    tracer = Tracer()
    tracer.trace("spout", 0, Chunk(TupleSource("spout", "default", 0, Fields("a")), batch=batch))
    return tracer.fingerprints()["spout"].checksum


@pytest.mark.parametrize(
    "values", [[1, 2, 3], ["a", "bc", ""], ["a", None], [1, None], [True, False], [[1], []]], ids=str
)
@pytest.mark.parametrize("cut", [slice(0, None), slice(0, -1), slice(1, None)], ids=str)
def test_the_same_without_a_copy(values: list[Any], cut: slice) -> None:
    """Many bytes are not copied to be summed; runs of other versions have recorded the sum of the copy."""
    rows = pa.record_batch({"a": values, "b": [b"x" * (5 << 20)] * len(values)})[cut]
    whole = pa.record_batch([pa.array(column.to_pylist(), column.type) for column in rows.columns], rows.schema.names)
    for batch in (rows, whole):
        assert batch.get_total_buffer_size() > _COPIED_BYTES_MAX
    copy = pa.record_batch([pa.concat_arrays([column, column[:0]]) for column in rows.columns], rows.schema.names)
    # The sum of a chunk goes on from that of the one before: from 0.
    assert _checksum_of(rows, 0) == _checksum_of(whole, 0) == zlib.crc32(copy.serialize())


def test_values_without_bytes() -> None:
    """Dates have a checksum by what they print; objects that print their address have none."""
    assert checksum(("a", datetime.date(2026, 1, 1))) != checksum(("a", datetime.date(2026, 1, 2)))
    assert checksum(("a", object())) is None


def test_streams() -> None:
    """Tuples on streams of their own are counted apart, over tasks and partitions, and make no difference to equality."""
    parts = []
    for stream in ("late", "default", "late"):
        tracer = Tracer()
        source = TupleSource("spout", stream, 0, Fields("attempt", "a"))
        tracer.trace("spout", 0, Chunk(source, rows=[(TransactionAttempt(1, 1), 1)] * 2))
        parts.append(tracer.fingerprints())
    found = joined(parts)["spout"]
    assert (found.tuples, found.streams) == (6, {"late": 4})
    assert found == Fingerprint(6, found.checksum)


def traced(*tuples: tuple[int, Any]) -> Tracer:
    """Return the traces of tuples, each of them of a task."""
    tracer = Tracer()
    for task, value in tuples:
        tracer.trace("spout", task, Chunk(SOURCE, rows=[(TransactionAttempt(1, 1), value, value)]))
    return tracer


def test_tuples_that_tasks_have_swapped() -> None:
    """It shows which task has emitted which tuples; in which order the tasks did makes no difference."""
    tracers = traced((0, "a"), (1, "b")), traced((1, "b"), (0, "a")), traced((0, "b"), (1, "a"))
    one, same, swapped = (tracer.fingerprints()["spout"] for tracer in tracers)
    assert one == same
    assert one != swapped


def test_skipped_input_is_joined() -> None:
    """All of it, of all tasks and slots, whether they have emitted tuples or not."""
    tracers = traced((0, "a")), traced()
    tracers[0].skip("spout", (("t-0", 0, 5),))
    tracers[0].skip("spout", (("t-1", 0, 3),))
    tracers[1].skip("spout", (("t-2", 1, 2),))
    together = joined(tracer.fingerprints() for tracer in tracers)["spout"]
    assert together.tuples == 1
    assert together.skipped == (("t-0", 0, 5), ("t-1", 0, 3), ("t-2", 1, 2))


def test_no_checksum_of_a_part() -> None:
    """If the bytes of some tuples depend on the process, there is no checksum, whatever comes after them."""
    assert traced((0, object()), (0, "a")).fingerprints()["spout"].checksum is None
