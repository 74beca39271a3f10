"""The page of a real cluster in a real browser: its leader is killed, its topologies are changed, and one has failed."""

import contextlib
import itertools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.cluster.nimbuses import ROOT, next_root
from tests.cluster.supervisors import DriverCluster
from tests.ui.shapes import misfits
from tests.waiting import DEADLINE_SECS, wait_for
from txtopo.inspect.run.slugs import slug_of
from txtopo.ui.openapi import OPERATIONS, document

pytestmark = [pytest.mark.long, pytest.mark.slow, pytest.mark.timeout(900)]

EVIL = "<script>hit=1</script>"
EVIL_NAME = "<script>hit=1"
SECS = 180.0
PLAIN = """
import time
from txtopo import BasicBolt, Fields, Spout, TopologyBuilder

class Ticks(Spout):
    output_fields = Fields("n: long")

    def open(self, config, context, collector):
        self.collector, self.number = collector, 0

    def next_tuple(self):
        self.number += 1
        self.collector.emit((self.number,), message_id=self.number)
        time.sleep(0.05)

class Nothing(BasicBolt):
    output_fields = Fields()

    def execute(self, tuple, collector):
        pass

def topology():
    builder = TopologyBuilder("ticks")
    builder.set_spout("ticks", Ticks())
    builder.set_bolt("nothing", Nothing()).shuffle_grouping("ticks")
    return builder.build()
"""


@contextlib.contextmanager
def page_of(cluster: DriverCluster) -> Iterator[str]:
    """Start ``txtopo ui --cluster``, which knows one nimbus only; yield its address."""
    config = str(cluster.cluster.folder / "cluster.toml")
    words = ["ui", "--cluster", "--config", config, "--seeds", cluster.cluster.leader().address]
    command = [sys.executable, "-m", "txtopo", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


@pytest.fixture
def cluster(zookeeper, tmp_path) -> Iterator[DriverCluster]:
    with DriverCluster(zookeeper.hosts, next_root(), tmp_path, 1, nimbuses=2, supervisor_slots=4) as made:
        yield made.start()


def test_a_cluster_whose_leader_is_killed(cluster: DriverCluster, tmp_path: Path, browser) -> None:
    """One address shows daemons and topologies, plain ones too; it goes on without the leader; a kill asks first."""
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "ticks.py").write_text(PLAIN)
    plain = cluster.command("submit", str(tmp_path / "plain"), "--module", "ticks").split()[0]
    counting = cluster.submit(total=100_000, pause=0.2)
    with page_of(cluster) as address:
        browser.open(address, width=1100, height=560)
        wait_for("both run", lambda: browser.text("#topologies").count("running") == 2, SECS)
        for words in ("leads", "waits to lead"):
            browser.says(words, "#cluster", SECS)
        _answers(browser, counting, plain)
        cluster.cluster.leader().kill()
        browser.says("gone", "#cluster", SECS)
        wait_for("another one leads", lambda: "leads" in browser.text("#cluster").replace("waits to lead", ""), SECS)
        wait_for("both run", lambda: browser.text("#topologies").count("running") == 2, SECS)
        browser.picture("cluster-leader-killed", whole=True)
        _one_topology(browser, cluster, counting)
        evil = cluster.copy_of_code(**{"a bug in the committer": EVIL})
        failed = cluster.submit(evil, "--name", EVIL_NAME, bug_at=3, output=tmp_path / "evil", name=EVIL_NAME)
        start = address.partition("/?")[0]
        browser.open(start, width=380, dark=True)
        for words in ("FAILED", EVIL, EVIL_NAME):
            browser.says(words, "#topologies", SECS)
        assert browser.script("return document.scrollingElement.scrollWidth") <= 380
        browser.picture("cluster-failed-380", whole=True)
        browser.open(f"{start}/t/{slug_of(failed)}#errors")
        browser.says(EVIL, "#errors", SECS)
        assert browser.script("return typeof hit") == "undefined"
        browser.driver.get("about:blank")  # before the page's process ends, of which the console would tell


def _one_topology(browser, cluster: DriverCluster, counting: str) -> None:
    browser.find(f"#topologies a[href$='/{slug_of(counting)}']").click()
    wait_for("transactions in the timeline", lambda: browser.rows() > 5, SECS)
    browser.find("#deactivate").click()
    browser.says("Let the spout emit nothing more?", "dialog")
    browser.find("dialog .danger").click()
    browser.says("INACTIVE", "#header .status", SECS)
    browser.find("#kill").click()
    browser.says("End the topology", "dialog")
    browser.find("dialog button").click()
    assert cluster.cluster.statuses()["counting"] == "INACTIVE"
    browser.find("#kill").click()
    browser.find("dialog .danger").click()
    browser.says("KILLED", "#header .status", SECS)
    browser.picture("cluster-topology-killed")


def _answers(browser, counting: str, plain: str) -> None:
    """Its API answers as that of a folder does, of every kind of topology, and nothing to strangers."""
    origin = browser.script("return location.origin")
    cookies = {each["name"]: each["value"] for each in browser.driver.get_cookies()}
    with httpx.Client(base_url=origin, cookies=cookies, trust_env=False, timeout=30) as client:
        of_counting = f"/api/v1/topology/{slug_of(counting)}"
        wait_for("it commits", lambda: (client.get(of_counting).json()["committed"] or 0) > 1, SECS)
        for (method, path), topology in itertools.product(OPERATIONS, (counting, plain)):
            if method != "get" or "{number}" in path or "rows" in path or (topology == plain and "{txid}" in path):
                continue
            place = path.replace("{slug}", slug_of(topology)).replace("{txid}", "1")
            answer = client.get(place)
            assert answer.status_code == 200, (place, answer.text)
            schema = document()["paths"][path]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
            assert list(misfits(answer.json(), schema)) == [], place
        assert client.get(f"{of_counting}/state/rows?name=counts&key=3").json()["found"] == 1
        assert client.get("/api/v1/topology/nobody").status_code == 404
        assert client.post(f"{of_counting}/kill").status_code == 403, "it has no Origin"
        assert httpx.get(f"{origin}{of_counting}", trust_env=False, timeout=DEADLINE_SECS).status_code == 401
