"""Files that a reader sees whole or not at all."""

from __future__ import annotations

from txtopo.files.durable import write_whole


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
