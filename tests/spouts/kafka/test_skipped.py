"""``on_lost="skip"``: what is gone is never silent. The audit names each partition and offset that was skipped."""

import attrs
import pytest

from state import DeltaState, StateKind, read_table
from tests.crashes import dying
from tests.journals import opened_journal
from tests.spouts.kafka.in_memory import OpaqueInMemory, TransactionalInMemory
from txtopo import BatchBolt, Config, Fields, ICommitter, TransactionalTopologyBuilder
from txtopo.journal.journal import read_journal
from txtopo.testing import MemoryLog
from txtopo.testing.inline import run_inline

FIELDS = Fields("partition: int", "offset: long")
KINDS = {
    "transactional": (TransactionalInMemory, StateKind.TRANSACTIONAL),
    "opaque": (OpaqueInMemory, StateKind.OPAQUE),
}
SKIPS = {"transactional": {"on_lost": "skip"}, "opaque": {}}
"""What lets a spout skip what is gone: an opaque one goes on by itself where the log begins now."""


class Keep(BatchBolt, ICommitter):
    """Keeps every offset, by partition and offset."""

    def prepare(self, config, context, collector, attempt):
        self.state = context.state("offsets")
        self.seen = []

    def execute(self, tuple):
        self.seen.append((tuple["partition"], tuple["offset"]))

    def finish_batch(self):
        for place in self.seen:
            self.state.put(place, 1)


@attrs.frozen
class Place:
    """A topic of two partitions, and the folder of a topology that keeps which offsets it reads."""

    world: MemoryLog
    folder: object

    def run(self, until=None, kind="transactional", **options) -> None:
        make, state_kind = KINDS[kind]
        spout = make(self.world, "t", FIELDS, batch_records_max=10, until_end=True, **options)
        builder = TransactionalTopologyBuilder("t", "records", spout, 2)
        builder.set_committer_bolt("keep", Keep(), 1).global_grouping("records")
        builder.set_state("offsets", DeltaState(self.folder / "offsets", FIELDS, Fields("n: long"), state_kind))
        run_inline(builder.build(), Config(group_transactions_max=1), until=until)

    def crash(self, name: str, **options) -> None:
        """Run, and die where a failpoint is reached first."""
        with dying(name):
            self.run(**options)

    def offsets(self, partition: int) -> list[int]:
        rows = read_table(self.folder / "offsets").to_pylist()
        return sorted(row["offset"] for row in rows if row["partition"] == partition)


@pytest.fixture
def place(tmp_path):
    world = MemoryLog()
    world.create_topic("t", 2)
    world.append("t", [b"x"] * 60, 0)
    world.append("t", [b"x"] * 15, 1)
    return Place(world, tmp_path)


@pytest.mark.slow
def test_planned_records_that_are_gone(place, command_line):
    """Transactions that a failed run has planned cover the gap: what they did not read is shown all the same."""
    place.run(until=1)
    place.crash("group.journal.before")  # later transactions are planned, and none is committed
    place.world.delete_records("t", {0: 37})
    place.run(on_lost="skip")
    assert place.offsets(0) == [*range(10), *range(37, 60)]
    assert place.offsets(1) == list(range(15))
    output = command_line.told("audit", str(place.folder))
    assert "skipped     t-0: 27 offsets, 10 to 37, in transactions 2 to 4: the records were gone" in output
    assert "without a gap, but for the input that the spout has skipped" in output
    assert "t-1:" not in output
    assert "skipped   t-0: 10 to 20" in command_line("explain", str(place.folder), "2").output


def test_records_that_no_transaction_had(place, command_line):
    """They are part of the next transaction's range, and no gap for the audit."""
    place.run(until=2)
    place.world.delete_records("t", {0: 45})
    place.run(on_lost="skip")
    output = command_line.told("audit", str(place.folder))
    skipped = sum(
        end - start
        for part in read_journal(opened_journal(place.folder))
        for entry in part.entries
        for transaction in entry.transactions
        for partitions in transaction.skipped.values()
        for start, end in partitions.get("t-0", ())
    )
    assert skipped == 60 - len(place.offsets(0)) > 0
    assert f"t-0: {skipped} offsets" in output


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_partition_of_which_nothing_is_left(place, command_line, kind):
    """The run ends nevertheless, the audit tells, and the next run takes what comes after."""
    place.run(kind=kind)
    place.world.append("t", [b"x"] * 20, 1)
    place.world.delete_records("t", {1: 35})
    place.run(kind=kind, **SKIPS[kind])
    assert "skipped     t-1: 20 offsets, 15 to 35, in transaction" in command_line("audit", str(place.folder)).output
    place.world.append("t", [b"x"] * 5, 1)
    place.run(kind=kind, **SKIPS[kind])
    assert place.offsets(1) == [*range(15), *range(35, 40)]
    output = command_line.told("audit", str(place.folder))
    assert "skipped     t-1: 20 offsets" in output


def test_only_the_committed_attempt_counts(place, command_line):
    """An attempt that has skipped nothing died; what the next one skips is told once."""
    place.crash("group.decide.before", on_lost="skip")  # it was entered in the journal
    place.world.delete_records("t", {0: 5})
    place.run(on_lost="skip")
    result = command_line("audit", str(place.folder))
    assert "skipped     t-0: 5 offsets, 0 to 5, in transaction 1:" in result.output
    assert place.offsets(0) == list(range(5, 60))


def test_an_opaque_spout_tells_as_well(place, command_line):
    """What was there when it last looked, and is gone when it reads."""
    place.run(until=2, kind="opaque")
    place.world.delete_records("t", {0: 45})
    place.run(kind="opaque")
    output = command_line.told("audit", str(place.folder))
    assert "skipped     t-0: 25 offsets, 20 to 45, in transaction" in output
