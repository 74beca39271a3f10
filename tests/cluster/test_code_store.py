"""Manifests and stores of code."""

from pathlib import Path

import attrs
import pytest

from tests.full_disk import no_descriptor_left
from tests.transactional.recovery.power_loss import Disk
from txtopo.cluster.code_store import CodeFile, CodeStore, Manifest, describe
from txtopo.errors import CodeUnavailable, SubmissionError


def _kept(store: CodeStore, topology: str = "words-1-9", content: bytes = b"code") -> Manifest:
    with store.draft() as draft:
        (draft / "code.zip").write_bytes(content)
        (draft / "topology.json").write_bytes(b"{}")
        manifest = describe(topology, draft)
        store.keep(draft, manifest)
    return manifest


def test_keep_and_find(tmp_path: Path) -> None:
    """What was kept is found by another store on the same folder, with its files; nothing else is."""
    manifest = _kept(CodeStore(tmp_path))
    store = CodeStore(tmp_path)
    assert store.topologies() == ["words-1-9"]
    assert store.has("words-1-9")
    assert store.manifest("words-1-9") == manifest
    path = store.file("words-1-9", "code.zip")
    assert path is not None
    assert path.read_bytes() == b"code"
    for topology, name in [("words-1-9", "manifest.json"), ("words-1-9", "../x"), ("..", "code.zip"), ("no", "x")]:
        assert store.file(topology, name) is None


def test_code_outlives_a_loss_of_power(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once it is kept, whoever counts on this copy finds it whole; also if it replaces what was there."""
    disk = Disk(tmp_path / "disk")
    disk.folder.mkdir()
    with monkeypatch.context() as patched:
        disk.watch(patched)
        for content in (b"code", b"other code"):
            manifest = _kept(CodeStore(disk.folder), content=content)
            disk.left().lay_out(tmp_path / "left")
            store = CodeStore(tmp_path / "left")
            store.check({"words-1-9": manifest})
            assert store.manifest("words-1-9") == manifest
    disk.close()


def test_draft_that_is_damaged_is_not_kept(tmp_path: Path) -> None:
    """It is refused, and its folder removed."""
    store = CodeStore(tmp_path)
    with pytest.raises(CodeUnavailable, match="SHA-256"), store.draft() as draft:
        (draft / "code.zip").write_bytes(b"code")
        manifest = describe("words-1-9", draft)
        (draft / "code.zip").write_bytes(b"c0de")
        store.keep(draft, manifest)
    assert list(tmp_path.iterdir()) == []


def test_draft_of_a_crash_is_removed(tmp_path: Path) -> None:
    """A start leaves nothing of a download or removal that a kill has interrupted."""
    store = CodeStore(tmp_path)
    context = store.draft()
    draft = context.__enter__()
    (draft / "code.zip").write_bytes(b"half")
    assert CodeStore(tmp_path).topologies() == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("damage", ["content", "size", "missing", "manifest"])
def test_check_removes_what_is_damaged(tmp_path: Path, damage: str) -> None:
    """A start reads every file; what is not as published is removed, so that it is fetched again."""
    store = CodeStore(tmp_path)
    good, bad = _kept(store, "good-1-9"), _kept(store, "bad-2-9")
    path = tmp_path / "bad-2-9" / ("manifest.json" if damage == "manifest" else "code.zip")
    match damage:
        case "content":
            path.write_bytes(b"c0de")
        case "missing":
            path.unlink()
        case _:
            path.write_bytes(b"co")
    store.check({"good-1-9": good, "bad-2-9": bad})
    assert store.topologies() == ["good-1-9"]


def test_check_compares_with_what_was_published(tmp_path: Path) -> None:
    """Files that are whole, but of another manifest than the one in ZooKeeper, are no copy."""
    store = CodeStore(tmp_path)
    manifest = _kept(store)
    published = attrs.evolve(manifest, files=(attrs.evolve(manifest.files[0], sha256="0" * 64), *manifest.files[1:]))
    store.check({"words-1-9": manifest})
    assert store.has("words-1-9")
    store.check({"words-1-9": published})
    assert not store.has("words-1-9")


def test_check_takes_its_turns(tmp_path: Path) -> None:
    """One topology's code is read at a time, that of another one at the next; so damage is found in all of them."""
    store = CodeStore(tmp_path)
    published = {name: _kept(store, name) for name in ("a-1-9", "b-2-9", "c-3-9")}
    for name in published:
        (tmp_path / name / "code.zip").write_bytes(b"c0de")
    left = []
    for _ in range(4):
        store.check_next(published)
        left.append(len(store.topologies()))
    assert left == [2, 1, 0, 0]


def test_damage_to_one_topology(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Asked for one topology or one file of it, a store reads that; what is damaged goes as a whole."""
    store = CodeStore(tmp_path)
    _kept(store, "good-1-9")
    bad = _kept(store, "bad-2-9")
    sound, damaged = bad.files[1].name, bad.files[0].name
    (tmp_path / "bad-2-9" / damaged).write_bytes(b"?" * bad.files[0].size_bytes)
    assert store.is_sound("good-1-9")
    assert store.is_sound("bad-2-9", name=sound)
    assert not store.is_sound("bad-2-9", name=damaged)
    assert f"{damaged} does not have the SHA-256 that was published" in caplog.text
    assert store.topologies() == ["good-1-9"]


def test_check_without_a_free_file(tmp_path: Path) -> None:
    """A machine that cannot open a file now says nothing of the code on its disk, which stays."""
    store = CodeStore(tmp_path)
    _kept(store)
    with no_descriptor_left():
        with pytest.raises(OSError, match="Too many open files"):
            store.is_sound("words-1-9")
        with pytest.raises(OSError, match="Too many open files"):
            store.topologies()  # a nimbus would say that its disk has lost all code
    assert store.topologies() == ["words-1-9"]


@pytest.mark.parametrize("name", ["", "../x", "a/b", "/etc/passwd", "..", ".hidden", "a\\b", "a\0b", "x" * 201])
def test_names_that_leave_the_folder(name: str) -> None:
    """A manifest with such a name is refused, for a file and for the topology."""
    for manifest in (Manifest("a", (CodeFile(name, 1, "0"),)), Manifest(name, ())):
        with pytest.raises(CodeUnavailable, match="leave"):
            Manifest.from_bytes(manifest.to_bytes())


@pytest.mark.parametrize("data", [b"", b"{", b"{}", b"[]", b'{"topology": 1}', b'{"topology": "a", "files": 3}'])
def test_damaged_manifest(data: bytes) -> None:
    """It is an error that says so."""
    with pytest.raises(CodeUnavailable, match="damaged"):
        Manifest.from_bytes(data)


def test_too_many_files(tmp_path: Path) -> None:
    """A submission is a few files."""
    for number in range(17):
        (tmp_path / str(number)).touch()
    with pytest.raises(SubmissionError, match="at most 16"):
        describe("words", tmp_path)


def test_check_of_sound_code_takes_its_turns_too(tmp_path: Path) -> None:
    """The next check is of the code whose last one is oldest, not of what is sound again and again."""
    store = CodeStore(tmp_path)
    published = {name: _kept(store, name) for name in ("a-1-9", "b-2-9", "c-3-9")}
    store.check_next(published)
    for name in published:
        (tmp_path / name / "code.zip").write_bytes(b"c0de")
    left = []
    for _ in range(3):
        store.check_next(published)
        left.append(store.topologies())
    assert left == [["a-1-9", "c-3-9"], ["a-1-9"], []]
