"""What the page says of a table that costs more than it need, while its topology runs."""

import logging
from pathlib import Path

import attrs
import pytest
from starlette.testclient import TestClient

from spouts.memory import MemoryTransactionalSpout
from state.delta.keyed.state import DeltaState
from tests.bolts import Count
from tests.variants import variants
from txtopo import Config, Fields, Progress, RunControl, TransactionalTopologyBuilder
from txtopo.engine.runner import run_with
from txtopo.engine.timeline.ends import place_of
from txtopo.engine.timeline.observer import Timeline
from txtopo.files.places import folder_at
from txtopo.inspect.backend import FolderBackend
from txtopo.inspect.past import tables
from txtopo.testing.inline import inline_environment
from txtopo.transactional.commit import gathering
from txtopo.ui.app import Page, application
from txtopo.ui.security import Sessions, hosts_of

SAYS = "groups gather transactions and answers come later; with deletion_vectors=True on the state"
GROUPS_MIN = 20


@pytest.mark.parametrize("deletion_vectors", variants(False, slow=[True]))
def test_a_table_that_is_written_again(tmp_path: Path, monkeypatch, caplog, deletion_vectors: bool) -> None:
    """A page that is open sees it and the option while the topology runs; one warning says it, too."""
    for each in (gathering, tables):
        monkeypatch.setattr(each, "REWRITTEN_BYTES_MIN", 100)
    spout = MemoryTransactionalSpout({0: [[f"w{n % 5}"] for n in range(2_000)]}, Fields("word: string"), 1)
    builder = TransactionalTopologyBuilder("large", "spout", spout)
    builder.set_bolt("count", Count("counts")).shuffle_grouping("spout")
    table = DeltaState(
        tmp_path / "counts", Fields("word: string"), Fields("n: long"), deletion_vectors=deletion_vectors
    )
    builder.set_state("counts", table)
    topology, config = builder.build(), Config(group_transactions_max=1)
    page = Page(FolderBackend(folder_at(tmp_path), may_be_empty=True), Sessions())
    client = TestClient(application(page, hosts_of(["127.0.0.1"], 8123), 8123), base_url="http://127.0.0.1:8123")
    client.get(f"/?token={page.sessions.invite()}")
    control, looks, seen = RunControl(), 0, list[str]()

    def look(progress: Progress) -> None:
        """Look while there is more to do, and end the run when enough of it was seen."""
        nonlocal looks
        timeline.progressed(progress)
        looks += 1
        fresh = f"?{looks}"  # others would get the same answer for a moment
        if client.get(f"/api/v1/topology/large{fresh}").json().get("status") == "running":
            seen.append(client.get(f"/part/large/states{fresh}").text)
        if seen and progress.committed_txid >= GROUPS_MIN and (deletion_vectors or SAYS in seen[-1]):
            control.stop()

    folder = place_of(topology, config)
    with (
        caplog.at_level(logging.WARNING, "txtopo"),
        Timeline(topology, config, folder, 0.01) as timeline,
    ):
        environment = attrs.evolve(inline_environment(), observer=timeline)
        run_with(topology, config, environment, on_progress=look, control=control)
    page.backend.close()
    assert seen, "it was looked at while it ran"
    assert any(SAYS in part for part in seen) is not deletion_vectors
    warnings = [record.getMessage() for record in caplog.records if "deletion_vectors=True" in record.getMessage()]
    assert len(warnings) == (0 if deletion_vectors else 1)
