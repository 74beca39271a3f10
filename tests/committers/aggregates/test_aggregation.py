"""Aggregates: what their columns make of rows is what a plain loop makes of them, in any steps and in any order."""

import datetime as dt
import decimal
import functools
import math
import pickle

import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from committers import (
    ApproxCountDistinct,
    ApproxQuantile,
    ArgMax,
    ArgMin,
    Collect,
    Count,
    CountDistinct,
    First,
    Last,
    LastN,
    Max,
    Mean,
    Min,
    Sum,
    TopN,
)
from committers.aggregates.aggregation import Aggregation
from committers.aggregates.retracting import retracting
from tests.budgets import examples
from txtopo import Fields
from txtopo.api.data.types import parse_type
from txtopo.api.reduction import Reductions
from txtopo.errors import ConfigError, FieldsError

EXACT = decimal.Context(prec=100)
DAY = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)

VALUES = {
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1) | st.integers(-9, 9),
    "decimal(18,2)": st.decimals(-(10**15), 10**15, places=2),
    "decimal(38,4)": st.integers(1 - 10**38, 10**38 - 1).map(lambda n: decimal.Decimal(n).scaleb(-4, EXACT)),
    "double": st.floats() | st.sampled_from([0.0, -0.0, math.nan, 0.5]),
    "float": st.floats(width=32),
    "string": st.text(max_size=3),
    "binary": st.binary(max_size=3),
    "boolean": st.booleans(),
    "date": st.dates(),
    "timestamp": st.datetimes(timezones=st.just(dt.UTC)),
}
NUMBERS = [kind for kind in VALUES if kind.startswith(("int", "long", "decimal", "double", "float"))]


def rows_of(kind: str) -> st.SearchStrategy[pa.Table]:
    """Rows of a key of two fields, a value, a time and a condition, in which each may be null."""
    values = st.none() | VALUES[kind]
    times = st.none() | st.integers(0, 3).map(lambda minutes: DAY + dt.timedelta(minutes=minutes))
    conditions = st.sampled_from([None, False, True])
    row = st.tuples(st.none() | st.sampled_from("ab"), st.sampled_from([None, 1, 2]), values, times, conditions)
    return st.lists(row, max_size=12).map(
        lambda rows: pa.table(
            {
                name: pa.array([row[place] for row in rows], parse_type(own))
                for place, (name, own) in enumerate(
                    {"shop": "string", "line": "int", "value": kind, "at": "timestamp", "ok": "boolean"}.items()
                )
            }
        )
    )


def aggregation(kind: str, key: tuple[str, ...] = ("shop: string", "line: int")) -> Aggregation:
    """All aggregates that values of this type have, of all rows and of those that meet a condition."""
    value = f"value: {kind}"
    aggregates = {}
    for end, where in {"": None, "_ok": "ok"}.items():
        aggregates |= {
            f"rows{end}": Count(where=where),
            f"values{end}": Count(value, where=where),
            f"smallest{end}": Min(value, where=where),
            f"largest{end}": Max(value, where=where),
            f"opening{end}": First(value, by="at: timestamp", where=where),
            f"closing{end}": Last(value, by="at: timestamp", where=where),
            f"earliest{end}": First(Fields(value, "ok: boolean"), by="at: timestamp", where=where),
            f"latest{end}": Last(Fields("ok: boolean", value), by="at: timestamp", where=where),
            f"winner{end}": Last(Fields(value, "ok: boolean"), by="at: timestamp", ties="smallest", where=where),
            f"loser{end}": First(value, by="at: timestamp", ties="largest", where=where),
            f"firsts{end}": TopN(Fields(value, "ok: boolean"), n=3, by="at: timestamp", ties="smallest", where=where),
            f"top{end}": TopN(Fields("ok: boolean", value), n=2, by=value, where=where),
            f"best{end}": ArgMax(Fields("ok: boolean"), by=value, where=where),
            f"worst{end}": ArgMin(Fields("ok: boolean"), by=value, where=where),
            f"newest{end}": ArgMax(value, by="at: timestamp", where=where),
            f"recent{end}": LastN(value, n=3, by="at: timestamp", where=where),
            f"sorted{end}": Collect(value, where=where),
            f"different{end}": Collect(value, distinct=True, where=where),
            f"about{end}": ApproxCountDistinct(value, where=where),
        }
        if kind in NUMBERS:
            aggregates[f"median{end}"] = ApproxQuantile(value, where=where)
            aggregates[f"total{end}"] = Sum(value, where=where)
    return Aggregation(Fields(*key), aggregates)


def is_exact(name: str, kind: str) -> bool:
    """Whether an aggregate does not depend on the order: sums of doubles do, in their last bits."""
    return not name.startswith("total") or kind not in {"double", "float"}


def order(value):
    """Where a value stands among others: NaN is the largest double."""
    is_nan = isinstance(value, float) and math.isnan(value)
    return (is_nan, math.nan if is_nan else value)  # one NaN, which a tuple finds equal to itself


def middle_of(values: list) -> float | None:
    """The middle of the steps, 1 % above and below it, in which the median is; 0 far below the largest."""
    step = math.log(1.01 / 0.99)
    finite = [float(abs(value)) for value in values if math.isfinite(value) and value]
    steps = {size: math.ceil(math.log(size) / step) for size in finite}
    smallest = max(steps.values(), default=0) - math.ceil(math.log(1e35) / step)

    def middle(value: float) -> float:
        if not value or not math.isfinite(value):
            return value
        place = steps[abs(value)]
        return 0.0 if place < smallest else math.copysign(math.exp(place * step + math.log(0.99)), value)

    middles = sorted((middle(float(value)) for value in values), key=order)
    return middles[(len(middles) - 1) // 2] if middles else None


def rank(value):
    """Where a value stands among others that may be null: nulls are the smallest."""
    return (value is not None, *order(False if value is None else value))


def plain_zero(value):
    """A value without -0.0."""
    return 0.0 if isinstance(value, float) and value == 0 else value


def plain(value):
    """A value as it comes out: without -0.0, and a NaN that equals itself."""
    if isinstance(value, list):
        return [plain(each) for each in value]
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    return value


def near(value):
    """A number without its last digits, which logarithms by columns and by Python's own need not share."""
    return f"{value:.9g}" if isinstance(value, float) else value


def by_hand(rows: pa.Table, kind: str, key: tuple[str, ...]) -> dict:
    """What a plain loop makes of the rows, by key: all but sums of doubles, whose last bits depend on the order."""
    of_key: dict = {}
    for row in rows.to_pylist():
        of_key.setdefault(tuple(row[name] for name in key), []).append(row)
    return {
        each: {
            f"{name}{end}": value
            for end, some in {"": own, "_ok": [row for row in own if row["ok"]]}.items()
            for name, value in of_rows(some, kind).items()
        }
        for each, own in of_key.items()
    }


def of_rows(own: list, kind: str) -> dict:
    """What a plain loop makes of the rows of a key."""
    values = [row["value"] for row in own if row["value"] is not None]
    timed = [
        (row["at"], order(plain(row["value"]) if row["value"] == 0 else row["value"]))
        for row in own
        if None not in (row["value"], row["at"])
    ]
    whole = [
        ({"value": row["value"], "ok": row["ok"]}, {"ok": row["ok"], "value": row["value"]}, row["at"])
        for row in own
        if row["at"] is not None
    ]

    def place(row: dict, at) -> tuple:
        return at, *map(rank, row.values())

    def with_value(value) -> list:
        some = [row["ok"] for row in own if row["value"] is not None and plain(row["value"]) == plain(value)]
        return [{"ok": ok, "value": plain(value)} for ok in sorted(some, key=rank, reverse=True)]

    made = {
        "rows": len(own),
        "values": len(values),
        "smallest": plain(min(values, key=order)) if values else None,
        "largest": plain(max(values, key=order)) if values else None,
        "opening": plain(min(timed)[1][1]) if timed else None,
        "closing": plain(max(timed)[1][1]) if timed else None,
        "earliest": plain(min((r for r in whole), key=lambda r: place(r[0], r[2]))[0]) if whole else None,
        "latest": plain(max((r for r in whole), key=lambda r: place(r[1], r[2]))[1]) if whole else None,
        "winner": plain(
            min((r for r in whole if r[2] == max(each[2] for each in whole)), key=lambda r: place(r[0], None)[1:])[0]
        )
        if whole
        else None,
        "loser": plain(max(each for each in timed if each[0] == min(timed)[0])[1][1]) if timed else None,
        "firsts": [
            {"value": plain(row["value"]), "ok": row["ok"], "at": at}
            for row, _, at in sorted(
                sorted(whole, key=lambda r: place(r[0], None)[1:]), key=lambda r: r[2], reverse=True
            )
        ][:3]
        or None,
        "top": [
            {"ok": row["ok"], "value": plain(row["value"])}
            for row in sorted(own, key=lambda row: (rank(plain_zero(row["value"])), rank(row["ok"])), reverse=True)
            if row["value"] is not None
        ][:2]
        or None,
        "best": with_value(max(values, key=order)) if values else None,
        "worst": with_value(min(values, key=order)) if values else None,
        "newest": [
            {"value": plain(row["value"]), "at": at}
            for row, _, at in sorted(whole, key=lambda r: rank(plain_zero(r[0]["value"])), reverse=True)
            if at == max(each[2] for each in whole)
        ]
        or None,
        "recent": [
            {"value": plain(row["value"]), "at": at}
            for row, _, at in sorted(whole, key=lambda r: (r[2], rank(plain_zero(r[0]["value"]))), reverse=True)
        ][:3]
        or None,
        "sorted": plain(sorted(values, key=order)) or None,
        "different": list(dict.fromkeys(plain(sorted(values, key=order)))) or None,
        "about": len(set(map(plain, values))),
    }
    if kind in NUMBERS:
        made["median"] = near(plain(middle_of(values)))
    if kind in NUMBERS and is_exact("total", kind):
        add = EXACT.add if kind.startswith("decimal") else int.__add__
        made["total"] = functools.reduce(add, values) if values else None
    return made


def by_key(results: pa.Table, key: tuple[str, ...], names) -> dict:
    """Results as :func:`by_hand` has them."""
    rows = results.to_pylist()
    made = {
        tuple(row[name] for name in key): {
            name: near(plain(row[name])) if name.startswith("median") else plain(row[name]) for name in names
        }
        for row in rows
    }
    assert len(made) == len(rows), "one row a key"
    return made


@pytest.mark.slow
@pytest.mark.parametrize("kind", VALUES)
@settings(max_examples=examples(24))
@given(data=st.data())
def test_any_steps(kind, data) -> None:
    """Rows reduced in any portions, merged in any order, are as folded one by one; a sum that does not fit is an error."""
    rows, key = data.draw(rows_of(kind)), data.draw(st.sampled_from([(), ("shop",), ("shop", "line")]))
    types = {"shop": "string", "line": "int"}
    aggregates = aggregation(kind, tuple(f"{name}: {types[name]}" for name in key))
    expected = by_hand(rows, kind, key)
    totals = [each[name] for each in expected.values() for name in ("total", "total_ok") if each.get(name) is not None]
    limit = 10**34 if kind == "decimal(38,4)" else 2**63  # others have the digits for all rows here
    if kind in {"long", "decimal(38,4)"} and any(not -limit <= total < limit for total in totals):
        with pytest.raises(FieldsError, match="'total"):
            aggregates.partials(rows)
        return
    whole = aggregates.partials(rows)
    assert whole.schema == aggregates.partial_fields
    results = aggregates.results(whole)
    assert results.schema == aggregates.result_schema
    names = [name for name in aggregates.aggregates if is_exact(name, kind)]
    assert by_key(results, key, names) == expected
    cuts = sorted(data.draw(st.lists(st.integers(0, rows.num_rows), max_size=4)))
    portions = [rows.slice(start, end - start) for start, end in zip([0, *cuts], [*cuts, rows.num_rows], strict=True)]
    try:
        parts = [aggregates.partials(portion) for portion in portions]
        parts = data.draw(st.permutations(parts))
        some = aggregates.merged(pa.concat_tables(parts[:2]))
        merged = aggregates.merged(pa.concat_tables([*parts[2:], some]))
    except FieldsError:
        assert kind in {"long", "decimal(38,4)"}, "a portion's sum may not fit where the whole one's does"
        return
    assert by_key(aggregates.results(merged), key, names) == expected


def test_conditions() -> None:
    """A condition is a boolean field, of whatever field it is the same; without any row that meets it, a count is 0."""
    rows = pa.table({"ok": [False, None, False], "n": [1, 2, 3]})
    whole = Aggregation(
        Fields(), {"rows": Count(where="ok"), "oks": Count("ok", where="ok"), "mean": Mean("n", where="ok")}
    )
    assert whole.typed(rows.schema).inputs == ("ok", "n")
    typed = whole.typed(rows.schema)
    assert typed.results(typed.partials(rows)).to_pylist() == [{"rows": 0, "oks": 0, "mean": None}]
    with pytest.raises(FieldsError, match="where='n' is bigint"):
        Count(where="n: long")
    with pytest.raises(FieldsError, match="'n' is declared as boolean"):
        Aggregation(Fields(), {"rows": Count(where="n")}).partials(rows)


def test_distinct_counts() -> None:
    """Each value counts once, whatever the portions; nulls alone count 0; a key with too many is refused by name."""
    rows = pa.table({"shop": ["a", "a", "b", "a", "c"], "user": ["x", "y", None, "x", "z"]})
    counts = Aggregation(Fields("shop: string"), {"users": CountDistinct("user: string", values_max=2)})
    portions = [counts.partials(rows.slice(start, 2)) for start in (3, 0, 1, 2)]
    merged = counts.results(counts.merged(pa.concat_tables(portions)))
    assert merged.sort_by("shop").to_pylist() == [
        {"shop": "a", "users": 2},
        {"shop": "b", "users": 0},
        {"shop": "c", "users": 1},
    ]
    assert merged.schema == counts.result_schema
    assert pickle.loads(pickle.dumps(counts)) == counts
    more = counts.partials(pa.table({"shop": ["a"], "user": ["w"]}))
    with pytest.raises(FieldsError, match="'users_values': there are more than 2 values of a key; give CountDistinct"):
        counts.merged(pa.concat_tables([*portions, more]))
    both = counts.reductions["users_values"]
    assert both(["x"], ["y", "x"]) == ["x", "y"]
    with pytest.raises(FieldsError, match="more than 2 values"):
        both(["x", "w"], ["y"])


def test_what_cannot_be_collected() -> None:
    """Nested values have no order, and a list has room for a value."""
    with pytest.raises(FieldsError, match="Collect needs values that have an order"):
        Aggregation(Fields(), {"all": Collect("tags: array<string>")})
    with pytest.raises(ConfigError, match="values_max is 0; give a whole number, at least 1"):
        Collect("n", values_max=0)


@pytest.mark.few(3)
@pytest.mark.parametrize("kind", NUMBERS)
@given(data=st.data())
def test_means(kind, data) -> None:
    """A mean is the exact sum by the count, rounded once: half up for decimals, to a double for all other numbers."""
    small = st.integers(-1000, 1000)
    values = data.draw(
        st.lists(st.none() | (small.map(lambda n: decimal.Decimal(n).scaleb(-2)) if "dec" in kind else small))
    )
    rows = pa.table({"value": pa.array(values, parse_type(kind))})
    aggregates = Aggregation(Fields(), {"mean": Mean(f"value: {kind}")})
    [mean] = aggregates.results(aggregates.partials(rows))["mean"].to_pylist() or [None]
    there = [value for value in values if value is not None]
    if not there:
        assert mean is None
    elif "dec" in kind:
        places = aggregates.result_schema.field("mean").type.scale
        assert mean == EXACT.divide(sum(there), len(there)).quantize(
            decimal.Decimal(1).scaleb(-places), decimal.ROUND_HALF_UP
        )
    else:
        assert mean == sum(there) / len(there)


@pytest.mark.parametrize(
    ("kind", "digits"),
    [
        ("decimal(38,0)", "4" * 38),
        ("decimal(38,18)", f"{'3' * 20}.{'3' * 18}"),
        ("decimal(30,2)", f"{'9' * 28}.99"),
        ("decimal(38,38)", f"0.{'4' * 38}"),
        ("decimal(37,1)", f"-{'4' * 36}.4"),
    ],
)
def test_means_of_large_decimals(kind: str, digits: str) -> None:
    """Whatever has a sum has a mean: with fewer digits behind the point if those before it need the room."""
    rows = pa.table({"value": pa.array([decimal.Decimal(digits)] * 2, parse_type(kind))})
    aggregates = Aggregation(Fields(), {"mean": Mean(f"value: {kind}")})
    assert aggregates.results(aggregates.partials(rows))["mean"].to_pylist() == [decimal.Decimal(digits)]


def test_types() -> None:
    """A sum has room for many values, as in Spark; it and the others survive a pickle."""
    aggregates = Aggregation(
        Fields("shop: string"),
        {
            "whole": Sum("n: int"),
            "revenue": Sum("price: decimal(18,2)"),
            "wide": Sum("much: decimal(38,2)"),
            "average": Mean("price: decimal(18,2)"),
            "last": Last("n: int", by="at: date"),
        },
    )
    aggregates = pickle.loads(pickle.dumps(aggregates))
    assert aggregates.inputs == ("shop", "n", "price", "much", "at")
    assert list(zip(aggregates.partial_fields.names, map(str, aggregates.partial_fields.types), strict=True)) == [
        ("shop", "string"),
        ("whole", "int64"),
        ("revenue", "decimal128(28, 2)"),
        ("wide", "decimal128(38, 2)"),
        ("average_sum", "decimal128(28, 2)"),
        ("average_count", "int64"),
        ("last", "int32"),
        ("last_at", "date32[day]"),
    ]
    assert list(map(str, aggregates.result_schema.types)) == [
        "string", "int64", "decimal128(28, 2)", "decimal128(38, 2)", "decimal128(22, 6)", "int32",
    ]  # fmt: skip


def test_as_readers_of_files_give_them() -> None:
    """Dictionaries, large strings and views, narrower numbers and null columns become the declared types."""
    plain_rows = pa.table(
        {"shop": ["a", "b", "a"], "note": ["x", None, "y"], "n": [1, 2, 3], "none": pa.nulls(3, pa.int64())}
    )
    others = {
        "shop": pa.chunked_array([pa.array(["a", "b"]).dictionary_encode(), pa.array(["a"]).dictionary_encode()]),
        "note": plain_rows["note"].cast(pa.large_string()),
        "n": plain_rows["n"].cast(pa.int16()),
        "none": pa.nulls(3),
    }
    aggregates = Aggregation(
        Fields("shop: string"),
        {"n": Sum("n: long"), "note": Max("note: string"), "none": Min("none: long"), "values": Count("none: long")},
    )
    expected = aggregates.partials(plain_rows)
    assert aggregates.partials(pa.table(others)) == expected
    view = {**others, "shop": plain_rows["shop"].cast(pa.string_view())}
    assert aggregates.partials(pa.table(view)) == expected
    assert aggregates.partials(pa.RecordBatch.from_pylist(plain_rows.to_pylist(), schema=plain_rows.schema)) == expected


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        pytest.param(["1"], "long", id="a string is no number"),
        pytest.param([1.5], "long", id="nor is a double a long"),
        pytest.param([2**40], "int", id="too large"),
        pytest.param(pa.array([1], pa.timestamp("us")), "timestamp", id="no time zone"),
        pytest.param(pa.array([1], pa.timestamp("ns", "UTC")), "timestamp", id="too fine"),
        pytest.param(pa.array([decimal.Decimal("1.234")]), "decimal(18,2)", id="too many digits"),
    ],
)
def test_other_types(column, kind) -> None:
    """What does not fit its declared type is refused by the field's name, never guessed or cut."""
    aggregates = Aggregation(Fields(), {"largest": Max(f"value: {kind}")})
    with pytest.raises(FieldsError, match="'value'"):
        aggregates.partials(pa.table({"value": column}))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Sum("word: string"), "Sum needs a number, but field 'word' is string"),
        (lambda: Mean("day: date"), "Mean needs a number"),
        (lambda: Min("list: array<int>"), "Min needs values that have an order"),
        (lambda: First("n: int", by="list: array<int>"), "First needs a time to order by"),
    ],
)
def test_values_without_that_aggregate(make, message) -> None:
    """An aggregate that a type does not have is refused when it is declared."""
    with pytest.raises(FieldsError, match=message):
        Aggregation(Fields(), {"made": make()})


def test_mistakes() -> None:
    """Names that collide, keys without equality and fields that are missing are refused by name."""
    with pytest.raises(FieldsError, match="'open_at' would be there twice"):
        Aggregation(Fields(), {"open": First("n: int", by="t: date"), "open_at": Min("t: date")})
    with pytest.raises(FieldsError, match="key field 'x' is double"):
        Aggregation(Fields("x: double"), {"rows": Count()})
    with pytest.raises(FieldsError, match="no field 'price' to aggregate; the fields are shop"):
        Aggregation(Fields(), {"total": Sum("price: long")}).partials(pa.table({"shop": ["a"]}))


def test_types_of_the_rows() -> None:
    """A field without a type has that of the rows; until then, there are no partials."""
    rows = pa.table({"shop": pa.array(["a", "a"]).dictionary_encode(), "n": pa.array([1, 2], pa.int16())})
    untyped = Aggregation(Fields("shop"), {"total": Sum("n"), "rows": Count()})
    with pytest.raises(FieldsError, match="'shop' has no type"):
        untyped.partials(rows)
    typed = untyped.typed(rows.schema)
    assert typed.partials(rows).to_pylist() == [{"shop": "a", "total": 3, "rows": 2}]
    with pytest.raises(FieldsError, match="no field 'n'"):
        untyped.typed(rows.select(["shop"]).schema)


def test_names_of_other_columns() -> None:
    """Names are free: also those that Arrow would give to its own results."""
    rows = pa.table({"k": [1, 1], "k_max": [5, 6]})
    aggregates = Aggregation(Fields("k: long"), {"k_max": Min("k_max: long"), "k_min": Max("k: long")})
    assert aggregates.partials(rows).to_pylist() == [{"k": 1, "k_max": 5, "k_min": 1}]


@pytest.mark.parametrize(
    ("kind", "value", "times"),
    [
        ("decimal(38,4)", decimal.Decimal(9 * 10**33), 3),
        ("decimal(38,0)", decimal.Decimal(9 * 10**37), 3),
        ("long", 2**62, 5),
    ],
)
def test_sums_that_would_go_round(kind, value, times) -> None:
    """A sum that would come round to a number that fits is an error all the same; one that comes back is exact."""
    aggregates = Aggregation(Fields(), {"total": Sum(f"n: {kind}")})
    with pytest.raises(FieldsError, match="the sum in column 'total' does not fit"):
        aggregates.partials(pa.table({"n": pa.array([value] * times, parse_type(kind))}))
    back = aggregates.partials(pa.table({"n": pa.array([value] * times + [-value] * times, parse_type(kind))}))
    assert back["total"].to_pylist() == [0]


ANY = [
    Count(),
    Sum("n: long"),
    Mean("n: long"),
    Min("n: long"),
    Max("n: long"),
    First("n: long", by="at: timestamp"),
    Last("n: long", by="at: timestamp"),
    CountDistinct("n: long", values_max=9),
    Collect("n: long", values_max=9),
    ArgMax("n: long", by="at: timestamp"),
    ArgMin("n: long", by="at: timestamp"),
    TopN("n: long", n=2, by="at: timestamp"),
    LastN("n: long", n=2, by="at: timestamp"),
    ApproxCountDistinct("n: long"),
    ApproxQuantile("x: double", q=0.5),
]


@pytest.mark.parametrize("aggregate", ANY, ids=lambda each: type(each).__name__)
def test_each_task_reduces_alike(aggregate):
    """Rows of several tasks and transactions wait to be folded together if their reductions are equal: a replica's are."""
    replica = pickle.loads(pickle.dumps(aggregate))
    one, other = (Reductions((("x", how),)) for each in (aggregate, replica) for how in each.reductions("x")[:1])
    assert one == other
    assert hash(one) == hash(other)


def test_other_reductions_differ():
    """What is merged by the same function with another number is another reduction."""
    one, other = (TopN("n: long", n=n, by="at: timestamp").reductions("x") for n in (2, 3))
    assert one != other


def test_a_condition_is_told_from_a_field():
    """What a table is folded from says which field is the condition: it may be the one that is aggregated, too."""
    assert Count("y").definition != Count(where="y").definition
    assert Min("y").definition != Min("y", where="y").definition
    of_changes = [retracting({"n": Count(), "x": each})["x"].definition for each in (Min("y"), Min("y", where="y"))]
    assert of_changes[0] != of_changes[1]
    sums = [
        retracting({"n": Count(), "x": each})["x"].definition for each in (Sum("a", where="y"), Mean("a", where="y"))
    ]
    assert sums == ["Mean(a, where=y)"] * 2
