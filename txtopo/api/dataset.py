"""Datasets: what is read and written, as catalogs of lineage name it."""

from __future__ import annotations

import os
import urllib.parse

import attrs

from txtopo.files.places import is_address, local_path


@attrs.frozen
class Dataset:
    """A table, topic or folder by the names that OpenLineage gives it, which are the same for all who use it.

    Args:
        namespace: where it is: ``file``, ``s3://bucket``, ``kafka://host:9092``, ``postgres://host:5432``.
        name: its name there: a path, a topic, ``database.schema.table``.
    """

    namespace: str
    name: str

    @classmethod
    def at(cls, place: str | os.PathLike[str]) -> Dataset:
        """Return the one at a path or an address."""
        if not is_address(place):
            return cls("file", str(local_path(place)))
        address = urllib.parse.urlsplit(os.fspath(place))
        scheme = {"s3a": "s3"}.get(address.scheme, address.scheme)
        return cls(f"{scheme}://{address.netloc}", address.path.strip("/"))
