"""The driver's mirror: rows are loaded beside, before they are needed, whatever kind of table has them."""

import threading
from collections.abc import Callable
from concurrent.futures import wait
from typing import Any

import attrs
import pytest

from state import DeltaState, TransactionalValue
from state.delta import mirror
from state.delta.log.data_files import DataFolder
from tests.state.delta.delta_tables import sized
from tests.state.delta.expiring import expiring_tables
from txtopo import Fields
from txtopo.columnar.progress_probe import ProgressProbe
from txtopo.columnar.rows_by_time import AFTER_ALL, BEFORE_ALL
from txtopo.errors import StateFailure


@attrs.frozen
class Kind:
    """A kind of table: how it is declared, how keys are put into it, and which of ten keys it has."""

    declared: Callable[[Any], Any]
    put: Callable[[Any, int, list[str]], object]
    keys: Callable[[Any], list[str]]


def _put_keyed(state: Any, txid: int, keys: list[str]) -> None:
    state.write(txid, {key: TransactionalValue(txid, 1) for key in keys})


def _keyed(state: Any) -> list[str]:
    keys = [f"k{n}" for n in range(10)]
    return [key for key, value in zip(keys, state.multi_get(keys), strict=True) if value is not None]


KEYED = Kind(
    lambda path: DeltaState(path / "t", Fields("k: string"), Fields("n: long"), cached_keys_max=1), _put_keyed, _keyed
)
EXPIRING = Kind(
    expiring_tables.declared,
    lambda state, txid, keys: expiring_tables.put(state, (txid, [(key, 100) for key in keys])),
    lambda state: sorted(state.expired(BEFORE_ALL, AFTER_ALL)["k"].to_pylist()),
)


@pytest.fixture(params=[KEYED, EXPIRING], ids=["keyed", "expiring"])
def kind(request):
    """Each kind of table whose rows the driver holds."""
    return request.param


@pytest.fixture
def table(kind, tmp_path):
    """A table of eight rows that are read two at a time, and opened again."""
    declared = sized(kind.declared(tmp_path), portion_rows=2)
    first = declared.open("topology", "s", "l", 1)
    kind.put(first, 1, [f"k{n}" for n in range(8)])
    first.close()
    state = declared.open("topology", "s", "l", 2)
    yield state
    state.close()


@pytest.fixture
def loadings(monkeypatch):
    """What is loaded, in order."""
    begun = []

    class Loading(mirror.Loading):
        def __init__(self, *args):
            super().__init__(*args)
            begun.append(self)

    monkeypatch.setattr(mirror, "Loading", Loading)
    return begun


def portions_of(monkeypatch, each):
    """Call a function for each portion that is read."""
    read = DataFolder.portions

    def portions(*args, **options):
        for portion in read(*args, **options):
            each()
            yield portion

    monkeypatch.setattr(DataFolder, "portions", portions)


def test_rows_are_loaded_before_they_are_needed(kind, table, monkeypatch, loadings) -> None:
    """They are once the state has memory for them, in another thread; what is written is held without being read."""
    readers = []
    portions_of(monkeypatch, lambda: readers.append(threading.current_thread()))
    table.hold_rows(1 << 20)
    wait([loadings[0]._under_way])
    assert (len(readers), threading.main_thread() in readers) == (4, False)
    kind.put(table, 2, ["k8"])
    kind.put(table, 3, ["k9"])
    assert kind.keys(table) == [f"k{n}" for n in range(10)]
    assert len(readers) == 4


def test_rows_that_are_written_while_others_are_loaded(kind, table, monkeypatch, loadings) -> None:
    """A write begins when all are there, in as much memory as the state has last been given."""
    table.hold_rows(1 << 20)
    table.hold_rows(0)
    kind.put(table, 2, ["k8"])
    assert [loading._under_way.done() for loading in loadings] == [True, True]
    assert kind.keys(table) == [f"k{n}" for n in range(9)]


def test_who_needs_rows_waits_for_them_with_progress(kind, table, monkeypatch) -> None:
    """Each portion that is loaded beside it is progress of who waits."""
    gate = threading.Semaphore(0)

    class Handing(ProgressProbe):
        def step(self):
            super().step()
            gate.release()

    portions_of(monkeypatch, lambda: gate.acquire(timeout=600))
    table.hold_rows(1 << 20)
    with Handing().current():
        assert kind.keys(table) == [f"k{n}" for n in range(8)]


def test_rows_that_cannot_be_loaded(kind, table, tmp_path) -> None:
    """Who needs them says so; before it nothing does, and after it all is as if it had been tried first."""
    (file,) = (tmp_path / "t" / "_data").glob("*-1-*.parquet")
    file.rename(tmp_path / "aside")
    table.hold_rows(1 << 20)
    for _ in range(2):
        with pytest.raises(StateFailure, match=file.name):
            kind.keys(table)
    (tmp_path / "aside").rename(file)
    assert kind.keys(table) == [f"k{n}" for n in range(8)]


def test_nobody_waits_for_rows_that_are_no_longer_needed(table, monkeypatch, loadings) -> None:
    """A state that is closed loads no further."""
    begun, gate, read = threading.Event(), threading.Event(), []
    portions_of(monkeypatch, lambda: (read.append(1), begun.set(), gate.wait(600)))
    table.hold_rows(1 << 20)
    assert begun.wait(600)
    closing = threading.Thread(target=table.close)
    closing.start()
    assert loadings[0]._is_cancelled.wait(600)
    gate.set()
    closing.join(600)
    assert (len(read), closing.is_alive()) == (1, False)
    assert loadings[0]._under_way.done()


def test_a_table_that_goes_back_has_what_was_taken(tmp_path) -> None:
    """Rows that were taken, and are not held any more, are read again when the table goes back; also while it loads."""
    state = expiring_tables.opened(tmp_path)
    state.hold_rows(1 << 20)
    EXPIRING.put(state, 1, ["k1"])
    expiring_tables.put(state, (2, 200))
    assert EXPIRING.keys(state) == []
    state.hold_rows(1 << 20)
    state.roll_back(1)
    assert EXPIRING.keys(state) == ["k1"]
    state.close()
