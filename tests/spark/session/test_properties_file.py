"""What Spark's JVM is told at its start, and what others on the machine see of it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from txtopo.spark.session.properties_file import properties

SESSION = """
import json, os, pathlib, sys
from txtopo.config import Config
from txtopo.spark.session.sessions import spark_session

settings = json.load(sys.stdin)
with spark_session(Config({"topology.spark.master": "local[1]", **settings}), "secrets") as session:
    commands = []
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if os.getsid(int(path.name)) == os.getsid(0):
                commands.append((path / "cmdline").read_bytes().decode())
        except OSError:
            pass
    context = session.sparkContext
    names = [*settings, "spark.eventLog.dir", "spark.ui.retainedJobs", "spark.executor.cores", "spark.driver.memory"]
    found = {name: context.getConf().get(name) for name in names}
    found["max heap"] = context._jvm.java.lang.Runtime.getRuntime().maxMemory() >> 20
    print(json.dumps([commands, found]))
"""


def session(folder: Path, settings: dict[str, str], **environment: str) -> tuple[list[str], dict[str, object]]:
    """Start a session in a process; return the command lines of all processes, and what the session says of its settings."""
    done = subprocess.run(
        [sys.executable, "-c", SESSION],
        input=json.dumps(settings),
        env={**os.environ, **environment},
        cwd=folder,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        start_new_session=True,
    )
    commands, found = json.loads(done.stdout)
    return commands, found


@pytest.mark.long
@pytest.mark.slow
def test_secrets_are_on_no_command_line(tmp_path: Path) -> None:
    """Settings reach the JVM as they are, also those that its start needs; no process shows them, no file is left."""
    settings = {
        "spark.hadoop.fs.s3a.secret.key": "hunter2 = \\ # ünï",
        "spark.hadoop.fs.s3a.access.key": "hunter2",
        "spark.driver.memory": "600m",
    }
    (tmp_path / "conf").mkdir()
    (tmp_path / "tmp").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text(
        "# the machine's\nspark.ui.retainedJobs   17\nspark.eventLog.dir file:/here\nspark.driver.memory 900m\n"
    )
    commands, found = session(
        tmp_path,
        settings,
        SPARK_CONF_DIR=str(tmp_path / "conf"),
        TMPDIR=str(tmp_path / "tmp"),
        PYSPARK_SUBMIT_ARGS="--conf spark.executor.cores=3 pyspark-shell",
    )
    assert any("org.apache.spark" in command for command in commands)
    assert "hunter2" not in "".join(commands)
    assert {name: found[name] for name in settings} == settings
    assert (found["spark.ui.retainedJobs"], found["spark.eventLog.dir"]) == ("17", "file:/here")
    assert found["spark.executor.cores"] == "3"
    assert isinstance(found["max heap"], int)
    assert found["max heap"] <= 600
    assert not list((tmp_path / "tmp").glob("txtopo-*.conf"))


@pytest.mark.long
@pytest.mark.slow
def test_properties_file_of_the_user(tmp_path: Path) -> None:
    """The one that PYSPARK_SUBMIT_ARGS names holds instead of ``spark-defaults.conf``, as with Spark alone."""
    (tmp_path / "own.conf").write_text("spark.ui.retainedJobs=18")
    arguments = f"--properties-file {tmp_path / 'own.conf'} pyspark-shell"
    _, found = session(tmp_path, {"spark.driver.memory": "600m"}, PYSPARK_SUBMIT_ARGS=arguments)
    assert found["spark.ui.retainedJobs"] == "18"


def test_format() -> None:
    """Java's properties: what has a meaning there is escaped; a file before them cannot swallow the first one."""
    text = properties({"a b:=": " two\nlines\\ ", "c": "=#"}, "d e\\")
    assert text == "d e\\\n\na\\ b\\:\\==\\ two\\nlines\\\\ \nc==#\n"
