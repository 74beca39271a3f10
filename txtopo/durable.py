"""Durability of names and files that others have written: what a loss of power must not take back."""

from __future__ import annotations

import os
from pathlib import Path


def sync_path(path: str | Path) -> None:
    """Sync a file that was written, or the names in a folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
