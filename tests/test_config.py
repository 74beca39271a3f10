"""Configuration: dotted and Python names are the same; wrong names and values are refused with what is right."""

import contextlib
import math
import pickle

import numpy as np
import pytest

from txtopo import Config
from txtopo.cluster.settings import CLUSTER_SETTINGS, ClusterConfig
from txtopo.config import SETTINGS, TopologyKind
from txtopo.errors import ConfigError

ODD = [-1, 10**400, 1.5, math.nan, -math.inf, True, None, b"x", object(), [], [1], {}, {1: 2}, ("a", 1), int]
ODD += [np.arange(2), "", " ", "nan", "-inf", "1e999", "9" * 5000, "0x10", "\ud800", "\0", "none", "a=1,b", "[::1"]


def test_both_spellings() -> None:
    """A keyword and a dotted name set the same thing, and every spelling reads it."""
    by_keyword, by_name = Config(max_spout_pending=8), Config({"topology.max.spout.pending": 8})
    for config in (by_keyword, by_name):
        assert config.max_spout_pending == 8
        assert config["topology.max.spout.pending"] == 8
        assert config["max_spout_pending"] == 8
    assert dict(by_keyword) == dict(by_name)


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("max_spout_pendin", "max_spout_pending"),
        ("topology.max.spout.pnding", "topology.max.spout.pending"),
        ("max.spout.pending", "max_spout_pending"),
        ("topolgy.max.spout.pending", "topology.max.spout.pending"),
        ("topology.message.timeout", "topology.message.timeout.secs"),
    ],
)
def test_unknown_name(name: str, nearest: str) -> None:
    """Promise 17: an unknown name is refused with the nearest right one."""
    with pytest.raises(ConfigError) as raised:
        Config({name: 3})
    assert nearest in str(raised.value).split("did you mean")[1]


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("max_spout_pending", "x", "an integer of at least 1"),
        ("max_spout_pending", [], "an integer of at least 1"),
        ("transaction_max_attempts", "x", "an integer of at least 1, or none"),
        ("transaction_max_attempts", [], "an integer of at least 1, or none"),
        ("message_timeout_secs", "soon", "a number of seconds above 0"),
        ("message_timeout_secs", "inf", "a number of seconds above 0"),
        ("message_timeout_secs", None, "a number of seconds above 0"),
        ("debug", "perhaps", "true or false"),
        ("layout", "wide", "one of auto, together, spread"),
        (
            "transactional.zookeeper.servers",
            3,
            "hosts, or host:port, separated by commas, with an IPv6 address in brackets: [::1]:2181",
        ),
        ("topology.max.spout.pending", 0, "an integer of at least 1"),
        ("topology.transaction.max.attempts.policy", "GIVE UP", "one of WAIT, SKIP"),
        ("topology.acker.executors", True, "an integer of at least 0, or none"),
        (
            "topology.state.dir",
            "a\0b",
            "a path, or an address such as s3://bucket/folder, or none",
        ),
        ("topology.state.start.empty", 1, "NAME=TXID pairs, separated by commas, or none"),
        ("topology.state.dir", "", "a path, or an address such as s3://bucket/folder, or none"),
        ("transactional.zookeeper.auth", "", "user:password, or none"),
        ("topology.spout.wait.strategy", "fast", "a SpoutWaitStrategy, or none"),
        ("transactional.zookeeper.port", 65_536, "a port, from 1 to 65535"),
    ],
)
def test_what_a_value_must_be_is_told_in_our_words(name: str, value: object, expected: str) -> None:
    """Nothing of what Python says of ``int('x')`` leaks; the setting is named."""
    with pytest.raises(ConfigError) as raised:
        Config({name: value})
    assert name.replace("_", ".") in str(raised.value)
    assert str(raised.value).split("; it must be ")[1].split(" (")[0] == expected


@pytest.mark.parametrize("value", ODD, ids=lambda value: f"{value!r:.20}")
def test_any_value_of_any_setting_is_taken_or_refused(value: object) -> None:
    """Whatever a program passes, it is no other error than ours; what is taken can be read."""
    for name in SETTINGS:
        with contextlib.suppress(ConfigError):
            config = Config({name: value})
            assert isinstance(config.workers, int | None)
    for name in CLUSTER_SETTINGS:
        with contextlib.suppress(ConfigError):
            ClusterConfig({name: value})


def test_the_default_as_a_text() -> None:
    """It can be given on the command line as it is shown: none is no folder, table or password."""
    for setting in (*SETTINGS.values(), *CLUSTER_SETTINGS.values()):
        assert setting.converted(setting.default_text) == setting.default, setting.name


def test_own_and_spark_names() -> None:
    """Dotted names of your own pass; those of Spark go to the session."""
    config = Config({"my.app.threshold": 3, "spark.driver.memory": "3g"})
    assert config["my.app.threshold"] == 3
    assert config.spark == {"spark.driver.memory": "3g"}


def test_defaults_by_kind() -> None:
    """Some defaults depend on the kind of topology; what is given does not, and a copy keeps its kind."""
    given, nothing = Config(max_spout_pending=8), Config()
    assert nothing.max_spout_pending == 768
    found = {
        kind: (config.max_spout_pending, config.acker_executors, config.message_timeout_secs)
        for kind in TopologyKind
        for config in [nothing.of_kind(kind)]
    }
    assert found == {TopologyKind.TRANSACTIONAL: (768, 1, 30.0), TopologyKind.PLAIN: (500, None, 30.0)}
    assert {given.of_kind(kind).max_spout_pending for kind in TopologyKind} == {8}
    plain = nothing.of_kind(TopologyKind.PLAIN)
    for copy in (pickle.loads(pickle.dumps(plain)), plain.with_settings({"topology.workers": 3})):
        assert (copy.max_spout_pending, copy.acker_executors) == (500, None)


@pytest.mark.parametrize(
    ("name", "value", "kind", "other"),
    [
        ("topology.tick.tuple.freq.secs", 1, TopologyKind.TRANSACTIONAL, "plain"),
        ("topology.enable.message.timeouts", False, TopologyKind.TRANSACTIONAL, "plain"),
        ("topology.layout", "auto", TopologyKind.PLAIN, "transactional"),
        ("topology.state.dir", "/somewhere", TopologyKind.PLAIN, "transactional"),
        ("topology.transaction.max.attempts", 3, TopologyKind.PLAIN, "transactional"),
    ],
)
def test_settings_of_the_other_kind(name: str, value: object, kind: TopologyKind, other: str) -> None:
    """A setting that the kind of topology can't use is refused by name, with what it is for, even as its default."""
    config = Config({name: value})
    with pytest.raises(ConfigError) as raised:
        config.of_kind(kind)
    for words in (f"{name} is for {other} topologies", SETTINGS[name].purpose, "leave the setting out"):
        assert words in str(raised.value)
    assert config.of_kind(kind.other)[name] == Config({name: value})[name]


def test_settings_of_workers() -> None:
    """A transactional topology has workers in real-time mode only; a setting of theirs would do nothing otherwise."""
    for name in ("topology.workers", "topology.worker.max.restarts", "topology.worker.watermark.bytes"):
        with pytest.raises(ConfigError, match=f"{name} is for workers .*real-time"):
            Config({name: 3}).of_kind(TopologyKind.TRANSACTIONAL)
        for kind, mode in ((TopologyKind.TRANSACTIONAL, "real-time"), (TopologyKind.PLAIN, None)):
            settings = {name: 3} if mode is None else {name: 3, "topology.processing.mode": mode}
            assert Config(settings).of_kind(kind)[name] == 3


def test_two_names_of_the_ackers() -> None:
    """Storm has had two names for the number of ackers: both set it, and both read it."""
    for config in (
        Config({"topology.ackers": 4}),
        Config({"topology.acker.executors": 4}),
        Config(ackers=4),
        Config(acker_executors=4),
    ):
        assert dict(config.given) == {"topology.acker.executors": 4}
        assert config["topology.ackers"] == config["topology.acker.executors"] == config["ackers"] == 4
        assert config.ackers == config.acker_executors == 4
    with pytest.raises(ConfigError, match=r"topology\.acker\.executors is -1"):
        Config({"topology.ackers": -1})


def test_the_state_is_kept_in_a_folder() -> None:
    """A path or an address; an address of nothing is refused."""
    for folder in ("s3://", "://bucket"):
        with pytest.raises(ConfigError, match=r"topology\.state\.dir is '.*it must be a path, or an address"):
            Config({"topology.state.dir": folder})
    assert Config(state_dir="s3://bucket/state").state_dir == "s3://bucket/state"
    assert Config(state_dir="a:/b").state_dir == "a:/b"
