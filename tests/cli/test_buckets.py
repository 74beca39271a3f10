"""Commands with the address of a topology all of which is in a bucket."""

import contextlib
import json
import re
import signal
import tempfile
from pathlib import Path

import pytest

pytest.importorskip("obstore")

import txtopo.cli.mend.backfill
import txtopo.engine.timeline.observer
from state import read_table, read_tables
from tests.acceptance.test_buckets import DATA, OUTPUT, RUN
from tests.acceptance.topologies import counts_of, read_words, words_topology
from tests.cli.conftest import CommandLine
from tests.object_server import ObjectStore as Server
from tests.processes import python, ran
from tests.ui.runs import run_topology
from tests.ui.test_serving import browser
from tests.waiting import DEADLINE_SECS, wait_for
from txtopo import Config
from txtopo.files.places import folder_at
from txtopo.inspect.backend import FolderBackend
from txtopo.inspect.run.slugs import slug_of
from txtopo.journal.folders import find_journal
from txtopo.journal.journal import counting_entries, read_journal
from txtopo.testing.inline import run_inline
from txtopo.topology.user_code.loading import load_target

SHOP = """
from tests.acceptance.test_buckets import DATA, OUTPUT
from tests.acceptance.topologies import words_topology

def topology():
    return words_topology(OUTPUT, DATA)
"""


COUNTED = """
from spouts import MemoryTransactionalSpout
from state import DeltaState
from tests.acceptance.test_buckets import DATA, OUTPUT
from tests.backfill.backfills import Counting
from txtopo import Config, Fields, TransactionalTopologyBuilder

def topology(vectors: str = "", more: str = ""):
    spout = MemoryTransactionalSpout(DATA, Fields("word"), 4)
    builder = TransactionalTopologyBuilder("words", "spout", spout, 1)
    for name in filter(None, ["counts", more]):
        key, value = Fields("word: string"), Fields("n: long")
        builder.set_committer_bolt(f"count-{name}", Counting(name), 1).global_grouping("spout")
        builder.set_state(name, DeltaState(f"{OUTPUT}/{name}", key, value, deletion_vectors=bool(vectors)))
    return builder.build()

def config():
    return Config(group_transactions_max=1, max_spout_pending=1)
"""


@pytest.mark.slow
def test_a_topology_in_a_bucket_is_changed_and_replayed(bucket_server: Server, command_line: CommandLine) -> None:
    """``replay``, ``evolve``, ``backfill`` and ``blame`` do there what they do in a folder, and leave nothing here."""
    command_line.write_module("counted", COUNTED)

    def run(until: int | None = None, **values: str) -> None:
        target = load_target("counted", values)
        run_inline(target.topology, target.config, until=until)

    run(5)
    assert "the same" in command_line.told("replay", "counted", "3")
    vectors = ("--set", "vectors=on")
    assert "state 'counts': deletion vectors are on" in command_line.told("evolve", "counted", *vectors)
    run(8, vectors="on")
    assert "the same" in command_line.told("replay", "counted", "7", *vectors)
    told = command_line.told("backfill", "counted", "sizes", *vectors, "--set", "more=sizes")
    assert "joined the topology at transaction 8: 'sizes'" in told
    run(vectors="on", more="sizes")
    view = read_tables(OUTPUT).tables
    for name in ("counts", "sizes"):
        assert dict(zip(view[name]["word"].to_pylist(), view[name]["n"].to_pylist(), strict=True)) == counts_of(DATA)
    assert "every transaction was committed once" in command_line.told("audit", OUTPUT)
    assert "state counts, word apple1" in command_line.told("blame", OUTPUT, "apple1")
    assert [path.name for path in command_line.folder.iterdir() if path.name != "__pycache__"] == ["counted.py"]


@pytest.mark.slow
def test_commands_with_an_address(bucket_server: Server, command_line: CommandLine) -> None:
    """What they do with a folder, they do there: back to a transaction, a fork of it, and proofs of all of it."""
    command_line.write_module("shop", SHOP)
    run_inline(words_topology(OUTPUT, DATA), Config(group_transactions_max=1), until=6)
    assert "transaction 3: committed" in command_line.told("explain", OUTPUT, "3")
    command_line.told("fork", "shop", "5", "s3://bucket/side")
    assert "the same" in command_line.told("diff", OUTPUT, "s3://bucket/side", "--to", "5")
    assert "none after transaction 5 yet" in command_line.told("audit", "s3://bucket/side")
    told = command_line.told("rewind", "shop", "4", "--yes")
    assert f"first run 'txtopo fork shop 6 {OUTPUT}-at-6'" in told
    run_inline(words_topology(OUTPUT, DATA), Config())
    assert read_words(OUTPUT) == counts_of(DATA)
    for place in (OUTPUT, "s3://bucket/side"):
        assert "every transaction was committed once" in command_line.told("audit", place)
    assert "nothing to repair" in command_line.told("repair", "shop")
    assert "total" in command_line.told("state", OUTPUT, "--consistent")


@pytest.mark.slow
def test_the_fork_that_a_rewind_names(bucket_server: Server, command_line: CommandLine) -> None:
    """It is in the same bucket, also where that is the topology's place as a whole, and nothing of it is in the way."""
    del bucket_server  # the options of the bucket are in the environment
    command_line.write_module("shop", SHOP.replace("OUTPUT, DATA)", "'s3://bucket', DATA)"))
    run_inline(words_topology("s3://bucket", DATA), Config(group_transactions_max=1), until=6)
    (told,) = re.findall("first run 'txtopo (fork [^']+)'", command_line.told("rewind", "shop", "4", "--dry-run"))
    command_line.told(*told.split())
    assert "the same" in command_line.told("diff", "s3://bucket", "s3://bucket/words-at-6", "--to", "6")
    assert "every transaction was committed once" in command_line.told("audit", "s3://bucket")


@pytest.mark.slow
def test_the_page_of_an_address(bucket_server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It shows the topology, its plots, and an audit of it."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)  # which is asked for once
    run_topology(words_topology(OUTPUT, DATA))
    process = python("-m", "txtopo", "ui", OUTPUT)
    with process, browser(process.stdout.readline().strip()) as client:
        topology = f"/api/v1/topology/{slug_of('words')}"
        assert "words" in client.get(topology).text
        assert client.get(f"{topology}/plots").json()["plots"]
        number = client.post(f"{topology}/audit").json()["check"]
        wait_for("the audit", lambda: client.get(f"/api/v1/check/{number}").json()["state"] != "running")
        assert client.get(f"/api/v1/check/{number}").json()["state"] == "same"
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE_SECS) == 0


@pytest.mark.slow
def test_the_plots_of_a_run_elsewhere(bucket_server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A run puts its timeline into the bucket when it ends; what is here of an older run, or of another life, is not shown."""
    slug = slug_of("words")

    def on(machine: str) -> None:
        tmp_path.joinpath(machine).mkdir(exist_ok=True)
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / machine))

    def shown() -> tuple[int, bool, dict[str, object]]:
        with contextlib.closing(FolderBackend(folder_at(OUTPUT))) as backend:
            has_plots, process = bool(backend.plots(slug, 60).plots), backend.header(slug).process
            assert process is not None
            return process.epoch, has_plots, {**json.loads(backend.timeline(slug, 0)), "now": 0}

    on("one")
    run_topology(words_topology(OUTPUT, DATA), until=3)
    first = shown()
    assert first[:2] == (1, True)
    on("other")
    assert shown() == first
    run_topology(words_topology(OUTPUT, DATA), until=5)
    second = shown()
    assert second[:2] == (2, True)
    on("one")
    assert shown() == second
    names = folder_at(f"{OUTPUT}/_txtopo/timeline-words").names()
    assert names == ["0000000002.zip"], "that of the last run"
    monkeypatch.setattr(txtopo.engine.timeline.observer, "put_end", lambda *_: None)  # as a run that is killed
    run_topology(words_topology(OUTPUT, DATA), until=6)
    assert shown()[:2] == (3, True)
    on("third")
    assert shown()[:2] == (3, False)
    with contextlib.closing(FolderBackend(folder_at(OUTPUT))) as backend:
        assert not backend.header(slug).timeline.is_there


@pytest.mark.slow
def test_a_topology_starts_anew(bucket_server: Server, command_line: CommandLine) -> None:
    """What it had is set aside beside the new tables, whose objects are copied for it."""
    command_line.write_module("shop", SHOP)
    run_inline(words_topology(OUTPUT, DATA), Config(group_transactions_max=1), until=6)
    before = read_words(OUTPUT)
    command_line.told("repair", "shop", "--start-anew", "--yes")
    run_inline(words_topology(OUTPUT, DATA), Config())
    assert read_words(OUTPUT) == counts_of(DATA)
    aside = next(name for name in folder_at(OUTPUT).folders() if name.startswith("words."))
    assert read_table(f"{OUTPUT}/{aside}").num_rows == len(before)
    assert "every transaction was committed once" in command_line.told("audit", OUTPUT)


@pytest.mark.slow
def test_the_last_entries_of_a_killed_run(bucket_server: Server, command_line: CommandLine) -> None:
    """They are in the coordinator state: an audit finds them there; a repair without it is refused, and nothing changed."""
    run_inline(words_topology(OUTPUT, DATA), Config(group_transactions_max=1), until=2)
    ended = ran("-c", RUN, cwd=command_line.folder, failpoints="table.write.after=kill:6")
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    metadata_dir = folder_at(f"{OUTPUT}/_txtopo")
    journals = metadata_dir.below("journal/words"), find_journal(metadata_dir, "words")
    assert [[len(part.entries) for part in read_journal(journal)] for journal in journals] == [[2, 0], [2, 3]]
    assert "every transaction was committed once" in command_line.told("audit", OUTPUT)
    view = read_tables(OUTPUT).tables
    assert sum(view["words"]["n"].to_pylist()) == view["total"]["n"][0].as_py()
    metadata_dir.move("coordinator", "away")
    command_line.write_module("shop", SHOP)
    assert "the journal no longer has transactions 3 to 8" in command_line.refusal("repair", "shop", "--yes")
    metadata_dir.move("away", "coordinator")
    run_inline(words_topology(OUTPUT, DATA), Config())
    assert read_words(OUTPUT) == counts_of(DATA)
    assert "every transaction was committed once" in command_line.told("audit", OUTPUT)


NAMED = """
from spouts import MemoryTransactionalSpout
from state import DeltaState
from tests.acceptance.test_buckets import DATA, OUTPUT
from tests.backfill.backfills import Counting
from txtopo import Config, Fields, TransactionalTopologyBuilder
from txtopo.testing.inline import run_inline

def topology(id: str = "words", state: str = "counts"):
    builder = TransactionalTopologyBuilder(id, "spout", MemoryTransactionalSpout(DATA, Fields("word"), 4), 1)
    builder.set_committer_bolt("count", Counting(state), 1).global_grouping("spout")
    builder.set_state(state, DeltaState(f"{OUTPUT}/t", Fields("word: string"), Fields("n: long")))
    return builder.build()

if __name__ == "__main__":
    import sys
    run_inline(topology(*sys.argv[1:]), Config(group_transactions_max=1, max_spout_pending=1))
"""


@pytest.mark.slow
def test_names_and_ends_of_killed_runs(bucket_server: Server, command_line: CommandLine) -> None:
    """A run is killed, renamed, killed, rewound, killed, started anew and killed: the journal has each of its entries."""
    command_line.write_module("named", NAMED)

    def killed(*names: str) -> None:
        ended = ran("named.py", *names, cwd=command_line.folder, failpoints="table.write.after=kill:3")
        assert ended.returncode == -signal.SIGKILL, ended.stderr
        assert "every transaction was committed once" in command_line.told("audit", OUTPUT)

    other = ("--set", "id=other", "--set", "state=sizes")
    killed()
    command_line.told("rename", "named", "--yes", *other)
    killed("other", "sizes")
    command_line.told("rewind", "named", "4", "--yes", *other)
    killed("other", "sizes")
    command_line.told("rename", "named", "--yes")
    parts = read_journal(find_journal(folder_at(f"{OUTPUT}/_txtopo"), "words"))
    assert [entry.last for entry in counting_entries(parts, lambda _: True)] == list(range(1, 8))
    for _ in range(2):
        command_line.told("repair", "named", "--start-anew", "--yes")
        killed()
    assert ran("named.py", cwd=command_line.folder).returncode == 0
    found = read_table(f"{OUTPUT}/t")
    assert dict(zip(found["word"].to_pylist(), found["n"].to_pylist(), strict=True)) == counts_of(DATA)
    assert "every transaction was committed once" in command_line.told("audit", OUTPUT)


@pytest.mark.slow
@pytest.mark.covering(1)
@pytest.mark.parametrize("fault", ["expired", "denied", "full"])
@pytest.mark.parametrize("each", [1, 4, 9])
def test_what_may_no_longer_be_written_amid_a_rewind(
    bucket_server: Server, command_line: CommandLine, fault: str, each: int
) -> None:
    """It says so and ends; when it may again, the same command finishes it, and all runs again exactly."""
    command_line.write_module("shop", SHOP)
    run_inline(words_topology(OUTPUT, DATA), Config(group_transactions_max=1), until=8)
    bucket_server.fail(fault, each, kinds="PUT")
    assert command_line("rewind", "shop", "4", "--yes").exit_code in {0, 1}
    bucket_server.fail(fault, 0)
    command_line.told("rewind", "shop", "4", "--yes")
    run_inline(words_topology(OUTPUT, DATA), Config())
    assert read_words(OUTPUT) == counts_of(DATA)
    assert "every transaction was committed once" in command_line.told("audit", OUTPUT)
