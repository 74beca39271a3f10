"""Files that are gone, or other ones, at each moment between being seen and being read."""

import os
import shutil

import pytest

from tests.spouts.files.growing import Growing
from txtopo.errors import InputError


@pytest.fixture(params=[True, False], ids=["watch", "listing"])
def files(request: pytest.FixtureRequest, tmp_path) -> Growing:
    """Three files of one line each, of which a transaction takes one; the first one is committed."""
    growing = Growing(tmp_path / "in", watch=request.param, options={"batch_files_max": 1})
    for number, name in enumerate(("a.txt", "b.txt", "sub/c.txt"), 1):
        growing.write(name, f"{number}\n", mtime_secs=100 + number)
    growing.start()
    if growing.watch:
        growing.wait()
    assert growing.begin()
    growing.commit()
    return growing


ALL = {"1": 1, "2": 1, "3": 1}


def test_seen_and_not_taken(files):
    """A complete file that is gone before its turn stops the run, in this run or the next, until it is back."""
    path = files.folder / "b.txt"
    path.rename(files.folder.with_name("b"))
    message = (
        r"b\.txt \(2 bytes, mtime_ns 102000000000\) was complete and waited to be read, but is missing now; put it"
    )
    if files.watch:
        with pytest.raises(InputError, match=message):
            files.wait()  # lists the folder without it
    with pytest.raises(InputError, match=message):
        files.start()
        files.drain()
    files.folder.with_name("b").rename(path)
    files.start()
    assert files.drain() == ALL


def test_seen_and_emptied(files):
    """An empty file in its place says that it is not to be read; a full one is another file, which is read."""
    files.write("b.txt", "")
    files.start()
    assert files.drain() == {"1": 1, "3": 1}
    files.write("b.txt", "two\n")
    files.start()
    assert files.drain() == {"1": 1, "two": 1, "3": 1}


def test_a_folder_that_disappears(files):
    """Files go with their folder, and are asked for one by one."""
    shutil.move(files.folder / "sub", files.folder.with_name("sub"))
    with pytest.raises(InputError, match=r"sub/c\.txt \(2 bytes.*is missing now"):
        files.start()
        files.drain()
    shutil.move(files.folder.with_name("sub"), files.folder / "sub")
    files.start()
    assert files.drain() == ALL


def test_a_name_that_is_a_folder_now(files):
    """A folder in a file's place is no file."""
    (files.folder / "b.txt").unlink()
    (files.folder / "b.txt").mkdir()
    with pytest.raises(InputError, match=r"b\.txt .*is missing now"):
        files.start()
        files.drain()


def test_taken_and_not_read(files):
    """A transaction whose metadata is saved asks for its file, in whatever process it is emitted."""
    assert files.begin()
    (files.folder / "b.txt").unlink()
    with pytest.raises(InputError, match=r"b\.txt is missing; it had 2 bytes"):
        files.emitted(files.saved[1])
    with pytest.raises(InputError, match=r"b\.txt"):
        files.start()
        files.commit()


@pytest.mark.few(8)
@pytest.mark.parametrize("others", ["gone", "of the same length", "emptied", "older"])
@pytest.mark.parametrize("txid", [0, 1, 2])
def test_after_a_rewind(files, txid, others):
    """A file that a rewind gives back is read again as it was, or the run says that it can't be, however often."""
    files.drain()
    files.rewind(txid)
    name = ("a.txt", "b.txt", "sub/c.txt")[txid]
    path = files.folder / name
    if others == "gone":
        path.unlink()
    elif others == "of the same length":
        path.write_text("9\n")
    elif others == "emptied":
        path.write_text("")
    else:
        os.utime(path, (1, 1))
    for _ in range(2):
        with pytest.raises(InputError, match=rf"a rewind has promised to read \S*{name} \(2 bytes, .*put the original"):
            files.start()
            files.drain()
    files.write(name, f"{txid + 1}\n", mtime_secs=101 + txid)
    files.start()
    assert files.drain() == ALL


def test_a_rewind_to_a_file_of_the_same_length(files):
    """A file that was rewritten at the same length is another one: the time of its change says so."""
    files.drain()
    (files.folder / "b.txt").write_text("9\n")
    with pytest.raises(InputError, match=r"transactions after 1 took \S*b\.txt, and these files are missing or have"):
        files.rewind(1)


def skipped(files):
    return [files.spout.input_skipped(each, None) for each in files.saved]


@pytest.mark.parametrize("others", ["gone", "another file"])
@pytest.mark.parametrize("txid", [0, 1, 2])
def test_what_a_rewind_owes_and_is_lost_for_good(files, txid, others):
    """It can be forgone by name; the next transaction records it, also if it takes nothing, and a new file is read."""
    files.drain()
    files.rewind(txid)
    names = ("a.txt", "b.txt", "sub/c.txt")
    (files.folder / names[txid]).unlink()
    if others == "another file":
        files.write(names[txid], "new\n", mtime_secs=500)
    (line,) = files.forgo(names[txid])
    assert f"{names[txid]} (2 bytes, " in line
    for _ in range(2):
        files.start()
        left = {str(number): 1 for number in range(1, 4) if number != txid + 1}
        assert files.drain() == left | ({"new": 1} if others == "another file" else {})
    assert [each for each in skipped(files) if each] == [{names[txid]: [(0, 2)]}]
    assert skipped(files)[txid], "the first transaction after the rewind"


@pytest.mark.few(4)
@pytest.mark.parametrize("others", [(2, 0, 0), (0, 2, 0), (0, 0, 2), (1, 1, 1)])
@pytest.mark.parametrize("txid", [0, 1, 2])
def test_what_is_forgone_beside_another_spout(files, txid, others):
    """Whatever transactions that one has alone, the first one with files records it, once; and again after a rewind."""
    files.drain()
    files.rewind(txid)
    lost = ("a.txt", "b.txt", "sub/c.txt")[txid]
    (files.folder / lost).unlink()
    files.others += others[0]
    files.forgo(lost)
    files.others += others[1]
    files.start()
    files.others += others[2]
    for _ in range(2):
        files.drain()
        assert [each for each in skipped(files) if each] == [{lost: [(0, 2)]}]
        assert skipped(files)[txid]
        files.rewind(txid)
        files.others += 1
        files.start()


def test_a_name_that_is_forgone_twice(files):
    """Both files are recorded, also by the same transaction."""
    for content in ("b\n", "another\n"):
        (files.folder / "b.txt").unlink(missing_ok=True)
        files.write("b.txt", content, mtime_secs=200)
        files.start()
        files.drain()
        files.rewind(0)
        (files.folder / "b.txt").unlink()
        files.forgo("b.txt")
    files.start()
    files.drain()
    assert [each for each in skipped(files) if each] == [{"b.txt": [(0, 2), (0, 8)]}]


def test_only_what_is_lost_is_forgone(files):
    """Neither a file that is there as it was, nor one that nobody owes."""
    files.drain()
    files.rewind(1)
    for name in ("b.txt", "a.txt", "nowhere.txt"):
        with pytest.raises(InputError, match=rf"{name} is there, or is no file that a rewind has promised"):
            files.forgo(name)
    (files.folder / "b.txt").unlink()
    (files.folder / "sub/c.txt").unlink()
    files.forgo("b.txt")
    with pytest.raises(InputError, match=r"a rewind has promised to read \S*sub/c\.txt .*'txtopo forgo'"):
        files.start()
        files.drain()
    files.committed = len(files.saved)
    files.forgo("sub/c.txt")
    files.start()
    assert files.drain() == {"1": 1}
    assert {name for each in skipped(files) for name in each} == {"b.txt", "sub/c.txt"}


def test_a_file_that_is_forgone_half_way(tmp_path):
    """Of a file that transactions had taken to a point, the rest is forgone."""
    files = Growing(tmp_path / "in", watch=False, options={"batch_bytes": 4})
    path = files.write("a.txt", "1\n2\n3\n4\n", mtime_secs=100)
    files.write("b.txt", "5\n", mtime_secs=101)
    files.start()
    files.drain()
    files.rewind(1)
    path.unlink()
    files.forgo("a.txt")
    files.start()
    assert files.drain() == {"1": 1, "2": 1, "5": 1}
    assert skipped(files) == [{}, {"a.txt": [(4, 8)]}]


@pytest.mark.few(8)
@pytest.mark.parametrize("txid", [0, 1, 2])
@pytest.mark.parametrize("moves", ["moved", "further up", "moved and further up", "moved twice", "moved after a run"])
def test_a_rewind_after_the_folder_was_moved(files, txid, moves):
    """The same files are read again from where they are now; one of them that is gone is named."""
    files.drain()
    for to in {"further up": [], "moved twice": ["one", "two"]}.get(moves, ["one"]):
        files.folder = files.folder.rename(files.folder.with_name(to))
        if moves in {"moved twice", "moved after a run"}:
            files.start()
            files.drain()
    if "further up" in moves:
        files.folder = files.folder.parent
        if moves == "moved and further up":
            files.folder = files.folder / "one"
            files.start()
            files.drain()
            files.folder = files.folder.parent
    found = {path.name: path for path in files.folder.rglob("*.txt")}
    path = found[("a.txt", "b.txt", "c.txt")[txid]]
    path.rename(path.with_suffix(".tmp"))
    with pytest.raises(InputError, match=rf"took \S*{path.name}, and these files are missing"):
        files.rewind(txid)
    path.with_suffix(".tmp").rename(path)
    files.rewind(txid, is_moved=True)
    files.start()
    assert files.drain() == {str(number): 1 for number in range(txid + 1, 4)}


def test_a_rewind_to_a_forgotten_file(tmp_path):
    """A committed file that was moved away is known again once it is put back for the rewind: it can't go unseen."""
    files = Growing(tmp_path / "in")
    path = files.write("a.txt", "1\n", mtime_secs=100)
    files.start()
    files.drain()
    path.unlink()
    files.wait()
    assert not files.is_admitted("a.txt")
    files.write("a.txt", "1\n", mtime_secs=100)
    files.rewind(0)
    path.unlink()
    with pytest.raises(InputError, match=r"a rewind has promised to read \S*a\.txt"):
        files.start()
        files.drain()
    files.write("a.txt", "1\n", mtime_secs=100)
    files.start()
    assert files.drain() == {"1": 1}


@pytest.mark.parametrize("watch", [True, False])
def test_the_mode_is_switched_after_a_rewind(files, watch):
    """What a rewind owes is known to both ways of listing."""
    files.drain()
    files.rewind(1)
    files.watch = watch
    (files.folder / "sub/c.txt").unlink()
    with pytest.raises(InputError, match=r"a rewind has promised to read \S*sub/c\.txt"):
        files.start()
        files.drain()


def test_files_wait_for_a_file_system_that_is_away(tmp_path):
    """While another folder is in the place of theirs, waiting files are neither missing nor passed over."""
    files = Growing(tmp_path / "in", options={"batch_files_max": 1})
    for name in "ab":
        files.write(f"{name}.txt", f"{name}\n", mtime_secs=100)
    files.start()
    files.wait()
    assert files.begin()
    files.commit()
    away = files.folder.with_name("away")
    files.folder.rename(away)
    assert files.drain() == {"a": 1}
    files.folder.mkdir()
    assert files.drain() == {"a": 1}
    files.folder.rmdir()
    away.rename(files.folder)
    assert files.drain() == {"a": 1, "b": 1}
