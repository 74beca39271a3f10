"""Reports errors of user code on DataFrames: Spark's exceptions in one line, with the place in the user's code.

``read`` and ``transform`` run in the driver. The Python functions that they pass to Spark SQL run in its tasks, and
only the text of an exception comes back from there.
"""

from __future__ import annotations

import inspect
import sys
import traceback
from collections.abc import Iterable
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from txtopo.errors import FailedException, UserCodeError
from txtopo.spark.errors import Frame, in_library, line_that_matters, python_error
from txtopo.topology.plans.plan import Plan
from txtopo.topology.user_code.blame import user_code
from txtopo.transactional.jobs.stage_run import Job
from txtopo.transactional.tasks.state_handle import attempt_origin

_OURS = ("/txtopo/spark/", "/txtopo/transactional/", "/txtopo/columnar/")
"""Code of txtopo that runs in the tasks of Spark SQL. Exceptions of user code that it calls come back as reports."""

_OF_CONNECTIONS = frozenset({"EOFError", "BrokenPipeError", "ConnectionResetError"})
"""Exceptions that a function also gets while it reads its input, when Spark closes the connection."""


class dataframe_code(user_code):  # noqa: N801 - it is used like a function: with dataframe_code(…)
    """A context for ``read`` or ``transform``; see :class:`user_code`. Spark's exception becomes ``__cause__``."""

    def __exit__(self, _kind: object, error: BaseException | None, *_: object) -> None:
        """Replace the text of Spark's exception by its relevant line."""
        try:
            super().__exit__(None, error)
        except UserCodeError as wrong:
            if not isinstance(error, (PySparkException, Py4JError)):
                raise
            frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not in_library(frame.filename)]
            place = f" ({frames[-1].filename}, line {frames[-1].lineno}, in {frames[-1].name})" if frames else ""
            wrong.message = f"{type(error).__name__}: {line_that_matters(str(error))}{place}"
            wrong.cause = None
            raise wrong from error


def error_of_function(text: str, plan: Plan, job: Job) -> UserCodeError | None:
    """Return the error of a user's function that Spark SQL called in a task; every replay would raise it again.

    None if the job was lost for another reason, or if the function raised FailedException to get a replay.
    """
    error = python_error(text)
    if error is None or error.is_of_spark or any(part in frame.file for frame in error.frames for part in _OURS):
        return None
    name = error.raised.partition(":")[0]
    if name in _OF_CONNECTIONS or _is_failed_exception(name):
        return None
    owner = _owner(error.frames, plan)
    origin: dict[str, Any] = {"component": owner}
    if owner is not None and len(job.attempts) == 1:  # of several, nothing says which the row was from
        origin = attempt_origin(owner, job.attempts[0].attempt)
    return UserCodeError(f"{error}; raise FailedException to have a transaction replayed", **origin)


def _is_failed_exception(name: str) -> bool:
    """Return whether a name in a traceback is that of FailedException or a subclass, perhaps the user's own."""
    parts = name.split(".")
    for length in range(len(parts)):
        module: Any = sys.modules.get(".".join(parts[:length]) or "__main__")  # a traceback leaves __main__ out
        for part in parts[length:]:
            module = getattr(module, part, None)
        if isinstance(module, type) and issubclass(module, FailedException):
            return True
    return False


def _owner(frames: Iterable[Frame], plan: Plan) -> str | None:
    """Return the component whose class contains the code, or the only DataFrame component; None if unknown."""
    components = plan.dataframes
    if len(components) == 1:
        return components[0].id
    owners = {
        component.id
        for component in components
        for kind in type(component.component).__mro__
        for frame in frames
        if _is_within(frame, kind)
    }
    return owners.pop() if len(owners) == 1 else None


def _is_within(frame: Frame, kind: type) -> bool:
    try:
        if inspect.getsourcefile(kind) != frame.file:
            return False
        lines, first = inspect.getsourcelines(kind)
    except (OSError, TypeError):  # the class has no source file here
        return False
    return first <= frame.line < first + len(lines)
