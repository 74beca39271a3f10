"""When failed messages come again: Storm's cases, and delays that saturate."""

from __future__ import annotations

import pickle

import pytest

from spouts.kafka.log import TopicPartition
from spouts.kafka.plain.offsets import MessageId
from spouts.kafka.plain.retries import ExponentialBackoff, RetrySchedule
from txtopo.errors import ConfigError

A, B = TopicPartition("a", 0), TopicPartition("b", 0)
AT_ONCE = ExponentialBackoff(0, 0, delay_max_ms=0)
AFTER_A_SECOND = ExponentialBackoff(1_000, 0, retries_max=100, delay_max_ms=1_000)


def failed(partition, offset, fails=1):
    return MessageId(partition, offset, fails=fails)


def test_schedule():
    """A failed message is scheduled and, without a delay, ready; its id is the same object."""
    schedule, message = RetrySchedule(AT_ONCE), failed(A, 0)
    assert schedule.schedule(message, 0)
    assert schedule.is_scheduled(A, 0)
    assert schedule.is_ready(A, 0, 0)
    assert schedule.message_id(A, 0) is message
    assert schedule.ready_count(0) == 1
    assert schedule.earliest_retriable_offsets(0) == {A: 0}


def test_rescheduled():
    """A second failure replaces the entry: the delay begins anew."""
    schedule, message = RetrySchedule(AFTER_A_SECOND), failed(A, 0)
    schedule.schedule(message, 0)
    schedule.schedule(message, 500)
    assert not schedule.is_ready(A, 0, 1_000)
    assert schedule.earliest_retriable_offsets(1_000) == {}
    assert schedule.is_ready(A, 0, 1_500)
    assert schedule.earliest_retriable_offsets(1_500) == {A: 0}


def test_rescheduled_and_removed():
    """A removed message is gone, with both of its entries."""
    schedule, message = RetrySchedule(AFTER_A_SECOND), failed(A, 0)
    schedule.schedule(message, 0)
    schedule.schedule(message, 500)
    assert schedule.remove(A, 0)
    assert not schedule.remove(A, 0)
    assert not schedule.is_scheduled(A, 0)
    assert not schedule.is_ready(A, 0, 9_000)
    assert schedule.earliest_retriable_offsets(9_000) == {}


def test_removed():
    """Nothing is left of a removed message."""
    schedule = RetrySchedule(AT_ONCE)
    schedule.schedule(failed(A, 0), 0)
    assert schedule.earliest_retriable_offsets(0) == {A: 0}
    schedule.remove(A, 0)
    assert (len(schedule), schedule.ready_count(0), schedule.message_id(A, 0)) == (0, 0, None)
    assert schedule.earliest_retriable_offsets(0) == {}


def test_two_topics():
    """Each partition has its own times; those that are not retained are gone."""
    schedule = RetrySchedule(AFTER_A_SECOND)
    schedule.schedule(failed(A, 0), 0)
    schedule.schedule(failed(B, 0), 500)
    assert schedule.earliest_retriable_offsets(999) == {}
    assert schedule.earliest_retriable_offsets(1_000) == {A: 0}
    assert schedule.earliest_retriable_offsets(1_500) == {A: 0, B: 0}
    schedule.retain_all([B])
    assert schedule.earliest_retriable_offsets(1_500) == {B: 0}


def test_two_offsets():
    """The earliest offset of a partition counts; without it, the next one."""
    schedule = RetrySchedule(AT_ONCE)
    for offset in (7, 5):
        schedule.schedule(failed(A, offset), 0)
    assert schedule.earliest_retriable_offsets(0) == {A: 5}
    schedule.remove(A, 5)
    assert schedule.earliest_retriable_offsets(0) == {A: 7}


def test_back_after_retention():
    """An offset that is scheduled anew after its partition was away does not take over the old entry's time."""
    schedule = RetrySchedule(AFTER_A_SECOND)
    schedule.schedule(failed(A, 0), 0)
    schedule.retain_all([])
    schedule.schedule(failed(A, 0), 600)
    assert schedule.earliest_retriable_offsets(1_000) == {}
    assert schedule.earliest_retriable_offsets(1_600) == {A: 0}


def test_retries_max():
    """After as many retries as allowed a message is given up."""
    schedule = RetrySchedule(ExponentialBackoff(0, 0, retries_max=3, delay_max_ms=0))
    assert schedule.schedule(failed(A, 0, fails=3), 0)
    assert not schedule.schedule(failed(A, 1, fails=4), 0)


def test_delay_max():
    """The longest delay bounds the first one too."""
    schedule = RetrySchedule(ExponentialBackoff(500_000, 0, retries_max=1, delay_max_ms=2_000))
    schedule.schedule(failed(A, 0), 0)
    assert not schedule.is_ready(A, 0, 1_999)
    assert schedule.is_ready(A, 0, 2_000)


@pytest.mark.parametrize(("fails", "secs"), [(2, 8), (3, 16), (4, 32)])
def test_exponential(fails, secs):
    """The delay doubles with each failure, to the millisecond."""
    schedule = RetrySchedule(ExponentialBackoff(0, 4_000, delay_max_ms=10**9))
    schedule.schedule(failed(A, 0, fails=fails), 0)
    assert not schedule.is_ready(A, 0, secs * 1_000 - 1)
    assert schedule.is_ready(A, 0, secs * 1_000)


def test_delays_saturate():
    """However often a message fails, it never waits less than before, and never longer than allowed. (W5)"""
    policy = ExponentialBackoff()
    delays = [policy.delay_ms(fails) for fails in [*range(1, 200), 2**31 - 1]]
    assert delays == sorted(delays)
    assert delays[:4] == [0, 4, 8, 16]
    assert set(delays[13:]) == {10_000}
    assert policy.delay_ms(2**31) is None


def test_policies_share_nothing():
    """A policy is a value; spouts with the same one have schedules of their own. (W10)"""
    policy = ExponentialBackoff()
    assert pickle.loads(pickle.dumps(policy)) == policy
    one, other = RetrySchedule(policy), RetrySchedule(policy)
    one.schedule(failed(A, 0), 0)
    assert not other.is_scheduled(A, 0)


def test_mistakes():
    """Negative delays are refused."""
    with pytest.raises(ConfigError, match="0 or more"):
        ExponentialBackoff(-1)
