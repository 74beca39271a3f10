"""``--set``: what is a parameter, what a setting, and how a text becomes a value."""

from __future__ import annotations

import collections.abc
import enum
import inspect
import typing
from pathlib import Path

import pytest

from txtopo.config import Config
from txtopo.errors import ConfigError
from txtopo.topology.user_code.arguments import convert, divide


def make(input: str | None = None, parallelism: int = 4, rate: float = 1.0, *, strict: bool = False):
    """Stand for a function that makes a topology."""


def parameter(annotation, default=inspect.Parameter.empty):
    return inspect.Parameter("p", inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


def test_parameters_and_settings_are_told_apart():
    """A name that the function takes is its parameter, any other is a setting, and wins over defaults."""
    values = {
        "parallelism": "2",
        "strict": "yes",
        "max_spout_pending": "8",
        "spark.x.y": "1",
        "topology.layout": "spread",
    }
    given = divide(values, make, Config(max_spout_pending=32, jobs_in_flight_max=3))
    assert given.arguments == {"parallelism": 2, "strict": True}
    assert (given.config.max_spout_pending, given.config.jobs_in_flight_max) == (8, 3)
    assert (given.config.layout, given.config.spark) == ("spread", {"spark.x.y": "1"})


def test_an_unknown_name_is_refused_with_what_there_is():
    """The nearest right name is named: a parameter of the function, or else a setting and all parameters."""
    with pytest.raises(ConfigError) as caught:
        divide({"paralelism": "2"}, make, Config())
    assert str(caught.value) == "there is no setting or parameter 'paralelism'; did you mean 'parallelism'?"
    with pytest.raises(ConfigError) as caught:
        divide({"max_spout_pendin": "2"}, make, Config())
    assert "did you mean 'max_spout_pending'?" in str(caught.value)
    assert str(caught.value).endswith("the parameters of the topology are 'input', 'parallelism', 'rate', 'strict'")


def test_a_parameter_without_default_must_be_given():
    """The message says how."""
    with pytest.raises(ConfigError, match="add --set table=…"):
        divide({}, lambda table: table, Config())


class Color(enum.Enum):
    RED = "r"
    BLUE = "b"


@pytest.mark.parametrize(
    ("text", "annotation", "default", "expected"),
    [
        ("7", int, None, 7),
        ("0.5", float, None, 0.5),
        ("7", float, None, 7.0),
        ("true", bool, None, True),
        ("off", bool, None, False),
        ("a/b", Path, None, Path("a/b")),
        ("none", str, None, "none"),
        ("none", str | None, None, "none"),
        ("none", int | None, None, None),
        ("", Path | None, None, None),
        ("3", int | None, None, 3),
        ("1", inspect.Parameter.empty, inspect.Parameter.empty, "1"),
        ("4", inspect.Parameter.empty, 3, 4),
        ("1,2", list[int], None, [1, 2]),
        ("", list[int], None, []),
        ("a, b", tuple[str, ...], None, ("a", "b")),
        ("a,1", tuple[str, int], None, ("a", 1)),
        ("1.5,2", collections.abc.Sequence[float], None, [1.5, 2.0]),
        ("b", typing.Literal["a", "b"], None, "b"),
        ("2", typing.Literal[1, 2], None, 2),
        ("blue", Color, None, Color.BLUE),
        ("7", typing.Annotated[int, "every"], None, 7),
        ("7", int | str, None, 7),
        ("x", int | str, None, "x"),
        ("7", typing.Any, None, "7"),
        ("7", inspect.Parameter.empty, None, "7"),
        ("1,2", inspect.Parameter.empty, [3], [1, 2]),
        ("off", inspect.Parameter.empty, True, False),
        ("a/b", inspect.Parameter.empty, Path("x"), Path("a/b")),
        ("red", inspect.Parameter.empty, Color.BLUE, Color.RED),
    ],
)
def test_a_text_becomes_what_the_parameter_is_annotated_with(text, annotation, default, expected):
    """Each type that can be set takes its texts; a list is written with commas; without annotation the default counts."""
    actual = convert(text, parameter(annotation, default))
    assert (type(actual), actual) == (type(expected), expected)


@pytest.mark.parametrize(
    ("text", "annotation", "expected"),
    [
        ("x", int, "p is 'x'; it must be of type int"),
        ("1,5", float | None, "p is '1,5'; it must be of type float or none"),
        ("1,x", list[int], "p is '1,x'; it must be of type list[int]"),
        ("1", tuple[str, int], "p is '1'; it must be of type tuple[str, int]"),
        ("c", typing.Literal["a", "b"], "p is 'c'; it must be of type 'a' or 'b'"),
        ("x", int | None, "p is 'x'; it must be of type int or none"),
        ("maybe", bool, "p is 'maybe'; it must be of type bool: true or false"),
        ("green", Color, "p is 'green'; it must be of type Color: RED, BLUE"),
        (
            "x",
            dict[str, int],
            (
                "p is of type dict[str, int], which --set can't make from a text; "
                "let the function take a string or a number and convert it"
            ),
        ),
    ],
)
def test_a_misfit_names_the_type_that_is_expected(text, annotation, expected):
    """Nothing that Python itself says of the text is shown."""
    with pytest.raises(ConfigError) as caught:
        convert(text, parameter(annotation))
    assert str(caught.value) == expected


def test_an_annotation_for_type_checkers_only_spoils_no_other() -> None:
    """Each annotation is looked at by itself: what can't be told has the type of its default."""

    def function(every: int, frame: Unknown = None, rate: Missing = 1.5): ...  # noqa: F821

    given = divide({"every": "7", "frame": "x", "rate": "2"}, function, Config())
    assert given.arguments == {"every": 7, "frame": "x", "rate": 2.0}
