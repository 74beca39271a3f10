"""Objects on their way between processes."""

import subprocess
import sys
import threading

import pytest

from spouts import MemoryTransactionalSpout
from tests.api.components.test_partitioned import Log, LogSpout
from tests.processes import environment
from txtopo import Fields, TransactionalTopologyBuilder
from txtopo.errors import FailedException, FieldsError, TxtopoError, UserCodeError
from txtopo.testing.inline import run_inline
from txtopo.transactional.tasks.factory import CONFIGURATION, Configuration, _Configured
from txtopo.transactional.tasks.objects import dump_object, load_object


class Refusing:
    """Looks at what it holds before it travels."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __getstate__(self):
        raise self.error


@pytest.mark.parametrize("error", [FieldsError("field 'n'"), FailedException("again")], ids=repr)
def test_what_an_object_refuses_itself_is_told_as_it_is(error: TxtopoError) -> None:
    """An error of ours that an object raises while it is frozen keeps its class: a failure is replayed, for example."""
    with pytest.raises(type(error)) as refusal:
        dump_object(Refusing(error))
    assert refusal.value is error


def test_what_does_not_pickle_is_named() -> None:
    """An attribute that does not pickle is the user's mistake, and named."""

    class Holder:
        def __init__(self) -> None:
            self.lock = threading.Lock()

    with pytest.raises(UserCodeError, match="lock"):
        dump_object(Holder())


def test_a_spout_that_does_not_pickle() -> None:
    """The spout is named by its id, and the attribute by its name."""
    for spout, name in ((MemoryTransactionalSpout([], Fields("word"), 1), "lock"), (LogSpout(Log({})), r".*\.lock")):
        spout.lock = threading.Lock()
        builder = TransactionalTopologyBuilder("t", "words", spout)
        with pytest.raises(UserCodeError, match=rf"component 'words'.*, attribute '{name}' \(lock\), does not pickle"):
            run_inline(builder.build())


def test_the_configuration_stays_where_it_is() -> None:
    """A bolt takes no copy along: it finds that of the place it comes to; one that has changed it takes it along."""

    class Bolt:
        pass

    bolt, there = Bolt(), configuration(a="y")
    bolt.config = configuration(a="x" * 10_000, b=[1])
    frozen = dump_object(bolt)
    assert len(frozen) < 300
    assert load_object(Bolt, frozen, {CONFIGURATION: there}).config is there
    bolt.config["b"].append(2)
    assert load_object(Bolt, dump_object(bolt), {CONFIGURATION: there}).config == {"a": "x" * 10_000, "b": [1, 2]}


def configuration(**values) -> Configuration:
    """Return a component's configuration."""
    return Configuration(_Configured(values, tuple(values)))


SCRIPT = """
import sys
from txtopo.transactional.tasks.objects import dump_object

def double(n):
    return 2 * n

class Named:
    n = 3

class Bolt:
    def __init__(self):
        self.function, self.value = double, Named()

sys.stdout.buffer.write(dump_object(Bolt()))
"""


def test_what_a_script_defines_travels_along(tmp_path):
    """A function of __main__ that a bolt holds is none of the worker's __main__."""

    class Bolt:
        pass

    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, "script.py"]
    made = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, check=True)
    loaded = load_object(Bolt, made.stdout, {})
    assert (loaded.function(4), loaded.value.n) == (8, 3)
