"""Datasets: what is read and written has the names that others give it, too."""

import re

import pytest

from spouts import (
    DeltaTransactionalSpout,
    FilesTransactionalSpout,
    MemoryTransactionalSpout,
    SqlTransactionalSpout,
)
from spouts.kafka import TransactionalKafkaSpout
from state import DeltaReference, DeltaState, KafkaState, SqlRows, SqlState
from txtopo import Dataset, Fields

KEY, VALUE = Fields("k: long"), Fields("v: long")


@pytest.mark.parametrize(
    ("place", "namespace", "name"),
    [
        ("/data/out", "file", "/data/out"),
        ("file:///data/out", "file", "/data/out"),
        ("s3://bucket/a/b/", "s3://bucket", "a/b"),
        ("s3a://bucket/a", "s3://bucket", "a"),
        ("abfss://box@account.dfs.core.windows.net/a", "abfss://box@account.dfs.core.windows.net", "a"),
    ],
)
def test_places(place, namespace, name):
    """A path is a file's, and an address its bucket's."""
    assert Dataset.at(place) == Dataset(namespace, name)


@pytest.mark.parametrize(
    ("state", "namespace", "name"),
    [
        (DeltaState("/t", KEY, VALUE), "file", "/t"),
        (KafkaState("ssl://a:9093,b", "out"), "kafka://a:9093", "out"),
        (SqlState("sqlite:////d/shop.db", "totals", KEY, VALUE), "sqlite:///d/shop.db", "totals"),
        (SqlRows("postgresql://me:secret@host/shop", "log", VALUE), "postgres://host:5432", "shop.public.log"),
        (SqlRows("postgresql://host:6/shop", "log", VALUE, schema="s"), "postgres://host:6", "shop.s.log"),
        (SqlRows("postgresql://me@/shop?host=a:6&host=b:7", "log", VALUE), "postgres://a:6", "shop.public.log"),
    ],
)
def test_states(state, namespace, name):
    """A table is where its readers find it, without a password."""
    assert state.dataset == Dataset(namespace, name)


def test_references():
    """A reference table is read under the name under which it is written."""
    assert DeltaReference("/t", "k").dataset == DeltaState("/t", KEY, VALUE).dataset


@pytest.mark.parametrize(
    ("spout", "found"),
    [
        (TransactionalKafkaSpout("a", ["x", "y"]), {"x-": ("kafka://a:9092", "x"), "y-": ("kafka://a:9092", "y")}),
        (TransactionalKafkaSpout("a:1", re.compile("x.*")), {"x-1-": ("kafka://a:1", "x-1")}),
        (FilesTransactionalSpout("/in/2026-*/x.csv", VALUE), {"": ("file", "/in")}),
        (FilesTransactionalSpout(["/in/a", "/in/b"], VALUE), {"": ("file", "/in")}),
        (FilesTransactionalSpout("/in/a.csv", VALUE), {"": ("file", "/in/a.csv")}),
        (DeltaTransactionalSpout("/t", VALUE), {"": ("file", "/t")}),
        (SqlTransactionalSpout("postgresql://h/d", "t", KEY, id="k"), {"": ("postgres://h:5432", "d.public.t")}),
        (MemoryTransactionalSpout([], VALUE, 1), {}),
    ],
)
def test_spouts(spout, found):
    """A spout says what it reads; topics that a pattern has matched are known once something of them was read."""
    assert spout.datasets(["x-1-0"]) == {prefix: Dataset(*names) for prefix, names in found.items()}
