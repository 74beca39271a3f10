"""Commands with the address of a topology all of which is in a bucket."""

from __future__ import annotations

import pytest

pytest.importorskip("obstore")

from state import read_table
from tests.acceptance.test_buckets import DATA, OUTPUT
from tests.acceptance.topologies import counts_of, read_words, words_topology
from tests.cli.conftest import CommandLine
from tests.object_server import ObjectStore as Server
from txtopo import Config
from txtopo.files.places import folder_at
from txtopo.testing.inline import run_inline

SHOP = """
from tests.acceptance.test_buckets import DATA, OUTPUT
from tests.acceptance.topologies import words_topology

def topology():
    return words_topology(OUTPUT, DATA)
"""


@pytest.mark.slow
def test_commands_with_an_address(bucket_server: Server, command_line: CommandLine) -> None:
    """What they do with a folder, they do there: back to a transaction, a fork of it, and proofs of all of it."""
    command_line.write_module("shop", SHOP)
    run_inline(words_topology(OUTPUT, DATA), Config(group_transactions_max=1), until=6)
    assert "transaction 3: committed" in command_line.told("explain", OUTPUT, "3")
    command_line.told("fork", "shop", "5", "s3://bucket/side")
    assert "the same" in command_line.told("diff", OUTPUT, "s3://bucket/side", "--to", "5")
    command_line.told("rewind", "shop", "4", "--yes")
    run_inline(words_topology(OUTPUT, DATA), Config())
    assert read_words(OUTPUT) == counts_of(DATA)
    for place in (OUTPUT, "s3://bucket/side"):
        assert "every transaction was committed once" in command_line.told("audit", place)
    assert "nothing to repair" in command_line.told("repair", "shop")
    assert "total" in command_line.told("state", OUTPUT, "--consistent")


@pytest.mark.slow
def test_a_topology_starts_anew(bucket_server: Server, command_line: CommandLine) -> None:
    """What it had is set aside beside the new tables, whose objects are copied for it."""
    command_line.write_module("shop", SHOP)
    run_inline(words_topology(OUTPUT, DATA), Config(group_transactions_max=1), until=6)
    before = read_words(OUTPUT)
    command_line.told("repair", "shop", "--start-anew", "--yes")
    run_inline(words_topology(OUTPUT, DATA), Config())
    assert read_words(OUTPUT) == counts_of(DATA)
    aside = next(name for name in folder_at(OUTPUT).folders() if name.startswith("words."))
    assert read_table(f"{OUTPUT}/{aside}").num_rows == len(before)
    assert "every transaction was committed once" in command_line.told("audit", OUTPUT)
