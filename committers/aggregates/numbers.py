"""Counts, sums and means."""

from __future__ import annotations

import decimal
from collections.abc import Sequence
from typing import Any, ClassVar

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from committers.aggregates.aggregate import DIGITS_MAX, Aggregate, OfField
from committers.aggregates.fields import cast, optional_field, typed_fields
from txtopo import Fields
from txtopo.api.arguments import checked_class
from txtopo.api.reduction import ColumnReduction, Reduction

_SUM_DIGITS = 10
"""A sum of decimals has so many digits more than its values, as in Spark."""

_MEAN_DIGITS = 4
"""A mean of decimals has so many digits more behind the point than its values, as in Spark."""


@checked_class
@attrs.frozen
class Count(Aggregate):
    """How many rows there are; with a field, how many whose field is not null. A ``long``.

    Args:
        field: ``"name"`` or ``"name: type"``.
        where: a boolean field: only rows where it is true count.
    """

    field: Fields | None = attrs.field(default=None, converter=optional_field)

    @property
    def operands(self) -> Fields:
        """The field, if there is one."""
        return Fields() if self.field is None else self.field

    def typed(self, schema: pa.Schema) -> Count:
        """Return the aggregate with its field's type."""
        return self if self.field is None else attrs.evolve(self, field=typed_fields(self.field, schema))

    def typed_by(self, kinds: Sequence[pa.DataType]) -> Count:
        """Return itself: a count tells nothing of its field."""
        return self

    def reductions(self, name: str) -> Sequence[ColumnReduction]:
        """Return the sum: counts add up."""
        return [Reduction.SUM]

    @property
    def partial_types(self) -> Sequence[pa.DataType]:
        """The count's type."""
        return [pa.int64()]

    def lifted(self, columns: Sequence[Any], rows: int) -> Sequence[Any]:
        """Return 1 for each row that counts, 0 for the others."""
        return [_ones(rows, *columns)]

    def result(self, partials: Sequence[Any]) -> Any:
        """Return the count."""
        return pc.fill_null(partials[0], 0)

    @property
    def result_type(self) -> pa.DataType:
        """A long."""
        return pa.int64()


@checked_class
@attrs.frozen
class Sum(OfField):
    """The sum of a field: of integers a ``long``, of decimals one with 10 digits more, of all others a ``double``.

    A sum that does not fit raises a ``FieldsError``; it never wraps round.

    Args:
        field: ``"name"`` or ``"name: type"``.
        where: a boolean field: only rows where it is true count.
    """

    def reductions(self, name: str) -> Sequence[ColumnReduction]:
        """Return the sum, of each column."""
        return [Reduction.SUM for _ in self.suffixes]

    @property
    def partial_types(self) -> Sequence[pa.DataType]:
        """The sum's type."""
        return [self._sum_type]

    def lifted(self, columns: Sequence[Any], rows: int) -> Sequence[Any]:
        """Return the values."""
        return [cast(columns[0], self._sum_type)]

    def result(self, partials: Sequence[Any]) -> Any:
        """Return the sum."""
        return partials[0]

    @property
    def result_type(self) -> pa.DataType:
        """The type of the sum."""
        return self._sum_type

    @property
    def _sum_type(self) -> pa.DataType:
        kind = self.kind
        if pa.types.is_decimal(kind):
            return pa.decimal128(min(DIGITS_MAX, kind.precision + _SUM_DIGITS), kind.scale)
        if pa.types.is_integer(kind):
            return pa.int64()
        if pa.types.is_floating(kind):
            return pa.float64()
        raise self._refuse("a number")


@checked_class
@attrs.frozen
class Mean(Sum):
    """The mean of a field: of all numbers but decimals a ``double``.

    Of decimals it has 4 digits more behind the point, or as many as 38 digits leave room for.

    Its partials are ``<name>_sum``, as of :class:`Sum`, and ``<name>_count``.

    Args:
        field: ``"name"`` or ``"name: type"``.
        where: a boolean field: only rows where it is true count.
    """

    suffixes: ClassVar = ("_sum", "_count")

    @property
    def partial_types(self) -> Sequence[pa.DataType]:
        """The types of sum and count."""
        return [self._sum_type, pa.int64()]

    def lifted(self, columns: Sequence[Any], rows: int) -> Sequence[Any]:
        """Return the values, and 1 for each that is not null."""
        return [cast(columns[0], self._sum_type), _ones(rows, *columns)]

    def result(self, partials: Sequence[Any]) -> Any:
        """Return sum divided by count, null if nothing was counted."""
        total, count = partials
        count = pc.if_else(pc.equal(count, 0), pa.scalar(None, pa.int64()), count)
        kind = self.result_type
        if not pa.types.is_decimal(kind):
            return pc.divide(total.cast(pa.float64(), safe=False), count.cast(pa.float64()))
        # Arrow cuts a quotient off: with a digit more than the result has, it is still rounded as if exact.
        digits = pa.decimal256(76 - 19 - 1, kind.scale + 1)
        try:
            quotient = pc.divide(total.cast(digits), count.cast(pa.decimal256(19, 0)))
            return pc.round(quotient, kind.scale, "half_towards_infinity").cast(kind)
        except pa.ArrowInvalid:  # it has no room for so many digits
            pairs = zip(total.to_pylist(), count.to_pylist(), strict=True)
            return pa.array([None if None in pair else _mean(*pair, kind.scale) for pair in pairs], kind)

    @property
    def result_type(self) -> pa.DataType:
        """A double, or a decimal."""
        kind = self.kind
        if not pa.types.is_decimal(kind):
            return pa.float64()
        scale = min(kind.scale + _MEAN_DIGITS, DIGITS_MAX - (kind.precision - kind.scale))
        return pa.decimal128(kind.precision - kind.scale + scale, scale)


def _mean(total: decimal.Decimal, count: int, scale: int) -> decimal.Decimal:
    with decimal.localcontext(decimal.Context(prec=2 * DIGITS_MAX + _MEAN_DIGITS)):
        return (total / count).quantize(decimal.Decimal(1).scaleb(-scale), decimal.ROUND_HALF_UP)


def _ones(rows: int, column: Any = None) -> Any:
    if column is None or not column.null_count:
        return pa.array(np.ones(rows, dtype=np.int64))
    return pc.is_valid(column).cast(pa.int64())
