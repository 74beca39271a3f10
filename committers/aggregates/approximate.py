"""Approximate aggregates of bounded size: distinct counts by HyperLogLog, quantiles by a histogram of magnitudes.

Both are the same to the last byte, in whatever steps and order rows were reduced: a replay, another grouping of
transactions and an undisturbed run agree. That rules out other sketches: t-digests and KLL sketches depend on the order
in which they are merged, and so do HLL's bytes until they are brought into one form.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from decimal import Context, Decimal
from functools import partial
from typing import Any, ClassVar

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from committers.aggregates.aggregate import OfField
from txtopo.api.arguments import checked_class
from txtopo.api.reduction import ColumnReduction, Merge
from txtopo.columnar.selection import in_one_piece
from txtopo.errors import FieldsError, TopologyError
from txtopo.text.extras import how_to_install

_NUMBER = b"\xf0"
"""Tags the 8 bytes of an integer, as a sketch's first byte, the length of its preamble, never does."""

_TEXT = b"\xf1"
"""Tags a string."""

_BYTES = b"\xf2"
"""Tags a binary."""

_EMPTY = 0x7874746F706F
"""Stands for an empty string or binary, which DataSketches does not count."""

_IN_REGISTERS = 10
"""The first byte of a sketch that has a register for each of its places."""

_IN_LIST = 2
"""The first byte of a sketch that lists its values' hashes; with 3, they are a set."""


def _lg_k(_: Any, attribute: Any, lg_k: int) -> None:
    if not 7 <= lg_k <= 21:  # noqa: PLR2004 - what DataSketches takes
        raise FieldsError(f"{attribute.name}={lg_k}: give a number from 7 to 21")


@checked_class
@attrs.frozen
class ApproxCountDistinct(OfField):
    """About how many different values a field has. A ``long``.

    Its partial ``<name>_sketch`` is an HLL sketch of Apache DataSketches of about ``2 ** lg_k`` bytes at most, which
    ``hll_sketch_estimate`` and ``hll_union_agg`` of Spark read. Less than a tenth of that many values are counted
    almost exactly (with ``lg_k=7``, less than 8); above, the relative error of two in three estimates is below
    ``1.04 / 2 ** (lg_k / 2)``: 1.6 % by default. NaN is one value; nulls are none. It needs the extra ``sketches``.

    Args:
        field: ``"name"`` or ``"name: type"``, of any type that is not nested.
        lg_k: the logarithm, to base 2, of the sketch's size: from 7 to 21.
        where: a boolean field: only rows where it is true count.
    """

    suffixes: ClassVar = ("_sketch",)
    may_change = ("lg_k",)
    lg_k: int = attrs.field(default=12, kw_only=True, validator=_lg_k)

    def typed_by(self, kinds: Sequence[pa.DataType]) -> ApproxCountDistinct:
        """Return itself: a sketch does not tell of what it is."""
        return self

    def reductions(self, name: str) -> Sequence[ColumnReduction]:
        """Return the union of sketches."""
        return [Merge(partial(_united, lg_k=self.lg_k), pa.binary(), "aggregate by a finer key")]

    @property
    def partial_types(self) -> Sequence[pa.DataType]:
        """A sketch's bytes."""
        if pa.types.is_nested(self.kind):
            raise self._refuse("values that are not nested")
        return [pa.binary()]

    def lifted(self, columns: Sequence[Any], rows: int) -> Sequence[Any]:
        """Return the tagged bytes of each value: a merge, which comes before a table, makes sketches of them."""
        return [_marked(in_one_piece(columns[0]))]

    def result(self, partials: Sequence[Any]) -> Any:
        """Return the sketches' estimates, 0 for none."""
        sketch = _datasketches().hll_sketch
        estimates = (0 if row is None else sketch.deserialize(row).get_estimate() for row in partials[0].to_pylist())
        return pa.array(map(round, estimates), pa.int64())

    @property
    def result_type(self) -> pa.DataType:
        """A long."""
        return pa.int64()


def _datasketches() -> Any:
    try:
        import datasketches  # noqa: PLC0415 - an extra of the installation
    except ImportError as error:
        raise TopologyError(f"ApproxCountDistinct needs Apache DataSketches: {how_to_install('sketches')}") from error
    return datasketches


def _marked(column: Any) -> Any:
    """Return bytes that are equal where values are, null where they are."""
    kind = column.type
    if pa.types.is_decimal(kind) or pa.types.is_string(kind) or pa.types.is_binary(kind):
        tag = _BYTES if pa.types.is_binary(kind) else _TEXT
        text = column if pa.types.is_binary(kind) else column.cast(pa.string()).cast(pa.binary())
        return pc.binary_join_element_wise(pa.scalar(tag), text, pa.scalar(b""))
    if pa.types.is_floating(kind):
        numbers = pc.if_else(pc.is_nan(column), pa.scalar(math.nan, kind), column).cast(pa.float64())
    elif pa.types.is_date(kind):
        numbers = column.cast(pa.int32()).cast(pa.int64())
    else:
        numbers = column.cast(pa.int64())
    values = np.ascontiguousarray(numbers.fill_null(0).to_numpy(zero_copy_only=False))
    eight = pa.Array.from_buffers(pa.binary(8), len(values), [None, pa.py_buffer(values)])
    tagged = pc.binary_join_element_wise(pa.scalar(_NUMBER), eight.cast(pa.binary()), pa.scalar(b""))
    return pc.if_else(column.is_valid(), tagged, pa.scalar(None, pa.binary()))


def _united(groups: Any, *, lg_k: int) -> Any:
    """Return one sketch for each group of sketches and tagged values, null where all of them are null."""
    return pa.array([_sketch(list(filter(None, group)), lg_k) for group in groups.to_pylist()], pa.binary())


def _sketch(group: Sequence[bytes], lg_k: int) -> bytes | None:
    if not group:
        return None
    library = _datasketches()
    of_values, union = library.hll_sketch(lg_k, library.HLL_8), library.hll_union(lg_k)
    for each in group:
        if each[:1] == _NUMBER:
            of_values.update(int.from_bytes(each[1:], "little", signed=True))
        elif each[:1] == _TEXT:
            of_values.update(each[1:].decode() or _EMPTY)
        elif each[:1] == _BYTES:
            of_values.update(each[1:].decode("latin-1") or _EMPTY)
        else:
            union.update(library.hll_sketch.deserialize(each))
    union.update(of_values)
    # The estimate of registers that are a union's depends on them alone, that of others also on the order of values.
    union.update(union.get_result(library.HLL_8))
    return _canonical(union.get_result(library.HLL_8).serialize_compact())


def _canonical(sketch: bytes) -> bytes:
    """Return a sketch without what depends on the order of its values, which nobody reads in a union's.

    The format is that of DataSketches in all languages: after 8 bytes, registers have the estimate of a sketch that is
    no union; lists and sets have the hashes, 4 bytes each, of which a set's come after their number.
    """
    if sketch[0] == _IN_REGISTERS:
        return sketch[:8] + bytes(8) + sketch[16:]
    start = 8 if sketch[0] == _IN_LIST else 12
    return sketch[:start] + np.sort(np.frombuffer(sketch, "<u4", offset=start)).tobytes()


_HISTOGRAM = pa.list_(pa.struct([("slot", pa.int32()), ("count", pa.int64())]))

_NAN = 2**31 - 1
_INFINITY = _NAN - 1
"""The slots of what has no magnitude."""

_UNSURE = 1e-8
"""A logarithm in steps that is so near to a whole one may be on either side of it."""

_SMALLEST = math.log(5e-324)
_SPAN = math.log(1e35)


def _accuracy(_: Any, attribute: Any, accuracy: float) -> None:
    if not 0.001 <= accuracy <= 0.1:  # noqa: PLR2004
        raise FieldsError(f"{attribute.name}={accuracy}: give a relative error from 0.001 to 0.1")


def _ranks(_: Any, attribute: Any, q: float | Sequence[float]) -> None:
    ranks = [q] if isinstance(q, int | float) else q
    if not ranks or not all(0 <= rank <= 1 for rank in ranks):
        raise FieldsError(f"{attribute.name}={q}: give a number from 0 to 1, or several")


@checked_class
@attrs.frozen
class ApproxQuantile(OfField):
    """About the smallest value of a field that is not below a share ``q`` of its values: ``0.5`` is the median.

    A ``double``, or an array of them for several shares, each within the relative error ``accuracy`` of the value of
    that rank. A value whose magnitude is below 1e-35 of the largest counts as 0.

    Its partial ``<name>_histogram`` is a histogram of magnitudes, as of a DDSketch: for each step by twice the
    ``accuracy``, how many values are there. Values of six decimal orders have 700 steps at most.

    Args:
        field: ``"name"`` or ``"name: type"``, of numbers.
        q: the share, from 0 to 1, or several.
        accuracy: the relative error, from 0.001 to 0.1.
        where: a boolean field: only rows where it is true count.
    """

    suffixes: ClassVar = ("_histogram",)
    may_change = ("q",)
    q: float | Sequence[float] = attrs.field(default=0.5, validator=_ranks, hash=False)  # a list has none
    accuracy: float = attrs.field(default=0.01, kw_only=True, validator=_accuracy)

    def typed_by(self, kinds: Sequence[pa.DataType]) -> ApproxQuantile:
        """Return itself: a histogram does not tell of what it is."""
        return self

    def reductions(self, name: str) -> Sequence[ColumnReduction]:
        """Return the sum of histograms."""
        slots = math.ceil(_SPAN / self._step)
        return [Merge(partial(_summed, slots=slots), _HISTOGRAM, "aggregate by a finer key")]

    @property
    def partial_types(self) -> Sequence[pa.DataType]:
        """A list of slots with their counts."""
        kind = self.kind
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
            raise self._refuse("a number")
        return [_HISTOGRAM]

    def lifted(self, columns: Sequence[Any], rows: int) -> Sequence[Any]:
        """Return a histogram of each value, null for a null."""
        column = in_one_piece(columns[0])
        slots = self._slots(column.cast(pa.float64(), safe=False).fill_null(0).to_numpy())
        ones = pa.StructArray.from_arrays(
            [pa.array(slots), pa.array(np.ones(rows, np.int64))], fields=[*_HISTOGRAM.value_type]
        )
        mask = column.is_null() if column.null_count else None
        return [pa.ListArray.from_arrays(np.arange(rows + 1, dtype=np.int32), ones, _HISTOGRAM, mask=mask)]

    def result(self, partials: Sequence[Any]) -> Any:
        """Return the values at the ranks, null for none."""
        histograms = in_one_piece(partials[0])
        slots, counts = (np.asarray(each) for each in histograms.flatten().flatten())
        ends = np.cumsum(counts)
        lengths = pc.fill_null(pc.list_value_length(histograms), 0).to_numpy()
        last = np.cumsum(lengths) - 1
        before = np.concatenate([[0], ends])[last + 1 - lengths]
        totals = np.concatenate([[0], ends])[last + 1] - before
        single = isinstance(self.q, int | float)
        ranks = np.array([self.q] if single else self.q)
        # A share of a count that is meant to be whole may be a little more as a double.
        positions = before[:, None] + np.maximum(1, np.ceil(np.round(totals[:, None] * ranks, 6)))
        indices = np.searchsorted(ends, positions.ravel().clip(max=ends[-1] if len(ends) else 0))
        values = self._values(slots[indices]) if len(slots) else np.zeros(len(indices))
        is_null = pa.array(lengths == 0)
        if single:
            return pc.if_else(is_null, pa.scalar(None, pa.float64()), pa.array(values))
        offsets = np.arange(len(histograms) + 1, dtype=np.int32) * len(ranks)
        return pa.ListArray.from_arrays(offsets, pa.array(values), self.result_type, mask=is_null)

    @property
    def result_type(self) -> pa.DataType:
        """A double, or a list of them."""
        return pa.float64() if isinstance(self.q, int | float) else pa.list_(pa.float64())

    @property
    def _step(self) -> float:
        return math.log((1 + self.accuracy) / (1 - self.accuracy))

    @property
    def _zero(self) -> int:
        """Return how far the slot of 1.0 is from that of 0.0, next to which is the smallest double's."""
        return 1 - math.ceil(_SMALLEST / self._step)

    def _slots(self, values: Any) -> Any:
        """Return where values belong: slots have the order of values, and those of a step's values are equal."""
        with np.errstate(divide="ignore", invalid="ignore"):
            exponents = np.log(np.abs(values)) / self._step
            steps = np.ceil(exponents) + self._zero
            # Processors disagree about the last digits of a logarithm, so those do not decide.
            (unsure,) = np.nonzero(np.abs(exponents - np.round(exponents)) < _UNSURE)
        if len(unsure):
            ends, places = np.unique(np.round(exponents[unsure]).astype(np.int64), return_inverse=True)
            largest = np.array([_end_and_middle(self.accuracy, int(each))[0] for each in ends])[places]
            steps[unsure] = ends[places] + (np.abs(values[unsure]) > largest) + self._zero
        slots = np.where(values == 0, 0, np.where(np.isfinite(values), steps, _INFINITY)) * np.where(values < 0, -1, 1)
        return np.where(np.isnan(values), _NAN, slots).astype(np.int32)

    def _values(self, slots: Any) -> Any:
        magnitudes, places = np.unique(np.abs(slots.astype(np.int64)), return_inverse=True)
        steps = (int(magnitude) - self._zero for magnitude in magnitudes if magnitude < _INFINITY)
        middles = np.full(len(magnitudes), math.inf)
        finite = [_end_and_middle(self.accuracy, step)[1] for step in steps]
        middles[: len(finite)] = finite  # magnitudes are in order
        values = middles[places] * np.sign(slots)
        return np.where(slots == 0, 0.0, np.where(slots == _NAN, math.nan, values))


@functools.lru_cache(maxsize=100_000)  # of all steps of an accuracy, or most of them
def _end_and_middle(accuracy: float, exponent: int) -> tuple[float, float]:
    """Return the largest value of a step and the one in its middle, which are the same on each processor."""
    context = Context(prec=40)
    more, less = context.add(1, Decimal(accuracy)), context.subtract(1, Decimal(accuracy))
    end = context.power(context.divide(more, less), exponent)
    return float(end), float(context.multiply(end, less))


def _summed(groups: Any, *, slots: int) -> Any:
    """Return one histogram for each group of histograms, null where all of them are null.

    Magnitudes that are more than so many ``slots`` below the group's largest count as 0, whatever was summed before.
    """
    histograms = groups.flatten()
    of_group = np.asarray(pc.list_parent_indices(groups))
    slot, count = (np.asarray(each) for each in histograms.flatten().flatten())
    group = of_group[np.asarray(pc.list_parent_indices(histograms))]
    largest = np.zeros(len(groups), np.int64)
    is_finite = np.abs(slot.astype(np.int64)) < _INFINITY
    np.maximum.at(largest, group[is_finite], np.abs(slot[is_finite]))
    slot = np.where(np.abs(slot) < largest[group] - slots, 0, slot)
    rows = pa.table({"group": group, "slot": slot, "count": count})
    summed = rows.group_by(["group", "slot"], use_threads=False).aggregate([("count", "sum")])
    summed = summed.sort_by([("group", "ascending"), ("slot", "ascending")]).combine_chunks()
    offsets = np.concatenate([[0], np.cumsum(np.bincount(summed["group"], minlength=len(groups)))]).astype(np.int32)
    pairs = [in_one_piece(summed[name]) for name in ("slot", "count_sum")]
    values = pa.StructArray.from_arrays(pairs, fields=[*_HISTOGRAM.value_type])
    is_null = pa.array(~np.isin(np.arange(len(groups)), of_group[np.asarray(pc.is_valid(histograms))]))
    return pa.ListArray.from_arrays(offsets, values, _HISTOGRAM, mask=is_null)
