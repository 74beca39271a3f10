"""Audits and replays that a page begins: how far they are, what they find, and why they end."""

import contextlib
import json
import os
import signal

import pytest

from tests.ui.shapes import misfits
from tests.waiting import wait_for
from txtopo.api.table_history import StateComparison
from txtopo.files.records import to_json
from txtopo.inspect.audit.report import (
    AuditProgress,
    AuditReport,
    CheckLine,
    Comparison,
    ComponentComparison,
    Difference,
    Finding,
    ReplayReport,
    TableProof,
)
from txtopo.ui.checks import OUTPUT_BYTES_MAX, Check, CheckRuns, Checks
from txtopo.ui.openapi import schema_of
from txtopo.ui.views.checks import check_part

PROVED = AuditReport("words", is_proved=True, first=1, last=4, tables=[TableProof("counts", 1, 4, 2, 3, rows_put=7)])
REPLAYED = ReplayReport(
    2, 1, 1, 1, 4, 1, (), (ComponentComparison("split", 3, 4, Comparison.COUNT, is_same=False),), (), None
)


@pytest.fixture
def begin(tmp_path):
    """Begin a check whose command does what the code says: its processes find their module in the folder first."""
    with contextlib.ExitStack() as stack:

        def begin(code, secs_max=600.0):
            (tmp_path / "txtopo.py").write_text(f"import os, signal, sys\n{code}")
            checks = Checks(tmp_path, secs_max)
            stack.callback(checks.close)
            return checks, checks.begin("audit", "words", None, ())

        yield begin


def tells(**told):
    """Return code that tells the page something."""
    return f"print({json.dumps(to_json(CheckLine(**told)))!r}, flush=True)\n"


def ended(check):
    wait_for("its end", lambda: check.state != "running")
    return check.state, check.reason, check.progress


def test_a_check_is_cancelled(begin):
    """It tells how far it is until somebody cancels it; then it has ended, for that reason."""
    checks, check = begin(f"{tells(progress=AuditProgress('words', 1, 2))}signal.pause()")
    wait_for("progress", lambda: check.progress)
    assert str(check.progress) == "state 'words': 1 of 2 versions"
    assert "1 of 2 versions" in check_part(check)
    assert 'data-post="cancel"' in check_part(check)
    with pytest.raises(CheckRuns):
        checks.cancel("others")
    assert checks.cancel("words") is check
    assert ended(check) == ("cancelled", "it was cancelled", None)
    assert "it was cancelled" in check_part(check)
    assert "data-post" not in check_part(check)
    with pytest.raises(CheckRuns):
        checks.cancel("words")


@pytest.mark.parametrize("status", [0, 1, 2, -9], ids=str)
@pytest.mark.parametrize(
    ("told", "state"),
    [
        ({"audit": PROVED}, "same"),
        ({"audit": AuditReport(findings=[Finding("a gap", 2)])}, "differs"),
        ({"replay": REPLAYED}, "same"),
        ({"replay": ReplayReport(2, 1, 1, 2, 2, 2, (), (), (), Difference("other tuples", "split"))}, "differs"),
    ],
)
def test_the_answer_is_the_verdict(begin, told, state, status):
    """However the process ends after it, and whatever user code prints; the API has it as it is described."""
    end = f"sys.exit({status})" if status >= 0 else f"os.kill(os.getpid(), {-status})"
    _, check = begin(f"print('✔ every', file=sys.stderr)\n{tells(**told)}{end}")
    assert ended(check) == (state, "", None)
    assert (check.audit, check.replay) == (told.get("audit"), told.get("replay"))
    assert list(misfits(json.loads(json.dumps(to_json(check))), schema_of(Check))) == []


def test_an_error_is_the_reason(begin):
    """A check that can't tell says why, and no status makes it right."""
    _, check = begin(tells(error="there is no journal"))
    assert ended(check) == ("failed", "there is no journal", None)


def test_what_is_printed_besides(begin):
    """Of a long output the end is kept, in whole lines, also if a process that was begun goes on printing."""
    _, check = begin(
        "import subprocess\nsys.stderr.write('a bolt prints this\\n' * 10_000 + 'the last\\n')\n"
        "subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()'], stdout=sys.stderr)"
    )
    assert ended(check) == ("failed", "it ended with status 0 before it was done", None)
    assert check.output.startswith("a bolt prints this\n")
    assert check.output.endswith("a bolt prints this\nthe last\n")
    assert len(check.output) <= OUTPUT_BYTES_MAX


def test_a_check_that_takes_too_long(begin):
    """It is ended, and says so."""
    _, check = begin("signal.pause()", 1.0)
    assert ended(check) == ("failed", "it was ended after 1.0 s", None)


def test_a_check_that_is_killed(begin):
    """By whom is not known, but by which signal."""
    _, check = begin("os.kill(os.getpid(), 9)")
    assert ended(check) == ("failed", "its process was killed: SIGKILL", None)


@pytest.mark.parametrize(
    "line", ['{"audit": {"first"', '{"audit": {"first"\n', '{"progress": 1}\n', "\udcff\n"], ids=ascii
)
def test_a_line_that_is_broken(begin, line):
    """A process that is killed while it tells something has told nothing, and the next check can begin."""
    checks, check = begin(f"os.write(1, {line.encode(errors='surrogateescape')!r})\nos.kill(os.getpid(), 9)")
    assert ended(check) == ("failed", "its process was killed: SIGKILL", None)
    assert ended(checks.begin("audit", "words", None, ()))[0] == "failed"


@pytest.mark.parametrize("told", [{}, {"audit": PROVED}], ids=["nothing", "an audit"])
def test_what_a_process_has_forked_is_ended_with_it(begin, told):
    """The copy holds the pipe by which the page is told, and would for ever."""
    _, check = begin(f"{tells(**told) if told else ''}if os.fork() == 0:\n    signal.pause()\nos._exit(3)", 60.0)
    reason = "" if told else "it ended with status 3 before it was done"
    assert ended(check) == ("same" if told else "failed", reason, None)


@pytest.mark.parametrize(
    ("does", "printed"),
    [("signal.pause()", "the last\n"), ("[os.write(2, b'on and on\\n') for _ in iter(int, 1)]", "on and on\n")],
    ids=["silent", "writing"],
)
def test_a_daemon_is_not_waited_for(begin, tmp_path, does, printed):
    """What user code has started in another session may hold both pipes, and write: a check ends with its process."""
    _, check = begin(
        f"""if (pid := os.fork()) == 0:
    os.setsid()
    os.close(0)
    open("leads", "x")
    {does}
open("pid", "w").write(str(pid))
while not os.path.exists("leads"):
    pass
print("the last", file=sys.stderr, flush=True)
{tells(audit=PROVED)}os._exit(3)"""
    )
    try:
        assert ended(check) == ("same", "", None)
        assert printed in check.output
    finally:
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)


def test_a_line_too_long_to_keep(begin):
    """It is left out of what was printed, and not all before it and after it."""
    _, check = begin("sys.stderr.write('before\\n' + 'long' * 20_000 + '\\nafter\\n')")
    ended(check)
    assert check.output == "before\n…\nafter\n"


def test_what_a_replay_has_found_is_text():
    """Names of components and states, and values in what differs, are shown and are no HTML."""
    evil = "<script>hit=1</script>"
    compared = ComponentComparison(evil, 3, 4, Comparison.TWO_RUNS, is_same=False)
    found = ReplayReport(
        2, 1, 1, 1, 4, 1, (evil,), (compared,), (StateComparison(evil, 1, evil),), Difference(evil, evil)
    )
    shown = check_part(Check(1, "replay", "words", 2, 0.0, "differs", 1.0, replay=found))
    assert shown.count("&lt;script&gt;hit=1") == 5
    assert "<script>" not in shown


def test_a_page_gets_no_more_than_it_can_show():
    """Of many findings it gets the first, and how many there are besides."""
    many = AuditReport(findings=[Finding(f"finding {number}") for number in range(1_000)])
    short = many.shortened()
    assert (len(short.findings), short.left_out) == (200, 800)
