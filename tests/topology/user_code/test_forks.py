"""Forks in user code: a child that comes back from it ends, wherever it was forked, and the run goes on alone."""

import subprocess
from collections import Counter

import pytest

from tests.processes import DEADLINE_SECS, python, ran
from tests.topology.user_code.forking import STATUSES

TOPOLOGY = """
import os, subprocess, sys
from committers import ReduceCommitter
from spouts import MemoryTransactionalSpout
from state import DeltaState, read_table
from txtopo import BasicBolt, BatchBolt, Fields, ICommitter, TransactionalTopologyBuilder
from txtopo.testing import run_inline

def forked(child):
    pid = os.fork()
    if pid:
        print("ended with", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), file=sys.__stdout__, flush=True)
    else:
        child()

def bug():
    raise ValueError("in the child")

WAYS = {
    "returns": lambda: forked(lambda: None),
    "raises": lambda: forked(bug),
    "exits": lambda: forked(lambda: sys.exit(7)),
    "exits at once": lambda: forked(lambda: os._exit(8)),
    "executes": lambda: subprocess.run(["true"], preexec_fn=lambda: None, check=True),
}

class Fork(BasicBolt):
    output_fields = Fields("attempt", "word: string", "n: long")

    def execute(self, tuple, collector):
        WAYS[tuple["word"]]()
        collector.emit((tuple.attempt, tuple["word"], 1))

class Commit(BatchBolt, ICommitter):
    def execute(self, tuple):
        pass

    def finish_batch(self):
        forked(lambda: None)

def add(a, b):
    forked(lambda: None)
    return a + b

spout = MemoryTransactionalSpout([*WAYS, *WAYS], Fields("word: string"), 12)
builder = TransactionalTopologyBuilder("forks", "words", spout)
builder.set_bolt("fork", Fork()).shuffle_grouping("words")
count = ReduceCommitter("counts", key="word", value="n", function=add)
builder.set_bolt("count", count).fields_grouping("fork", Fields("word"))
builder.set_bolt("commit", Commit()).shuffle_grouping("fork")
builder.set_state("counts", DeltaState("out/counts", key=Fields("word: string"), value=Fields("n: long")))
run_inline(builder.build())
print("the end", sorted(set(read_table("out/counts").to_pydict()["n"])), flush=True)
"""


@pytest.mark.slow
def test_a_child_that_comes_back_from_user_code_ends_there(tmp_path):
    """It executes no further tuple, commits nothing and never leaves the run; its parent sees a status."""
    (tmp_path / "forks.py").write_text(TOPOLOGY)
    process = python("-Wignore", "forks.py", cwd=tmp_path, stderr=subprocess.PIPE)
    out, err = process.communicate(timeout=DEADLINE_SECS)
    came_back = "forked came back from there, and is ended: let it call os._exit"
    tuples, keys = 2 * 2, 5  # of what returns or raises; each key is added up once
    assert process.returncode == 0
    assert Counter(out.splitlines()) == {
        "ended with 1": tuples + keys + 1,
        "ended with 7": 2,
        "ended with 8": 2,
        "the end [2]": 1,
    }
    assert [came_back in line for line in err.splitlines()] == [True] * (tuples + keys + 1)


PLAIN = """
import sys
from pathlib import Path
from tests.topology.user_code.forking import plain
from txtopo.testing import InlineCluster
with InlineCluster(1) as cluster:
    running = cluster.submit(plain(Path(sys.argv[1])))
    running.wait()
    print(running.statistics()["ways"].acked)
"""


@pytest.mark.slow
def test_plain_topologies(tmp_path):
    """The same in a plain topology: a child takes no turn of its parent's, and acks nothing."""
    process = python("-Wignore", "-c", PLAIN, tmp_path / "statuses", stderr=subprocess.PIPE)
    out, err = process.communicate(timeout=DEADLINE_SECS)
    assert (process.returncode, out) == (0, "3\n")
    written = dict(line.split() for line in (tmp_path / "statuses").read_text().splitlines())
    assert written == {way: str(status) for way, status in STATUSES.items()}
    assert {line.partition(" (")[0] for line in err.splitlines()} == {"a child that forked"}


TRACED = """
import multiprocessing, sys
import txtopo.topology.user_code.blame

def start(context):
    child = context.Process(target=lambda: sys.exit(bool(sys.gettrace())))
    child.start()
    child.join()
    print(child.exitcode)

exec("start(context)", {"__name__": "txtopo.caller", "start": start, "context": multiprocessing.get_context("fork")})
"""


def test_a_child_of_multiprocessing_is_not_traced():
    """It never comes back, and would be slower."""
    assert ran("-c", TRACED).stdout == "0\n"
