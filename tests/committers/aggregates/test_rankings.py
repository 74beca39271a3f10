"""TopN, LastN, ArgMax: lists that hold just some rows, the same however the stream is cut."""

import datetime as dt

import pytest

from committers import ArgMax, ArgMin, CountDistinct, First, Last, LastN, ReduceCommitter, TopN
from committers.aggregates.aggregation import Aggregation
from spouts import MemoryTransactionalSpout
from state import DeltaState, read_table
from tests.topologies import committing
from txtopo import Fields
from txtopo.errors import ConfigError, FieldsError
from txtopo.testing.inline import run_inline

BID = Fields("auction: long", "price: long", "bidder: string")


def tops(path, values, bids, batch, fields=BID, **options) -> dict:
    committer = ReduceCommitter("tops", Fields("auction: long"), values=values)
    spout = MemoryTransactionalSpout(bids, fields, batch)
    state = options.pop("state", None) or committer.state(path / "tops", **options)
    run_inline(committing(spout, committer, 2, by="auction", tops=state))
    return {row.pop("auction"): row for row in read_table(path / "tops").drop_columns(["txid"]).to_pylist()}


@pytest.mark.parametrize("batch", [1, 3, 10])
def test_ties(tmp_path, batch) -> None:
    """Of rows with an equal order the larger ones are kept, wherever transactions are cut; nulls are the smallest."""
    bids = [
        [1, 5, "b"],
        [1, 5, None],
        [2, 1, "x"],
        [1, 7, "a"],
        [1, 5, "c"],
        [1, None, "z"],
        [1, 5, "b"],
        [3, None, "y"],
    ]
    found = tops(tmp_path, {"best": TopN(Fields("bidder: string"), n=4, by="price: long")}, bids, batch)
    assert found == {
        1: {
            "best": [
                {"bidder": "a", "price": 7},
                {"bidder": "c", "price": 5},
                {"bidder": "b", "price": 5},
                {"bidder": "b", "price": 5},
            ]
        },
        2: {"best": [{"bidder": "x", "price": 1}]},
        3: {"best": None},
    }


@pytest.mark.parametrize("batch", [1, 2, 10])
def test_one_row(tmp_path, batch) -> None:
    """The last of several fields is one row's, also if others have its time, and null fields are that row's, too."""
    bids = [[1, 5, "a"], [1, 3, "z"], [2, 4, None], [2, 4, "q"]]
    at = [dt.datetime(2026, 1, day, tzinfo=dt.UTC) for day in (2, 2, 3, 1)]
    rows = [[*bid, time] for bid, time in zip(bids, at, strict=True)]
    fields = Fields("auction: long", "price: long", "bidder: string", "at: timestamp")
    values = {"last": Last(Fields("price: long", "bidder: string"), by="at: timestamp")}
    assert tops(tmp_path, values, rows, batch, fields) == {
        1: {"last_price": 5, "last_bidder": "a", "last_at": at[0]},
        2: {"last_price": 4, "last_bidder": None, "last_at": at[2]},
    }


def test_types_of_the_table(tmp_path) -> None:
    """Fields without a type have that of the table, also where it has lists of them."""
    state = DeltaState(
        tmp_path / "tops",
        Fields("auction: long"),
        Fields(
            "best: array<struct<price: bigint, bidder: string>>",
            "last_price: long",
            "last_bidder: string",
            "last_at: long",
            "bidders_values: array<string>",
        ),
    )
    values = {
        "best": LastN(Fields("price", "bidder"), n=1, by="price"),
        "last": Last(Fields("price", "bidder"), by="at"),
        "bidders": CountDistinct("bidder"),
    }
    rows = [[1, 5, "a", 1], [1, 6, "b", 2]]
    fields = Fields("auction", "price", "bidder", "at")
    assert tops(tmp_path, values, rows, 1, fields, state=state) == {
        1: {
            "best": [{"price": 6, "bidder": "b"}],
            "last_price": 6,
            "last_bidder": "b",
            "last_at": 2,
            "bidders_values": ["a", "b"],
        }
    }


@pytest.mark.parametrize("batch", [1, 3, 10])
def test_all_rows_at_the_end(tmp_path, batch) -> None:
    """All rows with the largest or the smallest order are kept, equal ones as often as they came, and no other one."""
    bids = [
        [1, 5, "b"],
        [1, 7, None],
        [2, 1, "x"],
        [1, 7, "a"],
        [1, 5, "c"],
        [1, None, "z"],
        [1, 7, "a"],
        [3, None, "y"],
    ]
    values = {"most": ArgMax("bidder: string", by="price: long"), "least": ArgMin("bidder: string", by="price: long")}
    found = tops(tmp_path, values, bids, batch)
    assert found == {
        1: {
            "most": [{"bidder": name, "price": 7} for name in ("a", "a", None)],
            "least": [{"bidder": name, "price": 5} for name in ("c", "b")],
        },
        2: {name: [{"bidder": "x", "price": 1}] for name in ("most", "least")},
        3: {"most": None, "least": None},
    }


@pytest.mark.parametrize("batch", [1, 10])
def test_too_many_rows_at_the_end(tmp_path, batch) -> None:
    """As many as are allowed are kept; one more is refused, and says what to do."""
    values = {"most": ArgMax("bidder: string", by="price: long", rows_max=2)}
    bids = [[1, 5, "a"], [1, 5, "b"], [1, 4, "c"]]
    assert len(tops(tmp_path / "few", values, bids, batch)[1]["most"]) == 2
    with pytest.raises(FieldsError, match=r"more than 2 rows of a key.*give ArgMax a larger rows_max"):
        tops(tmp_path / "many", values, [*bids, [1, 5, "d"]], batch)


def test_mistakes() -> None:
    """No rows, nested rows, and a field that is there twice are refused by name."""
    with pytest.raises(ConfigError, match="n is 0; give a whole number, at least 1"):
        TopN("price", n=0, by="price")
    with pytest.raises(ConfigError, match="rows_max is 0; give a whole number, at least 1"):
        ArgMin("price", rows_max=0, by="price")
    with pytest.raises(FieldsError, match="TopN needs values that have an order, but field 'tags' is array<string>"):
        Aggregation(Fields(), {"best": TopN("tags: array<string>", n=1, by="price: long")})
    with pytest.raises(FieldsError, match="'price' appears twice"):
        Aggregation(Fields(), {"last": Last(Fields("price: long", "day: long"), by="price: long")})
    with pytest.raises(FieldsError, match=r"Last of several fields keeps the time .* 'at'; leave it out"):
        Last(Fields("price", "at"), by="at")
    with pytest.raises(FieldsError, match=r"First of several fields .* rename it in a bolt before"):
        First(Fields("price: long", "at: timestamp"), by="seen: timestamp")
