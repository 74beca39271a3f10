"""Tables that a spout brings along: bad records are in one, each once, with the transaction that they belong to."""

import json
from collections import Counter

import pytest

from committers import AppendCommitter, ReduceCommitter
from spouts import (
    FilesTransactionalSpout,
    MemoryTransactionalSpout,
    OpaqueMemoryTransactionalSpout,
    SpoutTable,
)
from state import DeltaRows, DeltaState, MemoryState, read_table, read_tables
from tests.crashes import CONFIG
from txtopo import BatchBolt, Config, FailedException, Fields, TransactionalTopologyBuilder
from txtopo.errors import InputError, TopologyError
from txtopo.testing.inline import run_inline
from txtopo.testing.simulation.schedules import make_subject, run_schedules

FIELDS = Fields("word: string", "n: long")
COUNT = 60


def write_input(folder):
    """Write three files; every fifth line is bad. Return what is good, and what is bad."""
    folder.mkdir()
    good, bad = Counter(), Counter()
    for name in "abc":
        path, offset, lines = folder / f"{name}.json", 0, []
        for n in range(COUNT // 3):
            is_bad = n % 5 == 2
            line = json.dumps({"word": name, "n": "x" if is_bad else n}) + "\n"
            if is_bad:
                bad[str(path), offset, n + 1, line[:-1]] += 1
            else:
                good[name, n] += 1
            offset += len(line)
            lines.append(line)
        path.write_text("".join(lines))
    return good, bad


def topology(folder, output, dead_letter="bad", parallelism=2, batch_bytes=220):
    """Return a topology with a committer right below the spout, and one below another bolt."""
    spout = FilesTransactionalSpout(
        folder, FIELDS, batch_bytes=batch_bytes, dead_letter=output / dead_letter if dead_letter else None
    )
    builder = TransactionalTopologyBuilder("files", "files", spout, parallelism)
    builder.set_bolt("append", AppendCommitter("rows"), 3).fields_grouping("files", Fields("word"))
    builder.set_bolt("copy", Copy(), 1).shuffle_grouping("files")
    builder.set_bolt("sum", ReduceCommitter("sums", "word", "n"), 1).global_grouping("copy")
    builder.set_state("rows", DeltaRows(output / "rows", FIELDS))
    builder.set_state("sums", DeltaState(output / "sums", Fields("word: string"), Fields("n: long")))
    return builder.build()


class Copy(BatchBolt):
    output_fields = Fields("attempt", "word", "n")

    def execute(self, tuple):
        self.collector.emit(tuple.values)


def good_of(output):
    return Counter((row["word"], row["n"]) for row in read_table(output / "rows").to_pylist())


def bad_of(output, name="bad"):
    rows = read_table(output / name).to_pylist()
    assert all(row["txid"] >= 1 and row["reason"].startswith("it does not fit: ") for row in rows)
    return Counter((row["file"], row["offset"], row["line"], row["text"]) for row in rows)


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["together", "spread"])
@pytest.mark.parametrize("parallelism", [1, 3])
def test_bad_records_are_in_their_table(tmp_path, layout, parallelism):
    """Good ones are where they were; again changes nothing; both tables are as of one transaction."""
    good, bad = write_input(tmp_path / "in")
    output = tmp_path / "out"
    for _ in range(2):
        run_inline(topology(tmp_path / "in", output, parallelism=parallelism), Config({"topology.layout": layout}))
        assert (good_of(output), bad_of(output)) == (good, bad)
    view = read_tables(output)
    assert set(view.tables) == {"rows", "sums", "spout.bad-records"}
    assert view.tables["spout.bad-records"].num_rows == sum(bad.values())
    sums = {row["word"]: row["n"] for row in read_table(output / "sums").to_pylist()}
    assert sums == {word: sum(n for (other, n) in good if other == word) for word in "abc"}


@pytest.mark.long
@pytest.mark.slow
def test_every_promise_holds_in_simulated_disasters(tmp_path):
    """Each version of the table of bad records is as if each transaction had run once."""
    _, bad = write_input(tmp_path / "in")

    def check(tables):
        found = Counter({row[:4]: n for row, n in tables["spout.bad-records"].items()})
        assert found <= bad

    subject = make_subject(topology(tmp_path / "in", tmp_path / "out"), invariant=check)
    result = run_schedules(subject, range(1, 80))
    assert [failure.violation for failure in result.failures] == []
    assert len(result.faults) >= 10


@pytest.mark.slow
def test_a_table_may_be_asked_for_later_and_given_up(tmp_path):
    """A topology goes on where it was with and without one; what the table holds stays."""
    good, bad = write_input(tmp_path / "in")
    output = tmp_path / "out"
    with pytest.raises(InputError, match=r"[abc]\.json, line \d+: it does not fit"):
        run_inline(topology(tmp_path / "in", output, dead_letter=None))
    run_inline(topology(tmp_path / "in", output))
    assert (good_of(output), bad_of(output)) == (good, bad)
    (tmp_path / "in" / "d.json").write_text('{"word": "d", "n": 1}\n')
    run_inline(topology(tmp_path / "in", output, dead_letter=None))
    (tmp_path / "in" / "e.json").write_text('{"word": "e", "n": 1}\n[]\n')
    run_inline(topology(tmp_path / "in", output))
    assert good_of(output) == good + Counter([("d", 1), ("e", 1)])
    assert sum((row["text"] == "[]") for row in read_table(output / "bad").to_pylist()) == 1
    assert len(read_table(output / "bad")) == sum(bad.values()) + 1


def test_nothing_is_done_without_bad_records(tmp_path, monkeypatch):
    """No task of its committer is made, and the table gets no version beyond its first."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text('{"word": "a", "n": 1}\n' * 50)
    made = topology(tmp_path / "in", tmp_path / "out")
    prepared = []
    prepare = AppendCommitter.prepare

    def counted(self, config, context, collector, attempt):
        prepared.append(context.this_component_id)
        prepare(self, config, context, collector, attempt)

    monkeypatch.setattr(AppendCommitter, "prepare", counted)
    run_inline(made)
    assert set(prepared) == {"append"}
    assert len(read_table(tmp_path / "out" / "bad")) == 0
    plain = topology(tmp_path / "in", tmp_path / "out", dead_letter=None).plan
    assert [component.id for component in plain.components] == ["files", "append", "copy", "sum"]
    assert (list(plain.states), [list(spout.streams) for spout in plain.spouts]) == (["rows", "sums"], [["default"]])


def test_names_do_not_collide(tmp_path):
    """A bolt or state of the user's with a name that the spout brings along is refused; building twice is not."""
    (tmp_path / "a.json").write_text("{}")
    spout = FilesTransactionalSpout(tmp_path, FIELDS, dead_letter=tmp_path / "_bad")
    builder = TransactionalTopologyBuilder("files", "spout", spout)
    assert list(builder.build().plan.states) == ["spout.bad-records"]
    assert list(builder.build().plan.states) == ["spout.bad-records"]
    builder.set_state("bad-records", MemoryState(Fields("word"), Fields("n")))
    builder.set_bolt("bad-records", Copy()).shuffle_grouping("spout")
    assert [component.id for component in builder.build().plan.components] == [
        "spout",
        "bad-records",
        "spout.bad-records",
    ]
    builder.set_state("spout.bad-records", MemoryState(Fields("word"), Fields("n")))
    builder.set_bolt("spout.bad-records", Copy()).shuffle_grouping("spout")
    with pytest.raises(TopologyError) as refusal:
        builder.build()
    assert str(refusal.value).splitlines() == [
        f"{what} 'spout.bad-records': spout 'spout' adds a {what} of that name; give yours another name"
        for what in ("bolt", "state")
    ]


LETTERS = Fields("text: string")


class Sorting:
    """A collector that sends what is no number to the stream of what could not be read."""

    def __init__(self, collector):
        self._collector = collector

    def emit(self, values):
        self._collector.emit(values, "default" if values[1].isdigit() else "unread")


class WithTable:
    """A source of single records, as a message queue is, with a table of what it could not read."""

    failed = False

    def __init__(self, table):
        super().__init__({0: ["1", "x", "3", "y"], 1: ["5", "6", "z"]}, Fields("text"), 2)
        self.table = table

    def declare_output_fields(self, declarer):
        super().declare_output_fields(declarer)
        declarer.declare_stream("unread", LETTERS.with_attempt())

    def own_tables(self):
        return {"unread": SpoutTable("unread", AppendCommitter, DeltaRows(self.table, LETTERS))}

    def emitter(self, config, context):
        emitter = super().emitter(config, context)
        emit_batch = emitter.emit_batch

        def sorted_batch(*arguments):
            made = emit_batch(*(Sorting(argument) if hasattr(argument, "emit") else argument for argument in arguments))
            if not WithTable.failed:
                WithTable.failed = True
                raise FailedException("once, behind its dead letters")
            return made

        emitter.emit_batch = sorted_batch
        return emitter


class RepeatableSource(WithTable, MemoryTransactionalSpout):
    pass


class OpaqueSource(WithTable, OpaqueMemoryTransactionalSpout):
    pass


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", [RepeatableSource, OpaqueSource])
@pytest.mark.parametrize("tasks", [1, 2])
def test_any_spout_may_bring_tables_along(tmp_path, monkeypatch, kind, tasks):
    """A repeatable and an opaque source have a table each, exact after a failure too."""
    monkeypatch.setattr(WithTable, "failed", False)
    builder = TransactionalTopologyBuilder("queue", "queue", kind(tmp_path / "unread"), tasks)
    builder.set_bolt("append", AppendCommitter("rows"), 2).shuffle_grouping("queue")
    builder.set_state("rows", DeltaRows(tmp_path / "rows", LETTERS))
    assert run_inline(builder.build(), CONFIG).failures > 0
    assert sorted(row["text"] for row in read_table(tmp_path / "rows").to_pylist()) == ["1", "3", "5", "6"]
    letters = sorted(tuple(row.values()) for row in read_table(tmp_path / "unread").to_pylist())
    assert letters == [("x", 1), ("y", 2), ("z", 2)]
