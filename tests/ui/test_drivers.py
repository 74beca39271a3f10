"""What a supervisor answers of its drivers' runs, and the page of a cluster of that: earlier runs, too."""

import json
from urllib.parse import unquote, urlsplit

import attrs
import httpx
import pytest

from tests.ui.runs import EVIL, TRANSACTIONS, run_in
from txtopo.cluster.driver.folder import TopologyPlace
from txtopo.cluster.summaries import TopologySummary
from txtopo.cluster.supervisor.pages import DriverPages
from txtopo.inspect.backend import find
from txtopo.inspect.past.transaction import CanCheck
from txtopo.inspect.questions import NotFound
from txtopo.inspect.run.slugs import slug_of
from txtopo.inspect.run.status import Can
from txtopo.ui.cluster import ClusterBackend

NAME = "shop@1"
"""Of the topology in the cluster; its slug has no @ of its own."""


@attrs.define
class Nimbus:
    """The client of a cluster whose nimbus passes on what a supervisor answers for the page, and has said the rest."""

    pages: DriverPages
    status: str = "ACTIVE"
    reason: str | None = None

    def nimbuses(self):
        return []

    def supervisors(self):
        return []

    def topologies(self):
        return [TopologySummary(NAME, status=self.status, reason=self.reason, uptime_seconds=1)]

    def learn(self, nimbuses):
        pass

    def page(self, path=""):
        parts = urlsplit(path)
        _, topology, below = [*parts.path.split("/", 2), "", ""][:3] if path else ("", None, "")
        answer = self.pages(None if topology is None else unquote(topology), unquote(below), parts.query.encode())
        return httpx.Response(answer.status_code, content=answer.body)


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    output = tmp_path_factory.mktemp("driver")
    run_in(output, until=2)
    run_in(output)
    return DriverPages(lambda _: TopologyPlace(str(output / "_txtopo"), EVIL), lambda: [NAME])


@pytest.mark.slow
def test_earlier_runs_of_a_driver(pages):
    """A path that begins with the number of a run is answered as that run's."""
    assert [run["past"] for run in json.loads(pages(NAME, "runs", b"").body)["runs"]] == [None, 1]
    assert json.loads(pages(NAME, "", b"").body)["committed"] == TRANSACTIONS
    assert json.loads(pages(NAME, "@1", b"").body)["committed"] == 2
    found = json.loads(pages(NAME, "@1/transactions", b"limit=1").body)["transactions"]
    assert [each["txid"] for each in found] == [2]
    assert pages(NAME, "@7", b"").status_code == 404


def test_earlier_runs_in_a_cluster(pages):
    """They have slugs of the topology's name in the cluster, and lead to the same answers."""
    backend = ClusterBackend(Nimbus(pages))
    own = slug_of(NAME)

    def asked(path, slug, **texts):
        question, txid = find(path)
        return question.asked(backend, slug, texts, txid)

    assert [run.slug for run in asked("runs", own).runs] == [own, f"{own}@1"]
    header = backend.header(f"{own}@1")
    assert (header.id, header.slug, header.past, header.committed) == (NAME, f"{own}@1", 1, 2)
    assert backend.header(own).committed == TRANSACTIONS
    assert header.can == Can()
    assert asked("plots", f"{own}@1", secs=["60"]).plots
    assert json.loads(asked("timeline", f"{own}@1"))["attempts"]["txid"] == [1, 2]
    assert [transaction.txid for transaction in asked("transactions", f"{own}@1", limit=["1"]).transactions] == [2]
    rows = asked("state/rows", own, name=[EVIL], key=[""])
    assert (rows.found, rows.total) == (0, 2), "an empty key is one"
    told = asked("transaction/2", own)
    assert (told.txid, told.can) == (2, CanCheck())
    for slug in (f"{own}@7", "nobody@1"):
        with pytest.raises(NotFound):
            backend.header(slug)


@pytest.mark.parametrize(("status", "error"), [("FAILED", "why"), ("FINISHED", None)])
def test_why_a_topology_has_ended(status, error):
    """The page says so; only of one that has failed it is an error."""
    pages = DriverPages(lambda _: None, list)
    found = ClusterBackend(Nimbus(pages, status, "why")).header(slug_of(NAME))
    assert (found.status_text, found.last_error) == (f"{status}: why", error)
