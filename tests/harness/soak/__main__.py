"""Soaks by name: ``python -m tests.harness.soak transactions|trees|kafka|outputs|changes|mirror|chain|sql``; each takes ``--help``.

Each kills processes at random for as long as it is told to, and then checks that nothing was lost, doubled or confirmed
too early.
"""

import click

from tests.harness.soak.chain.command import main as chain
from tests.harness.soak.changes.command import main as changes
from tests.harness.soak.kafka.command import main as kafka
from tests.harness.soak.mirror.command import main as mirror
from tests.harness.soak.outputs.command import main as outputs
from tests.harness.soak.sql.command import main as sql
from tests.harness.soak.transactions.command import main as transactions
from tests.harness.soak.trees.command import main as trees

SOAKS = {
    "transactions": transactions,
    "trees": trees,
    "kafka": kafka,
    "outputs": outputs,
    "changes": changes,
    "mirror": mirror,
    "chain": chain,
    "sql": sql,
}
soak = click.Group("soak", SOAKS)

if __name__ == "__main__":
    soak()
