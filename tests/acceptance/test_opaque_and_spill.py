"""Opaque spouts on Spark; and bolts that wait for their commit in files, not in the driver's memory."""

from __future__ import annotations

import pathlib

import pytest
from pyspark.sql import SparkSession

from spouts import OpaqueMemoryTransactionalSpout
from state import DeltaState, StateKind
from tests.acceptance.topologies import counting, counts_of, make_data, read_words, words_topology
from txtopo import Config, Fields, Topology, run

DATA = make_data(3, 50)


def opaque_topology(output: pathlib.Path, spout: OpaqueMemoryTransactionalSpout, probability: float = 0.0) -> Topology:
    words = DeltaState(output / "words", Fields("word: string"), Fields("n: long"), kind=StateKind.OPAQUE)
    return counting(spout, words, 2, probability=probability, topology_id="opaque")


@pytest.mark.long
@pytest.mark.parametrize("probability", [0.0, 0.2])
def test_opaque(spark: SparkSession, tmp_path: pathlib.Path, probability: float) -> None:
    """Promise 5: a failing transaction of an opaque spout is replayed with all later ones; totals are exact."""
    spout = OpaqueMemoryTransactionalSpout(DATA, Fields("word"), 5)
    report = run(opaque_topology(tmp_path, spout, probability), Config(max_spout_pending=8))
    assert read_words(tmp_path) == counts_of(DATA)
    assert (report.failures > 0) == (probability > 0)


def test_spilled(spark: SparkSession, tmp_path: pathlib.Path) -> None:
    """What committers received goes to staged files past a bound, and nothing of them stays behind."""
    report = run(words_topology(tmp_path, DATA, probability=0.1), Config(received_bytes_max=1))
    assert read_words(tmp_path) == counts_of(DATA)
    assert report.transactions > 1
    assert not list((tmp_path / "_txtopo").glob("staging/*"))
