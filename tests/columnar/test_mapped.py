"""Rows and arrays in mapped files are those that were written; nothing of them stays, and a full disk is an error."""

import errno
import io
import os
import tempfile
from multiprocessing import get_context

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from txtopo.columnar.mapped import mapped_array, mapped_rows
from txtopo.errors import StateFailure

SCHEMA = pa.schema({"k": pa.string(), "n": pa.list_(pa.int64()), "at": pa.timestamp("us", "UTC")})
PORTIONS = [
    pa.table({"k": ["a", None], "n": [[1], []], "at": [0, None]}, schema=SCHEMA),
    SCHEMA.empty_table(),
    pa.table({"k": ["b" * 5_000], "n": [None], "at": [7]}, schema=SCHEMA),
]


@given(st.lists(st.sampled_from(PORTIONS), max_size=5))
def test_rows_are_those_that_were_written(portions) -> None:
    """Whatever the portions, nulls and nested values among them."""
    assert mapped_rows(SCHEMA, portions).equals(pa.concat_tables([SCHEMA.empty_table(), *portions]))


def test_an_array_can_be_written_to() -> None:
    """All bits of it are set at first, over whole pages and beyond."""
    for count in (1, 1_024, 1_000_003):
        array = mapped_array(count, np.int32)
        assert (len(array), array.min(), array.max()) == (count, -1, -1)
        array[count - 1] = 7
        assert array[-1] == 7
    assert mapped_array(3, np.uint64).tolist() == [2**64 - 1] * 3


def test_no_file_is_left(tmp_path, monkeypatch) -> None:
    """They have no names: a process that is killed leaves nothing, and rows stay readable if their folder is removed."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    (tmp_path / "gone").mkdir()
    rows, array = mapped_rows(SCHEMA, PORTIONS), mapped_array(10, np.int64)
    assert list((tmp_path / "gone").iterdir()) == []
    (tmp_path / "gone").rmdir()
    assert rows["k"].to_pylist() == ["a", None, "b" * 5_000]
    assert array.tolist() == [-1] * 10
    with pytest.raises(StateFailure, match=r"cannot be written to .*gone: No such file.*TMPDIR"):
        mapped_rows(SCHEMA, PORTIONS)


@pytest.mark.parametrize("at", [0, 1_000_000, None], ids=["at first", "later", "at the end"])
def test_a_full_disk_is_an_error(monkeypatch, at) -> None:
    """It names the folder and what to do; an error of whoever yields the rows stays that one."""

    class Full:
        def __init__(self, *_, **__) -> None:
            self.file, self.closed = io.BytesIO(), False

        def write(self, content):
            self.fail_if(at is not None and self.file.tell() >= at)
            return self.file.write(content)

        def flush(self):
            self.fail_if(at is None)

        def fail_if(self, is_full):
            if is_full:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        def __getattr__(self, name):
            return getattr(self.file, name)

        def __enter__(self):
            return self

        def __exit__(self, *_):
            self.closed = True

    wide = pa.table({"k": ["x" * 3_000_000], "n": [[1]], "at": [0]}, schema=SCHEMA)
    with monkeypatch.context() as patch:
        patch.setattr(tempfile, "TemporaryFile", Full)
        with pytest.raises(StateFailure, match=r"No space left on device\. Make room there"):
            mapped_rows(SCHEMA, [wide, wide])
        with pytest.raises(StateFailure, match=r"No space left on device\. Make room there"):
            mapped_array(3_000_000, np.int64)

    def fails():
        yield wide
        raise FileNotFoundError("the table's")

    with pytest.raises(FileNotFoundError, match="the table's"):
        mapped_rows(SCHEMA, fails())


def _sum_of(rows, array, queue) -> None:
    queue.put((rows["k"].to_pylist(), int(array.sum())))


def test_a_forked_process_reads_them_too() -> None:
    """And what it does when it ends takes nothing from its parent."""
    rows, array = mapped_rows(SCHEMA, PORTIONS), mapped_array(10, np.int64)
    fork = get_context("fork")
    queue = fork.Queue()
    child = fork.Process(target=_sum_of, args=(rows, array, queue))
    child.start()
    assert queue.get(timeout=600) == (["a", None, "b" * 5_000], -10)
    child.join(600)
    assert (rows.num_rows, int(array.sum())) == (3, -10)
