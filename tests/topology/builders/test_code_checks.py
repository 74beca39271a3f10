"""What build() finds in the code of a component: signatures, streams that are not declared, attributes that are shared."""

import pytest

from spouts import MemoryTransactionalSpout
from txtopo import ArrowBatchBolt, BasicBolt, BatchBolt, Fields, TransactionalTopologyBuilder
from txtopo.errors import SharedStateWarning, TopologyError


def build(bolt, spout=None):
    spout = spout or MemoryTransactionalSpout([["cat"]], Fields("word: string"), 1)
    builder = TransactionalTopologyBuilder("t", "spout", spout)
    builder.set_bolt("bolt", bolt).shuffle_grouping("spout")
    return builder.build()


class Takes(BatchBolt):
    def execute(self, tuple):
        pass


class PreparesAsBasic(Takes):
    def prepare(self, config, context):
        pass


class ExecutesWithCollector(BatchBolt):
    def execute(self, tuple, collector):
        pass


class FinishesWithAttempt(Takes):
    def finish_batch(self, attempt):
        pass


class BasicWithoutCollector(BasicBolt):
    def execute(self, tuple):
        pass


class ArrowWithoutBatch(ArrowBatchBolt):
    def execute(self):
        pass


class Declares(Takes):
    def declare_output_fields(self):
        pass


class AsInStorm(Takes):
    def finishBatch(self):  # noqa: N802 - that is the mistake
        pass


class HasNone(Takes):
    finish_batch = None


@pytest.mark.parametrize(
    ("bolt", "texts"),
    [
        (
            PreparesAsBasic(),
            [
                "PreparesAsBasic.prepare(self, config, context) cannot be called with 4 arguments",
                "write def prepare(self, config, context, collector, attempt)",
            ],
        ),
        (ExecutesWithCollector(), ["execute(self, tuple, collector)", "1 argument", "def execute(self, tuple)"]),
        (FinishesWithAttempt(), ["finish_batch(self, attempt)", "no argument", "def finish_batch(self)"]),
        (BasicWithoutCollector(), ["execute(self, tuple)", "2 arguments", "def execute(self, tuple, collector)"]),
        (ArrowWithoutBatch(), ["execute(self)", "1 argument", "def execute(self, batch)"]),
        (Declares(), ["declare_output_fields(self)", "def declare_output_fields(self, declarer)"]),
        (AsInStorm(), ["AsInStorm.finishBatch() is never called", "rename it to finish_batch()"]),
        (HasNone(), ["HasNone has no method finish_batch()", "def finish_batch(self)"]),
    ],
    ids=lambda case: type(case).__name__,
)
def test_a_wrong_signature(bolt, texts):
    """Class, method and the expected signature are named."""
    with pytest.raises(TopologyError) as raised:
        build(bolt)
    for text in ["'bolt'", *texts]:
        assert text in str(raised.value)


class OtherNames(Takes):
    def prepare(self, _config, *rest):
        pass

    def execute(self, t, *, strict=True):
        pass

    def finish_batch(self, last=None):
        pass


def test_a_signature_that_fits():
    """Names are free, and so is what has a default."""
    build(OtherNames())


class EmitsUndeclared(Takes):
    def finish_batch(self):
        self.collector.emit((self.attempt, 1))


class EmitsByOtherName(BasicBolt):
    def execute(self, tuple, out):
        out.emit(tuple.values)


class EmitsInHelper(Takes):
    def finish_batch(self):
        self._tell()

    def _tell(self):
        self.collector.emit_batch(None)


class EmitsOnSide(Takes):
    output_fields = Fields("attempt", "n")

    def finish_batch(self):
        self.collector.emit((self.attempt, 1), "side")
        self.collector.emit((self.attempt, 1), stream="side")
        self.collector.emit_direct(0, (self.attempt, 1), "other")


@pytest.mark.parametrize(
    ("bolt", "texts"),
    [
        (EmitsUndeclared(), ["EmitsUndeclared.finish_batch() emits on stream 'default', which is not declared"]),
        (EmitsByOtherName(), ["EmitsByOtherName.execute() emits", "set output_fields = Fields('attempt', …)"]),
        (EmitsInHelper(), ["EmitsInHelper._tell() emits on stream 'default'"]),
        (
            EmitsOnSide(),
            ["emits on stream 'side'", "emits on stream 'other'", "declarer.declare_stream('side', Fields(…))"],
        ),
    ],
    ids=lambda case: type(case).__name__,
)
def test_what_is_emitted_is_declared(bolt, texts):
    """A leaf that emits would fail at its first tuple; it is refused before anything runs, each stream once."""
    with pytest.raises(TopologyError) as raised:
        build(bolt)
    for text in texts:
        assert str(raised.value).count(text) == 1


class EmitsWhatItMay(Takes):
    def declare_output_fields(self, declarer):
        declarer.declare_stream("side", Fields("attempt", "n"))

    def execute(self, tuple):
        self.collector.emit((self.attempt, 1), "side")
        self.collector.emit((self.attempt, 1), self._stream())
        self.signal.emit("not a collector")

    def finish_batch(self):
        if self.output_fields is not None:
            self.collector.emit((self.attempt, 1))

    def _stream(self):
        return "side"


def test_what_may_be_declared_is_left_alone():
    """Streams that are declared, or computed, other objects' emit(), and code that looks at what is declared."""
    build(EmitsWhatItMay())


class Shares(Takes):
    seen = []  # noqa: RUF012 - that is the mistake
    NAMES = {"a": 1}  # noqa: RUF012 - a constant
    limit = 3
    own = {}  # noqa: RUF012 - hidden by the object's
    _words = set()  # noqa: RUF012 - as above

    def __init__(self):
        self.own = {}


class Inherits(Shares):
    _words = ()


def test_class_attributes_that_are_shared():
    """Class and attribute are named; constants, and what each object has of its own, are not."""
    with pytest.warns(SharedStateWarning) as warned:
        build(Shares())
    texts = sorted(str(each.message) for each in warned)
    assert [text.split(" is a ")[0].rpartition(".")[2] for text in texts] == ["_words", "seen"]
    assert all("test_code_checks.Shares." in text and "in prepare()" in text for text in texts)
    assert warned[0].filename == __file__
    with pytest.warns(SharedStateWarning) as warned:
        build(Inherits())
    assert ["Shares.seen is a class attribute of type list" in str(each.message) for each in warned] == [True]
