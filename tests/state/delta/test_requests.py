"""What a table in an object store costs in requests: a group, a round of upkeep, an idle minute."""

from collections import Counter

import pytest

from state import DeltaState, read_table
from state.delta.log.location import Location
from tests.object_server import object_store
from tests.state.delta.delta_tables import maintain
from tests.state.delta.table_life import RECENT_SECS, Life, rows_after, sorted_rows
from txtopo import Fields
from txtopo.api.state import History

GROUPS, SECS = 60, 10
ROUND_SECS = 300
ROUND_MAX = {"PUT": 3, "GET": 45, "LIST": 14}
"""The requests of a round at most, beside one DELETE for each object that goes; docs/guides/operations.md has them."""


class LifeInBucket(Life):
    """A table in an object store, whose objects have the times of its clock."""

    def __init__(self, monkeypatch, store, **options):
        self.store = store
        super().__init__(monkeypatch, "s3://bucket/t", **options)

    def _declare(self, **options):
        fields = Fields("id: long"), Fields("n: long")
        return DeltaState(self.path, *fields, storage_options=self.store.options, **options)

    def date(self):
        """Let what is put from now on be of now."""
        self.store.set_clock(self.now_secs)

    def write(self, txid, *, every_secs=SECS):
        self.store.set_clock(self.now_secs + every_secs)
        super().write(txid, every_secs=every_secs)

    def maintain(self, later_secs=0):
        """Do the upkeep that is due, and let none fail."""
        self.now_secs += later_secs
        self.date()
        self.opened.keep_history(History(tuple(self.points), self.recent_secs, self.rewind_hours, self.now_secs))
        maintain(self.opened)

    def objects(self):
        """Return the number of objects of the table."""
        folder = Location.resolve(self.path, self.store.options).folder
        return sum(1 for below in ("_data", "_delta_log") for _ in folder.list(below))


@pytest.mark.slow
@pytest.mark.parametrize("deletion_vectors", [False, True])
def test_the_requests_of_a_group_of_upkeep_and_of_an_idle_minute(monkeypatch, deletion_vectors):
    """They do not grow with the history, each object goes by one, and nothing is asked where nothing is left to do."""
    rounds, between, groups = [], [], []
    with object_store() as store:
        life = LifeInBucket(monkeypatch, store, deletion_vectors=deletion_vectors)
        for txid in range(1, GROUPS + 1):
            with store.counting() as group:
                life.write(txid)
            if txid % 20 == 0:
                life.points.append(txid)
            with store.counting() as upkeep:
                life.maintain()
            groups.append(group)
            (rounds if upkeep["LIST"] else between).append(upkeep)
        # It reads the files of which it does not hold the rows.
        assert all(each <= Counter(PUT=2 + deletion_vectors, GET=12) for each in groups[1:]), groups
        assert len(rounds) <= GROUPS * SECS // ROUND_SECS + 2
        assert all(each <= Counter(HEAD=1, DELETE=each["DELETE"]) for each in between), between
        assert sorted_rows(read_table(life.path, 40, storage_options=store.options)) == rows_after(40)
        for _ in range((RECENT_SECS + ROUND_SECS) // 61 + 6):
            with store.counting() as idle:
                life.maintain(61)
            rounds.append(idle)
        assert rounds.pop() == rounds.pop() == Counter()
        for each in rounds:
            assert each <= Counter({**ROUND_MAX, "HEAD": 1, "DELETE": each["DELETE"]}), rounds
        asked = store.requests()
        assert life.objects() <= 10 * len(life.points), life.objects()
        assert asked["DELETE"] >= 2 * GROUPS - life.objects(), asked
        assert sorted_rows(read_table(life.path, 40, storage_options=store.options)) == rows_after(40)
