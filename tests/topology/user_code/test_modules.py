"""The user's modules beside those of txtopo, Python and installed packages: a name that is taken is said at once."""

import sys
from importlib.util import find_spec

import pytest

from tests.processes import ROOT, ran

MODULE = """
from spouts import MemoryTransactionalSpout
from txtopo import Fields, TransactionalTopologyBuilder

def topology():
    spout = MemoryTransactionalSpout([[1]], Fields("n"), 1)
    return TransactionalTopologyBuilder("t", "spout", spout, 1).build()
"""
SCRIPT = """
import txtopo
from txtopo.testing.inline import run_inline

print("imported")
"""


def said(folder, *arguments):
    """Call Python from a folder; return what it says at its end."""
    ended = ran(*arguments, cwd=folder, NO_COLOR="1")
    assert ended.returncode in {1, 2}, ended.stdout
    return ended.stderr.strip().splitlines()[-1]


def theirs(folder, name):
    """Make a module of a user's beside their topology; return its file, or its package's folder."""
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("")
    (folder / "job.py").write_text(MODULE)
    return folder / name.partition("/")[0]


@pytest.mark.few(1)
@pytest.mark.covering(1)
@pytest.mark.parametrize("name", ["state/__init__.py", "spouts.py", "committers/__init__.py"])
@pytest.mark.parametrize("how", ["show", "submit", "script"])
def test_a_name_of_a_package_of_ours(tmp_path, name, how):
    """Theirs would hide ours, or ours theirs."""
    top = theirs(tmp_path, name)
    (tmp_path / "script.py").write_text(SCRIPT)
    ours = ROOT / top.stem
    command = ("script.py",) if how == "script" else ("-c", RUN, how, "job")
    assert f"{top} has the name of {ours}, a package of txtopo: " in said(tmp_path, *command)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "command"),
    [("txtopo", ("-c", "RUN", "show", "job")), ("state", ("-c", "from committers import ReduceCommitter"))],
)
def test_a_package_that_hides_ours(tmp_path, name, command):
    """Theirs may be called txtopo, too, and ours may need what theirs hides before txtopo itself is imported."""
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").write_text("")
    (tmp_path / "job.py").write_text(MODULE)
    text = said(tmp_path, *(RUN if each == "RUN" else each for each in command))
    assert f"{tmp_path / name} has the name of {ROOT / name}, a package of txtopo: " in text


RUN = """
import sys
sys.path.pop(0)  # as the installed command, whose path begins with its own folder
from txtopo.main.group import main
main()
"""


def files_of(*names):
    """Those of some modules of Python, but for what is built into it, which no file hides."""
    return pytest.mark.parametrize("name", [name for name in names if name[:-3] not in sys.builtin_module_names])


@pytest.mark.slow
@files_of("queue.py", "select.py", "types.py", "email/__init__.py")
def test_a_name_of_a_module_of_python(tmp_path, name):
    """Spark's workers would import theirs."""
    top = theirs(tmp_path, name)
    module = sys.modules.get(top.stem) or __import__(top.stem)
    text = said(tmp_path, "-c", RUN, "run", "job")
    assert text.startswith(
        f"error: {top} has the name of {module.__file__.removesuffix('/__init__.py')}, a module of Python"
    )


@pytest.mark.slow
@files_of("queue.py", "select.py", "logging.py")
def test_a_name_of_a_module_of_python_at_an_import(tmp_path, name):
    """Of which Python would say that txtopo lacks a name, or pyarrow."""
    (tmp_path / name).write_text("")
    (tmp_path / "words.py").write_text("from txtopo import TransactionalTopologyBuilder")
    text = said(tmp_path, "-c", "import words")
    assert f"{tmp_path / name} has the name of " in text
    assert "a module of Python, which txtopo imports: only one of them can be imported; rename yours" in text


@pytest.mark.slow
def test_a_name_of_an_installed_package(tmp_path):
    (tmp_path / "attrs").mkdir()
    (tmp_path / "attrs" / "__init__.py").write_text("")
    (tmp_path / "attr.py").write_text("")
    (tmp_path / "job.py").write_text(MODULE)
    assert "which is installed" in said(tmp_path, "-c", RUN, "show", "job")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pyspark/__init__.py", "py4j.py"])
def test_a_name_of_a_package_of_spark(tmp_path, name):
    """It is imported only later, when Spark starts."""
    top = theirs(tmp_path, name)
    installed = find_spec(top.stem).submodule_search_locations[0]
    expected = f"{top} has the name of {installed}, which is installed"
    assert expected in said(tmp_path, "-c", RUN, "show", "job")
    (tmp_path / "script.py").write_text(SCRIPT)
    assert expected in said(tmp_path, "script.py")


@pytest.mark.slow
def test_folders_that_are_no_packages_hide_nothing(tmp_path):
    """Data in a folder of such a name is no module, nor is a file of no module's name; a missing module says why."""
    for name in ("state", "examples", "queue"):
        (tmp_path / name).mkdir()
    (tmp_path / "state" / "mine.py").write_text(MODULE)
    (tmp_path / "examples" / "mine.py").write_text(MODULE)
    (tmp_path / "test.py").write_text("")
    (tmp_path / "job.py").write_text(MODULE)
    (tmp_path / "other.py").write_text("import state.mine")
    assert ran("-c", RUN, "show", "job", cwd=tmp_path).returncode == 0
    assert f"hides {tmp_path / 'state'}: rename yours" in said(tmp_path, "-c", RUN, "show", "state.mine")
    assert f"hides {tmp_path / 'state'}: rename yours" in said(tmp_path, "-c", RUN, "show", "other")
    assert f"hides {tmp_path / 'examples'}: rename yours" in said(tmp_path, "-c", RUN, "show", "examples.mine")


@pytest.mark.slow
def test_examples_of_another_project(tmp_path):
    """Theirs may be run; ours are then said to be hidden."""
    (tmp_path / "examples").mkdir()
    (tmp_path / "examples" / "__init__.py").write_text("")
    (tmp_path / "examples" / "mine.py").write_text(MODULE)
    assert ran("-c", RUN, "show", "examples.mine", cwd=tmp_path).returncode == 0
    text = said(tmp_path, "-c", RUN, "show", "examples.global_count")
    assert f"{tmp_path / 'examples'} hides {ROOT / 'examples'}, a package of txtopo: rename yours" in text


@pytest.mark.slow
def test_a_checkout_of_txtopo(tmp_path):
    """Whatever is installed, the README's command works in it."""
    for name in ("txtopo", "spouts", "committers", "state"):
        (tmp_path / name).mkdir()
    for name in ("txtopo", "state"):
        (tmp_path / name / "__init__.py").write_text("")
    (tmp_path / "job.py").write_text(MODULE)
    assert ran("-c", RUN, "show", "job", cwd=tmp_path).returncode == 0
