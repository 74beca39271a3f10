"""The topology that is killed, as a process: arguments are Kafka's servers, a database, rows, and a folder."""

import sys

from committers import AppendCommitter
from spouts import MemoryTransactionalSpout
from state import KafkaState, SqlRows
from txtopo import Config, Fields, TransactionalTopologyBuilder
from txtopo.testing import run_inline

FIELDS = Fields("key: string", "value: string")


def main(servers: str, url: str, rows: int, folder: str) -> None:
    """Run it to its end."""
    spout = MemoryTransactionalSpout([[f"k{number % 7}", str(number)] for number in range(rows)], FIELDS, 3)
    builder = TransactionalTopologyBuilder("outputs", "rows", spout)
    builder.set_committer_bolt("into-topic", AppendCommitter("topic")).global_grouping("rows")
    builder.set_state("topic", KafkaState(servers, "out", FIELDS))
    builder.set_committer_bolt("into-log", AppendCommitter("log")).global_grouping("rows")
    builder.set_state("log", SqlRows(url, "log", FIELDS))
    run_inline(builder.build(), Config(max_spout_pending=6, group_transactions_max=2, state_dir=folder))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4])
