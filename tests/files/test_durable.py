"""Files that a reader sees whole or not at all."""

import errno
import os
import signal

import pytest

from tests.full_disk import no_descriptor_left
from txtopo.files.durable import in_background, paths_in, remedy, write_whole


def test_a_file_replaces_another_and_what_a_crash_has_left(tmp_path):
    """It gets its content and its mode, and nothing stays beside it."""
    path = tmp_path / "page.json"
    path.write_bytes(b"former")
    draft = tmp_path / ".draft-page.json"
    draft.touch(0o600)
    draft.write_bytes(b"the half of what was to be written")
    write_whole(path, b"new", 0o600)
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("name", ["taken", "n" * 247, "n" * 256])
def test_a_write_that_fails_leaves_no_draft(tmp_path, name):
    """Neither a folder in the file's place nor a name that is too long for it or for its draft costs any disk."""
    if len(name) < 256:
        (tmp_path / name).mkdir()
    before = sorted(tmp_path.iterdir())
    with pytest.raises(OSError, match=r"too long|[Dd]irectory"):
        write_whole(tmp_path / name, b"content")
    assert sorted(tmp_path.iterdir()) == before


def test_a_folder_that_cannot_be_read_is_not_an_empty_one(tmp_path):
    """One that is missing is."""
    for name in ("b.x", "a.x", "a.y"):
        (tmp_path / name).touch()
    assert paths_in(tmp_path, "*.x") == [tmp_path / "a.x", tmp_path / "b.x"]
    assert paths_in(tmp_path / "none") == paths_in(tmp_path / "a.y") == []
    with no_descriptor_left(), pytest.raises(OSError, match="Too many open files"):
        paths_in(tmp_path)


def test_what_goes_on_beside() -> None:
    """Whoever waits gets its result, or its error."""
    assert in_background(lambda: 5)() == 5

    def fail() -> None:
        raise OSError(5, "Input/output error")

    with pytest.raises(OSError, match="Input/output"):
        in_background(fail)()


def test_a_child_has_threads_of_its_own() -> None:
    """A process that was forked after something went on beside does not wait for threads of its parent."""
    assert in_background(lambda: 1)() == 1
    child = os.fork()
    if not child:
        signal.alarm(240)
        os._exit(in_background(lambda: 3)())
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3


@pytest.mark.parametrize(
    ("number", "expected"),
    [(errno.EROFS, "file system writable"), (errno.EMFILE, "ulimit -n"), (errno.ENOSPC, "disk space")],
)
def test_what_to_do_before_the_next_try(number: int, expected: str) -> None:
    """Space helps only where it is missing."""
    assert expected in remedy(OSError(number, os.strerror(number)))
