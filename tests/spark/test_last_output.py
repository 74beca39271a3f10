"""Tracebacks that Python workers print when Spark leaves them are left out; others stay."""

from __future__ import annotations

from txtopo.spark.last_output import PartingWords

HEADER = b"Traceback (most recent call last):\n"
FRAMES = [
    b'  File "/s/lib/pyspark.zip/pyspark/daemon.py", line 262, in manager\n',
    b'  File "/s/site-packages/pyspark/util.py", line 1019, in wrapper\n',
    b"    return func(*args, **kwargs)\n",
    b"           ^^^^^^^^^^^^^^^^^^^^^\n",
]
END = b"EOFError\n"


def passed(lines: list[bytes]) -> list[bytes]:
    words = PartingWords()
    return [printed for line in lines for printed in words.without(line)] + words.rest()


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
    words, yours = PartingWords(), b'  File "/home/you/bolts.py", line 1, in f\n'
    printed = [line for _ in range(1000) for part in (HEADER, yours) for line in words.without(part)]
    assert len(printed) >= 1600
