"""A topology with a bug of its user's: a replay adds something else than the first attempt did."""

from spouts import MemoryTransactionalSpout
from state import MemoryState
from tests.bolts import Take
from tests.topologies import committing
from txtopo import Fields, ICommitter, Topology


class CountTries(Take, ICommitter):
    def prepare(self, config, context, collector, attempt):
        self.total = context.state("total")
        self.tries = attempt.attempt

    def finish_batch(self):
        self.total.update("tries", lambda old: (old or 0) + self.tries)


def topology() -> Topology:
    spout = MemoryTransactionalSpout({0: [["a"], ["b"], ["c"]]}, Fields("word"), 1)
    total = MemoryState(Fields("name"), Fields("n"))
    return committing(spout, CountTries(), topology_id="inexact", total=total)
