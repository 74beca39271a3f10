"""What lineage and traces cost a run: CPU a transaction and a group, without, with one of them, with both, in turns."""

import os
import statistics
import tempfile
import time
from collections.abc import Mapping

import click
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from committers import ReduceCommitter
from spouts import MemoryTransactionalSpout
from state import DeltaState
from txtopo import Config, Fields, TransactionalTopologyBuilder
from txtopo.engine.tracing import Tracing
from txtopo.testing import run_inline

FIELDS = Fields("key: string", "value: long")
WAYS = {"off": (), "lineage": ("lineage",), "tracing": ("tracing",), "both": ("lineage", "tracing")}


class _Encoding(SpanExporter):
    """Makes OTLP's bytes of spans, and sends them nowhere."""

    spans = 0

    def export(self, spans):
        encode_spans(spans).SerializeToString()
        _Encoding.spans += len(spans)
        return SpanExportResult.SUCCESS


def _run(transactions: int, on: tuple[str, ...]) -> tuple[float, int]:
    """Run once; return the CPU seconds and the number of groups."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        os.environ["OPENLINEAGE__TRANSPORT__LOG_FILE_PATH"] = f"{folder}/told"
        rows = [[f"k{number % 7}", number] for number in range(transactions * 5)]
        builder = TransactionalTopologyBuilder("told", "rows", MemoryTransactionalSpout(rows, FIELDS, 5))
        builder.set_committer_bolt("sum", ReduceCommitter("sums", "key", "value")).fields_grouping(
            "rows", Fields("key")
        )
        builder.set_state("sums", DeltaState(f"{folder}/sums", Fields("key: string"), Fields("value: long")))
        config = Config({f"topology.{name}": True for name in on}, max_spout_pending=128, group_transactions_max=32)
        began = time.process_time()
        run_inline(builder.build(), config)
        return time.process_time() - began, -(-transactions // 32)


@click.command()
@click.option("--transactions", default=3_200)
@click.option("--rounds", default=5)
def main(transactions: int, rounds: int) -> None:
    """Run in turns, and print medians."""
    os.environ |= {"OPENLINEAGE__TRANSPORT__TYPE": "file", "OPENLINEAGE__TRANSPORT__APPEND": "true"}

    def tracing(topology_id: str, settings: Mapping[str, object]) -> Tracing:
        provider = TracerProvider()
        provider.add_span_processor(BatchSpanProcessor(_Encoding()))
        return Tracing(topology_id, settings, provider)

    import txtopo.engine.tracing as module

    module.Tracing = tracing  # type: ignore[misc,assignment] # as a run makes one, with an exporter to nowhere
    _run(64, WAYS["both"])
    secs: dict[str, list[float]] = {way: [] for way in WAYS}
    for _ in range(rounds):
        for way, on in WAYS.items():
            spent, groups = _run(transactions, on)
            secs[way].append(spent)
    base = statistics.median(secs["off"])
    for way, own in secs.items():
        spent = statistics.median(own)
        more = [each - before for each, before in zip(own, secs["off"], strict=True)]
        click.echo(
            f"{way:8} {spent:6.2f} s CPU, {1000 * spent / groups:6.2f} ms a group; "
            f"{1e6 * statistics.median(more) / transactions:+7.1f} µs a transaction ({100 * (spent / base - 1):+.1f} %)"
        )
    click.echo(f"{_Encoding.spans} spans")


if __name__ == "__main__":
    main()
