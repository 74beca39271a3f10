"""What a flow shows: its components as a text, steps and fields in a notebook, and some rows of a stream."""

from __future__ import annotations

import html
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa

from committers import AppendCommitter
from state import DeltaRows, read_table
from txtopo import Config
from txtopo.api.data.tuples import DEFAULT_STREAM
from txtopo.assembly.report import Progress
from txtopo.engine.control import RunControl
from txtopo.engine.runner import run_with
from txtopo.streams.graph import INTERNAL, Graph, Port, Step
from txtopo.testing.inline import inline_environment
from txtopo.topology.plans.description import fields_text

_PREVIEW = "preview"
"""The table of a preview; the folder is its own."""

_IDLE_SECS = 1.0
"""A source that goes on, and has nothing more by then, is not waited for."""


def steps_shown(graph: Graph) -> str:
    """Return the steps so far as HTML: what each is called, what it takes, its fields, and its tables."""
    rows = [
        (
            step.name or step.verb,
            ", ".join(port.step.name or port.step.verb for port in step.inputs),
            "; ".join(
                ("" if stream == DEFAULT_STREAM else f"{stream}: ") + fields_text(fields.without_attempt())
                for stream, fields in step.streams.items()
                if len(fields)
            ),
            ", ".join(state.address or name for name, state in step.states.items()),
        )
        for step in graph.steps
    ]
    return f"<b>{html.escape(graph.topology_id)}</b>" + table_shown(("step", "takes", "fields", "tables"), rows)


def table_shown(names: Iterable[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a table as HTML."""
    head = "".join(f"<th>{html.escape(name)}</th>" for name in names)
    body = "".join(f"<tr>{''.join(f'<td>{html.escape(str(each))}</td>' for each in row)}</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


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
    """Run what makes a stream in this process, with separate tables, and return its first rows."""
    with tempfile.TemporaryDirectory(prefix="txtopo-preview-") as folder:
        needed = graph.needed_for([port.step])
        copy = Graph(graph.topology_id, folder, 1, [step for step in graph.steps if step in needed], moved=True)
        copy.add(
            Step(
                verb=_PREVIEW,
                base=_PREVIEW,
                name=f"{INTERNAL}-{_PREVIEW}",
                inputs=(port,),
                component=AppendCommitter(_PREVIEW),
                is_committer=True,
                states={_PREVIEW: DeltaRows(copy.internal(_PREVIEW), port.fields)},
                is_sink=True,
            )
        )
        control = RunControl()

        def show(progress: Progress) -> None:
            is_idle = progress.transactions and not progress.processing + progress.processed + progress.committing
            if progress.elapsed_secs > (_IDLE_SECS if is_idle else secs):
                control.stop()

        topology = copy.builder().build()
        run_with(topology, Config(), inline_environment(), until=transactions, on_progress=show, control=control)
        table = copy.internal(_PREVIEW)
        if not Path(table).exists():
            return Preview(port.fields.arrow_schema().empty_table())
        return Preview(read_table(table).sort_by("txid").drop_columns(["txid"]).slice(0, rows))
