"""A Spark that does not start says why; what its workers print when it leaves them is left out."""

import pathlib

import pytest

from tests.processes import ran
from txtopo.spark.session.starting import TracebackFilter, why_it_did_not_start

DIED = RuntimeError("[JAVA_GATEWAY_EXITED] Java gateway process exited before sending its port number.")


@pytest.mark.parametrize(
    ("output", "hint"),
    [
        (
            "Invalid maximum heap size: -Xmx2x\nError: Could not create the Java Virtual Machine.\n",
            "spark.driver.memory",
        ),
        ("Unrecognized VM option 'Foo'\nError: Could not create\n", "extraJavaOptions"),
        ("Error occurred during initialization of VM\nToo small maximum heap\n", "spark.driver.memory"),
        (
            'Exception in thread "main" java.lang.RuntimeException: [unresolved dependency: a#b;4.1.0]\n\tat org.apache.spark.util.MavenUtils.resolve\nTraceback (most recent call last):\n',
            "Maven",
        ),
        ("env: /nowhere/bin/java: No such file or directory\n", ""),
    ],
)
def test_jvm_that_dies(output: str, hint: str) -> None:
    """A line says that it died and what to look at; the JVM's last lines follow, without those of stacks."""
    first, *said = why_it_did_not_start(DIED, "downloading\n" * 20 + output).splitlines()
    assert first.startswith("Spark did not start: ")
    assert hint in first
    assert len(said) == 10
    assert said[-1].strip() in output
    assert not any(line.strip().startswith(("at ", "Traceback")) for line in said)


@pytest.mark.long
@pytest.mark.parametrize(
    ("setting", "cause"),
    [
        ("spark.driver.memory=2x", "heap"),
        ("spark.driver.extraJavaOptions=-agentlib:nowhere", "agent library nowhere"),
        ("spark.driver.memory=100m", "System memory"),
        ("spark.driver.host=nowhere.invalid", "see SPARK_LOCAL_IP, spark.driver.host"),
    ],
)
@pytest.mark.slow
def test_command_line(tmp_path: pathlib.Path, setting: str, cause: str) -> None:
    """``txtopo run`` whose Spark can't start says why, and shows no stack."""
    done = ran("-m", "txtopo", "run", "examples.global_count", "--set", setting, cwd=tmp_path, COLUMNS="500")
    assert done.returncode == 1
    assert done.stderr.startswith("error: Spark did not start: ")
    assert cause in done.stderr
    assert "\tat " not in done.stderr
    assert "Traceback" not in done.stderr


HEADER = b"Traceback (most recent call last):\n"
FRAMES = [
    b'  File "/s/lib/pyspark.zip/pyspark/daemon.py", line 262, in manager\n',
    b'  File "/s/site-packages/pyspark/util.py", line 1019, in wrapper\n',
    b"    return func(*args, **kwargs)\n",
    b"           ^^^^^^^^^^^^^^^^^^^^^\n",
]
END = b"EOFError\n"


def passed(lines: list[bytes]) -> list[bytes]:
    words = TracebackFilter()
    return [printed for line in lines for printed in words.without(line)] + words.lines_held()


def test_parting_words() -> None:
    """Two workers' words that come in turns are left out, and nothing around them is."""
    both = [HEADER, HEADER, *FRAMES, *FRAMES, END, FRAMES[0], END]
    assert passed([b"before\n", *both, b"after\n"]) == [b"before\n", b"after\n"]


def test_other_tracebacks() -> None:
    """A traceback of a user's code, or with another end, or one that never ends, comes whole and in order."""
    yours = [HEADER, *FRAMES, b'  File "/home/you/bolts.py", line 1, in f\n', END]
    others = [HEADER, *FRAMES, b"MemoryError\n"]
    unended = [HEADER, *FRAMES]
    for lines in (yours, others, unended, [*yours, *others, *unended]):
        assert passed(lines) == lines


def test_endless() -> None:
    """No more than some hundred lines are held back."""
    words, yours = TracebackFilter(), b'  File "/home/you/bolts.py", line 1, in f\n'
    printed = [line for _ in range(1000) for part in (HEADER, yours) for line in words.without(part)]
    assert len(printed) >= 1600
