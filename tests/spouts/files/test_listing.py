"""Which files a path stands for."""

import os

import pytest

from spouts.files.listing import absolute_paths, list_files, scan_names
from tests.full_disk import no_descriptor_left
from txtopo.errors import InputError


@pytest.fixture
def folder(tmp_path):
    for name in ("b.txt", "a/z.txt", "a.txt", "_tmp/x.txt", ".hidden", "a/_part", "empty.txt", "c[1].txt"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("" if name == "empty.txt" else "x\n")
    return tmp_path


def names(*paths):
    return [file.name for file in list_files(absolute_paths(list(paths))).files]


def test_a_folder_is_all_files_below_it_sorted(folder):
    """Hidden files and folders are passed over, so are empty files; slashes part the names."""
    assert names(folder) == ["a.txt", "a/z.txt", "b.txt", "c[1].txt"]


def test_a_file_is_itself(folder):
    """A file that is named is taken, also if its name looks like a glob or is hidden."""
    assert names(folder / "c[1].txt") == ["c[1].txt"]
    assert names(folder / ".hidden") == [".hidden"]


def test_a_glob_is_what_matches_it(folder):
    """Hidden names do not match; folders that match are taken whole; names are below the fixed part."""
    assert names(folder / "*.txt") == ["a.txt", "b.txt", "c[1].txt"]
    assert names(folder / "**" / "*.txt") == ["a.txt", "a/z.txt", "b.txt", "c[1].txt"]
    assert names(folder / "[a]") == ["a/z.txt"]


def test_a_list_is_all_of_its_paths_each_file_once(folder):
    """Names are below what the paths have in common."""
    assert names(folder / "a", folder / "b.txt", folder / "*.txt") == [
        "a.txt",
        "a/z.txt",
        "b.txt",
        "c[1].txt",
    ]
    assert names(folder / "a", folder / "a" / "z.txt") == ["z.txt"]


def test_linked_folders_are_passed_over(folder):
    """A link to a file is that file; linked folders are passed over, as os.walk does, and nothing counts twice."""
    before = names(folder)
    (folder / "link").symlink_to(folder / "a")
    (folder / "a" / "up").symlink_to(folder)
    assert names(folder) == before
    (folder / "one.txt").symlink_to(folder / "a" / "z.txt")
    assert "one.txt" in names(folder)


@pytest.mark.parametrize("pattern", ["*.txt", "*/z.txt", "**/*.txt", "**"])
def test_a_glob_whose_folder_cannot_be_read_is_an_error(folder, pattern):
    """It is no glob that matches nothing: neither when a spout begins, nor while its folder grows."""
    path = str(folder / pattern)
    with no_descriptor_left(), pytest.raises(InputError, match="cannot be read: Too many open files"):
        list_files([path])
    with no_descriptor_left(), pytest.raises(OSError, match="Too many open files"):
        scan_names([path], str(folder))
    assert scan_names([path], str(folder))


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("nowhere", "there is no file or folder"),
        ("*.csv", "there is no file in"),
        ("vacant", "there is no file in"),
        ("packed", r"x\.tar\.gz is compressed, or an archive, in a way that is not read; unpack it"),
        ("broken", "cannot be read: No such file"),
        ("pipes", "neither a file nor a folder"),
        ("ring", "there is no file or folder"),
        ("n" * 300, "cannot be read: File name too long"),
        ("n" * 300 + "/*.csv", "there is no file in"),
        ("/".join(["n" * 200] * 25), "cannot be read: File name too long"),
    ],
)
def test_paths_that_lead_to_nothing_readable_are_named(folder, path, message):
    for name in ("vacant", "packed", "broken", "pipes"):
        (folder / name).mkdir()
    (folder / "packed" / "x.tar.gz").write_text("x")
    (folder / "broken" / "link").symlink_to(folder / "gone")
    os.mkfifo(folder / "pipes" / "pipe")
    (folder / "ring").symlink_to(folder / "ring")
    with pytest.raises(InputError, match=message):
        names(folder / path)


def test_no_path_is_refused():
    with pytest.raises(InputError, match="no path is given"):
        absolute_paths([])


def test_a_name_that_is_not_utf8_is_refused(tmp_path):
    """Metadata is JSON, which cannot hold such a name."""
    (tmp_path / os.fsdecode(b"\xff.txt")).write_text("x\n")
    with pytest.raises(InputError, match="is not UTF-8; rename it"):
        names(tmp_path)
