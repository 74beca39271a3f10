"""What is shown of a plain topology's run."""

import attrs
import pytest

from tests.engine.test_metrics import REPORT
from txtopo.cli.display.acked import AckedLines


def printed(capsys: pytest.CaptureFixture[str], lines: AckedLines, **changes: object) -> str:
    """Return the line for a report."""
    lines.update(attrs.evolve(REPORT, **changes))
    return capsys.readouterr().out


def test_rate_of_the_last_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    """The rate is that of ten seconds: workers say what they have counted only every second or two."""
    lines = AckedLines(every_secs=0.0)
    lines._printed = 0.0
    for quarter in range(1, 121):
        # 100 a second, told every two seconds; nothing after 20 seconds
        acked_by_now = min(quarter // 8 * 200, 2_000)
        line = printed(capsys, lines, elapsed_secs=quarter / 4, emitted=5_000, acked=acked_by_now)
        if 40 <= quarter <= 80:
            rate = float(line.split("pending, 1 worker restart, ")[1].split("/s")[0])
            assert 80 <= rate <= 120
    assert ", 0/s, complete latency" in line


@pytest.mark.parametrize(
    ("emitted", "acked_by_now", "rate"), [(3, 0, "0.3/s"), (40, 3, "0.3/s"), (500, 0, "50/s"), (500, 40, "4/s")]
)
def test_slow_rates(capsys: pytest.CaptureFixture[str], emitted: int, acked_by_now: int, rate: str) -> None:
    """A rate below ten has two digits; if nobody acks anything, it is that of what is emitted."""
    lines = AckedLines(every_secs=0.0)
    lines._printed = 0.0
    assert f", {rate}, complete" in printed(capsys, lines, elapsed_secs=10.0, emitted=emitted, acked=acked_by_now)


def test_numbers_after_a_kill(capsys: pytest.CaptureFixture[str]) -> None:
    """What a killed worker counted last is lost: the numbers say that they may be too low."""
    AckedLines().finish(REPORT)
    assert "; 9 emitted, 4 acked, 2 failed, 3 pending, 1 worker restart" in capsys.readouterr().out
    AckedLines().finish(attrs.evolve(REPORT, workers_killed=1))
    assert "; at least 9 emitted, at least 4 acked, at least 2 failed, 3 pending" in capsys.readouterr().out
