"""Some rows of each key, by an order, as a list that holds just these: the first few, or all with the largest value."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, partial
from typing import Any, ClassVar

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from committers.aggregates.aggregate import Aggregate
from committers.aggregates.fields import field_of, fields_with, typed_fields
from committers.aggregates.ordered import TIES, Ties, ordered_types
from txtopo import Fields
from txtopo.api.arguments import check_positive, checked_class
from txtopo.api.reduction import ColumnReduction, Merge
from txtopo.columnar.reducing import ordered, ranks_in
from txtopo.columnar.selection import in_one_piece


def _at_least_one(_: Any, attribute: Any, number: int) -> None:
    check_positive(attribute.name, number)


@attrs.frozen
class _RowsInOrder(Aggregate):
    """An aggregate whose result is a list of some of the rows, which an order decides: structs of fields and order."""

    suffixes: ClassVar = ("",)
    fields: Fields = attrs.field(converter=fields_with)
    by: Fields = attrs.field(kw_only=True, converter=field_of)

    @property
    def operands(self) -> Fields:
        """The fields of a row: that of the order comes last if it is none of ``fields``."""
        return self.fields if self.by[0] in self.fields else self.fields + self.by

    def typed(self, schema: pa.Schema) -> Aggregate:
        """Return the aggregate with its fields' types."""
        fields = typed_fields(self.fields, schema)
        by = fields.subset(self.by.names) if self.by[0] in fields else typed_fields(self.by, schema)
        return attrs.evolve(self, fields=fields, by=by)

    def typed_by(self, kinds: Sequence[pa.DataType]) -> Aggregate:
        """Return the aggregate with the types of the list's rows."""
        return super().typed_by([field.type for field in kinds[0].value_type])

    @property
    def partial_types(self) -> Sequence[pa.DataType]:
        """A list of rows."""
        kinds = ordered_types(self, self.operands)
        return [pa.list_(pa.struct(list(zip(self.operands, kinds, strict=True))))]

    def lifted(self, columns: Sequence[Any], rows: int) -> Sequence[Any]:
        """Return a list of each row, null where it has no order."""
        (kind,) = self.partial_types
        row = pa.StructArray.from_arrays([in_one_piece(column) for column in columns], fields=list(kind.value_type))
        order = in_one_piece(columns[self.operands.index(self.by[0])])
        mask = pc.is_null(order) if order.null_count else None
        return [pa.ListArray.from_arrays(np.arange(rows + 1, dtype=np.int32), row, kind, mask=mask)]

    def result(self, partials: Sequence[Any]) -> Any:
        """Return the list."""
        return partials[0]

    @property
    def result_type(self) -> pa.DataType:
        """A list of rows."""
        return self.partial_types[0]


@checked_class
@attrs.frozen
class TopN(_RowsInOrder):
    """The ``n`` rows with the largest ``by``, largest first: a list of structs of their fields and ``by``.

    Of rows with equal ``by`` those that are larger field by field come first, where nulls are the smallest and NaN the
    largest; with ``ties="smallest"`` those that are smaller, such as the earlier of two if the first field is a time.
    So which rows are left out does not depend on how the stream is cut; equal rows are there as often as they came.
    Rows whose ``by`` is null are skipped. A negated field that an earlier bolt makes gives the smallest ones.

    The list is in the key's row, which each transaction with a row of that key writes anew, so ``n`` is a small number.

    Args:
        fields: ``"name"`` or ``"name: type"``; or ``Fields`` of several.
        n: how many rows of a key there are at most.
        by: the field of the order; it may be one of ``fields``.
        ties: ``"largest"`` or ``"smallest"``: which of several rows with equal ``by`` come first.
        where: a boolean field: only rows where it is true count.
    """

    n: int = attrs.field(kw_only=True, validator=_at_least_one)
    ties: Ties = attrs.field(default="largest", kw_only=True, validator=attrs.validators.in_(tuple(TIES)))

    def reductions(self, name: str) -> Sequence[ColumnReduction]:
        """Return the merge of lists."""
        (kind,) = self.partial_types
        return [Merge(partial(_first_of, n=self.n, by=self.by[0], ties=self.ties), kind, "take a smaller n")]


@checked_class
@attrs.frozen
class LastN(TopN):
    """The ``n`` latest rows, latest first: as :class:`TopN`, by a time.

    Args:
        fields: ``"name"`` or ``"name: type"``; or ``Fields`` of several.
        n: how many rows of a key there are at most.
        by: the field of the time; it may be one of ``fields``.
        ties: ``"largest"`` or ``"smallest"``: which of several rows with an equal time come first.
        where: a boolean field: only rows where it is true count.
    """


@checked_class
@attrs.frozen
class ArgMax(_RowsInOrder):
    """The rows with the largest ``by`` of all, each of several with it: a list of structs of their fields and ``by``.

    The rows are in falling order, field by field; equal ones are there as often as they came. Rows whose ``by`` is null
    are skipped. More than ``rows_max`` rows of a key are refused with a ``FieldsError``.

    Args:
        fields: ``"name"`` or ``"name: type"``; or ``Fields`` of several.
        by: the field of the order; it may be one of ``fields``.
        rows_max: how many rows of a key may have the largest ``by`` so far.
        where: a boolean field: only rows where it is true count.
    """

    may_change = ("rows_max",)
    rows_max: int = attrs.field(default=1_000, kw_only=True, validator=_at_least_one)
    _is_largest: ClassVar = True

    def reductions(self, name: str) -> Sequence[ColumnReduction]:
        """Return the merge of lists."""
        (kind,) = self.partial_types
        how = partial(_ends_of, rows_max=self.rows_max, by=self.by[0], is_largest=self._is_largest)
        return [Merge(how, kind, f"give {type(self).__name__} a larger rows_max, or aggregate by a finer key")]


@checked_class
@attrs.frozen
class ArgMin(ArgMax):
    """The rows with the smallest ``by`` of all: otherwise as :class:`ArgMax`.

    Args:
        fields: ``"name"`` or ``"name: type"``; or ``Fields`` of several.
        by: the field of the order; it may be one of ``fields``.
        rows_max: how many rows of a key may have the smallest ``by`` so far.
        where: a boolean field: only rows where it is true count.
    """

    _is_largest: ClassVar = False


@attrs.frozen
class _DescendingRows:
    """The rows of groups of lists of rows, in falling order by a field and then by the others, group by group.

    Args:
        rows: they.
        order: the field that decides, of each row.
        groups: the number of each row's group.
        is_null: of each group, whether all of its lists are null.
    """

    rows: Any
    order: Any
    groups: npt.NDArray[np.int64]
    is_null: Any

    @classmethod
    def of(cls, groups: Any, by: str, ties: Ties = "largest") -> _DescendingRows:
        """Put the rows of groups in order; of several with the same order the largest or the smallest come first."""
        lists, kind = groups.flatten(), groups.type.value_type
        group = np.asarray(pc.list_parent_indices(groups))
        rows = lists.flatten()
        of_row = group[np.asarray(pc.list_parent_indices(lists))]
        names = [field.name for field in kind.value_type]
        columns = dict(zip(names, rows.flatten(), strict=True))
        other_names = [name for name in names if name != by]
        order = columns[by]
        at = ordered(pa.table([pa.array(-of_row), order], names=["group", "order"])).to_numpy()[::-1].copy()
        # Only rows that are equal so far are compared field by field: that takes half of the time, of bids by price.
        is_equal = (of_row[at][1:] == of_row[at][:-1]) & _are_equal(order.take(pa.array(at)))
        is_tied = np.concatenate([[False], is_equal]) | np.concatenate([is_equal, [False]])
        if other_names and is_tied.any():
            tied = at[is_tied[: len(at)]]
            fields = [columns[name].take(pa.array(tied)) for name in other_names]
            if ties == "smallest":
                fields = [pa.array(-ranks_in(ordered(pa.table(fields, names=other_names))))]
            tied_columns = [pa.array(-of_row[tied]), order.take(pa.array(tied)), *fields]
            tied_rows = pa.table(tied_columns, names=[str(number) for number in range(len(tied_columns))])
            at[is_tied[: len(at)]] = tied[ordered(tied_rows).to_numpy()[::-1]]
        at = pa.array(at)
        is_null = pa.array(~np.isin(np.arange(len(groups)), group[np.asarray(pc.is_valid(lists))]))
        return cls(rows.take(at), columns[by].take(at), of_row[np.asarray(at)], is_null)

    @cached_property
    def counts(self) -> npt.NDArray[np.int64]:
        """How many rows each group has."""
        return np.bincount(self.groups, minlength=len(self.is_null))

    @cached_property
    def ends(self) -> npt.NDArray[np.int64]:
        """The position after the last row of each group."""
        return np.cumsum(self.counts)

    def lists(self, is_in: npt.NDArray[np.bool_]) -> Any:
        """Return a list of each group's rows that are in, null where all of its lists are null."""
        counts = np.bincount(self.groups[is_in], minlength=len(self.is_null))
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        rows = self.rows.filter(pa.array(is_in))
        return pa.ListArray.from_arrays(offsets, rows, pa.list_(rows.type), mask=self.is_null)


def _are_equal(values: Any) -> npt.NDArray[np.bool_]:
    after, before = values[1:], values[:-1]
    equal = pc.equal(after, before)
    if pa.types.is_floating(values.type):
        equal = pc.or_(equal, pc.and_(pc.is_nan(after), pc.is_nan(before)))
    return np.asarray(equal.fill_null(False))


def _first_of(groups: Any, *, n: int, by: str, ties: Ties) -> Any:
    """Return the first ``n`` rows of each group of lists of rows, in falling order; null if all lists are null."""
    falling = _DescendingRows.of(groups, by, ties)
    starts = np.repeat(falling.ends - falling.counts, falling.counts)
    return falling.lists(np.arange(len(starts)) - starts < n)


def _ends_of(groups: Any, *, rows_max: int, by: str, is_largest: bool) -> Any:
    """Return each group's rows with the largest or smallest order; ArrowInvalid above ``rows_max`` of them."""
    falling = _DescendingRows.of(groups, by)
    ends = falling.ends - falling.counts if is_largest else falling.ends - 1
    end = falling.order.take(pa.array(np.repeat(ends, falling.counts)))
    is_end = pc.equal(falling.order, end)
    if pa.types.is_floating(end.type):
        is_end = pc.or_(is_end, pc.and_(pc.is_nan(falling.order), pc.is_nan(end)))
    is_in = np.asarray(is_end)
    if np.bincount(falling.groups[is_in], minlength=1).max() > rows_max:
        raise pa.ArrowInvalid(f"there are more than {rows_max:,} rows of a key")
    return falling.lists(is_in)
