"""What queries of Nexmark have cost, as files and as tables; the documentation's table is drawn from ``measured.json``.

This module needs neither Spark nor Delta.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

PUBLISHED = Path(__file__).with_name("measured.json")
"""The run whose table the documentation shows."""

_NONE_YET = "A series on a quiet machine is still to be published."


@attrs.frozen
class Cost:
    """What a query has cost a system.

    Args:
        query: its name.
        lines: how many lines say it.
        each: the events of a transaction.
        events: how many events there were.
        secs: by the clock.
        core_secs: of all processes.
        rows: how many rows of DuckDB's answer it was compared with.
        missing: how many of these it lacks.
        surplus: how many rows it has besides.
    """

    query: str
    lines: int
    each: int
    events: int
    secs: float
    core_secs: float
    rows: int
    missing: int
    surplus: int

    @property
    def rate(self) -> float:
        """Events a second, by the clock."""
        return self.events / self.secs

    @property
    def core_secs_a_million(self) -> float:
        """CPU seconds per million events."""
        return self.core_secs * 1e6 / self.events

    @property
    def is_right(self) -> bool:
        """Whether there was something to compare, and nothing differs."""
        return bool(self.rows) and not self.missing + self.surplus

    def __str__(self) -> str:
        """Return a line."""
        found = f"{self.rows:,} rows compared, {self.missing:,} missing, {self.surplus:,} too many"
        return (
            f"{self.lines} lines; {self.events:,} events, {self.each:,} a transaction: {self.rate:,.0f} events/s, "
            f"{self.core_secs_a_million:.1f} CPU seconds a million; {found if self.rows else 'NOTHING WAS COMPARED'}"
        )


@attrs.frozen
class Series:
    """A run of the command: what each query has cost txtopo, and Structured Streaming in the same run.

    Args:
        at: the day.
        machine: what it ran on.
        cores: how many cores that has.
        versions: of Python and the packages that matter.
        mode: the processing mode of txtopo.
        pairs: the costs of both; of the peer None if it was left out.
    """

    at: str
    machine: str
    cores: int
    versions: Mapping[str, str]
    mode: str
    pairs: Sequence[tuple[Cost, Cost | None]]

    def keep(self, path: Path) -> None:
        """Write the series to a file."""
        path.write_text(json.dumps(attrs.asdict(self), indent=1) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Series:
        """Return the series in a file."""
        document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        pairs = [tuple(None if each is None else Cost(**each) for each in pair) for pair in document.pop("pairs")]
        return cls(pairs=pairs, **document)  # type: ignore[arg-type] # each is a pair

    def beside(self, each: int) -> Sequence[tuple[Cost, Cost]]:
        """Return the costs of both systems with so many events a transaction."""
        return [(own, peer) for own, peer in self.pairs if own.each == each and peer is not None]

    @property
    def sizes(self) -> Sequence[int]:
        """The numbers of events a transaction."""
        return sorted({own.each for own, _ in self.pairs})

    def table(self) -> str:
        """Return all costs as tables in Markdown, one for each number of events a transaction, with the medians."""
        parts = []
        for size in self.sizes:
            pairs = self.beside(size)
            if not pairs:
                continue
            rows = [
                "| query | lines | rows compared | thousand events/s | times | CPU s a million | times |",
                "|---|---|---|---|---|---|---|",
            ]
            for own, peer in pairs:
                rate, cores = own.rate / peer.rate, peer.core_secs_a_million / own.core_secs_a_million
                rows.append(
                    f"| {own.query} | {own.lines}, {peer.lines} | {_compared(own)}, {_compared(peer)} | "
                    f"{_thousands(own)}, {_thousands(peer)} | {rate:.1f} | "
                    f"{own.core_secs_a_million:.1f}, {peer.core_secs_a_million:.1f} | {cores:.1f} |"
                )
            faster = statistics.median(own.rate / peer.rate for own, peer in pairs)
            cheaper = statistics.median(peer.core_secs_a_million / own.core_secs_a_million for own, peer in pairs)
            rows.append(f"| median | | | | {faster:.1f} | | {cheaper:.1f} |")
            events = max(own.events for own, _ in pairs)
            parts.append(f"{events:,} events, {size:,} a transaction:\n\n" + "\n".join(rows))
        return "\n\n".join(parts)

    def against_best(self) -> Mapping[str, float]:
        """Return, by query, how many times the events a second of Structured Streaming txtopo does, each at its best."""
        ours: dict[str, float] = {}
        theirs: dict[str, float] = {}
        for own, peer in self.pairs:
            if peer is not None:
                ours[own.query] = max(ours.get(own.query, 0.0), own.rate)
                theirs[own.query] = max(theirs.get(own.query, 0.0), peer.rate)
        return {query: rate / theirs[query] for query, rate in ours.items()}


def _thousands(cost: Cost) -> str:
    """Return thousands of events a second, with two digits at least."""
    return f"{cost.rate / 1e3:,.0f}" if cost.rate >= 1e4 else f"{cost.rate / 1e3:.2g}"


def _compared(cost: Cost) -> str:
    """Return how many rows were compared; what differs is said, too."""
    return f"{cost.rows:,}" if cost.is_right else f"{cost.rows:,} ({cost.missing:,} missing, {cost.surplus:,} too many)"


def published(path: Path = PUBLISHED) -> str:
    """Return what the documentation shows: the tables of the published run, and where txtopo is behind."""
    if not path.exists():
        return _NONE_YET
    series = Series.read(path)
    times = series.against_best()
    behind = [f"{query} ({time:.2f}x)" for query, time in times.items() if time < 1]
    versions = ", ".join(f"{name} {version}" for name, version in series.versions.items())
    return (
        f"txtopo first, then Structured Streaming, on {series.cores} cores ({series.machine}; {versions}), {series.at}, "
        f"txtopo in {series.mode} mode.\n\n{series.table()}\n\n"
        f"Each at its better number of events a transaction, txtopo does {statistics.median(times.values()):.1f}x as many "
        f"events a second in the median, and is behind in {', '.join(behind) or 'none'}."
    )
