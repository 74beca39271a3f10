"""``--set``: what is a parameter, what a setting, and how a text becomes a value."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from txtopo.cli.command import CommandLineError
from txtopo.cli.settings import convert, divide, parse_pairs
from txtopo.config import Config
from txtopo.errors import ConfigError


def make(input: str | None = None, parallelism: int = 4, rate: float = 1.0, *, strict: bool = False):
    """Stand for a function that makes a topology."""


def parameter(annotation, default=inspect.Parameter.empty):
    return inspect.Parameter("p", inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


@pytest.mark.parametrize(
    ("text", "annotation", "expected"),
    [
        ("7", int, 7),
        ("0.5", float, 0.5),
        ("7", float, 7.0),
        ("true", bool, True),
        ("off", bool, False),
        ("a/b", Path, Path("a/b")),
        ("none", str, "none"),
        ("none", str | None, "none"),
        ("none", int | None, None),
        ("", Path | None, None),
        ("3", int | None, 3),
        ("x", inspect.Parameter.empty, "x"),
        ("1", inspect.Parameter.empty, "1"),
    ],
)
def test_a_text_becomes_what_the_parameter_is_annotated_with(text, annotation, expected):
    """Each type that can be set takes its texts."""
    actual = convert(text, parameter(annotation))
    assert (type(actual), actual) == (type(expected), expected)


def test_without_annotation_the_type_of_the_default_counts():
    """``def topology(n=3)`` takes whole numbers."""
    assert convert("4", parameter(inspect.Parameter.empty, 3)) == 4


@pytest.mark.parametrize(("text", "annotation"), [("x", int), ("2", bool), ("1,5", float | None)])
def test_a_text_that_does_not_fit_is_refused_with_the_type(text, annotation):
    """A misfit names the parameter, the text and the type."""
    with pytest.raises(ConfigError, match=rf"p is '{text}'; it must be of type (int|bool|float)"):
        convert(text, parameter(annotation))


def test_parameters_and_settings_are_told_apart():
    """A name that the function takes is its parameter, any other is a setting, and wins over defaults."""
    values = parse_pairs(
        ["parallelism=2", "strict=yes", "max_spout_pending=8", "spark.x.y=1", "topology.layout=spread"]
    )
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
    with pytest.raises(ConfigError, match="give --set table=…"):
        divide({}, lambda table: table, Config())


def test_a_pair_needs_an_equals_sign_and_may_hold_more():
    """Only the first ``=`` divides; the last one of a name counts."""
    assert parse_pairs(["a=1", "a=b=c"]) == {"a": "b=c"}
    with pytest.raises(CommandLineError, match="--set takes name=value, not 'a'"):
        parse_pairs(["a"])
