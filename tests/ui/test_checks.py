"""Audits and replays that a page begins: how far they are, and why they end."""

import contextlib

import pytest

from tests.waiting import wait_for
from txtopo.ui.checks import OUTPUT_BYTES_MAX, CheckRuns, Checks
from txtopo.ui.views.checks import check_part

TELLS = "import signal\nprint('… state words: 1 of 2 versions', flush=True)\nprint('checked', flush=True)\n"


@pytest.fixture
def begin(tmp_path):
    """Begin a check whose command does what the code says: its processes find their module in the folder first."""
    with contextlib.ExitStack() as stack:

        def begin(code, secs_max=600.0):
            (tmp_path / "txtopo.py").write_text(code)
            checks = Checks(tmp_path, secs_max)
            stack.callback(checks.close)
            return checks, checks.begin("audit", "words", None, ())

        yield begin


def ended(check):
    wait_for("its end", lambda: check.ended_at is not None)
    return check.state, check.reason, check.progress


def test_a_check_is_cancelled(begin):
    """It tells how far it is until somebody cancels it; then it has ended, for that reason."""
    checks, check = begin(f"{TELLS}signal.pause()")
    wait_for("progress", lambda: check.progress and check.output)
    assert (check.progress, check.output) == ("state words: 1 of 2 versions", "checked\n")
    assert "1 of 2 versions" in check_part(check)
    assert 'data-post="cancel"' in check_part(check)
    with pytest.raises(CheckRuns):
        checks.cancel("others")
    assert checks.cancel("words") is check
    assert ended(check) == ("cancelled", "it was cancelled", "")
    assert "it was cancelled" in check_part(check)
    assert "data-post" not in check_part(check)
    with pytest.raises(CheckRuns):
        checks.cancel("words")


@pytest.mark.parametrize(("status", "state"), [(0, "same"), (1, "differs"), (2, "failed")])
def test_what_user_code_prints_is_no_verdict(begin, status, state):
    """The exit status is; and the end of a long output is shown, where what was found stands."""
    _, check = begin(f"print('✘ a bolt prints this\\n' * 10_000 + 'what was found')\nraise SystemExit({status})")
    assert ended(check) == (state, "", "")
    assert check.output.startswith("✘ a bolt prints this\n")
    assert check.output.endswith("✘ a bolt prints this\nwhat was found\n")
    assert len(check.output.encode()) <= OUTPUT_BYTES_MAX + 8


@pytest.mark.parametrize(("after", "shown"), [([], "begun\n…\n{long}\n"), (["found"], "begun\n…\nfound\n")])
def test_a_line_that_is_longer_than_all_that_is_kept(begin, after, shown):
    """It is shown if it is the last one, and what follows it stands behind what came before."""
    _, check = begin(f"print('begun', 'x' * {OUTPUT_BYTES_MAX}, *{after}, sep='\\n')")
    assert ended(check)[0] == "same"
    assert check.output == shown.format(long="x" * OUTPUT_BYTES_MAX)


def test_a_check_that_takes_too_long(begin):
    """It is ended, and says so."""
    _, check = begin("import signal\nsignal.pause()", 1.0)
    assert ended(check) == ("failed", "it was ended after 1.0 s", "")


def test_a_check_that_is_killed(begin):
    """By whom is not known, but by which signal."""
    _, check = begin("import os\nos.kill(os.getpid(), 9)")
    assert ended(check) == ("failed", "its process was killed: SIGKILL", "")
