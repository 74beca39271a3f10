"""``Flow``: a topology, said as streams and what becomes of them."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import attrs

import txtopo
from spouts.bad_records import WithBadRecords
from state import DeltaReference
from txtopo import Config, Fields, RunReport, TransactionalTopology, TransactionalTopologyBuilder
from txtopo.api.arguments import check_positive
from txtopo.api.components.spout import AnySpout
from txtopo.assembly.report import Progress
from txtopo.errors import ConfigError, FieldsError
from txtopo.streams.columns import columns_of
from txtopo.streams.graph import Graph, Port, Step, streams_of
from txtopo.streams.shown import steps_shown
from txtopo.streams.stream import Stream, Table
from txtopo.streams.verbs import Verbs, step
from txtopo.topology.plans.description import explained

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Flow(Verbs):
    """Streams and what becomes of them, in one topology.

    All tables of a flow are exactly right together: a transaction is a batch of each source, and counts once in each.
    Each word becomes one of the ready-made components, under a name that ``explain()``, errors and the page show.

    Args:
        name: the topology's name.
        output: the folder, or the address in an object store, of all tables.
        parallelism: the number of tasks of each component, except for clocks.
        storage_options: options for the object store, as delta-rs has them, for all tables of the flow that are given
            none. None: from the environment.
    """

    @step
    def __init__(
        self,
        name: str,
        output: str | os.PathLike[str],
        *,
        parallelism: int = 1,
        storage_options: Mapping[str, str] | None = None,
    ) -> None:
        check_positive("parallelism", parallelism)
        self._graph = Graph(name, output, parallelism, storage_options=storage_options)

    @step
    def source(self, name: str, spout: AnySpout, *, bad: str | None = None, parallelism: int | None = None) -> Stream:
        """Add a source; several of a flow make transactions of a batch of each.

        Args:
            name: its component id, from which the steps below get theirs.
            spout: any spout of transactional topologies, whose fields have types.
            bad: the name of a table of the output for records that do not fit the fields; without it, the first one
                stops the run.
            parallelism: the number of tasks that emit a transaction; None: that of the flow.
        """
        if not isinstance(spout, AnySpout):
            raise ConfigError(f"{spout!r} is no spout of transactional topologies")
        check_positive("parallelism", 1 if parallelism is None else parallelism)
        if bad is not None:
            if not isinstance(spout, WithBadRecords):
                raise ConfigError(f"a {type(spout).__name__} has no bad records; leave out bad=")
            spout = spout.with_dead_letter(self._graph.table(bad))
        streams = streams_of(spout)
        for fields in streams.values():
            if not fields.with_attempt().columnar:
                raise FieldsError(f"the spout's fields are {fields}; give each a type, for example 'price: double'")
        parts: dict[str, Any] = {"bad": () if bad is None else (bad,), "streams": streams, "parallelism": parallelism}
        added = Step(verb="source", base=name, name=name, component=spout, **parts)
        return Stream(self._graph, Port(self._graph.add(added)))

    @step
    def reference(self, name: str, reference: DeltaReference) -> Table:
        """Add a table that the flow only reads, for ``stream.join``.

        Args:
            name: its name; a transaction records under it which version it sees.
            reference: the table.
        """
        return Table(self._graph, name, reference.key, Fields(), reference=reference)

    @property
    def builder(self) -> TransactionalTopologyBuilder:
        """A new builder with all that was said so far, to go on with bolts and committers of your own."""
        return self._graph.builder()

    @step
    def build(self) -> TransactionalTopology:
        """Check the flow and return the topology.

        Raises:
            TopologyError: something is wrong; the message has the line.

        Warns:
            UnusedStreamWarning: nothing takes a stream.
        """
        topology = self._graph.build()
        return attrs.evolve(topology, columns=columns_of(self._graph))

    def run(
        self,
        config: Config | Mapping[str, Any] | None = None,
        *,
        spark: SparkSession | None = None,
        until: int | None = None,
    ) -> RunReport:
        """Build the flow and run it: :func:`txtopo.run`, which see.

        In a notebook it shows its progress. When the cell is interrupted, what is being committed still is; run the
        cell again, and it goes on from there.
        """
        on_progress = _show_in_cell if "ipykernel" in sys.modules else None
        return txtopo.run(self.build(), self._config(config), spark=spark, until=until, on_progress=on_progress)

    @step
    def _config(self, config: Config | Mapping[str, Any] | None) -> Config:
        return config if isinstance(config, Config) else Config(config)

    def explain(self) -> str:
        """Return a text of the components that the flow becomes, by phase, with what feeds each and its table."""
        return explained(self.build().plan)

    def _repr_html_(self) -> str:
        return steps_shown(self._graph)


def _show_in_cell(progress: Progress) -> None:
    """Show a run's progress in one line of a notebook's cell."""
    waiting = progress.processing + progress.processed + progress.committing
    text = f"transaction {progress.committed_txid:,}; {progress.tuples:,} tuples; {waiting} in flight"
    print(f"\r{text:<80}", end="", flush=True)  # noqa: T201 - a cell's output
