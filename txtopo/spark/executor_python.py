"""The executors' Python: what a lost job tells of it when no other job could do better.

A job that is lost is run again, for most are lost with an executor. One whose tasks can't even start is lost for
ever: there the run ends, and says what to do.
"""

from __future__ import annotations

import re

import attrs

from txtopo.errors import ConfigError


@attrs.frozen
class _Symptom:
    """What tells of a cause, and what to say then, with what the pattern's groups have found."""

    pattern: re.Pattern[str]
    remedy: str


_SYMPTOMS = (
    _Symptom(
        re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'"),
        "the executors' Python can't import {0!r}: if it is a package that is installed here, install it there, or "
        "bring it with spark.archives; if it is your own, it must be sources (.py) that are imported before the run",
    ),
    _Symptom(
        re.compile(r"PYTHON_VERSION_MISMATCH\D*(\d+\.\d+)\D+(\d+\.\d+)"),
        "the executors run Python {0}, and the driver {1}: set PYSPARK_PYTHON to a Python of the driver's minor "
        "version that the executors have",
    ),
    _Symptom(
        re.compile(r'Cannot run program "([^"]*)".*No such file'),
        "the executors have no Python at {0}: set PYSPARK_PYTHON to where they have one",
    ),
)


def error_in(text: str) -> ConfigError | None:
    """Return what is wrong with the executors' Python, if the text of a lost job tells so."""
    for symptom in _SYMPTOMS:
        found = symptom.pattern.search(text)
        if found is not None:
            return ConfigError(symptom.remedy.format(*found.groups()))
    return None
