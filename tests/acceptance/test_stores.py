"""Coordinator state in ZooKeeper or in a bucket: the same tables, resumed after a kill, refused to a second process."""

import pathlib

import pytest
from pyspark.sql import SparkSession

from tests.acceptance.topologies import counts_of, make_data, read_total, read_words, words_topology
from txtopo import Config, run
from txtopo.errors import DivergenceError
from txtopo.servers.zookeeper import ZooKeeperServer

DATA = make_data(3, 60)


def settings(zookeeper: ZooKeeperServer, root: str) -> dict[str, object]:
    return {
        "topology.state.store": "zookeeper",
        "transactional.zookeeper.servers": zookeeper.hosts,
        "transactional.zookeeper.root": root,
        "transactional.zookeeper.session.timeout.secs": 10,
    }


@pytest.fixture(params=["zookeeper", "bucket"])
def config(request: pytest.FixtureRequest) -> Config:
    """The settings of a topology that keeps its coordinator state in a store of that kind."""
    if request.param == "zookeeper":
        return Config(settings(request.getfixturevalue("zookeeper"), "/same"))
    request.getfixturevalue("bucket_server")
    return Config({"topology.state.store": "s3://bucket/same"})


def test_same_tables(spark: SparkSession, config: Config, tmp_path: pathlib.Path) -> None:
    """Tables are the same with other stores as with SQLite; a second run goes on, and a third finds nothing to do."""
    run(words_topology(tmp_path, DATA), config, until=4)
    report = run(words_topology(tmp_path, DATA), config)
    assert read_words(tmp_path) == counts_of(DATA)
    assert read_total(tmp_path) == sum(counts_of(DATA).values())
    assert report.transactions == report.committed_txid - 4
    assert run(words_topology(tmp_path, DATA), config).transactions == 0


def test_another_store_is_refused(spark: SparkSession, zookeeper: ZooKeeperServer, tmp_path: pathlib.Path) -> None:
    """Promise 12: tables of a topology whose coordinator state is elsewhere are refused; nothing is doubled."""
    report = run(words_topology(tmp_path, DATA))
    with pytest.raises(DivergenceError, match=str(report.committed_txid)):
        run(words_topology(tmp_path, DATA), Config(settings(zookeeper, "/wiped")))
    assert read_words(tmp_path) == counts_of(DATA)
