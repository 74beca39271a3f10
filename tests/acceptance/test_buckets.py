"""Topologies all of which is in a bucket, on machines whose disks are lost with their processes."""

import logging
import pickle
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest

pytest.importorskip("obstore")

from committers import AppendCommitter
from spouts import MemoryTransactionalSpout
from spouts.files.spout import FilesTransactionalSpout
from state import DeltaRows, read_table
from state.delta.log.location import Location
from state.delta.read.consistent import read_tables
from tests.acceptance.topologies import counts_of, make_data, read_total, read_words, words_topology
from tests.azurite import AzuriteServer
from tests.crashes import dying
from tests.object_server import ObjectStore as Server
from tests.processes import ran
from txtopo import Config, FailedException, Fields, TransactionalTopology, TransactionalTopologyBuilder
from txtopo.assembly.storage import metadata_dir_of, store_words
from txtopo.engine.runner import run_with
from txtopo.errors import ConfigError
from txtopo.files.objects import ObjectFolder
from txtopo.inspect.audit.evidence import audited
from txtopo.journal.folders import topologies_with_journal
from txtopo.streams import Count, Flow
from txtopo.testing.inline import inline_environment, run_inline
from txtopo.transactional.core.coordinator import Coordinator
from txtopo.transactional.core.limits import Limits

DATA = make_data(3, 60)
OUTPUT = "s3://bucket/shop"

RUN = """
from tests.acceptance.topologies import words_topology
from tests.acceptance.test_buckets import DATA, OUTPUT
from txtopo import Config
from txtopo.testing.inline import run_inline
run_inline(words_topology(OUTPUT, DATA), Config(group_transactions_max=2))
"""


READ = """
from tests.acceptance.test_buckets import lines_topology
from txtopo import Config
from txtopo.testing.inline import run_inline
run_inline(lines_topology(), Config(group_transactions_max=2))
"""


def lines_topology() -> TransactionalTopology:
    """Return a topology whose input is in the bucket, too: each line of its objects becomes a row."""
    spout = FilesTransactionalSpout("s3://bucket/in", Fields("line: string"), batch_files_max=2)
    builder = TransactionalTopologyBuilder("lines", "spout", spout, 2)
    builder.set_committer_bolt("append", AppendCommitter("rows")).shuffle_grouping("spout")
    builder.set_state("rows", DeltaRows(f"{OUTPUT}/rows", Fields("line: string")))
    return builder.build()


@pytest.fixture
def lives(tmp_path: Path) -> Callable[..., int]:
    """Run the topology on a machine whose disk is empty at first and lost at the end; return how the process ended."""

    def live(failpoints: str = "", code: str = RUN) -> int:
        disk = tmp_path / "disk"
        (disk / "tmp").mkdir(parents=True)
        ended = ran("-c", code, failpoints=failpoints, cwd=disk, TMPDIR=str(disk / "tmp"), HOME=str(disk))
        shutil.rmtree(disk)
        if ended.returncode > 0:
            print(ended.stderr, file=sys.stderr)
        return ended.returncode

    return live


@pytest.mark.slow
def test_more_are_pending_in_a_bucket(bucket_server: Server, tmp_path: Path) -> None:
    """More transactions share the puts of a commit group, unless it is said how many; on a disk that gains nothing."""
    del bucket_server  # the options of the bucket are in the environment
    limits: list[Limits] = []

    def make_coordinator(own: Limits) -> Coordinator:
        limits.append(own)
        return Coordinator(own)

    environment = attrs.evolve(inline_environment(), make_coordinator=make_coordinator)
    for output, config in ((tmp_path, Config()), (OUTPUT, Config()), (f"{OUTPUT}2", Config(max_spout_pending=8))):
        run_with(words_topology(output, DATA), config, environment)
    assert [limit.pending_max for limit in limits] == [768, 1536, 8]


STAGED = """
import committers.spill
from tests.acceptance.topologies import words_topology
from tests.acceptance.test_buckets import DATA, OUTPUT
from txtopo import Config
from txtopo.testing.inline import run_inline
committers.spill.FILE_ROWS_MIN = committers.spill.ROWS_REDUCED_MIN = 1
run_inline(words_topology(OUTPUT, DATA), Config(group_transactions_max=2, received_bytes_max=1))
"""


@pytest.mark.slow
def test_what_is_staged_is_in_the_bucket(bucket_server: Server, lives: Callable[..., int]) -> None:
    """What jobs leave for the commit phase needs no disk either, and nothing of it stays behind after kills."""
    assert lives("group.decide.before=kill:2", STAGED) == -9
    staged = ObjectFolder(f"{OUTPUT}/_txtopo/staging", tuple(bucket_server.options.items()))
    assert list(staged.walk())
    assert lives("table.write.after=kill:3", STAGED) == -9
    assert lives(code=STAGED) == 0
    assert not list(staged.walk())
    assert read_words(OUTPUT) == counts_of(DATA)
    assert read_total(OUTPUT) == sum(counts_of(DATA).values())
    assert audited(ObjectFolder(f"{OUTPUT}/_txtopo"), "words", with_rows=True).findings == []


@pytest.mark.slow
def test_input_in_the_bucket_and_machines_that_are_lost(bucket_server: Server, lives: Callable[..., int]) -> None:
    """Each line of each object is a row once, also of those that come later with names that sort before."""
    objects = ObjectFolder("s3://bucket/in", tuple(bucket_server.options.items()))
    names = [f"{number:02d}" for number in (5, 6, 7, 8, 9, 0, 1, 2)]
    for name in names[:5]:
        objects.put(name, f"{name}\n{name}\n".encode())
    assert lives("group.decide.after=kill:1", READ) == -9
    for name in names[5:]:
        objects.put(name, f"{name}\n{name}\n".encode())
    assert lives("table.write.after=kill:2", READ) == -9
    assert lives(code=READ) == 0
    rows = read_table(f"{OUTPUT}/rows")
    assert Counter(rows["line"].to_pylist()) == dict.fromkeys(names, 2)
    assert audited(metadata_dir_of(lines_topology().plan, Config()), "lines", with_rows=True).findings == []


@pytest.mark.slow
def test_a_machine_that_is_lost_with_its_disk(bucket_server: Server, lives: Callable[..., int]) -> None:
    """``output="s3://..."`` is all that is given: whoever starts it anywhere goes on exactly, wherever it was killed.

    Every fifth answer of the store is lost. Its processes take five seconds of CPU time, most of it to import.
    """
    bucket_server.lose_answers(5)
    for step in ("group.decide.after=kill:2", "table.write.after=kill:3"):
        assert lives(step) == -9
    assert lives() == 0
    assert read_words(OUTPUT) == counts_of(DATA)
    assert read_total(OUTPUT) == sum(counts_of(DATA).values())
    view = read_tables(OUTPUT)
    assert sum(view.tables["words"]["n"].to_pylist()) == view.tables["total"]["n"][0].as_py()
    assert audited(ObjectFolder(f"{OUTPUT}/_txtopo"), "words", with_rows=True).findings == []
    report = run_inline(words_topology(OUTPUT, DATA), Config())
    assert (report.transactions, report.committed_txid) == (0, view.txid)


AZURE = "az://bucket/shop"


@pytest.mark.slow
def test_a_machine_that_is_lost_on_azure(
    azure: AzuriteServer, lives: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same on Azure's protocol: exact wherever it was killed, with a proof."""
    for name, value in azure.options.items():
        monkeypatch.setenv(name.upper(), value)
    for step in ("group.decide.after=kill:2", "table.write.after=kill:3"):
        assert lives(step, STAGED.replace("OUTPUT", "AZURE")) == -9
    assert lives(code=STAGED.replace("OUTPUT", "AZURE")) == 0
    assert read_words(AZURE) == counts_of(DATA)
    assert read_total(AZURE) == sum(counts_of(DATA).values())
    assert audited(ObjectFolder(f"{AZURE}/_txtopo"), "words", with_rows=True).findings == []
    assert not list(ObjectFolder(f"{AZURE}/_txtopo/staging").walk())


@pytest.mark.slow
def test_all_of_it_is_in_the_bucket(bucket_server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Coordinator state and journal follow from the tables' place; nothing is left on the disk."""
    monkeypatch.chdir(tmp_path)
    run_inline(words_topology(OUTPUT, DATA), Config())
    folder = ObjectFolder(OUTPUT, tuple(bucket_server.options.items()))
    assert folder.folders() == ["_txtopo", "total", "words"]
    assert folder.folders("_txtopo") == ["coordinator", "journal"]
    assert folder.names("_txtopo") == ["run-words.json"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a b?x=1 ä%20#1[a]^|", "words"])
def test_names_are_taken_as_they_are(bucket_server: Server, name: str) -> None:
    """A topology may have any id, and is found by it beside others of whose ids it is the beginning or the end."""
    folder = ObjectFolder(OUTPUT, tuple(bucket_server.options.items()))
    ids = sorted([name, f"{name}2", f"1{name}"])
    for number, own in enumerate(ids):
        run_inline(words_topology(f"{OUTPUT}/{number}", DATA, topology_id=own), Config(state_dir=f"{OUTPUT}/_txtopo"))
    assert topologies_with_journal(folder.below("_txtopo")) == tuple(ids)
    assert folder.folders("_txtopo") == ["coordinator", "journal"]
    for number, own in enumerate(ids):
        assert audited(folder.below("_txtopo"), own, with_rows=True).findings == []
        assert read_words(f"{OUTPUT}//{number}/") == counts_of(DATA)


@pytest.mark.parametrize("place", ["s3://bucket/a#1", "s3://bucket/a?1", "s3://bucket/a%20b", "s3://bucket/a\\b"])
def test_an_address_that_delta_rs_takes_for_another(place: str) -> None:
    """It is refused before anything is written: a table would be elsewhere than all else, or where another one is."""
    with pytest.raises(ConfigError, match=r"no table can be at .* a part of a URL"):
        run_inline(words_topology(place, DATA), Config())


def test_what_a_group_costs(bucket_server: Server) -> None:
    """It puts two objects of each table, and coordinator state twice; it reads and lists nothing.

    Counted by the server, from the first object of the first group on.
    """
    config = Config(group_transactions_max=1, max_spout_pending=1)
    now_secs, began_secs = time.time(), time.monotonic()  # no time of day passes, by which the past is looked after
    run_inline(words_topology(OUTPUT, DATA), config, until=2, wall_secs=lambda: now_secs)
    bucket_server.asked()
    groups = run_inline(words_topology(OUTPUT, DATA), config, wall_secs=lambda: now_secs).transactions
    beats = int((time.monotonic() - began_secs) // 3)
    assert groups > 10
    asked = [each.split(" ", 1) for each in bucket_server.asked()]
    start = next(at for at, (_, name) in enumerate(asked) if name.startswith("shop/words/_data/keys-3-"))
    of_start, of_groups = Counter(kind for kind, _ in asked[:start]), asked[start:]
    found = Counter(name.rpartition("/")[0] for kind, name in of_groups if kind == "PUT")
    # The committed mark of the last group and the end of the lead follow; heartbeats may, by the clock.
    in_store = found.pop("shop/_txtopo/coordinator/words-dba36bffa5cab0f9/log")
    assert in_store in range(2 * groups, 2 * groups + 3 + beats)
    assert found.pop("shop/_txtopo") <= 2 + beats  # the snapshot: at the beginning and the end, and each three seconds
    # The journal's entries ride in the decisions, and go to its file together.
    assert found.pop("shop/_txtopo/journal/words") == 1
    assert found.pop("shop/total/_data") in {groups - 1, groups}
    assert found == {"shop/words/_data": groups, "shop/words/_delta_log": groups, "shop/total/_delta_log": groups}
    # Once it is looked whether a backfill needs the past, and what of the journal may go; at the end, at what is staged.
    others = Counter(f"{kind} {name}" for kind, name in of_groups if kind != "PUT")
    assert others.pop("LIST shop/_txtopo/backfill/words/") <= 2
    assert others <= Counter({"LIST shop/_txtopo/journal/words/": 1, "LIST shop/_txtopo/staging/words/2/": 1})
    # Six for each of the tables' ten entries since their first: delta-rs reads two handles of each twice, and we them once.
    assert of_start <= Counter(GET=120, LIST=50, PUT=15 + 2 * beats, HEAD=5, DELETE=2), of_start


@pytest.mark.slow
@pytest.mark.parametrize("way", ["environment", "env", "file", "given"])
def test_a_secret_is_nowhere(
    bucket_server: Server,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
    way: str,
) -> None:
    """In whatever way credentials are given: no object, text, log or file has the secret, nor what goes to executors.

    Only options that are given in words are in the topology, and travel with it.
    """
    for name in bucket_server.options:
        monkeypatch.delenv(name.upper())
    caplog.set_level(logging.DEBUG)
    secret = "do-not-show-this"
    (tmp_path / "secret").write_text(f"{secret}\n")
    where = {"env": "env:SHOP_SECRET", "file": f"file:{tmp_path / 'secret'}", "given": secret}
    options = {**bucket_server.options, "aws_secret_access_key": where.get(way, secret)}
    monkeypatch.setenv("SHOP_SECRET", secret)
    if way == "environment":
        for name, value in options.items():
            monkeypatch.setenv(name.upper(), value)
    given = None if way == "environment" else options
    ObjectFolder("s3://bucket/in", tuple((given or {}).items())).put("a", b"one\ntwo\nthree\n")
    spout = FilesTransactionalSpout("s3://bucket/in", Fields("word"), batch_bytes=4, storage_options=given)
    state = DeltaRows(f"{OUTPUT}/rows", Fields("word: string"), storage_options=given)
    builder = TransactionalTopologyBuilder("words", "spout", spout, 1)
    builder.set_committer_bolt("append", AppendCommitter("rows")).shuffle_grouping("spout")
    builder.set_state("rows", state)
    topology = builder.build()
    with dying("table.write.after"):
        run_inline(topology, Config())
    report = run_inline(topology, Config())
    metadata_dir = metadata_dir_of(topology.plan, Config())
    assert audited(metadata_dir, "words", with_rows=True).findings == []
    assert read_table(f"{OUTPUT}/rows", storage_options=given).num_rows == 3
    location = Location.resolve(OUTPUT, given)
    shown = [repr(each) for each in (spout, vars(spout), state, topology.plan, metadata_dir, report, location)]
    shown += [caplog.text, store_words(topology.plan, Config())]
    if way != "given":
        shown += [pickle.dumps(each).decode("latin-1") for each in (spout, state, topology, metadata_dir, location)]
    folders = [metadata_dir.parent]
    while folders:
        folder = folders.pop()
        folders += [folder.below(name) for name in folder.folders()]
        shown += [folder.get(name).decode("latin-1") for name in folder.names()]
    files = [path for path in tmp_path.rglob("*") if path.is_file() and path.name != "secret"]
    shown += [path.read_bytes().decode("latin-1") for path in files]
    assert len(shown) > 15
    assert not [each for each in shown if secret in each]


IN_TIME = b"at,word\n2026-03-01T12:00:00Z,a\n2026-03-01T12:00:01Z,b\nx,c\n2026-03-01T12:00:02Z,a\n"


class Refusing(AppendCommitter):
    """Appends nothing."""

    def finish_batch(self) -> None:
        raise FailedException("never")


def alone(server: Server, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Return the server's options, which the environment lacks from now on: whoever has none is refused at once."""
    for name in server.options:
        monkeypatch.delenv(name.upper())
    monkeypatch.setenv("AWS_ENDPOINT", "http://127.0.0.1:9")
    return dict(server.options)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["flow", "sink"])
def test_a_flow_takes_options(bucket_server: Server, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    """Those of the flow, or of one of its tables, are those of all its tables, also of what steps keep for themselves.

    So it is with bad records.
    """
    options = alone(bucket_server, monkeypatch)
    ObjectFolder("s3://bucket/in", tuple(options.items())).put("a.csv", IN_TIME)
    flow = Flow("shop", OUTPUT, storage_options=options if way == "flow" else None)
    spout = FilesTransactionalSpout(
        "s3://bucket/in/*.csv", Fields("at: timestamp", "word: string"), storage_options=options
    )
    words = flow.source("in", spout, bad="bad")
    given = {} if way == "flow" else {"storage_options": options}
    words.event_time("at", delay="1s").distinct("word", within="1h").append("rows", **given)
    counts = words.group_by("word").agg(n=Count()).upsert("counts")
    topology = flow.build()
    run_inline(topology, Config())
    rows = read_tables(OUTPUT, storage_options=options).tables
    assert (rows["rows"].num_rows, rows["counts"].num_rows) == (2, 2)
    assert read_table(f"{OUTPUT}/bad", storage_options=options).num_rows == 1
    if way == "flow":
        assert sorted(counts.read()["n"].to_pylist()) == [1, 2]
    assert all(state.storage_options == options for state in topology.plan.states.values())
    assert run_inline(flow.build(), Config()).transactions == 0


@pytest.mark.slow
def test_dead_letters_take_the_options_of_the_tables(bucket_server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are in the tables' bucket, so they are reached with what reaches these."""
    options = alone(bucket_server, monkeypatch)
    builder = TransactionalTopologyBuilder("words", "spout", MemoryTransactionalSpout({0: [["a"]]}, Fields("word"), 1))
    builder.set_committer_bolt("append", Refusing("rows")).shuffle_grouping("spout")
    builder.set_state("rows", DeltaRows(f"{OUTPUT}/rows", Fields("word: string"), storage_options=options))
    config = Config(transaction_max_attempts=1, transaction_max_attempts_policy="SKIP")
    assert run_inline(builder.build(), config).dead_letters == 1
    assert read_table(f"{OUTPUT}/dead_letters", storage_options=options).num_rows == 1


def test_credentials_that_are_written_anew_are_taken(bucket_server: Server, tmp_path: Path) -> None:
    """Whoever renews a file that ``file:`` names needs no new start; one that is missing is said by its option."""
    (tmp_path / "endpoint").write_text("http://127.0.0.1:9\n")
    options = {**bucket_server.options, "aws_endpoint": f"file:{tmp_path / 'endpoint'}"}
    folder = ObjectFolder(OUTPUT, tuple(options.items()))
    (tmp_path / "endpoint").write_text(bucket_server.options["aws_endpoint"])
    folder.put("a", b"1")
    (tmp_path / "endpoint").unlink()
    with pytest.raises(ConfigError, match="storage_options: 'aws_endpoint' is 'file:"):
        folder.get("a")
