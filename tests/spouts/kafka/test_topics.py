"""Which topics a spout reads."""

import logging
import re

import pytest

from spouts.kafka.log import TopicPartition
from spouts.kafka.topics import NamedTopicFilter, PatternTopicFilter, topic_filter
from tests.spouts.kafka.plain.rig import Rig, filled
from txtopo.errors import ConfigError, InputError

THERE = [
    TopicPartition(topic, partition)
    for topic, count in [("test-1", 1), ("test-11", 2), ("unmatched", 1)]
    for partition in range(count)
]
WANTED = [TopicPartition("test-1", 0), TopicPartition("test-11", 0), TopicPartition("test-11", 1)]


def test_named_filter(caplog):
    """Only topics with exactly these names; one that does not exist any more is left out, with one warning."""
    named = NamedTopicFilter("test-1", "test-11", "absent")
    with caplog.at_level(logging.WARNING):
        assert named.chosen(reversed(THERE)) == WANTED
        assert named.chosen(THERE) == WANTED
    (record,) = caplog.records
    assert "no topic 'absent'" in record.message


def test_pattern_filter():
    """Topics whose whole name matches."""
    assert PatternTopicFilter(r"test-\d+").chosen(THERE) == WANTED
    assert PatternTopicFilter(r"test").chosen(THERE) == []


def test_topics():
    """A name, several, a compiled expression or a filter say what to read."""
    assert set(topic_filter("a").names) == {"a"}
    assert set(topic_filter(["a", "b"]).names) == {"a", "b"}
    assert topic_filter(re.compile("a.")).names is None
    assert topic_filter("^test-[0-9]").chosen(THERE) == WANTED[:1]
    mine = NamedTopicFilter("a")
    assert topic_filter(mine) is mine


@pytest.mark.parametrize("topics", ["", [], [""], [3], ["a", "a"], ["a", 1], "^("])
def test_wrong_topics(topics):
    """Anything else is refused, with what to give in its place."""
    with pytest.raises(
        ConfigError,
        match=r"topics is .*(give a name, a list of different names, or a pattern|which is not a regular expression)",
    ):
        topic_filter(topics)


def test_a_pattern_never_takes_topics_of_kafka_itself():
    """Only a name does."""
    own = "__consumer_offsets"
    assert not topic_filter("^.*").takes(own)
    assert topic_filter("^.*").chosen([TopicPartition(own, 0)]) == []
    assert topic_filter(own).takes(own)


@pytest.mark.parametrize("subscribe", [False, True])
@pytest.mark.parametrize("topics", ["tset", ["test", "tset"]])
def test_missing_topic(topics, subscribe):
    """A topic that is named and does not exist ends the run, with the nearest name there is."""
    rig = Rig(filled(1), topics=topics, subscribe=subscribe, activate=False)
    with pytest.raises(InputError, match=r"Kafka has no topic 'tset'; did you mean 'test'\?.*kafka-topics.sh --create"):
        rig.spout.activate()


@pytest.mark.parametrize("subscribe", [False, True])
def test_missing_topic_is_found_late(subscribe):
    """If Kafka does not answer at the start, as soon as it does."""
    log = filled(1)
    log.is_down = True
    rig = Rig(log, topics="tset", subscribe=subscribe)
    rig.call()
    log.is_down = False
    rig.advance(2_500)
    with pytest.raises(InputError, match="Kafka has no topic 'tset'"):
        rig.call()


def test_topic_that_disappears(caplog):
    """Is waited for, with one warning; what it brings when it is back is emitted."""
    log = filled(1)
    rig = Rig(log)
    assert len(rig.call(3)) == 1
    log.delete_topic("test")
    for _ in range(3):
        rig.advance(2_500)
        rig.call()
    assert caplog.text.count("no topic 'test' any more") == 1
    log.create_topic("test")
    log.append("test", ["again"])
    rig.advance(2_500)
    assert len(rig.call(3)) == 1


@pytest.mark.parametrize("subscribe", [False, True])
def test_pattern_that_matches_nothing(caplog, subscribe):
    """Is waited for, with a warning that names the topics there are; a topic that comes later is read. (ST9)"""
    rig = Rig(filled(1), topics="^clicks-.*", subscribe=subscribe)
    rig.advance(2_500)
    rig.call()
    assert caplog.text.count("no topic of Kafka matches the pattern '^clicks-.*'; there are: 'test'") == 1
    rig.log.create_topic("clicks-a")
    rig.log.append("clicks-a", ["first"])
    rig.advance(2_500)
    assert [each.values[2] for each in rig.call(3)] == ["first"]
