"""``txtopo state``: the rows of a table, now and as of a past transaction."""

import json
import pathlib

import pyarrow as pa
import pytest

from spouts.kafka.plain.dead_letters import DeadLetter, DeltaDeadLetters
from spouts.kafka.records import KafkaRecord
from state import DeltaState, TransactionalValue
from state.delta.keyed.writing import RowWrites
from state.delta.read import history
from txtopo import Fields
from txtopo.files.folder import LocalFolder
from txtopo.files.records import read_json
from txtopo.inspect.past.tables import rows
from txtopo.journal.entries import JournalEntry, JournalHeader, JournalTable, JournalTransaction
from txtopo.journal.folders import FOLDER
from txtopo.journal.writer import JournalWriter


@pytest.fixture
def table(tmp_path):
    """A table after two Delta writes: of transaction 3 and of transaction 7."""
    path = tmp_path / "out" / "words"
    state = DeltaState(path, key=Fields("word: string"), value=Fields("n: long")).open("t", "words", "life", 1)
    state.write(3, {word: TransactionalValue(3, n) for word, n in (("dog", 1), ("cat", 2), ("ape", 3))})
    state.write(7, {"cat": TransactionalValue(7, 20)})
    state.close()
    return str(path)


def test_rows_are_shown_sorted_with_their_txids(command_line, table):
    """The table names its columns, sorts by key, and says the last transaction."""
    result = command_line("state", table)
    assert [line.split() for line in result.stdout.splitlines()] == [
        ["word", "n", "txid"],
        ["ape", "3", "3"],
        ["cat", "20", "7"],
        ["dog", "1", "3"],
    ]
    assert result.stderr == "3 rows; the last transaction is 7\n"


def test_numbers_that_json_lacks(command_line, tmp_path):
    """They are texts, as Spark writes and reads them."""
    state = DeltaState(tmp_path / "n", Fields("k: string"), Fields("n: double")).open("t", "n", "life", 1)
    state.write(1, {key: TransactionalValue(1, float(key)) for key in ("nan", "-inf", "1.5")})
    state.close()
    lines = command_line("state", str(tmp_path / "n"), "--format", "jsonl").stdout.splitlines()
    found = [read_json(line) for line in lines]
    assert {row["k"]: row["n"] for row in found} == {"nan": "NaN", "-inf": "-Infinity", "1.5": 1.5}


@pytest.mark.parametrize("form", ["table", "jsonl", "csv"])
def test_times_of_other_years_are_shown(command_line, tmp_path, form):
    """An Arrow bolt may write times that Python can't read: whoever shows rows shows those, too."""
    for name, at in (("a", (1 << 63) - 1), ("b", -(1 << 63))):
        path = tmp_path / name / "times"
        state = DeltaState(path, Fields("k: string"), Fields("at: timestamp")).open("t", "times", "life", 1)
        schema = pa.schema([("k", pa.string()), ("at", pa.timestamp("us", "UTC")), ("txid", pa.int64())])
        written = pa.table({"k": ["x"], "at": pa.array([at]), "txid": [1]}).cast(schema)
        state.publish(1, state.prepare(1, RowWrites(written)))
        state.close()
        said = f"{at} us since 1970"
        assert said in command_line("state", str(path), "--format", form).output
        assert said in str(rows("times", str(path), [], None, 10).rows)
    told = command_line("diff", str(tmp_path / "a" / "times"), str(tmp_path / "b" / "times")).output
    assert f"{(1 << 63) - 1} us since 1970 in A, {-(1 << 63)} us since 1970 in B" in " ".join(told.split())


@pytest.mark.parametrize("options", [("--txid", "3"), ("--txid", "5", "--nearest")])
def test_a_past_transaction_shows_what_was_then(command_line, table, options):
    """``--txid`` goes back to its Delta write, with ``--nearest`` to the last one that is not above it."""
    result = command_line("state", table, *options, "--key", "cat", "--format", "csv")
    assert result.stdout == "word,n,txid\ncat,2,3\n"


@pytest.mark.parametrize("form", ["json", "jsonl", "JSONL"])
def test_json_is_an_object_a_line(command_line, table, form):
    """Standard output holds nothing but the rows, under the name that the form had and the name that it has elsewhere."""
    result = command_line("state", table, "--format", form, "--limit", "1")
    assert [json.loads(line) for line in result.stdout.splitlines()] == [{"word": "ape", "n": 3, "txid": 3}]
    assert result.stderr == "1 row of 3; --limit N shows more; the last transaction is 7\n"
    assert "there is no format 'xml'; there are table, jsonl, csv" in command_line.refusal(
        "state", table, "--format", "xml", status=2
    )


def test_a_key_that_is_not_there_shows_no_row(command_line, table):
    result = command_line("state", table, "--key", "emu", "--format", "json")
    assert (result.stdout, result.exit_code) == ("", 0)
    assert command_line("state", table, "--key", "emu").stdout == ""


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--txid", "8"), "its last transaction is 7"),
        (("--txid", "5"), "or for the nearest before 5 (nearest=True, --nearest)"),
        (("--key", "a", "--key", "b", "--key", "c"), "the columns are word, n, txid"),
        (("--key", "a", "--key", "b"), "'b' is not of type int64, the type of key field 'n'"),
    ],
)
def test_what_cannot_be_shown_is_told_in_words(command_line, table, options, expected):
    assert expected in command_line.refusal("state", table, *options)


def test_a_table_of_a_plain_topology_is_shown(command_line, tmp_path):
    """Dead letters too; there is no transaction to name or to ask for."""
    DeltaDeadLetters(str(tmp_path / "dead")).take(
        [DeadLetter(KafkaRecord(None, b"v", "topic", 0, 7, None, ()), 3, "no")]
    )
    result = command_line("state", str(tmp_path / "dead"), "--format", "jsonl")
    assert (result.exit_code, json.loads(result.stdout)["reason"]) == (0, "no")
    assert result.stderr == "1 row; the table is of no state, so its rows have no transactions\n"
    assert "read it without a txid" in command_line.refusal("state", str(tmp_path / "dead"), "--txid", "1")


def test_a_folder_that_is_no_table_says_what_to_give(command_line, table, tmp_path):
    """One that is not there, a file, and one that holds tables; and ``--nearest`` is nothing by itself."""
    (tmp_path / "file").touch()
    assert command_line("state", "file").stderr.endswith("file is not a table of a txtopo state: it is a file\n")
    assert command_line("state", "nowhere").stderr.endswith(
        "nowhere is not a table of a txtopo state: there is no such folder\n"
    )
    assert "it is a folder of tables; give one of words in it" in command_line("state", str(tmp_path / "out")).stderr
    assert command_line("state", table, "--nearest").stderr == "error: --nearest needs --txid\n"


def test_a_folder_that_cannot_be_listed_says_so(command_line, tmp_path, monkeypatch):
    """It may be a folder of tables: who may enter it, and not list it, is not told that there are none."""

    def refused(*_arguments):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(history, "paths_in", refused)
    assert "it can't be read (Permission denied)" in command_line("state", str(tmp_path)).stderr


def test_a_damaged_log_is_told_in_words(command_line, table):
    (entry,) = pathlib.Path(table, "_delta_log").glob("*2.json")
    entry.write_text("{")
    result = command_line("state", table)
    assert (result.exit_code, "cannot be read; it may be damaged" in result.stderr) == (1, True)
    assert "Traceback" not in result.output


@pytest.fixture
def topology_folder(tmp_path, table):
    """The table's folder with another table and a journal: both tables are at 7, and 8 is half written."""
    other = DeltaState(tmp_path / "out" / "total", key=Fields("name: string"), value=Fields("n: long"))
    total = other.open("t", "total", "life", 1)
    total.write(7, {"all": TransactionalValue(7, 24)})
    words = DeltaState(table, key=Fields("word: string"), value=Fields("n: long")).open("t", "words", "life", 1)
    tables = {"words": JournalTable("words", words.identity), "total": JournalTable("total", total.identity)}
    header = JournalHeader("t", "life", 1, {"spout": "repeatable"}, 7, None, tables, {"words": 7, "total": 7})
    journal = JournalWriter(LocalFolder(tmp_path / "out" / "_txtopo" / FOLDER / "t"), header, 1 << 20)
    journal.enter(JournalEntry({"words": (1, 0), "total": (1, 0)}, (JournalTransaction(8, 1, None, {}),)))
    words.write(8, {"ape": TransactionalValue(8, 9)})
    return str(tmp_path / "out")


def test_all_tables_are_shown_as_of_one_transaction(command_line, topology_folder):
    """``--consistent`` shows no table ahead of another, and says as of which transaction."""
    result = command_line("state", "--consistent", topology_folder, "--format", "json")
    shown = [json.loads(line) for line in result.stdout.splitlines()]
    assert shown[0] == {"state": "total", "row": {"name": "all", "n": 24, "txid": 7}}
    assert [each["row"]["n"] for each in shown[1:]] == [3, 20, 1]
    assert result.stderr == "total: 1 row\nwords: 3 rows\nall tables as of transaction 7\n"
    drawn = command_line("state", "--consistent", topology_folder, "--txid", "6", "--nearest").stdout
    assert [line.split() for line in drawn.splitlines()] == [
        ["total"],
        ["words"],
        ["word", "n", "txid"],
        ["ape", "3", "3"],
        ["cat", "2", "3"],
        ["dog", "1", "3"],
    ]


@pytest.mark.parametrize(
    ("options", "status", "expected"),
    [
        (("--key", "a"), 2, "--key needs a single table"),
        (("--format", "csv"), 2, "CSV can hold only one table"),
        (("--txid", "8"), 1, "the last one in all of them is 7"),
        (("--txid", "6"), 1, "written as of 3 and as of 7"),
    ],
)
def test_what_no_view_can_show_is_told_in_words(command_line, topology_folder, options, status, expected):
    result = command_line("state", "--consistent", topology_folder, *options)
    assert (result.exit_code, expected in result.stderr) == (status, True)
