"""Output folders of earlier versions are resumed, audited, replayed and repaired by today's.

How they were made: :mod:`tests.legacy.make`. They hold JSON (coordinator state in SQLite, journal, staged notes),
Arrow files (staged rows) and Delta tables; no pickle is among them, so that no class or module is named. The one file
of a run that holds pickles, a spilled batch in ``_txtopo/staging``, is never read by another run.
"""

from __future__ import annotations

import os
import pathlib
import tarfile

import pytest
from deltalake import DeltaTable

from state import read_table, read_tables
from state.delta.read.consistent import committed_in_tables
from tests.legacy import changed
from tests.legacy.interrupted import CONFIG, EXECUTORS_CONFIG, TRANSACTIONS, expected_rows, topology
from tests.legacy.tables import tables_in
from tests.variants import variants
from txtopo.errors import DivergenceError
from txtopo.testing.inline import run_inline
from txtopo.transactional.journal.ending import METADATA_DIR

HERE = pathlib.Path(__file__).parent
FOLDERS = sorted(path.name.removesuffix(".tar.gz") for path in HERE.glob("*-[de]*.tar.gz"))
MODULE = "from tests.legacy.interrupted import topology\n"


def unpack(name: str, folder: pathlib.Path) -> None:
    """Unpack a folder as if it had been written just now: logs are cleaned up by their files' age."""
    with tarfile.open(HERE / f"{name}.tar.gz") as tar:
        # The filter "data" where Python knows it, which is from 3.11.4 on.
        tar.extraction_filter = getattr(tarfile, "data_filter", lambda member, _: member)
        tar.extractall(folder)
    for path in folder.rglob("*"):
        os.utime(path)


def config_of(name: str):
    return EXECUTORS_CONFIG if name.endswith("executors") else CONFIG


def staged_in(folder: pathlib.Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.glob("*/_txtopo/staged-*"))


@pytest.mark.slow
@pytest.mark.parametrize("name", variants(*FOLDERS[::3], long=[name for name in FOLDERS if name not in FOLDERS[::3]]))
def test_an_interrupted_folder_goes_on(command_line, tmp_path, name):
    """It is sound though a group is under way; resumed it ends exactly as an undisturbed run, and can be proved."""
    unpack(name, tmp_path)
    command_line.write_module("interrupted", MODULE)
    committed, under_way = committed_in_tables(tmp_path / METADATA_DIR, "interrupted")
    assert committed < under_way, "a group is under way"
    assert command_line("repair", "interrupted").stdout.endswith("nothing to repair\n")
    report = run_inline(topology(tmp_path), config_of(name))
    assert (report.committed_txid, report.transactions) == (TRANSACTIONS, TRANSACTIONS - under_way)
    assert tables_in(tmp_path) == expected_rows()
    assert staged_in(tmp_path) == []
    audit = command_line("audit", str(tmp_path))
    assert (audit.exit_code, f"{TRANSACTIONS} transactions, 1 to {TRANSACTIONS}, each once" in audit.stdout) == (
        0,
        True,
    )
    for txid in (committed + 1, 200):
        replay = command_line("replay", "interrupted", str(txid))
        assert (replay.exit_code, "differs" in replay.stdout) == (0, False), replay.output
    assert command_line("repair", "interrupted").stdout.endswith("nothing to repair\n")


@pytest.mark.slow
@pytest.mark.parametrize("name", variants(FOLDERS[0], long=FOLDERS[1:]))
def test_a_folder_is_rewound(command_line, tmp_path, name):
    """Also one with a group under way, whose staged writes are dropped; then it goes on as if never stopped."""
    unpack(name, tmp_path)
    command_line.write_module("interrupted", MODULE)
    assert "nothing was changed" in command_line.told("rewind", "interrupted", "100", "--dry-run")
    text = command_line.told("rewind", "interrupted", "100", "--yes")
    point = read_tables(tmp_path).txid
    assert f"goes back to transaction {point}, and" in text
    assert 0 < point <= 100
    assert tables_in(tmp_path) == expected_rows(point)
    run_inline(topology(tmp_path), config_of(name))
    assert tables_in(tmp_path) == expected_rows()
    assert staged_in(tmp_path) == []
    assert command_line("audit", str(tmp_path)).exit_code == 0


@pytest.mark.slow
def test_compacted_while_it_was_down(tmp_path):
    """A group whose files to replace were compacted is finished from what was staged."""
    unpack("0.1.0-executors", tmp_path)
    for name in expected_rows(0):
        DeltaTable(tmp_path / name).optimize.compact()
    run_inline(topology(tmp_path), EXECUTORS_CONFIG, until=150)
    assert tables_in(tmp_path) == expected_rows(150)


@pytest.mark.slow
def test_vacuumed_while_it_was_down(command_line, tmp_path):
    """Earlier versions staged files where a vacuum removes them: repair rolls back what was written of the group."""
    unpack("0.1.0-executors", tmp_path)
    command_line.write_module("interrupted", MODULE)
    for name in ("folded", "rows"):
        table = DeltaTable(tmp_path / name)
        table.optimize.compact()
        table.vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
    with pytest.raises(DivergenceError, match=r"136 can't be finished .* which needs the file .* gone"):
        run_inline(topology(tmp_path), EXECUTORS_CONFIG)
    result = command_line("repair", "interrupted", "--yes")
    assert "'totals' to transaction 124, each by a new version that equals the old one; " in result.stdout
    assert "the coordinator state is rebuilt, at transaction 124" in result.stdout
    assert result.exit_code == 0
    run_inline(topology(tmp_path), EXECUTORS_CONFIG, until=150)
    assert tables_in(tmp_path) == expected_rows(150)
    assert command_line("audit", str(tmp_path)).exit_code == 0


def test_there_are_folders():
    """Both ways of staging are among them."""
    assert {name.partition("-")[2] for name in FOLDERS} == {"driver", "executors"}


@pytest.mark.few(1)
@pytest.mark.parametrize("name", sorted(path.name.removesuffix(".tar.gz") for path in HERE.glob("*-[ag]*.tar.gz")))
def test_a_state_that_missed_transactions_is_refused(command_line, tmp_path, name):
    """Earlier versions let a state be left out and put back: the run is refused, and the audit shows what is missing.

    Without that state the run goes on, and with an explicit setting it is begun empty.
    """
    unpack(name, tmp_path)
    is_gap = name.endswith("gap")
    committed = 60 if is_gap else 40
    before = read_table(tmp_path / "sometimes").to_pylist()
    for _ in range(2):
        with pytest.raises(DivergenceError, match=rf"'sometimes'.*\b20\b.*\b{committed}\b.*Nothing was written"):
            run_inline(changed.topology(tmp_path), CONFIG)
    assert read_table(tmp_path / "sometimes").to_pylist() == before
    audit = command_line("audit", str(tmp_path))
    assert audit.exit_code == (1 if is_gap else 0)
    assert ("21 to 40" in audit.stdout) == is_gap, audit.stdout
    run_inline(changed.topology(tmp_path, ["always"]), CONFIG, until=70)
    setting = CONFIG.with_settings({"topology.state.start.empty": "sometimes=70"})
    run_inline(changed.topology(tmp_path), setting)
    rows = {state: read_table(tmp_path / state).to_pylist() for state in changed.STATES}
    assert rows == {
        "always": [{"name": "all", "n": changed.TRANSACTIONS, "txid": changed.TRANSACTIONS}],
        "sometimes": [{"name": "all", "n": changed.TRANSACTIONS - 70, "txid": changed.TRANSACTIONS}],
    }
    assert "begun empty after transaction 70" in command_line("audit", str(tmp_path)).stdout
