"""What all commands share: what they print tells no secret, and errors take one line."""

import importlib

import pytest

from txtopo.testing.inline import run_inline

SHOP = """
import logging

from spouts import MemoryTransactionalSpout
from state import DeltaState
from txtopo import BatchBolt, Fields, ICommitter, TransactionalTopologyBuilder

class Sink(BatchBolt, ICommitter):
    def __init__(self, password):
        self.password = password

    def execute(self, tuple):
        print("printed", self.password)
        logging.warning("logged %s, and https://me:rabbit@host", self.password)
        if self.password:
            raise ValueError(f"{self.password} is refused")

def topology(password: str = "", wrong: str = ""):
    if wrong:
        raise ValueError(f"{wrong}: {password} is refused")
    spout = MemoryTransactionalSpout(["a"], Fields("word"), 1)
    builder = TransactionalTopologyBuilder("shop", "spout", spout, 1)
    builder.set_state("words", DeltaState("tables/words", Fields("word: string"), Fields("n: long")))
    builder.set_committer_bolt("sink", Sink(password)).shuffle_grouping("spout")
    return builder.build()
"""


@pytest.fixture(autouse=True)
def module(command_line, monkeypatch):
    monkeypatch.syspath_prepend(command_line.folder)
    command_line.write_module("shop", SHOP)


def test_simulation_that_fails(command_line, caplog):
    """Neither the violation, nor its traceback, nor the command to replay it, nor what is printed has a secret."""
    given = ["shop", "--set", "password=open sesame", "--set", "db.pwd=hunter2"]
    ended = command_line("simulate", *given, "--seeds", "1")
    assert ended.exit_code == 1
    last = ended.output.splitlines()[-1]
    assert last.startswith("to replay it: txtopo simulate shop --set 'password=…' --set 'db.pwd=…'")
    with_trace = command_line("simulate", *given, "--seed", "1", "--debug").output
    for output in (ended.output, with_trace):
        assert "ValueError" in output
        assert "sesame" not in output
        assert "hunter2" not in output
    told = [record.getMessage().partition("] ")[2] for record in caplog.records]
    assert told[:2] == ["printed …", "logged …, and https://…@host"]


def test_simulation_that_cannot_begin(command_line):
    """That is no broken promise, and has another exit status."""
    assert "ValueError" in command_line.refusal("simulate", "shop", "--set", "wrong=yes", status=2)


@pytest.mark.parametrize("debug", [(), ("--debug",)], ids=["message", "traceback"])
def test_error_that_quotes_a_secret(command_line, debug):
    """It is printed without it, also if nobody knows yet what the topology takes."""
    ended = command_line("show", "shop", "--set", "password=sesame", "--set", "wrong=yes", *debug)
    assert ended.exit_code == 1
    assert "yes: … is refused" in ended.output
    assert "sesame" not in ended.output


def test_command_to_go_on_with(command_line):
    """It names the settings that were given, and hides those that are secrets."""
    run_inline(importlib.import_module("shop").topology())
    told = command_line.told("fork", "shop", "1", "fork", "--set", "password=sesame", "--set", "n.x=1")
    assert told.endswith("to run it: txtopo run shop --set 'password=…' --set n.x=1 --fork fork\n")


def test_place_that_cannot_be_made(command_line):
    """It is named in one line, without a traceback."""
    run_inline(importlib.import_module("shop").topology())
    said = command_line.refusal("fork", "shop", "1", "/proc/nowhere/fork")
    assert said == "error: /proc/nowhere: No such file or directory; --debug shows the traceback\n"
