"""The history of benchmarks: what was measured, when and on what. The tables and the chart of the documentation are drawn from it.

``python -m tests.harness.benchmarks small large`` compares its figures with the last ones of a machine like this;
``--keep NAME`` makes them part of the history, and ``python -m tests.harness.benchmarks.history`` draws the tables.
"""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from tests.harness.benchmarks.nexmark.costs import published

ROOT = Path(__file__).parents[3]
FOLDER = Path(__file__).with_suffix("")

TXTOPO, MERGE, DELTA_RS, LIMIT = "txtopo", "foreachBatch + MERGE", "foreachBatch + delta-rs", "one plain Spark job"
"""The names of contenders, here once more: this module needs neither Spark nor Delta."""
EACH = "plain Spark jobs, one a transaction"

LEAST_CHANGE = 0.03
"""A figure that changes by less has not moved, however close its rounds are to one another."""

LEAST_CHANGE_OF_ONE_ROUND = 0.15
"""The same where one of the runs had a single round, which shows no noise: by so much the latency of the same code has
differed between two runs on a quiet machine."""


@attrs.frozen
class Figures:
    """The figures of a workload in one run, each with all its rounds."""

    workload: str
    unit: str
    is_lower_better: bool
    lines: Mapping[str, Sequence[float]]


@attrs.frozen
class Ratio:
    """How many times better a line is than another, once for each run."""

    workload: str
    line: str
    against: str
    times_better: Sequence[float]


@attrs.frozen
class Entry:
    """One run of benchmarks, or several of the same days and machine of which only ratios were kept."""

    at: str
    cores: int
    machine: str
    versions: Mapping[str, str]
    note: str
    workloads: Sequence[Figures] = attrs.field(default=(), converter=tuple)
    ratios: Sequence[Ratio] = attrs.field(default=(), converter=tuple)

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Entry:
        """Return the entry that a document of the history is."""
        given = dict(document)
        return cls(
            workloads=[Figures(**each) for each in given.pop("workloads")],
            ratios=[Ratio(**each) for each in given.pop("ratios")],
            **given,
        )

    def is_like(self, other: Entry) -> bool:
        """Return whether figures of the two can be compared: machine, Python and Spark are the same."""
        return (self.machine, self.cores, self.versions) == (other.machine, other.cores, other.versions)

    def times_better(self, workload: str, line: str, against: str) -> Iterator[float]:
        """Return how many times better a line was than another, for each run."""
        for figures in self.workloads:
            if figures.workload == workload and {line, against} <= figures.lines.keys():
                ours, theirs = (statistics.median(figures.lines[name]) for name in (line, against))
                yield theirs / ours if figures.is_lower_better else ours / theirs
        for ratio in self.ratios:
            if (ratio.workload, ratio.line, ratio.against) == (workload, line, against):
                yield from ratio.times_better


@attrs.frozen
class Moved:
    """A figure that moved by more than noise, and by which factor it is better than before."""

    workload: str
    line: str
    before: float
    after: float
    times_better: float


def history(folder: Path = FOLDER) -> list[Entry]:
    """Return all entries, oldest first."""
    documents = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]
    return sorted(map(Entry.of, documents), key=lambda entry: entry.at)


def entry_of(documents: Sequence[Mapping[str, Any]], at: str, machine: str, note: str) -> Entry:
    """Return the entry for what benchmarks have written, one document for each workload."""
    workloads = []
    for document in documents:
        lines: dict[str, list[float]] = {}
        for line in document["lines"]:
            lines[f"{line['contender']} {line['figure']}".strip()] = list(line["rounds"])
        workloads.append(
            Figures(document["workload"], document["unit"]["name"], document["unit"]["is_lower_better"], lines)
        )
    return Entry(at, documents[0]["cores"], machine, documents[0]["versions"], note, workloads)


def keep(entry: Entry, name: str, folder: Path = FOLDER) -> Path:
    """Write an entry to the history, and return its path."""
    path = folder / f"{entry.at}-{name}.json"
    path.write_text(json.dumps(attrs.asdict(entry), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


def moved(before: Entry, after: Entry) -> list[Moved]:
    """Return what moved by more than noise: each median lies outside of the rounds of the other run, and far enough."""
    found = []
    for new in after.workloads:
        for old in (
            workload for workload in before.workloads if (workload.workload, workload.unit) == (new.workload, new.unit)
        ):
            for line in old.lines.keys() & new.lines.keys():
                were, are = old.lines[line], new.lines[line]
                median, now = statistics.median(were), statistics.median(are)
                is_apart = not min(were) <= now <= max(were) and not min(are) <= median <= max(are)
                least = LEAST_CHANGE if min(len(were), len(are)) > 1 else LEAST_CHANGE_OF_ONE_ROUND
                if is_apart and abs(now / median - 1) >= least:
                    better = median / now if new.is_lower_better else now / median
                    found.append(Moved(new.workload, line, median, now, better))
    return sorted(found, key=lambda each: (each.workload, each.line))


def last_like(entries: Sequence[Entry], entry: Entry) -> Entry | None:
    """Return the last entry that another can be compared with, and that has one of its workloads."""
    names = {figures.workload for figures in entry.workloads}
    fitting = [
        each for each in entries if each.is_like(entry) and names & {figures.workload for figures in each.workloads}
    ]
    return fitting[-1] if fitting else None


def all_rounds(entries: Sequence[Entry], workload: str, line: str) -> list[float]:
    """Return what a line was in all rounds of all runs."""
    return [
        each
        for entry in entries
        for figures in entry.workloads
        if figures.workload == workload
        for each in figures.lines.get(line, ())
    ]


def latency_ratios(entries: Sequence[Entry], peer: str) -> list[float]:
    """Return how many times earlier a transaction of txtopo's was visible than one of a peer, for each run."""
    return [each for entry in entries for each in entry.times_better("latency", f"{TXTOPO} p50", f"{peer} p50")]


def times(entries: Sequence[Entry], workload: str, line: str, against: str) -> str:
    """Return a ratio as the documentation shows it: the range over all runs, such as 4x-5.3x; empty if there is none."""
    found = [each for entry in entries for each in entry.times_better(workload, line, against)]
    if not found:
        return ""
    return f"{_range(found)}x"


_TO = "\N{EN DASH}"


def _range(values: Sequence[float]) -> str:
    least, most = _shown(min(values)), _shown(max(values))
    return least if least == most else f"{least}{_TO}{most}"


def _shown(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"


_READY_MADE = f"{TXTOPO}, ReduceCommitter"
_BY_ARROW = f"{TXTOPO}, FilesTransactionalSpout"
_REAL_TIME = ("latency_real_time", f"{TXTOPO}, real-time p50")

_GUIDE = (
    ("1,000 tuples a transaction, a Python bolt for each tuple", "small", TXTOPO),
    ("the same, into a `ReduceCommitter`", "small", _READY_MADE),
    ("10,000 tuples, a Python bolt for each tuple", "medium", TXTOPO),
    ("the same, into a `ReduceCommitter`", "medium", _READY_MADE),
    ("10,000 tuples, each grouped by key to its committer", "shuffled", TXTOPO),
    ("1,000,000 rows, 100,000 keys, DataFrames", "large", TXTOPO),
    ("the same, Parquet read by Arrow", "large", _BY_ARROW),
    ("latency of a transaction every 200 ms", "latency", f"{TXTOPO} p50"),
)


def guide(entries: Sequence[Entry]) -> str:
    """Return the table of the guide on performance."""
    rows = [
        f"| workload | vs `foreachBatch` + `MERGE` | vs `foreachBatch` + delta-rs | vs {LIMIT} |",
        "|---|---|---|---|",
    ]
    for text, workload, line in _GUIDE:
        figure = line.removeprefix(TXTOPO) if workload == "latency" else ""
        ratios = [times(entries, workload, line, against + figure) for against in (MERGE, DELTA_RS, LIMIT)]
        rows.append("| " + " | ".join([text, *ratios]).rstrip() + " |")
    return "\n".join(rows)


def readme(entries: Sequence[Entry]) -> str:
    """Return the table of the README."""
    rates = small_rates(entries)
    ours, theirs = statistics.median(rates[TXTOPO]), statistics.median(rates[MERGE])
    small, large = times(entries, "small", TXTOPO, MERGE), times(entries, "large", TXTOPO, MERGE)
    plain = times(entries, "large", TXTOPO, LIMIT)
    each, one, each_by_clock, one_by_clock = (
        times(entries, "dataframes", f"{TXTOPO} {figure}", f"{against} {figure}")
        for figure in ("cores", "clock")
        for against in (EACH, LIMIT)
    )
    job, real_time = all_rounds(entries, "latency", f"{TXTOPO} p50"), all_rounds(entries, *_REAL_TIME)
    merge_ms = statistics.median(job) * statistics.median(latency_ratios(entries, MERGE))
    return f"""\
| workload | txtopo | `foreachBatch` + `MERGE` | why |
|---|---|---|---|
| 1,000 tuples a transaction, a Python bolt for each tuple | {ours:.3g} a second | {theirs:.2g} a second: {small} | it takes one batch at a time, with some Spark jobs for each; txtopo takes hundreds in one job and one Delta write |
| a transaction every 200 ms, from available to visible | {_range(job)} ms | {merge_ms / 1_000:.1f} s: {times(entries, "latency", f"{TXTOPO} p50", f"{MERGE} p50")} | the same jobs, for one transaction |
| the same, in [real-time mode](docs/guides/performance.md#real-time-mode) | {_range(real_time)} ms | {merge_ms / 1_000:.1f} s: {_range([merge_ms / ms for ms in real_time])}x | workers that stay take the place of Spark's jobs |
| 1,000,000 rows a transaction, DataFrames | | {large} | Spark reads and counts the rows for both; the jobs around that weigh less |

Against *{EACH}*, which read and sum the same rows and keep no state, txtopo does {each} as much with a second of a core, and
{each_by_clock} by the clock. Against *{LIMIT}*, which reads all files at once and writes once, it does {one}, and {one_by_clock} by the clock
({plain} in other series and on another machine)."""


def small_rates(entries: Sequence[Entry]) -> Mapping[str, Sequence[float]]:
    """Return the rounds of the last run of small transactions whose figures were kept, by contender."""
    names = (TXTOPO, DELTA_RS, MERGE)
    found = [
        figures.lines
        for entry in entries
        for figures in entry.workloads
        if figures.workload == "small" and figures.lines.keys() >= set(names)
    ]
    return {name: found[-1][name] for name in names}


def small(entries: Sequence[Entry]) -> str:
    """Return the table of the last run of small transactions."""
    rows = [
        "| 1,000 tuples a transaction, a Python bolt for each tuple | transactions a second | ms for each |",
        "|---|---|---|",
    ]
    for name, rounds in small_rates(entries).items():
        median = statistics.median(rounds)
        shown = name.replace("foreachBatch", "`foreachBatch`").replace("MERGE", "`MERGE`")
        rows.append(f"| {shown} | {median:.3g} ({min(rounds):.3g}{_TO}{max(rounds):.3g}) | {_whole(1_000 / median)} |")
    return "\n".join(rows)


def _whole(ms: float) -> str:
    return f"{float(f'{ms:.2g}'):,.0f}" if ms >= 10 else f"{ms:.2g}"


DRAWN = {
    "README.md": {"measured": readme},
    "docs/guides/performance.md": {"ratios": guide, "small": small, "nexmark": lambda _: published()},
}
"""By page, what its blocks hold, by their names."""

_BLOCK = re.compile(
    r"(?P<begin><!-- (?P<name>\w+): drawn by `python -m tests\.harness\.benchmarks\.history`, not by hand -->\n\n)"
    r".*?(?P<end>\n\n<!-- end of \w+ -->)",
    re.DOTALL,
)


def drawn(page: str, blocks: Mapping[str, str]) -> str:
    """Return a page with other blocks of figures.

    Raises:
        ValueError: these are not the blocks of the page.
    """
    names = [found["name"] for found in _BLOCK.finditer(page)]
    if names != list(blocks):
        raise ValueError(f"the page has the blocks {names} instead of {list(blocks)}")
    return _BLOCK.sub(lambda found: found["begin"] + blocks[found["name"]] + found["end"], page)


def current(name: str) -> str:
    """Return a page as the history of today draws it."""
    entries = history()
    page = (ROOT / name).read_text(encoding="utf-8")
    return drawn(page, {block: draw(entries) for block, draw in DRAWN[name].items()})


if __name__ == "__main__":
    for page_name in DRAWN:
        (ROOT / page_name).write_text(current(page_name), encoding="utf-8")
