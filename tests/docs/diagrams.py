"""Diagrams of the documentation, drawn as SVG: ``python -m tests.docs.diagrams`` writes them to ``docs/diagrams``.

The states of a transaction are drawn from the table of transitions: boxes and arrows are laid out by hand here, and
a state or transition without a place, or a place without one, is an error. The chart of figures is drawn from the
history of benchmarks; the diagram of event time is computed from the orders of the guide. Nothing but Python is needed.
"""

import math
import pathlib
import statistics
from collections.abc import Mapping, Sequence
from html import escape

import attrs

from tests.harness.benchmarks.history import DELTA_RS, MERGE, TXTOPO, all_rounds, history, latency_ratios, small_rates
from txtopo.transactional.core.transitions import TRANSITIONS, Status, Trigger

DOCS = pathlib.Path(__file__).parents[2] / "docs"
FOLDER = DOCS / "diagrams"

Point = tuple[int, int]

_INK, _PAPER, _FILL, _DONE, _BAD = "#24292f", "#ffffff", "#dbeafe", "#dcfce7", "#fee2e2"


@attrs.frozen
class Box:
    """A box: its left upper corner, its size, and in its middle its lines, the first one bold."""

    x: int
    y: int
    width: int
    height: int
    lines: tuple[str, ...]
    fill: str = _FILL

    def svg(self) -> list[str]:
        """Return its elements."""
        middle = self.x + self.width // 2
        top = self.y + self.height // 2 - 9 * (len(self.lines) - 1) + 5
        drawn = [
            (
                f'<rect x="{self.x}" y="{self.y}" width="{self.width}" height="{self.height}" rx="6" '
                f'fill="{self.fill}" stroke="{_INK}"/>'
            )
        ]
        for index, line in enumerate(self.lines):
            weight = ' font-weight="bold"' if index == 0 else ""
            drawn.append(
                f'<text x="{middle}" y="{top + 18 * index}" text-anchor="middle"{weight}>{escape(line)}</text>'
            )
        return drawn


@attrs.frozen
class Arrow:
    """An arrow along some points, and where its label begins, is centred or ends."""

    points: tuple[Point, ...]
    label: str = ""
    at: Point = (0, 0)
    anchor: str = "middle"

    def svg(self) -> list[str]:
        """Return its elements."""
        points = " ".join(f"{x},{y}" for x, y in self.points)
        drawn = [f'<polyline points="{points}" fill="none" stroke="{_INK}" marker-end="url(#tip)"/>']
        if self.label:
            x, y = self.at
            drawn.append(
                f'<text x="{x}" y="{y}" text-anchor="{self.anchor}" font-size="12">{escape(self.label)}</text>'
            )
        return drawn


@attrs.frozen
class Label:
    """A text, and where its line begins, is centred or ends."""

    x: int
    y: int
    text: str
    anchor: str = "start"
    is_bold: bool = False
    size: int = 13

    def svg(self) -> list[str]:
        """Return its element."""
        weight = ' font-weight="bold"' if self.is_bold else ""
        start = f'<text x="{self.x}" y="{self.y}" text-anchor="{self.anchor}" font-size="{self.size}"{weight}>'
        return [f"{start}{escape(self.text)}</text>"]


@attrs.frozen
class Dot:
    """An event."""

    x: int
    y: int
    fill: str

    def svg(self) -> list[str]:
        """Return its element."""
        return [f'<circle cx="{self.x}" cy="{self.y}" r="7" fill="{self.fill}" stroke="{_INK}"/>']


@attrs.frozen
class Line:
    """A line along some points; ``dashes`` are lengths of strokes and gaps."""

    points: tuple[Point, ...]
    stroke: str
    width: int = 1
    dashes: str = "none"

    def svg(self) -> list[str]:
        """Return its element."""
        points = " ".join(f"{x},{y}" for x, y in self.points)
        look = f'stroke="{self.stroke}" stroke-width="{self.width}" stroke-dasharray="{self.dashes}"'
        return [f'<polyline points="{points}" fill="none" {look}/>']


def drawing(title: str, width: int, height: int, parts: Sequence[Box | Arrow | Label | Dot | Line]) -> str:
    """Return an SVG file of some parts."""
    lines = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
            f'role="img" font-family="sans-serif" font-size="13" fill="{_INK}">'
        ),
        f"<title>{escape(title)}</title>",
        (
            '<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" orient="auto">'
            f'<path d="M0,0 L10,5 L0,10 z" fill="{_INK}"/></marker></defs>'
        ),
        f'<rect width="{width}" height="{height}" rx="8" fill="{_PAPER}"/>',
        *(line for part in parts for line in part.svg()),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


_BOXES: Mapping[Status, tuple[int, int, str]] = {
    Status.READY: (30, 120, _FILL),
    Status.PROCESSING: (230, 120, _FILL),
    Status.PROCESSED: (430, 120, _FILL),
    Status.COMMITTING: (630, 120, _FILL),
    Status.COMMITTED: (830, 120, _DONE),
    Status.DEAD: (30, 320, _BAD),
    Status.WRITING_DEAD_LETTER: (430, 320, _BAD),
}
"""Where the box of each state stands: its left upper corner."""

_WIDTH, _HEIGHT = 120, 44

_ARROWS: Mapping[tuple[Status, Trigger], tuple[tuple[Point, ...], Point, str]] = {
    (Status.READY, Trigger.START): (((150, 142), (230, 142)), (190, 136), "middle"),
    (Status.PROCESSING, Trigger.PROCESSED): (((350, 142), (430, 142)), (390, 136), "middle"),
    (Status.PROCESSED, Trigger.COMMIT): (((550, 134), (630, 134)), (590, 128), "middle"),
    (Status.COMMITTING, Trigger.RETURN): (((630, 152), (550, 152)), (590, 168), "middle"),
    (Status.COMMITTING, Trigger.COMMITTED): (((750, 142), (830, 142)), (790, 136), "middle"),
    (Status.PROCESSING, Trigger.FAIL): (((290, 164), (290, 200), (130, 200), (130, 164)), (210, 195), "middle"),
    (Status.PROCESSED, Trigger.FAIL): (((490, 164), (490, 230), (110, 230), (110, 164)), (390, 225), "middle"),
    (Status.COMMITTING, Trigger.FAIL): (((690, 164), (690, 260), (90, 260), (90, 164)), (590, 255), "middle"),
    (Status.READY, Trigger.GIVE_UP): (((50, 164), (50, 320)), (44, 310), "end"),
    (Status.DEAD, Trigger.WRITE_DEAD_LETTER): (((150, 330), (430, 330)), (290, 324), "middle"),
    (Status.WRITING_DEAD_LETTER, Trigger.FAIL): (((430, 342), (150, 342)), (290, 356), "middle"),
    (Status.WRITING_DEAD_LETTER, Trigger.RETURN): (
        ((450, 364), (450, 386), (90, 386), (90, 364)),
        (290, 381),
        "middle",
    ),
    (Status.WRITING_DEAD_LETTER, Trigger.COMMITTED): (((550, 342), (890, 342), (890, 164)), (720, 336), "middle"),
    (Status.PROCESSING, Trigger.ROLL_BACK): (((290, 120), (290, 84), (130, 84), (130, 120)), (210, 79), "middle"),
    (Status.PROCESSED, Trigger.ROLL_BACK): (((490, 120), (490, 54), (110, 54), (110, 120)), (390, 49), "middle"),
    (Status.COMMITTING, Trigger.ROLL_BACK): (((690, 120), (690, 24), (90, 24), (90, 120)), (590, 19), "middle"),
    (Status.DEAD, Trigger.ROLL_BACK): (((70, 320), (70, 164)), (76, 310), "start"),
}
"""Along which points the arrow of each transition goes, and where its label is."""


def transaction_states() -> str:
    """Return the diagram of what can become of a transaction.

    Raises:
        ValueError: the layout and the table of transitions differ.
    """
    if set(_ARROWS) != set(TRANSITIONS) or set(_BOXES) != set(Status):
        odd = [*(set(_ARROWS) ^ set(TRANSITIONS)), *(set(_BOXES) ^ set(Status))]
        raise ValueError(f"the layout and the table of transitions differ in {odd}: lay the diagram out anew")
    boxes = [Box(x, y, _WIDTH, _HEIGHT, (status.value,), fill) for status, (x, y, fill) in _BOXES.items()]
    for (status, trigger), target in TRANSITIONS.items():
        points = _ARROWS[status, trigger][0]
        if not (_touches(status, points[0]) and _touches(target, points[-1])):
            raise ValueError(f"the arrow of {trigger} does not go from {status} to {target}: lay it out anew")
    arrows = [Arrow(points, trigger.value, at, anchor) for (_, trigger), (points, at, anchor) in _ARROWS.items()]
    return drawing("The states of a transaction", 980, 410, [*boxes, *arrows])


def _touches(status: Status, point: Point) -> bool:
    """Whether a point lies on the box of a state."""
    left, top, _ = _BOXES[status]
    return left <= point[0] <= left + _WIDTH and top <= point[1] <= top + _HEIGHT


_LEFT, _DECADE, _BAR, _SHORTEST_MS = 230, 150, 20, 1


@attrs.frozen
class Time:
    """A time in ms, known to two digits, and whether it is computed from a ratio."""

    ms: float
    is_computed: bool = False

    def shown(self) -> str:
        """Return it in words."""
        ms = round(self.ms, 1 - math.floor(math.log10(self.ms)))
        return f"{'≈ ' if self.is_computed else ''}{f'{ms / 1000:g} s' if ms >= 1000 else f'{ms:g} ms'}"


def figures() -> str:
    """Return the chart of how long a transaction takes, on a logarithmic scale."""
    entries = history()
    small = {name: 1_000 / statistics.median(rounds) for name, rounds in small_rates(entries).items()}

    visible_ms = statistics.median(all_rounds(entries, "latency", f"{TXTOPO} p50"))
    peers_ms = {peer: visible_ms * statistics.median(latency_ratios(entries, peer)) for peer in (DELTA_RS, MERGE)}
    groups = {
        "1,000 tuples a transaction: time for each, at full speed": {name: Time(ms) for name, ms in small.items()},
        "one transaction every 200 ms: from available to visible": {
            TXTOPO: Time(visible_ms),
            **{peer: Time(ms, is_computed=True) for peer, ms in peers_ms.items()},
        },
    }
    parts: list[Box | Arrow | Label] = []
    y = 34
    for title, times in groups.items():
        parts.append(Label(20, y, title, is_bold=True))
        y += 12
        for name, time in times.items():
            width = round(_DECADE * math.log10(time.ms / _SHORTEST_MS))
            fill = _DONE if name == TXTOPO else _FILL
            parts += [
                Label(_LEFT - 8, y + 15, name, anchor="end"),
                Box(_LEFT, y, width, _BAR, (), fill),
                Label(_LEFT + width + 8, y + 15, time.shown()),
            ]
            y += _BAR + 6
        y += 30
    parts.append(
        Label(20, y - 8, "Two cores. The scale is logarithmic; times with ≈ are computed from ratios.", size=12)
    )
    return drawing("How long a transaction takes", 820, y + 8, parts)


_START_X, _SECOND, _TOP, _ROW = 130, 3.6, 96, 54
"""Where 12:00 is, how wide a second is, where the first transaction begins, and how high each is."""

_EVENTS = ((10, 40), (80, 50), (100, 55), (120, 30), (150, 45))
"""The event times of the orders of each transaction, in seconds after 12:00; the guide on event time runs them."""

_DELAY, _LATENESS, _MINUTE = 30, 20, 60


def event_time() -> str:
    """Return the diagram of some transactions, the watermark after each, and what is late or closes."""
    right, bottom = _x(160), _TOP + _ROW * len(_EVENTS)
    parts: list[Box | Arrow | Label | Dot | Line] = []
    for minute in range(3):
        width = min(_x((minute + 1) * _MINUTE), right) - _x(minute * _MINUTE)
        parts.append(Box(_x(minute * _MINUTE), 44, width, 34, (f"12:0{minute} to 12:0{minute + 1}",)))
        parts.append(Line(((_x(minute * _MINUTE), 78), (_x(minute * _MINUTE), bottom)), "#d0d7de"))
    parts.append(Label(right, 30, "event time →", anchor="end"))
    before, watermark = -_DELAY, -_DELAY
    stairs: list[Point] = []
    for number, times in enumerate(_EVENTS):
        y = _TOP + _ROW * number
        watermark = max(before, max(times) - _DELAY)
        parts.append(Label(20, y + 32, f"transaction {number + 1}"))
        stairs += [(_x(before), y), (_x(before), y + _ROW), (_x(watermark), y + _ROW)]
        for time in times:
            is_late = _closes(time) <= before
            parts.append(Dot(_x(time), y + 27, _BAD if is_late else _DONE))
            if is_late:
                parts.append(Label(_x(time) + 12, y + 32, "late"))
        closed = [f"12:0{minute}" for minute in range(3) if before < _closes(minute * _MINUTE) <= watermark]
        said = [f"watermark after it {_clock(watermark)}", *(f"closes {each}" for each in closed)]
        parts += [Label(right + 16, y + 26 + 18 * line, text, is_bold=line > 0) for line, text in enumerate(said)]
        before = watermark
    stairs = [(max(x, _START_X), y) for x, y in stairs]
    shift = round(_LATENESS * _SECOND)
    parts.append(Line(tuple(stairs), "#0969da", 3))
    parts.append(Line(tuple((max(x - shift, _START_X), y) for x, y in stairs), "#cf222e", 2, "6 4"))
    parts += [
        Line(((20, bottom + 26), (60, bottom + 26)), "#0969da", 3),
        Label(68, bottom + 31, "watermark: the largest event time so far, less a delay of 30 s", size=12),
        Line(((20, bottom + 46), (60, bottom + 46)), "#cf222e", 2, "6 4"),
        Label(
            68,
            bottom + 51,
            "less a lateness of 20 s: windows that end left of it are closed, what comes for them is late",
            size=12,
        ),
    ]
    return drawing("Watermark, lateness and closing", 930, bottom + 66, parts)


def _x(second: float) -> int:
    return round(_START_X + second * _SECOND)


def _closes(time: int) -> int:
    """Return the watermark that closes the window of an event time."""
    return time // _MINUTE * _MINUTE + _MINUTE + _LATENESS


def _clock(second: int) -> str:
    return f"12:{second // 60:02}:{second % 60:02}"


DIAGRAMS = {"transaction-states.svg": transaction_states, "event-time.svg": event_time, "figures.svg": figures}
"""What draws each file."""


def main() -> None:
    """Draw all diagrams."""
    FOLDER.mkdir(exist_ok=True)
    for name, draw in DIAGRAMS.items():
        (FOLDER / name).write_text(draw(), encoding="utf-8")


if __name__ == "__main__":
    main()
