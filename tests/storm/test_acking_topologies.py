"""Storm's tests of plain topologies as such: groupings, ticks, hooks, configuration, metrics, activation.

From integration_test.clj, grouping_test.clj, tick_tuple_test.clj, metrics_test.clj, messaging_test.clj and
testing4j_test.clj. There is no startup tuple on the system stream, and there are no Kryo decorators.
"""

import itertools
import threading
from collections import Counter

import pytest

from tests.plain.topologies import Words
from tests.storm.bolts import AckBolt, AckEveryOther, Acking, Fed, GlobalCount, Identity, WordCounter
from txtopo import (
    BasicBolt,
    CustomStreamGrouping,
    Fields,
    ReportedFailedException,
    RichBolt,
    Spout,
    TaskHook,
    TopologyBuilder,
)
from txtopo.errors import StateAccessError, TopologyError, UserCodeError
from txtopo.plain.tasks.metrics import Counts
from txtopo.testing import FeederSpout, FixedTupleSpout, InlineCluster, complete_topology, make_tuple
from txtopo.testing.feeders import Shared


def two(bolt, bolts=1, spout=None, spouts=1):
    """Return a topology of a spout "1" and a bolt "2" that takes what it emits, by turns."""
    builder = TopologyBuilder("two")
    builder.set_spout("1", spout or Words(), spouts)
    builder.set_bolt("2", bolt, bolts).shuffle_grouping("1")
    return builder.build()


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_basic_topology(workers):
    """T-BASIC: words are counted by word and in all, in one worker and over frames between several."""
    builder = TopologyBuilder("word count")
    builder.set_spout("1", Words(), 3)
    builder.set_bolt("2", WordCounter(), 4).fields_grouping("1", Fields("word"))
    builder.set_bolt("3", GlobalCount()).global_grouping("1")
    builder.set_bolt("4", GlobalCount()).global_grouping("2")
    words = [["nathan"], ["bob"], ["joey"], ["nathan"]]
    done = complete_topology(builder.build(), {"1": words}, workers=workers)
    assert sorted(done.tuples("1")) == [("bob",), ("joey",), ("nathan",), ("nathan",)]
    assert Counter(done.tuples("2")) == Counter([("nathan", 1), ("nathan", 2), ("bob", 1), ("joey", 1)])
    assert done.tuples("3") == done.tuples("4") == [(1,), (2,), (3,), (4,)]


class EmitsTaskIndex(BasicBolt):
    output_fields = Fields("tid")

    def prepare(self, config, context):
        self.index = context.this_task_index
        assert context.component_tasks(context.this_component_id)[self.index] == context.this_task_id

    def execute(self, tuple, collector):
        collector.emit([self.index])


@pytest.mark.parametrize("workers", [1, 2])
def test_several_tasks_per_executor(workers):
    """T-MULTITASK: three executors of six tasks: each task gets a tuple by all_grouping."""
    builder = TopologyBuilder("tasks")
    builder.set_spout("1", Words())
    builder.set_bolt("2", EmitsTaskIndex(), 3).set_num_tasks(6).all_grouping("1")
    done = complete_topology(builder.build(), {"1": [["a"]]}, workers=workers)
    assert sorted(done.tuples("2")) == [(0,), (1,), (2,), (3,), (4,), (5,)]


@pytest.mark.parametrize(
    "wrong", [("3", Fields("word")), ("1", Fields("non-exists-field")), ("1", Fields("word"), "non-exists-stream")]
)
def test_validate_topology_structure(wrong):
    """T-VALID: input from a missing component, stream or field is refused when the topology is built."""
    builder = TopologyBuilder("validated")
    builder.set_spout("1", Words(), 3)
    builder.set_bolt("2", WordCounter(), 4).fields_grouping(*wrong)
    with pytest.raises(TopologyError):
        builder.build()


def test_system_stream():
    """T-SYS: a bolt may subscribe to the system stream; as in newer Storms nothing comes on it."""
    builder = TopologyBuilder("system")
    builder.set_spout("1", Words(), 3)
    builder.set_bolt("2", Identity()).fields_grouping("1", Fields("word")).global_grouping("1", "__system")
    done = complete_topology(builder.build(), {"1": [["a"], ["b"], ["c"]]})
    assert sorted(done.tuples("2")) == [("a",), ("b",), ("c",)]


class Events(Shared):
    """What has happened, in order."""

    def __init__(self):
        super().__init__()
        self.events = []


class TrackedSpout(Spout):
    output_fields = Fields("val")

    def __init__(self, state):
        self.state = state

    def open(self, config, context, collector):
        self.state.events.append("opened")

    def activate(self):
        self.state.events.append("activated")

    def deactivate(self):
        self.state.events.append("deactivated")

    def close(self):
        self.state.events.append("closed")

    def next_tuple(self):
        pass


class TrackedBolt(AckBolt):
    def __init__(self, state):
        self.state = state

    def prepare(self, config, context, collector):
        super().prepare(config, context, collector)
        self.state.events.append("prepared")

    def cleanup(self):
        self.state.events.append("cleaned up")


def test_submit_inactive_topology():
    """T-INACTIVE: before its activation nothing is opened or prepared; then all is, and what waited is emitted.

    What was never opened or prepared is never closed or cleaned up either.
    """
    state = Events()

    def tracked(spout):
        builder = TopologyBuilder("inactive")
        builder.set_spout("1", spout)
        builder.set_spout("2", TrackedSpout(state))
        builder.set_bolt("3", TrackedBolt(state)).global_grouping("1")
        return builder.build()

    with InlineCluster(workers=2) as cluster:
        Fed(cluster, build=tracked, active=False).running.stop()
        fed = Fed(cluster, build=tracked, config={"topology.message.timeout.secs": 10}, active=False)
        fed.spout.feed_no_wait(["a"], 1)
        cluster.advance_time(9)
        assert (state.events, fed.tracker.acked) == ([], {})
        fed.running.activate()
        cluster.advance_time(12)
        fed.acked(1)
        assert sorted(state.events) == ["activated", "opened", "prepared"]
        fed.running.deactivate()
        fed.running.activate()
        fed.running.stop()
    assert Counter(state.events) == Counter(
        {"activated": 2, "opened": 1, "prepared": 1, "deactivated": 2, "closed": 1, "cleaned up": 1}
    )


class TellsConfig(BasicBolt):
    """Emits what it sees of the configuration."""

    output_fields = Fields("conf", "value")

    def prepare(self, config, context):
        self.config = config

    def execute(self, tuple, collector):
        collector.emit([tuple[0], self.config.get(tuple[0])])


def test_component_specific_config():
    """T-CONF: a component may change some settings, the others that it names are ignored; its own names pass."""
    builder = TopologyBuilder("configured")
    builder.set_spout("fake", Words())
    bolt = builder.set_bolt("bolt", TellsConfig()).global_grouping("fake")
    own = {
        "fake.config": 123,
        "fake.config2": 987,
        "topology.max.task.parallelism": 2,
        "topology.max.spout.pending": 30,
        "topology.message.timeout.secs": 999,
        "topology.workers": 7,
    }
    for name, value in own.items():
        bolt.add_configuration(name, value)
    config = {
        "fake.config": "overridden",
        "fake.config3": "topology's",
        "topology.message.timeout.secs": 40,
        "topology.max.task.parallelism": 20,
        "topology.max.spout.pending": 5,
        "topology.workers": 1,
    }
    seen = {
        **own,
        "fake.config3": "topology's",
        "topology.message.timeout.secs": 40.0,
        "topology.workers": 1,
    }
    done = complete_topology(builder.build(), {"fake": [[name] for name in seen]}, config)
    assert dict(done.tuples("bolt")) == seen


def test_max_task_parallelism():
    """A bound for all components, and one of a component's own, limits its tasks."""
    builder = TopologyBuilder("limited")
    builder.set_spout("1", Words(), 5)
    builder.set_bolt("2", EmitsTaskIndex(), 9).all_grouping("1")
    builder.set_bolt("3", EmitsTaskIndex(), 9).all_grouping("1").add_configuration("topology.max.task.parallelism", 2)
    done = complete_topology(builder.build(), {"1": [["a"]]}, {"topology.max.task.parallelism": 4})
    assert sorted(done.tuples("2")) == [(0,), (1,), (2,), (3,)]
    assert sorted(done.tuples("3")) == [(0,), (1,)]


class CountingHook(TaskHook):
    def __init__(self):
        self.emits = self.acks = self.fails = self.executes = 0

    def emitted(self, event):
        self.emits += 1

    def bolt_acked(self, event):
        self.acks += 1

    def bolt_failed(self, event):
        self.fails += 1

    def executed(self, event):
        self.executes += 1


class HookedBolt(RichBolt):
    output_fields = Fields("emit", "ack", "fail", "executed")

    def prepare(self, config, context, collector):
        self.hook = CountingHook()
        context.add_task_hook(self.hook)
        self.collector = collector

    def execute(self, tuple):
        hook = self.hook
        self.collector.emit([hook.emits, hook.acks, hook.fails, hook.executes])
        if hook.acks == hook.fails:
            self.collector.ack(tuple)
        else:
            self.collector.fail(tuple)


def test_hooks():
    """T-HOOKS: a hook sees emissions (the message of an ack or failure is one), acks, failures and executions."""
    done = complete_topology(two(HookedBolt()), {"1": [[1]] * 4})
    assert done.tuples("2") == [(0, 0, 0, 0), (2, 1, 0, 1), (4, 1, 1, 2), (6, 2, 1, 3)]


class SpoutHook(TaskHook, Events):
    def __init__(self):
        Events.__init__(self)

    def prepare(self, config, context):
        self.events.append(("prepared", context.this_component_id, config["my.setting"]))

    def emitted(self, event):
        self.events.append(("emitted", event.values, event.stream, event.to_tasks))

    def spout_acked(self, event):
        self.events.append(("acked", event.message_id, event.latency_secs))

    def spout_failed(self, event):
        self.events.append(("failed", event.message_id, event.latency_secs))

    def cleanup(self):
        self.events.append(("cleaned up",))


class HookedFeeder(FeederSpout):
    hook = SpoutHook()

    def open(self, config, context, collector):
        super().open(config, context, collector)
        context.add_task_hook(self.hook)
        with pytest.raises(StateAccessError, match="a plain topology has no states"):
            context.state("totals")
        with pytest.raises(TopologyError, match="no component 'nowhere'; there are: '0', '1'"):
            context.component_tasks("nowhere")


def test_spout_hooks():
    """A spout's hook sees its emissions, and its acks and failures with how long they took."""
    with InlineCluster() as cluster:
        settings = {"topology.message.timeout.secs": 10, "my.setting": 7}
        fed = Fed(cluster, AckEveryOther(), config=settings, spout=HookedFeeder)
        fed.feed("a")
        fed.running.tracked_wait(1)
        fed.feed("b")
        cluster.advance_time(10)
        fed.failed("b")
        fed.running.stop()
    assert fed.spout.hook.events == [
        ("prepared", "0", 7),
        ("emitted", ("a",), "default", [2]),
        ("acked", "a", 0.0),
        ("emitted", ("b",), "default", [2]),
        ("failed", "b", 10.0),
        ("cleaned up",),
    ]


class ReportsErrors(Acking):
    def execute(self, tuple):
        self.collector.report_error(RuntimeError("survived"))
        self.collector.ack(tuple)


def test_throttled_errors():
    """T-THROTTLE: in an interval only so many errors are reported; the next interval begins with an error."""
    settings = {"topology.error.throttle.interval.secs": 10, "topology.max.error.report.per.interval": 4}
    reported = []
    with InlineCluster() as cluster:
        fed = Fed(cluster, ReportsErrors(), config=settings)
        for number, later in enumerate((0, 0, 0, 0, 9, 2, 0)):
            fed.feed(number)
            fed.running.tracked_wait(1)
            reported.append(sum(status.reported_errors for status in fed.running.statuses()))
            cluster.advance_time(later)
    assert reported == [1, 2, 3, 4, 4, 4, 5]


@pytest.mark.parametrize("kind", [bytes, bytearray])
def test_fields_grouping(kind):
    """T-FIELD: keys of equal content go to the same task, from four spout tasks in two workers."""
    builder = TopologyBuilder("grouped")
    builder.set_spout("1", Words(), 4)
    builder.set_bolt("2", CountsBytes(), 6).fields_grouping("1", Fields("word"))
    words = [[kind(word)] for _ in range(24) for word in (b"a", b"b")]
    done = complete_topology(builder.build(), {"1": words})
    expected = Counter((word, count) for word in (b"a", b"b") for count in range(1, 25))
    assert Counter(done.tuples("2")) == expected


class CountsBytes(WordCounter):
    def execute(self, tuple, collector):
        word = bytes(tuple[0])
        self.counts[word] += 1
        collector.emit([word, self.counts[word]])


class FirstN(CustomStreamGrouping):
    def __init__(self, n):
        self.n = n

    def prepare(self, context, stream, target_tasks):
        self.tasks = target_tasks[: self.n]

    def choose_tasks(self, source_task, values):
        return self.tasks


def test_custom_groupings():
    """T-CUSTOM: the first two of four tasks, and the first three of six."""
    builder = TopologyBuilder("custom")
    builder.set_spout("1", Words())
    builder.set_bolt("2", Identity(), 4).custom_grouping("1", FirstN(2))
    builder.set_bolt("3", Identity(), 6).custom_grouping("1", FirstN(3))
    done = complete_topology(builder.build(), {"1": [["a"], ["b"]]})
    assert sorted(done.tuples("2")) == [("a",)] * 2 + [("b",)] * 2
    assert sorted(done.tuples("3")) == [("a",)] * 3 + [("b",)] * 3


class SendsDirectly(Acking):
    """Sends each word to the task that its number says, on a direct stream."""

    def declare_output_fields(self, declarer):
        declarer.declare_stream("direct", Fields("word"), direct=True)

    def execute(self, tuple):
        tasks = self.context.component_tasks("3")
        self.collector.emit_direct(tasks[int(tuple[0])], [tuple[0]], tuple, "direct")
        self.collector.ack(tuple)


def test_direct_grouping():
    """The emitter names a task, by the ids that the context says; the tuple tree is tracked as any other."""
    builder = TopologyBuilder("direct")
    builder.set_spout("1", Words())
    builder.set_bolt("2", SendsDirectly()).shuffle_grouping("1")
    builder.set_bolt("3", EmitsTaskIndex(), 4).direct_grouping("2", "direct")
    done = complete_topology(builder.build(), {"1": [["2"], ["0"], ["2"]]})
    assert sorted(done.tuples("3")) == [(0,), (2,), (2,)]
    assert done.statistics["1"].acked == 3


@pytest.mark.parametrize("workers", [1, 2])
def test_local_transport(workers):
    """T-LOCALTRANSPORT: 24 tuples are 24 results, within one worker and between two."""
    topology = two(GlobalCount(), bolts=6, spouts=2)
    done = complete_topology(topology, {"1": [["a"], ["b"]] * 12}, workers=workers)
    assert len(done.tuples("2")) == 24


def test_ticks_of_a_topology():
    """T-TICK1: ticks for all components: nothing breaks, in spouts and system components neither."""
    with InlineCluster(workers=2) as cluster:
        running = cluster.submit(two(AckBolt(), bolts=2), {"topology.tick.tuple.freq.secs": 1})
        cluster.advance_time(2)
        assert running.errors == []
        assert running.statistics()["2"].executed == 4


class KeepsTuples(Acking, Events):
    def __init__(self):
        Events.__init__(self)

    def execute(self, tuple):
        self.events.append((tuple.source_component, tuple.source_stream, list(tuple.values)))
        self.collector.ack(tuple)


def test_tick_tuples():
    """T-TICK2: a tick in each 30 s, and nothing else but what was fed."""
    bolt = KeepsTuples()
    ticks = []
    with InlineCluster() as cluster:
        fed = Fed(cluster, bolt, config={"topology.tick.tuple.freq.secs": 30})
        fed.feed("val")
        fed.acked("val")
        for _ in range(3):
            cluster.advance_time(30)
            ticks.append(bolt.events.count(("__system", "__tick", [30.0])))
    assert ticks == [1, 2, 3]
    assert [event for event in bolt.events if event[1] != "__tick"] == [("0", "default", ["val"])]


def test_metrics():
    """T-METR1: emissions, transfers, executions and acks are counted exactly."""
    with InlineCluster() as cluster:
        fed = Fed(cluster, AckBolt())
        for messages, total in [([1], 1), ([], 1), ([2, 3], 3)]:
            fed.feed(*messages)
            fed.running.tracked_wait(len(messages))
            cluster.advance_time(60)
            found = fed.running.statistics()
            assert found["0"] == Counts({"default": total}, total, acked=total)
            assert found["1"] == Counts(executed=total, acked=total)


def test_ackers_are_seen():
    """S18: the ackers are a component of their own in the statistics."""
    done = complete_topology(two(AckBolt()), {"1": [["a"]] * 3}, {"topology.ackers": 2}, workers=1)
    assert done.statistics["__acker"].executed == 3 + 3 + 3  # inits; acks of the bolt and of the one that captures


def test_tuples_of_tests():
    """T-TUPLE: a tuple for a test has a stream, a component and fields; each can be given."""
    plain = make_tuple(["james", "bond"])
    assert (plain.source_stream, plain.source_component) == ("default", "component")
    assert list(plain.fields) == ["field1", "field2"]
    given = make_tuple(["james", "bond"], fields=("fname", "lname"), component="1", stream="test-stream", task=7)
    assert (given.source_stream, given.source_component, given.source_task) == ("test-stream", "1", 7)
    assert (given["fname"], given[1], list(given), len(given)) == ("james", "bond", ["james", "bond"], 2)
    assert ("lname" in given, given.select(Fields("lname", "fname"))) == (True, ["bond", "james"])
    with pytest.raises(ValueError, match="2 values for the 1 fields fname"):
        make_tuple(["james", "bond"], fields=["fname"])
    with pytest.raises(AttributeError, match="no attempt"):
        _ = given.attempt


class Several(Words):
    def declare_output_fields(self, declarer):
        declarer.declare(Fields("word"))
        declarer.declare_stream("side", Fields("word", "n"))


def test_complete_topology_with_streams():
    """Spouts may be mocked by stream; what comes on a stream that nobody subscribes to is captured, too."""
    topology = two(Identity(), spout=Several())
    done = complete_topology(topology, {"1": {"default": [["a"]], "side": [["b", 1], ["c", 2]]}})
    assert (done.tuples("1"), done.tuples("1", "side"), done.tuples("2")) == ([("a",)], [("b", 1), ("c", 2)], [("a",)])
    with pytest.raises(TopologyError, match="no stream 'side' of '2' was captured"):
        done.tuples("2", "side")


def test_complete_topology_with_its_own_spout():
    """A spout that says when it is exhausted need not be mocked; tasks share its tuples out."""
    spout = FixedTupleSpout([[number] for number in range(10)], Fields("num"))
    done = complete_topology(two(Identity(), spout=spout, spouts=3))
    assert sorted(done.tuples("2")) == [(number,) for number in range(10)]


@pytest.mark.parametrize(
    ("mocks", "says"),
    [
        ({}, "spout '1' never ends: Words has no is_exhausted"),
        ({"2": [["a"]]}, "no spout '2' to mock; there are: '1'"),
        ({"1": {"side": [["a"]]}}, "spout '1' has no stream 'side' to mock; its streams are: 'default'"),
    ],
)
def test_complete_topology_refuses(mocks, says):
    """A spout that never ends, and an unknown spout or stream, are refused by name."""
    with pytest.raises(TopologyError, match=says):
        complete_topology(two(Identity()), mocks)


def test_another_kind_of_topology():
    """It is refused: what runs it is named."""
    with pytest.raises(TopologyError, match="complete_topology runs plain topologies"):
        complete_topology("topology")  # type: ignore[arg-type]
    with InlineCluster() as cluster, pytest.raises(TopologyError, match="an InlineCluster runs plain topologies"):
        cluster.submit("topology")  # type: ignore[arg-type]


@pytest.mark.slow
def test_complete_topology_with_timeouts():
    """What is never acked times out in simulated time; with timeouts disabled it says how many roots are pending."""
    topology, words = two(AckEveryOther()), {"1": [["a"]] * 5}
    done = complete_topology(topology, words)
    assert (done.statistics["1"].acked, done.statistics["1"].failed) == (3, 2)
    with pytest.raises(TimeoutError, match=r"'two' has not ended within .*; roots pending: 2"):
        complete_topology(topology, words, {"topology.enable.message.timeouts": False}, timeout_secs=1.0)


class OnTicks(Acking):
    """Acks what it has at each tick."""

    output_fields = Fields("count")

    def execute(self, tuple):
        self.held.append(tuple)
        if tuple.source_stream == "__tick":
            if len(self.held) > 1:
                self.collector.emit([len(self.held) - 1], self.held)
            for each in self.held:
                self.collector.ack(each)
            self.held = []


def test_complete_topology_with_ticks():
    """Ticks come while nothing else happens, so a bolt that works on ticks ends, too; no tick is captured as a tuple."""
    done = complete_topology(two(OnTicks()), {"1": [["a"]] * 3}, {"topology.tick.tuple.freq.secs": 5})
    assert done.tuples("2") == [(3,)]
    assert done.statistics["1"].acked == 3


class Broken(BasicBolt):
    def execute(self, tuple, collector):
        if tuple[0] == "reported":
            raise ReportedFailedException("no")
        raise LookupError("not found")


def test_complete_topology_with_exceptions():
    """FailedException fails tuples; the first other exception ends it and is raised."""
    topology = two(Broken())
    assert complete_topology(topology, {"1": [["reported"]]}).statistics["1"].failed == 1
    with pytest.raises(UserCodeError, match="LookupError: not found"):
        complete_topology(topology, {"1": [["broken"]]})


class Slow(Acking):
    """Writes in a thread of its own, and acks then."""

    def execute(self, tuple):
        def written(done):
            if isinstance(done.exception(), OSError):
                self.collector.fail(tuple)
            else:
                assert done.result() != threading.get_ident()
                self.collector.ack(tuple)

        self.context.offload(lambda: write(tuple[0]), written)


def write(word):
    if word == "failed":
        raise OSError("disk full")
    if word == "slow":
        threading.Event().wait(0.05)
    if word == "broken":
        raise LookupError("no disk")
    return threading.get_ident()


def test_slow_calls():
    """Simulated time waits for a slow call in a thread of its own, so that its tuple does not time out.

    What is raised at its end ends the worker, and names the component, as in execute.
    """
    topology, settings = two(Slow(), bolts=2), {"topology.message.timeout.secs": 0.5}
    done = complete_topology(topology, {"1": [["a"], ["slow"], ["failed"], ["b"], ["slow"]]}, settings)
    assert (done.statistics["1"].acked, done.statistics["1"].failed) == (4, 1)
    with pytest.raises(UserCodeError, match="task 2: LookupError: no disk") as raised:
        complete_topology(two(Slow()), {"1": [["broken"]]})
    assert raised.value.component == "2"


def test_runs_are_repeatable():
    """The same topology emits the same tuples in the same order, run after run."""
    topology = two(EmitsTaskIndex(), bolts=5, spouts=3)
    runs = [complete_topology(topology, {"1": [["a"]] * 20}, workers=1) for _ in range(3)]
    assert all(one.tuples("2") == other.tuples("2") for one, other in itertools.pairwise(runs))
