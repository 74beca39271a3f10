"""The manifest of ``examples/kubernetes``: by Kubernetes' schema, and what it asks of a container, as processes."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from state import read_table
from tests.object_server import ObjectStore
from tests.processes import ROOT, environment
from tests.waiting import wait_for
from txtopo.files.objects import ObjectFolder
from txtopo.inspect.audit.evidence import audited
from txtopo.servers.server import free_port

MANIFESTS = [
    each
    for path in sorted((ROOT / "examples/kubernetes").glob("*.yaml"))
    for each in yaml.safe_load_all(path.read_text())
]

CONTAINER = """
mount -t tmpfs -o mode=1777 tmpfs /tmp && mount -o remount,bind,ro / && cd /tmp && ulimit -d {memory_kb} &&
exec setpriv --reuid {uid} --regid {uid} --clear-groups --no-new-privs \
    --inh-caps +dac_read_search --ambient-caps +dac_read_search -- "$@"
"""
"""A root that is read only, an empty /tmp, and a user without an entry in passwd; it may read what is root's, since
the tests' Python may be. Each process has at most the memory that the manifest gives to all, of what it writes to."""

TOPOLOGY = """
import time
from spouts import MemoryTransactionalSpout
from state import DeltaState
from txtopo import BatchBolt, Fields, ICommitter, TransactionalTopologyBuilder

class Count(BatchBolt, ICommitter):
    def prepare(self, config, context, collector, attempt):
        self.count, self.state = 0, context.state("counts")

    def execute(self, tuple):
        self.count += 1

    def finish_batch(self):
        time.sleep(0.1)
        self.state.update("all", lambda old: (old or 0) + self.count)

def topology(output: str):
    spout = MemoryTransactionalSpout([[number] for number in range(2_000)], Fields("n: long"), 10)
    builder = TransactionalTopologyBuilder("shop", "numbers", spout, 1)
    builder.set_committer_bolt("count", Count(), 1).global_grouping("numbers")
    builder.set_state("counts", DeltaState(output + "/counts", Fields("name: string"), Fields("n: long")))
    return builder.build()
"""


def pod() -> dict[str, Any]:
    (deployment,) = [manifest for manifest in MANIFESTS if manifest["kind"] == "Deployment"]
    return deployment["spec"]["template"]["spec"]


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda each: each["kind"])
def test_a_manifest_fits_the_schema(manifest: dict[str, Any]) -> None:
    """Kubernetes takes it, and has no field in it that it does not know."""
    validate = pytest.importorskip("kubernetes_validate")
    validate.validate(manifest, validate.latest_version(), strict=True)


def test_it_runs_one_coordinator_that_writes_nowhere_but_in_its_scratch_folder() -> None:
    """Two would fence each other in turn; and the page of a run's health is what the probes ask."""
    (deployment,) = [manifest for manifest in MANIFESTS if manifest["kind"] == "Deployment"]
    (container,) = pod()["containers"]
    assert (deployment["spec"]["replicas"], deployment["spec"]["strategy"]) == (1, {"type": "Recreate"})
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert [each["mountPath"] for each in container["volumeMounts"]] == ["/tmp"]
    assert {container[name]["httpGet"]["path"] for name in ("startupProbe", "livenessProbe")} == {"/health"}
    assert container["command"][:3] == ["txtopo", "run", "shop"]


@pytest.mark.long
def test_the_conditions_of_a_container(bucket_server: ObjectStore, tmp_path: Path) -> None:
    """Without a disk, a home, a name for its user, or more memory than it may have, it runs, says that it is well, and
    stops within the grace period.

    What is started in its place goes on, and the count is exact.
    """
    uid, grace_secs = pod()["securityContext"]["runAsUser"], pod()["terminationGracePeriodSeconds"]
    (container,) = pod()["containers"]
    memory_kb = int(container["resources"]["limits"]["memory"].removesuffix("Gi")) << 20
    script = CONTAINER.format(uid=uid, memory_kb=memory_kb)
    if subprocess.run(["unshare", "-m", "bash", "-c", script, "-", "true"], check=False).returncode:
        pytest.skip("this user can't make a container's conditions: no mount, or no other user")
    (tmp_path / "shop.py").write_text(TOPOLOGY)

    def start(port: int) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "txtopo", "run", "shop", "--set", "output=s3://bucket/shop"]
        command += ["--set", "group_transactions_max=20"]  # the group in progress must not be the whole input
        variables = environment(PYTHONPATH=f"{ROOT}:{tmp_path}")
        kept = {
            name: variable for name, variable in variables.items() if name not in {"HOME", "TMPDIR", "USER", "LOGNAME"}
        }
        return subprocess.Popen(
            ["unshare", "-m", "bash", "-c", script, "-", *command, "--metrics", f"127.0.0.1:{port}"],
            env=kept,
            text=True,
            stderr=subprocess.PIPE,
        )

    def committed(port: int, process: subprocess.Popen[str]) -> int:
        assert process.poll() is None, process.stderr and process.stderr.read()
        try:
            assert httpx.get(f"http://127.0.0.1:{port}/health", trust_env=False).status_code == 200
            found = httpx.get(f"http://127.0.0.1:{port}/metrics", trust_env=False).text
        except httpx.TransportError:
            return 0
        count = re.search(r"^txtopo_committed_txid\S* (\d+)", found, re.MULTILINE)
        return 0 if count is None else int(count[1])

    port = free_port()
    first = start(port)
    try:
        wait_for("some transactions", lambda: committed(port, first) > 2, 400.0)
        os.kill(first.pid, signal.SIGTERM)
        _, errors = first.communicate(timeout=grace_secs)
    finally:
        first.kill()
    assert first.returncode in {0, 130, 143}, errors
    before = read_table("s3://bucket/shop/counts")["n"].to_pylist()
    assert before < [2_000]
    second = start(free_port())
    try:
        _, errors = second.communicate(timeout=400)
    finally:
        second.kill()
    assert second.returncode == 0, errors
    assert read_table("s3://bucket/shop/counts")["n"].to_pylist() == [2_000]
    assert audited(ObjectFolder("s3://bucket/shop/_txtopo"), "shop", with_rows=True).findings == []
