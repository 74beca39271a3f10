"""The second example, on small texts, against ``collections.Counter``."""

import re
import sys
from collections import Counter
from pathlib import Path

import pytest

from examples import text_files
from examples.transactional_words import topology
from state import read_table
from txtopo import Config, run

TEXTS = {
    "a.txt": "The cat, the dog; THE end.\n\nIt's snake_case 42 times: ÄRGER ärger Straße İstanbul\n" * 37,
    "_hidden/b": "cat dog cat\r\ncat" * 61,
    ".c.md": "no newline at the end",
    "deep/er/d.csv": "".join(f"w{n % 41} " * (n % 7) + "\n" for n in range(400)),
    "empty": "",
}


@pytest.fixture
def texts(tmp_path):
    for name, text in TEXTS.items():
        path = tmp_path / "texts" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
    return tmp_path / "texts"


def expected_counts() -> Counter[str]:
    words = (word for text in TEXTS.values() for word in re.findall(r"\w+", text))
    return Counter(word.lower() for word in words)


def columns(path: Path) -> dict[object, int]:
    """Return a table's keys and counts, checking that each key stands once, with a txid."""
    rows = [tuple(row.values()) for row in read_table(path).to_pylist()]
    assert len({key for key, _, _ in rows}) == len(rows)
    assert all(txid >= 1 for _, _, txid in rows)
    return {key: count for key, count, _ in rows}


@pytest.mark.parametrize(("parallelism", "window"), [(1, 64), (3, 1), (4, 8)])
@pytest.mark.usefixtures("spark")
def test_both_tables_are_what_counter_says(texts, tmp_path, parallelism, window):
    """Words of all files, hidden ones too, and buckets are exact at any parallelism and window."""
    made = topology(str(texts), str(tmp_path / "out"), parallelism, batch_bytes=1000)
    report = run(made, Config(max_spout_pending=window))
    assert report.transactions > 5
    expected = expected_counts()
    assert columns(tmp_path / "out" / "word_counts") == expected
    assert columns(tmp_path / "out" / "buckets") == Counter(count // 10 for count in expected.values())


def test_the_default_text_is_the_standard_library_without_its_tests():
    """Sources only, all UTF-8, none of installed packages."""
    files = text_files.standard_library_sources()
    assert any(file.endswith("collections/__init__.py") for file in files)
    assert all(file.endswith(".py") for file in files)
    assert not {"test", "site-packages", "__pycache__"} & {part for file in files for part in Path(file).parts}
    assert sys.prefix not in {str(Path(file).parent) for file in files}
    assert all(Path(file).read_bytes().decode() is not None for file in files)
