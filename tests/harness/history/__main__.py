"""Let a topology live for a day on a simulated clock, and compare what its tables cost with what is promised.

By default there is a group each 60 seconds of the clock, which makes as many points as five groups a second do, and in
the last minutes of the first hour and of the last one there are five a second, as bounds on their cost are meant.
``--step 0.2`` makes all of the day's 432,000 groups.
"""

import math
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import attrs
import click

from tests.harness.history.clock import SimulatedClock
from tests.harness.history.life import KEY_BYTES, LATER, NUMBER_DIGITS, TABLES, Life, Load
from txtopo.config import MICRO_BATCH, REAL_TIME

COST_MAX = 1.1
"""What a group of the last hour may cost, by one of the first, in each respect."""

START_SECS_MAX = 2.0
"""How much longer a start may take than a new topology's."""

BUSY_STEP_SECS = 0.2
"""From one group to the next where there are five a second."""

COMPARED = 600
"""How many of the last groups are compared with as many earlier ones: those of two clean-ups.

Where there are five a second all the time, those of half an hour are: what comes with a point is among it then.
"""

FILES_EACH_GROUP = 4
FILES_BESIDE = 1_000


@click.command()
@click.option("--hours", default=24.0, show_default=True, type=click.FloatRange(0, min_open=True))
@click.option("--step", "step_secs", default=60.0, show_default=True, help="Seconds from one group to the next.")
@click.option("--busy", "busy_secs", default=420.0, show_default=True, help="Seconds of five groups a second, twice.")
@click.option("--keys", default=10_000, show_default=True, type=click.IntRange(1))
@click.option("--touched", default=1_000, show_default=True, type=click.IntRange(1), help="Keys of a group.")
@click.option("--row-bytes", default=100, show_default=True, type=click.IntRange(KEY_BYTES + NUMBER_DIGITS))
@click.option("--vectors", "has_vectors", is_flag=True, help="Tables with deletion vectors.")
@click.option("--real-time", "is_real_time", is_flag=True, help="In real-time mode, with one worker in this process.")
@click.option("--backfill", "is_backfilled", is_flag=True, help="Halfway, one more table joins by a backfill.")
@click.option("--counts", "is_counted", is_flag=True, help="Do not compare processor times: the machine is busy.")
def main(
    hours: float,
    step_secs: float,
    busy_secs: float,
    keys: int,
    touched: int,
    row_bytes: int,
    has_vectors: bool,
    is_real_time: bool,
    is_backfilled: bool,
    is_counted: bool,
) -> None:
    """Write three tables for some hours of a simulated clock; fail if a bound is broken."""
    busy = [BUSY_STEP_SECS] * round(busy_secs / BUSY_STEP_SECS)
    first = [*[step_secs] * round((3600 - busy_secs) / step_secs), *busy]
    others = [*[step_secs] * round(((hours - 1) * 3600 - busy_secs) / step_secs), *busy]
    compared = COMPARED if step_secs > BUSY_STEP_SECS else len(first) // 2
    # From a full hour on: then as many points are made while groups are compared, whenever this is called.
    clock = SimulatedClock((time.time() // 3600 - math.ceil(hours)) * 3600)
    load = Load(keys, touched, has_vectors, row_bytes)
    with tempfile.TemporaryDirectory(prefix="txtopo-history-") as scratch:
        mode = REAL_TIME if is_real_time else MICRO_BATCH
        life = Life(Path(scratch) / "old", load, clock, [*first, *others], mode=mode)
        began = time.monotonic()
        if is_backfilled:
            life.run(len(life.steps_secs) // 2)
            life.backfill(LATER)
        life.run(len(life.steps_secs))
        click.echo(f"{life.last:,} groups of {touched:,} of {keys:,} keys in {time.monotonic() - began:,.0f} s")
        broken = [
            *broken_sizes(life),
            *broken_costs(life, len(first), compared, is_counted=is_counted),
            *broken_starts(life, Path(scratch)),
            *broken_points(life),
        ]
    if broken:
        click.echo(f"broken: {'; '.join(broken)}")
        sys.exit(1)


def broken_sizes(life: Life) -> Iterator[str]:
    """Compare what is on the disk with what may be."""
    points = len(life.points())
    files_max = FILES_EACH_GROUP * life.recent_groups() + FILES_BESIDE
    click.echo(f"{points} points; the journal has {life.journal_bytes():,} bytes")
    for name in life.names:
        sizes = life.sizes(name)
        bytes_max = sizes.bytes_max(points)
        click.echo(
            f"table {name}: {sizes.bytes:,} bytes of at most {bytes_max:,}, {sizes.files:,} files of at most "
            f"{files_max:,}; live {sizes.live_bytes:,}, a checkpoint {sizes.checkpoint_bytes:,}, of the last five "
            f"minutes {sizes.recent_bytes:,}"
        )
        if sizes.bytes > bytes_max:
            yield f"the size of table {name}"
        if sizes.files > files_max:
            yield f"the files of table {name}"


def broken_costs(life: Life, early: int, groups: int, *, is_counted: bool) -> Iterator[str]:
    """Compare what some groups up to an early one have cost with what the last ones have, which may have more tables."""
    first, last = (life.cost_of(groups, end) for end in (early, life.last))
    for name, was in attrs.asdict(first).items():
        now, is_judged = getattr(last, name), name != "cpu_secs" or not is_counted
        click.echo(f"a group: {name} {was:,.4g} in the first hour, {now:,.4g} in the last: {now / was:.2f}")
        if is_judged and now > COST_MAX * was * len(life.names) / len(TABLES):
            yield f"{name} of a group"


def broken_starts(life: Life, scratch: Path) -> Iterator[str]:
    """Compare a start with the first one of another topology, by processor time: nothing in them waits."""
    new = Life(scratch / "new", life.load, life.clock, life.steps_secs, mode=life.mode)
    took = {}
    for each, last in ((life, life.last), (new, 1)):
        began = time.process_time()
        each.run(last)
        took[each] = time.process_time() - began
    click.echo(f"a start takes {took[life]:.2f} s, one of a new topology with its first group {took[new]:.2f} s")
    if took[life] > took[new] + START_SECS_MAX:
        yield "the time of a start"


def broken_points(life: Life) -> Iterator[str]:
    """Read each table as of each point."""
    wrong = list(life.wrong_points())
    read = sum(len(life.names_at(point.txid)) for point in life.points())
    click.echo(f"{read - len(wrong)} tables as of points were read and are right")
    yield from wrong


if __name__ == "__main__":
    main()
