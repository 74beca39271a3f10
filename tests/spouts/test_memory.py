"""Rows in memory, as a transactional spout."""

import pytest

from spouts.memory import MemoryTransactionalSpout
from tests.spouts.reading import collected, plan
from txtopo.api.data.fields import Fields
from txtopo.errors import ConfigError, FieldsError, InputError
from txtopo.testing.conformance.spout import TransactionalSpoutConformance
from txtopo.testing.context import PlainContext

WORDS = {
    0: [["cat"], ["dog"], ["chicken"], ["cat"], ["dog"], ["apple"]],
    1: [["cat"], ["dog"]],
    2: [],
    10: [["banana"], ["cat"], ["dog"]],
}


class TestObjects(TransactionalSpoutConformance):
    @pytest.fixture
    def spout(self):
        return MemoryTransactionalSpout(WORDS, Fields("word"), 2)


class TestColumns(TransactionalSpoutConformance):
    @pytest.fixture
    def spout(self):
        rows = [(f"word-{n}", n) for n in range(25)]
        return MemoryTransactionalSpout({"a": rows, "b": rows[:3]}, Fields("word: string", "n: long"), 4)


def emitted(spout, metadata):
    return [values[1:] for values in collected(spout, [metadata]).tuples]


def test_rows_that_are_added_are_seen_by_the_next_run():
    """A run takes the rows there were when it began; the next one goes on with those that came."""
    data = {0: ["a"], 1: ["x", "y"]}
    spout = MemoryTransactionalSpout(data, Fields("word"), 5)
    begun = plan(spout)
    data[0].append("b")
    data[2] = ["new"]
    assert emitted(spout, plan(spout, begun)[0]) == [("b",), ("new",)]
    typed = {0: ["a"]}
    columns = MemoryTransactionalSpout(typed, Fields("word: string"), 5)
    begun = plan(columns)
    typed[0].append("b")
    assert emitted(columns, plan(columns, begun)[0]) == [("b",)]


def test_rows_that_are_taken_away_are_missed():
    """A partition that holds fewer rows than were taken is refused when the run starts."""
    begun = plan(MemoryTransactionalSpout({0: ["a", "b"], 1: ["c"]}, Fields("word"), 5))
    shorter = MemoryTransactionalSpout({0: ["a"], 1: ["c"]}, Fields("word"), 5)
    with pytest.raises(InputError, match="2 rows of partition '0' have been taken, but it has 1"):
        shorter.coordinator({}, PlainContext()).resume(1, begun[-1])
    gone = MemoryTransactionalSpout({0: ["a", "b"]}, Fields("word"), 5)
    with pytest.raises(InputError, match="partition '1'"):
        emitted(gone, begun[-1])


@pytest.mark.parametrize(
    ("data", "fields", "message"),
    [
        ({"p": [("a", 1), ("b",)]}, Fields("word", "n"), "row 1 of partition 'p' has 1 values"),
        ({"p": [("a", 1), "b"]}, Fields("word", "n"), "row 1 of partition 'p' is 'b'"),
        (
            {"p": [[1], ["x"]]},
            Fields("n: long"),
            "row 1 of partition 'p', field 'n: bigint': 'x' .str. does not fit bigint",
        ),
    ],
)
def test_a_row_that_does_not_fit_is_named(data, fields, message):
    """Partition and row of what does not fit the fields are named when the spout is made."""
    with pytest.raises(FieldsError, match=message):
        MemoryTransactionalSpout(data, fields, 2)


def test_partitions_have_names_of_their_own():
    """Two partitions whose names are the same in metadata, or that have no simple name, are refused."""
    with pytest.raises(InputError, match="own number or string"):
        MemoryTransactionalSpout({1: ["a"], "1": ["b"]}, Fields("word"), 2)
    with pytest.raises(InputError, match="own number or string"):
        MemoryTransactionalSpout({(1, 2): ["a"]}, Fields("word"), 2)


def test_take_per_batch_is_at_least_one():
    with pytest.raises(ConfigError, match="take_per_batch is 0"):
        MemoryTransactionalSpout(WORDS, Fields("word"), 0)
