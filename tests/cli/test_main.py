"""What the command line imports."""

import subprocess
import sys

import pytest
from click import Context
from click.testing import CliRunner

from txtopo import main
from txtopo.main.group import _COMMANDS, txtopo

LISTED = """
import sys
from click.testing import CliRunner
from txtopo.main.group import txtopo
assert CliRunner().invoke(txtopo, ["--help"]).exit_code == 0
print(*(name for name in sys.modules if name.startswith("txtopo.cli")))
"""

LOADED = """
import sys
import examples.transactional_words
from txtopo.main.group import txtopo
txtopo.get_command(None, "run")
print(*sorted(set(sys.argv[1:]) & set(sys.modules)))
"""


@pytest.mark.slow
def test_a_run_imports_nothing_that_other_commands_need():
    """``txtopo run`` waits neither for the client of ZooKeeper nor for the simulator; a worker does not, either."""
    others = ["kazoo", "txtopo.cli.look.audit", "txtopo.cli.mend.repair", "txtopo.testing.simulation.world"]
    command = [sys.executable, "-c", LOADED, "txtopo.cli.run.run", *others]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "txtopo.cli.run.run\n"


WITHOUT_EXTRAS = """
import sys
for name in ("confluent_kafka", "delta", "httpx", "prometheus_client", "starlette", "uvicorn"):
    sys.modules[name] = None
from click.testing import CliRunner
from txtopo.main.group import txtopo
for command in sys.stdin.read().splitlines():
    result = CliRunner().invoke(txtopo, command.split(), prog_name="txtopo")
    print(result.exit_code, result.output.strip().splitlines()[-1])
"""


@pytest.mark.slow
def test_a_command_without_its_extra_says_how_to_install_it(tmp_path):
    """One line with the remedy, whichever command it is and wherever the import is; nothing is on an index."""
    (tmp_path / "mine.py").write_text("import confluent_kafka\n")
    (tmp_path / "hidden.py").write_text("def topology():\n    import prometheus_client\n")
    extras = {
        "cluster dev": "cluster",
        "nimbus": "cluster",
        "supervisor": "cluster",
        "list": "cluster",
        "submit examples.ring": "cluster",
        "logs mine": "cluster",
        "kafka dev --folder kafka": "kafka",
        "run examples.ring --metrics 0": "metrics",
        "run examples.ring --ui=0": "ui",
        "ui .": "ui",
        "show mine": "kafka",
        "show hidden": "metrics",
    }
    command = [sys.executable, "-c", WITHOUT_EXTRAS]
    given = "\n".join(extras)
    said = subprocess.run(command, input=given, capture_output=True, text=True, check=True, cwd=tmp_path).stdout
    for (command_line, extra), line in zip(extras.items(), said.splitlines(), strict=True):
        assert line.startswith(("1 error: ", "2 error: ")), (command_line, line)
        assert line.endswith(f"in txtopo's checkout, .venv/bin/pip install '.[{extra}]'"), (command_line, line)


def test_ctrl_c_while_a_command_is_imported(monkeypatch):
    """One line and the status of an interrupted command, as later on."""

    def interrupted(name):
        raise KeyboardInterrupt

    monkeypatch.setattr("txtopo.lazy.importlib.import_module", interrupted)
    vars(main).pop("show", None)
    result = CliRunner().invoke(txtopo, ["show", "examples.ring"], prog_name="txtopo")
    assert (result.exit_code, result.output) == (130, "error: interrupted\n")


@pytest.mark.slow
def test_a_list_of_commands_imports_none():
    """``txtopo --help`` says what each does in the words of its own help, at once."""
    command = [sys.executable, "-c", LISTED]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "\n"
    shown = CliRunner().invoke(txtopo, ["--help"]).output
    assert shown.count("\n  ") > len(txtopo.list_commands(Context(txtopo)))


def test_every_command_is_found():
    """Each command that is listed has that name and says the same of itself; its ``--help`` says what each option is for."""
    context = Context(txtopo)
    assert txtopo.list_commands(context) == sorted(txtopo.list_commands(context))
    for name in txtopo.list_commands(context):
        command = txtopo.get_command(context, name)
        assert command.name == name
        assert command.get_short_help_str(1000) == _COMMANDS[name]
        assert CliRunner().invoke(txtopo, [name, "--help"]).exit_code == 0
        for each in (command, *getattr(command, "commands", {}).values()):
            options = [parameter for parameter in each.params if parameter.param_type_name == "option"]
            assert [option.name for option in options if not (option.help or "").endswith(".")] == [], each.name
    assert txtopo.get_command(context, "nonsense") is None


def test_a_misspelt_command():
    """The nearest one is suggested."""
    assert "Did you mean 'run'?" in CliRunner().invoke(txtopo, ["rn"]).output
