"""Paths in stores: checks, and their encoding in file names and znodes.

Every store checks paths and changes here, so that all of them raise the same errors.
"""

from __future__ import annotations

import functools
import urllib.parse
from collections.abc import Sequence

from txtopo.api.store import VALUE_BYTES_MAX, Change, Put
from txtopo.errors import ConfigError, StateAccessError

PATH_BYTES_MAX = 1024
"""The maximum length of a path, in bytes of UTF-8."""


def checked_topology_id(topology_id: str) -> str:
    """Check and return a topology's id, a valid first part of a path; raise ConfigError if it is none."""
    problem = _problem(topology_id)
    if problem is None and "/" in topology_id:
        problem = "has a slash in it"
    if problem is not None:
        raise ConfigError(f"topology id {topology_id!r} {problem}; choose a short name without a slash")
    return topology_id


def checked_path(path: str) -> str:
    """Check and return a path of the form ``"a/b/c"``; raise StateAccessError if it is none, or too long."""
    problem = _problem(path)
    if problem is not None:
        raise StateAccessError(f"store path {path!r} {problem}; write it as 'a/b/c'")
    return path


def checked_changes(topology_id: str, changes: Sequence[Change]) -> list[Change]:
    """Return changes that the topology's lead may write; StateAccessError for a path or length that is wrong."""
    for change in changes:
        path = checked_path(change.path)
        if path != topology_id and not path.startswith(f"{topology_id}/"):
            raise StateAccessError(
                f"path {path!r} is outside topology {topology_id!r}; its lead may only write below that"
            )
        if isinstance(change, Put) and len(change.value) > VALUE_BYTES_MAX:
            raise StateAccessError(
                f"the value at {path!r} has {len(change.value):,} bytes; "
                f"the limit is {VALUE_BYTES_MAX:,}: keep references to the data "
                "(offsets, file names) instead of the data"
            )
    return list(changes)


def ancestors(path: str) -> list[str]:
    """Return the paths above ``path``, the topmost first: ``["a", "a/b"]`` for ``"a/b/c"``."""
    segments = path.split("/")
    return ["/".join(segments[:length]) for length in range(1, len(segments))]


def encoded_path(path: str) -> str:
    """Return a path whose segments contain only characters that ZooKeeper accepts; see :func:`decoded_segment`."""
    return "/".join(_encoded_segment(segment) for segment in path.split("/"))


def decoded_segment(segment: str) -> str:
    """Return the original of a segment of :func:`encoded_path`."""
    return urllib.parse.unquote(segment, errors="strict")


def _encoded_segment(segment: str) -> str:
    # ZooKeeper gives "." and ".." a meaning, and quote() does not escape dots.
    if segment.strip(".") == "":
        return segment.replace(".", "%2E")
    return urllib.parse.quote(segment, safe=" =:,;@+!()[]{}")


@functools.lru_cache(maxsize=1_000)  # a topology writes the same few paths again and again
def _problem(text: str) -> str | None:
    try:
        length = len(text.encode())
    except UnicodeEncodeError:
        return "is not valid text"
    if "" in text.split("/"):
        return "is empty, or has an empty part"
    if length > PATH_BYTES_MAX:
        return f"has {length} bytes, more than {PATH_BYTES_MAX}"
    return None
