"""Commands with the address of a topology all of which is in a bucket."""

from __future__ import annotations

import pytest

pytest.importorskip("obstore")

from tests.acceptance.test_buckets import DATA, OUTPUT
from tests.acceptance.topologies import counts_of, read_words, words_topology
from tests.cli.conftest import CommandLine
from tests.object_server import ObjectStore as Server
from txtopo import Config
from txtopo.testing.inline import run_inline


@pytest.mark.slow
def test_commands_with_an_address(bucket_server: Server, command_line: CommandLine) -> None:
    """What they do with a folder, they do there: back to a transaction, a fork of it, and proofs of all of it."""
    command_line.write_module(
        "shop",
        "from tests.acceptance.topologies import words_topology\n"
        "from tests.acceptance.test_buckets import DATA, OUTPUT\n\n"
        "def topology():\n"
        "    return words_topology(OUTPUT, DATA)\n",
    )
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
