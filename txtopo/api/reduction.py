"""Reductions: fold values into a state as Arrow rows, without a Python object for each key.

A committer that only computes sums, minima or maxima need not read the state's values. The rows of a whole commit
group can then be folded at once: these functions are commutative and associative, so the result equals that of folding
transaction by transaction.
"""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import functools
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import attrs
import pyarrow as pa

from txtopo.errors import FieldsError


class Reduction(enum.Enum):
    """A commutative and associative function of two values: the order of folding does not change the result."""

    SUM = "sum"
    MIN = "min"
    MAX = "max"

    @property
    def function(self) -> Callable[[Any, Any], Any]:
        """The reduction as a function of two Python values."""
        return _FUNCTIONS[self]

    @classmethod
    def of(cls, function: Callable[[Any, Any], Any]) -> Folding | None:
        """Return the reduction for ``operator.add``, ``min`` or ``max``, Reductions as they are; None for all else."""
        if isinstance(function, Reductions):
            return function
        return next((reduction for reduction, known in _FUNCTIONS.items() if known is function), None)

    def by_column(self, names: Sequence[str]) -> Mapping[str, ColumnReduction]:
        """Return how each column is reduced: all alike."""
        return dict.fromkeys(names, self)


_FUNCTIONS: Mapping[Reduction, Callable[[Any, Any], Any]] = {
    Reduction.SUM: operator.add,
    Reduction.MIN: min,
    Reduction.MAX: max,
}


@attrs.frozen
class AtTime:
    """The value at the earliest time (``Reduction.MIN``) or the latest (``Reduction.MAX``).

    Of several values at that time it is the smallest or the largest, so that the order of folding changes nothing.

    Args:
        time: the column with the time of each value, null where the value is.
        which: which time.
        ties: of several values at that time, which; None: the smallest of the earliest, the largest of the latest.
        row: the columns that are taken from the same row, this one among them, whose values may be null: of several
            rows at that time it is the smallest or the largest, column by column, nulls before all values. Empty: the
            column is alone.
    """

    time: str
    which: Reduction
    row: tuple[str, ...] = ()
    ties: Reduction | None = None

    @property
    def of_ties(self) -> Reduction:
        """Which of several values at that time."""
        return self.which if self.ties is None else self.ties

    def takes_other(self, one: Sequence[Any], other: Sequence[Any]) -> bool:
        """Return whether the second of two rows, time first, is the one to take."""
        ranks = [list(map(_rank, row)) for row in (one, other)]
        (at_one, *one_rank), (at_other, *other_rank) = ranks
        if at_one != at_other:
            return at_other < at_one if self.which is Reduction.MIN else at_other > at_one
        return other_rank < one_rank if self.of_ties is Reduction.MIN else other_rank > one_rank


def _told_apart(function: Any) -> Any:
    """Return what a function is by: of a partial, which equals no other, what it calls and with what.

    Rows wait to be folded together only if their reductions are equal, and each task has a partial of its own.
    """
    if isinstance(function, functools.partial):
        return function.func, function.args, tuple(sorted(function.keywords.items()))
    return function


@attrs.frozen
class Merge:
    """A merge of many values into one by a function over columns, such as that of sets.

    *You* give a commutative and associative function, defined in a module so that it can be pickled, as
    :class:`functools.partial` of one is. It raises an ArrowInvalid if a result is larger than may be.

    Args:
        function: returns, for an array of lists, an array with one value for each list; nulls in a list are skipped.
        kind: the type of the values, before and after.
        remedy: what to do if a result is too large.
    """

    function: Callable[[pa.Array], pa.Array] = attrs.field(eq=_told_apart)
    kind: pa.DataType
    remedy: str

    def __call__(self, one: Any, other: Any) -> Any:
        """Merge two Python values; raise a FieldsError if the result is too large."""
        try:
            return self.function(pa.array([[one, other]], pa.list_(self.kind)))[0].as_py()
        except pa.ArrowInvalid as error:
            raise FieldsError(f"{error}; {self.remedy}") from error


ColumnReduction: TypeAlias = Reduction | AtTime | Merge
"""How one column is reduced."""


@attrs.frozen
class Reductions:
    """A reduction for each value field of a state, in the fields' order; nulls are skipped.

    It is the function for :meth:`MapState.multi_reduce`: key by key, it combines two values of a state as the columns
    are reduced.
    """

    columns: tuple[tuple[str, ColumnReduction], ...]

    def by_column(self, names: Sequence[str]) -> Mapping[str, ColumnReduction]:
        """Return how each column is reduced; ``names`` are the state's value fields."""
        assert [name for name, _ in self.columns] == list(names), "the value fields of the state"
        return dict(self.columns)

    @property
    def function(self) -> Callable[[Any, Any], Any]:
        """The reductions as a function of two values of the state."""
        return self

    def __call__(self, one: Any, other: Any) -> Any:
        """Combine two values of the state: tuples, or single values if it has one value field."""
        if len(self.columns) == 1:
            return self._combined((one,), (other,))[0]
        return self._combined(one, other)

    def _combined(self, one: Sequence[Any], other: Sequence[Any]) -> tuple[Any, ...]:
        names = [name for name, _ in self.columns]
        made = []
        for (_, how), a, b in zip(self.columns, one, other, strict=True):
            if isinstance(how, AtTime) and how.row:
                made.append(b if _is_other_row(how, names, one, other) else a)
            elif a is None or b is None:
                made.append(b if a is None else a)
            elif isinstance(how, AtTime):
                time = names.index(how.time)
                made.append(b if how.takes_other((one[time], a), (other[time], b)) else a)
            elif isinstance(how, Merge):
                made.append(how(a, b))
            else:
                made.append(_COMBINING[how](a, b))
        return tuple(made)


def _is_other_row(how: AtTime, names: Sequence[str], one: Sequence[Any], other: Sequence[Any]) -> bool:
    """Return whether the columns of a row are taken from the other one of two values of a state."""
    places = [names.index(name) for name in (how.time, *how.row)]
    if one[places[0]] is None or other[places[0]] is None:  # a row without a time is none
        return one[places[0]] is None
    return how.takes_other([one[place] for place in places], [other[place] for place in places])


def _rank(value: Any) -> tuple[bool, bool, Any]:
    """Return where a value stands among others that may be null or NaN: nulls first, NaN last."""
    is_nan = _place(value)
    return value is not None, is_nan, False if is_nan or value is None else value


def _place(value: Any) -> bool:
    """Return whether a value comes after all numbers: NaN does."""
    return bool(value != value)  # noqa: PLR0124 - only NaN differs from itself


_DIGITS_MAX = 100
"""More digits than a sum of decimals of Arrow has. Python's context rounds to 28."""

_EXACT = decimal.Context(prec=_DIGITS_MAX)

_HOLD_NO_DECIMAL = frozenset({int, float, str, bytes, bool, dt.date, dt.datetime})


def _exact_sum(one: Any, other: Any) -> Any:
    if isinstance(one, decimal.Decimal) and isinstance(other, decimal.Decimal):
        return _EXACT.add(one, other)
    return one + other


def _smaller(one: Any, other: Any) -> Any:
    return other if other < one or one != one else one  # noqa: PLR0124 - only NaN differs from itself


def _larger(one: Any, other: Any) -> Any:
    return other if other > one or other != other else one  # noqa: PLR0124 - only NaN differs from itself


_COMBINING: Mapping[Reduction, Callable[[Any, Any], Any]] = {
    Reduction.SUM: _exact_sum,
    Reduction.MIN: _smaller,
    Reduction.MAX: _larger,
}


@attrs.frozen
class _WithAllDigits:
    function: Callable[[Any, Any], Any]

    def __call__(self, one: Any, other: Any) -> Any:
        with decimal.localcontext(prec=_DIGITS_MAX):
            return self.function(one, other)


@attrs.frozen
class _Combining:
    function: Callable[[Any, Any], Any]
    exactly: Callable[[Any, Any], Any]
    """The same for values that may hold decimals."""

    def __call__(self, one: Any, other: Any) -> Any:
        if one is None:
            return other
        if other is None:
            return one
        if one.__class__ in _HOLD_NO_DECIMAL and other.__class__ in _HOLD_NO_DECIMAL:
            return self.function(one, other)
        return self.exactly(one, other)


def combining(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Return a function that folds two values of a state by a given one, to the same result in whatever steps.

    A value that is None is skipped, as a state's old value is if there is none: the function never gets it. For ``min``
    and ``max``, NaN is the largest number, as in Spark. Decimals are combined with 100 digits, where Python's context
    would round to 28.
    """
    match Reduction.of(function):
        case None:
            return _Combining(function, _WithAllDigits(function))
        case Reduction.SUM:
            return _Combining(operator.add, _exact_sum)
        case Reduction() as reduction:
            return _Combining(_COMBINING[reduction], _COMBINING[reduction])
        case Reductions() as reductions:
            return _Combining(reductions, reductions)


Folding: TypeAlias = Reduction | Reductions
"""How rows are folded into a state: all value fields alike, or each in its own way."""


class Combiner(ABC):
    """How rows of one batch are combined into fewer before they reach a bolt.

    *You* combine rows so that the bolt does the same with the combined rows of any portions of a batch as with the
    rows themselves, whatever the portions are.

    *txtopo* combines rows of a columnar stream where they are emitted, before any grouping that moves them, if they are
    many and become far fewer. It may also leave rows as they are.
    """

    key: Sequence[str]
    """Fields that combined rows have, too: only rows that agree in all of them become one. A grouping by fields needs
    its own among them."""
    fields: Sequence[str]
    """The fields that it reads. It is not asked for the rows of a stream that lacks one."""

    @abstractmethod
    def combine(self, batch: pa.RecordBatch, planned_at: dt.datetime) -> pa.RecordBatch | None:
        """Return the combined rows of a batch, which need not have the stream's fields; None to leave it as it is.

        Args:
            batch: some rows of a stream, without the attempt.
            planned_at: when the transaction was planned.
        """
