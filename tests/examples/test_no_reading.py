"""The example of timers: its alerts are those that a plain loop finds, however the input is cut."""

import datetime as dt

import pytest

from examples.no_reading import SILENCE, readings, topology
from state import read_table
from txtopo.testing.inline import run_inline


@pytest.mark.slow
@pytest.mark.parametrize("size", [7, 50, 10_000])
def test_alerts(size, tmp_path):
    """One for each silence of ten minutes that the watermark has passed, and no other."""
    run_inline(topology(str(tmp_path), hours=3, readings_a_transaction=size))
    times: dict[str, list[dt.datetime]] = {}
    for sensor, at, _ in readings(3):
        times.setdefault(sensor, []).append(at)
    watermark = max(map(max, times.values())) - dt.timedelta(minutes=1)
    expected = [
        (sensor, at, at + SILENCE)
        for sensor, ats in times.items()
        for at in ats
        if at + SILENCE <= watermark and not any(at < other <= at + SILENCE for other in ats)
    ]
    alerts = read_table(tmp_path / "alerts").to_pylist()
    assert sorted((row["sensor"], row["last_at"], row["noticed_at"]) for row in alerts) == sorted(expected)
    assert len(expected) > 5
