"""Configuration: dotted and Python names are the same; wrong names and values are refused with what is right."""

from __future__ import annotations

import pickle

import pytest

from txtopo import Config
from txtopo.config import SETTINGS, TopologyKind, component_config
from txtopo.errors import ConfigError


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
    ("name", "value"),
    [
        ("topology.max.spout.pending", 0),
        ("topology.max.spout.pending", "many"),
        ("topology.message.timeout.secs", -1),
        ("topology.transaction.max.attempts.policy", "GIVE UP"),
        ("topology.debug", "perhaps"),
        ("topology.acker.executors", True),
    ],
)
def test_wrong_value(name: str, value: object) -> None:
    """A value that its setting does not take is refused by name."""
    with pytest.raises(ConfigError, match=name):
        Config({name: value})


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
        ("transactional.zookeeper.servers", 3, "host names, or host:port, separated by commas"),
    ],
)
def test_what_a_value_must_be_is_told_in_our_words(name: str, value: object, expected: str) -> None:
    """Nothing of what Python says of ``int('x')`` leaks."""
    with pytest.raises(ConfigError) as raised:
        Config({name: value})
    assert str(raised.value).split("; it must be ")[1].split(" (")[0] == expected


def test_own_and_spark_names() -> None:
    """Dotted names of your own pass; those of Spark go to the session."""
    config = Config({"my.app.threshold": 3, "spark.driver.memory": "3g"})
    assert config["my.app.threshold"] == 3
    assert config.spark == {"spark.driver.memory": "3g"}


def test_texts_from_a_command_line() -> None:
    """Values may be texts, as a command line gives them; and a configuration pickles."""
    config = Config().with_settings({"max_spout_pending": "12", "topology.message.timeout.secs": "2.5"})
    assert (config.max_spout_pending, config.message_timeout_secs) == (12, 2.5)
    assert dict(pickle.loads(pickle.dumps(config))) == dict(config)


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
        ("topology.workers", 2, TopologyKind.TRANSACTIONAL, "plain"),
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


@pytest.mark.parametrize("kind", TopologyKind)
def test_settings_of_both_kinds(kind: TopologyKind) -> None:
    """Settings that both kinds know, those of Spark and names of your own are taken by either."""
    given = {
        "topology.max.spout.pending": 3,
        "topology.message.timeout.secs": 5.0,
        "topology.acker.executors": 0,
        "topology.debug": True,
        "spark.driver.memory": "3g",
        "my.own": 7,
    }
    config = Config(given).of_kind(kind)
    assert {name: config[name] for name in given} == given


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


def test_what_a_component_sees() -> None:
    """A component may change some settings for itself; other settings that it names are ignored, its own names pass."""
    config = Config({"my.name": "topology's", "topology.workers": 2}).of_kind(TopologyKind.PLAIN)
    seen = component_config(
        config,
        {
            "my.name": "component's",
            "my.other": 7,
            "max_spout_pending": 3,
            "topology.tick.tuple.freq.secs": "5",
            "topology.workers": 9,
            "topology.ackers": 9,
            "topology.message.timeout.secs": 9,
        },
    )
    assert {name: value for name, value in seen.items() if config.get(name, "none") != value} == {
        "my.name": "component's",
        "my.other": 7,
        "topology.max.spout.pending": 3,
        "topology.tick.tuple.freq.secs": 5.0,
    }


def test_what_a_component_may_change() -> None:
    """As in Storm: debug, pending, parallelism, ticks and the wait strategy."""
    assert sorted(name for name, setting in SETTINGS.items() if setting.is_of_component) == [
        "topology.debug",
        "topology.max.spout.pending",
        "topology.max.task.parallelism",
        "topology.spout.wait.strategy",
        "topology.tick.tuple.freq.secs",
    ]
