"""Tests of what a holder of a lead leaves behind."""

import os
import subprocess

import attrs
import pytest

from state.stores.holder import Holder, refusal
from tests.processes import python


def test_bytes_and_back():
    """A holder is read back as it was written."""
    holder = Holder.of_this_process("me", 2.5)
    assert Holder.from_bytes(holder.to_bytes()) == holder


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"3", b"\xff", b"{}", b'{"owner": "me"}'])
def test_other_bytes_are_nobody(data):
    """What is no holder, or not fully written, is None."""
    assert Holder.from_bytes(data) is None


def test_life_and_death():
    """A process is alive until it ends, also while its parent has not taken note of its end."""
    assert Holder.of_this_process("me").is_alive() is True
    program = """
from state.stores.holder import Holder
open("/proc/self/comm", "w").write("a) b (c")  # what a process calls itself is up to it
print(Holder.of_this_process("child").to_bytes().decode(), flush=True)
input()
"""
    with python("-c", program, stdin=subprocess.PIPE) as child:
        holder = Holder.from_bytes(child.stdout.readline().encode())
        assert (holder.pid, holder.is_alive()) == (child.pid, True)
        assert holder.started != Holder.of_this_process("me").started
        child.kill()
        child.stdout.read()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert holder.is_alive() is False
        child.wait()
    assert holder.is_alive() is False


def test_later_process_with_the_same_pid_is_another():
    """A holder whose pid was given to another process is dead."""
    assert attrs.evolve(Holder.of_this_process("me"), started="1").is_alive() is False


@pytest.mark.parametrize("unknown", [{"machine": "another kernel"}, {"machine": ""}, {"started": ""}])
def test_life_elsewhere_is_unknown(unknown):
    """Of a process on another machine, or of one that could not say where it is, nothing is known."""
    assert attrs.evolve(Holder.of_this_process("me"), **unknown).is_alive() is None


def test_two_leads_of_one_process_differ():
    """Each lead has a token of its own."""
    assert Holder.of_this_process("me") != Holder.of_this_process("me")


def test_refusal_names_topology_owner_and_pid():
    """People are told which process is in their way."""
    holder = Holder.of_this_process("word count")
    message = str(refusal("counting", holder))
    assert all(part in message for part in ("'counting'", "'word count'", f"process {os.getpid()}", holder.host))
