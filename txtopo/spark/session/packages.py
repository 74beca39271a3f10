"""Finds JARs by their Maven coordinates, through Spark's Ivy, so that Spark's mirrors and proxies apply.

Spark resolves ``spark.jars.packages`` when its JVM starts. So a child process starts a JVM, without a session, and
prints where the JARs are. The answer is kept, because a JVM and Ivy take seconds even if nothing is missing.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pyspark

from txtopo.errors import ConfigError
from txtopo.files.durable import write_whole
from txtopo.spark.errors import line_that_matters
from txtopo.spark.session.starting import why_it_did_not_start

_RESOLVE_SECS = 600
"""How long Ivy may take: some hundred MB over a slow line."""
_ANSWER = "txtopo-jars:"

_RESOLVE = """
import sys
from pyspark import SparkConf
from pyspark.java_gateway import launch_gateway
conf = SparkConf(loadDefaults=False)
conf.set("spark.jars.packages", sys.argv[1]).set("spark.jars.excludes", sys.argv[2])
gateway = launch_gateway(conf)
print("txtopo-jars:" + (gateway.jvm.System.getProperty("spark.jars") or ""), flush=True)
gateway.shutdown()
"""


def fetched_jars(packages: Sequence[str], excludes: Sequence[str] = ()) -> tuple[Path, ...]:
    """Return the JARs of Maven packages and of all that they require; Spark downloads those that are missing.

    Spark's settings apply, whether from ``spark-defaults.conf``, PYSPARK_SUBMIT_ARGS or its other variables, for
    example ``spark.jars.ivySettings`` or DEFAULT_ARTIFACT_REPOSITORY.

    Args:
        packages: coordinates, ``group:artifact:version``.
        excludes: what to leave out, ``group:artifact``; either may be ``*``.

    Raises:
        ConfigError: a package can't be fetched; one line with the remedy.
    """
    place = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "txtopo"
    question = json.dumps([packages, excludes, pyspark.__version__])
    cache_file = place / f"jars-{hashlib.sha256(question.encode()).hexdigest()[:16]}.json"
    try:
        place.mkdir(parents=True, exist_ok=True)
        lock = (place / "jars.lock").open("w")
    except OSError:  # the answer can't be kept
        return _resolve(packages, excludes)
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two resolutions at a time would break Ivy's folder; closing the file unlocks
        jars = _kept(cache_file)
        if not jars:
            jars = _resolve(packages, excludes)
            write_whole(cache_file, json.dumps([str(jar) for jar in jars]).encode())
        return jars


def _kept(cache_file: Path) -> tuple[Path, ...]:
    try:
        jars = tuple(map(Path, json.loads(cache_file.read_text())))
    except (OSError, ValueError):
        return ()
    return jars if all(jar.is_file() for jar in jars) else ()


def _resolve(packages: Sequence[str], excludes: Sequence[str]) -> tuple[Path, ...]:
    # With PYSPARK_GATEWAY_PORT, PySpark would connect to a running JVM instead of starting one.
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_GATEWAY")}
    try:
        result = subprocess.run(  # noqa: S603 - our command
            [sys.executable, "-c", _RESOLVE, ",".join(packages), ",".join(excludes)],
            env=variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_RESOLVE_SECS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ConfigError(f"Spark did not fetch {', '.join(packages)} within {_RESOLVE_SECS} s") from None
    answer = next((line for line in result.stdout.splitlines() if line.startswith(_ANSWER)), None)
    if answer is None:
        why = why_it_did_not_start(RuntimeError(line_that_matters(result.stderr)), result.stderr)
        raise ConfigError(f"{', '.join(packages)} could not be fetched: {why}")
    return tuple(Path(url.removeprefix("file:").replace("///", "/")) for url in answer[len(_ANSWER) :].split(","))
