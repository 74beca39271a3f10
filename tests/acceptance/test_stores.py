"""Coordinator state in ZooKeeper: the same tables, resumed after a kill, refused to a second process."""

from __future__ import annotations

import os
import pathlib
import signal
import time

import pytest
from pyspark.sql import SparkSession

from tests.acceptance.test_kill import committed, start
from tests.acceptance.topologies import counts_of, make_data, read_total, read_words, words_topology
from txtopo import Config, run
from txtopo.errors import AlreadyRunning, DivergenceError
from txtopo.testing.zookeeper import ZooKeeperServer

DATA = make_data(3, 60)


def settings(zookeeper: ZooKeeperServer, root: str) -> dict[str, object]:
    return {
        "topology.state.store": "zookeeper",
        "transactional.zookeeper.servers": zookeeper.hosts,
        "transactional.zookeeper.root": root,
        "transactional.zookeeper.session.timeout.secs": 2,
    }


def test_same_tables(spark: SparkSession, zookeeper: ZooKeeperServer, tmp_path: pathlib.Path) -> None:
    """Tables are the same with ZooKeeper as with SQLite, and a second run goes on."""
    config = Config(settings(zookeeper, "/same"))
    run(words_topology(tmp_path, DATA), config, until=4)
    report = run(words_topology(tmp_path, DATA), config)
    assert read_words(tmp_path) == counts_of(DATA)
    assert read_total(tmp_path) == sum(counts_of(DATA).values())
    assert report.transactions == report.committed_txid - 4


@pytest.mark.long
@pytest.mark.slow
def test_killed_and_resumed(zookeeper: ZooKeeperServer, tmp_path: pathlib.Path) -> None:
    """After kill -9 the same command goes on by itself, once the dead leader's session has expired."""
    arguments = [f"{name}={value}" for name, value in settings(zookeeper, "/kill").items()]
    process = start(tmp_path, *arguments)
    deadline = time.monotonic() + 120
    while committed(tmp_path) < 20:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    with pytest.raises(AlreadyRunning, match=str(process.pid)):
        run(words_topology(tmp_path, make_data(3, 900)), Config(settings(zookeeper, "/kill")))
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert start(tmp_path, *arguments).wait(180) == 0
    assert read_words(tmp_path) == counts_of(make_data(3, 900))
    assert read_total(tmp_path) == sum(counts_of(make_data(3, 900)).values())


def test_another_store_is_refused(spark: SparkSession, zookeeper: ZooKeeperServer, tmp_path: pathlib.Path) -> None:
    """Promise 12: tables of a topology whose coordinator state is elsewhere are refused; nothing is doubled."""
    report = run(words_topology(tmp_path, DATA))
    with pytest.raises(DivergenceError, match=str(report.committed_txid)):
        run(words_topology(tmp_path, DATA), Config(settings(zookeeper, "/wiped")))
    assert read_words(tmp_path) == counts_of(DATA)
