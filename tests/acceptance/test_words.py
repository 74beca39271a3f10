"""Whole topologies on Spark and Delta: exact at any parallelism, window, layout, and failure."""

import pathlib

import pytest
from pyspark.sql import SparkSession

from tests.acceptance.topologies import counts_of, make_data, read_total, read_words, words_topology
from txtopo import Config, run

DATA = make_data(3, 60)


@pytest.mark.parametrize(
    ("parallelism", "window", "layout"),
    [(1, 1, "auto"), (1, 64, "auto"), (7, 64, "auto"), (7, 1, "auto"), (3, 8, "spread"), (3, 8, "together")],
)
def test_exact(spark: SparkSession, tmp_path: pathlib.Path, parallelism: int, window: int, layout: str) -> None:
    """Tables are the same at parallelism 1 and 7, with a window of 1 and of 64, in either layout."""
    topology = words_topology(tmp_path, DATA, parallelism=parallelism, take=40 if window == 1 else 4)
    report = run(topology, Config(max_spout_pending=window, layout=layout))
    assert read_words(tmp_path) == counts_of(DATA)
    assert read_total(tmp_path) == sum(counts_of(DATA).values())
    assert report.tuples == sum(counts_of(DATA).values())
    assert report.failures == 0
    assert report.attempts == report.transactions


def test_failures_change_nothing(spark: SparkSession, tmp_path: pathlib.Path) -> None:
    """Promise 4: FailedException anywhere, often, changes no total, and the report counts the replays."""
    report = run(words_topology(tmp_path, DATA, probability=0.3), Config(max_spout_pending=16))
    assert read_words(tmp_path) == counts_of(DATA)
    assert read_total(tmp_path) == sum(counts_of(DATA).values())
    assert report.failures > 0
    assert report.attempts > report.transactions
