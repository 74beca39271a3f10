"""Line plots as SVG, drawn by the server: no script; the colours are the page's; a table of the numbers beside each."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator, Mapping, Sequence

import attrs

from txtopo.text.words import UNKNOWN
from txtopo.ui.markup.elements import Markup, joined, tag

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 420, 160, 50, 10, 8, 22
_STEPS = 4
_TIMES = 4
_COLOURS = 6
"""The colours of lines in the page's style sheet; the seventh line has the first colour again, dashed."""
_TABLE_ROWS = 12
_NEW = 3
_GAP_SECS, _GAP_STEPS = 5, 2.5
"""A longer time without values interrupts a line; a busy machine may miss a sample."""
_HUGE = 1e300
"""What is further from 0 is drawn at this; and what is all nearer to 0 than its inverse, as 0."""
_TINY = 1e-9
"""Of a division's result: 0.3 / 0.1 is not quite 3."""

Line = Sequence[float | None]
"""Values in the order of time; None where nothing was measured."""


@attrs.frozen
class Plot:
    """A line plot: what it shows, in which unit, and its lines by name.

    ``seconds`` are the times of the values, in seconds since 1970, rising; each line has a value for each of them.
    ``of`` is how many lines there are, if these are but the largest; ``key`` tells plots of the same title apart.
    """

    title: str
    unit: str
    seconds: Sequence[int]
    lines: Mapping[str, Line]
    of: int = 0
    key: str = ""

    def figure(self) -> Markup:
        """Return the SVG with its key, which has the last values, and a table with the last numbers."""
        caption = tag("figcaption", self.title, self.unit and joined(" ", tag("span", self.unit, class_="unit")))
        key = self.key or self.title
        if all(value is None for line in self.lines.values() for value in line):
            return tag("figure", caption, tag("p", "nothing measured yet", class_="none"), data_key=key)
        table = tag("details", tag("summary", "as a table"), tag("div", self._table(), class_="wide"))
        left_out = self.of > len(self.lines) and tag("p", f"the {len(self.lines)} largest of {self.of}", class_="about")
        return tag("figure", caption, left_out, self._key(), self._svg(), table, data_key=key)

    def _key(self) -> Markup:
        items = (
            tag("li", tag("span", class_=f"swatch {_style(number)}"), name, " ", tag("b", short(_last(line))))
            for number, (name, line) in enumerate(self.lines.items())
        )
        return tag("ul", items, class_="key")

    def _svg(self) -> Markup:
        scale = _Scale.of([value for line in self.lines.values() for value in line if value is not None])
        label = f"{self.title}, in {self.unit}" if self.unit else self.title
        parts = [*scale.rows(), *self._times(), *self._paths(scale)]
        return tag("svg", parts, viewBox=f"0 0 {_WIDTH} {_HEIGHT}", role="img", aria_label=label)

    def _times(self) -> Iterator[Markup]:
        first, span = self.seconds[0], self.seconds[-1] - self.seconds[0]
        for part in range(_TIMES if span else 1):
            x = _LEFT + (_WIDTH - _LEFT - _RIGHT) * part / (_TIMES - 1)
            anchor = {0: "start", _TIMES - 1: "end"}.get(part, "middle")
            label = clock(round(first + span * part / (_TIMES - 1)))
            yield tag("text", label, x=f"{x:.1f}", y=_HEIGHT - 5, text_anchor=anchor)

    def _paths(self, scale: _Scale) -> Iterator[Markup]:
        gap = max(_GAP_SECS, _GAP_STEPS * (self.seconds[-1] - self.seconds[0]) / max(len(self.seconds) - 1, 1))
        for number, line in enumerate(self.lines.values()):
            path, before = "", -math.inf
            for at, value in enumerate(line):
                if value is not None:
                    x, y = self._x(at), scale.y(value)
                    # Round caps make a dot of a line without length: a value between two gaps shows, too.
                    path += f"{f'M{x:.1f} {y:.1f}' if self.seconds[at] - before > gap else ''}L{x:.1f} {y:.1f}"
                    before = self.seconds[at]
            yield tag("path", class_=f"line {_style(number)}", d=path)

    def _x(self, at: int) -> float:
        """By time, not by number: a run that was down for a minute leaves a minute's gap."""
        span = max(self.seconds[-1] - self.seconds[0], 1)
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * (self.seconds[at] - self.seconds[0]) / span

    def _table(self) -> Markup:
        heads = tag("tr", tag("th", "UTC", scope="col"), (tag("th", name, scope="col") for name in self.lines))
        rows = (
            tag(
                "tr",
                tag("th", clock(self.seconds[at]), scope="row"),
                (tag("td", exact(line[at])) for line in self.lines.values()),
            )
            for at in reversed(range(max(0, len(self.seconds) - _TABLE_ROWS), len(self.seconds)))
        )
        return tag("table", tag("thead", heads), tag("tbody", rows), class_="numbers")


@attrs.frozen
class _Scale:
    """The axis of values: from so many steps below 0 to so many above."""

    step: float
    below: int
    above: int

    @classmethod
    def of(cls, values: Sequence[float]) -> _Scale:
        most, least = (min(max(value, -_HUGE), _HUGE) for value in (max(0.0, *values), min(0.0, *values)))
        step = nice_step(most - least if most - least > 1 / _HUGE else 1.0, _STEPS)
        below, above = (math.ceil(value / step - _TINY) for value in (-least, most))
        return cls(step, below, above if below else max(above, 1))

    def rows(self) -> Iterator[Markup]:
        for index in range(-self.below, self.above + 1):
            y = self.y(index * self.step)
            yield tag("line", class_="grid", x1=_LEFT, x2=_WIDTH - _RIGHT, y1=f"{y:.1f}", y2=f"{y:.1f}")
            yield tag("text", short(index * self.step), x=_LEFT - 6, y=f"{y + 4:.1f}", text_anchor="end")

    def y(self, value: float) -> float:
        steps = min(max(value / self.step, -self.below), self.above) + self.below
        return _HEIGHT - _BOTTOM - (_HEIGHT - _BOTTOM - _TOP) * steps / (self.below + self.above)


def _style(number: int) -> str:
    return f"l{number % _COLOURS}" + (" dashed" if number >= _COLOURS else "")


def _last(line: Line) -> float | None:
    """The newest value; the seconds that run have often none yet."""
    return next((value for value in reversed(line[-_NEW:]) if value is not None), None)


def nice_step(top: float, steps: int) -> float:
    """Return the smallest of 1, 2, 5 times a power of 10 that divides an axis up to ``top`` into at most ``steps``."""
    raw = top / steps
    power = 10.0 ** math.floor(math.log10(raw))
    return next(power * digit for digit in (1, 2, 5, 10) if power * digit >= raw * (1 - _TINY))


def short(value: float | None) -> str:
    """Return a number in at most six characters, as 12.3 k; a dash for None."""
    if value is None:
        return UNKNOWN
    for least, unit, name in ((1e12, 1e12, "T"), (1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k")):
        if abs(value) >= least:
            return f"{value / unit:.3g} {name}"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}" if abs(value) >= 1 else f"{value:.2g}"  # noqa: PLR2004


def exact(value: float | None) -> str:
    """Return a number with its thousands, and a few decimal places if it is no whole one; nothing for None."""
    if value is None:
        return ""
    if float(value).is_integer():
        return f"{value:,.0f}"
    return f"{value:,.1f}" if abs(value) >= 10 else f"{value:.3g}"  # noqa: PLR2004 - three digits either way


def clock(seconds: float) -> str:
    """Return the time of day in UTC."""
    return f"{dt.datetime.fromtimestamp(seconds, dt.UTC):%H:%M:%S}"
