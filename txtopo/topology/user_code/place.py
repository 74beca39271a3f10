"""A line of the user's code, which errors name."""

from __future__ import annotations

import linecache
import os
import re
import sys
import sysconfig
from pathlib import Path
from types import CodeType, TracebackType

import attrs

import txtopo
from txtopo.errors import RuleError, TopologyError

_PACKAGES = Path(txtopo.__file__).parents[1]

_OWN = tuple(f"{_PACKAGES / name}{os.sep}" for name in ("txtopo", "committers", "spouts", "state"))
"""The folders of txtopo's code."""

_LIBRARY = f"{sysconfig.get_path('stdlib')}{os.sep}"


def _is_users(code: CodeType) -> bool:
    """Whether some code is neither txtopo's, nor of attrs or imports, which have no file, nor Python's own."""
    file = code.co_filename
    if file.startswith(_LIBRARY):
        return "-packages" in file and not file.startswith(_OWN)
    return not file.startswith((*_OWN, "<attrs generated", "<frozen "))


@attrs.frozen
class Place:
    """A line of the user's code."""

    file: str
    line: int

    @staticmethod
    def here() -> Place:
        """Return the line of the user's code that is being run."""
        frame = sys._getframe(1)  # noqa: SLF001 - the one way to the caller's line
        while frame.f_back is not None and not _is_users(frame.f_code):
            frame = frame.f_back
        return Place(frame.f_code.co_filename, frame.f_lineno)

    @staticmethod
    def of(error: BaseException) -> Place | None:
        """Return the innermost line of the user's code that has led to an error; None if there is none."""
        step = _innermost(error)
        return None if step is None else Place(step.tb_frame.f_code.co_filename, step.tb_lineno)

    def __str__(self) -> str:
        return f"{Path(self.file).name}, line {self.line}"

    @property
    def text(self) -> str:
        """What is written there."""
        return linecache.getline(self.file, self.line).strip()

    def says(self, mistake: str) -> TopologyError:
        """Return the error about a mistake of this line."""
        return TopologyError(f"{self}: {mistake}" + (f"\n    {self.text}" if self.text else ""))


def locate(error: RuleError) -> None:
    """Let an error of a constructor, such as a window's or a spout's, name the user's line, as those of steps do."""
    step, place = _innermost(error), Place.of(error)
    if step is None or place is None or is_located(error):
        return
    if step.tb_next is None or step.tb_next.tb_frame.f_code.co_name != "build":
        error.message = place.says(error.message).message


def is_located(error: RuleError) -> bool:
    """Whether an error names the user's line already."""
    return re.match(r"\S+, line \d+: ", error.message) is not None


def _innermost(error: BaseException) -> TracebackType | None:
    """Return the innermost step of an error's traceback that is in the user's code."""
    step, innermost = error.__traceback__, None
    while step is not None:
        innermost = step if _is_users(step.tb_frame.f_code) else innermost
        step = step.tb_next
    return innermost
