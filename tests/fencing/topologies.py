"""Topologies that these tests run, by name on the command line too: importable, for other processes import them."""

from tests.acceptance.topologies import make_data, words_topology
from txtopo import Topology

TAKE = 4
PARTITIONS = 2


def rows_of(transactions: int) -> dict[int, list[list[str]]]:
    """Return the rows that make so many transactions."""
    return make_data(PARTITIONS, TAKE * transactions - 3 * (PARTITIONS - 1))


def words(output: str = "out", transactions: int = 100) -> Topology:
    """Count words into a table, and their sum into another one."""
    return words_topology(output, rows_of(transactions), take=TAKE)
