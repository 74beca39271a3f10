"""The guide to bad records: its code runs on Spark, and prints what the guide says it prints."""

from __future__ import annotations

import pathlib
import re

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from state import read_table

GUIDE = pathlib.Path(__file__).parent.parent.parent / "docs" / "guides" / "bad-records.md"


def block(language: str) -> str:
    """Return the guide's fenced block of a language."""
    (text,) = re.findall(rf"```{language}\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    return text


@pytest.mark.long
@pytest.mark.usefixtures("spark")
def test_the_guide(
    spark: SparkSession, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The good records are in one table and the bad one in the other, which Spark reads too, under the names it lists."""
    monkeypatch.chdir(tmp_path)
    exec(compile(block("python"), str(GUIDE), "exec"), {"__name__": "guide"})
    assert capsys.readouterr().out == block("text")
    columns = re.findall(r"^\| `(\w+): (\w+)`", GUIDE.read_text(encoding="utf-8"), re.MULTILINE)
    table = read_table("out/bad_orders")
    assert [name for name, _ in columns] == table.column_names
    (file,) = table["file"].to_pylist()
    assert file == str(tmp_path / "in" / "orders.json")
    assert spark.read.parquet(*DeltaTable(tmp_path / "out" / "bad_orders").file_uris()).count() == 1
