"""Rows and arrays in files that are mapped into memory: the system keeps in memory what is used, if there is room.

The files have no names, so a process that is killed leaves nothing. They lie where Python has temporary files, which
the environment variable ``TMPDIR`` says. What is written to them has its place on the disk when it is mapped, so a disk
that is full is a StateFailure of that moment, and never a fault at some later access.
"""

from __future__ import annotations

import contextlib
import itertools
import mmap
import tempfile
from collections.abc import Callable, Iterable, Iterator
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from txtopo.errors import StateFailure

CHUNK_BYTES = 1 << 28
"""The most bytes of rows that lie together, and so from which rows are taken; well below Arrow's 2 GiB of text."""

_BLANK = b"\xff" * (1 << 20)


def kept_rows(schema: pa.Schema, portions: Iterable[pa.Table], room: int) -> pa.Table:
    """Return rows in memory if they take no more than ``room`` bytes, otherwise in a mapped file."""
    first, size, remaining = [], 0, iter(portions)
    for portion in remaining:
        first.append(portion)
        size += portion.nbytes
        if size > room:
            return mapped_rows(schema, itertools.chain(first, remaining))
    rows = pa.concat_tables(first or [schema.empty_table()])
    return rows if size > CHUNK_BYTES else rows.combine_chunks()


def mapped_rows(schema: pa.Schema, portions: Iterable[pa.Table]) -> pa.Table:
    """Return rows in a new file, of which at most a portion is in memory meanwhile."""

    def write(file: IO[bytes]) -> None:
        writer = pa.ipc.new_file(pa.PythonFile(file, "w"), schema)
        for portion in portions:
            with _written():
                writer.write_table(portion)
        with _written():
            writer.close()

    return pa.ipc.open_file(pa.BufferReader(pa.py_buffer(_mapped(write)))).read_all()


def _mapped(write: Callable[[IO[bytes]], None]) -> mmap.mmap:
    with _file() as file:
        write(file)
        with _written():
            file.flush()
        content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    _read_at_random(content)
    return content


def mapped_array(count: int, kind: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return an array of so many integers in a new file, each -1 or the largest number of its type."""
    size = count * np.dtype(kind).itemsize
    with _file() as file:
        with _written():
            for start in range(0, size, len(_BLANK)):
                file.write(_BLANK[: size - start])
            file.flush()
        content = mmap.mmap(file.fileno(), size)
    _read_at_random(content)
    return np.frombuffer(content, kind)


@contextlib.contextmanager
def _file() -> Iterator[IO[bytes]]:
    with _written():
        file = tempfile.TemporaryFile(prefix="txtopo-rows-")  # noqa: SIM115 - it is closed below
    with file:
        yield file


@contextlib.contextmanager
def _written() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StateFailure(
            "rows for which topology.state.bytes.max leaves no room in memory cannot be written to "
            f"{tempfile.tempdir}: {error.strerror or error}. Make room there, or name another folder by TMPDIR"
        ) from error


def _read_at_random(content: mmap.mmap) -> None:
    if hasattr(mmap, "MADV_RANDOM"):
        content.madvise(mmap.MADV_RANDOM)
