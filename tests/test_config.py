"""Configuration: dotted and Python names are the same; wrong names and values are refused with what is right."""

from __future__ import annotations

import pickle

import pytest

from txtopo import Config
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
