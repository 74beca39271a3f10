"""What a flow shows: its components as a text, steps and fields in a notebook, and some rows of a stream."""

from __future__ import annotations

import html
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa

from committers import AppendCommitter
from state import DeltaRows, read_table
from txtopo import Config, Fields, TransactionalTopology
from txtopo.api.data.types import ddl_name
from txtopo.assembly.report import Progress
from txtopo.engine.control import RunControl
from txtopo.engine.runner import run_with
from txtopo.streams.graph import INTERNAL, Graph, Port, Step
from txtopo.testing.inline import inline_environment
from txtopo.text.words import count_of
from txtopo.topology.plans.description import described

_PREVIEW = "preview"
"""The table of a preview; the folder is its own."""

_IDLE_SECS = 1.0
"""A source that goes on, and has nothing more by then, is not waited for."""


def explained(topology: TransactionalTopology) -> str:
    """Return the components of a topology by phase: the class, what feeds each, and the tables that it uses."""
    plan = described(topology.plan)
    counts = count_of(len(plan["components"]), "component"), count_of(len(plan["states"]), "table")
    lines = [f"{plan['topology']}: {', '.join(counts)}"]
    for phase in ("processing", "commit"):
        lines.append(f"{phase} phase")
        for component in plan["components"]:
            if component["phase"] != phase:
                continue
            feeds = [
                (edge["source"] if edge["stream"] == "default" else f"{edge['source']}.{edge['stream']}")
                + f" ({edge['grouping']})"
                for edge in plan["edges"]
                if edge["target"] == component["id"]
            ]
            tables = [plan["states"][name]["path"] for name in component["states"]]
            line = f"  {component['id']}: {component['class']}"
            line += f" ← {', '.join(feeds)}" if feeds else ""
            lines.append(line + (f" → {', '.join(tables)}" if tables else ""))
    return "\n".join(lines)


def steps_shown(graph: Graph) -> str:
    """Return the steps so far as HTML: what each is called, what it takes, its fields, and its tables."""
    rows = [
        (
            step.name or step.verb,
            ", ".join(port.step.name or port.step.verb for port in step.inputs),
            "; ".join(
                f"{stream}: {_text(fields.without_attempt())}"
                if stream != "default"
                else _text(fields.without_attempt())
                for stream, fields in step.streams.items()
                if len(fields)
            ),
            ", ".join(state.address or name for name, state in step.states.items()),
        )
        for step in graph.steps
    ]
    return f"<b>{html.escape(graph.topology_id)}</b>" + table_shown(("step", "takes", "fields", "tables"), rows)


def fields_shown(fields: Fields) -> str:
    """Return fields and their types as HTML."""
    return table_shown(("field", "type"), zip(fields, map(ddl_name, fields.types), strict=True))


def table_shown(names: Iterable[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a table as HTML."""
    head = "".join(f"<th>{html.escape(name)}</th>" for name in names)
    body = "".join(f"<tr>{''.join(f'<td>{html.escape(str(each))}</td>' for each in row)}</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def _text(fields: Fields) -> str:
    return ", ".join(f"{name}: {ddl_name(kind)}" for name, kind in zip(fields, fields.types, strict=True))


@attrs.frozen(repr=False)
class Preview:
    """Some rows of a stream, which show themselves as a table."""

    rows: pa.Table

    def __repr__(self) -> str:
        """Return the rows as a text."""
        names = self.rows.column_names
        texts = [names, *([str(each) for each in row.values()] for row in self.rows.to_pylist())]
        widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
        lines = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in texts)
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return table_shown(self.rows.column_names, (row.values() for row in self.rows.to_pylist()))


def preview_of(graph: Graph, port: Port, rows: int, *, transactions: int, secs: float) -> Preview:
    """Run what makes a stream in this process, with tables of their own, and return its first rows."""
    with tempfile.TemporaryDirectory(prefix="txtopo-preview-") as folder:
        needed, waiting = set[Step](), [port.step]
        while waiting:
            each = waiting.pop()
            if each not in needed:
                needed.add(each)
                waiting += each.before
        own = Graph(graph.topology_id, folder, 1, [step for step in graph.steps if step in needed], moved=True)
        own.add(
            Step(
                verb=_PREVIEW,
                base=_PREVIEW,
                name=f"{INTERNAL}-{_PREVIEW}",
                inputs=(port,),
                component=AppendCommitter(_PREVIEW),
                is_committer=True,
                states={_PREVIEW: DeltaRows(own.internal(_PREVIEW), port.fields)},
                is_sink=True,
            )
        )
        control = RunControl()

        def show(progress: Progress) -> None:
            is_idle = progress.transactions and not progress.processing + progress.processed + progress.committing
            if progress.elapsed_secs > (_IDLE_SECS if is_idle else secs):
                control.stop()

        topology = own.builder().build()
        run_with(topology, Config(), inline_environment(), until=transactions, on_progress=show, control=control)
        table = own.internal(_PREVIEW)
        if not Path(table).exists():
            return Preview(port.fields.arrow_schema().empty_table())
        return Preview(read_table(table).sort_by("txid").drop_columns(["txid"]).slice(0, rows))


def notebook_progress() -> Any:
    """Return what shows a run's progress in one line of a notebook's cell; None elsewhere."""
    if "ipykernel" not in sys.modules:
        return None

    def show(progress: Progress) -> None:
        waiting = progress.processing + progress.processed + progress.committing
        text = f"transaction {progress.committed_txid:,}; {progress.tuples:,} tuples; {waiting} in flight"
        print(f"\r{text:<80}", end="", flush=True)  # noqa: T201 - a cell's output

    return show
