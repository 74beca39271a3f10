"""How fast a reference table is looked up: ``python -m tests.harness.benchmarks.lookups``.

It prints the rows a second of CPU time of a ``LookupJoin`` with a reference, and with a state of as many keys, by the key
and by rows of a batch; what a process needs to load a reference; and what a next version costs that has changed a
thousand rows. The median of several.
"""

import itertools
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np
import pyarrow as pa
from deltalake import write_deltalake

from committers import LookupJoin
from state import DeltaReference, DeltaState
from txtopo import Fields
from txtopo.api.map_state import joined_columns
from txtopo.api.state import OpenedState
from txtopo.testing.context import PlainContext
from txtopo.transactional.commit.write_buffer import group_state
from txtopo.transactional.tasks.state_handle import StateHandle

KEYS = {"long": ["id"], "string": ["code"], "both": ["id", "code"]}
STREAM = Fields("id: long", "code: string", "price: long")


def customers(first: int, count: int) -> pa.Table:
    """Return rows of a reference."""
    ids = np.arange(first, first + count)
    names = [f"customer-{number}" for number in ids]
    return pa.table({"id": ids, "code": names, "name": names, "age": ids % 90})


class Silent:
    """A collector that drops what is emitted."""

    def emit_batch(self, batch: pa.RecordBatch) -> None:
        """Drop a batch."""


def cpu_secs(call: Callable[[], Any], times: int = 1) -> float:
    """Return the CPU time of a call, the median of several."""
    found = []
    for _ in range(times):
        began = time.process_time()
        call()
        found.append(time.process_time() - began)
    return statistics.median(found)


def rows_a_second(bolt: LookupJoin, rows: int, batch_rows: int) -> float:
    """Return the rows a second of joining batches, nine of ten of whose rows find something."""
    drawn = np.random.default_rng(1).integers(0, rows + rows // 9, (2, batch_rows))
    # In turns: the last keys that were looked up are remembered.
    batches = itertools.cycle(
        pa.RecordBatch.from_arrays([ids, pa.array([f"customer-{each}" for each in ids]), ids], names=list(STREAM.names))
        for ids in map(pa.array, drawn)
    )

    def joined() -> None:
        bolt.execute(next(batches))
        bolt.finish_batch()

    return batch_rows / cpu_secs(joined, 9)


def state_of(path: str, rows: int, key: str | list[str]) -> OpenedState:
    """Return a state with the rows of a reference."""
    names = [key] if isinstance(key, str) else key
    columns = [Fields("id: long"), Fields("code: string"), Fields("name: string", "age: long")]
    keys, values = Fields(), Fields()
    for column in columns:
        if set(column) <= set(names):
            keys += column
        else:
            values += column
    opened = DeltaState(path, keys, values).open("topology", "customers", "life", 1)
    group, table = group_state(opened), customers(0, rows)
    view = group.begin(1)
    given = (joined_columns([table[name].to_pylist() for name in fields]) for fields in (keys, values))
    view.multi_put(dict(zip(*given, strict=True)))
    view.finish()
    opened.write(1, group.writes())
    return opened


@click.command()
@click.option("--rows", default=1_000_000, help="Rows of the reference.")
def main(rows: int) -> None:
    """Measure look-ups in a reference table, on one core."""
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "customers")
        write_deltalake(path, customers(0, rows))
        for name, key in KEYS.items():
            reference = DeltaReference(path, key)
            seen = reference.newest("customers")
            load = cpu_secs(lambda: reference.at(seen))  # noqa: B023 - called at once
            click.echo(f"key {name}: {rows:,} rows loaded in {load:.2f} s of CPU")
            bolt = LookupJoin(key, reference="customers", fields=STREAM, values=Fields("name: string", "age: long"))
            bolt.collector = Silent()  # type: ignore[assignment]
            context = PlainContext(references={"customers": reference.at(seen)})
            bolt.prepare({}, context, bolt.collector, None)  # type: ignore[arg-type] # it looks at none
            for batch_rows in (1_000, 10_000, 100_000):
                speed = rows_a_second(bolt, rows, batch_rows) / 1e6
                click.echo(f"  batches of {batch_rows:>7,}: {speed:.2f} million rows a second")
            opened = state_of(str(Path(folder) / f"state-{name}"), rows, key)
            bolt = LookupJoin(key, state="customers", fields=STREAM, values=Fields("name: string", "age: long"))
            bolt.collector = Silent()  # type: ignore[assignment]
            click.echo(f"state with key {name}, of {rows:,} rows")
            for batch_rows in (1_000, 10_000, 100_000):
                view: Any = group_state(opened).begin(2)
                handle = StateHandle("join", "customers", view, None, opened.declared)
                bolt.prepare({}, PlainContext(states={"customers": handle}), bolt.collector, None)  # type: ignore[arg-type]
                speed = rows_a_second(bolt, rows, batch_rows) / 1e6
                click.echo(f"  batches of {batch_rows:>7,}: {speed:.2f} million rows a second")
            opened.close()
        reference = DeltaReference(path, "id")
        reference.at(reference.newest("customers"))
        write_deltalake(path, customers(rows, 1_000), mode="append")
        step = cpu_secs(lambda: reference.at(reference.newest("customers")))
        click.echo(f"a version with 1,000 rows more: {step * 1000:.0f} ms of CPU")


if __name__ == "__main__":
    main()
