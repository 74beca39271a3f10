"""What stops a run: whatever would go on in silence otherwise. Each error says where, and what to do."""

import os
import pathlib
import shutil
import signal
import threading

import pytest

from spouts import MemoryTransactionalSpout
from state import DeltaState, MemoryState
from tests.acceptance.topologies import CountTuples
from tests.bolts import PassBatch
from tests.waiting import DEADLINE_SECS
from txtopo import BasicBolt, Config, Fields, ICommitter, Topology, TransactionalTopologyBuilder
from txtopo.attempts import TransactionAttempt
from txtopo.errors import FieldsError, RuleError, StopError, UserCodeError
from txtopo.testing.inline import run_inline
from txtopo.topology.user_code.blame import user_code
from txtopo.topology.user_code.output import Capture, capturing

WORDS = [[f"word {number}"] for number in range(40)]


def topology(bolt=None, committer=None, spout=None, state=None) -> Topology:
    spout = spout or MemoryTransactionalSpout(WORDS, Fields("word"), 4)
    builder = TransactionalTopologyBuilder("stops", "spout", spout)
    builder.set_bolt("pass", bolt or PassBatch()).shuffle_grouping("spout")
    builder.set_committer_bolt("count", committer or CountTuples()).global_grouping("pass")
    builder.set_state("total", state or MemoryState(Fields("name"), Fields("n")))
    return builder.build()


# What a user's code raises.


class Raises(PassBatch):
    def __init__(self, where: str, error: type[BaseException]) -> None:
        self.where, self.error = where, error

    def prepare(self, config, context, collector, attempt):
        self._raise("prepare", attempt)

    def execute(self, tuple):
        self._raise("execute", self.attempt)

    def finish_batch(self):
        self._raise("finish_batch", self.attempt)

    def _raise(self, where, attempt):
        if where == self.where and attempt.txid == 2:
            raise self.error("mine")


class RaisingCommitter(Raises, ICommitter):
    output_fields = None


class RaisingSpout(MemoryTransactionalSpout):
    """Raises in one of its methods, or in the coordinator's or emitter's."""

    def __init__(self, where: str, error: type[BaseException]) -> None:
        super().__init__(WORDS, Fields("word"), 4)
        self.where, self.error = where, error

    def coordinator(self, config, context):
        return self._wrapped("coordinator", super().coordinator(config, context))

    def emitter(self, config, context):
        return self._wrapped("emitter", super().emitter(config, context))

    def _wrapped(self, where, made):
        if where == self.where:
            raise self.error("mine")
        name = self.where
        if hasattr(made, name):
            inner = getattr(made, name)

            def method(*arguments):
                txid = getattr(arguments[0], "txid", arguments[0])
                if txid == 2:
                    raise self.error("mine")
                return inner(*arguments)

            setattr(made, name, method)
        return made


ERRORS = pytest.mark.parametrize("error", [KeyboardInterrupt, GeneratorExit, SystemExit, ValueError])


@ERRORS
@pytest.mark.parametrize("where", ["prepare", "execute", "finish_batch"])
@pytest.mark.parametrize("phase", ["processing", "commit"])
def test_what_a_bolt_raises_names_it(error, where, phase):
    """Whatever it is, component and transaction are named; nothing of the transaction is written."""
    if phase == "processing":
        subject, name = topology(bolt=Raises(where, error)), "pass"
    else:
        subject, name = topology(committer=RaisingCommitter(where, error)), "count"
    with pytest.raises(UserCodeError, match=f"{error.__name__}: mine") as raised:
        run_inline(subject)
    assert (raised.value.component, raised.value.txid, raised.value.attempt) == (name, 2, 1)


@ERRORS
@pytest.mark.parametrize(
    ("where", "txid"), [("coordinator", None), ("emitter", 1), ("initialize_transaction", 2), ("emit_batch", 2)]
)
def test_what_a_spout_raises_names_it(error, where, txid):
    """Component and transaction are named; where there is no transaction yet, the component."""
    if (error, where) == (KeyboardInterrupt, "coordinator"):
        pytest.skip("the coordinator is made in the main thread, where this may be a Ctrl-C")
    with pytest.raises(UserCodeError, match=f"{error.__name__}: mine") as raised:
        run_inline(topology(spout=RaisingSpout(where, error)), Config(jobs_in_flight_max=1))
    assert (raised.value.component, raised.value.txid) == ("spout", txid)


def test_ctrl_c_in_the_main_thread_is_not_the_users():
    """A KeyboardInterrupt that a signal raises in a user's code passes on; one that code raises in a worker does not."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt), user_code("bolt", TransactionAttempt(1, 1)):
            os.kill(os.getpid(), signal.SIGINT)
            threading.Event().wait(DEADLINE_SECS)
    finally:
        signal.signal(signal.SIGINT, before)
    with (
        capturing(Capture(lambda line: None, is_worker=True)),
        pytest.raises(UserCodeError, match="KeyboardInterrupt"),
        user_code("bolt", TransactionAttempt(1, 1)),
    ):
        raise KeyboardInterrupt


# What a user's thread does too late.


class Later:
    """Does something in a thread when it is told that the batch is over."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.done = threading.Event()

    def start(self, work) -> None:
        def run() -> None:
            assert self.go.wait(DEADLINE_SECS)
            try:
                work()
            except RuleError:
                pass  # nobody looks at what a thread raises
            finally:
                self.done.set()

        threading.Thread(target=run, daemon=True).start()


_later: list[Later] = []


class EmitsLater(PassBatch):
    def finish_batch(self):
        if self.attempt.txid == 2:
            collector, attempt = self.collector, self.attempt
            _later[0].start(lambda: collector.emit((attempt, "late")))


class PutsLater(CountTuples):
    def finish_batch(self):
        if self.attempt.txid == 2:
            state = self.state
            _later[0].start(lambda: state.put("n", 1_000_000))
        super().finish_batch()


class LetsGo(MemoryTransactionalSpout):
    """Lets the late thread go before the transaction ``at`` is begun, and waits for it."""

    def __init__(self, at: int) -> None:
        super().__init__(WORDS, Fields("word"), 4)
        self.at = at

    def coordinator(self, config, context):
        made = super().coordinator(config, context)
        inner = made.initialize_transaction

        def initialize_transaction(txid, previous):
            if txid == self.at:
                _later[0].go.set()
                assert _later[0].done.wait(DEADLINE_SECS)
            return inner(txid, previous)

        made.initialize_transaction = initialize_transaction
        return made


@pytest.mark.parametrize(
    ("bolt", "committer", "component", "message"),
    [
        (EmitsLater(), None, "pass", "a tuple was emitted after its batch was over"),
        (None, PutsLater(), "count", "state 'total' was used after the commit phase of transaction 2"),
    ],
)
def test_what_a_thread_does_too_late_stops_the_run(bolt, committer, component, message):
    """The error is raised in the thread, where nobody sees it; so it stops the run, too, and names whose it is."""
    _later[:] = [Later()]
    with pytest.raises(RuleError, match=message) as raised:
        run_inline(topology(bolt, committer, LetsGo(at=7)), Config(max_spout_pending=2))
    assert (raised.value.component, raised.value.txid, raised.value.attempt) == (component, 2, 1)
    assert "wait" in str(raised.value)


# What goes away beneath a run.


@pytest.mark.few(4)
@pytest.mark.parametrize(
    "gone", ["_txtopo", "_txtopo/coordinator.sqlite", "_txtopo/coordinator.sqlite-wal", "_txtopo/journal"]
)
@pytest.mark.parametrize("how", ["removed", "moved"])
def test_metadata_that_is_removed_stops_the_run(tmp_path, gone, how):
    """Neither coordinator state nor journal goes on in a file that nobody will find again."""

    class Remover(CountTuples):
        def finish_batch(self):
            super().finish_batch()
            if self.attempt.txid == 4:
                path = tmp_path / gone
                if how == "moved":
                    path.rename(tmp_path / "moved")
                elif path.is_dir():
                    shutil.rmtree(path)
                else:
                    path.unlink()

    table = DeltaState(tmp_path / "total", key=Fields("name: string"), value=Fields("n: long"))
    with pytest.raises(StopError, match="was removed or replaced while the topology runs"):
        run_inline(topology(committer=Remover(), state=table), Config(group_transactions_max=1))
    assert table.snapshot()["txid"].to_pylist() in ([3], [4])


# What is forgotten.


class Forgets(PassBatch):
    def execute(self, tuple):
        self.collector.emit((tuple["word"],))


class ForgetsBasic(BasicBolt):
    output_fields = Fields("attempt", "word")

    def execute(self, tuple, collector):
        collector.emit((tuple["word"],))


@pytest.mark.parametrize(
    ("bolt", "remedy"),
    [(Forgets(), "self.collector.emit((self.attempt, …))"), (ForgetsBasic(), "collector.emit((tuple[0], …))")],
)
def test_an_attempt_that_is_forgotten_is_named(bolt, remedy):
    """The error says that the first field is the attempt, and how to emit it."""
    with pytest.raises(FieldsError) as raised:
        run_inline(topology(bolt), Config(jobs_in_flight_max=1))
    assert f"put the attempt first: {remedy}" in str(raised.value)
    assert (raised.value.component, raised.value.txid) == ("pass", 1)


def test_input_that_is_missing_is_found_before_spark(tmp_path):
    """A folder that is not there is an error before anything is started or written."""
    from spouts import FilesTransactionalSpout
    from txtopo.assembly.environment import Environment
    from txtopo.engine.runner import run_with
    from txtopo.errors import InputError

    def make_runner(plan, config, prototypes):
        pytest.fail("Spark was started")

    spout = FilesTransactionalSpout(tmp_path / "missing")
    table = DeltaState(tmp_path / "out" / "total", key=Fields("name: string"), value=Fields("n: long"))
    with pytest.raises(InputError, match="missing"):
        run_with(topology(spout=spout, state=table), Config(), Environment(make_runner))
    assert list(pathlib.Path(tmp_path).iterdir()) == []
