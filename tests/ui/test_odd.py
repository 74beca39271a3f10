"""Runs with odd names, texts and numbers: the page shows them, and no answer fails by them."""

import math

import attrs
import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from spouts.memory import MemoryTransactionalSpout
from state.delta.keyed.state import DeltaState
from tests.bolts import Collecting
from txtopo import BasicBolt, Config, FailedException, Fields, TransactionalTopologyBuilder
from txtopo.attempts import epoch_and_try
from txtopo.engine.metrics import RunMetrics
from txtopo.engine.runner import run_with
from txtopo.engine.timeline.ends import place_of
from txtopo.engine.timeline.observer import Timeline
from txtopo.engine.timeline.records import METRICS
from txtopo.files.places import folder_at
from txtopo.inspect.backend import FolderBackend
from txtopo.inspect.run.slugs import slug_of
from txtopo.testing.inline import inline_environment
from txtopo.ui.app import Page, application
from txtopo.ui.openapi import OPERATIONS
from txtopo.ui.security import Sessions, hosts_of

NAMES = (
    "\u202eevil\u2028",
    "a" * 2_000,
    "__proto__",
    "{{x}}",
    "\x1b[31m",
    '%s "%d" \\',
    "é𝄞",
    "' OR 1=1",
    "0",
    "nan",
    "@1",
)
TEXTS = (*NAMES, "half a pair: \udcff", "\x00", "\n\n", "]]>", "")
NUMBERS = (math.inf, -math.inf, math.nan, 1.7e308, 5e-324, -5.0)


class Fails(BasicBolt):
    """Fails each transaction once, with another text."""

    output_fields = Fields("attempt", "word: string")

    def execute(self, tuple, collector):
        txid, (_, number) = tuple.attempt.txid, epoch_and_try(tuple.attempt.attempt)
        if number == 1:
            raise FailedException(TEXTS[txid % len(TEXTS)])
        collector.emit(tuple.values)


class Measures(Collecting):
    """Counts and measures by odd names, and odd numbers."""

    def finish_batch(self):
        for at, name in enumerate(NAMES):
            self.context.count(name, 1)
            self.context.gauge(name, NUMBERS[at % len(NUMBERS)], of=name)


@pytest.fixture(scope="module", params=["odd", "a@1", "ü ½", "__proto__"])
def found(request, tmp_path_factory):
    """The id of a topology, its page's backend, and a browser."""
    output = tmp_path_factory.mktemp("odd")
    spout = MemoryTransactionalSpout({0: [["a"]] * len(TEXTS)}, Fields("word: string"), 1)
    builder = TransactionalTopologyBuilder(request.param, "spout", spout)
    builder.set_bolt("fails", Fails()).shuffle_grouping("spout")
    for name in NAMES:
        builder.set_bolt(name, Fails()).shuffle_grouping("fails")
    builder.set_bolt("measures", Measures("s")).shuffle_grouping("fails")
    builder.set_state("s", DeltaState(output / "s", Fields("word: string"), Fields("n: long")))
    topology, config = builder.build(), Config()
    folder = place_of(topology, config)
    metrics = RunMetrics.of(topology)
    with Timeline(topology, config, folder, 0.01) as timeline:

        def note(progress):
            timeline.progressed(progress)
            metrics.progressed(progress)

        run_with(topology, config, attrs.evolve(inline_environment(), observer=timeline), on_progress=note)
    (folder / METRICS).write_bytes(metrics.text())
    backend = FolderBackend(folder_at(output))
    page = Page(backend, Sessions())
    app = application(page, hosts_of(["127.0.0.1"], 8123), 8123)
    client = TestClient(app, base_url="http://127.0.0.1:8123")
    client.get(f"/?token={page.sessions.invite()}")
    yield request.param, backend, client
    backend.close()


@pytest.mark.slow
def test_every_answer(found):
    """Each address answers, with names that lead back to it."""
    topology, _, client = found
    slug = slug_of(topology)
    api = [path.format(slug=slug, txid=3) for method, path in OPERATIONS if method == "get" and "{number}" not in path]
    parts = ("header", "plots", "graph", "states", "errors", "settings", "transactions", "transaction/3", "runs")
    for address in [*api, *(f"/part/{slug}/{part}" for part in parts), f"/t/{slug}", f"/t/{slug}/tx/3"]:
        if "cluster" not in address:
            query = "?name=s" if address.endswith("rows") else ""
            assert client.get(address + query).status_code == 200, address
    assert client.get("/part/topologies").text.count(f'href="/t/{slug}"') == 1


def test_infinite_numbers_have_no_plot(found):
    """JSON has no infinity; what is finite is drawn."""
    topology, backend, _ = found
    lines = [line for plot in backend.plots(slug_of(topology), 3_600).plots for line in plot.lines.values()]
    numbers = [value for line in lines for value in line if value is not None]
    assert all(map(math.isfinite, numbers))
    assert {1.7e308, -5.0} <= set(numbers)


def test_metrics(found):
    """Names of topologies, components and readings come back as they are, infinite values too, each family once."""
    topology, _, client = found
    families = list(text_string_to_metric_families(client.get("/metrics").text))
    assert len({family.name for family in families}) == len(families)
    gauges = {family.name: family.samples for family in families}["txtopo_component_gauge"]
    assert {gauge.labels["topology"] for gauge in gauges} == {topology}
    assert {gauge.labels["name"]: gauge.labels["of"] for gauge in gauges} == dict(zip(NAMES, NAMES, strict=True))
    assert math.inf in {gauge.value for gauge in gauges}
