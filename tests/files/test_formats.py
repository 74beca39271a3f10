"""Format versions: what a newer txtopo has written is refused by name, and nothing of it is changed."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from deltalake import DeltaTable

from spouts import MemoryTransactionalSpout
from state import DeltaState, SqliteStore, read_table, read_tables
from tests.acceptance.topologies import CountTuples
from tests.cli.conftest import command_line
from tests.journals import journal_in
from tests.topologies import committing
from txtopo import Fields, Topology
from txtopo.api.store import Put
from txtopo.errors import StopError
from txtopo.files.formats import Format
from txtopo.files.records import to_json
from txtopo.testing.inline import run_inline

__all__ = ["command_line"]

NEWER = Format(77, "7.5.0")


def topology(output: Path) -> Topology:
    spout = MemoryTransactionalSpout({0: [["a"], ["b"], ["c"]]}, Fields("word"), 1)
    total = DeltaState(output / "counts", key=Fields("name: string"), value=Fields("n: long"))
    return committing(spout, CountTuples(), topology_id="one", total=total)


def give_format(output: Path, written: Format) -> None:
    """Give the journal's file another format."""
    (path,) = journal_in(output).glob("*.jsonl")
    first, *others = path.read_text().splitlines()
    header = {**json.loads(first), "format": to_json(written)}
    path.write_text("\n".join([json.dumps(header), *others, ""]))


def give_former_owner(output: Path) -> None:
    """Give the table's first version the properties that a version before the first release wrote."""
    path = output / "counts" / "_delta_log" / f"{0:020}.json"
    actions = [json.loads(line) for line in path.read_text().splitlines()]
    (properties,) = (action["metaData"]["configuration"] for action in actions if "metaData" in action)
    properties |= {"txtopo.life": properties.pop("txtopo.incarnation"), "txtopo.format": "1"}
    path.write_text("".join(json.dumps(action) + "\n" for action in actions))


def written_by_a_newer_version(output: Path, what: str) -> None:
    """Put a newer format into the coordinator state, the journal or the table."""
    match what:
        case "coordinator state":
            with closing(SqliteStore(output / "_txtopo" / "coordinator.sqlite")) as store:
                lead = store.take_lead("one", "a newer version")
                lead.write([Put("one/format", json.dumps(to_json(NEWER)).encode())])
        case "journal":
            give_format(output, NEWER)
        case "table":
            properties = {"txtopo.format": str(NEWER.number), "txtopo.format.needs": NEWER.needs}
            DeltaTable(output / "counts").alter.set_table_properties(properties, raise_if_not_exists=False)


def everything_in(output: Path) -> dict[str, bytes]:
    """Return the tables and the journal as they are on disk."""
    files = [*(output / "counts").rglob("*"), *(output / "_txtopo" / "journal").rglob("*")]
    return {str(path): path.read_bytes() for path in files if path.is_file()}


@pytest.mark.few(1)
@pytest.mark.parametrize("what", ["coordinator state", "journal", "table"])
def test_what_a_newer_version_has_written_is_refused(tmp_path: Path, what: str) -> None:
    """A run names what is newer and the version that reads it, and changes neither tables nor journal."""
    run_inline(topology(tmp_path), until=1)
    written_by_a_newer_version(tmp_path, what)
    before = everything_in(tmp_path)
    with pytest.raises(StopError, match=rf"{what}.* has format 77.*: 7\.5\.0 or newer"):
        run_inline(topology(tmp_path))
    assert everything_in(tmp_path) == before


@pytest.mark.parametrize("what", ["coordinator state", "store", "journal", "table"])
def test_what_a_version_before_the_first_release_has_written_is_refused(tmp_path: Path, what: str) -> None:
    """It is refused by its format, which all of them have, or by its absence; nothing changes."""
    run_inline(topology(tmp_path), until=1)
    path = tmp_path / "_txtopo" / "coordinator.sqlite"
    with closing(sqlite3.connect(path)) as file, file:
        match what:
            case "store":
                file.execute("PRAGMA user_version = 4")
            case "coordinator state":
                file.execute("DELETE FROM node WHERE path = 'one/format'")
            case "journal":
                give_format(tmp_path, Format(1, "0.1.0"))
            case "table":
                give_former_owner(tmp_path)
    before = everything_in(tmp_path)
    with pytest.raises(
        StopError, match=rf"{what}.* before 0\.2\.0: it has format [41], .*goes on with format [953] alone"
    ):
        run_inline(topology(tmp_path))
    assert everything_in(tmp_path) == before


@pytest.mark.parametrize("what", ["journal", "table"])
def test_readers_refuse_it_too(tmp_path: Path, command_line, what: str) -> None:
    """Reading and auditing say which version reads it, instead of returning what may be wrong."""
    run_inline(topology(tmp_path), until=1)
    written_by_a_newer_version(tmp_path, what)
    if what == "table":
        with pytest.raises(StopError, match="format 77"):
            read_table(tmp_path / "counts")
    with pytest.raises(StopError, match="format 77"):
        read_tables(tmp_path)
    audit = command_line("audit", str(tmp_path))
    assert (audit.exit_code != 0, "7.5.0 or newer" in audit.output) == (True, True), audit.output


def test_readers_refuse_a_table_of_a_version_before_the_first_release(tmp_path: Path, command_line) -> None:
    """Its columns are not read as another's, and nobody is told that it is missing."""
    run_inline(topology(tmp_path), until=1)
    give_former_owner(tmp_path)
    for read in (lambda: read_table(tmp_path / "counts"), lambda: read_tables(tmp_path)):
        with pytest.raises(StopError, match="format 1"):
            read()
    audit = command_line("audit", str(tmp_path))
    assert (audit.exit_code, "goes on with format 3 alone" in audit.output) == (2, True), audit.output


def test_each_says_its_format(tmp_path: Path) -> None:
    """Coordinator state, journal and table carry their format from the first write on."""
    run_inline(topology(tmp_path), until=1)
    (path,) = journal_in(tmp_path).glob("*.jsonl")
    assert json.loads(path.read_text().splitlines()[0])["format"] == {"number": 5, "needs": "0.2.0"}
    with closing(SqliteStore(tmp_path / "_txtopo" / "coordinator.sqlite")) as store:
        assert json.loads(store.read("one/format") or b"null") == {"number": 9, "needs": "0.2.0"}
    with closing(sqlite3.connect(tmp_path / "_txtopo" / "coordinator.sqlite")) as file:
        assert file.execute("PRAGMA user_version").fetchone() == (9,)
    assert DeltaTable(tmp_path / "counts").metadata().configuration["txtopo.format"] == "3"
