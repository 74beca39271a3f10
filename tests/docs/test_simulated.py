"""What the pages build keeps every promise in ``txtopo simulate``, but for what they show as wrong."""

import contextlib
import importlib
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import txtopo
from tests.docs.blocks import Block, PageRun, blocks_of
from txtopo import Config, PlainTopology, Topology, TopologyBuilder, TransactionalTopology, TransactionalTopologyBuilder
from txtopo.testing import run_inline
from txtopo.testing.simulation.plain.world import make_plain_subject
from txtopo.testing.simulation.schedule import Simulated
from txtopo.testing.simulation.schedules import faults_unlogged, make_subject, run_schedules

ROOT = Path(__file__).parents[2]
SEEDS = range(1, 2)
UNTIL = 4


def blocks_in(page: Path) -> list[Block]:
    """Return the blocks of a page in Python that are run."""
    blocks = blocks_of(page.read_text(encoding="utf-8"))
    return [block for block in blocks if block.language == "python" and block.reason is None]


ON_SPARK = ROOT / "docs" / "guides" / "dataframes.md"
"""Its topology has DataFrame components, which can't be simulated."""
PAGES = {
    str(page.relative_to(ROOT)): page
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
    if page != ON_SPARK and any(".build()" in block.text for block in blocks_in(page))
}
RIGHT = ""
SAID: Mapping[str, tuple[str, ...]] = {
    # Bugs that the pages show.
    "docs/guides/failures.md": (r"ValueError: invalid literal for int\(\) with base 10: 'again'",),
    "docs/guides/testing.md": (r"emitted \[55\] after it had acked",),
    # Without an input that is there when a schedule begins.
    "docs/guides/guaranteed-processing.md": ("there is nothing to check", RIGHT),
    "docs/guides/kafka.md": ("reads Kafka at localhost:9092, which does not answer",),
    "docs/guides/kafka-plain.md": ("there is nothing to check", "is never connected to a broker"),
}
"""What is said of the topologies of a page, if not all are right: those that it builds, and those of its modules."""
INPUTS = {"docs/from-structured-streaming.md": '{"shop": "a", "at": "2026-03-01T08:00:00Z", "price": 1}\n'}
"""The file that is in the folder ``in``, for a page that does not write one."""


@pytest.mark.few(1)
@pytest.mark.parametrize("name", PAGES)
def test_a_page(name: str, page_run: PageRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """In both modes."""
    if name in INPUTS:
        page_run.folder.joinpath("in").mkdir()
        page_run.folder.joinpath("in", "1.json").write_text(INPUTS[name], encoding="utf-8")
    topologies = built_by(page_run, blocks_in(PAGES[name]), monkeypatch)
    said = SAID.get(name, (RIGHT,) * len(topologies))
    assert len(topologies) == len(said) > 0
    for topology, expected in zip(topologies, said, strict=True):
        for found in said_of(topology):
            assert re.search(expected, found) if expected else not found, found


def built_by(page_run: PageRun, blocks: list[Block], monkeypatch: pytest.MonkeyPatch) -> list[Topology]:
    """Return the topologies that a page builds, without Spark."""
    made: list[Topology] = []

    def noting(build: Callable[[Any], Topology]) -> Callable[[Any], Topology]:
        def noted(builder: Any) -> Topology:
            made.append(build(builder))
            return made[-1]

        return noted

    for builder in (TransactionalTopologyBuilder, TopologyBuilder):
        monkeypatch.setattr(builder, "build", noting(builder.build))
    monkeypatch.setattr(txtopo, "run", lambda topology, **_: run_inline(topology))
    for block in blocks:
        # Blocks that build nothing may show what a command has written, or want Spark.
        with contextlib.nullcontext() if ".build()" in block.text else contextlib.suppress(Exception):
            page_run.run(block)
    for block in blocks:
        if block.title is not None and "def topology(" in block.text:
            topology = importlib.import_module(Path(block.title).stem).topology
            with contextlib.suppress(TypeError):  # a page calls one that needs arguments
                inspect.signature(topology).bind()
                topology()
    return made


def said_of(topology: Topology) -> Iterator[str]:
    """Yield what the simulator says of a topology in each mode; nothing if it is right."""
    for is_real_time in (False,) if isinstance(topology, PlainTopology) else (False, True):
        try:
            with faults_unlogged():
                found = run_schedules(subject_of(topology, is_real_time=is_real_time), SEEDS, processes=1)
        except Exception as error:  # noqa: BLE001 - what the command prints
            yield str(error)
        else:
            yield "; ".join(failure.violation for failure in found.failures)


def subject_of(topology: Topology, *, is_real_time: bool) -> Simulated:
    """Return what is simulated; it runs once without faults for that."""
    if isinstance(topology, PlainTopology):
        return make_plain_subject(topology, Config(), UNTIL)
    assert isinstance(topology, TransactionalTopology)
    return make_subject(topology, until=UNTIL, is_real_time=is_real_time)
