"""Reference tables that change while a topology runs: each transaction sees the version it was planned with."""

import contextlib
import datetime as dt
import gc
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from state import read_table
from tests.acceptance.reference_tables import ORDERS, topology, transactions, versions_seen, write_version
from tests.cli.conftest import command_line
from tests.crashes import Crash, dying, run_with_crash
from tests.processes import ran
from txtopo import Config, TransactionalTopology
from txtopo.errors import InputError
from txtopo.files.places import folder_at
from txtopo.fork.forking import moved
from txtopo.inspect.backend import FolderBackend
from txtopo.testing import run_inline

__all__ = ["command_line"]

QUARTER = dt.timedelta(minutes=15)
MODULE = "tests.acceptance.reference_tables"


def vacuum(root: Path) -> None:
    """Remove all files that the newest version does not need."""
    DeltaTable(str(root / "customers")).vacuum(0, dry_run=False, enforce_retention_duration=False)


@pytest.mark.slow
@pytest.mark.parametrize("opaque", [False, True])
@pytest.mark.parametrize("fails", [False, True])
def test_both_phases_and_all_attempts_see_one_version(tmp_path: Path, *, opaque: bool, fails: bool) -> None:
    """Whatever is written meanwhile; later transactions see later versions."""
    config = Config(max_spout_pending=1 if opaque else 3)
    run_inline(topology(str(tmp_path), fails=fails, opaque=opaque), config)
    seen = versions_seen(tmp_path)
    assert seen == sorted(seen)
    assert len(set(seen)) > ORDERS // 4


@pytest.mark.slow
def test_the_pages_api_names_the_version(tmp_path: Path) -> None:
    """Of each transaction, with the table's id."""
    run_inline(topology(str(tmp_path)), Config(max_spout_pending=3))
    with contextlib.closing(FolderBackend(folder_at(tmp_path / "out"))) as backend:
        journals = [backend.transaction("seen", txid).journal for txid in range(1, ORDERS + 1)]
    seen = [journal.references["customers"] for journal in journals if journal is not None]
    assert [each.version for each in seen] == versions_seen(tmp_path)
    assert {each.table for each in seen} == {str(DeltaTable(str(tmp_path / "customers")).metadata().id)}


def test_refresh(tmp_path: Path) -> None:
    """Within it nobody looks for a newer version."""
    made = topology(str(tmp_path))
    made.plan.references["customers"].refresh *= 0
    made.plan.references["customers"].refresh += QUARTER
    run_inline(made)
    assert len(set(versions_seen(tmp_path))) <= 2


@pytest.mark.slow
def test_killed_at_any_durable_step(tmp_path: Path) -> None:
    """The next start goes on with the versions that were recorded; at every 23rd of all durable steps."""
    at = 1
    while True:
        root = tmp_path / str(at)
        root.mkdir()
        is_over = run_with_crash(lambda root=root: topology(str(root)), Crash(at))  # type: ignore[misc]
        if not is_over:
            run_inline(topology(str(root)), Config(max_spout_pending=3))
        versions_seen(root)
        if is_over:
            break
        at += 23


@pytest.mark.long  # in `make test` a topology with two spouts and a reference is killed, in test_pairs_of_spouts.py
@pytest.mark.parametrize("mode", ["micro-batch", "real-time"])
@pytest.mark.parametrize("step", ["metadata.save.after", "group.decide.after"])
def test_killed_on_spark(tmp_path: Path, mode: str, step: str) -> None:
    """The executors of the next start see the same versions, in both modes."""
    killed = ran("-m", MODULE, tmp_path, mode, failpoints=f"{step}=kill:2")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    again = ran("-m", MODULE, tmp_path, mode)
    assert again.returncode == 0, again.stderr
    assert len(set(versions_seen(tmp_path))) > 1


@pytest.mark.slow
def test_a_replay_sees_what_the_transaction_saw(tmp_path: Path, command_line: Any) -> None:
    """After an OPTIMIZE, too; once the version is vacuumed it can't, and the error says who has removed it."""
    run_inline(topology(str(tmp_path)), Config(max_spout_pending=3))
    seen = versions_seen(tmp_path)
    DeltaTable(str(tmp_path / "customers")).optimize.compact()
    explained = command_line("explain", str(tmp_path / "out"), "3").output
    assert f"reference customers: version {seen[2]}" in explained
    audited = command_line("audit", str(tmp_path / "out"))
    assert (audited.exit_code, f"versions {seen[0]} to {seen[-1]} of one table" in audited.output) == (0, True)
    replayed = command_line("replay", MODULE, "3", "--set", f"root={tmp_path}")
    assert (replayed.exit_code, "same" in replayed.output) == (0, True), replayed.output
    vacuum(tmp_path)
    gc.collect()  # what this process still has of the version
    gone = command_line("replay", MODULE, "3", "--set", f"root={tmp_path}")
    assert (gone.exit_code, "'VACUUM END'" in gone.output) == (2, True), gone.output


def pending(root: Path) -> None:
    """Leave a transaction that was planned and has not run, after two that are committed."""
    run_inline(topology(str(root)), until=2)
    with dying("metadata.save.after"):
        run_inline(topology(str(root)), Config(max_spout_pending=1))


@pytest.mark.slow
def test_a_version_that_was_vacuumed_before_its_transaction_ran(tmp_path: Path, command_line: Any) -> None:
    """The run stops, with SKIP too, and names the version, who has removed it and the command that plans again."""
    pending(tmp_path)
    write_version(tmp_path / "customers")
    vacuum(tmp_path)
    skipping = {"topology.transaction.max.attempts.policy": "SKIP", "topology.transaction.max.attempts": 1}
    for _ in range(2):
        with pytest.raises(InputError, match=r"version \d+ of reference 'customers'.*'VACUUM END'.*txtopo replan"):
            run_inline(topology(str(tmp_path)), skipping)
    newest = DeltaTable(str(tmp_path / "customers")).version()
    done = command_line("replan", MODULE, "--set", f"root={tmp_path}", "--yes")
    assert (done.exit_code, f"customers: version {newest}, planned again: first it was version" in done.output) == (
        0,
        True,
    ), done.output
    assert "nothing to do" in command_line("replan", MODULE, "--set", f"root={tmp_path}").output
    run_inline(topology(str(tmp_path)), skipping)
    assert versions_seen(tmp_path, are_kept=False)[2] == newest
    audited = command_line("audit", str(tmp_path / "out"))
    assert audited.exit_code == 0
    assert "reference   transaction 3 saw customers: version" in audited.output
    assert "planned again" in command_line("explain", str(tmp_path / "out"), "3").output


@pytest.mark.slow
def test_a_fork_sees_what_the_topology_saw(tmp_path: Path, command_line: Any) -> None:
    """In all transactions that the topology had when it was forked, whatever was written since; a fork of it, too."""
    alone = {"topology.group.transactions.max": 1}  # so that a fork can go on after the third
    run_inline(topology(str(tmp_path), changes=False), alone, until=4)
    for _ in range(8):
        write_version(tmp_path / "customers")
        run_inline(topology(str(tmp_path), changes=False), until=len(transactions(tmp_path)) + 1)
    seen = versions_seen(tmp_path)
    assert len(set(seen)) > 4
    write_version(tmp_path / "customers")
    arguments = ("--set", f"root={tmp_path}", "--set", "changes=false")
    command_line.told("fork", MODULE, "3", str(tmp_path / "side"), *arguments)
    plan = moved(topology(str(tmp_path), changes=False).plan, Config(), folder_at(tmp_path / "side"))[0]
    settings = {"topology.state.dir": str(tmp_path / "side" / "_txtopo"), **alone}
    run_inline(TransactionalTopology(plan), settings)
    assert versions_in(tmp_path / "side") == seen
    write_version(tmp_path / "customers")
    command_line.told("fork", MODULE, "5", str(tmp_path / "next"), "--fork", str(tmp_path / "side"), *arguments)
    plan = moved(topology(str(tmp_path), changes=False).plan, Config(), folder_at(tmp_path / "next"))[0]
    run_inline(TransactionalTopology(plan), {"topology.state.dir": str(tmp_path / "next" / "_txtopo")})
    assert versions_in(tmp_path / "next") == seen


def versions_in(folder: Path) -> list[int]:
    """Return the versions that transactions saw, in their order."""
    return [row["version"] for row in sorted(read_table(folder / "out").to_pylist(), key=lambda row: row["txid"])]


@pytest.mark.slow
def test_after_a_rewind_transactions_see_what_their_numbers_saw(tmp_path: Path, command_line: Any) -> None:
    """Over several starts; those that are new see the newest."""
    run_inline(topology(str(tmp_path), changes=False), until=2)
    for _ in range(6):
        write_version(tmp_path / "customers")
        run_inline(topology(str(tmp_path), changes=False), until=len(transactions(tmp_path)) + 1)
    then = [transaction.planned.references for transaction in transactions(tmp_path)]
    command_line.told("rewind", MODULE, "3", "--yes", "--set", f"root={tmp_path}", "--set", "changes=false")
    for until in (5, 6, None):
        write_version(tmp_path / "customers")
        run_inline(topology(str(tmp_path), changes=False), until=until)
    seen = versions_seen(tmp_path)
    assert seen[:8] == [references[0].version for references in then]
    assert set(seen[8:]) == {DeltaTable(str(tmp_path / "customers")).version()}
    assert command_line("audit", str(tmp_path / "out")).exit_code == 0


@pytest.mark.slow
@pytest.mark.parametrize("is_replaced", [False, True])
def test_after_a_rewind_to_versions_that_are_gone(tmp_path: Path, command_line: Any, *, is_replaced: bool) -> None:
    """Once the transactions that are begun are planned again, those after them see the newest version, too."""
    customers, settings = tmp_path / "customers", ("--set", f"root={tmp_path}", "--set", "changes=false")
    run_inline(topology(str(tmp_path), changes=False), until=2)
    for _ in range(6):
        write_version(customers)
        run_inline(topology(str(tmp_path), changes=False), until=len(transactions(tmp_path)) + 1)
    command_line.told("rewind", MODULE, "3", "--yes", *settings)
    if is_replaced:
        shutil.rmtree(customers)
    for _ in range(20):
        write_version(customers)
    vacuum(tmp_path)
    gc.collect()  # what this process still has of the versions
    with pytest.raises(InputError, match="txtopo replan"):
        run_inline(topology(str(tmp_path), changes=False))
    command_line.told("replan", MODULE, "--yes", *settings)
    run_inline(topology(str(tmp_path), changes=False))
    assert set(versions_seen(tmp_path, are_kept=False)[3:]) == {DeltaTable(str(customers)).version()}
    assert command_line("audit", str(tmp_path / "out")).exit_code == 0


@pytest.mark.slow
def test_a_table_in_its_place(tmp_path: Path, command_line: Any) -> None:
    """It is refused: by transactions that were planned with the former one, and by those that begin."""
    pending(tmp_path)
    (tmp_path / "customers").rename(tmp_path / "former")
    for _ in range(20):
        write_version(tmp_path / "customers")
    with pytest.raises(InputError, match=r"'customers'.*was replaced.*txtopo replan"):
        run_inline(topology(str(tmp_path)))
    assert command_line("replan", MODULE, "--set", f"root={tmp_path}", "--yes").exit_code == 0
    run_inline(topology(str(tmp_path)), until=3)
    (tmp_path / "customers").rename(tmp_path / "second")
    (tmp_path / "former").rename(tmp_path / "customers")
    with pytest.raises(InputError, match=r"was replaced: the last transaction saw.*another name"):
        run_inline(topology(str(tmp_path)))


def test_a_reference_that_is_new_in_the_code(tmp_path: Path) -> None:
    """Transactions that were begun without it see its newest version, recorded before they run."""
    pending(tmp_path)
    made = topology(str(tmp_path))
    former = made.plan.references["customers"]
    made.plan.references["others"] = former
    run_inline(made, until=3)
    last = transactions(tmp_path)[-1]
    assert [reference.name for reference in last.planned.references] == ["customers", "others"]
