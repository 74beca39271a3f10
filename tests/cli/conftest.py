"""What tests of commands share: a folder of their own to be called from, and a way to call them."""

import signal
import sys
from pathlib import Path

import attrs
import pytest
from click.testing import CliRunner, Result

from tests.processes import ran
from txtopo.main.group import txtopo
from txtopo.testing.inline import inline_environment


@attrs.frozen
class CommandLine:
    """Calls ``txtopo`` in this process, from a folder of its own; what a command runs is run without Spark."""

    folder: Path

    def __call__(self, *arguments: str) -> Result:
        return CliRunner().invoke(txtopo, arguments, prog_name="txtopo", obj=inline_environment())

    def told(self, *arguments: str) -> str:
        """Call a command that must succeed; return what it has printed."""
        result = self(*arguments)
        assert result.exit_code == 0, result.output
        return result.output

    def refusal(self, *arguments: str, status: int = 1) -> str:
        """Call a command that must end with this status; return what it says of that on standard error."""
        result = self(*arguments)
        assert result.exit_code == status, result.output
        return result.stderr

    def killed_at(self, point: str, *arguments: str) -> None:
        """Call a command in a process of its own, which is killed at a failpoint."""
        ended = ran("-m", "txtopo", *arguments, cwd=self.folder, failpoints=f"{point}=kill")
        assert ended.returncode == -signal.SIGKILL, ended.stderr

    def write_module(self, name: str, text: str) -> None:
        path = self.folder.joinpath(*name.split(".")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.fixture
def command_line(tmp_path, monkeypatch):
    modules = set(sys.modules)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield CommandLine(tmp_path)
    for name in set(sys.modules) - modules:
        module = sys.modules[name]
        if str(tmp_path) in str([getattr(module, "__file__", None), *getattr(module, "__path__", ())]):
            del sys.modules[name]
