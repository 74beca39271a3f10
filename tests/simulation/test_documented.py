"""What the guide of event time and the examples show keeps every promise in ``txtopo simulate``: it is right."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from examples import global_count, no_reading, ring
from tests.docs.blocks import PageRun, blocks_of
from txtopo import Topology, TransactionalTopologyBuilder
from txtopo.testing.simulation.schedules import faults_unlogged, make_subject, run_schedules

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "event-time.md"


def of_guide(folder: Path) -> Iterator[Topology]:
    """Yield the topologies that the guide of event time builds."""
    made: list[Topology] = []
    build = TransactionalTopologyBuilder.build
    run = PageRun(GUIDE.name, folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(TransactionalTopologyBuilder, "build", lambda builder: (made.append(build(builder)), made[-1])[1])
        for block in blocks_of(GUIDE.read_text(encoding="utf-8")):
            if block.language == "python" and block.reason is None:
                run.run(block)
    assert made, "the guide builds topologies"
    yield from made


@pytest.mark.parametrize("is_real_time", [False, True], ids=["micro-batch", "real-time"])
@pytest.mark.parametrize("name", ["guide", "no_reading", "ring", "global_count"])
def test_a_right_topology_is_called_right(tmp_path: Path, name: str, is_real_time: bool) -> None:
    """Among them clocks without idle_after, whose tables depend on the time at which transactions are planned."""
    if name == "guide":
        topologies = of_guide(tmp_path)
    else:
        topologies = iter([{"no_reading": no_reading, "ring": ring, "global_count": global_count}[name].topology()])
    for each in topologies:
        with faults_unlogged():
            subject = make_subject(each, until=4, is_real_time=is_real_time)
            found = run_schedules(subject, range(1, 6), processes=1)
        assert [(failure.seed, failure.violation) for failure in found.failures] == []
