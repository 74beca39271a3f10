"""Bolts that tests of all sorts build on."""

from txtopo import BasicBolt, BatchBolt, Fields, ICommitter


class Pass(BasicBolt):
    """Passes words on."""

    output_fields = Fields("attempt", "word")

    def execute(self, tuple, collector):
        collector.emit(tuple.values)


class PassBatch(BatchBolt):
    """Passes words on."""

    output_fields = Fields("attempt", "word")

    def execute(self, tuple):
        self.collector.emit(tuple.values)


class Take(BatchBolt):
    """Takes tuples, and does nothing with them."""

    def execute(self, tuple):
        pass


class Collecting(BatchBolt, ICommitter):
    """Collects the words of its batch; a subclass puts them into the state when the batch is over."""

    def __init__(self, state: str = "words") -> None:
        self.name = state

    def prepare(self, config, context, collector, attempt):
        self.state = context.state(self.name)
        self.words: list[str] = []

    def execute(self, tuple):
        self.words.append(tuple["word"])


class Keep(Collecting):
    """Keeps each word with the transaction that has it."""

    def finish_batch(self):
        for word in self.words:
            self.state.put(word, self.attempt.txid)


class Count(Collecting):
    """Counts each word."""

    def finish_batch(self):
        for word in self.words:
            self.state.update(word, lambda old: (old or 0) + 1)
