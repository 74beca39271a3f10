"""Where a step was written: a mistake is reported with the user's line."""

from __future__ import annotations

import functools
import linecache
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import attrs

import txtopo
from txtopo.api.arguments import checked_arguments
from txtopo.errors import RuleError, TopologyError

_F = TypeVar("_F", bound=Callable[..., Any])

_OWN = str(Path(txtopo.__file__).parent)
"""The folder of txtopo's own code."""

_OF_ATTRS = "<attrs generated"
"""How attrs names the code of classes."""

_SAID = {"__init__": "Flow", "__getitem__": "stream[…]"}
"""What errors call methods that users call by other words."""


@attrs.frozen
class Place:
    """A line of the user's code."""

    file: str
    line: int

    @staticmethod
    def here() -> Place:
        """Return the line of the user's code that is being run."""
        frame = sys._getframe(1)  # noqa: SLF001 - the one way to the caller's line
        while frame.f_back is not None and frame.f_code.co_filename.startswith((_OWN, _OF_ATTRS)):
            frame = frame.f_back
        return Place(frame.f_code.co_filename, frame.f_lineno)

    def __str__(self) -> str:
        return f"{Path(self.file).name}, line {self.line}"

    @property
    def text(self) -> str:
        """What is written there."""
        return linecache.getline(self.file, self.line).strip()

    def says(self, mistake: str) -> TopologyError:
        """Return the error about a mistake of this line."""
        return TopologyError(f"{self}: {mistake}" + (f"\n    {self.text}" if self.text else ""))


def step(function: _F) -> _F:
    """Let a method that users call report mistakes with their line, and refuse arguments of other types."""
    checked = checked_arguments(function)

    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        try:
            return checked(*arguments, **named)
        except RuleError as error:
            place = Place.here()
            if str(error).startswith(str(place)):  # it was reported by a step that this one is made of
                raise
            raise place.says(f"{_SAID.get(function.__name__, function.__name__)}: {error}") from error

    return call  # type: ignore[return-value] # it is called like the function
