"""Where reading begins: six strategies and four kinds of commits. (K10)"""

import pytest

from spouts.kafka.log import StoredOffset
from spouts.kafka.plain.config import FirstPollOffsetStrategy
from spouts.kafka.plain.progress import CommitMetadata
from tests.spouts.kafka.plain.rig import GROUP, P1, TOPIC, Rig
from txtopo.testing.memory_log import MemoryLog

COMMITS = {
    "none": None,
    "own": StoredOffset(4, CommitMetadata("topology").to_json()),
    "foreign": StoredOffset(4, CommitMetadata("another").to_json()),
    "unparsable": StoredOffset(4, "no JSON"),
}
BEGIN, END, AT_TIME, COMMITTED = 0, 10, 7, 4
EXPECTED = {
    "EARLIEST": (BEGIN, COMMITTED, BEGIN, BEGIN),
    "LATEST": (END, COMMITTED, END, END),
    "TIMESTAMP": (AT_TIME, COMMITTED, AT_TIME, AT_TIME),
    "UNCOMMITTED_EARLIEST": (BEGIN, COMMITTED, COMMITTED, COMMITTED),
    "UNCOMMITTED_LATEST": (END, COMMITTED, COMMITTED, COMMITTED),
    "UNCOMMITTED_TIMESTAMP": (AT_TIME, COMMITTED, COMMITTED, COMMITTED),
}


@pytest.mark.parametrize("commit", COMMITS)
@pytest.mark.parametrize("strategy", FirstPollOffsetStrategy)
def test_beginning(strategy, commit):
    """An own commit counts for every strategy; one of others only with UNCOMMITTED; the rest is in the table above."""
    log = MemoryLog()
    log.create_topic(TOPIC)
    for number in range(10):
        log.append(TOPIC, [str(number)], timestamp_ms=1_000 + number)
    if COMMITS[commit] is not None:
        log.store(GROUP, {P1: COMMITS[commit]})
    rig = Rig(log, first_poll=strategy, start_timestamp=1_007)
    expected = EXPECTED[strategy.name][list(COMMITS).index(commit)]
    assert log.calls[-1].given == {P1: expected}
    log.append(TOPIC, ["new"])
    assert rig.call()[0].offset == expected


@pytest.mark.parametrize("committed", [5, 10])
def test_committed_offset_at_the_ends_of_the_log(committed):
    """A commit at the very beginning of the log counts, as one at its very end does, after which all is read."""
    log = MemoryLog()
    log.create_topic(TOPIC)
    log.append(TOPIC, map(str, range(10)))
    log.delete_records(TOPIC, {0: 5})
    log.store(GROUP, {P1: StoredOffset(committed, CommitMetadata("topology").to_json())})
    rig = Rig(log)
    log.append(TOPIC, ["new"])
    assert rig.call()[0].offset == committed
    assert not rig.collector.errors


@pytest.mark.parametrize("committed", [3, 4, 11, 99])
def test_committed_offset_outside_the_log(committed):
    """A commit below the log's beginning, or above its end, is reported; reading begins at the beginning."""
    log = MemoryLog()
    log.create_topic(TOPIC)
    log.append(TOPIC, map(str, range(10)))
    log.delete_records(TOPIC, {0: 5})
    log.store(GROUP, {P1: StoredOffset(committed, CommitMetadata("topology").to_json())})
    rig = Rig(log)
    assert rig.call()[0].offset == 5
    (error,) = rig.collector.errors
    assert f"has committed {committed}, but the log has [5, 10)" in str(error)
