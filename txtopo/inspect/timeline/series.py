"""Plots: the numbers that a run has sampled, as lines over time."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from txtopo.engine.timeline.records import (
    COMPONENT,
    DRIVER,
    LAG,
    PROGRESS,
    READING,
    ROOTS,
    SAMPLES_SECS,
    STATE,
    VALUE,
    OfComponent,
    OfDriver,
    OfLag,
    OfProgress,
    OfRoots,
    OfState,
)
from txtopo.files.records import in_camel_case
from txtopo.inspect.timeline.rings import Rows
from txtopo.inspect.timeline.timeline import TimelineReader
from txtopo.transactional.core.readings import ReadingKind

Line = list[float | None]
"""The values of a plot, one for each of its times; None where nothing was measured."""


@attrs.frozen(field_transformer=in_camel_case)
class Plot:
    """Lines over time, by name."""

    name: str
    title: str
    unit: str
    lines: Mapping[str, Line]


@attrs.frozen(field_transformer=in_camel_case)
class Plots:
    """Plots of some seconds; ``at`` are the times of their values."""

    secs: int
    step_secs: int = 1
    until: int = 0
    is_last: bool = True
    at: Sequence[int] = ()
    plots: Sequence[Plot] = ()


POINTS_MAX = 300
"""A plot is a few hundred pixels wide, so more points could not be told apart."""

_MIB = 1 << 20


def known(value: float) -> float | None:
    """Return a number; None if it is unknown or infinite, which JSON can't say."""
    return float(value) if math.isfinite(value) else None


def last_number(row: Any | None, at: int) -> float | None:
    """Return a number of a sample; None if it is unknown, or there is no sample."""
    return None if row is None else known(row["numbers"][at])


def rate(rows: Rows, at: int) -> float | None:
    """Return how much a number grows in a second over some samples; None if that is unknown."""
    if len(rows) < 2:  # noqa: PLR2004 - a rate needs two
        return None
    secs = (int(rows["at"][-1]) - int(rows["at"][0])) / 1e6
    grown = float(rows["numbers"][-1][at] - rows["numbers"][0][at])
    return grown / secs if secs > 0 and math.isfinite(grown) and grown >= 0 else None


def last_growth(rows: Rows, at: int) -> float | None:
    """Return when a number that begins at 0 has last grown, in seconds since 1970; None if it never has."""
    grown = np.flatnonzero(np.diff(rows["numbers"][:, at], prepend=0) > 0)
    return int(rows["at"][grown[-1]]) / 1e6 if len(grown) else None


@attrs.frozen
class _Axis:
    first: int
    step: int
    count: int

    @classmethod
    def of(cls, secs: int, now_secs: float, *, is_over: bool) -> _Axis:
        step = -(-secs // POINTS_MAX)
        count = max(1, secs // step)
        # The second under way is left out while it may get further samples.
        end = (-(-int(now_secs + 1) // step) if is_over else int(now_secs) // step) * step
        return cls(end - (count - 1) * step, step, count)

    @property
    def seconds(self) -> list[int]:
        return [self.first + at * self.step for at in range(self.count)]

    def places(self, rows: Rows) -> Any:
        """Return the step that each row belongs to."""
        return np.ceil((rows["at"] / 1e6 - self.first) / self.step).astype(int)

    def gauge(self, rows: Rows, at: int) -> Line:
        """Return the last value of a number in each step."""
        line: Line = [None] * self.count
        for step, number in zip(self.places(rows).tolist(), rows["numbers"][:, at].tolist(), strict=True):
            if 0 <= step < self.count and math.isfinite(number):
                line[step] = number
        return line

    def growth(self, rows: Rows, at: int, by: int | None = None) -> Line:
        """Return how much a number grows in a second, or for each 1 that the number ``by`` grows."""
        line: Line = [None] * self.count
        numbers, places = rows["numbers"], self.places(rows)[1:]
        up = np.diff(numbers[:, at])
        per = np.diff(rows["at"] / 1e6 if by is None else numbers[:, by])
        is_good = np.isfinite(up) & (up >= 0) & (per > 0)  # another run counts from 0
        is_good &= (places >= 0) & (places < self.count)
        kept = places[is_good]
        ups = np.bincount(kept, up[is_good], self.count)
        pers = np.bincount(kept, per[is_good], self.count)
        for step in np.unique(kept).tolist():
            line[step] = float(ups[step] / pers[step])
        return line


def plots(timeline: TimelineReader, secs: int, until_secs: int | None, now_secs: float, *, is_over: bool) -> Plots:
    """Return the plots of some seconds, at most an hour: those before a moment, or the last ones, before now.

    ``is_over`` says that the run has ended with that.

    Raises:
        ConfigError: the samples can't be read.
    """
    timeline.check("samples")
    is_last = until_secs is None or until_secs >= now_secs
    end_secs = now_secs if until_secs is None or is_last else float(until_secs)
    axis = _Axis.of(min(max(secs, 1), SAMPLES_SECS), end_secs, is_over=is_over or not is_last)
    samples = {kind: dict(timeline.samples(kind, secs + axis.step, end_secs)) for kind in _KINDS}
    run = timeline.run()
    of_topology = _plain(axis, samples) if run is not None and run.kind == "plain" else _transactional(axis, samples)
    shown = [plot for plot in [*of_topology, *_of_driver(axis, samples)] if plot.lines]
    return Plots(secs, axis.step, axis.seconds[-1], is_last, axis.seconds if shown else [], shown)


_KINDS = (PROGRESS, DRIVER, STATE, READING, ROOTS, COMPONENT, LAG)

_Found = Mapping[int, Mapping[str, Rows]]


def _plot(name: str, title: str, unit: str, lines: Mapping[str, Line]) -> Plot:
    kept = {label: line for label, line in lines.items() if any(value is not None for value in line)}
    return Plot(name, title, unit, kept)


def _transactional(axis: _Axis, found: _Found) -> Iterable[Plot]:
    progress, driver = found[PROGRESS].get(""), found[DRIVER].get("")
    if progress is None or driver is None:
        return
    yield _plot(
        "committed", "committed", "transactions/s", {"committed": axis.growth(progress, OfProgress.TRANSACTIONS)}
    )
    yield _plot("tuples", "tuples of the spout", "tuples/s", {"tuples": axis.growth(progress, OfProgress.TUPLES)})
    latency = {"p50": axis.gauge(driver, OfDriver.P50), "p99": axis.gauge(driver, OfDriver.P99)}
    yield _plot("latency", "from available to visible", "s", latency)
    phases = {name: axis.gauge(progress, at) for name, at in PHASES.items()}
    yield _plot("pending", "pending", "transactions", phases)
    sizes = {
        "job": _size(axis, progress, driver, (OfProgress.ATTEMPTS, OfDriver.JOBS)),
        "group": _size(axis, progress, driver, (OfProgress.TRANSACTIONS, OfDriver.GROUPS)),
    }
    yield _plot("sizes", "size of jobs and commit groups", "transactions", sizes)
    writes = {name: axis.growth(rows, OfState.SECS, by=OfState.WRITES) for name, rows in found[STATE].items()}
    yield _plot("writes", "Delta write by table", "s", writes)
    yield from _readings(axis, found[READING])
    yield _plot("failures", "failed attempts", "/s", {"failed": axis.growth(progress, OfProgress.FAILURES)})
    yield from _lags(axis, progress, found[LAG])


def _lags(axis: _Axis, progress: Rows, found: Mapping[str, Rows]) -> Iterable[Plot]:
    """Yield the lag of the source, or a line for each of several."""
    sources = {name: rows for name, rows in found.items() if name}
    waiting = sources or ({"lag": found[""]} if "" in found else {})
    of = "sources" if sources else "source"
    records = {name: axis.gauge(rows, OfLag.RECORDS) for name, rows in sources.items()}
    yield _plot("lag", f"lag of the {of}", "records", records or {"lag": axis.gauge(progress, OfProgress.LAG)})
    if waiting:
        files = {name: axis.gauge(rows, OfLag.FILES) for name, rows in waiting.items()}
        yield _plot("lag files", f"lag of the {of} in files", "files", files)
        size = {
            name: [None if each is None else each / _MIB for each in axis.gauge(rows, OfLag.BYTES)]
            for name, rows in waiting.items()
        }
        yield _plot("lag bytes", f"lag of the {of} in bytes", "MiB", size)


PHASES = {
    "ready": OfProgress.READY,
    "processing": OfProgress.PROCESSING,
    "processed": OfProgress.PROCESSED,
    "committing": OfProgress.COMMITTING,
}


def _plain(axis: _Axis, found: _Found) -> Iterable[Plot]:
    roots = found[ROOTS].get("")
    if roots is None:
        return
    components = found[COMPONENT]
    settled = {"acked": axis.growth(roots, OfRoots.ACKED), "failed": axis.growth(roots, OfRoots.FAILED)}
    yield _plot("roots", "settled roots", "roots/s", settled)
    yield _plot("pending", "pending roots", "roots", {"pending": axis.gauge(roots, OfRoots.PENDING)})
    latency = {"p50": axis.gauge(roots, OfRoots.P50), "p99": axis.gauge(roots, OfRoots.P99)}
    yield _plot("latency", "complete latency", "s", latency)
    executed = {name: axis.growth(rows, OfComponent.EXECUTED) for name, rows in components.items()}
    yield _plot("executed", "executed", "tuples/s", executed)
    emitted = {name: axis.growth(rows, OfComponent.EMITTED) for name, rows in components.items()}
    yield _plot("emitted", "emitted", "tuples/s", emitted)
    queued = {name: axis.gauge(rows, OfComponent.QUEUED) for name, rows in components.items()}
    yield _plot("queued", "queued in memory", "tuples", queued)
    workers = {"running": axis.gauge(roots, OfRoots.WORKERS_RUNNING), "wanted": axis.gauge(roots, OfRoots.WORKERS)}
    yield _plot("workers", "workers", "workers", workers)
    yield _plot("restarts", "restarts of workers", "restarts", {"restarts": axis.gauge(roots, OfRoots.RESTARTS)})
    yield _plot("lag", "lag of the sources", "records", {"lag": axis.gauge(roots, OfRoots.LAG)})


def _of_driver(axis: _Axis, found: _Found) -> Iterable[Plot]:
    driver = found[DRIVER].get("")
    if driver is None:
        return
    memory: Line = [None if value is None else value / _MIB for value in axis.gauge(driver, OfDriver.MEMORY_BYTES)]
    yield _plot("memory", "memory of the driver", "MiB", {"driver": memory})
    cpu: Line = [None if value is None else 100 * value for value in axis.growth(driver, OfDriver.CPU_SECS)]
    yield _plot("cpu", "processor time of the driver", "% of a core", {"driver": cpu})


def _readings(axis: _Axis, found: Mapping[str, Rows]) -> Iterable[Plot]:
    """Yield a plot for each name of what components count or measure; times as seconds behind the sample's time."""
    grouped: dict[tuple[str, str], dict[str, Line]] = {}
    for key, rows in found.items():
        try:
            component, name, of, kind = json.loads(key)
        except ValueError:  # cut, because it is too long
            continue
        match kind:
            case ReadingKind.COUNT.value:
                line = axis.growth(rows, VALUE)
            case ReadingKind.TIME.value:
                behind = rows.copy()
                behind["numbers"][:, VALUE] = rows["at"] / 1e6 - rows["numbers"][:, VALUE]
                line = axis.gauge(behind, VALUE)
            case _:
                line = axis.gauge(rows, VALUE)
        label = f"{component} {of}" if of else str(component)
        grouped.setdefault((str(name), str(kind)), {})[label] = line
    units = {ReadingKind.COUNT.value: "/s", ReadingKind.TIME.value: "s behind now"}
    for (name, kind), lines in sorted(grouped.items(), key=lambda line: line[0][1] != ReadingKind.TIME.value):
        yield _plot(f"{kind} {name}", name, units.get(kind, ""), lines)


def _size(axis: _Axis, progress: Rows, driver: Rows, columns: tuple[int, int]) -> Line:
    """Return how many transactions there are to a job or group: growth of a number by growth of another."""
    upper, lower = axis.growth(progress, columns[0]), axis.growth(driver, columns[1])
    return [a / b if a is not None and b else None for a, b in zip(upper, lower, strict=True)]
