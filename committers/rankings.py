"""``TopN`` and ``LastN``: the first few rows of each key by some order, as a list that holds just these."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from committers.aggregates import Aggregate, field_of, fields_with, ordered_types, typed_fields
from txtopo import Fields
from txtopo.api.arguments import check_positive, checked_class
from txtopo.api.reduction import ColumnReduction, Merge
from txtopo.columnar.reducing import ordered
from txtopo.columnar.selection import in_one_piece

__all__ = ["LastN", "TopN"]


def _n(_: Any, attribute: Any, n: int) -> None:
    check_positive(attribute.name, n)


@checked_class
@attrs.frozen
class TopN(Aggregate):
    """The ``n`` rows with the largest ``by``, largest first: a list of structs of their fields and ``by``.

    Of rows with equal ``by`` those that are larger field by field come first, where nulls are the smallest and NaN the
    largest. So which rows are left out does not depend on how the stream is cut; equal rows are there as often as they
    came. Rows whose ``by`` is null are skipped. A negated field that an earlier bolt makes gives the smallest ones.

    The list is in the key's row, which each transaction with a row of that key writes anew, so ``n`` is a small number.

    Args:
        fields: ``"name"`` or ``"name: type"``; or ``Fields`` of several.
        n: how many rows of a key there are at most.
        by: the field of the order; it may be one of ``fields``.
        where: a boolean field: only rows where it is true count.
    """

    suffixes: ClassVar = ("",)
    fields: Fields = attrs.field(converter=fields_with)
    n: int = attrs.field(kw_only=True, validator=_n)
    by: Fields = attrs.field(kw_only=True, converter=field_of)

    @property
    def operands(self) -> Fields:
        """The fields of a row: that of the order comes last if it is none of ``fields``."""
        return self.fields if self.by[0] in self.fields else self.fields + self.by

    def typed(self, schema: pa.Schema) -> TopN:
        """Return the aggregate with its fields' types."""
        fields = typed_fields(self.fields, schema)
        by = fields.subset(self.by.names) if self.by[0] in fields else typed_fields(self.by, schema)
        return attrs.evolve(self, fields=fields, by=by)

    def typed_by(self, kinds: Sequence[pa.DataType]) -> Aggregate:
        """Return the aggregate with the types of the list's rows."""
        return super().typed_by([field.type for field in kinds[0].value_type])

    def reductions(self, name: str) -> Sequence[ColumnReduction]:
        """Return the merge of lists."""
        (kind,) = self.partial_types
        return [Merge(partial(_first_of, n=self.n, by=self.by[0]), kind, "take a smaller n")]

    @property
    def partial_types(self) -> Sequence[pa.DataType]:
        """A list of rows."""
        kinds = ordered_types(self, self.operands)
        return [pa.list_(pa.struct(list(zip(self.operands, kinds, strict=True))))]

    def lifted(self, columns: Sequence[Any], rows: int) -> Sequence[Any]:
        """Return a list of each row, null where it has no order."""
        (kind,) = self.partial_types
        row = pa.StructArray.from_arrays([in_one_piece(each) for each in columns], fields=list(kind.value_type))
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
class LastN(TopN):
    """The ``n`` latest rows, latest first: as :class:`TopN`, by a time.

    Args:
        fields: ``"name"`` or ``"name: type"``; or ``Fields`` of several.
        n: how many rows of a key there are at most.
        by: the field of the time; it may be one of ``fields``.
        where: a boolean field: only rows where it is true count.
    """


def _first_of(groups: Any, *, n: int, by: str) -> Any:
    """Return the first ``n`` rows of each group of lists of rows, in falling order; null if all lists are null."""
    lists, kind = groups.flatten(), groups.type.value_type
    group = np.asarray(pc.list_parent_indices(groups))
    rows = lists.flatten()
    of_row = group[np.asarray(pc.list_parent_indices(lists))]
    names = [field.name for field in kind.value_type]
    columns = dict(zip(names, rows.flatten(), strict=True))
    order = [columns[by], *(columns[name] for name in names if name != by)]
    falling = pa.table([pa.array(-of_row), *order], names=[str(number) for number in range(len(order) + 1)])
    at = ordered(falling).to_numpy()[::-1]
    counts = np.bincount(of_row, minlength=len(groups))
    place = np.arange(len(at)) - np.repeat(np.cumsum(counts) - counts, counts)
    at = at[place < n]
    offsets = np.concatenate([[0], np.cumsum(np.minimum(counts, n))]).astype(np.int32)
    is_null = pa.array(~np.isin(np.arange(len(groups)), group[np.asarray(pc.is_valid(lists))]))
    return pa.ListArray.from_arrays(offsets, rows.take(pa.array(at)), kind, mask=is_null)
