"""Settings and their defaults: Storm's cases, with the differences that txtopo decided on."""

import datetime as dt
import logging

import pytest

from spouts.kafka.plain.config import FirstPollOffsetStrategy, KafkaSpoutConfig, ProcessingGuarantee
from spouts.kafka.plain.retries import ExponentialBackoff
from spouts.kafka.plain.spout import KafkaSpout
from spouts.kafka.plain.translators import DefaultRecordTranslator, SimpleRecordTranslator
from txtopo.api.data.fields import Fields
from txtopo.errors import ConfigError, RuleError


def config(**settings):
    return KafkaSpoutConfig("localhost:1234", "topic", **settings)


def test_defaults():
    """The defaults are Storm's."""
    made = config()
    assert made.first_poll is FirstPollOffsetStrategy.UNCOMMITTED_EARLIEST
    assert made.group_id is None
    assert type(made.translator) is DefaultRecordTranslator
    assert dict(made.properties) == {}
    assert made.offset_reset == "earliest"
    assert made.offset_commit_period_ms == 30_000
    assert made.max_uncommitted_offsets == 10_000_000
    assert made.partition_refresh_period_ms == 2_000
    assert made.start_timestamp == 0
    assert made.retry_service == ExponentialBackoff(0, 2, 2**31 - 1, 10_000)
    assert made.processing_guarantee is ProcessingGuarantee.AT_LEAST_ONCE
    assert (made.tuple_tracking_enforced, made.subscribe, made.dead_letter) == (False, False, None)


def test_offset_reset(caplog):
    """At least once reads on at the earliest; the other guarantees leave it to the client; oddities get a warning."""
    reset = {"auto.offset.reset": "none"}
    with caplog.at_level(logging.WARNING):
        assert config(processing_guarantee="at_most_once").offset_reset is None
        assert config(processing_guarantee="no_guarantee").offset_reset is None
        assert config(properties=reset).offset_reset == "error"
        assert config(properties={"auto.offset.reset": "earliest"}).offset_reset == "earliest"
        assert config(processing_guarantee="at_most_once", properties=reset).offset_reset == "error"
    assert not caplog.records
    with caplog.at_level(logging.WARNING):
        assert config(properties={"auto.offset.reset": "latest"}).offset_reset == "latest"
        config(processing_guarantee="at_most_once", properties={"auto.offset.reset": "earliest"})
    assert [record.message.split(":")[0] for record in caplog.records] == [
        "auto.offset.reset is latest",
        "auto.offset.reset is earliest",
    ]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"properties": {"enable.auto.commit": False}}, "choose a processing_guarantee"),
        ({"properties": {"enable.auto.commit": True}}, "choose a processing_guarantee"),
        ({"properties": {"group.id": "g"}}, "give group_id"),
        ({"properties": {3: "x"}}, "a name in properties is 3; give a string"),
        ({"retry_service": None}, "retry_service is None; give a RetryPolicy"),
        ({"tuple_listener": None}, "tuple_listener is None; give a KafkaTupleListener"),
        ({"first_poll": "sometimes"}, "choose one of 'earliest'"),
        ({"processing_guarantee": "exactly_once"}, "no ProcessingGuarantee"),
        ({"batch_records_max": 0}, "batch_records_max is 0; give a whole number, at least 1"),
        ({"max_uncommitted_offsets": 1.5}, "max_uncommitted_offsets is 1.5; give a whole number"),
        ({"offset_commit_period_ms": 0}, "offset_commit_period_ms must be a number above 0"),
        ({"start_timestamp": -1}, "start_timestamp is -1; give a datetime"),
        ({"poll_timeout_ms": 200}, "poll_timeout_ms is a setting of Storm's spout, and not of this one: a poll never"),
        ({"emit_null_tuples": True}, "let the deserializer or translator return a list of None"),
        ({"metrics_bucket_secs": 60}, r"KafkaSpout.metrics\(\) asks for them"),
        ({"first_pol": "latest"}, "no setting 'first_pol'; did you mean 'first_poll'"),
        ({"dead_letter": 3}, "dead_letter must be"),
        ({"fields": "value"}, "fields is .value., which is no Fields"),
        ({"deserializer": "json"}, "a deserializer needs fields"),
        ({"fields": Fields("n"), "deserializer": "xml"}, "give 'json', a function"),
        ({"first_poll": dt.datetime(2026, 1, 1)}, "a datetime with a time zone"),  # noqa: DTZ001 - that is the mistake
        ({"first_poll": -1}, "or ms since 1970"),
        (
            {"fields": Fields("value"), "translator": SimpleRecordTranslator(list, Fields("value"))},
            "fields or a translator",
        ),
    ],
)
def test_mistakes(settings, message):
    with pytest.raises(RuleError, match=message):
        config(**settings)


def test_servers():
    """There must be servers; they may be a list."""
    assert KafkaSpoutConfig(["a:1", "b:2"], "topic").servers == "a:1,b:2"
    for servers, says in (("", "host:port"), (" ", "host:port"), (None, "servers is None; give a string or a list")):
        with pytest.raises(ConfigError, match=says):
            KafkaSpoutConfig(servers, "topic")


def test_shorter_form():
    """A spout takes the settings themselves, too."""
    spout = KafkaSpout("localhost:1234", "topic", Fields("value"), first_poll="latest")
    assert spout.config.first_poll is FirstPollOffsetStrategy.LATEST
    assert spout.config.translator.fields_for("default") == Fields("value")
    with pytest.raises(ConfigError, match="not both"):
        KafkaSpout(config(), "topic")


def test_times():
    """A time in place of a strategy means the timestamp strategy with it."""
    for given in (dt.datetime(2026, 1, 1, tzinfo=dt.UTC), 1_767_225_600_000):
        made = config(first_poll=given)
        assert (made.first_poll, made.start_timestamp) == (FirstPollOffsetStrategy.TIMESTAMP, 1_767_225_600_000)
