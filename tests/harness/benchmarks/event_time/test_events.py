"""The events that benchmarks of event time generate, and the answers that contenders are checked by."""

from __future__ import annotations

from collections import defaultdict

import pyarrow as pa
import pytest

from tests.harness.benchmarks.event_time.events import (
    COLUMNS,
    AfterBatches,
    AfterEvents,
    Events,
    LateRule,
    WrongAnswersError,
    answers,
    check_windows,
)

EVENTS = Events(3_000, minutes=10, keys=20)
BATCH = 400


def _one_by_one(lag: int | None) -> tuple[dict, int]:
    """Return the windows, event by event, and the number of late events; without a lag by the keys' own watermarks."""
    seen, of_key, watermarks = 0.0, defaultdict(float), [0.0] * (lag or 0)
    windows, late = defaultdict(lambda: (0, 0)), 0
    for index, event in enumerate(EVENTS.table().to_pylist()):
        if lag is not None and index and index % BATCH == 0:
            watermarks.append(seen - 60)
        key, at = event["key"], event["at"].timestamp()
        start = at - at % 60
        of_key[key], seen = max(of_key[key], at), max(seen, at)
        if at < of_key[key] - 60 if lag is None else start + 60 <= watermarks[-lag]:
            late += 1
        else:
            count, total = windows[key, start]
            windows[key, start] = count + 1, total + event["value"]
    return {at: sums for at, sums in windows.items() if lag is None or at[1] + 60 <= seen - 60}, late


@pytest.mark.parametrize(
    ("rule", "lag"), [(AfterBatches(BATCH, 1), 1), (AfterBatches(BATCH, 2), 2), (AfterEvents(), None)]
)
def test_answers(rule: LateRule, lag: int | None) -> None:
    """The answers by each rule are those of a loop over the events; some events are late."""
    expected, late = _one_by_one(lag)
    found = answers(EVENTS.table(), rule)
    rows = found.windows.to_pylist()
    assert {(row["key"], row["start"].timestamp()): (row["events"], row["total"]) for row in rows} == expected
    assert found.late == late > 0


def test_events() -> None:
    """Events are the same each time; 5 % are older than due, some by more than the delay."""
    events = EVENTS.table()
    assert events.equals(EVENTS.table())
    times = [each.timestamp() for each in events["at"].to_pylist()]
    due = [times[0] + index * 0.2 for index in range(len(times))]
    late = [one - other for one, other in zip(due, times, strict=True) if one - other > 0.0005]
    assert 0.04 < len(late) / len(times) < 0.06
    assert max(late) > 60


def test_wrong_answers() -> None:
    """A missing window, one too many and a wrong total are found."""
    right = answers(EVENTS.table(), AfterBatches(BATCH, 1))
    check_windows("test", right.windows, right)
    more = right.windows.set_column(3, "total", pa.array([total + 1 for total in right.windows["total"].to_pylist()]))
    for wrong in (right.windows.slice(1), pa.concat_tables([right.windows, right.windows.slice(0, 1)]), more):
        with pytest.raises(WrongAnswersError, match="differ"):
            check_windows("test", wrong.select(list(COLUMNS)), right)
