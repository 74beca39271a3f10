"""Expressions that Arrow computes as polars does: columns, values, and functions whose results are equal.

A frame of polars wakes a pool of threads, which costs more than a filter, a product and an hour of 500 rows. What
differs is left to it: decimals, floats of 32 bits, two columns of doubles that are compared, functions of texts. So are
rows that Arrow refuses: too large an integer may be in a branch that is not chosen, and an error names its row.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Mapping
from datetime import date
from decimal import Decimal
from typing import Any, TypeAlias

import attrs
import pyarrow as pa
import pyarrow.compute as pc

_CHECKED = {
    "Plus": "add_checked",
    "Minus": "subtract_checked",
    "Multiply": "multiply_checked",
    "Mul": "multiply_checked",
}
_COMPARED = {
    "Eq": "equal",
    "NotEq": "not_equal",
    "Lt": "less",
    "LtEq": "less_equal",
    "Gt": "greater",
    "GtEq": "greater_equal",
}
_UNLESS = {"Gt": "less_equal", "GtEq": "less"}
"""What is false of NaN, too, where polars' comparison is true: NaN is its largest number."""

_OF_BOOLEANS = {"And": "and_kleene", "Or": "or_kleene", "IsNull": "is_null", "IsNotNull": "is_valid"}
_UNITS = {"s": "second", "m": "minute", "h": "hour"}
_DIGITS_MAX = 15
"""A decimal of so many digits is the same double to all."""


@attrs.frozen
class Call:
    """A function, what it is given, and what it is to make: a type, or a unit of time and how many of them."""

    function: str
    inputs: tuple[Direct, ...]
    made: Any = None


Direct: TypeAlias = "str | pa.Scalar | Call"
"""A column, a value, or a function of such."""


class _LeftToPolarsError(Exception):
    """There is something in the tree that Arrow may compute otherwise."""


def direct_of(tree: Any, value_of: Callable[[Any], Any], kind_of: Callable[[Any], pa.DataType]) -> Direct | None:
    """Return a tree of polars as Arrow computes it; None if there is more in it than what is equal.

    Args:
        tree: the expression, as polars serializes it.
        value_of: returns the value of a tree that reads no column.
        kind_of: returns the type of what a tree makes.
    """
    try:
        return _Reading(value_of, kind_of).read(tree)
    except _LeftToPolarsError:
        return None


def computed(given: Direct, columns: Mapping[str, pa.Array]) -> Any:
    """Return the column that an expression makes of others; raise an ArrowInvalid if polars must tell more of a row."""
    match given:
        case str():
            return columns[given]
        case Call(function, of, made):
            inputs = [computed(each, columns) for each in of]
            match function:
                case "cast":
                    return inputs[0].cast(made)
                case "floor_divide":
                    return _floor_divided(*inputs)
            return pc.call_function(function, inputs, made and _rounding(*made))
    return given


def as_column(tree: Any, beside: Any, kind: str) -> Any:
    """Return a tree in a separate column, beside another one; what is beside a null is 0."""
    if "Column" in tree:
        return tree
    is_there = {"Function": {"input": [beside], "function": {"Boolean": "IsNotNull"}}}
    one, other = (
        {"Cast": {"expr": each, "dtype": {"Literal": kind}, "options": "Strict"}} for each in (is_there, tree)
    )
    return {"BinaryExpr": {"left": one, "op": "Multiply", "right": other}}


def reads_column(tree: Any) -> bool:
    """Return whether a tree reads a column."""
    return '"Column"' in json.dumps(tree)


@functools.cache
def _rounding(unit: str, multiple: int) -> pc.RoundTemporalOptions:
    return pc.RoundTemporalOptions(multiple, unit)  # it does not pickle


def _floor_divided(number: pa.Array, by: pa.Scalar) -> pa.Array:
    """Return the quotient of integers and a positive one, rounded down: Arrow rounds towards zero."""
    quotient = pc.call_function("divide", [number, by])
    is_above = pc.call_function("greater", [pc.call_function("multiply", [quotient, by]), number])
    return pc.call_function("subtract", [quotient, is_above.cast(number.type)])


@attrs.frozen
class _Reading:
    """Reads a tree."""

    value_of: Callable[[Any], Any]
    kind_of: Callable[[Any], pa.DataType]

    def read(self, tree: Any) -> Direct:  # noqa: C901 - a case for each form
        """Return what a tree that reads a column computes."""
        match tree:
            case {"Column": name}:
                return str(name)
            case {"Alias": [inner, _]}:
                return self.read(inner)
            case {"Cast": {"expr": inner}} | {"Function": {"function": {"TemporalExpr": "Date"}, "input": [inner]}}:
                return self._cast(inner, self.kind_of(tree))
            case {"Ternary": {"predicate": condition, "truthy": truthy, "falsy": falsy}}:
                kind, is_truthy = self.kind_of(tree), self._side(condition, pa.bool_())
                null_is_false = Call("coalesce", (is_truthy, pa.scalar(value=False)))
                return Call("if_else", (null_is_false, self._side(truthy, kind), self._side(falsy, kind)))
            case {"BinaryExpr": {"op": name, "left": left, "right": right}}:
                return self._operation(name, left, right, tree)
            case {"Function": {"function": {"Sql": {"Binary": name}}, "input": [left, right]}}:
                return self._operation(name, left, right, tree)
            case {"Function": {"function": {"Boolean": "IsNull" | "IsNotNull" as name}, "input": [inner]}}:
                return Call(_OF_BOOLEANS[name], (self.read(inner),))
            case {"Function": {"function": {"Boolean": "Not"}, "input": [inner]}}:
                return Call("invert", (self._side(inner, pa.bool_()),))
            case {"Function": {"function": "Coalesce" | "FillNull", "input": several}}:
                return Call("coalesce", tuple(self._side(each, self.kind_of(tree)) for each in several))
            case {"Function": {"function": {"TemporalExpr": "Truncate"}, "input": [inner, every]}} if not reads_column(
                every
            ):
                size = re.fullmatch(r"([1-9]\d*)([smh])", self.value_of(every))
                if size is not None and _is_time(self.kind_of(inner)):
                    return Call("floor_temporal", (self.read(inner),), (_UNITS[size[2]], int(size[1])))
        raise _LeftToPolarsError

    def _cast(self, of: Any, after: pa.DataType) -> Direct:
        before = self.kind_of(of)
        if before == after:
            return self.read(of)
        is_equal = (
            (_is_integer(before) and (_is_integer(after) or after in {pa.float64(), pa.string()}))
            or (before == pa.bool_() and _is_integer(after))
            or (_is_time(before) and after == pa.date32())
        )
        if not is_equal:
            raise _LeftToPolarsError
        return Call("cast", (self.read(of),), after)

    def _operation(self, name: str, left: Any, right: Any, tree: Any) -> Direct:
        if name in _COMPARED:
            return self._comparison(name, left, right)
        kind = self.kind_of(tree)
        if name in {"And", "Or"}:
            return Call(_OF_BOOLEANS[name], (self._side(left, kind), self._side(right, kind)))
        match right:
            case {"BinaryExpr": {"right": {"Cast": {"expr": value}}}} if right == as_column(value, left, "Float64"):
                right = value
        numbers = tuple(self._number(each, kind) for each in (left, right))
        if name in _CHECKED and (_is_integer(kind) or kind == pa.float64()):
            return Call(_CHECKED[name], numbers)
        if name in {"TrueDivide", "Div"} and kind == pa.float64():
            doubles = (number if isinstance(number, pa.Scalar) else Call("cast", (number,), kind) for number in numbers)
            return Call("divide", tuple(doubles))
        if name == "FloorDivide" and _is_integer(kind) and self.kind_of(left) == kind:
            by = numbers[1].as_py() if isinstance(numbers[1], pa.Scalar) else None
            if by is not None and by > 0:
                return Call("floor_divide", numbers)
        raise _LeftToPolarsError

    def _comparison(self, name: str, left: Any, right: Any) -> Direct:
        kind = self.kind_of(left)
        if reads_column(right):
            other = self.kind_of(right)
            is_one_kind = kind == other and (_is_time(kind) or kind in {pa.string(), pa.date32(), pa.bool_()})
            if not is_one_kind and not (_is_integer(kind) and _is_integer(other)):
                raise _LeftToPolarsError
            return Call(_COMPARED[name], (self.read(left), self.read(right)))
        sides = self.read(left), self._value(right, kind)
        if kind == pa.float64() and name in _UNLESS:
            return Call("invert", (Call(_UNLESS[name], sides),))
        return Call(_COMPARED[name], sides)

    def _number(self, tree: Any, kind: pa.DataType) -> Direct:
        """Return a side of an operation that makes a type; Arrow casts one that has another."""
        if not reads_column(tree):
            return self._value(tree, kind)
        own = self.kind_of(tree)
        if not _is_integer(own) and own != pa.float64():
            raise _LeftToPolarsError
        return self.read(tree)

    def _side(self, tree: Any, kind: pa.DataType) -> Direct:
        """Return what makes a type."""
        if not reads_column(tree):
            return self._value(tree, kind)
        if self.kind_of(tree) != kind:
            raise _LeftToPolarsError
        return self.read(tree)

    def _value(self, tree: Any, kind: pa.DataType) -> pa.Scalar:
        """Return a value as one of the type that it is computed or compared with."""
        value = self.value_of(tree)
        match value:
            case None:
                return pa.scalar(None, kind)
            case bool() if kind == pa.bool_():
                return pa.scalar(value)
            case int() if _is_integer(kind) and not isinstance(value, bool) and -(2**63) <= value < 2**63:
                half = 2 ** (kind.bit_width - 1)
                return pa.scalar(value, kind if -half <= value < half else pa.int64())
            case int() | float() | Decimal() if kind == pa.float64() and not isinstance(value, bool):
                digits = len(value.as_tuple().digits) if isinstance(value, Decimal) else 0
                is_whole = not isinstance(value, int) or abs(value) < 2**53
                if digits <= _DIGITS_MAX and is_whole and value == value:  # noqa: PLR0124 - it is no NaN
                    return pa.scalar(float(value))
            case str() if kind == pa.string():
                return pa.scalar(value)
            case date() if kind == self.kind_of(tree) and (_is_time(kind) or kind == pa.date32()):
                return pa.scalar(value, kind)
        raise _LeftToPolarsError


def _is_integer(kind: pa.DataType) -> bool:
    return bool(pa.types.is_signed_integer(kind))


def _is_time(kind: pa.DataType) -> bool:
    return kind in {pa.timestamp("us", "UTC"), pa.timestamp("us")}
