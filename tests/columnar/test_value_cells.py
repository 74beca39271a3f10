"""Every cell of the guide's tables of values, by each way in; and the guide shows these tables."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spouts import MemoryTransactionalSpout
from spouts.files.spout import FilesTransactionalSpout
from spouts.kafka.records import RefusedRecords, record_format
from state.delta.columns import fit_column
from tests.columnar.value_cells import ARROW, CSV, JSON, PYTHON, refused_in, tables, taken_in
from tests.spouts.kafka.test_records import Sent
from tests.spouts.reading import ATTEMPT, read, written
from txtopo.api.data.fields import Fields
from txtopo.api.data.types import parse_type
from txtopo.columnar.conversion import cast_array
from txtopo.errors import FieldsError, InputError
from txtopo.testing.collector import RecordingCollector

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "values.md"


def of_memory(_: Path, kind: str, value: Any) -> Any:
    return read(MemoryTransactionalSpout({0: [[value]]}, Fields(f"x: {kind}"), 1))[0][0]


def of_deserializer(_: Path, kind: str, value: Any) -> Any:
    return of_kafka(kind, b"", lambda _: [value])


def of_state(_: Path, kind: str, value: Any) -> Any:
    column = fit_column([value], parse_type(kind))
    if column is None:
        raise FieldsError("it does not fit")
    return column.array[0].as_py()


def of_column(_: Path, kind: str, value: Any) -> Any:
    made = cast_array(value, parse_type(kind))
    if made is None:
        raise FieldsError("it does not fit")
    return made[0].as_py()


def of_parquet(folder: Path, kind: str, value: Any) -> Any:
    pq.write_table(pa.table({"x": value}), folder / "a.parquet")
    return read(FilesTransactionalSpout(folder, Fields(f"x: {kind}")))[0][0]


def of_csv(folder: Path, kind: str, value: Any) -> Any:
    return read(FilesTransactionalSpout(written(folder / "a.csv", f"y,x\n,{value}\n"), Fields(f"x: {kind}")))[0][0]


def of_quoted_csv(folder: Path, kind: str, value: Any) -> Any:
    return of_csv(folder, kind, f'"{value}"')


def of_json(folder: Path, kind: str, value: Any) -> Any:
    return read(FilesTransactionalSpout(written(folder / "a.json", f'{{"x": {value}}}\n'), Fields(f"x: {kind}")))[0][0]


def of_json_record(_: Path, kind: str, value: Any) -> Any:
    return of_kafka(kind, f'{{"x": {value}}}'.encode(), "json")


def of_kafka(kind: str, value: bytes, deserializer: Any) -> Any:
    fields = Fields(f"x: {kind}")
    collector = RecordingCollector(ATTEMPT, fields.with_attempt())
    record_format(fields, deserializer).emit(ATTEMPT, [Sent(value)], RefusedRecords(), collector)
    return collector.tuples[0][1]


WAYS = {
    of_memory: PYTHON,
    of_deserializer: PYTHON,
    of_state: PYTHON,
    of_column: ARROW,
    of_parquet: ARROW,
    of_csv: CSV,
    of_quoted_csv: CSV,
    of_json: JSON,
    of_json_record: JSON,
}


@pytest.mark.parametrize("way", WAYS)
def test_what_is_taken(tmp_path: Path, way: Any) -> None:
    """It is read back as the table says: the same value, or the nearest float."""
    for number, (kind, value, kept) in enumerate(taken_in(WAYS[way])):
        (tmp_path / str(number)).mkdir()
        found = way(tmp_path / str(number), kind, value)
        found = dict(found) if kind.startswith("map") else found
        assert found == kept or repr(found) == repr(kept), (kind, value)


@pytest.mark.parametrize("way", WAYS)
def test_what_is_refused(tmp_path: Path, way: Any) -> None:
    """It is refused, by an error of the user's value rather than a bug's."""
    for number, (kind, value) in enumerate(refused_in(WAYS[way])):
        (tmp_path / str(number)).mkdir()
        try:
            found = way(tmp_path / str(number), kind, value)
        except (FieldsError, InputError):
            continue
        pytest.fail(f"{value!r} became {found!r} in a {kind}")


def test_the_guide_shows_these_tables() -> None:
    """What the guide says of values is what is tested."""
    assert tables() in PAGE.read_text(), f"write into {PAGE}:\n\n{tables()}"
