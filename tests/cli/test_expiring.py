"""What the commands say of a table whose rows expire."""

import pytest

from tests.state.delta.expiring.expiring_tables import holding, make_rows, opened, put
from txtopo import Config
from txtopo.testing.inline import run_inline

MODULE = """
import pathlib
from tests.state.delta.expiring.expiring_tables import holding
def topology():
    return holding(pathlib.Path({output!r}))
"""


def test_state_shows_what_is_left(tmp_path, command_line):
    """``txtopo state`` shows the rows that are not taken, now and as of a transaction."""
    state = opened(tmp_path)
    put(state, (1, [("apple", 10), ("pear", 20)]))
    put(state, (2, 10))
    shown = command_line("state", str(tmp_path / "t")).output
    assert ("apple" in shown, "pear" in shown) == (False, True)
    assert "apple" in command_line("state", str(tmp_path / "t"), "--txid", "1").output


@pytest.mark.slow
@pytest.mark.parametrize("group", [1, 3])
def test_a_replay_is_the_same(tmp_path, command_line, group):
    """``txtopo replay`` takes the same rows again, in the middle of a group, too, and compares those that are left."""
    output = tmp_path / "out"
    run_inline(holding(output), Config(max_spout_pending=6, group_transactions_max=group))
    command_line.write_module("held", MODULE.format(output=str(output)))
    transactions = -(-len(make_rows()[1]) // 5)
    for txid in range(1, transactions + 1):
        result = command_line("replay", "held", str(txid))
        assert (result.exit_code, result.stdout.splitlines()[-1]) == (0, "✔ the same"), result.output
