"""Readers while a table is compacted, checkpointed and vacuumed: the rows of a version, or an error, never others."""

import os
import threading
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

import state.delta.upkeep.past
import state.delta.upkeep.rounds
import state.delta.upkeep.schedule
import state.delta.writer
from state import DeltaRows, DeltaState
from tests.state.delta.delta_tables import LARGE, all_of, maintain, scheduled, sized
from tests.state.delta.read.readers import READERS, duck_db_connection, ids
from tests.state.delta.rows.rows_tables import put
from tests.state.delta.table_life import LIVES, RECENT_SECS
from txtopo import Fields
from txtopo.api.values import TransactionalValue
from txtopo.files.folder import LocalFolder

DAY_SECS = 24 * 3600
RETENTION_DAYS = 7
OFTEN: dict[str, Any] = {"upkeep_every_writes": 1, "files_max": 1, "vacuum_retention_hours": RETENTION_DAYS * 24}

Read = Callable[[], pa.Table]

_GONE = (
    "not found",
    "no such file",
    "file does not exist",
    "cannot open file",
    "no files in log segment",
    "no table metadata or protocol",
)
"""What readers say of a file or a version that is gone."""


def clock(now_secs: Callable[[], float]) -> Any:
    """Return a module ``time`` whose wall clock shows other times."""
    return types.SimpleNamespace(time=now_secs, clock_gettime=time.clock_gettime)


class History:
    """A table with versions of many days, and the ids in each."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path = path
        self._monkeypatch = monkeypatch
        self._ids: dict[int, list[int]] = {}
        self._days: dict[int, float] = {}
        self.later_days = 0
        """How many days have passed since the table was filled."""

    def write(self, days: float, change: Callable[[], object], held: set[int]) -> None:
        """Change the table as if so many days ago; after that it has these ids."""
        secs, before = time.time() - days * DAY_SECS, {*self.path.rglob("*")}
        with self._monkeypatch.context() as patch:
            patch.setattr(state.delta.writer, "time", clock(lambda: secs))
            change()
        for file in {*self.path.rglob("*")} - before:
            os.utime(file, (secs, secs))
        self.note(days, held)

    def note(self, days: float, held: set[int]) -> None:
        """Take note that the newest version was made so many days ago, with these ids."""
        version = DeltaTable(self.path).version()
        self._ids[version], self._days[version] = sorted(held), days

    @property
    def held(self) -> set[int]:
        """The ids in the newest version."""
        return {*self._ids[max(self._ids)]}

    @property
    def versions(self) -> list[int]:
        """The versions that were written."""
        return list(self._ids)

    def is_whole_for_sure(self, version: int) -> bool:
        """Whether a version was the newest one within the retention."""
        later = [days for other, days in self._days.items() if other > version]
        return max(later, default=-self.later_days) + self.later_days < RETENTION_DAYS

    def wrong(self, version: int, read: Read) -> str | None:
        """Say what is wrong with a read of a version; None if nothing is."""
        try:
            found = ids(read())
        except Exception as error:  # noqa: BLE001 - those of five readers
            says_so = any(words in str(error).lower() for words in _GONE)
            if self.is_whole_for_sure(version) or not says_so:
                return f"{type(error).__name__}: {error}"
            return None
        return None if found == self._ids[version] else f"{found}, not {self._ids[version]}"


def held_readers(path: Path, version: int, *, has_vectors: bool = False) -> dict[str, Read]:
    """Return readers that have opened a version, and have not read it yet; of these, only DuckDB knows vectors."""
    name = f"held_{path.parent.name}_{version}".replace("-", "_")
    duck_db_connection().execute(f"attach '{path}' as {name} (type delta, version {version})")
    duck_db = {"DuckDB": lambda: duck_db_connection().execute(f"select id from {name}").fetch_arrow_table()}
    if has_vectors:
        return duck_db
    table = DeltaTable(path, version=version)
    dataset = table.to_pyarrow_dataset()
    builder = QueryBuilder().register("t", DeltaTable(path, version=version))
    lazy = pl.scan_delta(str(path), version=version)
    return {
        **duck_db,
        "dataset": lambda: dataset.to_table(columns=["id"]),
        "scan": lambda: pa.table(table.scan(columns=["id"])),
        "query": lambda: pa.table(builder.execute("select id from t").read_all()),
        "polars": lambda: lazy.select("id").collect().to_arrow(),
    }


def look_at_each_step(monkeypatch: pytest.MonkeyPatch, look: Callable[[str], None]) -> None:
    """Call ``look`` after each step by which upkeep changes the table's folder, in one thread at a time."""
    lock = threading.RLock()

    def patch(owner: type, name: str) -> None:
        original = getattr(owner, name)

        def stepping(self: Any, *arguments: Any, **named: Any) -> Any:
            with lock:
                result = original(self, *arguments, **named)
                look(f"{name} {arguments[0] if arguments else ''}")
                return result

        monkeypatch.setattr(owner, name, stepping)

    for name in ("put", "put_new", "put_if_absent", "delete"):
        patch(LocalFolder, name)
    patch(DeltaTable, "create_checkpoint")


def keys(history: History) -> tuple[Any, Callable[[], object]]:
    """Fill a keyed table, in files that hold several keys each; return it, and how to add the key 0."""
    declared = DeltaState(history.path, Fields("id: long"), Fields("n: long"), **OFTEN)
    opened = scheduled(sized(declared, **LARGE), clean_up_checkpoints=1).open("topology", "s", "life", 1)
    held: set[int] = set()
    for txid, days in enumerate((50, 45, 20, 9, 8, 6, 5, 1, 0.5), 1):
        put_now = {*range(txid * 3, txid * 3 + 3), txid}
        gone = txid * 3 - 2 if txid > 1 else None
        values: dict[int, Any] = {key: TransactionalValue(txid, txid) for key in put_now}
        if gone is not None:
            values[gone] = None
        held = (held | put_now) - {gone}
        history.write(days, lambda txid=txid, values=values: opened.write(txid, values), held)
        if days in {45, 9}:
            history.write(days, DeltaTable(history.path).create_checkpoint, held)
    return opened, lambda: opened.write(10, {0: TransactionalValue(10, 10)})


def rows(history: History) -> tuple[Any, Callable[[], object]]:
    """Fill a table of rows, whose small files upkeep combines; return it, and how to add the row 0."""
    declared = scheduled(DeltaRows(history.path, Fields("id: long"), **OFTEN), clean_up_checkpoints=1)
    opened = declared.open("topology", "s", "life", 1)
    for txid, days in enumerate((50, 45, 20, 9, 8, 6, 5, 1, 0.5), 1):
        added = pa.table({"id": [txid * 2, txid * 2 + 1]})
        history.write(
            days, lambda txid=txid, added=added: put(opened, (txid, ("append", added))), {*range(2, txid * 2 + 2)}
        )
        if days in {45, 9}:
            history.write(days, DeltaTable(history.path).create_checkpoint, {*range(2, txid * 2 + 2)})
    return opened, lambda: put(opened, (10, ("append", pa.table({"id": [0]}))))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fill", "log_hours"),
    [
        pytest.param(keys, None, id="keys, Delta cleans the log"),
        pytest.param(rows, 31 * 24, id="rows, upkeep cleans the log"),
        pytest.param(keys, 31 * 24, id="keys, upkeep cleans the log", marks=pytest.mark.long),
        pytest.param(rows, None, id="rows, Delta cleans the log", marks=pytest.mark.long),
    ],
)
def test_a_read_is_whole_or_an_error(tmp_path, monkeypatch, fill, log_hours):
    """Readers that opened any version before, and that open one now, at each step of upkeep, twice."""
    history = History(tmp_path / "t", monkeypatch)
    opened, add_0 = fill(history)
    if log_hours is not None:
        opened.keep_history(all_of(log_hours))
    held = {version: held_readers(history.path, version) for version in history.versions}
    steps: list[str] = []
    wrong: list[tuple[str, int, str, str]] = []

    def look(step: str) -> None:
        steps.append(step)
        reads = [(version, name, read) for version, readers in held.items() for name, read in readers.items()]
        newest = max(history.versions)
        reads += [
            (newest, f"now by {reader.__name__}", lambda reader=reader: reader(history.path)) for reader in READERS
        ]
        reads += [
            (
                version,
                "opened now",
                lambda version=version: DeltaTable(history.path, version=version).to_pyarrow_table(),
            )
            for version in history.versions
        ]
        for version, name, read in reads:
            said = history.wrong(version, read)
            if said is not None:
                wrong.append((step, version, name, said))

    look("before")
    with monkeypatch.context() as patch:
        look_at_each_step(patch, look)
        maintain(opened)
    history.note(0, history.held)
    history.later_days = RETENTION_DAYS + 1
    history.write(-history.later_days, add_0, history.held | {0})
    later = clock(lambda: time.time() + history.later_days * DAY_SECS)
    with monkeypatch.context() as patch:
        for each in (state.delta.upkeep.schedule, state.delta.upkeep.past):
            patch.setattr(each, "time", later)
        patch.setattr(state.delta.writer, "time", later)
        look_at_each_step(patch, look)
        maintain(opened)
    assert {step.split()[0] for step in steps} >= {"put", "put_if_absent", "delete"}
    assert wrong == [], "\n".join(map(str, wrong))


@pytest.mark.long
@pytest.mark.parametrize("kind", ["keyed", "keyed, vectors", "rows"])
def test_a_version_is_read_to_the_end_of_its_time(tmp_path, monkeypatch, kind):
    """Whatever goes meanwhile, where of the past points stay alone: also just before the time for it is over."""
    life = LIVES[kind](monkeypatch, tmp_path / "t", upkeep_every_writes=3, files_max=3)
    held: list[tuple[float, list[int], dict[str, Read]]] = []
    gone = 0

    def read(until_secs: float) -> None:
        for opened_secs, expected, readers in held:
            if opened_secs + RECENT_SECS <= until_secs:
                life.maintain(max(0, opened_secs + RECENT_SECS - 0.01 - life.now_secs))
            assert [(name, ids(reader())) for name, reader in readers.items()] == [(name, expected) for name in readers]
        held[:] = [each for each in held if each[0] + RECENT_SECS > until_secs]

    for txid in range(1, 61):
        life.write(txid, every_secs=(10, 1, 29)[txid % 3])
        if txid % 20 == 0:
            life.points.append(txid)
        if txid % 10 == 0:
            version = DeltaTable(life.path).version()
            readers = held_readers(life.path, version, has_vectors="vectors" in kind)
            held.append((life.now_secs, sorted(row[0] for row in life.rows_after(txid)), readers))
        before = {*life.path.rglob("*")}
        life.maintain()
        gone += len(before - {*life.path.rglob("*")})
        read(life.now_secs + 29)
    read(life.now_secs + RECENT_SECS)
    assert gone > 50
    assert not held
