"""Writes that are prepared and published: by whom, after whatever, they are in the table once or not at all."""

import os
import threading
import time
from collections import Counter
from pathlib import Path

import attrs
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from state import DeltaRows, DeltaState, read_table
from state.delta.log import data_files
from state.delta.log.entries import entry_path
from tests.state.delta.delta_tables import LARGE, NotedDeltaState, fold, reread, sized
from tests.state.delta.inline_executors import InlineExecutors
from tests.variants import variants
from txtopo import Fields
from txtopo.api.values import TransactionalValue
from txtopo.api.writes import RowsMode, TransactionRows
from txtopo.errors import ConfigError, DivergenceError, LostLead, StateAccessError
from txtopo.failpoints import armed
from txtopo.files.folder import LocalFolder
from txtopo.transactional.recovery.tables import growing

KINDS = (
    "whole",
    "files",
    "vectors",
    "vectors of many rows",
    "noted",
    "vectors, noted",
    "files of executors",
    "vectors of executors",
    "rows",
)
BEFORE = {("a", 1, 1): 1, ("b", 1, 1): 1, ("c", 1, 1): 1}
AFTER = {
    "whole": {("a", 2, 2): 1, ("b", 1, 1): 1},
    "files": {("a", 2, 2): 1, ("b", 1, 1): 1},
    "vectors": {("a", 2, 2): 1, ("b", 1, 1): 1},
    "vectors of many rows": {("a", 2, 2): 1, ("b", 1, 1): 1},
    "noted": {("a", 2, 2): 1, ("b", 1, 1): 1},
    "vectors, noted": {("a", 2, 2): 1, ("b", 1, 1): 1},
    "files of executors": {("a", 2, 2): 1, ("b", 1, 1): 1, ("c", 1, 1): 1},
    "vectors of executors": {("a", 2, 2): 1, ("b", 1, 1): 1, ("c", 1, 1): 1},
    "rows": {**BEFORE, ("a", 1, 2): 1},
}
"""What each kind of write leaves: it puts a; those by key remove c, too."""
NOTED = ("noted", "vectors, noted")
BY_EXECUTORS = ("files of executors", "vectors of executors")


class Place:
    """A table with rows, and coordinators that open it one after another."""

    def __init__(self, path: Path, kind: str, **sizes: int) -> None:
        self.path = path
        self.kind = kind
        fields = Fields("k: string", "n: long")
        keyed = Fields("k: string"), Fields("n: long")
        vectors = kind.startswith("vectors")
        declared = NotedDeltaState if kind in NOTED else DeltaState
        state = DeltaRows(path, fields) if kind == "rows" else declared(path, *keyed, deletion_vectors=vectors)
        self.state = sized(state, **sizes)
        self.epoch = 0
        state = self.opened()
        if kind == "rows":
            state.write(1, state.write_rows([rows_put(1, "abc")]))
        else:
            state.write(1, {key: TransactionalValue(1, 1) for key in "abc"})

    def opened(self):
        """Open the table as the next coordinator does."""
        self.epoch += 1
        state = self.state.open("topology", "s", "life", self.epoch)
        if self.kind in BY_EXECUTORS:
            state.use_executors(InlineExecutors(), 0)
        return state

    def prepare(self, state):
        """Prepare the write of transaction 2, and return its note."""
        if self.kind == "rows":
            return state.prepare(2, state.write_rows([rows_put(2, "a")]))
        if self.kind in BY_EXECUTORS:
            return state.prepare(2, fold(state, (2, {"a": 1})))
        return state.prepare(2, {"a": TransactionalValue(2, 2), "c": None})

    def rows(self) -> Counter:
        return Counter(tuple(row.values()) for row in read_table(self.path).to_pylist())

    def optimize(self) -> None:
        """Move all rows to other files, as somebody else does, and remove the old ones."""
        table = DeltaTable(self.path)
        table.optimize.compact()
        table.vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)

    def append(self) -> None:
        """Add a row, as somebody else does."""
        row = pa.table({"k": ["x"], "n": [9], "txid": [1]}, schema=pa.schema(DeltaTable(self.path).schema()))
        write_deltalake(self.path, row, mode="append")


def rows_put(txid, keys):
    return TransactionRows(txid, pa.table({"k": list(keys), "n": [1] * len(keys)}), RowsMode.APPEND)


@pytest.fixture(params=KINDS)
def place(request, tmp_path) -> Place:
    """A table for each kind of write; in small files, so that an OPTIMIZE moves them."""
    large = LARGE if request.param in {"files", "vectors of many rows"} else {}
    return Place(tmp_path / "t", request.param, file_rows=1, **large)


@pytest.mark.few(2)
def test_nothing_is_seen_until_it_is_published(place):
    """Promise 9: what is prepared is invisible; the next coordinator publishes it, once, and goes on from there."""
    state = place.opened()
    note = reread(place.prepare(state))
    assert (place.rows(), state.last_txid) == (BEFORE, 1)
    again = place.opened()
    assert place.state.table().obstacle(2, note) is None
    for _ in range(2):
        again.publish(2, note)
        assert (place.rows(), again.last_txid) == (AFTER[place.kind], 2)
    with pytest.raises(LostLead):
        state.publish(2, note)
    assert place.state.table().obstacle(2, note) is None
    if place.kind == "rows":
        return
    assert [value.value for value in again.multi_get(["a", "b"])] == [2, 1]
    again.write(3, {"b": TransactionalValue(3, 3)})
    assert place.rows()["b", 3, 3] == 1


@pytest.mark.few(1)
@pytest.mark.covering(1)
@pytest.mark.parametrize("moment", ["prepared", "opened", "checked"])
def test_rows_that_were_moved_meanwhile(place, moment):
    """An OPTIMIZE and a VACUUM at any moment change nothing: no row is lost, doubled, or comes back."""
    note = reread(place.prepare(place.opened()))
    if moment == "prepared":
        place.optimize()
    again = place.opened()
    if moment == "opened":
        place.optimize()
    done = []

    def handler(name):
        if (name, moment) == ("delta.write.checked", "checked") and not done:
            done.append(name)
            place.optimize()

    assert place.state.table().obstacle(2, note) is None
    with armed(handler):
        again.publish(2, note)
    assert place.rows() == AFTER[place.kind]
    assert DeltaTable(place.path).version() >= 5


@pytest.mark.few(1)
@pytest.mark.covering(1)
@pytest.mark.parametrize("way", ["left", "rolled back", "adopted", "adopted and rolled back", "rolled back too far"])
def test_rows_that_were_changed_meanwhile(place, way):
    """What somebody adds is never written over. Once it is rolled back, the write is made; if it was accepted, one that
    was computed from other rows is not."""
    note = reread(place.prepare(place.opened()))
    place.append()
    again = place.opened()
    if way in {"adopted", "adopted and rolled back"}:
        again.adopt()
    if way == "adopted and rolled back":
        place.append()
        again = place.opened()
    if way.endswith("rolled back"):
        again.roll_back(1)
    if way == "rolled back too far":
        again.roll_back(None)
    obstacle = place.state.table().obstacle(2, note)
    is_made = way == "rolled back" or place.kind == "rows"
    if is_made:
        assert obstacle is None
        again.publish(2, note)
        expected = {"left": {("x", 9, 1): 1}, "rolled back": {}, "rolled back too far": {}}.get(way, {("x", 9, 1): 1})
        before = AFTER[place.kind] if way != "rolled back too far" else {("a", 1, 2): 1}
        assert place.rows() == {**before, **expected}
    else:
        assert "which was computed" in obstacle
        held = place.rows()
        with pytest.raises(DivergenceError, match="was computed"):
            again.publish(2, note)
        assert place.rows() == held


@pytest.mark.few(4)
def test_a_change_that_is_found_while_it_is_prepared(place):
    """Whoever prepares a write on top of rows that somebody has changed is stopped."""
    state = place.opened()
    place.append()
    with pytest.raises(DivergenceError, match="somebody else has changed"):
        state.write(2, {}) if place.kind == "rows" else state.write(2, {"a": TransactionalValue(2, 2)})


@pytest.mark.few(4)
@pytest.mark.parametrize("damage", [Path.unlink, lambda file: file.write_bytes(b"0")], ids=["gone", "other"])
def test_a_file_that_is_gone(place, damage):
    """A write whose files are not there, whole, is refused; the table stays as it is."""
    note = reread(place.prepare(place.opened()))
    if place.kind in NOTED:
        assert not data_files.files_in(note)
        return
    damage(place.path / data_files.files_in(note)[-1].path)
    assert "which needs the file _data/" in place.state.table().obstacle(2, note)
    with pytest.raises(DivergenceError, match="needs the file"):
        place.opened().publish(2, note)
    assert place.rows() == BEFORE


@pytest.mark.few(3)
@pytest.mark.parametrize("vectors", [False, True], ids=["to files", "to vectors"])
@pytest.mark.parametrize("sizes", [{}, LARGE], ids=["in memory", "large"])
@pytest.mark.parametrize("kind", NOTED)
def test_a_table_that_is_declared_otherwise_meanwhile(tmp_path, kind, sizes, vectors):
    """Rows of a note are written to the table as it is; then it gets its new column, and deletion vectors or none."""
    place = Place(tmp_path / "t", kind, **sizes)
    note = reread(place.prepare(place.opened()))
    fields = Fields("k: string"), Fields("n: long", "m: string")
    declared = DeltaState(place.path, *fields, deletion_vectors=vectors, schema_evolution="add")
    state = sized(growing(declared), **sizes).open("topology", "s", "life", place.epoch + 1)
    state.publish(2, note)
    entry = (place.path / entry_path(state.version)).read_text()
    assert ("deletionVector" in entry) == (vectors and kind.startswith("vectors"))
    state.clean_up()
    state.grow()
    state.write(3, {"d": TransactionalValue(3, (3, "x"))})
    assert place.rows() == {("a", 2, None, 2): 1, ("b", 1, None, 1): 1, ("d", 3, "x", 3): 1}


def test_a_further_try_writes_no_further_files(tmp_path):
    """Where the entry of a write can't be put, its files are there already: they are those of the next try."""
    place = Place(tmp_path / "t", "noted")
    state = place.opened()
    note = place.prepare(state)

    def fail(name):
        if name == "delta.write.checked":
            raise OSError("full")

    for _ in range(3):
        with pytest.raises(OSError, match="full"), armed(fail):
            state.publish(2, note)
    state.publish(2, note)
    assert (place.rows(), len(list(place.path.glob("_data/keys-2-*")))) == (AFTER["noted"], 1)


@pytest.mark.few(4)
@pytest.mark.parametrize("lost", ["answer", "name"])
def test_a_write_of_a_dead_coordinator(place, monkeypatch, lost):
    """If its answer was lost it is found and synced; if a power failure lost its name, it is written again."""
    state = place.opened()
    note = reread(place.prepare(state))
    state.publish(2, note)
    if lost == "name":
        (place.path / entry_path(state.version)).unlink()
    again = place.opened()
    synced = set()
    sync = os.fsync

    def noting(descriptor):
        synced.add(Path(f"/proc/self/fd/{descriptor}").readlink())
        sync(descriptor)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", noting)
        again.publish(2, note)
    assert place.rows() == AFTER[place.kind]
    if lost == "answer":
        files = {Path(file) for file in DeltaTable(place.path).file_uris()}
        assert {place.path / entry_path(state.version), place.path / "_delta_log", *files} <= synced


@pytest.mark.parametrize("moment", ["before it is opened", "afterwards"])
def test_what_a_write_stands_on_is_durable(tmp_path, monkeypatch, moment):
    """Versions of others, and their files, are synced before a write or a marker counts that comes after them."""
    place = Place(tmp_path / "t", "whole", file_rows=1)
    state = place.opened()
    note = place.prepare(state)
    place.optimize()
    synced = set()
    sync = os.fsync

    def noting(descriptor):
        synced.add(Path(f"/proc/self/fd/{descriptor}").readlink())
        sync(descriptor)

    before = DeltaTable(place.path)
    monkeypatch.setattr(os, "fsync", noting)
    if moment == "afterwards":
        state.publish(2, note)
    else:
        place.opened()
    assert {place.path / entry_path(before.version()), *map(Path, before.file_uris())} <= synced


def test_a_quiet_group_reads_nothing(tmp_path, monkeypatch):
    """A table that nobody else writes to costs two requests a group: the data file, and the log's entry."""
    requests = []
    for name in ("put", "put_new", "put_if_absent", "drafted", "get", "get_range", "list", "delete", "size"):
        whole = getattr(LocalFolder, name)
        monkeypatch.setattr(
            LocalFolder,
            name,
            lambda *args, whole=whole, name=name, **options: (requests.append(name), whole(*args, **options))[1],
        )
    places = [Place(tmp_path / kind, kind) for kind in ("whole", "rows")]
    states = [place.opened() for place in places]
    states[0].multi_get(["a"])
    monkeypatch.setattr(DeltaTable, "update_incremental", None)
    for txid in range(2, 6):
        requests.clear()
        states[0].multi_get(["a", "z"])
        states[0].write(txid, {"a": TransactionalValue(txid, txid)})
        assert requests == ["put_new", "drafted"]
        requests.clear()
        states[1].write(txid, states[1].write_rows([rows_put(txid, "a")]))
        assert requests == ["put_new", "drafted"]


def test_content_is_durable_before_it_is_seen(place, monkeypatch):
    """Data files and their names are synced when a write is prepared, or published if its note has the rows; the entry
    before it has its name, that at the end."""
    state = place.opened()
    done = []
    sync, link = os.fsync, os.link

    def kind_of(path):
        place = Path(path)
        name = "data" if "_data" in place.parts else "log"
        return f"names of {name}" if place.is_dir() else name

    def noting(descriptor):
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        sync(descriptor)
        done.append(kind_of(path))

    monkeypatch.setattr(os, "fsync", noting)
    monkeypatch.setattr(os, "link", lambda draft, name: (done.append("link"), link(draft, name))[1])
    note = place.prepare(state)
    prepared = done.copy()
    assert bool(prepared) == (place.kind not in NOTED)
    state.publish(2, note)
    of_data = Counter(each for each in prepared or done[:-2] if each != "log")
    assert of_data == dict.fromkeys(("data", "names of data"), 2 if place.kind == "whole" else of_data["data"])
    assert "log" in done[:-2], "beside the data"
    assert done[-2:] == ["link", "names of log"]


@pytest.mark.few(4)
def test_what_dead_writers_have_left_is_removed(place):
    """A process that dies in the middle of a file leaves a draft, or a part of a data file, which the next run removes."""

    def dies_at(step):
        def die(name):
            if name == step:
                raise KeyboardInterrupt

        return armed(die)

    before = data_files_of(place.path)
    with pytest.raises(KeyboardInterrupt), dies_at("folder.named"):
        state = place.opened()
        state.publish(2, place.prepare(state))
    for part in data_files_of(place.path) - before:
        os.truncate(place.path / "_data" / part, 4)
    state = place.opened()
    note = place.prepare(state)
    with pytest.raises(KeyboardInterrupt), dies_at("folder.drafted"):
        state.publish(2, note)
    (place.path / "_data" / ".draft-1").write_bytes(b"half")
    (place.path / "_delta_log" / ".draft-2").write_bytes(b"half")
    place.opened().clean_up()
    assert not list(place.path.rglob(".draft-*"))
    assert data_files_of(place.path) == before
    assert place.rows() == BEFORE


def test_what_a_crash_in_publishing_has_left_is_removed(place):
    """A group that is decided by its rows is published by the next run with files of its own, and no others stay."""
    state = place.opened()
    note = reread(place.prepare(state))

    def die(name):
        if name == "delta.write.checked":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), armed(die):
        state.publish(2, note)
    left = data_files_of(place.path)
    again = place.opened()
    again.publish(2, note)
    again.clean_up()
    assert place.rows() == AFTER[place.kind]
    assert len(data_files_of(place.path)) == len(left)


@pytest.mark.parametrize("meanwhile", ["nothing", "a version", "seconds", "another try", "its removal"])
def test_an_entry_that_was_drafted_is_put_where_it_still_is_the_next_one(tmp_path, monkeypatch, meanwhile):
    """Prepared, it waits for its name. Where it has become another one, or was removed, one is written anew."""
    later, now = [0], time.time()
    monkeypatch.setattr(time, "time", lambda: now + later[0])
    state = DeltaState(tmp_path / "t", Fields("k: string"), Fields("n: long")).open("topology", "s", "life", 1)
    log = tmp_path / "t" / "_delta_log"
    note = state.prepare(1, {"a": TransactionalValue(1, 1)})
    (draft,) = log.glob(".draft-*")
    held = draft.open()  # no other file has its inode meanwhile
    match meanwhile:
        case "a version":
            (tmp_path / "t" / "stray.parquet").touch()
            DeltaTable(tmp_path / "t").vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
        case "seconds":
            later[0] = 2
        case "another try":
            note = state.prepare(1, {"a": TransactionalValue(1, 1)})
        case "its removal":
            draft.unlink()
    state.publish(1, note)
    newest = max(log.glob("*.json"))
    is_drafted = newest.stat().st_ino == os.fstat(held.fileno()).st_ino
    held.close()
    assert is_drafted == (meanwhile == "nothing")
    assert state.multi_get(["a"]) == [TransactionalValue(1, 1)]
    assert not list(log.glob(".draft-*"))


def test_a_draft_in_vain_goes_when_its_table_is_closed(tmp_path):
    """A group that is not decided leaves nothing in the log."""
    state = DeltaState(tmp_path / "t", Fields("k: string"), Fields("n: long")).open("topology", "s", "life", 1)
    state.prepare(1, {"a": TransactionalValue(1, 1)})
    state.close()
    assert not list((tmp_path / "t").rglob(".draft-*"))


def data_files_of(path):
    return {file.name for file in (path / "_data").iterdir()}


@pytest.mark.few(2)
def test_what_was_prepared_and_never_decided_is_removed(place):
    """The next run removes the files of a start that failed, and nothing else: not those of earlier versions."""
    state = place.opened()
    state.publish(2, place.prepare(state))
    before = data_files_of(place.path)
    for epoch in range(2):
        state = place.opened()
        if place.kind == "rows":
            state.write_rows([rows_put(3, "ab")])
        elif place.kind in BY_EXECUTORS:
            state.prepare(3, fold(state, (3, {"a": 1, "b": 1})))
        else:
            state.prepare(3, {"a": TransactionalValue(3, 3), "b": None})
        assert (data_files_of(place.path) > before) == (place.kind not in NOTED)
        place.opened().clean_up()
        assert data_files_of(place.path) == before, epoch
    assert place.rows() == AFTER[place.kind]
    assert read_table(place.path, 1).num_rows == 3


@pytest.mark.few(4)
@pytest.mark.parametrize("is_of_one_second", [False, True])
def test_what_a_roll_back_has_undone_stays(place, monkeypatch, is_of_one_second):
    """Its files are of transactions that the table no longer has, and of versions that the log still has.

    So it is within a second, too, on a store that tells whole ones.
    """
    if is_of_one_second:
        listed = LocalFolder.list
        monkeypatch.setattr(
            LocalFolder, "list", lambda *args: [attrs.evolve(each, modified_secs=9.0) for each in listed(*args)]
        )
    state = place.opened()
    state.publish(2, place.prepare(state))
    before = data_files_of(place.path)
    place.opened().roll_back(1)
    place.opened().clean_up()
    assert data_files_of(place.path) == before
    assert place.rows() == BEFORE


@pytest.mark.slow
@pytest.mark.parametrize("last", variants(50, slow=[200], long=[1001]))
def test_two_coordinators_race(tmp_path, last):
    """Of two that publish the same transaction at once, again and again, one writes it, and both go on."""
    place = Place(tmp_path / "t", "whole")
    place.epoch = 1
    states = [place.state.open("topology", "s", "life", 2) for _ in range(2)]
    start = threading.Barrier(2)
    failures = []

    def race(state):
        for txid in range(2, last + 1):
            start.wait()
            try:
                state.publish(txid, state.prepare(txid, {}))
            except Exception as error:  # noqa: BLE001 - any is a failure of this test
                failures.append(error)

    threads = [threading.Thread(target=race, args=(state,)) for state in states]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    table = DeltaTable(place.path)
    assert (table.version(), table.transaction_version("topology/s")) == (last + 3, last)


def test_a_change_of_what_the_table_asks_for_is_refused(place):
    """Somebody may turn on what txtopo does not write, before the table is opened or while it is."""
    state = place.opened()
    note = place.prepare(state)
    DeltaTable(place.path).alter.set_table_properties({"delta.appendOnly": "true"})
    with pytest.raises(ConfigError, match="appendOnly"):
        state.publish(2, note)
    with pytest.raises(ConfigError, match="appendOnly"):
        place.opened()


def test_a_roll_back_keeps_statistics(tmp_path: Path) -> None:
    """The files that come back are listed as they were: with their rows and bounds, by which readers skip them."""
    path = str(tmp_path / "t")
    declared = DeltaState(path, key=Fields("k: string"), value=Fields("n: long"))
    state = declared.open("topology", "state", "incarnation", 1)
    state.write(1, {"a": TransactionalValue(1, 5), "b": TransactionalValue(1, 7)})
    before = listed(path)
    state.write(2, {"c": TransactionalValue(2, 9)})
    state.roll_back(1)
    assert listed(path) == before
    assert before[0]["num_records"] == 2
    assert (before[0]["min.n"], before[0]["max.k"]) == (5, "b")


def listed(path: str) -> list[dict[str, object]]:
    """Return what the log says of a table's files, but when it said so."""
    rows = pa.table(DeltaTable(path).get_add_actions(flatten=True)).to_pylist()
    return [{name: value for name, value in row.items() if name != "modification_time"} for row in rows]


@pytest.mark.parametrize("is_disturbed", [False, True])
def test_a_roll_back_whose_files_are_gone(tmp_path: Path, is_disturbed: bool) -> None:
    """An older coordinator's upkeep may remove a file that the roll-back takes in: the table then stays as it was.

    Unless somebody else has changed it: their rows do not become the topology's by that.
    """
    place = Place(tmp_path / "t", "whole")
    state = place.opened()
    taken_in = {place.path / file for file in DeltaTable(place.path).file_uris()}
    state.write(2, {"a": TransactionalValue(2, 2), "c": None})
    if is_disturbed:
        place.append()

    def remove(name: str) -> None:
        if name == "delta.write.checked":
            for file in taken_in:
                file.unlink(missing_ok=True)

    with armed(remove), pytest.raises(StateAccessError, match="is gone"):
        state.roll_back(1)
    if is_disturbed:
        assert state.last_txid == 1
        return
    assert (place.rows(), state.last_txid) == (AFTER["whole"], 2)
    again = place.opened()
    assert place.state.table().kept(range(3)) == {0, 2}
    again.write(3, {"b": TransactionalValue(3, 3)})
    assert place.rows()["b", 3, 3] == 1
