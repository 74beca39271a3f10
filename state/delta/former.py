"""Writes that earlier versions of txtopo have staged, and that are still to be published.

A staged write is a file ``_txtopo/staged-<epoch>-<txid>`` in the table's folder: ``.arrow`` with the rows of a keyed
table, or ``.json``, whose content is a note. Their group's record names the file, ``{"staged":
"_txtopo/staged-3-17.json"}``.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pyarrow as pa

from state.delta.log.data_files import ROWS_MARK, WAITING_FOLDER
from state.delta.log.location import Location

__all__ = ["content_of", "remove_former"]

_STAGED = re.compile(r"^staged-(\d+)-(\d+)\.(?:arrow|json)(\.draft)?$")


def content_of(location: Location, note: Any) -> Any:
    """Return what a note stands for: another note, or rows; as a text, a relative clause, why it can't be read."""
    path = note.get("staged")
    if path is None:
        return note
    try:
        content = location.folder.get(path)
    except FileNotFoundError:
        return "which is gone"
    try:
        return json.loads(content) if path.endswith(".json") else pa.ipc.open_file(pa.BufferReader(content)).read_all()
    except (pa.ArrowException, ValueError) as error:
        return f"which can't be read ({error})"


def remove_former(location: Location, epoch: int) -> None:
    """Remove staged writes up to an epoch, and rows that a killed driver has given to executors."""
    if location.root is None:
        return
    for path in (location.root / WAITING_FOLDER).glob("*"):
        name = _STAGED.match(path.name)
        if (name is not None and int(name[1]) <= epoch) or (ROWS_MARK in path.name and path.suffix == ".arrow"):
            path.unlink(missing_ok=True)
