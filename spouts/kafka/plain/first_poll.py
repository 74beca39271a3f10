"""Where a task begins to read a partition, when it gets it."""

from __future__ import annotations

from enum import Enum

from spouts.kafka.plain.client import StoredOffset
from spouts.kafka.plain.offsets import CommitMetadata


class FirstPollOffsetStrategy(Enum):
    """Where reading begins if this topology has not committed an offset yet.

    A topology that has committed goes on there, whatever the strategy: after a restart, a rebalance, or being
    deactivated. A topology's id says whether it is the same one. Without ``UNCOMMITTED`` the offsets that others have
    committed to the group count for nothing; with it, reading goes on at them.

    A timestamp is the setting ``start_timestamp``: reading begins at the first record of that time or later, or at the
    end. (Storm takes the timestamp strategies for plain spouts, and ignores them.)
    """

    EARLIEST = "earliest"
    LATEST = "latest"
    TIMESTAMP = "timestamp"
    UNCOMMITTED_EARLIEST = "uncommitted_earliest"
    UNCOMMITTED_LATEST = "uncommitted_latest"
    UNCOMMITTED_TIMESTAMP = "uncommitted_timestamp"


class Commit(Enum):
    """Whose offset the group has for a partition."""

    NONE = "none"
    OWN = "of this topology"
    FOREIGN = "of somebody else"
    UNPARSABLE = "its metadata is no KafkaSpout's"


class Beginning(Enum):
    """Where to begin."""

    EARLIEST = "at the beginning"
    LATEST = "at the end"
    TIMESTAMP = "at a timestamp"
    COMMITTED = "at the committed offset"


_S, _B = FirstPollOffsetStrategy, Beginning

_TABLE = {
    # strategy:                 no commit,    own,          foreign or unparsable
    _S.EARLIEST: (_B.EARLIEST, _B.COMMITTED, _B.EARLIEST),
    _S.LATEST: (_B.LATEST, _B.COMMITTED, _B.LATEST),
    _S.TIMESTAMP: (_B.TIMESTAMP, _B.COMMITTED, _B.TIMESTAMP),
    _S.UNCOMMITTED_EARLIEST: (_B.EARLIEST, _B.COMMITTED, _B.COMMITTED),
    _S.UNCOMMITTED_LATEST: (_B.LATEST, _B.COMMITTED, _B.COMMITTED),
    _S.UNCOMMITTED_TIMESTAMP: (_B.TIMESTAMP, _B.COMMITTED, _B.COMMITTED),
}
_COLUMNS = {Commit.NONE: 0, Commit.OWN: 1, Commit.FOREIGN: 2, Commit.UNPARSABLE: 2}


def commit_of(stored: StoredOffset | None, topology_id: str) -> Commit:
    """Return whose commit a stored offset is."""
    if stored is None:
        return Commit.NONE
    metadata = CommitMetadata.parse(stored.metadata)
    if metadata is None:
        return Commit.UNPARSABLE
    return Commit.OWN if metadata.topology_id == topology_id else Commit.FOREIGN


def beginning(strategy: FirstPollOffsetStrategy, commit: Commit) -> Beginning:
    """Return where to begin."""
    return _TABLE[strategy][_COLUMNS[commit]]
