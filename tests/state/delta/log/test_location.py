"""Where a table is: paths of every kind, and those that delta-rs can't use."""

import contextlib
import os

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from committers import DeltaAppendBolt
from spouts.kafka import DeltaDeadLetters
from state import DeltaExpiringRows, DeltaRows, DeltaState, read_table
from state.delta.log.data_files import DataFolder, files_of
from state.delta.log.location import Location
from state.delta.read.audit import read_histories
from tests.crashes import Crash, run_with_crash
from tests.journals import opened_journal
from tests.state.delta.two_tables import two_tables
from txtopo import Config, Fields
from txtopo.errors import ConfigError
from txtopo.files.places import folder_at
from txtopo.inspect.audit.checks import audit
from txtopo.journal.ending import METADATA_DIR
from txtopo.journal.journal import read_journal

ODD = ["with spaces", "größe 日本", "100%", "a#b?c&d=e", "it's a (box) {1}", "plus+colon:semi;comma,"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ODD)
def test_a_topology_runs_in_a_folder_of_any_name(tmp_path, name):
    """Its tables are written, synced, kept up and audited; delta-rs writes such paths with percent signs."""
    output = tmp_path / name
    options = {"upkeep_every_writes": 2, "files_max": 1}
    assert run_with_crash(lambda: two_tables(output, **options), Crash(), Config(group_transactions_max=1))
    assert sum(read_table(output / "words")["n"].to_pylist()) == sum(read_table(output / "total")["n"].to_pylist()) > 0
    parts = read_journal(opened_journal(output))
    assert not audit(
        parts, read_histories(folder_at(output / METADATA_DIR), parts[-1].header.tables, with_rows=True)
    ).findings


@pytest.mark.parametrize("name", ["plain", *ODD])
def test_the_paths_of_files(tmp_path, name):
    """They exist, also where the value of a partition is such a name."""
    path = tmp_path / name / "rows"
    rows = pa.table({"day": ODD, "n": [1] * len(ODD)})
    write_deltalake(path, rows, partition_by=["day"])
    location = Location.resolve(os.fspath(path), None)
    found = files_of(location, location.handle()).values()
    assert len(found) == len(ODD)
    assert all((path / each.place).stat().st_size == each.size for each in found)
    assert DataFolder(location).missing(found) is None


@pytest.mark.parametrize(
    "name", ["a%20b", "b\udcc3", "%41", "[a", "a]", "a|b", "a^b", "a\\b", "a\nb", "a\x7fb", "a\0b"]
)
def test_a_path_that_delta_cannot_use_is_refused(tmp_path, name):
    """It would be taken for another folder, or fail in delta-rs: it is refused where it is written, before any run."""
    path, fields = tmp_path / name / "words", Fields("word: string", "at: timestamp")
    for make in (
        lambda: DeltaState(path, key=Fields("word: string"), value=Fields("n: long")),
        lambda: DeltaRows(path, fields),
        lambda: DeltaExpiringRows(path, fields, expires="at"),
        lambda: DeltaAppendBolt(path, fields),
        lambda: DeltaDeadLetters(path),
    ):
        with pytest.raises(ConfigError, match="a table cannot be at") as refused:
            make()
        assert "\n" not in str(refused.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "fits"), [("y" * 255, True), ("y" * 256, False), ("ü" * 127, True), ("ü" * 128, False)]
)
def test_a_name_that_no_folder_can_have_is_refused(tmp_path, name, fits):
    """By its bytes, and without the whole of it: it may be long."""

    def declared(path):
        return DeltaState(path, key=Fields("word: string"), value=Fields("n: long"))

    with contextlib.nullcontext() if fits else pytest.raises(ConfigError, match="has 256 bytes, at most 255 fit"):
        declared(tmp_path / name).open("t", "words", "life", 1)
    with pytest.raises(ConfigError) as refused:
        declared(tmp_path / (name * 10_000))
    assert len(str(refused.value)) < 500
