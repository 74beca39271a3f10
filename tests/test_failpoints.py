"""Failpoints: what may be armed, and what happens then."""

import os
import re
import signal

import pytest

from spouts import MemoryTransactionalSpout
from state import MemoryState
from tests.acceptance.topologies import counting, counts_of, make_data
from tests.processes import ROOT, python, ran
from tests.topologies import values_in
from tests.waiting import DEADLINE_SECS
from txtopo import Config, FailedException, Fields, Topology
from txtopo.errors import ConfigError
from txtopo.failpoints import ENVIRONMENT, arm_from_text, armed, durable_step, known_failpoints, reach
from txtopo.testing.inline import run_inline

DATA = make_data(2, 12)
PROGRAM = "from txtopo.failpoints import reach; reach('spout.emit'); print('once', flush=True); reach('spout.emit')"


def count_words(words: MemoryState) -> Topology:
    """Return spout → partial → count."""
    return counting(MemoryTransactionalSpout(DATA, Fields("word"), 3), words, 2)


def test_count() -> None:
    """What is armed happens at the reach that was named, and once; at the first unless a number is given."""
    handler = arm_from_text("bolt.finish=fail:3; spout.emit=fail")
    assert handler is not None
    struck = []
    for number in range(1, 7):
        for name in ("bolt.finish", "spout.emit", "bolt.execute"):
            try:
                handler(name)
            except FailedException as error:
                struck.append((number, error.message))
    assert struck == [
        (1, "failpoint 'spout.emit' was armed to fail"),
        (3, "failpoint 'bolt.finish' was armed to fail"),
    ]


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("table.wirte.after=kill", "there is no failpoint 'table.wirte.after'; did you mean 'table.write.after'?"),
        ("group.commit=kill", "did you mean 'group.commit."),
        ("zzz=kill", "known failpoints: backfill.begin.after, "),
        ("spout.emit", "'spout.emit' is not NAME=ACTION[:COUNT]"),
        ("spout.emit=explode", "with an ACTION of kill, stop, fail"),
        ("spout.emit=kill:0", "'spout.emit=kill:0' is not NAME=ACTION[:COUNT]"),
        ("spout.emit=kill:-1", "'spout.emit=kill:-1' is not NAME=ACTION[:COUNT]"),
        ("spout.emit=kill:soon", "'spout.emit=kill:soon' is not NAME=ACTION[:COUNT]"),
    ],
)
def test_mistakes_are_refused(text: str, hint: str) -> None:
    """A wrong name is refused with the nearest right one, a wrong action or count with what there is."""
    with pytest.raises(ConfigError, match=re.escape(hint)) as caught:
        arm_from_text(f"bolt.finish=fail;{text}")
    assert caught.value.message.startswith(f"{ENVIRONMENT}: ")


def test_armed_within_a_context() -> None:
    """A handler is told of each failpoint within its context, in order, and of none after it."""
    told: list[str] = []
    with armed(told.append), durable_step("group.commit"):
        reach("delta.write.checked")
    reach("spout.emit")
    assert told == ["group.commit.before", "delta.write.checked", "group.commit.after"]


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "name", ["spout.emit", "bolt.execute", "bolt.finish", "table.write.after", "table.write.before"]
)
def test_fail_replays(name: str) -> None:
    """``fail`` is a FailedException like any other: the transaction is replayed, and totals are exact (promise 4)."""
    words, handler = MemoryState(Fields("word"), Fields("n")), arm_from_text(f"{name}=fail:2")
    assert handler is not None
    with armed(handler):
        report = run_inline(count_words(words), Config(max_spout_pending=4, group_transactions_max=2))
    assert values_in(words) == counts_of(DATA)
    is_users = name.startswith(("spout.", "bolt."))
    assert report.failures == (1 if is_users else 0), "a table's write is tried again without a replay"


def test_kill_by_the_environment() -> None:
    """``kill`` armed by the environment is a SIGKILL to the process, at the reach that was named."""
    ended = ran("-c", PROGRAM, failpoints="spout.emit=kill:2")
    assert (ended.returncode, ended.stdout) == (-signal.SIGKILL, "once\n")


def test_stop_by_the_environment() -> None:
    """``stop`` armed by the environment is a SIGSTOP: the process goes on when it is told to."""
    with python("-c", PROGRAM, failpoints="spout.emit=stop:2") as process:
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        process.send_signal(signal.SIGCONT)
        assert process.communicate(timeout=DEADLINE_SECS)[0] == "once\n"
    assert process.returncode == 0


def test_names_are_read_where_they_are_reached() -> None:
    """What may be armed has both sides of a durable step, single places, and the names that the guide lists."""
    known = known_failpoints()
    assert {"group.decide.before", "group.decide.after", "delta.write.landed"} <= set(known)
    guide = (ROOT / "docs/guides/testing.md").read_text().partition("Names are ")[2]
    listed = re.findall(r"`([a-z]+\.[a-z.]+)`", guide)
    assert listed
    assert [name for name in listed if name not in known and f"{name}.after" not in known] == []
