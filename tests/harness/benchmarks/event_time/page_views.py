"""Page views as JSON lines, and the four tables that a job makes of them, as people have it.

The tables are:

    views     each view, as it came
    pages     views and milliseconds of each page
    users     views, and the time of the last one, of each user
    minutes   views of each page and minute of event time
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tests.harness.benchmarks.event_time.events import START_MS, TIMESTAMP, WrongAnswersError

VIEWS = 2_000_000
"""147 MB as JSON lines."""
FILES = 20
USERS = 100_000
PAGES = 1_000
HOURS = 1
DELAY_SECS = 60

FIELDS = ("at: timestamp", "user: long", "page: string", "ms: long")
SPARK_SCHEMA = "at timestamp, user long, page string, ms long"

TABLES: Mapping[str, tuple[str, ...]] = {
    "views": ("at", "user", "page", "ms"),
    "pages": ("page", "views", "ms"),
    "users": ("user", "views", "last"),
    "minutes": ("page", "minute", "views"),
}
"""The columns of each table."""

_SORTED_BY: Mapping[str, tuple[str, ...]] = {
    "views": ("at", "user", "page", "ms"),
    "pages": ("page",),
    "users": ("user",),
    "minutes": ("page", "minute"),
}


@attrs.frozen
class PageViews:
    """Views over an hour, of drawn users and pages; 5 % are up to the delay late, none is later."""

    count: int
    seed: int = 6

    def table(self) -> pa.Table:
        """Return the views in the order in which they come."""
        drawing = np.random.default_rng((self.seed, self.count))
        due_ms = np.arange(self.count) * (HOURS * 3_600_000) // self.count
        is_late = drawing.random(self.count) < 0.05
        back_ms = (np.minimum(due_ms, DELAY_SECS * 1000 - 1) * drawing.random(self.count) * is_late).astype(np.int64)
        names = pa.array([f"/p/{page}" for page in range(PAGES)])
        return pa.table(
            {
                "at": pa.array((START_MS + due_ms - back_ms) * 1000).cast(TIMESTAMP),
                "user": pa.array(drawing.integers(USERS, size=self.count)),
                "page": names.take(pa.array(drawing.integers(PAGES, size=self.count))),
                "ms": pa.array(drawing.integers(10, 1_000, size=self.count)),
            }
        )

    def write(self, folder: Path) -> Path:
        """Write the views as JSON lines, unless they are there; return the folder."""
        if folder.exists():
            return folder
        draft = folder.with_name(f"{folder.name}-draft")
        draft.mkdir(parents=True)
        views = self.table()
        size = -(-self.count // FILES)
        for number in range(FILES):
            part = views.slice(number * size, size)
            times = pc.strftime(part["at"].cast(pa.timestamp("ms", tz="UTC")), "%Y-%m-%dT%H:%M:%SZ")
            numbers = (part[name].cast(pa.string()) for name in ("user", "ms"))
            user, ms = numbers
            lines = pc.binary_join_element_wise(
                '{"at":"', times, '","user":', user, ',"page":"', part["page"], '","ms":', ms, "}\n", ""
            )
            (draft / f"{number:04d}.json").write_text("".join(lines.to_pylist()), encoding="utf-8")
        return draft.rename(folder)

    def answers(self) -> Mapping[str, pa.Table]:
        """Return the rows of the four tables."""
        views = self.table()
        minutes = views.append_column("minute", pc.floor_temporal(views["at"], unit="minute"))
        return {
            "views": views,
            "pages": _grouped(views, "pages", ["page"], [("page", "count"), ("ms", "sum")]),
            "users": _grouped(views, "users", ["user"], [("user", "count"), ("at", "max")]),
            "minutes": _grouped(minutes, "minutes", ["page", "minute"], [("page", "count")]),
        }


def check_tables(who: str, found: Mapping[str, pa.Table], expected: Mapping[str, pa.Table]) -> None:
    """Compare every row of the four tables.

    Raises:
        WrongAnswersError: a row is missing, doubled or different.
    """
    for name, rows in expected.items():
        theirs = found[name].select(rows.column_names).cast(rows.schema)
        order = [(column, "ascending") for column in _SORTED_BY[name]]
        if not theirs.sort_by(order).equals(rows.sort_by(order)):
            raise WrongAnswersError(
                f"{who}: the {theirs.num_rows:,} rows of {name!r} are not the {rows.num_rows:,} expected"
            )


def _grouped(rows: pa.Table, table: str, keys: list[str], aggregates: list[tuple[str, str]]) -> pa.Table:
    sums = rows.group_by(keys).aggregate(aggregates)
    columns = [*keys, *(f"{column}_{how}" for column, how in aggregates)]
    return sums.select(columns).rename_columns(list(TABLES[table]))
