"""Expressions of operators and choices alone, computed by columns: by functions of polars, without a frame's plan.

For 1,000 rows a filter and a product take half the time of a frame's. What is no operator is left to a frame.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import attrs

if TYPE_CHECKING:
    import polars as pl

_OPERATORS: Mapping[str, Callable[[Any, Any], Any]] = {
    "Plus": operator.add,
    "Minus": operator.sub,
    "Multiply": operator.mul,
    "Eq": operator.eq,
    "NotEq": operator.ne,
    "Lt": operator.lt,
    "LtEq": operator.le,
    "Gt": operator.gt,
    "GtEq": operator.ge,
    "And": operator.and_,
    "Or": operator.or_,
}
_MULTIPLIED_IN_SQL = {"Sql": {"Binary": "Mul"}}
_EXACT = frozenset({"Plus", "Minus", "Multiply"})
"""Operators whose results may be too large for integers."""

_HALVES = {f"Int{bits}": 2 ** (bits - 1) for bits in (8, 16, 32, 64)}
"""Half of the values of each type of integers: those below zero."""


class MayOverflowError(Exception):
    """An integer may be too large: a look at each row tells."""


@attrs.frozen
class Value:
    """A value of the expression itself."""

    value: Any


@attrs.frozen
class Operation:
    """An operator, and what is on both sides."""

    name: str
    left: Direct
    right: Direct


@attrs.frozen
class Choice:
    """One of two, by a condition."""

    condition: Direct
    truthy: Direct
    falsy: Direct


Direct: TypeAlias = "str | Value | Operation | Choice"
"""A column, a value, an operation, or a choice."""


def direct_of(tree: Any, value_of: Callable[[Any], Any]) -> Direct | None:
    """Return a tree of polars as it is computed; None if there is more in it than columns, values and operators."""
    if not isinstance(tree, Mapping):
        return None
    ((kind, inner),) = tree.items()
    match kind:
        case "Column":
            return str(inner)
        case "Alias":
            return direct_of(inner[0], value_of)
        case "Literal":
            value = value_of(tree)
            return None if value is None else Value(value)
        case "BinaryExpr" if inner["op"] in _OPERATORS:
            name, sides = inner["op"], (inner["left"], inner["right"])
        case "Function" if inner["function"] == _MULTIPLIED_IN_SQL:  # what else SQL has so is of decimals
            name, sides = "Multiply", inner["input"]
        case "Ternary":
            parts = [direct_of(inner[part], value_of) for part in ("predicate", "truthy", "falsy")]
            columns = [each for each in parts if each is not None and not isinstance(each, Value)]
            return Choice(*columns) if len(columns) == len(parts) else None
        case _:
            return None
    left, right = (direct_of(side, value_of) for side in sides)
    if left is None or right is None or (isinstance(left, Value) and isinstance(right, Value)):
        return None
    return Operation(name, left, right)


def computed(given: Direct, columns: Mapping[str, pl.Series]) -> Any:
    """Return the column that an expression makes of others; raise MayOverflowError if an integer may be too large."""
    match given:
        case str():
            return columns[given]
        case Value():
            return given.value
        case Choice():
            condition, truthy, falsy = (
                computed(each, columns) for each in (given.condition, given.truthy, given.falsy)
            )
            return truthy.zip_with(condition, falsy)
        case Operation():
            left, right = computed(given.left, columns), computed(given.right, columns)
            made = _OPERATORS[given.name](left, right)
            if given.name in _EXACT and made.dtype.is_integer() and not _fits(given.name, left, right, made):
                raise MayOverflowError
            return made


def _fits(name: str, left: Any, right: Any, made: pl.Series) -> bool:
    """Return whether no result can be too large for its type, by the smallest and largest values of both sides."""
    ends = [_ends(each) for each in (left, right)]
    if None in {end for pair in ends for end in pair}:  # there are only nulls
        return True
    half = _HALVES[str(made.dtype)]
    return all(-half <= _OPERATORS[name](one, other) < half for one in ends[0] for other in ends[1])


def _ends(side: Any) -> tuple[Any, Any]:
    return (side, side) if isinstance(side, int) else (side.min(), side.max())
