"""Opaque spouts on Spark; and bolts that wait for their commit in files, not in the driver's memory."""

import pathlib

import pytest
from pyspark.sql import SparkSession

from spouts import MemoryTransactionalSpout, OpaqueMemoryTransactionalSpout
from state import DeltaState, StateKind, read_table
from tests.acceptance.topologies import counting, counts_of, make_data, read_words, words_topology
from tests.object_server import ObjectStore as ObjectServer
from txtopo import Config, Fields, Topology, run
from txtopo.files.objects import ObjectFolder

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


@pytest.mark.slow
def test_spilled_to_a_bucket(spark: SparkSession, bucket_server: ObjectServer) -> None:
    """Executors and driver find what is staged in the bucket, with the options that the states were given."""
    options = bucket_server.options
    words = DeltaState("s3://bucket/o/words", Fields("word: string"), Fields("n: long"), storage_options=options)
    bucket_server.asked()
    run(counting(MemoryTransactionalSpout(DATA, Fields("word"), 5), words, 2), Config(received_bytes_max=1))
    found = read_table("s3://bucket/o/words", storage_options=options)
    assert dict(zip(found["word"].to_pylist(), found["n"].to_pylist(), strict=True)) == counts_of(DATA)
    staged = {each.split()[0] for each in bucket_server.asked() if "/staging/" in each}
    assert staged == {"PUT", "GET", "LIST"}
    assert not list(ObjectFolder("s3://bucket/o/_txtopo/staging", tuple(options.items())).walk())
