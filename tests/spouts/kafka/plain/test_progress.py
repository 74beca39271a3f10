"""PartitionProgress: Storm's cases of its OffsetManager and retry service, and what is beyond them."""

import datetime as dt

import pytest

from spouts.kafka.log import KafkaRecord, TopicPartition
from spouts.kafka.plain.progress import ACKED_RANGES_MAX, CommitMetadata, MessageId, PartitionProgress

P = TopicPartition("test", 0)


def record(offset):
    return KafkaRecord(None, b"", P.topic, P.partition, offset, dt.datetime.fromtimestamp(0, dt.UTC), [])


def read(progress, *offsets, now_ms=0):
    """Poll records, and emit what is to be emitted; return the ids."""
    progress.polled([record(offset) for offset in offsets])
    ids = []
    while (found := progress.next_record(now_ms)) is not None:
        ids.append(found[0])
        progress.emitted(*found)
    return ids


def progress_of(emitted=(), acked=(), start=0, **options):
    made = PartitionProgress(P, start, **options)
    if emitted:
        read(made, *emitted)
    for offset in acked:
        made.record_done(offset)
    return made


@pytest.mark.parametrize(
    ("emitted", "acked", "expected"),
    [
        ([], [], 0),
        ([0], [0], 1),
        ([0, 1], [1, 0], 2),
        ([0, 1, 2], [2, 0], 1),
        ([0, 2], [2, 0], 3),
        ([1], [0], 1),
        ([0, 1, 2, 5, 6], [0, 1, 2, 6], 3),
        ([0, 1, 2, 5, 6], [0, 1, 2, 6, 5], 7),
        ([5, 6], [6], 0),
        ([5, 6], [6, 5], 7),
    ],
)
def test_next_commit(emitted, acked, expected):
    """It is behind what is acked, in whatever order; offsets that do not exist are stepped over. (1-8)"""
    assert progress_of(emitted, acked).next_commit() == expected


def test_acked_ranges_travel():
    """What is acked above a gap goes with the commit's metadata, and the next owner knows it."""
    made = progress_of(range(10), [0, 1, 3, 4, 5, 9])
    metadata = CommitMetadata("t", 3, "thread", tuple(made.acked_ranges(2)), "id-1")
    assert metadata.acked == ((3, 5), (9, 9))
    parsed = CommitMetadata.parse(metadata.to_json())
    assert parsed == metadata
    heir = PartitionProgress(P, 2, acked=parsed.acked)
    assert [offset for offset in range(2, 10) if heir.is_acked(offset)] == [3, 4, 5, 9]
    assert [each.offset for each in read(heir, 2)] == [2]
    heir.record_done(2)
    assert heir.next_commit() == 6, "6 was not polled yet by the heir, and exists for all it knows; 9 waits"


def test_hole_below_restored_ranges():
    """Offsets below a restored range that were never polled are no hole until something above them shows that."""
    assert PartitionProgress(P, 0, acked=[(5, 6)]).next_commit() == 0


def test_metadata_has_a_bound():
    """However many ranges there are, the metadata stays far below what brokers take."""
    first = 10**6
    made = progress_of(range(first, first + 4_000), range(first, first + 4_000, 2), start=first)
    ranges = made.acked_ranges(first)
    assert len(ranges) == ACKED_RANGES_MAX
    assert len(CommitMetadata("t", 1, "thread", tuple(ranges), "i" * 22).to_json()) < 2_000


@pytest.mark.parametrize("text", [None, "", "x", "[]", "{}", "3", '{"topologyId": "t", "acked": 3}'])
def test_metadata_of_others(text):
    assert CommitMetadata.parse(text) is None


def test_metadata_of_the_previous_version():
    """It has no topic's id."""
    text = '{"topologyId":"t","taskId":1,"threadName":"x","acked":[[3,5]]}'
    assert CommitMetadata.parse(text) == CommitMetadata("t", 1, "x", ((3, 5),))


def test_a_restored_range_that_begins_below_the_committed_offset():
    """Only what is above counts: the rest is committed."""
    assert PartitionProgress(P, 5, acked=[(3, 6)]).acked_ranges(0) == [(5, 6)]
    assert PartitionProgress(P, 5, acked=[(0, 2)]).acked_ranges(0) == []


def test_the_latest_emitted_offset():
    """It is the highest, whatever is emitted again."""
    made = progress_of([0, 1, 2])
    made.retry(MessageId(P, 1), 0)
    made.position = 1
    assert [each.offset for each in read(made, 1)] == [1]
    assert made.latest_emitted == 2


def test_near_targets_are_read_up_to():
    """Less than a poll is read rather than sought, forward only; behind a retry, reading goes on at the head."""
    made = progress_of(range(10))
    made.retry(MessageId(P, 7), 0)
    made.position = 5
    assert [made.seek_target(0, near) for near in (1, 2)] == [7, None]
    made.position = 8
    assert made.seek_target(0, 5) == 7
    made.record_done(7)
    assert [made.seek_target(0, near) for near in (1, 2)] == [10, None]


def test_without_acks():
    """What was polled may be committed; what could not be is polled again."""
    made = PartitionProgress(P, 3, awaits_acks=False)
    made.polled([record(3), record(5)])
    assert made.next_commit() == 6
    assert made.forget_polled() == 3
    made.position = 3
    assert [each.offset for each in read(made, 3, 5)] == [3, 5]
    made.committed(6)
    assert (made.committed_offset, made.latest_emitted, made.forget_polled()) == (6, 5, None)
