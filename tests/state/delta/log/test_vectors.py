"""Deletion vectors as the protocol has them: what is written is read, here and by others, and damage is told."""

import json
import random
import tempfile
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings, strategies as st
from pyroaring import BitMap64

from state.delta.log.data_files import DataFile, Sizes, files_in, files_of
from state.delta.log.entries import entry_path
from state.delta.log.live_vectors import live_vectors
from state.delta.log.location import LOG_FOLDER, Location
from state.delta.log.put import Change
from state.delta.log.vectors import Vector, dead_rows, portions_in
from tests.budgets import examples
from tests.state.delta.vector_tables import SCHEMA, VectorTable

HERE = Location.resolve("/tmp/nowhere", None)

POSITIONS = st.one_of(
    st.sets(st.integers(0, 70_000), min_size=1, max_size=30),
    st.sets(st.integers(0, 2**33), min_size=1, max_size=30),
    st.builds(lambda first, count: set(range(first, first + count)), st.integers(0, 70_000), st.integers(1, 140_000)),
)


@pytest.fixture
def table(tmp_path: Path) -> VectorTable:
    return VectorTable(tmp_path / "t")


def test_the_place_of_a_file_is_as_in_the_protocol() -> None:
    """The protocol's example of a file with a prefix, and one without."""
    place = "deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"
    assert Vector("u", "ab^-aqEH.-t@S}K{vb[*k^", 4, 40, 6).place == f"ab/{place}"
    assert Vector("u", "^-aqEH.-t@S}K{vb[*k^", 4, 40, 6).place == place


def test_a_vector_in_the_log_is_read() -> None:
    """As other writers have it: the bitmap itself is in the descriptor."""
    vector = Vector("i", "^Bg9^0rr910000000000iXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L", None, 44, 6)
    assert list(dead_rows(HERE, vector)) == [3, 4, 7, 11, 18, 29]
    assert (vector.place, Vector.of_log(vector.in_log)) == (None, vector)


@settings(max_examples=examples(40))
@given(st.lists(POSITIONS, min_size=1, max_size=4))
def test_what_is_written_is_read(positions: list[set[int]]) -> None:
    """Each of the bitmaps of a file, near and far, few and in ranges."""
    with tempfile.TemporaryDirectory() as name:
        table = VectorTable(Path(name) / "t")
        vectors = table.data.put_vectors([BitMap64(own) for own in positions])
        assert [set(dead_rows(table.location, vector)) for vector in vectors] == positions
        assert [vector.cardinality for vector in vectors] == [len(own) for own in positions]
        assert [Vector.of_log(json.loads(json.dumps(vector.in_log))) for vector in vectors] == vectors
        (file,) = (table.root / "_data").iterdir()
        assert {vector.place for vector in vectors} == {f"_data/{file.name}"}
        assert file.stat().st_size == vectors[-1].end


def test_no_bitmap_needs_no_file(table: VectorTable) -> None:
    """Nothing is written for no vector."""
    assert (table.data.put_vectors([]), list((table.root / "_data").iterdir())) == ([], [])


def test_damage_is_told_by_the_name_of_the_file(table: VectorTable) -> None:
    """Every flipped bit of a vector, and every length of its file, is found, and so is a missing file."""
    vectors = table.data.put_vectors([BitMap64([1, 5]), BitMap64([3])])
    file = table.root / str(vectors[1].place)
    content = file.read_bytes()
    first = vectors[1].offset or 0
    for position in range(first, len(content)):
        file.write_bytes(content[:position] + bytes([content[position] ^ 4]) + content[position + 1 :])
        with pytest.raises(OSError, match=file.name):
            dead_rows(table.location, vectors[1])
        assert list(dead_rows(table.location, vectors[0])) == [1, 5]
    for length in range(first, len(content)):
        file.write_bytes(content[:length])
        with pytest.raises(OSError, match=file.name):
            dead_rows(table.location, vectors[1])
    file.unlink()
    with pytest.raises(FileNotFoundError, match=file.name):
        dead_rows(table.location, vectors[1])


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"cardinality": 2}, "damaged"),
        ({"offset": 0}, "damaged"),
        ({"size": 3}, "damaged"),
        ({"offset": 99}, "damaged"),
    ],
)
def test_a_descriptor_of_something_else_is_told(table: VectorTable, change: dict[str, int], text: str) -> None:
    """A descriptor that does not fit its file is not believed."""
    (vector,) = table.data.put_vectors([BitMap64([3])])
    with pytest.raises(OSError, match=text):
        dead_rows(table.location, attrs.evolve(vector, **change))


@pytest.mark.parametrize("path", [lambda place: place.as_uri(), str])
def test_an_absolute_path_is_read_in_the_tables_folder_alone(tmp_path: Path, path: Callable[[Path], str]) -> None:
    """Others may write one; what lies elsewhere, if only beside it, is refused by name."""
    table = VectorTable(tmp_path / "a b")
    (vector,) = table.data.put_vectors([BitMap64([3])])
    absolute = attrs.evolve(vector, storage_type="p", path=path(table.root / str(vector.place)))
    assert list(dead_rows(table.location, absolute)) == [3]
    for other in (HERE, Location.resolve(str(tmp_path / "a"), None)):
        with pytest.raises(OSError, match=rf"deletion_vector_.* is outside of the table at {other.address}"):
            dead_rows(other, absolute)


def test_notes_have_vectors(table: VectorTable) -> None:
    """A note's files come back from JSON as they were; those of notes of earlier versions have none."""
    (vector,) = table.data.put_vectors([BitMap64([3])])
    files = [DataFile("_data/a", 5, 9, vector=vector), DataFile("_data/b", 5, 9)]
    note = json.loads(json.dumps({"added": [attrs.asdict(file) for file in files]}))
    assert files_in(note) == files
    del note["added"][1]["vector"]
    assert files_in(note) == files
    assert [file.live for file in files] == [8, 9]
    assert [file.places for file in files] == [("_data/a", vector.place), ("_data/b",)]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(examples(6)))
def test_the_vectors_of_each_version(tmp_path: Path, seed: int) -> None:
    """They follow from the log, whatever came before, with checkpoints and without, from any version that is known."""
    table, draw = VectorTable(tmp_path / "t"), random.Random(seed)
    known: list[dict[str, DataFile]] = [{}]
    for _ in range(25):
        table.step(draw)
        known.append(dict(table.files))
        if draw.random() < 0.15:
            DeltaTable(table.root).create_checkpoint()
        handle = DeltaTable(table.root)
        since = draw.randrange(len(known))
        expected = vectors_in(table.files)
        assert vectors_in(files_of(table.location, handle)) == expected
        assert vectors_in(files_of(table.location, handle, (), (since, known[since]))) == expected
        assert sum(file.live for file in table.files.values()) == len(table.shown)
        assert sorted(pa.table(handle.scan(columns=["id"]))["id"].to_pylist()) == table.shown
    for version, files in enumerate(known):
        assert vectors_in(files_of(table.location, table.location.handle(version))) == vectors_in(files)


def vectors_in(files: dict[str, DataFile]) -> dict[str, Vector | None]:
    return {path: file.vector for path, file in files.items()}


def test_a_known_version_whose_log_is_gone(table: VectorTable) -> None:
    """Whoever has not looked for long begins at the checkpoint."""
    path = table.add([1, 2, 3])
    old = (table.version, dict(table.files))
    table.mark(**{path: BitMap64([0])})
    table.mark(**{path: BitMap64([0, 2])})
    DeltaTable(table.root).create_checkpoint()
    for version in range(table.version):
        (table.root / entry_path(version)).unlink()
    assert files_of(table.location, DeltaTable(table.root), (), old)[path].vector == table.files[path].vector


def in_parts(root: Path, version: int) -> None:
    """Make one of two parts of a checkpoint, as Spark does of a large one."""
    one = root / LOG_FOLDER / f"{version:020d}.checkpoint.parquet"
    rows = pq.read_table(one)
    for number in (1, 2):
        part = rows.slice(0, rows.num_rows // 2) if number == 1 else rows.slice(rows.num_rows // 2)
        pq.write_table(part, one.with_name(f"{version:020d}.checkpoint.{number:010d}.{2:010d}.parquet"))
    one.unlink()
    (root / LOG_FOLDER / "_last_checkpoint").write_text(json.dumps({"version": version, "size": 9, "parts": 2}))


def with_sidecars(root: Path, version: int, ending: str) -> None:
    """Make one that names its parts of a checkpoint."""
    one = root / LOG_FOLDER / f"{version:020d}.checkpoint.parquet"
    rows = pq.read_table(one)
    is_file = [bool(row["add"] or row["remove"]) for row in rows.to_pylist()]
    (root / LOG_FOLDER / "_sidecars").mkdir()
    files, sidecars = rows.filter(pa.array(is_file)).select(["add", "remove"]), []
    for first in range(files.num_rows):
        part = root / LOG_FOLDER / "_sidecars" / f"{uuid.uuid4()}.parquet"
        pq.write_table(files.slice(first, 1), part)
        named = {"path": part.name, "sizeInBytes": part.stat().st_size, "modificationTime": 1}
        sidecars.append({"sidecar": named})
    rest = rows.filter(pa.array([not each for each in is_file])).drop_columns(["add", "remove"])
    place = one.with_name(f"{version:020d}.checkpoint.{uuid.uuid4()}.{ending}")
    if ending == "json":
        actions = [{"checkpointMetadata": {"version": version}}, *plain(rest.to_pylist()), *sidecars]
        place.write_text("\n".join(map(json.dumps, actions)))
    else:
        named = pa.Table.from_pylist(sidecars, schema=rest.schema)
        pq.write_table(pa.concat_tables([rest, named]), place)
    one.unlink()
    (root / LOG_FOLDER / "_last_checkpoint").unlink()


def plain(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return actions as JSON has them."""
    actions = [{kind: action for kind, action in row.items() if action} for row in rows]
    for action in actions:
        if "metaData" in action:
            action["metaData"]["configuration"] = dict(action["metaData"]["configuration"])
            action["metaData"]["format"]["options"] = {}
        if "protocol" in action:
            action["protocol"]["readerFeatures"] += ["v2Checkpoint"]
            action["protocol"]["writerFeatures"] += ["v2Checkpoint"]
    return actions


@pytest.mark.parametrize("made", ["in parts", "json", "parquet"])
def test_checkpoints_of_others(table: VectorTable, made: str) -> None:
    """One in several parts, and one that names its parts: the vectors are in one of them."""
    paths = [table.add([first, first + 1, first + 2]) for first in (0, 10, 20)]
    table.mark(**{paths[0]: BitMap64([0]), paths[2]: BitMap64([1, 2])})
    DeltaTable(table.root).create_checkpoint()
    if made == "in parts":
        in_parts(table.root, table.version)
    else:
        with_sidecars(table.root, table.version, made)
    for version in range(table.version + 1):
        (table.root / entry_path(version)).unlink()
    table.mark(**{paths[0]: BitMap64([2])})
    handle = DeltaTable(table.root)
    found = vectors_in({path: file for path, file in table.files.items() if file.vector})
    assert live_vectors(table.location, handle) == found
    assert sorted(pa.table(handle.scan(columns=["id"]))["id"].to_pylist()) == table.shown


def test_one_part_of_two_is_no_checkpoint(table: VectorTable) -> None:
    """Whoever makes one may have died between its parts."""
    path = table.add([1, 2, 3])
    table.mark(**{path: BitMap64([0])})
    DeltaTable(table.root).create_checkpoint()
    in_parts(table.root, table.version)
    (table.root / LOG_FOLDER / f"{table.version:020d}.checkpoint.{1:010d}.{2:010d}.parquet").unlink()
    (table.root / LOG_FOLDER / "_last_checkpoint").unlink()
    assert live_vectors(table.location, DeltaTable(table.root)) == {path: table.files[path].vector}


def test_a_removal_with_another_vector_is_none(table: VectorTable) -> None:
    """As readers have it: the file stays, with its dead rows."""
    path = table.add([1, 2, 3])
    bare = table.files[path]
    table.mark(**{path: BitMap64([0])})
    table.files, marked = {path: bare}, table.files
    table.remove(path)
    assert files_of(table.location, DeltaTable(table.root))[path].vector == marked[path].vector
    assert pa.table(DeltaTable(table.root).scan())["id"].to_pylist() == [2, 3]


@pytest.mark.parametrize("is_removed", [True, False])
def test_a_file_that_is_added_again_without_its_vector(table: VectorTable, is_removed: bool) -> None:
    """All of its rows are live, whether or not the version also removes it with the vector."""
    path = table.add([1, 2, 3])
    bare = table.files[path]
    table.mark(**{path: BitMap64([0])})
    table.put(Change([bare], [table.files[path]] if is_removed else []))
    handle = DeltaTable(table.root)
    known = 1, {path: table.files[path].vector}
    assert live_vectors(table.location, handle, known) == live_vectors(table.location, handle) == {}


@pytest.mark.parametrize("dead", [{0}, {8}, {0, 8}, {1, 2, 3, 4, 5, 6, 7, 8}, {3, 4}, set(), {*range(9)}])
def test_dead_rows_are_left_out(table: VectorTable, dead: set[int]) -> None:
    """In a whole read, and in portions whose bounds are anywhere."""
    path = table.add(list(range(10, 19)))
    table.mark(**{path: BitMap64(dead)})
    file = table.files[path]
    assert set(table.data.dead(file)) == dead
    for size in (1, 2, 4, 9, 10):
        data = attrs.evolve(table.data, sizes=Sizes(portion_rows=size))
        portions = list(data.portions(file, SCHEMA))
        assert [own for rows in portions for own in rows["id"].to_pylist()] == table.shown
        every = list(data.portions(file, SCHEMA, with_dead=True))
        assert [own for rows in every for own in rows["id"].to_pylist()] == list(range(10, 19))
    assert table.data.read(file, SCHEMA)["id"].to_pylist() == table.shown
    assert table.data.read(file, SCHEMA, with_dead=True)["id"].to_pylist() == list(range(10, 19))


def test_what_is_missing_is_told(table: VectorTable) -> None:
    """A file without its vector's is not whole."""
    path = table.add([1, 2, 3])
    table.mark(**{path: BitMap64([0])})
    file = table.files[path]
    assert table.data.missing([file]) is None
    place = table.root / file.places[1]
    content = place.read_bytes()
    place.write_bytes(content[:-1])
    assert f"the file {file.places[1]}, but that has {len(content) - 1} bytes" in str(table.data.missing([file]))
    place.unlink()
    assert table.data.missing([file]) == f"the file {file.places[1]}, but that is gone"


def test_positions_come_in_portions() -> None:
    """Each once, in their order; where there are none is no portion."""
    positions = [0, 5, (1 << 18) - 1, 1 << 18, 5 << 18]
    assert [portion.tolist() for portion in portions_in(BitMap64(positions), 1 << 18)] == [
        positions[:3],
        [1 << 18],
        [5 << 18],
    ]
    assert list(portions_in(BitMap64(), 1 << 18)) == []
