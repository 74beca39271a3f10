"""What the process with a session of Spark and Delta does for tests."""

import functools
from pathlib import Path
from typing import Any

import pyarrow as pa

_session: Any = None
"""In the process with the session."""


def begin_session() -> None:
    """Begin a session with Delta, which lasts as long as the process."""
    global _session  # noqa: PLW0603 - a process has one session
    from tests.harness.benchmarks.session import benchmark_session

    begun = benchmark_session()
    _session = begun, begun.__enter__()


def rows_at(root: Path, version: int) -> list[dict[str, Any]]:
    """Return the rows that the session sees in a version."""
    table = _session[1].read.format("delta").option("versionAsOf", version).load(str(root)).toArrow()
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def rows_of(root: Path, columns: list[str]) -> pa.Table:
    """Return columns of all rows of the newest version."""
    return _session[1].read.format("delta").load(str(root)).select(*columns).toArrow()


def ids_where(root: Path, conditions: list[str]) -> list[list[int]]:
    """Return for each condition of SQL the sorted ids of the rows that pass it; all of them in one job."""
    rows = _session[1].read.format("delta").load(str(root))
    parts = [rows.where(each).selectExpr(f"{number} as number", "id") for number, each in enumerate(conditions)]
    found: list[list[int]] = [[] for _ in conditions]
    for number, own in functools.reduce(lambda one, other: one.unionAll(other), parts).collect():
        found[number].append(own)
    return [sorted(own) for own in found]


def run_sql(statement: str) -> None:
    """Run a statement in the session."""
    _session[1].sql(statement)


def numbers_streamed(root: Path, output: Path) -> list[int]:
    """Return the column n of what a stream that reads a table has got so far; it goes on where it stood."""
    stream = _session[1].readStream.format("delta").load(str(root))
    writer = stream.writeStream.format("parquet").option("checkpointLocation", str(output / "checkpoint"))
    writer.trigger(availableNow=True).start(str(output / "rows")).awaitTermination()
    return [row.n for row in _session[1].read.parquet(str(output / "rows")).collect()]


def process_id() -> int:
    """Return the number of the session's process."""
    return int(_session[1]._jvm.java.lang.ProcessHandle.current().pid())


def attempt_sql(statement: str) -> str | None:
    """Run a statement in the session, and return its error; None if it had none."""
    try:
        run_sql(statement)
    except Exception as error:  # noqa: BLE001 - Spark's, of which some can't be pickled
        return str(error)
    return None


def checkpoint(root: Path) -> None:
    """Write a checkpoint of a table."""
    log = _session[1]._jvm.org.apache.spark.sql.delta.DeltaLog.forTable(_session[1]._jsparkSession, str(root))
    log.checkpoint()


HELD = ("version", "run before", "view", "half read")
"""The ways in which :func:`hold` holds a version."""

_held: dict[tuple[Path, int, str], Any] = {}


def hold(root: Path, version: int) -> str | None:
    """Plan to read the column id of a version, in each way; return the error if that fails."""
    session = _session[1]

    def planned() -> Any:
        return session.read.format("delta").option("versionAsOf", version).load(str(root)).select("id")

    try:
        _held[root, version, "version"] = planned().collect
        run_before = planned()
        run_before.collect()
        _held[root, version, "run before"] = run_before.collect
        planned().createOrReplaceTempView(f"held_{version}")
        _held[root, version, "view"] = session.sql(f"select id from held_{version}").collect
        rows = planned().repartition(4).toLocalIterator()
        first = next(rows, None)
        _held[root, version, "half read"] = lambda: [*([] if first is None else [first]), *rows]
    except Exception as error:  # noqa: BLE001 - Spark's, of which some can't be pickled
        return str(error)
    return None


def read_held(root: Path, version: int, way: str) -> list[int] | str:
    """Return the ids in a version that is held, or the error."""
    try:
        return sorted(row.id for row in _held[root, version, way]())
    except Exception as error:  # noqa: BLE001 - Spark's, of which some can't be pickled
        return str(error)
