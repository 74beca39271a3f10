"""What an aggregate is: how rows become partials, how these are merged, and what results."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import attrs
import pyarrow as pa
import pyarrow.compute as pc

from committers.aggregates.fields import field_of, optional_field, type_of, typed_fields
from txtopo import Fields
from txtopo.api.data.types import ddl_name
from txtopo.api.reduction import ColumnReduction
from txtopo.errors import FieldsError

DIGITS_MAX = 38
"""Of a decimal."""

_SAID = (bool, int, float, str)
"""The types of options that read alike in each run."""

_LONG_DIGITS = 19
"""Of a long, at most."""


def _condition(spec: str | Fields | None) -> Fields | None:
    field = optional_field(spec)
    if field is not None and field.types[0] not in {None, pa.bool_()}:
        raise FieldsError(
            f"where={field[0]!r} is {ddl_name(field.types[0])}; name a boolean field, which an earlier bolt can make"
        )
    return field and Fields(f"{field[0]}: boolean")


@attrs.frozen
class Aggregate(ABC):
    """One aggregate of many rows: of all, or of those whose boolean field ``where`` is true, not false or null."""

    suffixes: ClassVar[tuple[str, ...]] = ("",)
    """What the names of its partials add to its own. Each partial has the type of an input, but for counts."""
    may_change: ClassVar[tuple[str, ...]] = ()
    """Options on which its partials do not depend."""
    where: Fields | None = attrs.field(default=None, converter=_condition, kw_only=True)

    @property
    def inputs(self) -> Fields:
        """The fields that it reads."""
        operands = self.operands
        return operands if self.where is None or self.where[0] in operands else operands + self.where

    @property
    @abstractmethod
    def operands(self) -> Fields:
        """The fields whose values it aggregates."""

    @property
    def definition(self) -> str:
        """What its partials are made of, in words: those of a table that were made otherwise can't be merged with them.

        Options that are as by default are left out.
        """
        fields = [field for field in attrs.fields(type(self)) if field.name not in self.may_change]
        settings = [(field, getattr(self, field.name)) for field in fields]
        options = [f"{each.name}={own!r}" for each, own in settings if isinstance(own, _SAID) and own != each.default]
        # The order and the condition may be among the operands, which do not say which of them they are.
        named = [f"{each.name}={own[0]}" for each, own in settings if isinstance(own, Fields) and each.kw_only]
        return f"{type(self).__name__}({', '.join([*self.operands, *named, *options])})"

    @abstractmethod
    def typed(self, schema: pa.Schema) -> Aggregate:
        """Return the aggregate with the types of ``schema`` for fields without a type."""

    def typed_by(self, kinds: Sequence[pa.DataType]) -> Aggregate:
        """Return the aggregate with the types that its partials in a table tell, for fields without a type."""
        return self.typed(pa.schema(list(zip(self.operands, kinds, strict=False))))

    @abstractmethod
    def reductions(self, name: str) -> Sequence[ColumnReduction]:
        """Return how each column of its partials is merged; ``name`` is the aggregate's."""

    @property
    @abstractmethod
    def partial_types(self) -> Sequence[pa.DataType]:
        """The types of the columns of its partials."""

    @abstractmethod
    def lifted(self, columns: Sequence[Any], rows: int) -> Sequence[Any]:
        """Return the partials of single rows, given the columns of :attr:`operands`; of ``where`` if there is none."""

    def weighted(self, columns: Sequence[Any], diffs: Any) -> Sequence[Any]:
        """Return the partials of single rows that count ``diffs`` times each: fewer than 0 take rows back.

        It is asked of aggregates that :func:`committers.aggregates.retracting.retracting` returns.
        """
        return [_times(each, diffs) for each in self.lifted(columns, len(diffs))]

    @abstractmethod
    def result(self, partials: Sequence[Any]) -> Any:
        """Return the result of partials."""

    @property
    @abstractmethod
    def result_type(self) -> pa.DataType:
        """The type of the result."""


@attrs.frozen
class OfField(Aggregate):
    """An aggregate of one field, whose values are its operands."""

    field: Fields = attrs.field(converter=field_of)

    @property
    def operands(self) -> Fields:
        """The field."""
        return self.field

    def typed(self, schema: pa.Schema) -> Aggregate:
        """Return the aggregate with its field's type."""
        return attrs.evolve(self, field=typed_fields(self.field, schema))

    @property
    def kind(self) -> pa.DataType:
        """The field's type."""
        return type_of(self.field)

    def _refuse(self, needed: str) -> FieldsError:
        return refused(self, needed, self.field[0], self.kind)


def refused(aggregate: Aggregate, needed: str, name: str, kind: pa.DataType) -> FieldsError:
    """Return the error for a field of a type that an aggregate can't have."""
    return FieldsError(
        f"{type(aggregate).__name__} needs {needed}, but field {name!r} is {ddl_name(kind)}; name another field or "
        "aggregate"
    )


def _times(column: Any, numbers: Any) -> Any:
    """Return integers or decimals times whole numbers; raise an ArrowInvalid if one does not fit."""
    if not pa.types.is_decimal(column.type):
        return pc.multiply_checked(column, numbers)
    digits = pa.decimal256(DIGITS_MAX, column.type.scale)
    return pc.multiply(column.cast(digits), numbers.cast(pa.decimal256(_LONG_DIGITS, 0))).cast(column.type)
