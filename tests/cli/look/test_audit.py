"""``txtopo audit``: green on what a topology leaves behind, at any crash; and every damage is named."""

import json
import pathlib
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from spouts import MemoryTransactionalSpout, OpaqueMemoryTransactionalSpout
from state import DeltaState, read_table
from state.delta.read.audit import read_histories
from tests.bolts import Keep
from tests.crashes import CONFIG, Crash, crash_everywhere, run_with_crash
from tests.journals import journal_in, opened_journal
from tests.state.delta.two_tables import Reader, two_tables
from tests.topologies import committing
from txtopo import Config, FailedException, Fields
from txtopo.files.places import folder_at
from txtopo.inspect.audit.checks import audit
from txtopo.inspect.audit.report import Finding
from txtopo.journal.ending import METADATA_DIR
from txtopo.journal.folders import FOLDER
from txtopo.journal.journal import journal_files, read_journal
from txtopo.journal.writer import JournalWriter
from txtopo.testing.inline import run_inline

ONE_A_GROUP = Config(max_spout_pending=6, group_transactions_max=1)


def audited(output):
    """Return what an audit of an output folder finds."""
    parts = read_journal(opened_journal(output))
    return audit(parts, read_histories(folder_at(output / METADATA_DIR), parts[-1].header.tables, with_rows=True))


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("opaque", [False, True], ids=["repeatable", "opaque"])
def test_every_crash(tmp_path, opaque):
    """A crash at each failpoint in turn leaves what is proved, and what readers see whole: at once, and in the next run."""
    in_flight = 0
    for crash, output in crash_everywhere(tmp_path):
        reader = Reader(output)

        def make(output=output):
            return two_tables(output, opaque=opaque)

        if not run_with_crash(make, crash) and any((output / METADATA_DIR / FOLDER).glob("*/*.jsonl")):
            reader()
            report = audited(output)
            assert report.findings == [], (crash.name, report)
            in_flight += report.in_flight is not None
        assert run_with_crash(make, Crash(look=reader, looks_max=8))
        reader()
        assert reader.txid == 4, crash.name
        report = audited(output)
        assert (report.findings, report.first, report.last, report.in_flight) == ([], 1, 4, None), crash.name
        assert (report.input.untold, report.input.partitions) == (0, 2)
        assert [proof.unread for proof in report.tables] == [0, 0]
    assert in_flight > 5


@pytest.mark.slow
def test_a_table_that_was_restored(tmp_path, command_line):
    """What its run has reported as committed is not in flight; without a report, both ways to get there are told."""
    run_inline(two_tables(tmp_path), CONFIG, until=2)
    shutil.copytree(tmp_path / "total", tmp_path / "copy")
    run_inline(two_tables(tmp_path), CONFIG)
    shutil.rmtree(tmp_path / "total")
    (tmp_path / "copy").rename(tmp_path / "total")
    result = command_line("audit", str(tmp_path))
    assert (result.exit_code, "state 'total': group 3 to 4 wrote it, but the table ends at 2" in result.stdout) == (
        1,
        True,
    )
    (tmp_path / METADATA_DIR / "run-crash.json").unlink()
    result = command_line("audit", str(tmp_path))
    assert "In words, not in total: either they are being written" in result.stdout
    assert "or total was restored from a copy" in result.stdout


@pytest.mark.slow
def test_an_optimize_whose_files_are_gone(tmp_path, command_line):
    """What can't be known any more is said; what can be compared is not worth a word."""
    run_inline(two_tables(tmp_path), CONFIG)

    def audited_after_ordering():
        DeltaTable(tmp_path / "total").optimize.z_order(["n"])
        return command_line.told("audit", str(tmp_path))

    assert "believed" not in audited_after_ordering()
    assert "believed" not in audited_after_ordering()
    DeltaTable(tmp_path / "total").vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
    told = command_line.told("audit", str(tmp_path))
    assert "2 versions of others, such as an OPTIMIZE, believed: what they moved is gone, so rows not compared" in told
    assert "believed" not in command_line.told("audit", str(tmp_path), "--quick")


class Removing(Keep):
    """Keeps the words of the last batch only, and fails in transaction 2."""

    def finish_batch(self):
        if self.attempt.txid == 2:
            raise FailedException("never")
        for row in self.state.snapshot().to_pylist():
            self.state.remove(row["word"])
        super().finish_batch()


@pytest.mark.slow
def test_green_with_dead_letters_removed_keys_and_upkeep(tmp_path, command_line):
    """Transactions that were given up count as committed, keys may go, and files may be compacted."""
    rows = [["a"], ["b"], ["c"], ["b"], ["d"], ["e"]]
    state = DeltaState(
        tmp_path / "words", Fields("word: string"), Fields("n: long"), upkeep_every_writes=2, files_max=1
    )
    topology = committing(MemoryTransactionalSpout(rows, Fields("word"), 1), Removing(), words=state)
    config = Config(group_transactions_max=1, transaction_max_attempts=2, transaction_max_attempts_policy="SKIP")
    run_inline(topology, config)
    output = command_line.told("audit", str(tmp_path))
    assert "6 transactions, 1 to 6, each once and in order" in output
    assert "1 dead letter among them" in output
    assert "words: 5 groups in" in output
    assert "5 rows put, 4 removed" in output
    assert "dead-letters: 1 group in" in output


class Clearing(Keep):
    """Removes the word that the transaction before has put, and puts nothing."""

    def execute(self, tuple):
        if self.attempt.txid % 2:
            super().execute(tuple)

    def finish_batch(self):
        if self.attempt.txid % 2:
            super().finish_batch()
        else:
            self.state.remove("a")


@pytest.mark.parametrize("together", [1, 4])
def test_green_where_a_transaction_only_removes(tmp_path, command_line, together):
    """A group without a row to put is a write like any other."""
    words = DeltaState(tmp_path / "words", Fields("word: string"), Fields("n: long"))
    topology = committing(MemoryTransactionalSpout([["a"]] * 4, Fields("word"), 1), Clearing(), words=words)
    run_inline(topology, Config(group_transactions_max=together))
    assert not read_table(tmp_path / "words").num_rows
    command_line.told("audit", str(tmp_path))


@pytest.fixture
def output(tmp_path):
    """What a run of four transactions in four groups leaves behind."""
    folder = tmp_path / "out"
    assert run_with_crash(lambda: two_tables(folder), Crash(), ONE_A_GROUP)
    return folder


def test_the_module_finds_the_output(command_line, output):
    """A module's topology says where its tables are; ``--quick`` leaves out the rows."""
    command_line.write_module(
        "words",
        "import pathlib\nfrom tests.state.delta.two_tables import two_tables\n"
        f"def topology(out: str = {str(output)!r}):\n    return two_tables(pathlib.Path(out))\n",
    )
    found = command_line.told("audit", "words")
    assert "4 transactions, 1 to 4, each once and in order; 4 groups in 1 epoch" in found
    assert "8 ranges of 2 partitions, without gap or overlap" in found
    quick = command_line.told("audit", "words", "--set", f"out={output}", "--quick")
    assert "rows not compared" in quick
    assert "without a gap; the rows of tables were not looked at\n" in quick
    assert "--set needs a MODULE" in command_line.refusal("audit", str(output), "--set", "out=x", status=2)


def drop_entry(output):
    """Take the third transaction out of the journal, whose first line is its header."""
    file = next(journal_in(output).iterdir())
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join([*lines[:3], *lines[4:]]))


def change_row(output):
    table = DeltaTable(str(output / "words"))
    table.update(updates={"n": "n + 1"}, predicate="txid = 3")


def add_row(output):
    write_deltalake(str(output / "words"), pa.table({"word": ["zzz"], "n": [1], "txid": [9]}), mode="append")


def double_rows(output):
    table = DeltaTable(str(output / "words"))
    write_deltalake(table, table.scan(), mode="append")


def restore(output):
    table = DeltaTable(str(output / "words"))
    table.restore(table.version() - 1)


OTHER_VERSION = "another writer made this version"
DAMAGES = {
    "an entry is gone": (
        drop_entry,
        ["transaction 3: it is not in the journal", "transaction 3, state 'words', table version"],
    ),
    "a row was changed": (
        change_row,
        [
            f"transaction 4, state 'words', table version 6: {OTHER_VERSION} (UPDATE)",
            "rows changed without a transaction above 4: {'word': ",
        ],
    ),
    "a row was added": (
        add_row,
        [
            f"{OTHER_VERSION} (WRITE); the table was at 4",
            "transaction 9, state 'words', table version 6: a row has transaction 9",
        ],
    ),
    "rows are there twice": (
        double_rows,
        [f"{OTHER_VERSION} (WRITE)", "keys occur more than once: {'word': "],
    ),
    "the table was restored": (
        restore,
        [
            f"transaction 4, state 'words', table version 6: {OTHER_VERSION} (RESTORE)",
            "rows changed without a transaction above 4",
            "became",
        ],
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize(("damage", "expected"), DAMAGES.values(), ids=DAMAGES)
def test_damage_is_named(command_line, output, damage, expected):
    """Each kind of damage is found: the transaction is named, the table and its version, and what is wrong."""
    assert command_line("audit", str(output)).exit_code == 0
    damage(output)
    result = command_line("audit", str(output))
    assert result.exit_code == 1
    assert [text for text in expected if text not in result.output] == [], result.output
    same_as_json(command_line, output, result.stdout)


def same_as_json(command_line, output, told):
    """Check that ``--json`` has the findings that were told, each with its place, and nothing else is printed."""
    result = command_line("audit", str(output), "--json")
    assert (result.exit_code, result.stderr) == (1, "")
    (line,) = result.stdout.splitlines()
    document = json.loads(line)
    assert not document["isProved"]
    findings = [
        str(Finding(finding["text"], finding["transaction"], finding["state"], finding["version"]))
        for finding in document["findings"]
    ]
    assert [f"✘ {finding}" for finding in findings] == [line for line in told.splitlines() if line.startswith("✘")]


def test_what_is_proved_as_json(command_line, output):
    """The document has all that the text says, with --quick without what was not looked at."""
    document = json.loads(command_line.told("audit", str(output), "--json"))
    assert document["isProved"]
    tables = document.pop("tables")
    assert [(table["state"], table["first"], table["last"]) for table in tables] == [("words", 1, 4), ("total", 1, 4)]
    assert all(table["rowsPut"] > 0 for table in tables)
    assert document == {
        "topology": "crash",
        "isProved": True,
        "findings": [],
        "leftOut": 0,
        "withRows": True,
        "first": 1,
        "last": 4,
        "groups": 4,
        "epochs": 1,
        "deadLetters": 0,
        "dropped": 0,
        "input": {"partitions": 2, "ranges": 8, "untold": 0},
        "skipped": {},
        "references": {},
        "replanned": [],
        "inFlight": None,
        "renames": [],
        "tablesRead": 2,
        "notProved": {},
    }
    quick = json.loads(command_line.told("audit", str(output), "--json", "--quick"))
    assert {(table["rowsPut"], table["rowsRemoved"], table["unread"]) for table in quick["tables"]} == {
        (None, None, None)
    }
    refused = command_line("audit", str(output.parent), "--json")
    assert (refused.exit_code, refused.stdout) == (2, "")


def test_what_is_in_flight_as_json(tmp_path, command_line):
    """A group that one of two tables has is neither proved nor a finding."""
    crash = Crash(at=1, only="table.write.after")
    assert not run_with_crash(lambda: two_tables(tmp_path), crash)
    document = json.loads(command_line.told("audit", str(tmp_path), "--json"))
    assert document["isProved"]
    assert document["inFlight"]["first"] == 1
    assert (document["inFlight"]["in"], document["inFlight"]["notIn"]) == (["words"], ["total"])


def test_a_change_between_two_versions_is_named(command_line, output):
    """A row that somebody changed in the middle of the history, by a file that looks like our own, is found."""
    log = output / "words" / "_delta_log"
    other = output.parent / "other"
    shutil.copytree(output / "words", other)
    table = DeltaTable(str(other), version=3)
    rows = pa.table(table.scan()).to_pylist()
    index = next(i for i, row in enumerate(rows) if row["txid"] == 1)
    rows[index]["n"] += 100
    write_deltalake(str(output.parent / "draft"), pa.Table.from_pylist(rows, schema=pa.schema(table.schema())))
    draft = next((output.parent / "draft").glob("*.parquet"))
    actions = [json.loads(line) for line in (log / f"{3:020d}.json").read_text().splitlines()]
    added = next(action["add"] for action in actions if "add" in action)
    shutil.copy(draft, output / "words" / added["path"])
    result = command_line("audit", str(output))
    assert (result.exit_code, "version 3" in result.stderr, "damaged" in result.stderr) == (2, True, True)
    added["size"] = draft.stat().st_size
    (log / f"{3:020d}.json").write_text("".join(json.dumps(action) + "\n" for action in actions))
    result = command_line("audit", str(output))
    assert result.exit_code == 1
    assert "transaction 1, state 'words', table version 3: rows changed without a transaction above 1" in result.output


def test_histories_that_are_not_whole_are_said_to_be(command_line, output):
    """What the log and the files no longer tell is left out, and the proof says from where on it holds."""
    table = DeltaTable(str(output / "words"), version=3)
    table.create_checkpoint()
    for version in range(3):
        (output / "words" / "_delta_log" / f"{version:020d}.json").unlink()
    gone = set(DeltaTable(str(output / "total"), version=3).file_uris())
    for file in gone:
        (output / "total" / "_data" / file.rsplit("/", 1)[-1]).unlink()
    output = command_line.told("audit", str(output))
    assert "words: 2 groups in 2 versions" in output
    assert "proved from transaction 3 to 4" in output
    assert "2 versions no longer kept: rows not compared" in output
    assert "without a gap; what 2 versions of tables put can't be known any more\n" in output


@pytest.mark.parametrize("is_vacuumed", [False, True])
def test_a_table_that_is_doubled_already(command_line, output, is_vacuumed):
    """Keys that occur twice are found in the newest version, also if a vacuum has left no other one."""
    files = DeltaTable(str(output / "words")).file_uris()
    for path in map(pathlib.Path, files):
        rows = pq.read_table(path)
        size = f'"size":{path.stat().st_size}'
        pq.write_table(pa.concat_tables([rows, rows]), path)
        for entry in (output / "words" / "_delta_log").glob("*.json"):
            lines = entry.read_text().splitlines(keepends=True)
            doubled = (
                line.replace(size, f'"size":{path.stat().st_size}') if path.name in line else line for line in lines
            )
            entry.write_text("".join(doubled))
    for path in (output / "words" / "_data").iterdir() if is_vacuumed else ():
        if str(path) not in files:
            path.unlink()
    result = command_line("audit", str(output))
    assert result.exit_code == 1
    assert "keys occur more than once: " in result.output
    assert "✔" not in result.output
    assert "the rows of tables were not looked at" in command_line.told("audit", str(output), "--quick")


@pytest.mark.slow
@pytest.mark.parametrize("epochs", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_a_journal_whose_oldest_part_is_dropped(tmp_path, monkeypatch, epochs):
    """What is left of a long journal, and what a new epoch adds to it, is proved from its first header on."""
    monkeypatch.setitem(JournalWriter.__init__.__kwdefaults__, "part_bytes_max", 1)
    settings = {"max_spout_pending": 6, "group_transactions_max": 1, "topology.journal.bytes.max": 3_000}
    for epoch in range(1, epochs + 1):
        run_inline(many(tmp_path), Config(settings), until=10 * epoch)
    files = [file.path for file in journal_files(opened_journal(tmp_path))]
    assert files[0] > "0000000001-000000.jsonl", "the oldest was dropped"
    assert {name[:10] for name in files} >= {f"{epochs:010d}"}
    report = audited(tmp_path)
    assert (report.findings, report.last) == ([], 10 * epochs)
    assert 1 < report.first <= 10 * epochs
    assert [(proof.first, proof.last) for proof in report.tables] == [(report.first, 10 * epochs)]


def many(output):
    """Return a topology of many small transactions."""
    spout = MemoryTransactionalSpout([[f"word {n}"] for n in range(40)], Fields("word"), 1)
    return committing(spout, Keep(), words=DeltaState(output / "words", Fields("word: string"), Fields("n: long")))


def test_what_a_spout_does_not_tell_is_said(command_line, tmp_path):
    """Without ``input_ranges`` the input is not proved, and the audit says so."""

    class Silent(OpaqueMemoryTransactionalSpout):
        def input_ranges(self, metadata, previous_metadata):
            return None

    words = DeltaState(tmp_path / "words", Fields("word: string"), Fields("n: long"))
    run_inline(committing(Silent([["a"], ["b"]], Fields("word"), 1), Keep(), words=words), CONFIG)
    result = command_line("audit", str(tmp_path))
    assert (result.exit_code, "not reported by the spout for 2 transactions" in result.output) == (0, True)
    assert "define in the spout input_ranges(self, metadata, previous_metadata)" in result.output


@pytest.fixture
def shared_output(tmp_path):
    """A folder that two topologies write to."""
    for topology_id, rows in {"one": [["a"], ["b"]], "two": [["c"]]}.items():
        words = DeltaState(tmp_path / topology_id, Fields("word: string"), Fields("n: long"))
        spout = MemoryTransactionalSpout(rows, Fields("word"), 1)
        run_inline(committing(spout, Keep(), topology_id=topology_id, words=words))
    return tmp_path


@pytest.mark.parametrize(("command", "status"), [(["audit"], 2), (["explain", "1"], 1)])
def test_several_topologies_in_one_folder_must_be_chosen_from(command_line, shared_output, command, status):
    """A folder's journal of one topology is not taken for all that is in it."""
    name, *rest = command
    unclear = command_line(name, str(shared_output), *rest)
    assert (unclear.exit_code, unclear.stdout) == (status, "")
    assert "several topologies: 'one', 'two'; choose one with --topology" in unclear.stderr
    assert "no record of a topology 'three'; it has" in command_line.refusal(
        name, str(shared_output), *rest, "--topology", "three", status=status
    )
    output = command_line.told(name, str(shared_output), *rest, "--topology", "two")
    assert ("1 transaction, 1 to 1" if name == "audit" else "of topology 'two'") in output


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("output", "there is neither a folder nor a module 'output'; did you mean the folder 'outputs'?"),
        ("topos", "there is neither a folder nor a module 'topos'; did you mean 'topo'?"),
        ("xyz", "there is neither a folder nor a module 'xyz'; runs have left records in outputs"),
        ("outputs/word", "there is no folder outputs/word; did you mean the folder 'outputs/words'?"),
    ],
)
def test_what_is_neither_a_folder_nor_a_module(command_line, tmp_path, target, expected):
    """Both readings are said to have failed, with the nearest of either."""
    (tmp_path / "outputs" / METADATA_DIR).mkdir(parents=True)
    (tmp_path / "outputs" / "words").mkdir()
    command_line.write_module("topo", "topology = 1\n")
    for result in (command_line("audit", target), command_line("explain", target, "1")):
        assert result.stderr == f"error: {expected}\n"
        assert result.exit_code in {1, 2}


def test_a_folder_that_stands_for_a_module_is_told(command_line, tmp_path):
    """A command that needs the topology itself is given the folder of its tables."""
    (tmp_path / "outputs").mkdir()
    result = command_line("replay", "outputs", "1")
    assert (result.exit_code, result.stderr) == (
        2,
        "error: 'outputs' is a folder, not a module; give the topology's module\n",
    )


def test_a_folder_without_a_journal_is_refused(command_line, tmp_path):
    assert "there is no journal" in command_line.refusal("audit", str(tmp_path), status=2)
