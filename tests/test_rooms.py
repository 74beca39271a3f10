"""Rooms: the architecture page shows each one, on the floor that the contracts of import-linter give it."""

import graphlib
import pathlib
import re
import tomllib

import grimp
import pytest

ROOT = pathlib.Path(__file__).parents[1]
PACKAGES = ("txtopo", "spouts", "committers", "state")
OF_IMPORTS = {"__init__", "__main__", "lazy"}
"""Modules of the root that are about imports themselves."""

FOLDERS = sorted(
    path.parent.relative_to(ROOT).as_posix() for package in PACKAGES for path in (ROOT / package).rglob("__init__.py")
)


def rows() -> list[tuple[list[str], list[str]]]:
    """Return the rooms of each row of the page's table, and the names that the row says."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    wing, found = "", []
    for line in page.partition("| room |")[2].partition("\n\n")[0].splitlines()[2:]:
        first, second = line.strip("| ").split(" | ", 1) if " | " in line.strip("| ") else (line, "")
        rooms = [name.replace("…", wing) for name in re.findall(r"`([^`]+)`", first)]
        if first.startswith("**`"):
            (wing,) = rooms
        found.append((rooms, re.findall(r"`([^`]+)`", second)))
    return found


def layers() -> list[set[str]]:
    """Return the rooms of each floor, from the top, as import-linter checks them."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (floors,) = (contract["layers"] for contract in contracts if contract["name"] == "Imports point one way")
    return [{room.strip().replace(".", "/") for room in floor.split("|")} for floor in floors]


@pytest.mark.parametrize("folder", FOLDERS)
def test_each_room_is_on_the_page(folder):
    """A room has a row of its own, or is named in the row of the room that it lies in."""
    if folder == "txtopo":
        return
    named = {room: names for rooms, names in rows() for room in rooms}
    around = max((room for room in named if f"{folder}/".startswith(f"{room}/")), key=len, default=None)
    assert around is not None, "no row has it, nor the room around it"
    inside = folder.removeprefix(f"{around}/")
    assert folder == around or any(name in {inside, folder} or folder.endswith(f"/{name}") for name in named[around])


@pytest.mark.parametrize("folder", FOLDERS)
def test_each_room_says_its_idea(folder):
    """In the docstring of its package."""
    assert (ROOT / folder / "__init__.py").read_text(encoding="utf-8").startswith('"""')


def test_the_page_has_the_floors_that_are_checked():
    """Every room is on a floor, and the table names the rooms from the top floor to the bottom."""
    floors = layers()
    floor_of = {room: number for number, floor in enumerate(floors) for room in floor}
    own = {
        f"txtopo/{path.stem}"
        for path in (ROOT / "txtopo").iterdir()
        if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    assert {*own, *PACKAGES[1:]} - {f"txtopo/{name}" for name in OF_IMPORTS} == set(floor_of) - {"examples"}
    shown = [room for rooms, _ in rows() for room in rooms if room in floor_of]
    assert set(shown) == set(floor_of) - {"examples"}
    numbers = [floor_of[room] for room in shown]
    assert numbers == sorted(numbers)


def test_no_circles():
    """Not even by what only annotations name, which import-linter leaves out."""
    graph = grimp.build_graph(*PACKAGES, "examples", cache_dir=None)
    imported = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    graphlib.TopologicalSorter(imported).prepare()  # raises a CycleError that names the modules


PATCHED = {
    "CHUNK_BYTES",  # each segment of a table cuts its rows by it, wherever it is made
    "CLICKS", "LINES", "ORDERS", "PAYMENTS",  # the data of examples, of which benchmarks need more
    "FORWARD_MAX",  # 10,000 transactions between two points are what a command refuses to run
    "KEEP_UP_SECS",  # an idle run's clock is the real one
    "NOTE_BYTES_MAX",  # the coordinator state makes notes in each start, repair and rewind
    "REACH_SECS",  # a worker makes its connections in a process of its own
    "REWRITTEN_BYTES_MIN",  # a table of 8 MiB, seen by a run and by a page
    "_SINCE_BYTES",  # the log of a bucket is replayed wherever it is read
}  # fmt: skip
"""Constants of the product that tests patch all the same."""


def test_numbers_are_given_and_not_patched():
    """A test that needs another number gives it to what owns it, as a user of that would; few can't."""
    by_name = re.compile(r"""(?:setattr|\.object)\(\s*(?:[\w.]+,\s*)?["'](?:[\w.]+\.)?(_?[A-Z][A-Z0-9_]+)["']""")
    found = {
        name for path in (ROOT / "tests").rglob("*.py") for name in by_name.findall(path.read_text(encoding="utf-8"))
    }
    assert found == PATCHED
