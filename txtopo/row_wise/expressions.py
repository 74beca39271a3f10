"""Expressions of polars that mean the same for a row alone as for a row among others, whoever cuts the input.

Polars itself does not tell: ``meta.is_row_separable()`` is True for ``col("a") - col("a").mean()``. So an expression is
read as a tree, and only what is in the lists below may be in it. Two things are done otherwise than polars does them:

- integers do not wrap: beside each sum, difference, product and absolute value of integers goes a check of it in 128
  bits, and a row that fails it is an error;
- a product of decimals has as many digits behind the point as both together: 12.34 x 12.34 is 152.2756, not 152.28.

A sample that is evaluated in one piece and in two is the second net, for what a list may have missed.
"""

from __future__ import annotations

import io
import itertools
import json
import math
import pickle
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import attrs
import pyarrow as pa

from txtopo.api.data.fields import Fields
from txtopo.api.data.types import ddl_name
from txtopo.errors import ConfigError, FieldsError
from txtopo.row_wise.direct import Direct, as_column, computed, direct_of, reads_column
from txtopo.text.extras import how_to_install
from txtopo.text.suggestions import did_you_mean

if TYPE_CHECKING:
    import polars as pl

_EXACT = frozenset({"Plus", "Minus", "Multiply", "FloorDivide"})
"""Operators whose results may be too large for integers."""

_EXACT_IN_SQL = {"Sql.Binary.Plus": "Plus", "Sql.Binary.Minus": "Minus", "Sql.Binary.Mul": "Multiply"}
"""The same as SQL has them where a side may be a decimal."""

_ROW_WISE = {
    "Operator": "Eq NotEq Lt LtEq Gt GtEq EqValidity NotEqValidity And Or Xor LogicalAnd LogicalOr",
    "": (
        "Abs Sign Negate Floor Ceil Round Exp Log Clip FillNull Coalesce MaxHorizontal MinHorizontal "
        "AsStruct Replace ReplaceStrict"
    ),
    "Pow": "Sqrt Generic",
    "Boolean": (
        "IsNull IsNotNull IsNan IsNotNan IsFinite IsInfinite IsBetween IsIn IsClose Not AnyHorizontal AllHorizontal"
    ),
    "Sql.Binary": "Plus Minus Mul Div Rem IntDiv Eq Lt LtEq Gt GtEq",
    "Sql": "IsIn Round",
    "StringExpr": (
        "Uppercase Lowercase Titlecase LenChars LenBytes StripChars StripCharsStart StripCharsEnd "
        "StripPrefix StripSuffix StartsWith EndsWith Contains Replace Slice Head Tail Split Extract "
        "ExtractAll CountMatches ZFill PadStart PadEnd Reverse Find JsonPathMatch ConcatHorizontal "
        "Format HexEncode Strptime"
    ),
    "TemporalExpr": (
        "Year Month Day Hour Minute Second Millisecond Microsecond WeekDay Week OrdinalDay Quarter "
        "IsoYear Date Truncate Round OffsetBy ToString TimeStamp ConvertTimeZone ReplaceTimeZone "
        "CastTimeUnit TotalSeconds TotalMilliseconds TotalMicroseconds TotalMinutes TotalHours TotalDays MonthStart "
        "MonthEnd"
    ),
    "ListExpr": "Length Get Contains Join Max Min",
    "StructExpr": "FieldByName",
}
"""Operators that compare, and functions, whose result for a row depends on that row alone, by polars' groups."""

_FUNCTIONS = frozenset(f"{group}.{name}".lstrip(".") for group, names in _ROW_WISE.items() for name in names.split())

_OF_LISTS = {"Boolean.IsIn": 1, "Sql.IsIn": 1, "Replace": 2, "ReplaceStrict": 2}
"""Functions of lists of values, which are no columns, and how many of them they take."""

_COMPARED = frozenset(["Eq", "NotEq", "Lt", "LtEq", "Gt", "GtEq", "EqValidity", "NotEqValidity"])

_TURNED = {"Lt": "Gt", "LtEq": "GtEq", "Gt": "Lt", "GtEq": "LtEq"}
"""Comparisons with their sides exchanged."""

_OF_ONE_TYPE = frozenset({"Coalesce", "FillNull"})
"""Functions that return one of their arguments."""

_NOW = re.compile(r"\b(now\s*\(|current_(date|time|timestamp)\b|localtime(stamp)?\b)", re.IGNORECASE)
_TEXTS = re.compile(r"'[^']*'")
"""What SQL calls the time on the wall; and its texts."""

_WAYS = {
    "Agg": "group_by(…).agg(…) makes aggregates",
    "Over": "group_by(…).agg(…) makes aggregates of a key",
    "Len": "Count() counts rows",
    "Selector": "name each field",
    "AnonymousFunction": "map(f, fields) calls a function of yours",
    "Cast": "casts that wrap lose values: cast without wrap_numerical",
    "Literal": "a column of values belongs to no row: name a field",
    "Explode": "stream.explode('field') makes a row of each element",
    "Random": "a replay must make the same of a row; take a field that differs, such as an id",
    "FillNullWithStrategy": "fill_null() with a value does not depend on other rows",
    "Unique IsUnique IsDuplicated IsFirstDistinct IsLastDistinct": "stream.distinct(key) passes on each key once",
    (
        "Shift Diff PctChange Sort SortBy Rank Slice Gather Filter Range Interpolate RLE RLEID RollingExpr "
        "CumSum CumCount CumMin CumMax CumProd BackwardFill ArgSort ArgWhere"
    ): (
        "a transaction is any part of the rows, so no row is before another; agg() has Last, LastN and TopN of a key, "
        "and through(name, committer) keeps what you like"
    ),
}
"""What to write instead of what is not row-wise."""


class _OfPolars:
    """Expressions of polars. They travel as bytes: an executor that needs none of them does not load polars."""

    def __init__(self, value: pl.Expr, overflow: pl.Expr | None) -> None:
        self._both: Any = value, overflow

    def __getstate__(self) -> Any:
        return self._both if isinstance(self._both, bytes) else pickle.dumps(self._both)

    def __setstate__(self, pickled: bytes) -> None:
        self._both = pickled

    def with_overflow(self) -> tuple[pl.Expr, pl.Expr | None]:
        """Return the expression, and what is true where an integer would wrap."""
        if isinstance(self._both, bytes):
            self._both = pickle.loads(self._both)  # noqa: S301 - our bytes
        both: tuple[pl.Expr, pl.Expr | None] = self._both
        return both


@attrs.frozen
class Expression:
    """An expression over the fields of a stream, checked.

    Args:
        name: the name of its result.
        fields: the fields that it reads.
        kind: the type of its result.
        text: how it was written.
        direct: the same as Arrow computes it; None if only polars does.
    """

    name: str
    fields: tuple[str, ...]
    kind: pa.DataType
    text: str
    of_polars: _OfPolars
    direct: Direct | None = None

    @property
    def value(self) -> pl.Expr:
        """The expression of polars."""
        return self.of_polars.with_overflow()[0]

    @property
    def overflow(self) -> pl.Expr | None:
        """What is true for a row in which an integer would wrap; None if none can."""
        return self.of_polars.with_overflow()[1]


def expression(given: Any, fields: Fields, name: str | None = None) -> Expression:
    """Return an expression, checked against the fields that it is evaluated over.

    Args:
        given: an expression of polars, or the same as a text in SQL.
        fields: the stream's fields, each with a type.
        name: the name of its result; None: its own.

    Raises:
        ConfigError: polars is not installed, or it is no expression.
        FieldsError: it is not row-wise, reads a field that is not there, or has a type that Spark has not.
    """
    polars = _polars()
    value, text = _parsed(polars, given)
    try:
        tree = json.loads(value.meta.serialize(format="json"))
    except Exception as error:  # what polars can't serialize, such as a plugin
        raise FieldsError(f"{text} can't be sent to executors: {error}") from error
    reading = _Reading(polars, fields, text)
    read = reading.read(tree)
    checked = reading.expression(read)
    name = name or _name_of(value, text)
    kind = _kind(text, reading.type_of(checked))
    overflow = polars.any_horizontal(*reading.overflows).fill_null(value=False) if reading.overflows else None
    made = Expression(name, tuple(reading.fields), kind, text, _OfPolars(checked, overflow))
    _try_in_pieces(polars, made, fields)
    return attrs.evolve(made, direct=_direct(polars, reading, read, made))


def _polars() -> Any:
    try:
        import polars  # noqa: PLC0415, ICN001 - only steps with expressions need it
    except ImportError as error:
        raise ConfigError(f"expressions need polars; install it: {how_to_install('expressions')}") from error
    return polars


def _parsed(polars: Any, given: Any) -> tuple[pl.Expr, str]:
    if isinstance(given, str):
        if _NOW.search(_TEXTS.sub("", given)):
            raise FieldsError(
                f"{given!r} has the time at which it is written, not that of a row; compare the row's times, or "
                "keep rows for a time: windows, within=, ttl="
            )
        try:
            return polars.sql_expr(given), repr(given)
        except Exception as error:  # polars has a class of errors for each of its modules
            raise FieldsError(f"{given!r} is no expression in SQL: {_first_line(error)}") from error
    if isinstance(given, polars.Expr):
        return given, str(given).replace("\n", " ")
    if isinstance(given, list | tuple | dict):
        raise ConfigError(f"{given!r} is no expression; write each as an argument of its own, or name=…")
    shown = repr(given) if "\n" not in repr(given) else f"a {type(given).__name__}"
    raise ConfigError(f"{shown} is no expression; write pl.col('price') * 2, or the same in SQL: 'price * 2'")


def _name_of(value: pl.Expr, text: str) -> str:
    try:
        return value.meta.output_name()
    except Exception as error:
        raise FieldsError(f"{text} has no name; write name=…, or .alias('name')") from error


class _Reading:
    """Reads a tree: what it reads, what may overflow, and the tree as it is to be evaluated."""

    def __init__(self, polars: Any, fields: Fields, text: str) -> None:
        self._polars = polars
        self.known = fields
        self._text = text
        self._empty = polars.from_arrow(fields.arrow_schema().empty_table()).lazy()
        self.fields: dict[str, None] = {}
        self.overflows: list[pl.Expr] = []

    def expression(self, tree: Any) -> pl.Expr:
        """Return a tree as an expression."""
        try:
            made: pl.Expr = self._polars.Expr.deserialize(io.BytesIO(json.dumps(tree).encode()), format="json")
        except Exception as error:
            how = "for NaN and infinity write .is_nan() and .is_infinite()"
            raise FieldsError(f"{self._text} can't be sent to executors: {_first_line(error)}; {how}") from error
        return made

    def type_of(self, value: pl.Expr) -> Any:
        """Return polars' type of an expression."""
        try:
            # Some types are only found to be wrong when something is evaluated, if only nothing.
            return self._empty.select(value.alias("value")).collect().schema["value"]
        except (Exception, self._polars.exceptions.PanicException) as error:  # which is no Exception
            raise FieldsError(f"{self._text} can't be evaluated: {_first_line(error)}") from error

    def read(self, tree: Any) -> Any:
        """Return a tree as it is to be evaluated; raise a FieldsError unless it is row-wise."""
        kind, inner = _node(tree)
        if kind in {"Cast", "Function"} and "Nanoseconds" in json.dumps(inner.get("dtype", inner.get("function"))):
            raise FieldsError(f"{self._text}: nanoseconds since 1970 wrap after the year 2262; use microseconds, 'us'")
        match kind:
            case "Column":
                self._check_known(inner)
                self.fields[inner] = None
                return tree
            case "Literal" if "Series" not in inner:
                return tree
            case "Alias":
                return {kind: [self.read(inner[0]), inner[1]]}
            case "Cast" if inner["options"] != "Overflowing":
                return {kind: {**inner, "expr": self.read(inner["expr"])}}
            case "Ternary":
                tree = {kind: self._read_choice(inner)}
                self._check_one_type([tree[kind]["truthy"], tree[kind]["falsy"]])
                return tree
            case "BinaryExpr":
                return self._read_operator(inner)
            case "Function":
                return self._read_function(inner)
        raise self._not_row_wise(kind)

    def _read_choice(self, inner: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a choice as it is to be evaluated; an integer that is too large counts only where it is chosen."""
        parts = {"predicate": self.read(inner["predicate"])}
        is_truthy = self.expression(parts["predicate"]).fill_null(value=False)
        for part, is_chosen in (("truthy", is_truthy), ("falsy", ~is_truthy)):
            before, self.overflows = self.overflows, []
            parts[part] = self.read(inner[part])
            self.overflows = [*before, *(is_chosen & overflow for overflow in self.overflows)]
        parts["truthy"], parts["falsy"] = self._wide([parts["truthy"], parts["falsy"]])
        return parts

    def _wide(self, trees: Sequence[Any]) -> list[Any]:
        """Return the parts of a result, values of 64 bits as of that type: polars takes those without one for 32."""
        kinds = [self.type_of(self.expression(tree)) for tree in trees]
        if any(kind.is_float() or kind.is_unsigned_integer() for kind in kinds):  # they would become doubles
            return [*trees]
        return [
            {"Cast": {"expr": each, "dtype": {"Literal": "Int64"}, "options": "Strict"}}
            if kind == self._polars.Int64 and not reads_column(each)
            else each
            for each, kind in zip(trees, kinds, strict=True)
        ]

    def _check_known(self, field: str) -> None:
        if field not in self.known:
            near = did_you_mean(field, self.known) or f"; the fields are {', '.join(self.known)}"
            if f'"{field}"' in self._text.replace(f'col("{field}")', ""):
                near += f"; a text has single quotes in SQL: '{field}'"
            raise FieldsError(f"there is no field {field!r}{near}")

    def _read_operator(self, inner: Mapping[str, Any]) -> Any:
        left, operator, right = self.read(inner["left"]), inner["op"], self.read(inner["right"])
        tree = {"BinaryExpr": {"left": left, "op": operator, "right": right}}
        polars = self._polars
        sides = [self.type_of(self.expression(each)) for each in (left, right)]
        if operator in _COMPARED:
            self._check_compared(*sides)
            if not reads_column(left):
                turned = {"left": right, "op": _TURNED.get(operator, operator), "right": left}
                return self._turned({"BinaryExpr": turned}, tree)
        if f"Operator.{operator}" in _FUNCTIONS:
            return tree
        are_decimals = all(isinstance(side, polars.Decimal) for side in sides)
        if are_decimals and operator == "Multiply":
            return _function("Mul", left, right)
        if operator == "TrueDivide":
            self._check_quotient(sides)
        if operator in _EXACT:
            self._watch(tree, left, operator, right)
        if operator in {"TrueDivide", "FloorDivide", "Modulus"}:
            tree["BinaryExpr"]["right"] = self._by(tree, left, right)
        return tree

    def _turned(self, tree: Any, before: Any) -> Any:
        """Return a comparison whose sides are exchanged, under its name: the value comes last.

        Polars makes one row of a value and a choice that is the same for all rows of a batch.
        """
        return {"Alias": [tree, self.expression(before).meta.output_name()]}

    def _check_compared(self, one: Any, other: Any) -> None:
        """Raise a FieldsError if values of two types are never equal, or polars takes them for what they are not."""
        polars = self._polars
        if polars.Null in {one, other}:
            return
        for own, against in ((one, other), (other, one)):
            zones = [each.time_zone for each in (own, against) if each == polars.Datetime]
            if (own == polars.String and zones) or (len(zones) == 2 and None in zones and zones != [None, None]):  # noqa: PLR2004 - both
                what = "a text" if len(zones) == 1 else "one without a time zone"
                raise FieldsError(
                    f"{self._text} compares a time with {what}; write datetime(2026, 3, 1, tzinfo=UTC), or in SQL "
                    "CAST('2026-03-01' AS TIMESTAMPTZ)"
                )
            is_nested_alone = against.is_nested() and own.base_type() != against.base_type()
            if is_nested_alone or (against.is_numeric() and own == polars.Boolean):
                how = "; .list.contains(…) asks for an element" if against == polars.List else ""
                raise FieldsError(f"{self._text} compares {_type_text(against)} with {_type_text(own)}{how}")

    def _check_one_type(self, trees: Sequence[Any]) -> None:
        """Raise a FieldsError if a result is a text here and something else there: polars makes all texts."""
        polars = self._polars
        kinds = {self.type_of(self.expression(tree)) for tree in trees} - {polars.Null}
        others = kinds - {polars.String}
        if polars.String in kinds and others:
            raise FieldsError(
                f"{self._text} is now a text, now {_type_text(others.pop())}; cast one to the type of the other"
            )

    def _by(self, tree: Any, left: Any, right: Any) -> Any:
        """Return a divisor or exponent as a column, also where a choice makes one value of it for all rows of a batch.

        By a value polars multiplies with its reciprocal, so that 49.0 // 49 is 0; and some powers are others.
        """
        kind = self.type_of(self.expression(tree))
        return as_column(right, left, str(kind)) if _is_float(kind) and reads_column(left) else right

    def _check_quotient(self, sides: Sequence[Any]) -> None:
        if any(isinstance(side, self._polars.Decimal) for side in sides) and not any(map(_is_float, sides)):
            raise FieldsError(
                f"{self._text}: a quotient of decimals would be rounded to their digits; cast one to pl.Float64"
            )

    def _read_function(self, inner: Mapping[str, Any]) -> Any:  # noqa: C901 - a rule for each of some functions
        name = _path(inner["function"])
        if name not in _FUNCTIONS:
            raise self._not_row_wise(name)
        if name == "StringExpr.Strptime" and inner["function"]["StringExpr"]["Strptime"][1]["format"] is None:
            raise FieldsError(f"{self._text}: without a format, polars takes that of the first value; give it one")
        inputs = self._read_inputs(name, inner["input"])
        if name in {*_OF_ONE_TYPE, "MaxHorizontal", "MinHorizontal"}:
            inputs = self._wide(inputs)
        tree = {"Function": {**inner, "input": inputs}}
        kinds = [self.type_of(self.expression(each)) for each in inputs]
        if name in _OF_ONE_TYPE:
            self._check_one_type(inputs)
        compared = name.rpartition(".")[2]
        if compared in _COMPARED:
            self._check_compared(*kinds)
            if not reads_column(inputs[0]):
                turned = _function(_TURNED.get(compared, compared), *reversed(inputs))
                return self._turned(turned, tree)
        if name == "Pow.Generic" and kinds[0].is_integer():
            raise FieldsError(f"{self._text}: a power of integers may be too large; cast to pl.Float64 before")
        if name in {"MaxHorizontal", "MinHorizontal"} and any(map(_is_float, kinds)):
            raise FieldsError(f"{self._text}: polars leaves NaN out here, though it is the largest number; use when(…)")
        if name == "Sql.Binary.Div":
            self._check_quotient(kinds)
        if name == "Sql.Binary.Div" or (name == "Pow.Generic" and reads_column(inputs[1])):
            inputs[1] = self._by(tree, *inputs)
        if name in {"Abs", "Negate"}:
            self._watch(tree, inputs[0], name, None)
        elif name in _EXACT_IN_SQL:
            self._watch(tree, inputs[0], _EXACT_IN_SQL[name], inputs[1])
        return _replaced(tree, inputs) if name == "StringExpr.Replace" else tree

    def _read_inputs(self, name: str, given: Sequence[Any]) -> list[Any]:
        """Return what a function is given; values in a list are no columns."""
        inputs = []
        for number, each in enumerate(given):
            is_list = 1 <= number <= _OF_LISTS.get(name, 0)
            inputs.append(each if is_list and "Literal" in each else self.read(each))
            if is_list and "Literal" not in each and self.type_of(self.expression(inputs[-1])) != self._polars.List:
                raise FieldsError(
                    f"{self._text} looks a value up in a whole column; give a list, or compare both with =="
                )
        return inputs

    def _watch(self, tree: Any, left: Any, operator: str, right: Any) -> None:
        """Add a check of integers in 128 bits."""
        polars, value = self._polars, self.expression(tree)
        kind = self.type_of(value)
        if not kind.is_integer():
            return
        if kind in {polars.Int128, getattr(polars, "UInt128", None)}:
            raise FieldsError(f"{self._text} has integers of 128 bits; cast to pl.Int64 or a decimal before")
        wide, other = (None if each is None else self.expression(each).cast(polars.Int128) for each in (left, right))
        assert wide is not None, "every operator has a first side"
        is_wrong = _exactly(operator, wide, other) != value.cast(polars.Int128)
        if reads_column(tree):
            self.overflows.append(is_wrong)
        elif polars.select(is_wrong).item():
            raise FieldsError(f"an integer is too large in {self._text}; cast to a larger type before")

    def _not_row_wise(self, kind: str) -> FieldsError:
        what = kind.rpartition(".")[2]
        ways = (way for names, way in _WAYS.items() if what in names.split())
        hint = next(ways, "map(f, fields) or map_batches(f, fields) does what no row-wise expression does")
        return FieldsError(f"{self._text}: {what} is not among the row-wise expressions; {hint}")


def _exactly(operator: str, one: pl.Expr, other: Any) -> Any:
    """Return the result of an operator of integers that are wide enough."""
    match operator:
        case "Plus":
            return one + other
        case "Minus":
            return one - other
        case "Multiply":
            return one * other
        case "FloorDivide":
            return one // other
        case "Abs":
            return one.abs()
        case _:
            return 0 - one  # polars negates no integers of 128 bits


def _function(operator: str, left: Any, right: Any) -> Any:
    return {"Function": {"input": [left, right], "function": {"Sql": {"Binary": operator}}}}


def _replaced(tree: Any, inputs: Sequence[Any]) -> Any:
    """Return a replacement in which a null leaves the text as it is: polars refuses a batch of such."""
    text, pattern, value = inputs
    if "Literal" in value:
        return tree
    is_null = {"Function": {"input": [value], "function": {"Boolean": "IsNull"}}}
    filled = {"Function": {"input": [value, {"Literal": {"Scalar": {"String": ""}}}], "function": "FillNull"}}
    made = {"Function": {**tree["Function"], "input": [text, pattern, filled]}}
    return {"Ternary": {"predicate": is_null, "truthy": text, "falsy": made}}


def _type_text(kind: Any) -> str:
    """Return a type of polars in words."""
    words = {"List": "an array", "Struct": "a struct", "Boolean": "a boolean", "String": "a text", "Datetime": "a time"}
    return words.get(str(kind.base_type()), "a number" if kind.is_numeric() else str(kind))


def _is_float(kind: Any) -> bool:
    return bool(kind.is_float())


def _node(tree: Any) -> tuple[str, Any]:
    if isinstance(tree, Mapping):
        return next(iter(tree.items()))
    return str(tree), None


def _path(function: Any) -> str:
    if isinstance(function, str):
        return function
    (group, inner), *_ = function.items()
    if group in {"StringExpr", "TemporalExpr", "ListExpr", "StructExpr", "Boolean", "Pow", "Sql", "Binary"}:
        return f"{group}.{_path(inner)}"
    return str(group)


def _kind(text: str, kind: Any) -> pa.DataType:
    import polars  # noqa: PLC0415, ICN001 - it is loaded

    made = _arrow_type(kind)
    try:
        ddl_name(made)
    except FieldsError as error:
        if kind == polars.Duration:
            way = "take a number of it: .dt.total_microseconds()"
        else:
            own = "pl.Int64" if kind.is_integer() else "pl.Datetime('us', 'UTC')" if kind.is_temporal() else "pl.String"
            way = f"cast it: .cast({own})"
        raise FieldsError(f"{text} has polars' type {kind}, which Spark has not; {way}") from error
    return made


def _arrow_type(kind: Any) -> pa.DataType:
    import polars  # noqa: PLC0415, ICN001 - it is loaded

    return _standard_type(polars.Series(dtype=kind).to_arrow(compat_level=polars.CompatLevel.oldest()).type)


def _standard_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_large_list(kind) or pa.types.is_list(kind):
        return pa.list_(_standard_type(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([(each.name, _standard_type(each.type)) for each in kind])
    return kind


def _try_in_pieces(polars: Any, made: Expression, fields: Fields) -> None:
    schema = fields.subset(made.fields).arrow_schema() if made.fields else None
    if schema is None:
        return
    rows = polars.from_arrow(_sample(schema))
    try:
        whole = rows.select(made.value.alias("value"))
        pieces = [rows.slice(0, 5).select(made.value.alias("value")), rows.slice(5).select(made.value.alias("value"))]
    except Exception:  # noqa: BLE001 - a value that the expression refuses, such as a text that is no number
        return
    except polars.exceptions.PanicException as error:
        raise FieldsError(f"{made.text} can't be evaluated: {_first_line(error)}") from error
    if not polars.concat(pieces).equals(whole, null_equal=True):
        raise FieldsError(f"{made.text} gives a row another value among others than alone; it is not row-wise")


def _direct(polars: Any, reading: _Reading, tree: Any, made: Expression) -> Direct | None:
    """Return a tree as Arrow computes it, if that is the same of a sample, its type included."""

    def kind_of(part: Any) -> pa.DataType:
        return _arrow_type(reading.type_of(reading.expression(part)))

    if not made.fields:
        return None
    sample = _sample(reading.known.subset(made.fields).arrow_schema())
    try:
        direct = direct_of(tree, lambda part: polars.select(reading.expression(part)).item(), kind_of)
        own = None if direct is None else computed(direct, {name: sample[name] for name in made.fields})
        planned = polars.from_arrow(sample).select(made.value)
    except Exception:  # noqa: BLE001 - what polars or Arrow does not compute
        return None
    is_same = own is not None and own.type == made.kind and planned.to_series().equals(polars.from_arrow(own))
    return direct if is_same else None


_SAMPLE_ROWS = 13
"""How many rows an expression is tried on: each list of samples comes in full, most of them more than once."""

_VALUES: tuple[tuple[Any, list[Any]], ...] = (
    (pa.types.is_boolean, [True, None, False]),
    (pa.types.is_integer, [1, None, 0, -1, 7, 100]),
    (pa.types.is_floating, [1.5, None, 0.0, -2.0, math.nan, math.inf, 1e6]),
    (pa.types.is_decimal, [Decimal(1), None, Decimal(0), Decimal(-2)]),
    (pa.types.is_string, ["a", None, "", "Abc", "12", "2026-03-01"]),
    (pa.types.is_binary, [b"a", None, b""]),
    (pa.types.is_date, [date(2026, 3, 1), None, date(1969, 12, 31)]),
    (pa.types.is_timestamp, [datetime(2026, 3, 1, 12, 30, tzinfo=UTC), None, datetime(1969, 12, 31, tzinfo=UTC)]),
)


def _sample(schema: pa.Schema) -> pa.RecordBatch:
    """Return some rows, with nulls and values that are special."""
    return pa.record_batch([pa.array(_values(field.type), field.type) for field in schema], schema=schema)


def _values(kind: pa.DataType) -> list[Any]:
    if pa.types.is_list(kind):
        inner = _values(kind.value_type)
        own: list[Any] = [inner[:1], None, [], inner[:4]]
    elif pa.types.is_struct(kind):
        parts = zip(*(_values(field.type) for field in kind), strict=True)
        own = [None, *(dict(zip((field.name for field in kind), values, strict=True)) for values in parts)]
    else:
        own = next((values for is_of, values in _VALUES if is_of(kind)), [None])
    if pa.types.is_timestamp(kind) and kind.tz is None:
        own = [each and each.replace(tzinfo=None) for each in own]
    return list(itertools.islice(itertools.cycle(own), _SAMPLE_ROWS))


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n", 1)[0]
