"""The folder by which a driver is found again."""

import os
import stat
import subprocess
import sys
from pathlib import Path

from txtopo.cluster.decisions.assignment import Assignment
from txtopo.cluster.driver.folder import DriverEnd, DriverFolder, DriverLaunch

LAUNCH = DriverLaunch("l1", Assignment("words-1-1", 3, "s1", 2), "/code", "h:1", "/root", "user:secret")


def test_launch_is_found_again(tmp_path: Path) -> None:
    """What was written is read again; the file is for its owner only, and nothing prints the secret in it."""
    folder = DriverFolder(tmp_path / "0")
    os.close(folder.begin(LAUNCH))
    assert folder.launch() == LAUNCH
    assert stat.S_IMODE((tmp_path / "0" / "launch.json").stat().st_mode) == 0o600
    assert "secret" not in repr(LAUNCH)


def test_lock_lives_as_long_as_the_process(tmp_path: Path) -> None:
    """The process that inherits the lock holds it to its end, whoever else closes it."""
    folder = DriverFolder(tmp_path / "0")
    lock = folder.begin(LAUNCH)
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=(lock,))
    os.close(lock)
    try:
        assert folder.is_locked()
    finally:
        process.kill()
        process.communicate()
    assert not folder.is_locked()


def test_nothing_there(tmp_path: Path) -> None:
    """A folder without files, or with half of one, is that of no driver."""
    folder = DriverFolder(tmp_path / "0")
    assert (folder.launch(), folder.is_locked(), folder.pid(), folder.end()) == (None, False, None, None)
    (tmp_path / "0").mkdir()
    (tmp_path / "0" / "launch.json").write_text('{"id": ')
    assert folder.launch() is None


def test_end(tmp_path: Path) -> None:
    """How a driver ended is read by a supervisor that did not start it; a new launch forgets it."""
    folder = DriverFolder(tmp_path / "0")
    os.close(folder.begin(LAUNCH))
    folder.write_pid()
    folder.write_end(DriverEnd(65, "a bug"))
    assert (folder.pid(), folder.end()) == (os.getpid(), DriverEnd(65, "a bug"))
    os.close(folder.begin(LAUNCH))
    assert (folder.pid(), folder.end()) == (None, None)
