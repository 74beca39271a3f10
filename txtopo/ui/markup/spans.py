"""Where the time of one transaction went: its spans by attempt, as an SVG of bars and as numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from txtopo.inspect.timeline.attempts import Attempt, Write
from txtopo.text.words import cut_inside, duration
from txtopo.ui.markup.elements import Markup, tag
from txtopo.ui.markup.plots import nice_step

SPANS = (
    ("metadata", "metadata", "begun_at", "metadata_at"),
    ("waiting", "waiting", "metadata_at", "started_at"),
    ("processing", "processing", "started_at", "processed_at"),
    ("turn", "waiting for its turn", "processed_at", "grouped_at"),
    ("commit", "commit phase", "grouped_at", "phases_at"),
    ("write", "Delta write", "phases_at", "ended_at"),
)
"""The spans of an attempt: style, words, the moment at which each begins, and the one at which it ends."""

_NAME_MAX = 20
_WIDTH, _LEFT, _RIGHT, _BAR, _ROW, _AXIS = 900, 150, 70, 16, 24, 22


def seconds_of(attempt: Attempt, style: str) -> float | None:
    """Return how long a span of an attempt took; None if it did not get through it."""
    start, end = ends_of(attempt, style)
    return None if start is None or end is None else max(end - start, 0.0)


def ends_of(attempt: Attempt, style: str) -> tuple[float | None, float | None]:
    """Return the begin and the end of a span. A group that writes nothing ends with its commit phases."""
    _, _, begin, end = next(span for span in SPANS if span[0] == style)
    if style == "commit" and attempt.phases_at is None:
        end = "ended_at"
    return getattr(attempt, begin), getattr(attempt, end)


def spans_svg(attempts: Sequence[Attempt], writes: Sequence[Write], now: float | None = None) -> Markup | None:
    """Return the attempts and the writes as rows of bars on one axis; None if no time of theirs is known.

    What is open lasts until ``now``, or else until the last moment that is known.
    """
    names = {name for _, _, *ends in SPANS for name in ends}
    moments = [at for attempt in attempts for name in names if (at := getattr(attempt, name))]
    moments += [
        at for write in writes for at in (write.prepared_at, write.decided_at, write.from_at, write.to_at) if at
    ]
    if not attempts or not moments:
        return None
    if now is not None and attempts[-1].outcome == "open":
        moments.append(now)
    first, last = min(moments), max(moments)
    scale = (_WIDTH - _LEFT - _RIGHT) / max(last - first, 1e-6)
    rows = [*_attempts(attempts, last), *_writes(writes)]
    height = len(rows) * _ROW + _AXIS + 4

    def bar(style: str, start: float, end: float, y: float) -> Markup:
        width = max((end - start) * scale, 1.0)
        where = {"x": f"{_LEFT + (start - first) * scale:.1f}", "width": f"{width:.1f}"}
        words = next((span[1] for span in SPANS if span[0] == style), style)
        return tag("rect", tag("title", f"{words}: {duration(end - start)}"), **where, y=y, height=_BAR, class_=style)

    parts = [_axis(last - first, scale, height)]
    for at, (label, bars) in enumerate(rows):
        y = _AXIS + at * _ROW
        parts.append(tag("text", label, x=_LEFT - 8, y=y + 13, text_anchor="end"))
        parts += [bar(style, start, end, y) for style, start, end in bars]
        if bars:
            end = max(end for _, _, end in bars)
            words = duration(end - min(start for _, start, _ in bars))
            parts.append(tag("text", words, x=f"{_LEFT + (end - first) * scale + 6:.1f}", y=y + 13))
    return tag(
        "svg",
        parts,
        viewBox=f"0 0 {_WIDTH} {height}",
        role="img",
        class_="spans",
        aria_label="Spans of the transaction; the tables below have the same numbers.",
    )


_Row = tuple[str, list[tuple[str, float, float]]]


def _attempts(attempts: Sequence[Attempt], last: float) -> Iterator[_Row]:
    epochs = {attempt.epoch for attempt in attempts}
    for attempt in attempts:
        label = f"attempt {attempt.try_}" + (f", epoch {attempt.epoch}" if len(epochs) > 1 else "")
        # Of an attempt that was open when its run was killed nobody knows how long it went on.
        is_lost = attempt.outcome == "open" and attempt is not attempts[-1]
        if attempt.outcome in {"failed", "dead letter"}:
            begin = attempt.started_at or attempt.begun_at
            yield label, [("failed", begin, attempt.ended_at or last)] if begin else []
            continue
        bars = []
        for style, *_ in SPANS:
            start, end = ends_of(attempt, style)
            if start is not None:
                bars.append((style, start, end if end is not None else start if is_lost else last))
                if end is None:
                    break  # it is in this span now
        yield label, bars


def _writes(writes: Sequence[Write]) -> Iterator[_Row]:
    for write in writes:
        begin, end = write.prepared_at or write.from_at, write.to_at
        if begin is not None and end is not None:
            name = write.state
            yield cut_inside(name, _NAME_MAX), [("write", begin, end)]


def _axis(span: float, scale: float, height: float) -> Markup:
    step = nice_step(max(span, 1e-6), 5)
    parts = []
    for index in range(int(span / step) + 1):
        x = f"{_LEFT + index * step * scale:.1f}"
        parts.append(tag("line", class_="grid", x1=x, x2=x, y1=_AXIS - 6, y2=height))
        parts.append(tag("text", duration(index * step) if index else "0", x=x, y=12, text_anchor="middle"))
    return tag("g", parts)
