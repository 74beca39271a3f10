"""OffsetManager: Storm's cases, and what is beyond them."""

from __future__ import annotations

import pytest

from spouts.kafka.log import TopicPartition
from spouts.kafka.plain.client import StoredOffset
from spouts.kafka.plain.offsets import ACKED_RANGES_MAX, CommitMetadata, MessageId, OffsetManager

P = TopicPartition("test", 0)


def manager(emitted=(), acked=(), start=0):
    made = OffsetManager(P, start)
    for offset in emitted:
        made.add_emitted(offset)
    for offset in acked:
        made.add_acked(offset)
    return made


def next_offset(made):
    found = made.find_next_commit_offset("m")
    return None if found is None else found.offset


def test_gap_in_the_middle():
    """Offsets that do not exist are stepped over; one that is not acked is not. (1)"""
    made = manager([0, 1, 2, 5, 6], [0, 1, 2, 6])
    assert next_offset(made) == 3
    made.add_acked(5)
    assert made.find_next_commit_offset("meta") == StoredOffset(7, "meta")


def test_gap_before_all_acked():
    """Nothing is committed while the first offset is not acked; then the hole before it is stepped over. (2)"""
    made = manager([5, 6], [6])
    assert next_offset(made) is None
    made.add_acked(5)
    assert next_offset(made) == 7


@pytest.mark.parametrize(
    ("emitted", "acked", "expected"),
    [
        ([], [], None),  # 3
        ([0], [0], 1),  # 4
        ([0, 1], [1, 0], 2),  # 5
        ([0, 1, 2], [2, 0], 1),  # 6
        ([0, 2], [2, 0], 3),  # 7
        ([1], [0], 1),  # 8
    ],
)
def test_acks_in_any_order(emitted, acked, expected):
    """The offset is the one behind what is acked without a gap, in whatever order acks come. (3-8)"""
    assert next_offset(manager(emitted, acked)) == expected


def test_offset_below_the_committed_one():
    """What is below the start of a manager never comes into one: that would be our own mistake. (9)"""
    made = manager(start=10)
    assert next_offset(made) is None
    with pytest.raises(AssertionError):
        made.add_acked(0)


def test_commit_forgets():
    """A commit forgets what is below it, and says how many acked offsets that were. (10, 12)"""
    made = manager([0, 1, 2], [0, 1, 2])
    assert not made.has_committed
    assert made.commit(2) == 2
    assert made.has_committed
    assert [made.contains(offset) for offset in range(3)] == [False, False, True]
    assert made.num_uncommitted == 1
    assert next_offset(made) == 3
    assert all(made.is_acked(offset) for offset in range(3))
    assert not made.is_acked(3)


def test_nth_uncommitted():
    """The n-th smallest offset that was emitted; an error if there are fewer. (11)"""
    made = manager([1, 2, 30, 5])
    assert made.nth_uncommitted(3) == 5
    assert made.nth_uncommitted(4) == 30
    with pytest.raises(ValueError, match="4 uncommitted offsets, so no 5th"):
        made.nth_uncommitted(5)


def test_tail():
    """The consumer's position counts only if everything is acked; then the group reaches a log end without records."""
    made = manager([0, 1], [0])
    assert made.find_next_commit_offset(tail=9) == StoredOffset(1)
    made.add_acked(1)
    assert made.find_next_commit_offset(tail=9) == StoredOffset(9)
    assert made.find_next_commit_offset() == StoredOffset(2)


def test_acked_ranges_travel():
    """What is acked above a gap goes with the commit's metadata, and the next owner knows it."""
    made = manager(range(10), [0, 1, 3, 4, 5, 9])
    metadata = CommitMetadata("t", 3, "thread", tuple(made.acked_ranges(2)))
    assert metadata.acked == ((3, 5), (9, 9))
    read = CommitMetadata.parse(metadata.to_json())
    assert read == metadata
    heir = OffsetManager(P, 2)
    heir.restore(read.acked)
    assert [offset for offset in range(2, 10) if heir.is_acked(offset)] == [3, 4, 5, 9]
    heir.add_emitted(2)
    heir.add_acked(2)
    assert next_offset(heir) == 6, "6 was not emitted yet by the heir, and exists for all it knows; 9 waits"


def test_hole_below_restored_ranges():
    """Offsets below a restored range that were never emitted are no hole until something above them shows that."""
    heir = OffsetManager(P, 0)
    heir.restore([(5, 6)])
    assert next_offset(heir) is None


def test_metadata_has_a_bound():
    """However many ranges there are, the metadata stays far below what brokers take."""
    made = manager(range(10**6, 10**6 + 4_000), range(10**6, 10**6 + 4_000, 2), start=10**6)
    ranges = made.acked_ranges(10**6)
    assert len(ranges) == ACKED_RANGES_MAX
    assert len(CommitMetadata("t", 1, "thread", tuple(ranges)).to_json()) < 2_000


@pytest.mark.parametrize("text", [None, "", "x", "[]", "{}", "3", '{"topologyId": "t", "acked": 3}'])
def test_metadata_of_others(text):
    """Any other text is none of ours."""
    assert CommitMetadata.parse(text) is None


def test_message_ids():
    """Ids are equal if partition, offset and epoch are; failures do not matter."""
    assert MessageId(P, 1, 1, fails=3) == MessageId(P, 1, 1)
    assert hash(MessageId(P, 1, 1, fails=3)) == hash(MessageId(P, 1, 1))
    assert MessageId(P, 1, 1) != MessageId(P, 1, 2)
    assert MessageId(P, 1) != MessageId(TopicPartition("test", 1), 1)
    assert str(MessageId(P, 1)) == "topic 'test', partition 0, offset 1"


def test_a_restored_range_that_begins_below_the_committed_offset():
    """Only what is above counts: the rest is committed."""
    heir = manager(start=5)
    heir.restore([(3, 6)])
    assert heir.acked_ranges(0) == [(5, 6)]
    heir.restore([(0, 2)])
    assert heir.acked_ranges(0) == [(5, 6)]


def test_the_latest_emitted_offset():
    """It is the highest, whatever is emitted again."""
    made = manager([0, 1, 2])
    made.add_emitted(1)
    assert made.latest_emitted == 2
