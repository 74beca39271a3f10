"""``MODULE[:ATTRIBUTE]``: found in the current folder, or refused in one line that says what is near."""

import pytest

TOPOLOGY = """
from pathlib import Path
from spouts import MemoryTransactionalSpout
from txtopo import BatchBolt, Config, Fields, TransactionalTopologyBuilder

class Sink(BatchBolt):
    def execute(self, tuple): ...

def topology(name: str = "mine", tasks: int = 2):
    spout = MemoryTransactionalSpout(["a"], Fields("word"), 1)
    builder = TransactionalTopologyBuilder(name, "spout", spout, tasks)
    builder.set_bolt("sink", Sink(), tasks).shuffle_grouping("spout")
    return builder.build()

def config():
    return Config(max_spout_pending=5)

made = topology("ready-made")
"""


@pytest.fixture(autouse=True)
def module(command_line):
    command_line.write_module("inner.topo", TOPOLOGY)


@pytest.mark.parametrize(
    ("target", "options", "expected"),
    [
        ("inner.topo", (), "mine"),
        ("inner.topo:made", (), "ready-made"),
        ("inner.topo:topology", ("--set", "name=other", "--set", "tasks=3"), "other"),
    ],
)
def test_a_topology_is_found_from_the_current_folder(command_line, target, options, expected):
    """A module, a function of it with parameters, or a topology that is there already."""
    result = command_line("show", target, *options)
    assert (result.exit_code, result.output.split()[0]) == (0, expected)


@pytest.mark.parametrize(
    ("target", "options", "expected"),
    [
        ("inner.topology", (), "there is no module 'inner.topology'; did you mean 'inner.topo'?"),
        ("iner.topo", (), "there is no module 'iner.topo'; did you mean 'inner.topo'?"),
        ("inner.topo:topologie", (), "module inner.topo has no 'topologie'; did you mean 'topology'?"),
        (
            "inner.topo:nothing_like_it",
            (),
            "module inner.topo has no 'nothing_like_it'; there are: config, made",
        ),
        ("inner", (), "'inner' is a folder, not a module; its modules are inner.topo"),
        ("inner/topo.py", (), "'inner/topo.py' is a path; name the module: inner.topo"),
        ("inner.topo:config", (), "inner.topo:config returns something of type Config; it must be a Topology"),
        ("inner.topo:Fields", (), "inner.topo:Fields returns something of type Fields; it must be a Topology"),
        ("inner.topo", ("--set", "tasks"), "--set takes name=value, not 'tasks'"),
    ],
)
def test_what_is_not_there_is_told_in_one_line(command_line, target, options, expected):
    """A mistake in the command line ends with status 2 and names what is near; no traceback."""
    result = command_line("show", target, *options)
    assert expected in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert result.exit_code == 2


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import nothing_of_that_name", "ModuleNotFoundError: No module named 'nothing_of_that_name'"),
        ("x = 1 / 0", "ZeroDivisionError: division by zero"),
        ("import sys\nsys.exit(0)", "SystemExit: 0"),
        ("import sys\ndef topology():\n    sys.exit()", "the function that makes topology broken failed: SystemExit"),
        ("x = (", "SyntaxError: '(' was never closed"),
        (
            "class E(Exception):\n    def __str__(self):\n        return 1 / 0\nraise E",
            "E: (its text can't be had: Zero",
        ),
        (
            "def topology():\n    raise KeyError('k')",
            "the function that makes topology broken failed: KeyError",
        ),
    ],
)
def test_an_exception_of_the_module_is_told_in_one_line_with_its_place(command_line, text, expected):
    """An exception outside bolts and spouts names file and line; its traceback comes with --debug only."""
    command_line.write_module("broken", text)
    result = command_line("show", "broken")
    assert result.exit_code == 1
    assert expected in result.stderr
    assert "broken.py, line " in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert "Traceback" in command_line("show", "broken", "--debug").stderr


def test_a_mistake_in_the_graph_is_told_in_the_words_of_build(command_line):
    command_line.write_module("wrong", TOPOLOGY.replace('shuffle_grouping("spout")', 'shuffle_grouping("sport")'))
    result = command_line("show", "wrong")
    assert (result.exit_code, result.stderr) == (
        1,
        "error: bolt 'sink' subscribes to unknown component 'sport'; did you mean 'spout'?\n",
    )


def test_a_wrong_setting_is_told_in_the_words_of_config(command_line):
    result = command_line("run", "inner.topo", "--set", "topology.max.spout.pending=0")
    assert result.exit_code == 1
    assert result.stderr.startswith("error: topology.max.spout.pending is '0'; it must be an integer")


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("/nope", "'/nope' is a path, not the name of a module; there is no such file or folder either"),
        (
            "s3://bucket/shop",
            "s3://bucket/shop is an address, not the name of a module; name the module of the topology",
        ),
        ("{folder}/pack/words.py", "'{folder}/pack/words.py' is a path; name the module: pack.words"),
        ("pack/words.py", "'pack/words.py' is a path; name the module: pack.words"),
    ],
)
def test_a_path_is_answered_with_the_module(command_line, target, expected):
    """A file below the current folder is named as a module is; any other path is refused as one."""
    result = command_line("show", target.format(folder=command_line.folder))
    assert (result.exit_code, result.stderr) == (2, f"error: {expected.format(folder=command_line.folder)}\n")


@pytest.mark.parametrize("command", ["audit", "explain", "blame", "diff", "ui"])
def test_a_name_longer_than_that_of_any_file(command_line, command):
    """It names no folder: one line says so, as of any other."""
    arguments = {"explain": ["1"], "blame": ["key"], "diff": ["other"]}.get(command, [])
    result = command_line(command, "y" * 256, *arguments)
    assert result.exit_code in {1, 2}
    assert len(result.stderr.splitlines()) == 1 or result.stderr.startswith("Usage")
    assert result.exception is None or isinstance(result.exception, SystemExit)
