"""The bolts of Storm's tests of plain topologies, and a running topology that a test feeds."""

from collections import Counter

from txtopo import BasicBolt, Fields, RichBolt, Spout, TopologyBuilder
from txtopo.testing import AckFailMapTracker, FeederSpout


class WordCounter(BasicBolt):
    output_fields = Fields("word", "count")

    def prepare(self, config, context):
        self.counts = Counter()

    def execute(self, tuple, collector):
        word = tuple[0]
        self.counts[word] += 1
        collector.emit([word, self.counts[word]])


class GlobalCount(BasicBolt):
    output_fields = Fields("global-count")

    def prepare(self, config, context):
        self.count = 0

    def execute(self, tuple, collector):
        self.count += 1
        collector.emit([self.count])


class Acking(RichBolt):
    """Keeps the collector; subclass it."""

    def prepare(self, config, context, collector):
        self.collector, self.context = collector, context
        self.held = []


class AckBolt(Acking):
    def execute(self, tuple):
        self.collector.ack(tuple)


class Identity(Acking):
    output_fields = Fields("val")

    def execute(self, tuple):
        self.collector.emit(tuple.values, tuple)
        self.collector.ack(tuple)


class Branch(Acking):
    """Emits so many tuples for each."""

    output_fields = Fields("num")

    def __init__(self, branches):
        self.branches = branches

    def execute(self, tuple):
        for number in range(self.branches):
            self.collector.emit([number], tuple)
        self.collector.ack(tuple)


class Aggregate(Acking):
    """Emits one tuple for so many, anchored to all of them."""

    output_fields = Fields("num")

    def __init__(self, number):
        self.number = number

    def execute(self, tuple):
        self.held.append(tuple)
        if len(self.held) == self.number:
            self.collector.emit([1], self.held)
            for each in self.held:
                self.collector.ack(each)
            self.held = []


class AckEveryOther(Acking):
    """Acks the first, third, fifth tuple … and forgets the others."""

    is_odd = False

    def execute(self, tuple):
        self.is_odd = not self.is_odd
        if self.is_odd:
            self.collector.ack(tuple)


def chain(spout: Spout, *bolts: RichBolt | BasicBolt):
    """Return a topology in which each bolt takes what the one before emits."""
    builder = TopologyBuilder("chain")
    builder.set_spout("0", spout)
    for number, bolt in enumerate(bolts, start=1):
        builder.set_bolt(str(number), bolt).shuffle_grouping(str(number - 1))
    return builder.build()


class Fed:
    """A running topology, by default a chain of bolts, whose spout emits what it is fed and tells a tracker."""

    def __init__(self, cluster, *bolts, config=None, build=chain, spout=FeederSpout, active=True):
        self.tracker = AckFailMapTracker()
        self.spout = spout(Fields("num"), self.tracker)
        self.running = cluster.submit(build(self.spout, *bolts), config, active=active)

    def feed(self, *messages):
        """Feed tuples of one value, which is their message id, too."""
        for message in messages:
            self.spout.feed([message], message)

    def acked(self, *messages):
        """Wait until these are acked."""
        self.tracker.assert_acked(*messages)

    def failed(self, *messages):
        """Wait until these have failed."""
        self.tracker.assert_failed(*messages)

    def told(self, fed=0):
        """Wait until all is processed, with so many tuples more; return how often each was acked, and has failed."""
        self.running.tracked_wait(fed)
        return dict(self.tracker.acked), dict(self.tracker.failed)
