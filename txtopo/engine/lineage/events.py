"""OpenLineage's events of a topology's runs, made of what a run has read and written.

A topology is a job with all that it reads and writes, so it is one connected graph. Each start of it is a run, whose id
follows from incarnation and epoch: whoever leads next knows it, and can tell of a run that was killed.
"""

from __future__ import annotations

import datetime as dt
import os
import uuid
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import attr
import attrs
from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
from openlineage.client.facet_v2 import (
    DatasetFacet,
    InputDatasetFacet,
    RunFacet,
    column_lineage_dataset,
    dataset_version_dataset,
    error_message_run,
    input_statistics_input_dataset,
    job_type_job,
    lineage,
    output_statistics_output_dataset,
    processing_engine_run,
    schema_dataset,
)

from txtopo.api.components.optional import call_if_there
from txtopo.api.data.fields import Fields
from txtopo.api.data.tuples import DEFAULT_STREAM
from txtopo.api.data.types import ddl_name
from txtopo.api.dataset import Dataset
from txtopo.api.state import State
from txtopo.engine.lineage.account import Account, Read
from txtopo.text.extras import version
from txtopo.topology.topology import TransactionalTopology

NAMESPACE = "OPENLINEAGE_NAMESPACE"
"""The variable of the environment with the namespace of jobs, as other integrations have it."""

_DEFAULT_NAMESPACE = "txtopo"
_RUNS = uuid.UUID("5f9c3d1e-7c0b-5a53-9a0e-0f6d1f1f7b2a")
"""The namespace of the ids of runs."""

_PRODUCER = f"pkg:pypi/txtopo@{version().replace(' ', '-')}"


@attr.define
class RangesInputDatasetFacet(InputDatasetFacet):
    """Where a run has read: ``ranges`` has partition, start and end of each, of those that it read last.

    ``leftOut`` partitions were read before; all are in the topology's journal.
    """

    ranges: list[dict[str, Any]]
    leftOut: int  # noqa: N815 - its name in JSON


@attr.define
class TransactionDatasetFacet(DatasetFacet):
    """The last transaction that wrote a dataset."""

    txid: int


@attr.define
class TransactionsRunFacet(RunFacet):
    """Which transactions a run has committed, from ``first`` to ``last``; both are missing if it has none yet."""

    incarnation: str
    epoch: int
    first: int | None
    last: int | None
    deadLetters: int  # noqa: N815 - its name in JSON
    failures: int


def run_id(incarnation: str, epoch: int) -> str:
    """Return the id of the run that was an epoch of a topology."""
    return str(uuid.uuid5(_RUNS, f"{incarnation}/{epoch}"))


@attrs.frozen
class Events:
    """Makes the events of one topology, whose states include those that txtopo adds."""

    topology: TransactionalTopology
    states: Mapping[str, State]
    namespace: str = attrs.field(factory=lambda: os.environ.get(NAMESPACE) or _DEFAULT_NAMESPACE)

    def event(  # noqa: PLR0913, PLR0917 - what an event has
        self, kind: RunState, incarnation: str, epoch: int, account: Account, at_secs: float, error: str = ""
    ) -> RunEvent:
        """Return an event of a run, at ``at_secs`` since 1970, with what the run has read and written so far.

        ``kind`` is what the event says of the run; ``error`` says why it failed, empty if it did not.
        """
        producer: dict[str, Any] = {"producer": _PRODUCER}
        run_facets: dict[str, RunFacet] = {
            "processing_engine": processing_engine_run.ProcessingEngineRunFacet(
                version(), "txtopo", version(), **producer
            ),
            "txtopo_transactions": TransactionsRunFacet(
                incarnation, epoch, account.first, account.last, account.dead_letters, account.failures, **producer
            ),
        }
        if error:
            run_facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(error, "PYTHON", **producer)
        job_type = job_type_job.JobTypeJobFacet("STREAMING", "TXTOPO", "TOPOLOGY", **producer)
        return RunEvent(
            eventTime=dt.datetime.fromtimestamp(at_secs, dt.UTC).isoformat(),
            eventType=kind,
            run=Run(run_id(incarnation, epoch), run_facets),
            job=Job(self.namespace, self.topology.id, {"jobType": job_type}),
            inputs=[*self._inputs(account), *self._references(account)],
            outputs=list(self._outputs(account)),
            producer=_PRODUCER,
        )

    def _inputs(self, account: Account) -> Iterator[InputDataset]:
        for spout in self.topology.plan.spouts:
            read = account.read.get(spout.id)
            schema = _schema(spout.streams[DEFAULT_STREAM].without_attempt())
            for dataset, ranges in self._ranges(spout.id, read).items():
                facets: dict[str, InputDatasetFacet] = {}
                if read is not None and ranges:
                    partitions = [{"partition": name, "start": s, "end": e} for name, (s, e) in ranges.items()]
                    facets["txtopo_ranges"] = RangesInputDatasetFacet(partitions, read.left_out, producer=_PRODUCER)
                if read is not None and ranges == read.ranges:  # tuples are not counted by topic
                    facets["inputStatistics"] = input_statistics_input_dataset.InputStatisticsInputDatasetFacet(
                        rowCount=read.tuples, producer=_PRODUCER
                    )
                yield InputDataset(dataset.namespace, dataset.name, inputFacets=facets, facets={"schema": schema})

    def _ranges(self, spout: str, read: Read | None) -> dict[Dataset, dict[str, tuple[Any, Any]]]:
        """Return what was read of each dataset of a spout; nothing of those that it will read."""
        ranges = {} if read is None else read.ranges
        datasets = self._datasets(spout, ranges)
        by_dataset: dict[Dataset, dict[str, tuple[Any, Any]]] = {dataset: {} for dataset in datasets.values()}
        for partition, span in ranges.items():
            prefix = max((dataset for dataset in datasets if partition.startswith(dataset)), key=len, default="")
            by_dataset.setdefault(datasets.get(prefix) or self._unnamed(spout), {})[partition] = span
        return by_dataset or {self._unnamed(spout): {}}

    def _datasets(self, spout: str, partitions: Collection[str] = ()) -> Mapping[str, Dataset]:
        datasets: Mapping[str, Dataset] | None = call_if_there(
            self.topology.plan.by_id[spout].component, "datasets", partitions
        )
        return datasets or {}

    def _unnamed(self, name: str) -> Dataset:
        return Dataset(self.namespace, f"{self.topology.id}.{name}")

    def _references(self, account: Account) -> Iterator[InputDataset]:
        for name, reference in self.topology.plan.references.items():
            version, dataset = account.references.get(name), reference.dataset
            facets: dict[str, DatasetFacet] = {}
            if version is not None:
                facets["version"] = _version(str(version.version))
            yield InputDataset(dataset.namespace, dataset.name, facets=facets)

    def _outputs(self, account: Account) -> Iterator[OutputDataset]:
        for name, state in self.states.items():
            dataset, writes = state.dataset or self._unnamed(name), account.written.get(name)
            facets: dict[str, DatasetFacet] = {"schema": _schema(state.key + state.value)}
            columns = self.topology.columns.get(name)
            if columns:
                facets["columnLineage"] = column_lineage_dataset.ColumnLineageDatasetFacet(
                    {
                        column: column_lineage_dataset.Fields(list(self._fields(sources)))
                        for column, sources in columns.items()
                    },
                    producer=_PRODUCER,
                )
            facets["lineage"] = lineage.LineageDatasetFacet(
                [
                    lineage.LineageDatasetInput(each.namespace, each.name, "DATASET")
                    for spout in sorted(self._spouts_of(name))
                    for each in self._ranges(spout, account.read.get(spout))
                ],
                producer=_PRODUCER,
            )
            output: dict[str, Any] = {}
            if writes is not None:
                txid = writes.txid
                facets["version"] = _version(f"txid {txid}" if writes.version is None else str(writes.version))
                facets["txtopo_transaction"] = TransactionDatasetFacet(txid, producer=_PRODUCER)
                output["outputStatistics"] = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
                    rowCount=writes.rows, producer=_PRODUCER
                )
            yield OutputDataset(dataset.namespace, dataset.name, outputFacets=output, facets=facets)

    def _fields(self, sources: Collection[tuple[str, str]]) -> Iterator[column_lineage_dataset.InputField]:
        plan = self.topology.plan
        for origin, field in sorted(sources):
            datasets = (
                [plan.references[origin].dataset] if origin in plan.references else list(self._ranges(origin, None))
            )
            for dataset in datasets:
                yield column_lineage_dataset.InputField(dataset.namespace, dataset.name, field)

    def _spouts_of(self, state: str) -> frozenset[str]:
        """Return the spouts of whose tuples a state is made: of dead letters, and where nobody asks for it, all."""
        plan = self.topology.plan
        writers = [component for component, states in plan.requested_states.items() if state in states]
        spouts: frozenset[str] = frozenset().union(*map(plan.spouts_above, writers))
        return spouts or frozenset(spout.id for spout in plan.spouts)


def _schema(fields: Fields) -> schema_dataset.SchemaDatasetFacet:
    fields_of_facet = [
        schema_dataset.SchemaDatasetFacetFields(name, None if kind is None else ddl_name(kind), fields=None)
        for name, kind in zip(fields.names, fields.types, strict=True)
    ]
    return schema_dataset.SchemaDatasetFacet(fields_of_facet, producer=_PRODUCER)


def _version(text: str) -> dataset_version_dataset.DatasetVersionDatasetFacet:
    return dataset_version_dataset.DatasetVersionDatasetFacet(text, producer=_PRODUCER)
