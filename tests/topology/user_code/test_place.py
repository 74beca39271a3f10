"""Errors of constructors, which no flow sees, name the user's line; those of steps and of ``build()`` are as they are."""

import pytest

from txtopo.errors import LoadError, RuleError
from txtopo.topology.user_code.loading import load_target

MODULE = """
from spouts import MemoryTransactionalSpout
from txtopo import Fields, TransactionalTopologyBuilder
from txtopo.streams import Flow, Sum, TopN, Tumbling


def topology():
    spout = MemoryTransactionalSpout([[1]], Fields("n: long"), 1)
    {line}
"""


@pytest.fixture
def load(tmp_path, monkeypatch):
    """Load a topology with a line of its own."""
    monkeypatch.syspath_prepend(tmp_path)

    def load(line):
        name = f"mistaken_{abs(hash(line))}"
        (tmp_path / f"{name}.py").write_text(MODULE.replace("{line}", line), encoding="utf-8")
        load_target(name, {}, tmp_path)

    return load


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("Tumbling(0)", "size is 0; give"),
        ("TopN('n', by='n', n=0)", "n is 0; give a whole number"),
        ("Sum(3)", "field is 3; give a string"),
        ("Fields('n: lon')", "'lon' is not a Spark type"),
        ("MemoryTransactionalSpout([[1, 2]], Fields('n: long'), 1)", "row 0 of partition 0 has 2 values"),
        ("Flow('f', 'out').source('s', spout).group_by('m')", "group_by: there is no field 'm'"),
    ],
)
def test_a_constructor(load, line, words):
    """The message begins with the file and the line, once, and ends with what is there."""
    with pytest.raises(RuleError, match=rf"^mistaken_\d+\.py, line 9: {words}") as raised:
        load(line)
    assert str(raised.value).endswith(f"\n    {line}")
    assert str(raised.value).count(", line ") == 1


def test_build(load):
    """What build() finds names a component, not the line of build()."""
    with pytest.raises(RuleError, match=r"^topology id '' must be"):
        load("return TransactionalTopologyBuilder('', 's', spout).build()")


def test_an_unknown_argument(load):
    """The line is the user's, not that of what the arguments are checked with."""
    with pytest.raises(LoadError, match=r"unexpected keyword argument 'of' \(.*mistaken_\d+\.py, line 9\)"):
        load("Sum('n', of=1)")
