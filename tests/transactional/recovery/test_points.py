"""Which transactions stay as points: a few of each time, and as many for a topology that is quiet as for a busy one."""

import pytest

from txtopo.transactional.recovery.points import SLOT_MS, KeptPoint, KeptPoints, thinned_ms

SECOND = 1000
HOUR = 3600 * SECOND
DAY = 24 * HOUR
WEEK_HOURS = 7 * 24
BEGAN = 20_000 * DAY


def committed(every_ms: int, until_ms: int, rewind_hours: int = WEEK_HOURS) -> KeptPoints:
    """Return the points of a topology that commits a transaction in equal intervals."""
    points = KeptPoints()
    for txid, now_ms in enumerate(range(BEGAN, BEGAN + until_ms + 1, every_ms)):
        points = points.standing(txid, now_ms).at(now_ms, rewind_hours)
    return points


def ages(points: KeptPoints, now_ms: int) -> list[int]:
    return [now_ms - point.at_ms for point in points.points]


def test_the_last_group_before_a_slot_ends_with_a_point():
    """Later ones of the same five minutes do not, however many there are; before the first one, there is nothing."""
    points = committed(SECOND, 2 * SLOT_MS)
    assert points.points == (
        KeptPoint(1, BEGAN + SECOND),
        KeptPoint(300, BEGAN + SLOT_MS),
        KeptPoint(600, BEGAN + 2 * SLOT_MS),
    )


@pytest.mark.slow
def test_what_stays_of_ten_days():
    """Each five minutes for an hour, each hour for a day, each day for a week."""
    points = committed(60 * SECOND, 10 * DAY)
    assert ages(points, BEGAN + 10 * DAY)[::-1] == [
        *range(0, HOUR, SLOT_MS),
        *range(HOUR, DAY, HOUR),
        *range(DAY, 7 * DAY + 1, DAY),
    ]


def test_a_shorter_way_back():
    """``topology.rewind.hours`` bounds all of them, also those of hours and of five minutes."""
    assert ages(committed(60 * SECOND, 3 * DAY, 2), BEGAN + 3 * DAY)[::-1] == [*range(0, HOUR, SLOT_MS), HOUR, 2 * HOUR]
    assert len(committed(60 * SECOND, 3 * DAY, 1).points) == 13


@pytest.mark.parametrize("rewind_hours", [1, 2, 24, 25, WEEK_HOURS])
def test_what_is_thinned_out(rewind_hours):
    """Before that time, the oldest point is the only one, at any moment."""
    points = committed(SLOT_MS + 7 * SECOND, 3 * DAY, rewind_hours)
    for now_ms in range(BEGAN + 3 * DAY, BEGAN + 4 * DAY, 17 * 60 * SECOND):
        settled = [
            point for point in points.at(now_ms, rewind_hours).points if point.at_ms < thinned_ms(now_ms, rewind_hours)
        ]
        assert len(settled) <= 1


def test_the_first_point_of_an_hour():
    """It is told from the others of its hour, by what came just before."""
    points, hours = KeptPoints(), []
    for txid in range(1, 40):
        points = points.standing(txid, BEGAN + (txid - 1) * SLOT_MS)
        hours += [txid] * points.begins_hour
    assert hours == [13, 25, 37]
    assert points.standing(40, BEGAN).begins_hour, "a clock that is put back"


def test_points_are_few_at_any_moment():
    """While time goes by, there is always one that is an hour old at most, a day old at most, and so on."""
    points = KeptPoints()
    for txid, now_ms in enumerate(range(BEGAN, BEGAN + 9 * DAY, 7 * 60 * SECOND + 13), 1):
        points = points.standing(txid, now_ms).at(now_ms, WEEK_HOURS)
        assert len(points.points) <= 13 + 25 + 8
        assert now_ms - points.points[-1].at_ms < SLOT_MS
        since_ms = now_ms - BEGAN
        for reach_ms, apart_ms in ((HOUR, 2 * SLOT_MS), (DAY, HOUR + 2 * SLOT_MS), (7 * DAY, DAY + HOUR)):
            known = ages(points, now_ms)
            assert max(known) >= min(reach_ms, since_ms) - apart_ms


def test_a_quiet_topology():
    """What stands is a point for as long as it does, and the others go with time alone."""
    points = committed(SECOND, 2 * HOUR)
    last = points.points[-1].txid
    for now_ms in range(BEGAN + 2 * HOUR, BEGAN + 9 * DAY, 60 * SECOND):
        points = points.standing(last, now_ms).at(now_ms, WEEK_HOURS)
        if now_ms == BEGAN + 3 * HOUR:
            assert ages(points, BEGAN + 2 * HOUR)[::-1] == [-HOUR, HOUR, 2 * HOUR - SECOND]
    assert points == KeptPoints((KeptPoint(last, BEGAN + 9 * DAY - SLOT_MS),))


def test_a_batch_a_day():
    """What stood before each batch, and after the last one, is a point: no later one is in the midst of a batch."""
    points, last = KeptPoints(), 0
    for now_ms in range(BEGAN, BEGAN + 9 * DAY + HOUR, 30 * SECOND):
        points = points.standing(last, now_ms).at(now_ms, WEEK_HOURS)
        last += (now_ms - BEGAN) % DAY < 4 * 60 * SECOND
    assert [point.txid for point in points.points] == [8 * day for day in range(3, 11)]


def test_nothing_is_a_point_before_the_first_transaction():
    """Transaction 0 is as good as one, and no table has a version of it to keep."""
    assert KeptPoints().standing(0, BEGAN) == KeptPoints()


def test_a_turn_back():
    """The transactions after it begin anew, and so do the points."""
    points = committed(60 * SECOND, HOUR)
    assert points.until(11).points[-1] == KeptPoint(10, BEGAN + 10 * 60 * SECOND)
    assert points.until(0) == KeptPoints()


def test_a_clock_that_is_put_back():
    """Points go on, and those that were made by the wrong time stay no longer than others."""
    ahead = committed(60 * SECOND, HOUR)
    before_ms = BEGAN - 2 * DAY
    points = ahead.standing(100, before_ms).at(before_ms, WEEK_HOURS)
    assert points.points == (*ahead.points, KeptPoint(100, before_ms))
    assert points.at(BEGAN + 8 * DAY, WEEK_HOURS) == KeptPoints()


@pytest.mark.parametrize(("rewind_hours", "back_ms"), [(1, 3_300_000), (24, 82_800_000), (25, 86_400_000)])
def test_what_is_thinned_out_at_the_ends_of_the_ladder(rewind_hours, back_ms):
    """A way back that ends where slots become longer is one of the shorter ones."""
    assert thinned_ms(10**12, rewind_hours) == 10**12 - back_ms
