"""A table of rows that expire and a list of rows agree, whatever is appended, taken, failed, written and restarted."""

import contextlib
import shutil
import tempfile
from pathlib import Path

from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.budgets import examples
from tests.state.delta.expiring.expiring_tables import held, in_table, opened, some, us
from txtopo.transactional.commit.write_buffer import group_state

WORDS = st.sampled_from("abcde")
SECONDS = st.integers(0, 12)


class Model(RuleBasedStateMachine):
    """Transactions of a group, which fail or finish; groups, which are written, prepared or lost; and restarts."""

    def __init__(self) -> None:
        super().__init__()
        self.path = Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
        self.cleanup = contextlib.ExitStack()
        self.cleanup.callback(shutil.rmtree, self.path)
        self.epoch, self.txid, self.mark = 0, 0, -1
        self.durable: list[tuple[str, int]] = []
        self.durable_mark = -1
        self._reopen()

    def teardown(self) -> None:
        self.cleanup.close()

    def _reopen(self) -> None:
        self.epoch += 1
        self.state = opened(self.path, epoch=self.epoch, key="k", upkeep_every_writes=2, files_max=3)
        self.cleanup.callback(self.state.close)  # its upkeep may still write
        self._begin_group()

    def _begin_group(self) -> None:
        self.group = group_state(self.state)
        self.last, self.rows, self.mark = self.txid, list(self.durable), self.durable_mark

    @rule(
        calls=st.lists(st.one_of(SECONDS, st.lists(st.tuples(WORDS, SECONDS), max_size=4)), max_size=4),
        ends=st.booleans(),
    )
    def transaction(self, calls, ends) -> None:
        view = self.group.begin(self.last + 1)
        rows, mark = list(self.rows), self.mark
        for call in calls:
            if isinstance(call, int):
                call += max(mark, 0) // 2  # noqa: PLW2901 - later ones, in time
                taken = held(view.take_expired(us(call)))
                assert taken == sorted(row for row in rows if row[1] <= call)
                mark = max(mark, call)
                rows = [row for row in rows if row[1] > mark]
            else:
                new = [(word, second + mark + 1) for word, second in call]
                view.append(some(*new))
                rows += new
            found = view.holds(some(*((word, 0) for word in "abcde")).select(["k"])).to_pylist()
            assert found == [any(row[0] == word for row in rows) for word in "abcde"]
        if ends:
            view.finish()
            self.last, self.rows, self.mark = self.last + 1, rows, mark
        else:
            view.discard()

    @precondition(lambda self: self.last > self.txid)
    @rule(how=st.sampled_from(["write", "prepare and restart", "lose"]))
    def end_group(self, how) -> None:
        writes = self.group.writes()
        if how == "lose":
            self._reopen()
            return
        note = self.state.prepare(self.last, writes)
        self.txid, self.durable, self.durable_mark = self.last, self.rows, self.mark
        if how == "prepare and restart":
            last = self.last
            self._reopen()
            self.state.publish(last, note)
        else:
            self.state.publish(self.last, note)
        self._begin_group()

    @rule()
    def maintain(self) -> None:
        self.state.maintain()

    @invariant()
    def agrees(self) -> None:
        assert in_table(self.path) == sorted(self.durable)


TestModel = Model.TestCase
TestModel.settings = settings(max_examples=examples(30), stateful_step_count=15, deadline=None)
