"""The seam for files: durable on return, whole or not there, and one winner for each name."""

import errno
import functools
import itertools
import os
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.full_disk import no_file_larger_than
from tests.object_server import ObjectStore as ObjectServer
from txtopo.errors import ConfigError
from txtopo.files.durable import in_background
from txtopo.files.folder import Folder, LocalFolder
from txtopo.files.objects import ObjectFolder

WRITERS = 8
NAMES = 125

_STORES = itertools.count()


@pytest.fixture
def folder(tmp_path: Path) -> LocalFolder:
    """An empty folder that nobody has made yet."""
    return LocalFolder(tmp_path / "new" / "folder")


@pytest.fixture(params=["local", "objects"])
def either(request: pytest.FixtureRequest, folder: LocalFolder) -> Folder:
    """A folder of a file system, and one of objects in memory."""
    if request.param == "local":
        return folder
    pytest.importorskip("obstore")
    return ObjectFolder(f"memory:///{next(_STORES)}")


def test_what_is_put_is_there(either: Folder) -> None:
    """A file has the content that was put last, and a size; one that was never put has neither."""
    either.put("a/b.json", b"first")
    either.put("a/b.json", b"second")
    sizes: list[int] = []
    either.put_new("a/d.json", b"third", meanwhile=sizes.append)
    either.put_new("a/e.json", lambda file: file.writelines([b"x" * 20_000_000, b"y"]), meanwhile=sizes.append)
    assert sizes == [5, 20_000_001]
    assert sorted(either.names("a")) == ["b.json", "d.json", "e.json"]
    assert either.names("b") == []
    assert either.get("a/d.json") == b"third"
    assert either.get_range("a/e.json", 19_999_999, 3) == b"xy"
    assert either.get("a/b.json") == b"second"
    assert either.get_range("a/b.json", 2, 100) == b"cond"
    assert either.size("a/b.json") == 6
    assert either.size("a/c.json") is None
    with pytest.raises(FileNotFoundError):
        either.get("a/c.json")
    either.delete("a/b.json")
    either.delete("a/b.json")
    assert either.size("a/b.json") is None


def test_a_name_that_is_taken_stays_as_it_is(either: Folder) -> None:
    """The second writer of a name is told so and changes nothing."""
    assert either.put_if_absent("log/1.json", b"first")
    assert not either.put_if_absent("log/1.json", b"second")
    assert either.get("log/1.json") == b"first"


def test_what_is_appended_goes_on_where_the_writer_left_it(either: Folder) -> None:
    """A file grows by whoever began it; where another one has written, or the file is gone, nothing happens."""
    file = either.begin("log/1", b"first ")
    assert file is not None
    assert either.begin("log/1", b"other ") is None
    assert file.append(b"second ")
    assert file.append(b"third")
    assert file.is_in_place()
    assert (either.get("log/1"), file.size) == (b"first second third", 18)
    assert [item.path for item in either.list("log")] == ["log/1"]
    either.put("log/1", b"somebody else's")
    assert not file.append(b" fourth")
    assert not file.is_in_place()
    assert either.get("log/1") == b"somebody else's"
    either.delete("log/1")
    assert not file.append(b" fourth")
    assert either.names("log") == []


def test_folders_in_a_folder(either: Folder) -> None:
    """They are what has files below, and go with these; one that never was is empty."""
    either.put("a/b/1", b"")
    either.put("a/c/2", b"")
    either.put("a/3", b"")
    assert (either.folders(), either.folders("a"), either.folders("none")) == (["a"], ["b", "c"], [])
    assert either.below("a/b").names() == ["1"]
    assert either.below("a/b").parent.folders() == ["b", "c"]
    assert either.below("a/b").name == "b"
    assert [either.is_empty(path) for path in ("", "a/b", "a/3", "a/4")] == [False, False, False, True]
    either.move("a/b", "d")
    assert either.below("d").get("1") == b""
    either.delete_all("a")
    assert either.folders() == ["d"]
    either.delete_all()
    assert either.is_empty()


def test_files_are_listed_in_order(either: Folder) -> None:
    """Names come sorted, from a name on, with sizes; sub-folders are none, and a folder that is not there has none."""
    for name in ("3", "1", "2", "sub/4"):
        either.put(f"log/{name}", b"x" * int(name[-1]))
    assert [(item.path, item.size) for item in either.list("log")] == [("log/1", 1), ("log/2", 2), ("log/3", 3)]
    assert [item.path for item in either.list("log", after="1")] == ["log/2", "log/3"]
    assert all(abs(item.modified_secs - time.time()) < 600 for item in either.list("log"))
    assert list(either.list("nowhere")) == []


def test_a_move_of_objects_that_dies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until all are copied the old ones are whole, then their end is gone first; the same move again takes the rest."""
    pytest.importorskip("obstore")
    folder = ObjectFolder(f"memory:///{next(_STORES)}")
    for name in ("log/0", "log/1", "log/2"):
        folder.put(name, name.encode())
    original, left = ObjectFolder.delete, [1]

    def dying(self: ObjectFolder, path: str, *, is_durable: bool = False) -> None:
        if not left:
            raise OSError("the process ends")
        left.pop()
        original(self, path, is_durable=is_durable)

    with monkeypatch.context() as patched:
        patched.setattr(ObjectFolder, "delete", dying)
        with pytest.raises(OSError, match="ends"):
            folder.move("log", "aside")
    assert (sorted(folder.names("log")), sorted(folder.names("aside"))) == (["0", "1"], ["0", "1", "2"])
    folder.move("log", "aside")
    assert folder.is_empty("log")
    assert [folder.get(f"aside/{name}") for name in "012"] == [b"log/0", b"log/1", b"log/2"]


def test_a_folder_is_moved(either: Folder) -> None:
    """All that lies below one path lies below the other; moving it again finds nothing to do."""
    for path in ("table/a", "table/log/b", "tables/c"):
        either.put(path, path.encode())
    for _ in range(2):
        either.move("table", "aside/table.1")
    assert [either.get(path) for path in ("aside/table.1/a", "aside/table.1/log/b", "tables/c")] == [
        b"table/a",
        b"table/log/b",
        b"tables/c",
    ]
    assert not list(either.list("table"))


def test_drafts_are_not_listed(folder: LocalFolder) -> None:
    """What a dead writer has left is no file, until it is removed."""
    folder.put("log/1", b"x")
    (folder.root / "log" / ".draft-of-the-dead").write_bytes(b"half")
    assert [item.path for item in folder.list("log")] == ["log/1"]
    folder.remove_drafts("log")
    assert [path.name for path in (folder.root / "log").iterdir()] == ["1"]


def test_what_is_no_file_is_not_listed(folder: LocalFolder) -> None:
    """Links that lead nowhere or round in a circle, pipes and folders are passed over."""
    folder.put("log/1", b"x")
    (folder.root / "log" / "circle").symlink_to(folder.root / "log" / "circle")
    (folder.root / "log" / "nowhere").symlink_to(folder.root / "gone")
    (folder.root / "log" / "folder").mkdir()
    os.mkfifo(folder.root / "log" / "pipe")
    assert [item.path for item in folder.list("log")] == ["log/1"]


def test_a_write_that_fails_leaves_no_draft(folder: LocalFolder) -> None:
    """Whoever tries again each second would fill the disk: where it is full, and where the name can't be given."""
    (folder.root / "log" / "taken" / "x").mkdir(parents=True)
    for write in (folder.put, folder.put_new, folder.put_if_absent):
        with no_file_larger_than(10), pytest.raises(OSError, match="File too large"):
            write("log/1", b"x" * 11)
    with pytest.raises(OSError, match="taken"):
        folder.put("log/taken", b"x")
    with pytest.raises(OSError, match="File name too long"):
        folder.put("log/" + "x" * 256, b"x")
    assert [path.name for path in (folder.root / "log").iterdir()] == ["taken"]


def test_what_a_full_disk_took_of_an_append_is_taken_back(folder: LocalFolder) -> None:
    """Its writer goes on when there is room again: a rest would look like what another writer has left."""
    file = folder.begin("log", b"first ")
    assert file is not None
    with no_file_larger_than(10), pytest.raises(OSError, match="File too large"):
        file.append(b"second ")
    assert file.append(b"third")
    assert folder.get("log") == b"first third"


def test_a_put_for_which_the_disk_has_no_room_names_it() -> None:
    """What is large lies in a temporary file until it is in the store: that disk is full, and not the bucket."""
    pytest.importorskip("obstore")
    folder = ObjectFolder(f"memory:///{next(_STORES)}")
    with no_file_larger_than(10), pytest.raises(OSError, match=f"File too large: '{tempfile.gettempdir()}'"):
        folder.put_new("a/b", b"x" * 20_000_000)
    assert folder.names("a") == []


def test_a_folder_that_was_removed_stays_so(folder: LocalFolder) -> None:
    """Where folders must be there, a write fails instead of making them anew."""
    fixed = LocalFolder(folder.root, makes_folders=False)
    folder.put("log/1", b"x")
    fixed.put("log/2", b"x")
    for write in (fixed.put, fixed.put_new, fixed.put_if_absent):
        with pytest.raises(FileNotFoundError):
            write("gone/1", b"x")
    assert not (folder.root / "gone").exists()


def test_of_many_writers_one_wins_each_name(either: Folder) -> None:
    """Writers that race for one name after another are told who has won, and no draft is left."""
    won: list[tuple[int, int]] = []
    start = threading.Barrier(WRITERS)

    def race(writer: int) -> None:
        for name in range(NAMES):
            start.wait()
            if either.put_if_absent(f"{name}", f"{writer}".encode()):
                won.append((name, writer))

    threads = [threading.Thread(target=race, args=(writer,)) for writer in range(WRITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(name for name, _ in won) == list(range(NAMES))
    assert all(either.get(f"{name}") == f"{writer}".encode() for name, writer in won)
    assert len(list(either.list())) == NAMES
    assert not isinstance(either, LocalFolder) or len(list(either.root.iterdir())) == NAMES


def test_a_link_whose_answer_was_lost_is_ours(folder: LocalFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """A network file system may make the link, lose the answer, and refuse the link when it is asked again."""
    link = os.link

    def lossy(source: Path, target: Path) -> None:
        link(source, target)
        link(source, target)

    monkeypatch.setattr(os, "link", lossy)
    assert folder.put_if_absent("log/1.json", b"ours")


def test_a_file_system_without_links_is_refused(folder: LocalFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no link can be made, nothing is written, and the error says what to do."""

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOTSUP, "Operation not supported")

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(ConfigError, match="no hard links"):
        folder.put_if_absent("log/1.json", b"x")
    assert not list((folder.root / "log").iterdir())


def test_a_name_is_synced_after_its_content(folder: LocalFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Content, then name, then the folder that has the name: in this order, so that a power failure shows no empty file."""
    folder.put("log/0", b"x")
    done: list[str] = []
    fsync, link, replace = os.fsync, os.link, Path.replace

    def note_fsync(descriptor: int) -> None:
        done.append("folder" if Path(f"/proc/self/fd/{descriptor}").is_dir() else "content")
        fsync(descriptor)

    def note_link(*paths: Path) -> None:
        done.append("name")
        link(*paths)

    def note_replace(draft: Path, place: Path) -> Path:
        done.append("name")
        return replace(draft, place)

    monkeypatch.setattr(os, "fsync", note_fsync)
    monkeypatch.setattr(os, "link", note_link)
    monkeypatch.setattr(Path, "replace", note_replace)
    folder.put_if_absent("log/1", b"x")
    folder.put("log/1", b"y")
    assert done == ["content", "name", "folder"] * 2


def test_a_new_file_and_its_name_are_synced(folder: LocalFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both are, in any order: nobody knows the name before the answer."""
    folder.put("log/0", b"x")
    synced: list[bytes | None] = []
    fsync = os.fsync

    def note(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        synced.append(None if path.is_dir() else path.read_bytes())
        assert sorted(each.name for each in folder.root.glob("log/*")) == ["0", "1"]
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    folder.put_new("log/1", b"y")
    assert sorted(synced, key=repr) == [None, b"y"]
    with pytest.raises(FileExistsError):
        folder.put_new("log/1", b"z")
    assert folder.get("log/1") == b"y"


@pytest.mark.parametrize("what", ["log", "1"])
def test_a_sync_that_fails_is_an_error_of_the_put(
    folder: LocalFolder, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """That of the file, and that of the folder in the thread beside; neither leaves a file."""
    folder.put("log/0", b"x")

    def fail(descriptor: int) -> None:
        if Path(f"/proc/self/fd/{descriptor}").readlink().name == what:
            raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="Input/output error"):
        folder.put_new("log/1", b"x")
    assert [path.name for path in (folder.root / "log").iterdir()] == ["0"]


def test_a_draft_has_its_name_once_it_is_synced(folder: LocalFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its sync goes on beside; the name waits for it, and is synced then. A name that is taken stays, and no draft does."""
    folder.put("log/0", b"x")
    done: list[str] = []
    is_let, fsync, link = threading.Event(), os.fsync, os.link

    def note_fsync(descriptor: int) -> None:
        is_folder = Path(f"/proc/self/fd/{descriptor}").is_dir()
        assert is_folder or is_let.wait(240)
        fsync(descriptor)
        done.append("folder" if is_folder else "content")

    def note_link(*paths: Path) -> None:
        done.append("name")
        link(*paths)

    monkeypatch.setattr(os, "fsync", note_fsync)
    monkeypatch.setattr(os, "link", note_link)
    draft = folder.drafted("log/1", b"x")
    assert [item.path for item in folder.list("log")] == ["log/0"]
    is_let.set()
    assert draft.put_if_absent()
    assert done == ["content", "name", "folder"]
    assert not folder.drafted("log/1", b"y").put_if_absent()
    assert folder.get("log/1") == b"x"
    folder.drafted("log/2", b"z").discard()
    assert [path.name for path in sorted((folder.root / "log").iterdir())] == ["0", "1"]


def test_a_draft_whose_sync_fails_has_no_name(folder: LocalFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever gives it its name meets the error, and neither is left."""
    folder.put("log/0", b"x")
    monkeypatch.setattr(os, "fsync", lambda _: (folder.root / "gone").stat())
    with pytest.raises(FileNotFoundError):
        folder.drafted("log/1", b"x").put_if_absent()
    assert [path.name for path in (folder.root / "log").iterdir()] == ["0"]


def test_a_move_is_synced(folder: LocalFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder that had the name and the one that gets it are both synced after the move, new ones above it too."""
    folder.put("table/a", b"x")
    synced: list[tuple[Path, bool]] = []
    fsync = os.fsync

    def note(descriptor: int) -> None:
        is_moved = (folder.root / "far" / "aside" / "table.1").exists()
        synced.append((Path(f"/proc/self/fd/{descriptor}").readlink(), is_moved))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    folder.move("table", "far/aside/table.1")
    assert {path for path, is_moved in synced if is_moved} == {folder.root, folder.root / "far" / "aside"}
    assert {path for path, is_moved in synced if not is_moved} == {folder.root, folder.root / "far"}


@pytest.mark.parametrize("address", ["http://[/x", "://", "s3://b ad/x", "s3://b#ad/x"])
def test_what_is_no_address(address: str) -> None:
    """It is refused in one sentence."""
    with pytest.raises(ConfigError, match=r"nothing can be at .*, which is no address"):
        ObjectFolder(address).get("a")


@pytest.mark.slow
def test_what_an_object_takes(bucket_server: ObjectServer) -> None:
    """One request up to 16 MiB, and a listing from a name on does not page through those before it."""
    folder = ObjectFolder("s3://bucket/many", tuple(bucket_server.options.items()))
    with bucket_server.counting() as puts:
        folder.put("large/1", bytes(16 << 20))
    assert puts == Counter(PUT=1)
    with bucket_server.counting() as puts:
        folder.put("large/2", bytes((16 << 20) + 1))
    assert puts == Counter(PUT=4)  # it begins, has two parts, and ends
    assert folder.size("large/2") == (16 << 20) + 1
    for waiting in [in_background(functools.partial(folder.put, f"log/{number:04d}", b"1")) for number in range(1_100)]:
        waiting()
    folder.put("log/below/2000", b"1")
    with bucket_server.counting() as lists:
        assert [item.path for item in folder.list("log", "1097x")] == ["log/1098", "log/1099"]
    assert lists == Counter(LIST=1)
    with bucket_server.counting() as lists:
        assert len(folder.names("log")) == 1_100
    assert lists == Counter(LIST=2)
