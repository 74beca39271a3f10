"""An OPTIMIZE by somebody else, at any moment of ours, with every kind of table: no row is lost or doubled."""

import contextlib
import json
import random
import subprocess
import sys
import threading
import time
from collections import Counter

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError

from state import DeltaExpiringRows, DeltaRows, DeltaState
from state.delta.log import put
from state.delta.log.entries import entry_path
from tests.state.delta.delta_tables import LARGE, NotedDeltaState, maintain, sized
from tests.state.delta.dying_run import KINDS as DYING, DyingRun
from tests.state.delta.foreign import live_files, move_rows, rows_in
from tests.variants import variants
from txtopo import Fields
from txtopo.api.values import TransactionalValue
from txtopo.api.writes import RowsMode, TransactionRows
from txtopo.errors import DivergenceError, StateFailure
from txtopo.failpoints import armed

KEYED = ("whole", "files", "vectors", "vectors of many rows", "noted", "vectors, noted")
KINDS = (*KEYED, "rows", "partitioned", "expiring")
OFTEN = {"upkeep_every_writes": 1, "files_max": 1}
HOUR_US = 3_600_000_000


class Table:
    """A table of one kind, which transaction N gives the row N, and a plain list of what it should hold."""

    def __init__(self, path, kind: str, **sizes: int) -> None:
        self.path = path
        self.kind = kind
        self.state = sized(self._state(), **sizes)
        self.epoch = 0
        self.opened = self.open()
        self.model: Counter = Counter()
        self.models: dict[int, Counter] = {}

    def _state(self):
        match self.kind:
            case "rows":
                return DeltaRows(self.path, Fields("k: string", "n: long"), **OFTEN)
            case "partitioned":
                return DeltaRows(self.path, Fields("k: string", "n: long"), partition_by="k", **OFTEN)
            case "expiring":
                return DeltaExpiringRows(self.path, Fields("k: string", "n: long", "at: timestamp"), "at", **OFTEN)
            case _:
                has_vectors = self.kind.startswith("vectors")
                fields = Fields("k: string"), Fields("n: long")
                declared = NotedDeltaState if self.kind.endswith("noted") else DeltaState
                return declared(self.path, *fields, deletion_vectors=has_vectors, **OFTEN)

    def open(self):
        self.epoch += 1
        self.opened = self.state.open("topology", "s", "life", self.epoch)
        return self.opened

    def prepare(self, txid: int):
        """Prepare transaction N: it puts a row of its own, and changes one that is there if the kind can."""
        if self.kind in KEYED:
            values = {f"w{txid}": TransactionalValue(txid, 1)}
            if txid > 1:
                values["w1"] = TransactionalValue(txid, txid)
            return self.opened.prepare(txid, values)
        columns = {"k": [f"w{txid % 2}"], "n": [txid]}
        if self.kind == "expiring":
            columns["at"] = pa.array([txid * HOUR_US], pa.timestamp("us", "UTC"))
        mode = RowsMode.REPLACE if self.kind == "partitioned" and not txid % 3 else RowsMode.APPEND
        return self.opened.prepare(txid, self.opened.write_rows([TransactionRows(txid, pa.table(columns), mode)]))

    def publish(self, txid: int, note) -> None:
        self.opened.publish(txid, note)
        self.count(txid)

    def count(self, txid: int) -> None:
        """Take note that a transaction is in the table."""
        self._count(txid)
        self.models[txid] = self.model.copy()

    def _count(self, txid: int) -> None:
        if self.kind in KEYED:
            self.model = Counter({key: n for key, n in self.model.items() if key[0] != "w1"})
            self.model["w1", txid, txid] = 1
            if txid > 1:
                self.model[f"w{txid}", 1, txid] = 1
            return
        if self.kind == "partitioned" and not txid % 3:
            self.model = Counter({key: n for key, n in self.model.items() if key[0] != f"w{txid % 2}"})
        self.model[f"w{txid % 2}", txid, txid] += 1

    def go_back(self, txid: int) -> None:
        """Take note that the table is as of a transaction again."""
        self.model = self.models[txid]

    def write(self, txid: int) -> None:
        self.publish(txid, self.prepare(txid))

    def rows(self) -> Counter:
        found = pa.table(DeltaTable(self.path).scan(columns=["k", "n", "txid"]))
        return Counter(zip(*found.to_pydict().values(), strict=True))


@pytest.fixture(params=KINDS)
def table(request, tmp_path) -> Table:
    """A table with three transactions, in several files."""
    sizes = {"tier_files": 2, **({} if request.param in {"whole", "vectors"} else LARGE)}
    if request.param != "expiring":  # its upkeep would take each file for full
        sizes["file_rows"] = 1
    made = Table(tmp_path / "t", request.param, **sizes)
    for txid in (1, 2, 4):
        made.write(txid)
    return made


def compact(table: DeltaTable) -> None:
    table.optimize.compact()


def order(table: DeltaTable) -> None:
    table.optimize.z_order(["n"])


@pytest.mark.few(2)
@pytest.mark.parametrize("optimize", [compact, order])
@pytest.mark.parametrize("deed", ["write", "upkeep", "opening", "roll back"])
def test_one_that_has_looked_before_us(table, deed, optimize):
    """Somebody's OPTIMIZE may begin before our version and end after it: it fails, or leaves every row once."""
    other = DeltaTable(table.path)
    match deed:
        case "write":
            table.write(5)
        case "upkeep":
            files = live_files(table.path)
            maintain(table.opened)
            assert live_files(table.path) != files
        case "opening":
            table.open()
        case "roll back":
            table.opened.roll_back(4)
            table.opened.roll_back(2)
            table.go_back(2)
    try:
        optimize(other)
    except CommitFailedError:
        assert deed != "opening"
    assert table.rows() == table.model
    table.write(7)
    assert table.rows() == table.model


def append_nothing(table: DeltaTable) -> None:
    write_deltalake(table, pa.schema(table.schema()).empty_table(), mode="append")


MOMENTS = ("before the note", "after the note", "before the put", "in our upkeep", "after the put")


@pytest.mark.slow
@pytest.mark.parametrize(("optimize", "is_vacuumed"), variants((compact, True), long=[(compact, False), (order, True)]))
def test_one_between_our_steps(table, optimize, is_vacuumed):
    """Between our note, our put and our own upkeep; twice in a row, with a vacuum that keeps nothing, too."""

    def tidy_up(moment):
        if moment != due:
            return
        done.append(moment)
        for _ in range(2):
            optimize(DeltaTable(table.path))
            if is_vacuumed:
                DeltaTable(table.path).vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)

    def meanwhile(moment):
        return armed(lambda name: tidy_up(moment) if name == "delta.write.checked" and moment not in done else None)

    for txid, due in enumerate(MOMENTS, 5):
        done = []
        tidy_up("before the note")
        note = table.prepare(txid)
        tidy_up("after the note")
        with meanwhile("before the put"):
            table.publish(txid, note)
        tidy_up("after the put")
        with meanwhile("in our upkeep"):
            maintain(table.opened)
        assert done == [due]
        assert table.rows() == table.model


@pytest.mark.few(2)
def test_ones_before_and_after_a_note_that_a_recovery_publishes(table):
    """A note marks rows in a file of somebody else's, whose rows they then move, and whom a vacuum takes: it is published."""
    compact(DeltaTable(table.path))
    table.open()
    note = json.loads(json.dumps(table.prepare(5)))
    order(DeltaTable(table.path))
    DeltaTable(table.path).vacuum(0, dry_run=False, enforce_retention_duration=False)
    table.open()
    assert table.state.table().obstacle(5, note) is None
    table.publish(5, note)
    assert table.rows() == table.model


@pytest.mark.few(3)
@pytest.mark.parametrize("optimize", [compact, order])
def test_one_that_a_look_up_has_seen_before_our_put(table, optimize):
    """Whoever looks keys up between a note and its put may see other files by then: the rows in memory follow those."""
    if table.kind not in KEYED:
        pytest.skip("there are no keys to look up")
    note = table.prepare(5)
    optimize(DeltaTable(table.path))
    table.opened.roll_back(4)  # it is there, so only the head is looked up
    assert table.opened.multi_get(["w1", "w5"]) == [TransactionalValue(4, 4), None]
    table.publish(5, note)
    assert table.opened.multi_get(["w1", "w5"]) == [TransactionalValue(5, 5), TransactionalValue(5, 1)]
    table.write(6)
    assert table.rows() == table.model


def double(table: Table) -> None:
    """Let two writers of delta-rs compact at once, which puts the rows in twice."""
    other = DeltaTable(table.path)
    compact(DeltaTable(table.path))
    order(other)


def lose(table: Table) -> None:
    """Call it an OPTIMIZE, and leave a row out."""
    files = live_files(table.path)
    rows = rows_in(table.path, files)
    move_rows(table.path, files, rows.slice(1))


def exchange(table: Table) -> None:
    """Call it an OPTIMIZE, and put one row in another's place."""
    files = live_files(table.path)
    rows = rows_in(table.path, files)
    move_rows(table.path, files, rows.take(pa.array([1, *range(1, rows.num_rows)])))


def revalue(table: Table) -> None:
    """Call it an OPTIMIZE, and change a value, but no key and no transaction."""
    files = live_files(table.path)
    rows = rows_in(table.path, files)
    move_rows(table.path, files, rows.set_column(rows.column_names.index("n"), "n", pc.add(rows["n"], 1)))


def remove(table: Table) -> None:
    """Remove files without another word, and bring the rows of one of them back."""
    files = live_files(table.path)
    move_rows(table.path, files, rows_in(table.path, files[:1]), "VACUUM START")


def alter(table: Table) -> None:
    """Change a row, and call it an OPTIMIZE."""
    DeltaTable(table.path).update({"txid": "0"}, predicate="n = 1")
    entry = table.path / entry_path(DeltaTable(table.path).version())
    entry.write_text(entry.read_text().replace("UPDATE", "OPTIMIZE"))


@pytest.mark.few(1)
@pytest.mark.parametrize("change", [double, lose, exchange, revalue, remove, alter])
@pytest.mark.parametrize("after", variants("another", "start", long=["nothing", "upkeep"]))
def test_one_that_changes_rows(table, change, after):
    """It is believed by what it did, and not by its name, whatever follows; and once it is taken back, the run goes on."""
    if table.kind == "partitioned" and change not in {double, alter}:
        pytest.skip("files moved by hand have no partition")
    change(table)
    rows = table.rows()
    if after == "another":
        compact(DeltaTable(table.path))
    if after == "upkeep":
        with contextlib.suppress(DivergenceError):
            maintain(table.opened)
    if after == "start":
        assert table.state.table().foreign_change(table.opened.version) is not None
        assert table.state.table().foreign_change(None) is not None
        return
    with pytest.raises(DivergenceError, match="made version"):
        table.write(5)
    assert table.rows() == rows
    table.opened.roll_back(4)
    table.write(5)
    assert table.rows() == table.model


@pytest.mark.few(2)
@pytest.mark.parametrize("is_same", [True, False])
def test_one_whose_old_files_are_gone(table, is_same):
    """If a vacuum has removed what it replaced, the number of rows tells whether it is believed."""
    compact(DeltaTable(table.path))
    assert table.state.table().foreign_change(table.opened.version) is None
    table.open()
    files = live_files(table.path)
    if is_same:
        order(DeltaTable(table.path))
    elif table.kind == "partitioned":
        pytest.skip("files moved by hand have no partition")
    else:
        lose(table)
    for file in files:
        (table.path / file).unlink()
    if is_same:
        table.write(5)
        assert table.rows() == table.model
    else:
        with pytest.raises(DivergenceError, match="its files are gone"):
            table.write(5)


@pytest.mark.few(2)
@pytest.mark.parametrize("operation", ["OPTIMIZE", "CLUSTER BY", "an unknown operation"])
def test_one_by_another_name(table, operation):
    """What moves rows and does nothing else is harmless, whatever it is called."""
    if table.kind == "partitioned":
        pytest.skip("files moved by hand have no partition")
    move_rows(table.path, live_files(table.path), operation=operation)
    table.write(5)
    assert table.rows() == table.model


@pytest.mark.few(2)
def test_a_change_that_is_found_as_we_read_for_a_write(table):
    """Whoever looks again because files have been moved finds what came after that, and writes nothing on top of it."""
    before = set((table.path / "_data").iterdir())
    note = table.prepare(5)
    again = table.open()
    compact(DeltaTable(table.path))
    kept = {*(table.path / "_data").iterdir()} - before
    kept |= {table.path / file for file in live_files(table.path)}
    row = {"k": ["x"], "n": [9], "txid": [1]}
    write_deltalake(table.path, pa.table(row), mode="append", schema_mode="merge")
    for file in (table.path / "_data").iterdir():
        if file not in kept:
            file.unlink()
    rows = table.rows()
    with contextlib.suppress(DivergenceError):
        maintain(again)
    with pytest.raises(DivergenceError, match="WRITE made version"):
        again.publish(5, note)
    with contextlib.suppress(DivergenceError):
        again.write(5, {})
        maintain(again)
    assert table.rows() == rows


@pytest.mark.slow
@pytest.mark.covering(1)
@pytest.mark.parametrize("optimize", [order, append_nothing])
def test_many_in_a_row_that_are_faster(table, optimize):
    """Somebody who takes the version that we are about to put, again and again, is outlasted, in a write and in upkeep."""
    left = [0]

    def be_faster(name):
        if name == "delta.write.checked" and left[0]:
            left[0] -= 1
            optimize(DeltaTable(table.path))

    with armed(be_faster):
        for txid in (5, 6):
            left[0] = 12
            table.write(txid)
            assert left == [0]
        if optimize is append_nothing:
            files, left[0] = live_files(table.path), 12
            maintain(table.opened)
            assert (left, live_files(table.path) != files) == ([0], True)
    assert table.rows() == table.model


@pytest.mark.slow
def test_one_that_never_pauses(table, monkeypatch):
    """Whoever is faster for a minute is named, and nothing is lost: the write is made once there is a pause."""
    note = table.prepare(5)
    now = put.time.monotonic
    passed = []

    def be_faster(name):
        if name == "delta.write.checked":
            passed.append(5)
            append_nothing(DeltaTable(table.path))

    monkeypatch.setattr(put.time, "monotonic", lambda: now() + sum(passed))
    with armed(be_faster), pytest.raises(StateFailure, match=r"faster in each of 1\d tries .* last time by WRITE"):
        table.publish(5, note)
    table.publish(5, note)
    assert table.rows() == table.model


COMPACTIONS_MAX = 200
"""Where the machine is busy the run takes long, and would take longer for each version that it has to look at."""


class Compactor(threading.Thread):
    """Compacts a table again and again, as somebody else does who has no lead to lose."""

    def __init__(self, path) -> None:
        super().__init__(daemon=True)
        self.path = path
        self.is_over = threading.Event()
        self.versions = 0

    def run(self) -> None:
        while not self.is_over.wait(0.005) and self.versions < COMPACTIONS_MAX:
            for optimize in (compact, order) if self.versions % 5 == 4 else (compact,):
                with contextlib.suppress(DeltaError, OSError):
                    optimize(DeltaTable(self.path))
                    self.versions += 1


COMPACT = """
import sys
from deltalake import DeltaTable
print("ready", flush=True)
while True:
    try:
        DeltaTable(sys.argv[1]).optimize.compact()
        DeltaTable(sys.argv[1]).optimize.z_order(["n"])
    except Exception:
        pass
"""


class KilledCompactor(threading.Thread):
    """Has a process compact a table again and again, and kills it, several times."""

    def __init__(self, path, kills: int, chance: random.Random) -> None:
        super().__init__(daemon=True)
        self.path = path
        self.kills = kills
        self.chance = chance

    def run(self) -> None:
        for _ in range(self.kills):
            with subprocess.Popen([sys.executable, "-c", COMPACT, str(self.path)], stdout=subprocess.PIPE) as process:
                assert process.stdout is not None
                process.stdout.readline()
                time.sleep(self.chance.random() * 0.2)
                process.kill()


@pytest.mark.slow
@pytest.mark.parametrize("kind", DYING)
@pytest.mark.parametrize(("transactions", "keys"), variants((20, 20), long=[(200, 2_000), (100, 100_000)]))
def test_one_after_another_beside_a_run_with_kills(tmp_path, kind, transactions, keys):
    """Groups, upkeep and a coordinator that dies every few steps: each transaction is there once, and so is each row."""
    run = DyingRun(tmp_path, kind, keys, tier_files=2, **LARGE)
    compactor = Compactor(tmp_path)
    compactor.start()
    txid = 0
    while txid < transactions or not run.deaths or not compactor.versions:  # a busy machine may starve it
        txid += 1
        run.write(txid)
    compactor.is_over.set()
    compactor.join()
    assert run.is_exact()
    assert compactor.versions


@pytest.mark.slow
@pytest.mark.parametrize("kind", DYING)
@pytest.mark.parametrize("kills", variants(5, long=[40]))
def test_one_that_is_killed_within_beside_a_run_with_kills(tmp_path, kind, kills):
    """It leaves files and no version, wherever it was: no row is lost or doubled, and a vacuum removes the files."""
    run = DyingRun(tmp_path, kind, 200, tier_files=2, **LARGE)
    run.write(1)
    compactor = KilledCompactor(tmp_path, kills, run.chance)
    compactor.start()
    txid = 1
    while compactor.is_alive():
        txid += 1
        run.write(txid)
    assert run.is_exact()
    table = DeltaTable(tmp_path)
    table.vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
    held = {tmp_path / file for file in live_files(tmp_path)}
    assert {file for file in tmp_path.glob("*.parquet") if file not in held} == set()
    assert run.is_exact()
