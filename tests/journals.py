"""The journal of the only topology in a folder."""

from __future__ import annotations

from pathlib import Path

from txtopo.files.folder import LocalFolder
from txtopo.transactional.journal.ending import METADATA_DIR
from txtopo.transactional.journal.journal import FOLDER


def journal_in(output: Path) -> Path:
    """Return the folder of the journal in an output folder."""
    (folder,) = (output / METADATA_DIR / FOLDER).iterdir()
    return folder


def opened_journal(output: Path) -> LocalFolder:
    """Return it for the functions that read one."""
    return LocalFolder(journal_in(output))
