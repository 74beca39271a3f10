"""Line plots: axes, gaps, the table beside."""

import itertools
import re

import pytest

from txtopo.ui.markup.plots import Plot, exact, nice_step, short


def paths(plot: Plot) -> list[str]:
    return re.findall(r'<path class="line [^"]*" d="([^"]*)"', plot.figure())


def test_axis_begins_at_zero_and_ends_at_a_round_number():
    """Values up to 7 have an axis of 0, 2, 4, 6, 8."""
    figure = Plot("rate", "/s", [0, 1], {"a": [0, 7]}).figure()
    assert re.findall(r"text-anchor=\"end\">([\d.]+)<", figure) == ["0", "2", "4", "6", "8"]


@pytest.mark.parametrize(("top", "steps", "step"), [(7, 4, 2), (0.3, 3, 0.1), (1000, 4, 500), (1e-6, 4, 5e-7)])
def test_nice_step(top, steps, step):
    """It is 1, 2 or 5 times a power of ten, and there are not too many of them."""
    assert nice_step(top, steps) == pytest.approx(step)


def test_gap():
    """A line is interrupted where a run was down, but not by a second that a busy machine missed."""
    busy = Plot("rate", "", list(range(10)), {"a": [1, 2, None, 3, 4, 5, 6, 7, 8, 9]})
    assert paths(busy)[0].count("M") == 1
    down = Plot("rate", "", list(range(20)), {"a": [1.0] * 5 + [None] * 10 + [2.0] * 5})
    assert paths(down)[0].count("M") == 2


@pytest.mark.parametrize("line", [[0.0, 0.0], [None, 5.0], [5.0, None]])
def test_few_values(line):
    """Zeros, or a single value, are drawn, too."""
    assert len(paths(Plot("rate", "", [0, 1], {"a": line}))) == 1


@pytest.mark.parametrize("seconds", [[], [0, 1]])
def test_no_values(seconds):
    """A plot without values says so."""
    assert "nothing measured yet" in Plot("rate", "", seconds, {"a": [None] * len(seconds)}).figure()


def test_table_has_the_newest_numbers_first():
    """Every line has a column, and what was not measured is empty."""
    figure = Plot("rate", "/s", [60, 61], {"a": [1234.5, 2], "b": [None, 0.25]}).figure()
    rows = re.findall(r"<tr>(.*?)</tr>", figure)
    cells = [re.sub("<[^>]*>", " ", row).split() for row in rows]
    assert cells == [["UTC", "a", "b"], ["00:01:01", "2", "0.25"], ["00:01:00", "1,234.5"]]


def test_numbers():
    """They are short in the picture and exact in the table."""
    assert [short(n) for n in (None, 0, 0.123, 42.95, 498.24, 1234, 12_345, 2.5e6, 3e9)] == [
        "\N{EN DASH}", "0", "0.12", "43", "498", "1,234", "12.3 k", "2.5 M", "3 G",
    ]  # fmt: skip
    assert [exact(n) for n in (None, 3.0, 1234.56, 0.12345)] == ["", "3", "1,234.6", "0.123"]


def test_an_hour_in_steps():
    """Values twelve seconds apart are one line."""
    assert paths(Plot("rate", "", list(range(0, 3600, 12)), {"a": [1.0] * 300}))[0].count("M") == 1


def test_negative_values():
    """The axis goes below 0 where the values do."""
    plot = Plot("degrees", "", [0, 1, 2], {"a": [-5.0, 0.0, 3.0]})
    assert re.findall(r"text-anchor=\"end\">([-\d.]+)<", plot.figure()) == ["-6", "-4", "-2", "0", "2", "4"]
    heights = [float(y) for y in re.findall(r"[ML][\d.]+ ([\d.]+)", paths(plot)[0])]
    assert sorted(set(heights), reverse=True) == list(dict.fromkeys(heights))


ODD = (0.0, -0.0, 5e-324, -5e-324, 1e-300, -1.0, 1e15, 1.7e308, -1.7e308, None)


@pytest.mark.parametrize(("first", "second"), itertools.product(ODD, ODD))
def test_any_finite_values(first, second):
    """They lie within the picture."""
    drawn = paths(Plot("", "", [0, 1], {"a": [first, second]})) if (first, second) != (None, None) else []
    for y in map(float, re.findall(r"[ML][\d.]+ ([^LM]+)", "".join(drawn))):
        assert 0 <= y <= 160
