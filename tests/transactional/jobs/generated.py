"""Topologies drawn at random, whose tables depend on the input alone: for comparing ways to run them."""

from collections import Counter
from random import Random

from spouts import MemoryTransactionalSpout, OpaqueMemoryTransactionalSpout
from state import MemoryState
from txtopo import BasicBolt, BatchBolt, Fields, ICommitter, Topology, TransactionalTopologyBuilder

FIELDS = Fields("attempt", "word", "n")


class Pass(BasicBolt):
    """Passes a tuple on, as often as its number says, with a word of its own now and then."""

    output_fields = FIELDS

    def __init__(self, copies: int) -> None:
        self.copies = copies

    def execute(self, tuple, collector):
        for copy in range(tuple["n"] % (self.copies + 1)):
            collector.emit((tuple.attempt, f"{tuple['word'][:2]}{copy}", tuple["n"] + copy))


class Total(BatchBolt):
    """Sums by word, and emits at the end of its batch."""

    output_fields = FIELDS

    def prepare(self, config, context, collector, attempt):
        self.sums: Counter[str] = Counter()

    def execute(self, tuple):
        self.sums[tuple["word"]] += tuple["n"]

    def finish_batch(self):
        for word, n in self.sums.items():
            self.collector.emit((self.attempt, word, n))


class Keep(BatchBolt, ICommitter):
    """Adds sums by word to its state, and emits what it added."""

    output_fields = FIELDS

    def __init__(self, state: str) -> None:
        self.name = state

    def prepare(self, config, context, collector, attempt):
        self.sums: Counter[str] = Counter()
        self.state = context.state(self.name)

    def execute(self, tuple):
        self.sums[tuple["word"]] += tuple["n"]

    def finish_batch(self):
        for word, n in sorted(self.sums.items()):
            self.state.update(word, lambda old, n=n: (old or 0) + n)
            self.collector.emit((self.attempt, word, n))


def draw_topology(random: Random) -> tuple[Topology, dict[str, MemoryState]]:
    """Return a topology of one to seven bolts, and its states."""
    words = [f"{letter}{other}" for letter in "abcde" for other in "xyz"]
    data = {p: [[random.choice(words), random.randrange(4)] for _ in range(random.randrange(9))] for p in range(3)}
    kind = random.choice((MemoryTransactionalSpout, MemoryTransactionalSpout, OpaqueMemoryTransactionalSpout))
    spout = kind(data, Fields("word", "n"), random.randrange(1, 4))
    # As many tasks everywhere, and tuples dealt evenly, is what most people begin with: then no tuple moves.
    is_even = random.random() < 0.3
    tasks_of = [random.randrange(1, 4)] if is_even else [1, 2, 3]
    builder = TransactionalTopologyBuilder("generated", "b0", spout, random.choice(tasks_of))
    states: dict[str, MemoryState] = {}
    sources, bolts = ["b0"], random.randrange(1, 8)
    for number in range(1, bolts + 1):
        name, tasks = f"b{number}", random.choice(tasks_of)
        some = random.sample(sources, random.randrange(1, min(len(sources), 2) + 1))
        is_last = number == bolts
        if is_last or (not is_even and random.random() < 0.3):
            states[name] = MemoryState(Fields("word"), Fields("n"))
            builder.set_state(name, states[name])
            declared = builder.set_committer_bolt(name, Keep(name), tasks)
            for source in some:
                if is_even:
                    _deal(random, declared, source)
                else:
                    # Each word goes to one task: what two tasks emit of one key would depend on their order.
                    declared.fields_grouping(source, Fields("word"))
        else:
            is_total = not is_even and random.random() < 0.4
            declared = builder.set_bolt(name, Total() if is_total else Pass(random.randrange(1, 3)), tasks)
            for source in some:
                if is_even:
                    _deal(random, declared, source)
                else:
                    _group(random, declared, source, is_total=is_total)
        sources.append(name)
    return builder.build(), states


def _deal(random: Random, declared, source: str) -> None:
    random.choice((declared.shuffle_grouping, declared.local_or_shuffle_grouping))(source)


def _group(random: Random, declared, source: str, *, is_total: bool) -> None:
    """Group so that sums do not depend on how tuples are dealt."""
    if is_total:  # a total emits one tuple for a word and task
        random.choice(
            (lambda: declared.fields_grouping(source, Fields("word")), lambda: declared.global_grouping(source))
        )()
        return
    random.choice(
        (
            lambda: declared.shuffle_grouping(source),
            lambda: declared.local_or_shuffle_grouping(source),
            lambda: declared.fields_grouping(source, Fields("word")),
            lambda: declared.all_grouping(source),
            lambda: declared.partial_key_grouping(source, Fields("word")),
        )
    )()
