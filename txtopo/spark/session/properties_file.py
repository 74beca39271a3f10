"""Hands a session's settings to Spark's JVM in a file: everybody on the machine can read its command line.

PySpark passes each setting, even the keys of a store, as ``--conf NAME=VALUE`` to the JVM that it starts. So txtopo
starts the JVM before PySpark has any setting, with ``--properties-file``. Only its owner can read the file, which is
removed once the JVM has read it. With this option Spark does not read ``spark-defaults.conf``, so the file begins with
the content of that one. As before, a session's settings win over those defaults, and options in PYSPARK_SUBMIT_ARGS
over both.

The JVM gets a separate process group. A SIGTERM to the group of this process, as a shell or a service manager sends
it, would end the JVM first, and no work under way could finish. The JVM ends by itself when this process is gone and
its standard input closes.
"""

from __future__ import annotations

import os
import shlex
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from pyspark import SparkContext
from pyspark.find_spark_home import _find_spark_home
from pyspark.java_gateway import launch_gateway

_ARGUMENTS = "PYSPARK_SUBMIT_ARGS"
_OPTION = "--properties-file"
_SHELL = "pyspark-shell"
_ESCAPED = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"}


def start_jvm(settings: Mapping[str, str]) -> None:
    """Start the JVM with the settings of a session, unless it runs already: a process has one."""
    if SparkContext._gateway is not None:  # noqa: SLF001 - no other way to know, nor to start it
        return
    before = os.environ.get(_ARGUMENTS)
    arguments, defaults = _without_option(shlex.split(before or _SHELL))
    descriptor, path = tempfile.mkstemp(prefix="txtopo-", suffix=".conf")  # readable by its owner only
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(properties(settings, _content(defaults)))
        os.environ[_ARGUMENTS] = shlex.join([_OPTION, path, *arguments])
        gateway = launch_gateway(popen_kwargs={"process_group": 0})
        SparkContext._ensure_initialized(gateway=gateway)  # noqa: SLF001 - as above
    finally:
        # launch_gateway returns once the JVM is up and has read the file. A process that is killed before leaves it, in
        # the temporary folder and readable by its owner only.
        Path(path).unlink()
        if before is None:
            os.environ.pop(_ARGUMENTS, None)
        else:
            os.environ[_ARGUMENTS] = before


def properties(settings: Mapping[str, str], defaults: str = "") -> str:
    """Return settings in the format of Java's properties, after ``defaults``, the content of another such file."""
    # Java takes the last line of a name.
    lines = [f"{_escaped(name, is_name=True)}={_escaped(value)}" for name, value in settings.items()]
    return "\n".join([defaults, "", *lines, ""])


def _escaped(text: str, *, is_name: bool = False) -> str:
    escaped = "".join(_ESCAPED.get(character, character) for character in text)
    if is_name:
        return "".join(f"\\{each}" if each in " :=#!" else each for each in escaped)
    return f"\\{escaped}" if escaped.startswith(" ") else escaped


def _without_option(arguments: Sequence[str]) -> tuple[list[str], Path]:
    """Return arguments without ``--properties-file``, and the file that it names, or else ``spark-defaults.conf``."""
    folder = os.environ.get("SPARK_CONF_DIR") or Path(_find_spark_home(), "conf")
    arguments_left, defaults_file = list[str](), Path(folder, "spark-defaults.conf")
    iterator = iter(arguments)
    for argument in iterator:
        name, equals, value = argument.partition("=")
        if name == _OPTION:
            defaults_file = Path(value if equals else next(iterator, ""))
        else:
            arguments_left.append(argument)
    return arguments_left, defaults_file


def _content(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
