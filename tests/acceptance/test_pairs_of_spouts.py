"""Spouts of every two kinds in one topology, with a reference table that changes: exact whatever is killed."""

import itertools
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.pairs_of_spouts import FRAME, KINDS, WORDS, check, filled, topology
from tests.cli.conftest import command_line
from tests.crashes import crash_everywhere, run_with_crash
from tests.processes import ran
from tests.variants import variants
from txtopo import Config, run
from txtopo.servers.kafka import KafkaBroker
from txtopo.testing import run_inline

__all__ = ["command_line"]

NEIGHBOURS = [*zip(KINDS, KINDS[1:] + KINDS[:1], strict=True)]
PAIRS = [*itertools.combinations_with_replacement(KINDS, 2)]
"""All of them; each kind is twice among the neighbours."""
CONFIG = Config(max_spout_pending=3, group_transactions_max=2)
MODULE = "tests.acceptance.pairs_of_spouts"


@pytest.mark.slow
@pytest.mark.parametrize(
    "kinds", variants(*NEIGHBOURS, long=[(pair,) for pair in PAIRS if pair not in NEIGHBOURS]), ids=" + ".join
)
def test_killed_at_durable_steps(tmp_path: Path, kinds: tuple[str, str]) -> None:
    """At every 23rd of all durable steps: each row is there once, and saw the version that is recorded for it.

    Opaque spouts are cut anew while repeatable ones keep their ranges, and the reference has other versions then.
    """
    for crash, root in crash_everywhere(tmp_path, every=23):
        log = filled(root)
        if not run_with_crash(lambda root=root, log=log: topology(kinds, root, log), crash, CONFIG):  # type: ignore[misc]
            run_inline(topology(kinds, root, log), CONFIG)
        check(kinds, root)
        for kind, name in zip(kinds, WORDS, strict=True):
            if kind.endswith("kafka"):  # two groups are published by one topology
                stored = log.committed(f"group-{name}")
                assert {each.partition: one.offset for each, one in stored.items()} == log.end_offsets(name)
            else:
                assert log.committed(f"group-{name}") == {}


@pytest.mark.slow
def test_audit_and_replay(tmp_path: Path, command_line: Any) -> None:
    """The audit proves the ranges of both, and a replay of each transaction emits the same."""
    root = tmp_path / "root"
    log = filled(root)
    run_inline(topology(("opaque memory", "files"), root, log), CONFIG)
    told = command_line.told("audit", str(root / "out"))
    assert "without gap or overlap" in told
    command_line.write_module("job", JOB)
    for txid in (1, 2, 3):
        assert "✔" in command_line.told("replay", "job", str(txid))


JOB = """
from pathlib import Path

from tests.acceptance.pairs_of_spouts import topology as made

def topology():
    return made(("opaque memory", "files"), Path("root").resolve(), "")
"""


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", KINDS[:3])
def test_a_dataframe_spout_beside_another(tmp_path: Path, spark: Any, kind: str) -> None:
    """Spark SQL reads its rows, tasks emit the others', and bolts of both see one version of the reference."""
    run(topology((FRAME, kind), tmp_path, filled(tmp_path)), CONFIG)
    check((FRAME, kind), tmp_path)


@pytest.mark.long
@pytest.mark.parametrize(
    ("kinds", "mode", "step"),
    [
        ((FRAME, "opaque memory"), "micro-batch", "metadata.save.after"),
        (("opaque memory", "files"), "micro-batch", "metadata.save.after"),
        (("files", "opaque memory"), "real-time", "group.decide.after"),
        (("memory", "opaque memory"), "micro-batch", "group.decide.before"),
        ((FRAME, FRAME), "micro-batch", "group.decide.after"),
        ((FRAME, "memory"), "micro-batch", "group.decide.before"),
        ((FRAME, "files"), "micro-batch", "group.decide.after"),
    ],
    ids=str,
)
def test_killed_on_spark(tmp_path: Path, kinds: tuple[str, str], mode: str, step: str) -> None:
    """A SIGKILL of a topology with spouts of both kinds, in both modes; rows that Spark SQL reads are among them."""
    root = tmp_path / "root"
    filled(root)
    killed = ran("-m", MODULE, *kinds, root, "none", mode, failpoints=f"{step}=kill:2")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    again = ran("-m", MODULE, *kinds, root, "none", mode)
    assert again.returncode == 0, again.stderr
    check(kinds, root)


@pytest.mark.long
@pytest.mark.parametrize(
    "kinds",
    [("kafka", "opaque kafka"), ("opaque kafka", "files"), (FRAME, "kafka"), (FRAME, "opaque kafka")],
    ids=" + ".join,
)
def test_killed_with_a_broker(tmp_path: Path, kafka: KafkaBroker, kinds: tuple[str, str]) -> None:
    """With records of a real broker, too."""
    root = tmp_path / "root"
    log = filled(root)
    prefix = f"pair-{kinds[1]}-".replace(" ", "-")
    for name in WORDS:
        kafka.create_topic(prefix + name, 2)
        for partition in (0, 1):
            kafka.produce(prefix + name, [record.value for record in log.records(name, partition)], partition)
    given = (*kinds, root, f"{kafka.servers} {prefix}", "micro-batch")
    killed = ran("-m", MODULE, *given, failpoints="group.decide.after=kill:2")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    again = ran("-m", MODULE, *given)
    assert again.returncode == 0, again.stderr
    check(kinds, root)
