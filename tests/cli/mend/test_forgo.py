"""``txtopo forgo``: files that a rewind owes and that are lost for good."""

import pathlib

import pytest

from tests.cli.test_going_back_killed import ALL, BOTH, again, rows, run
from txtopo.errors import InputError

__all__ = ["again"]

ARGUMENTS = ("--set", f"states={BOTH}")


@pytest.mark.slow
def test_a_run_goes_on_without_it(command_line, again):
    """It asks, says what is lost, and the audit names it for ever; nothing else changes."""
    run(BOTH)
    again()
    command_line.told("rewind", "files", "3", "--yes", *ARGUMENTS)
    lost = pathlib.Path("in", "5")
    lost.unlink()
    with pytest.raises(InputError, match="give them to 'txtopo forgo'"):
        run(BOTH)
    refusal = command_line.refusal("forgo", "files", str(lost), *ARGUMENTS)
    assert "agree with --yes" in refusal
    with pytest.raises(InputError, match="give them to 'txtopo forgo'"):
        run(BOTH)
    told = command_line.told("forgo", "files", str(lost), "--yes", *ARGUMENTS)
    assert f"lost: {lost.absolute()} (9 bytes, " in told
    run(BOTH)
    assert rows() == {name: [n for n in ALL if n != 5] for name in BOTH.split("+")}
    audited = command_line.told("audit", ".")
    assert "skipped     5: 9 offsets, 0 to 9, in transaction 4: the records were gone" in audited
    assert "without a gap, but for the input that the spout has skipped" in audited


@pytest.mark.slow
def test_what_is_not_lost(command_line, again):
    """A topology that was never rewound owes nothing, and a file that is there is not forgone."""
    run(BOTH)
    again()
    text = "is there, or is no file that a rewind has promised to read again; nothing was changed"
    assert text in command_line.refusal("forgo", "files", "in/5", "--yes", *ARGUMENTS)
    command_line.told("rewind", "files", "3", "--yes", *ARGUMENTS)
    assert text in command_line.refusal("forgo", "files", "in/5", "--yes", *ARGUMENTS)
    run(BOTH)
    assert rows() == dict.fromkeys(BOTH.split("+"), ALL)


def test_a_spout_that_owes_nothing_by_name(command_line):
    """It says so."""
    command_line.write_module(
        "memory",
        """
import pathlib
from tests.journal.test_folders import topology as one_of
def topology():
    return one_of("one", pathlib.Path("out"))
""",
    )
    refusal = command_line.refusal("forgo", "memory", "in/5", "--yes")
    assert "has promised nothing by name; nothing was changed" in refusal
