"""What a coordinator knows of its table, and when it looks."""

import contextlib
import os
import shutil
import time
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field

from state import DeltaState, read_table
from state.delta import writer
from state.delta.log.entries import entry_path
from tests.state.delta.delta_tables import LARGE, maintain, sized
from tests.state.delta.foreign import live_files, move_rows
from tests.transactional.recovery.altered_tables import ALTERATIONS, put_entry
from txtopo import Fields
from txtopo.api.values import TransactionalValue
from txtopo.errors import ConfigError, DivergenceError, LostLead, StateAccessError
from txtopo.failpoints import armed
from txtopo.files.folder import LocalFolder


@pytest.fixture
def state(tmp_path):
    """A table with one write."""
    opened = DeltaState(tmp_path, Fields("k: string"), Fields("n: long")).open("topology", "s", "life", 1)
    opened.write(1, {"a": TransactionalValue(1, 1)})
    return opened


def test_what_was_known_long_ago_is_looked_up(state, tmp_path, monkeypatch):
    """Whoever has been idle for long looks before it writes: others may have written, and removed their entries since."""
    for _ in range(2):
        DeltaTable(tmp_path).update({"n": "n + 1"})
    DeltaTable(tmp_path).create_checkpoint()
    (tmp_path / entry_path(state.version + 1)).unlink()
    now = time.time()
    monkeypatch.setattr(writer.time, "time", lambda: now + 3600)
    with pytest.raises(DivergenceError, match="UPDATE made version"):
        state.write(2, {"a": TransactionalValue(2, 2)})
    assert DeltaTable(tmp_path).version() == state.version + 2


@pytest.mark.few(3)
@pytest.mark.parametrize("is_seen", [False, True], ids=["at once", "one by one"])
@pytest.mark.parametrize("order", [("update", "moved"), ("moved", "update"), ("moved", "update", "moved", "moved")])
def test_a_change_among_harmless_versions(state, tmp_path, monkeypatch, is_seen, order):
    """A change of rows is refused for good, whatever harmless versions come before and after it, seen when."""
    note = state.prepare(2, {"a": TransactionalValue(2, 2)})
    now = time.time()
    for step, each in enumerate(order, 1):
        if each == "update":
            DeltaTable(tmp_path).update({"n": "n + 1"})
        else:
            move_rows(tmp_path, live_files(tmp_path))
        if is_seen and "update" in order[:step]:
            with pytest.raises(DivergenceError, match="UPDATE made version"):
                state.publish(2, note)
            monkeypatch.setattr(writer.time, "time", lambda passed=step: now + 3600 * passed)
    before = DeltaTable(tmp_path).version()
    for write in (lambda: state.publish(2, note), lambda: state.write(2, {"a": TransactionalValue(2, 2)})):
        with pytest.raises(DivergenceError, match="UPDATE made version"):
            write()
    assert DeltaTable(tmp_path).version() == before


STEPS = ("delta.prepared", "delta.write.checked", "folder.drafted", "folder.named", "delta.write.landed")


class Paused:
    """Stops a coordinator where it reaches a failpoint for the n-th time, while others act, for hours."""

    def __init__(self, monkeypatch, name: str, times: int, act) -> None:
        self.monkeypatch = monkeypatch
        self.name = name
        self.times = times
        self.act = act
        self.is_over = False

    def __call__(self, name: str) -> None:
        self.times -= name == self.name
        if self.times == 0 and not self.is_over:
            self.is_over = True
            self.act()
            now = time.clock_gettime
            self.monkeypatch.setattr(writer.time, "clock_gettime", lambda clock: now(clock) + 3 * 3600)


def cleaned_up(path) -> None:
    """Make a checkpoint of a table, and remove all log entries before it."""
    table = DeltaTable(path)
    table.create_checkpoint()
    for version in range(table.version()):
        (path / entry_path(version)).unlink(missing_ok=True)


@pytest.mark.few(5)
@pytest.mark.covering(1)
@pytest.mark.parametrize("deed", ["write", "marker", "upkeep", "roll back", "adopt"])
@pytest.mark.parametrize(
    ("step", "times"), [*((step, 1) for step in STEPS), ("folder.drafted", 2), ("folder.named", 2)]
)
@pytest.mark.parametrize("others", ["a coordinator", "somebody else"])
def test_a_writer_that_is_stopped_across_a_clean_up(tmp_path, monkeypatch, deed, step, times, others):
    """Stopped at any step for longer than the log is kept, it makes nothing of what others did undone, nor believes that
    its own put counts where they have made that version, and removed its entry, before it."""
    declared = DeltaState(tmp_path, Fields("k: string"), Fields("n: long"), upkeep_every_writes=1, files_max=1)
    sized(declared, **LARGE)
    old = declared.open("topology", "s", "life", 1)
    for txid in (1, 2):
        old.write(txid, {f"k{txid}": TransactionalValue(txid, txid)})
    before = DeltaTable(tmp_path).version()
    model = {"k1": 1, "k2": 2}
    visible = []

    def act():
        visible.append(DeltaTable(tmp_path).transaction_version("topology/s") == 3)
        if others == "somebody else":
            for _ in range(2):
                DeltaTable(tmp_path).update({"n": "n + 1"}, predicate="k = 'k1'")
                model["k1"] += 1
        else:
            new = declared.open("topology", "s", "life", 2)
            for txid in (new.last_txid + 1, new.last_txid + 2):
                new.write(txid, {f"k{txid}": TransactionalValue(txid, txid)})
                model[f"k{txid}"] = txid
        cleaned_up(tmp_path)

    deeds = {
        "write": lambda: old.write(3, {"k3": TransactionalValue(3, 9)}),
        "marker": lambda: declared.open("topology", "s", "life", 1),
        "upkeep": lambda: maintain(old),
        "roll back": lambda: old.roll_back(1),
        "adopt": old.adopt,
    }
    paused = Paused(monkeypatch, step, times, act)
    with armed(paused), contextlib.suppress(LostLead, DivergenceError, StateAccessError):
        deeds[deed]()
        # It believes that it has done it: then the others have seen it, or there were none.
        if paused.is_over and deed == "write":
            assert visible == [True]
    if not paused.is_over or deed in {"roll back", "adopt", "marker"}:
        return
    if visible == [True]:
        model["k3"] = 9
    found = read_table(tmp_path).to_pydict()
    assert dict(zip(found["k"], found["n"], strict=True)) == model
    assert DeltaTable(tmp_path).version() > before
    # Whoever is next goes on.
    if others == "a coordinator":
        next_txid = (declared.table().describe().last_txid or 0) + 1
        declared.open("topology", "s", "life", 3).write(next_txid, {"z": TransactionalValue(next_txid, 7)})
        assert read_table(tmp_path).num_rows == len(model) + 1


@pytest.mark.parametrize(
    ("interval", "secs", "is_looked"),
    [
        (None, 110, False),
        (None, 130, True),
        ("interval 2 minutes", 59, False),
        ("interval 2 minutes", 61, True),
        ("INTERVAL 1 hour", 110, False),
        ("interval 1 hours", 130, True),
        ("interval 0 days", 1, True),
        ("interval 1 fortnight", 1, True),
    ],
)
def test_how_long_the_head_is_known(tmp_path, monkeypatch, interval, secs, is_looked):
    """For half of the time that the log's entries surely stay, and two minutes at most; nothing is read within it."""
    declared = DeltaState(tmp_path, Fields("k: string"), Fields("n: long"))
    declared.open("topology", "s", "life", 1)
    if interval is not None:
        DeltaTable(tmp_path).alter.set_table_properties({"delta.logRetentionDuration": interval})
    state = declared.open("topology", "s", "life", 2)
    note = state.prepare(1, {"a": TransactionalValue(1, 1)})
    looks, listed = [], []
    look, of_folder = DeltaTable.update_incremental, LocalFolder.list
    monkeypatch.setattr(DeltaTable, "update_incremental", lambda table: (looks.append(1), look(table))[1])
    monkeypatch.setattr(LocalFolder, "list", lambda *args: (listed.append(1), of_folder(*args))[1])
    now = time.clock_gettime
    monkeypatch.setattr(writer.time, "clock_gettime", lambda clock: now(clock) + secs)
    state.publish(1, note)
    assert bool(looks) == is_looked
    assert not listed or interval in {"interval 0 days", "interval 1 fortnight"}


def test_a_put_that_was_late_leaves_no_entry(state, tmp_path, monkeypatch):
    """What lies below somebody else's checkpoint, and counts for nothing, is shown to nobody."""
    late = state.version + 1

    def act():
        new = DeltaState(tmp_path, Fields("k: string"), Fields("n: long")).open("topology", "s", "life", 2)
        new.write(2, {"b": TransactionalValue(2, 2)})
        cleaned_up(tmp_path)
        for checkpoint in (tmp_path / "_delta_log").glob("*.checkpoint.parquet"):
            os.utime(checkpoint, (time.time() - 1,) * 2)  # files carry the time of a tick

    with armed(Paused(monkeypatch, "delta.write.checked", 1, act)), pytest.raises(LostLead):
        state.write(2, {"a": TransactionalValue(2, 2)})
    assert not (tmp_path / entry_path(late)).exists()
    assert read_table(tmp_path).sort_by("k").to_pydict() == {"k": ["a", "b"], "n": [1, 2], "txid": [1, 2]}


STRANGE = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["strange"], "writerFeatures": ["strange"]}
CHANGES = {
    "DELETE made version 3": lambda table: table.delete("k = 'a'"),
    "UPDATE made version 3": lambda table: table.update({"n": "n + 1"}),
    "RESTORE made version 3": lambda table: table.restore(1),
    "ADD COLUMN made version 3": lambda table: table.alter.add_columns([Field("extra", "string")]),
    "MERGE made version 3": lambda table: (
        table.merge(pa.table({"k": ["a"]}), "s.k = t.k", source_alias="s", target_alias="t")
        .when_matched_delete()
        .execute()
    ),
    "SET TBLPROPERTIES made version 3": lambda table: table.alter.set_table_properties({"delta.appendOnly": "false"}),
}


@pytest.mark.few(4)
@pytest.mark.parametrize("is_followed", [False, True])
@pytest.mark.parametrize("what", CHANGES)
def test_a_change_is_refused_with_the_commands_that_go_on(state, tmp_path, what, is_followed):
    """By its name, at the next group, and with what takes it back or accepts it; so it is at every later one."""
    CHANGES[what](DeltaTable(tmp_path))
    if is_followed:
        DeltaTable(tmp_path).optimize.compact()
    for _ in range(2):
        with pytest.raises(DivergenceError, match=what) as refusal:
            state.write(2, {"a": TransactionalValue(2, 2)})
        assert "'txtopo repair' undoes the change" in str(refusal.value)
        assert "'txtopo repair --accept-foreign-writes' accepts it" in str(refusal.value)


@pytest.mark.parametrize("what", ALTERATIONS)
def test_an_alteration_is_refused_with_the_command_that_goes_on(tmp_path, what):
    """What asks more of a writer than we give is named at the next group."""
    state = DeltaState(tmp_path, Fields("word: string"), Fields("n: long")).open("topology", "s", "life", 1)
    state.write(1, {"a": TransactionalValue(1, 1)})
    ALTERATIONS[what](DeltaTable(tmp_path))
    name = "ADD COLUMN" if what.startswith("extra") else what
    with pytest.raises((ConfigError, DivergenceError), match=f"{name}.*'txtopo repair'"):
        state.write(2, {"a": TransactionalValue(2, 2)})


@pytest.mark.parametrize("protocol", [{"minReaderVersion": 4, "minWriterVersion": 8}, STRANGE])
def test_what_nobody_here_can_read_stops_the_run(state, tmp_path, protocol):
    """It is no failure that passes if the transaction is tried again."""
    put_entry(DeltaTable(tmp_path), {"protocol": protocol})
    with pytest.raises(ConfigError, match=r"neither txtopo nor delta-rs knows.*no way back.*Drop the feature"):
        state.write(2, {"a": TransactionalValue(2, 2)})


@pytest.mark.parametrize("is_another", [False, True])
def test_a_table_that_was_exchanged_stops_the_run(tmp_path, monkeypatch, is_another):
    """Nothing is written into a copy of an earlier time, nor into another table, that lies where ours was."""
    declared = DeltaState(tmp_path / "t", Fields("k: string"), Fields("n: long"))
    state = declared.open("topology", "s", "life", 1)
    shutil.copytree(tmp_path / "t", tmp_path / "copy")
    state.write(1, {"a": TransactionalValue(1, 1)})
    note = state.prepare(2, {"a": TransactionalValue(2, 2)})
    shutil.rmtree(tmp_path / "t")
    if is_another:
        other = declared.open("topology", "s", "life", 1)
        for txid in (1, 2, 3):
            other.write(txid, {"b": TransactionalValue(txid, txid)})
    else:
        shutil.copytree(tmp_path / "copy", tmp_path / "t")
    version = DeltaTable(tmp_path / "t").version()
    now = time.time()
    monkeypatch.setattr(writer.time, "time", lambda: now + 3600)
    with pytest.raises(DivergenceError, match="another one than was opened" if is_another else "restored from a copy"):
        state.publish(2, note)
    assert DeltaTable(tmp_path / "t").version() == version


@pytest.mark.parametrize("has_vectors", [False, True])
def test_a_shallow_clone_of_ours(tmp_path, has_vectors):
    """It has our properties, and another table's files, which that one may delete: it is refused, as it is."""

    def declared(name):
        return DeltaState(tmp_path / name, Fields("k: string"), Fields("n: long"), deletion_vectors=has_vectors)

    state = declared("t").open("topology", "s", "life", 1)
    state.write(1, {"a": TransactionalValue(1, 1)})
    (tmp_path / "clone" / "_delta_log").mkdir(parents=True)
    lines = [line for path in sorted(tmp_path.glob("t/_delta_log/*.json")) for line in path.read_text().splitlines()]
    kept = [line for line in lines if line.startswith(('{"protocol"', '{"metaData"', '{"add"'))]
    text = "\n".join(['{"commitInfo":{"operation":"CLONE"}}', *kept])
    (tmp_path / "clone" / entry_path(0)).write_text(text.replace('"path":"', f'"path":"file:{tmp_path}/t/'))
    before = DeltaTable(tmp_path / "clone").version()
    with pytest.raises(DivergenceError, match=r"as a shallow clone has.*[Cc]opy that table's folder"):
        declared("clone").open("topology", "s", "life", 2)
    assert DeltaTable(tmp_path / "clone").version() == before


KEEPS_NOTHING = {"retention_hours": 0, "dry_run": False, "enforce_retention_duration": False}


def move_and_vacuum(path: Path) -> None:
    """Put all rows in other files, as somebody else, and remove the files that had them."""
    DeltaTable(path).optimize.z_order(["n"])
    DeltaTable(path).vacuum(**KEEPS_NOTHING)


@pytest.mark.parametrize("is_again", [False, True])
def test_files_that_go_as_they_are_to_be_made_durable(tmp_path, monkeypatch, is_again):
    """Somebody moves rows and removes the files between a look and its syncs: the files that have them now are synced."""
    declared = DeltaState(tmp_path / "t", Fields("k: string"), Fields("n: long"), upkeep_every_writes=1_000)
    state = declared.open("topology", "s", "life", 1)
    for txid in (1, 2):
        note = state.prepare(txid, {f"w{txid}": TransactionalValue(txid, txid)})
        state.publish(txid, note)
    DeltaTable(declared.path).optimize.compact()
    DeltaTable(declared.path).optimize.z_order(["k"])
    original, left = writer.sync_files, [1, 2, 3]

    def sync_files(files):
        files = list(files)
        if left and files:
            left.pop()
            move_and_vacuum(Path(declared.path))
        original(files)

    state = declared.open("topology", "s", "life", 2)
    monkeypatch.setattr(writer, "sync_files", sync_files)
    if is_again:
        state.publish(2, note)
    else:
        move_and_vacuum(Path(declared.path))
        state.write(3, {"w3": TransactionalValue(3, 3)})
    assert left == []
    found = read_table(declared.path)
    assert sorted(found["n"].to_pylist()) == ([1, 2] if is_again else [1, 2, 3])
