"""Mistakes in what users write are one sentence each, where they are written: before anything is connected or started."""

import datetime as dt

import pytest

from committers import Count, Tumbling, WindowCommitter
from committers.kafka import KafkaBolt
from spouts import MemoryTransactionalSpout
from spouts.kafka import KafkaSpoutConfig, TransactionalKafkaSpout
from state import DeltaRows, DeltaState, MemoryState
from txtopo import Config, Fields, TransactionalTopologyBuilder
from txtopo.cluster.settings import ClusterConfig
from txtopo.errors import ConfigError, FieldsError, TopologyError

SERVERS = ["h:abc", "a;b", "::1", "h:", ":2181", "h:99999", "h:0", "a b", "a:b:c", "", ","]


@pytest.mark.parametrize("servers", SERVERS)
def test_servers(servers):
    """Of a port that is a name, a client would make port 0; of a semicolon, part of a host."""
    for config, name in ((Config, "transactional.zookeeper.servers"), (ClusterConfig, "storm.zookeeper.servers")):
        with pytest.raises(ConfigError, match=r"it must be hosts, or host:port"):
            config({name: servers})
    for make in (
        lambda: TransactionalKafkaSpout(servers, "t", Fields("value: string")),
        lambda: KafkaSpoutConfig(servers, "t"),
        lambda: KafkaBolt(servers, "t"),
    ):
        with pytest.raises(ConfigError, match="servers must be host:port of a broker"):
            make()


@pytest.mark.parametrize("servers", ["h", "h:1", "h.x-y_z:65535,10.0.0.1", "[::1]:2181", "[fe80::1]", ["a", "b:2"]])
def test_right_servers(servers):
    config = Config({"transactional.zookeeper.servers": servers})
    assert config["transactional.zookeeper.servers"]
    TransactionalKafkaSpout(servers, "t", Fields("value: string"))


def test_ports_of_servers():
    """A server without a port gets ZooKeeper's, also one with an IPv6 address."""
    config = ClusterConfig({"storm.zookeeper.servers": "a,b:1,[::1],[::2]:3"})
    assert config.zookeeper_hosts == "a:2181,b:1,[::1]:2181,[::2]:3"
    TransactionalKafkaSpout("SASL_SSL://h:9093,PLAINTEXT://i:9092", "t", Fields("value: string"))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("root", "/"),
        ("root", "a"),
        ("root", "/a/"),
        ("root", "/a//b"),
        ("root", "/a/../b"),
        ("auth", "no-colon"),
        ("auth", ":password"),
    ],
)
def test_nodes_and_credentials(name, value):
    """The error quotes no credentials."""
    for config, prefix in ((Config, "transactional"), (ClusterConfig, "storm")):
        with pytest.raises(ConfigError) as error:
            config({f"{prefix}.zookeeper.{name}": value})
        assert "must be " in str(error.value)
        assert name == "root" or f"{value!r}" not in str(error.value)


@pytest.mark.parametrize("where", ["topology id", "component id", "state"])
def test_names_that_no_file_can_hold(where):
    """Half of a surrogate pair is no character."""
    half = "a\ud800"
    topology_id, component, state = (
        half if what == where else "a" for what in ("topology id", "component id", "state")
    )
    spout = MemoryTransactionalSpout([[1]], Fields("n: long"), 1)
    builder = TransactionalTopologyBuilder(topology_id, component, spout)
    builder.set_state(state, MemoryState(Fields("name"), Fields("n")))
    with pytest.raises(TopologyError, match=rf"{where} .* has half of a surrogate pair"):
        builder.build()


@pytest.mark.parametrize("where", ["topology id", "component id", "state"])
def test_names_with_line_breaks(where):
    """Each command prints names within lines of its own."""
    broken = "a\n"
    topology_id, component, state = (
        broken if what == where else "a" for what in ("topology id", "component id", "state")
    )
    builder = TransactionalTopologyBuilder(
        topology_id, component, MemoryTransactionalSpout([[1]], Fields("n: long"), 1)
    )
    builder.set_state(state, MemoryState(Fields("name"), Fields("n")))
    with pytest.raises(TopologyError, match=rf"{where} .* has a line break"):
        builder.build()


@pytest.mark.parametrize("text", ["s: struct<x: int, X: int>", "s: array<struct<a: struct<b: int, b: long>>>"])
def test_members_that_differ_in_case(text):
    with pytest.raises(FieldsError, match="twice, if only in other case"):
        Fields(text)


@pytest.mark.parametrize(
    "make",
    [
        lambda: DeltaState("x", key="k", value=Fields("n: long")),
        lambda: DeltaState("x", key=Fields("k: string"), value=["n"]),
        lambda: DeltaRows("x", "k"),
        lambda: WindowCommitter(
            "s", clock="c", time="at", window=Tumbling(dt.timedelta(1)), key="k", aggregates={"n": Count()}
        ),
    ],
)
def test_a_text_instead_of_fields(make):
    with pytest.raises(FieldsError, match=r"which is no Fields; write \w+=Fields\("):
        make()
