"""A Delta table as a source: each row once, whatever is done to the table meanwhile, or a refusal that says why."""

import datetime as dt
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.schema import Field, PrimitiveType
from pyroaring import BitMap64

from spouts import DeltaTransactionalSpout
from spouts.delta.table import InputTable
from state import DeltaRows, DeltaState, read_table
from tests.state.delta.vector_tables import VectorTable
from txtopo import Fields
from txtopo.api.values import TransactionalValue
from txtopo.api.writes import RowsMode, TransactionRows
from txtopo.attempts import TransactionAttempt
from txtopo.errors import ConfigError, FieldsError, InputError, SourceFailure, StateAccessError
from txtopo.failpoints import armed
from txtopo.testing import TransactionalSpoutConformance
from txtopo.testing.collector import RecordingCollector
from txtopo.testing.context import PlainContext

FEED = ("_change_type: string", "_commit_version: long")
ATTEMPT = TransactionAttempt(1, 1)


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A table of two versions with a row each, 0 and 1."""
    for number in range(2):
        append(str(tmp_path / "table"), number)
    return str(tmp_path / "table")


def append(path: str, *numbers: int, **options: Any) -> None:
    write_deltalake(path, pa.table({"n": pa.array(numbers, pa.int64())}), mode="append", **options)


def plan(
    spout: DeltaTransactionalSpout, begun: Sequence[Any] = (), count: int = 100
) -> tuple[list[Any], list[int | None]]:
    """Return the metadata of the transactions that come next, and the numbers in them."""
    coordinator, found = spout.coordinator({}, PlainContext()), list(begun)
    coordinator.resume(len(found), found[-1] if found else None)
    while coordinator.is_ready() and len(found) < len(begun) + count:
        found.append(coordinator.initialize_transaction(len(found) + 1, found[-1] if found else None))
    return found, [number for each in found[len(begun) :] for number in numbers_of(spout, each)]


def numbers_of(spout: DeltaTransactionalSpout, metadata: Any) -> list[int | None]:
    collector = RecordingCollector(ATTEMPT, spout.output_fields)
    spout.emitter({}, PlainContext()).emit_batch(ATTEMPT, metadata, collector)
    return [values[1] for values in collector.tuples]


class TestDeltaTransactionalSpout(TransactionalSpoutConformance):
    @pytest.fixture
    def spout(self, path: str) -> DeltaTransactionalSpout:
        append(path, *range(2, 50))
        return DeltaTransactionalSpout(path, batch_files_max=1)


class TestFromAVersion(TransactionalSpoutConformance):
    is_endless = True

    @pytest.fixture
    def spout(self, path: str) -> DeltaTransactionalSpout:
        append(path, 2, 3)
        return DeltaTransactionalSpout(path, starting_version=1, batch_bytes=1, watch=True, poll_secs=0)


def test_appended_rows_follow_those_that_were_there(path: str) -> None:
    """Each version's rows come once, also over several runs, and what moves rows to other files comes not at all."""
    spout = DeltaTransactionalSpout(path, watch=True, poll_secs=0)
    begun, first = plan(spout)
    assert sorted(first) == [0, 1]
    append(path, 2)
    DeltaTable(path).optimize.compact()
    append(path, 3)
    begun, later = plan(spout, begun)
    assert later == [2, 3]
    append(path, 4, 5)
    assert plan(spout, begun)[1] == [4, 5]
    assert plan(spout, begun)[1] == [4, 5]


def test_metadata_of_a_former_version(path: str) -> None:
    """Transactions of before each file was kept with its version are gone on from, read again, and gone back over."""
    spout = DeltaTransactionalSpout(path, watch=True, poll_secs=0, batch_files_max=1)
    append(path, 2)
    begun, _ = plan(spout)
    former = [{name: value for name, value in each.items() if name != "versions"} for each in begun]
    append(path, 3)
    assert [numbers_of(spout, each) for each in former] == [numbers_of(spout, each) for each in begun]
    assert plan(spout, former)[1] == [3]
    coordinator = spout.coordinator({}, PlainContext())
    assert coordinator.rewind(1, former[0], former[1:])
    coordinator.resume(1, former[0])
    assert coordinator.initialize_transaction(2, former[0]) == begun[1]


def test_it_ends_at_the_version_that_was_the_newest(path: str) -> None:
    """Without watch= a run takes what was there when it began; the next one takes what came since."""
    spout = DeltaTransactionalSpout(path)
    coordinator = spout.coordinator({}, PlainContext())
    coordinator.resume(0, None)
    append(path, 2)
    metadata = coordinator.initialize_transaction(1, None)
    assert coordinator.is_exhausted()
    assert (sorted(numbers_of(spout, metadata)), plan(spout, [metadata])[1]) == ([0, 1], [2])


def test_a_failure_amid_the_files_of_a_transaction(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes those that are known, and they are lost to none: nothing says where the first one has begun."""
    spout = DeltaTransactionalSpout(path, watch=True, poll_secs=0)
    coordinator = spout.coordinator({}, PlainContext())
    coordinator.resume(0, None)

    def fails(*_: Any) -> None:
        raise SourceFailure("the store does not answer")

    with monkeypatch.context() as patched:
        patched.setattr(InputTable, "entry", fails)
        metadata = coordinator.initialize_transaction(1, None)
        with pytest.raises(SourceFailure, match="the store does not answer"):
            coordinator.initialize_transaction(2, metadata)
    append(path, 2)
    assert sorted(numbers_of(spout, metadata)) == [0, 1]
    assert numbers_of(spout, coordinator.initialize_transaction(2, metadata)) == [2]


@pytest.mark.parametrize("operation", ["delete", "update", "overwrite"])
def test_a_version_that_changes_rows(path: str, operation: str) -> None:
    """It stops the run, which names it, or is left out with all that it adds; later versions are read."""
    spout = DeltaTransactionalSpout(path, watch=True, poll_secs=0)
    begun, _ = plan(spout)
    if operation == "delete":
        DeltaTable(path).delete("n = 0")
    elif operation == "update":
        DeltaTable(path).update(predicate="n = 0", new_values={"n": 7})
    else:
        write_deltalake(path, pa.table({"n": pa.array([8], pa.int64())}), mode="overwrite")
    append(path, 9)
    with pytest.raises(InputError, match=r"version 2 of the table .* changes or deletes rows .*changes='skip'"):
        plan(spout, begun)
    skipping = DeltaTransactionalSpout(path, changes="skip", watch=True, poll_secs=0)
    assert plan(skipping, begun)[1] == [9]


@pytest.mark.parametrize("changes", ["refuse", "skip"])
def test_a_merge_that_only_inserts(tmp_path: Path, changes: Any) -> None:
    """It changes no row, so its rows are read, although a table with a feed tells them there, too."""
    path = str(tmp_path / "table")
    append(path, 0, configuration={"delta.enableChangeDataFeed": "true"})
    more = pa.table({"n": pa.array([0, 1], pa.int64())})
    merge = DeltaTable(path).merge(more, "t.n = s.n", source_alias="s", target_alias="t")
    merge.when_not_matched_insert_all().execute()
    assert plan(DeltaTransactionalSpout(path, starting_version=0, changes=changes))[1] == [0, 1]


def test_a_restore_that_only_adds_files(path: str) -> None:
    """With the versions that change rows it is left out: what it brings back was read before they were."""
    spout = DeltaTransactionalSpout(path, changes="skip", watch=True, poll_secs=0)
    begun, _ = plan(spout)
    DeltaTable(path).delete("n = 0")
    DeltaTable(path).restore(1)
    append(path, 9)
    assert plan(spout, begun)[1] == [9]


def test_the_change_data_feed(tmp_path: Path) -> None:
    """Changes come as Delta's reader has them, of overwritten and restored files, too; what was there as inserts."""
    path = str(tmp_path / "table")
    feed = {"delta.enableChangeDataFeed": "true"}
    write_deltalake(path, pa.table({"n": pa.array([0, 1, 2], pa.int64()), "what": list("abc")}), configuration=feed)
    spout = DeltaTransactionalSpout(path, changes="emit", batch_files_max=1, watch=True, poll_secs=0)
    assert spout.values.names == ("n", "what", "_change_type", "_commit_version")
    begun, _ = plan(spout)
    DeltaTable(path).update(predicate="n = 1", new_values={"what": "'z'"})
    DeltaTable(path).delete("n = 0")
    more = pa.table({"n": pa.array([2, 3], pa.int64()), "what": ["y", "x"]})
    merge = DeltaTable(path).merge(more, "t.n = s.n", source_alias="s", target_alias="t")
    merge.when_matched_update_all().when_not_matched_insert_all().execute()
    DeltaTable(path).optimize.compact()
    write_deltalake(path, more.slice(1), mode="append")
    write_deltalake(path, more, mode="overwrite")
    DeltaTable(path).restore(2)
    begun, _ = plan(spout, begun)
    collector = RecordingCollector(ATTEMPT, spout.output_fields)
    for metadata in begun:
        spout.emitter({}, PlainContext()).emit_batch(ATTEMPT, metadata, collector)
    told = pa.table(DeltaTable(path).load_cdf(0)).select(spout.values.names).to_pylist()
    assert sorted(values[1:] for values in collector.tuples) == sorted(tuple(row.values()) for row in told)


def test_rows_that_are_marked(tmp_path: Path) -> None:
    """Rows that a version marks as dead are deletes, those that it makes alive again inserts, and no others come."""
    path = str(tmp_path / "table")
    table = VectorTable(tmp_path / "table", {"delta.enableChangeDataFeed": "true"})
    name = table.add([1, 2, 3, 4])
    spout = DeltaTransactionalSpout(path, Fields("id: long", *FEED), changes="emit", watch=True, poll_secs=0)
    begun, _ = plan(spout)
    for dead in ([0], [0, 2], [2]):
        table.mark(**{name: BitMap64(dead)})
    collector = RecordingCollector(ATTEMPT, spout.output_fields)
    for metadata in plan(spout, begun)[0][1:]:
        spout.emitter({}, PlainContext()).emit_batch(ATTEMPT, metadata, collector)
    assert [values[1:] for values in collector.tuples] == [(1, "delete", 2), (3, "delete", 3), (1, "insert", 4)]


def test_a_feed_that_is_not_there(path: str) -> None:
    """A table without a feed is refused, and a version from before it was turned on."""
    with pytest.raises(ConfigError, match="has no change data feed"):
        DeltaTransactionalSpout(path, changes="emit")
    DeltaTable(path).update(predicate="n = 0", new_values={"n": 7})
    DeltaTable(path).alter.set_table_properties({"delta.enableChangeDataFeed": "true"})
    spout = DeltaTransactionalSpout(path, changes="emit", starting_version=0, watch=True, poll_secs=0)
    with pytest.raises(InputError, match=r"version 2 .* has no change data: the feed was turned on later"):
        plan(spout)


def test_other_columns(tmp_path: Path) -> None:
    """Partition columns are read, columns that came later are null in older rows, and only the fields are emitted."""
    path = str(tmp_path / "table")
    day = dt.date(2026, 11, 29)
    write_deltalake(path, pa.table({"day": [day, None], "n": pa.array([1, 2], pa.int64())}), partition_by=["day"])
    table = DeltaTable(path)
    table.alter.add_columns([Field("late", PrimitiveType("string"), nullable=True)])
    spout = DeltaTransactionalSpout(path, Fields("late: string", "day: date", "n: bigint"))
    collector = RecordingCollector(ATTEMPT, spout.output_fields)
    for metadata in plan(spout)[0]:
        spout.emitter({}, PlainContext()).emit_batch(ATTEMPT, metadata, collector)
    assert {values[1:] for values in collector.tuples} == {(None, None, 2), (None, day, 1)}


def test_wrong_columns(path: str) -> None:
    """A field that the table lacks or that has another type there is refused, with the nearest name and both types."""
    for fields, match in ((Fields("m: bigint"), "no column 'm'"), (Fields("n: int"), "'n' .* is bigint, .* is int")):
        with pytest.raises(FieldsError, match=match):
            DeltaTransactionalSpout(path, fields).coordinator({}, PlainContext()).resume(0, None)
    with pytest.raises(FieldsError, match="no type"):
        DeltaTransactionalSpout(path, Fields("n"))
    with pytest.raises(ConfigError, match="there is no Delta table"):
        DeltaTransactionalSpout(f"{path}-other")


def list_features(path: str, readers: Sequence[str], writers: Sequence[str]) -> None:
    """Let a table list features from its first version on."""
    entry = Path(path, "_delta_log", f"{0:020}.json")
    actions = [json.loads(line) for line in entry.read_text().splitlines()]
    for action in actions:
        if "protocol" in action:
            features = {"readerFeatures": readers, "writerFeatures": [*readers, *writers]}
            action["protocol"] = {"minReaderVersion": 3, "minWriterVersion": 7, **features}
    entry.write_text("\n".join(map(json.dumps, actions)))


def test_a_table_of_a_catalog(path: str) -> None:
    """A table that only its catalog commits to is refused in words that say so."""
    list_features(path, ["catalogManaged"], ["inCommitTimestamp"])
    with pytest.raises(SourceFailure, match="can't be read now") as caught:
        DeltaTransactionalSpout(path)
    assert "its commits are its catalog's (the feature catalogManaged)" in str(caught.value)


@pytest.mark.parametrize("feature", ["columnMapping", "typeWidening"])
def test_a_feature_that_changes_what_files_have(path: str, feature: str) -> None:
    """It is refused by name, with what to do instead."""
    list_features(path, [feature], [])
    with pytest.raises(ConfigError, match=f"has the table feature {feature}, .* read it by a DataFrameSpout"):
        DeltaTransactionalSpout(path)


def test_features_that_only_writers_heed(path: str) -> None:
    """Clustering, row tracking and the like are no matter of a reader's, nor are checkpoints of another form."""
    list_features(path, ["v2Checkpoint", "timestampNtz"], ["clustering", "domainMetadata", "rowTracking"])
    assert sorted(plan(DeltaTransactionalSpout(path))[1]) == [0, 1]


def test_a_shallow_clone(path: str, tmp_path: Path) -> None:
    """A file of another table is named, rather than taken for one that a vacuum has removed."""
    spout = DeltaTransactionalSpout(path, starting_version=1)
    entry = Path(path, "_delta_log", f"{1:020}.json")
    entry.write_text(entry.read_text().replace('"path":"', f'"path":"file://{tmp_path}/other/'))
    with pytest.raises(InputError, match=r"has the file file:///.* of another table, as a shallow clone has"):
        plan(spout)


def test_a_log_that_was_cleaned_up(path: str) -> None:
    """A spout that was away for longer than the log is kept says so, and what to do."""
    spout = DeltaTransactionalSpout(path, watch=True, poll_secs=0)
    begun, _ = plan(spout)
    append(path, 2)
    append(path, 3)
    DeltaTable(path).create_checkpoint()
    for version in range(3):
        (Path(path) / "_delta_log" / f"{version:020d}.json").unlink()
    with pytest.raises(InputError, match="from 2 on are gone from its log"):
        plan(spout, begun)


def test_a_table_in_place_of_another(tmp_path: Path, path: str) -> None:
    """A table that was replaced under the same path is refused."""
    spout = DeltaTransactionalSpout(path)
    begun, _ = plan(spout)
    Path(path).rename(tmp_path / "former")
    append(path, 7)
    with pytest.raises(InputError, match="was replaced"):
        plan(spout, begun)


@pytest.mark.few(6)
@pytest.mark.parametrize("versions", [2, 3, 5])
@pytest.mark.parametrize("taken", [0, 1, 2, 3])
@pytest.mark.parametrize("begin", [None, 0, 2])
def test_a_table_in_place_of_another_while_it_is_watched(
    tmp_path: Path, path: str, versions: int, taken: int, begin: int | None
) -> None:
    """It is refused whenever it comes, if it has the next version, or as many as were read: it looks like nothing new."""
    spout = DeltaTransactionalSpout(path, watch=True, poll_secs=0, starting_version=begin, batch_files_max=1)
    coordinator, metadata = spout.coordinator({}, PlainContext()), None
    coordinator.resume(0, None)
    for number in range(taken):
        append(path, number)
        metadata = coordinator.initialize_transaction(number + 1, metadata)
    Path(path).rename(tmp_path / "former")
    for number in range(versions):
        append(path, number)
    with pytest.raises(InputError, match="was replaced"):
        while coordinator.is_ready():
            metadata = coordinator.initialize_transaction(taken + 1, metadata)


def test_a_file_that_was_vacuumed(path: str) -> None:
    """Neither a transaction that runs again nor a rewind goes on without a file that is gone."""
    spout = DeltaTransactionalSpout(path)
    begun, _ = plan(spout)
    for file in Path(path).glob("*.parquet"):
        file.unlink()
    with pytest.raises(InputError, match="is gone: a vacuum"):
        numbers_of(spout, begun[0])
    with pytest.raises(InputError, match=r"took the file .* it is gone"):
        spout.coordinator({}, PlainContext()).rewind(0, None, begun)


PARTITIONS = {
    "texts": ["a b/=%é", None, "x:y&?#[]", "", "a%20b"],
    "dates": [dt.date(2026, 1, 1), None, dt.date(1969, 12, 31), dt.date(9999, 1, 1)],
    "truths": [True, None, False],
    "bytes": [b"a b", None, b"\xff"],
    "times": [dt.datetime(2026, 1, 1, 1, 2, 3, 456789, dt.UTC), None, dt.datetime(1969, 12, 31, tzinfo=dt.UTC)],
    "local times": [dt.datetime(2026, 1, 1, 1, 2, 3, 456789), None, dt.datetime(1969, 12, 31)],  # noqa: DTZ001
}


@pytest.mark.parametrize("values", PARTITIONS.values(), ids=PARTITIONS)
@pytest.mark.parametrize("first", [None, 0])
def test_partition_columns(tmp_path: Path, values: list[Any], first: int | None) -> None:
    """They are read as delta-rs reads them, from the table and from its log: nulls, odd characters, times."""
    path = str(tmp_path / "table")
    write_deltalake(path, pa.table({"n": pa.array(range(len(values)), pa.int64()), "p": values}), partition_by=["p"])
    spout = DeltaTransactionalSpout(path, starting_version=first)
    collector = RecordingCollector(ATTEMPT, spout.output_fields)
    for metadata in plan(spout)[0]:
        spout.emitter({}, PlainContext()).emit_batch(ATTEMPT, metadata, collector)
    expected = {row["n"]: row["p"] for row in DeltaTable(path).to_pyarrow_table().to_pylist()}
    assert {values[1]: values[2] for values in collector.tuples} == expected


@pytest.mark.parametrize(
    "begin", [{}, {"as_of_txid": 2}, {"starting_version": 0}, {"starting_version": 4}, {"starting_version": 6}]
)
def test_begin_at_a_version_that_went_back(tmp_path: Path, begin: dict[str, int]) -> None:
    """Who has read nothing begins where a repair has left the table, in as many transactions as it takes."""
    declared = DeltaState(tmp_path, Fields("n: long"), Fields("v: long"))
    state = declared.open("topology", "s", "life", 1)
    for txid in range(1, 4):
        state.write(txid, {txid: TransactionalValue(txid, txid)})
    state.close()
    state = declared.open("topology", "s", "life", 2)
    state.roll_back(2)
    assert DeltaTable(tmp_path).version() == 6
    spout = DeltaTransactionalSpout(tmp_path, Fields("n: long"), batch_files_max=1, changes="emit", **begin)
    found, numbers = plan(spout, count=1)
    found, others = plan(spout, found)
    assert sorted([*numbers, *others]) == ([] if begin.get("starting_version") else [1, 2])
    if found:
        assert spout.coordinator({}, PlainContext()).rewind(1, found[0], found[1:])
    state.write(3, {7: TransactionalValue(3, 7)})
    state.close()
    assert plan(spout, found)[1] == [7]


def test_a_table_that_goes_back_before_it_is_read(tmp_path: Path) -> None:
    """Who has opened it and has read nothing has nothing to take back: it begins with the rows that are there now."""
    declared = DeltaState(tmp_path, Fields("n: long"), Fields("v: long"))
    state = declared.open("topology", "s", "life", 1)
    for txid in range(1, 4):
        state.write(txid, {txid: TransactionalValue(txid, txid)})
    state.close()
    spout = DeltaTransactionalSpout(tmp_path, Fields("n: long"), changes="emit")
    coordinator = spout.coordinator({}, PlainContext())
    coordinator.resume(0, None)
    state = declared.open("topology", "s", "life", 2)
    state.roll_back(2)
    state.close()
    assert coordinator.is_ready()
    found = [coordinator.initialize_transaction(1, None)]
    assert found[0]["snapshot"] == DeltaTable(tmp_path).version()
    assert plan(spout, found) == (found, [])


class Chain:
    """A table that a topology writes, and a reader that follows it."""

    def __init__(self, path: Path, *, has_keys: bool) -> None:
        self.path = path
        self.has_keys = has_keys
        self.declared: DeltaState | DeltaRows = DeltaRows(path, Fields("n: long"))
        if has_keys:
            self.declared = DeltaState(path, Fields("n: long"), Fields("v: long"))
        self.begun: list[Any] = []
        self.lead(1)
        fields = Fields("n: long", "txid: long", *FEED)
        self.spout = DeltaTransactionalSpout(path, fields, starting_version=0, changes="emit")

    def lead(self, epoch: int) -> None:
        self.state: Any = self.declared.open("topology", "s", "life", epoch)

    def write(self, txid: int) -> None:
        if self.has_keys:
            self.state.write(txid, {key: TransactionalValue(txid, txid) for key in (0, txid)})
        else:
            rows = TransactionRows(txid, pa.table({"n": pa.array([txid], pa.int64())}), RowsMode.APPEND)
            self.state.write(txid, self.state.write_rows([rows]))

    def follow(self) -> None:
        self.begun = plan(self.spout, self.begun)[0]

    def seen(self) -> Counter[tuple[int, int]]:
        """Return the rows that the reader has after all that it has read."""
        rows: Counter[tuple[int, int]] = Counter()
        for metadata in self.begun:
            collector = RecordingCollector(ATTEMPT, self.spout.output_fields)
            self.spout.emitter({}, PlainContext()).emit_batch(ATTEMPT, metadata, collector)
            for _, number, txid, kind, _ in collector.tuples:
                rows[number, txid] += {"insert": 1, "update_postimage": 1, "delete": -1, "update_preimage": -1}[kind]
        return +rows

    def rows(self) -> Counter[tuple[int, int]]:
        found = read_table(self.path)
        return Counter(zip(found["n"].to_pylist(), found["txid"].to_pylist(), strict=True))


@pytest.mark.parametrize("has_keys", [True, False])
@pytest.mark.parametrize("read", [0, 1, 2, 4, None])
def test_a_table_that_could_not_go_back(tmp_path: Path, has_keys: bool, read: int | None) -> None:
    """What it had undone is there again, and who had not read it does, also if it read in between (None)."""
    chain = Chain(tmp_path / "t", has_keys=has_keys)
    for txid in range(1, 5):
        chain.write(txid)
        if txid == 1:
            gone = [chain.path / file for file in DeltaTable(chain.path).file_uris()]
        if txid == 3:  # a marker is between them
            chain.lead(2)
        if txid <= (read or 0):
            chain.follow()
    if not has_keys:
        DeltaTable(chain.path).optimize.compact()
    chain.lead(3)
    puts = 0

    def remove(name: str) -> None:
        nonlocal puts
        if name == "delta.write.checked":
            puts += 1
            for file in gone:  # the one that missed it has taken note of that
                file.rename(file.with_suffix(".aside")) if puts == 1 else file.with_suffix(".aside").rename(file)
            if puts == 2 and read is None:
                chain.follow()

    with armed(remove), pytest.raises(StateAccessError, match="it is at transaction 4 again"):
        chain.state.roll_back(1)
    assert puts == 2
    chain.write(5)
    chain.follow()
    assert chain.seen() == chain.rows()
