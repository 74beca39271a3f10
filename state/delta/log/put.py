"""The Delta write of txtopo: data files first, then the log's next entry, by one conditional put.

What a version shows is durable before the version is visible, and the version's number is taken by exactly one writer:

1. The data files are written and synced (:meth:`~state.delta.log.data_files.DataFolder.put`). Nobody sees them. A crash
   leaves files that no version names; upkeep removes them.
2. The entry is put as ``N+1.json`` if there is none (:meth:`~txtopo.files.folder.Folder.put_if_absent`). N is the
   version that the writer last checked, so nothing can have come between the check and the write: whoever took N+1
   first makes this put fail, and the writer looks again. If so much time has passed that the entry of N+1 may have been
   removed from the log, the put counts only after a second look (see :meth:`~state.delta.writer.TableWriter.put`).

Only what txtopo understands is written to: :func:`refuse_unknown` has the list.

Source: the Delta transaction log protocol, https://github.com/delta-io/delta/blob/master/PROTOCOL.md.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence, Set as AbstractSet
from typing import Any

import attrs

from state.delta.log.data_files import DataFile
from state.delta.log.entries import read_entry
from state.delta.log.kept import KeptLog
from state.delta.log.location import Location
from state.delta.log.statistics import row_count_of
from state.delta.log.vectors import VECTORS_FEATURE, has_vectors
from txtopo.columnar.progress_probe import current_probe
from txtopo.errors import ConfigError, StateFailure

_TRIES_MIN, _TRIED_SECS = 10, 60.0
"""How often and how long a write is tried if others take its version. Each try has a chance: its version is free from
the look until somebody else's next put. So whoever writes without a pause is outlasted, and not waited for."""

READER_VERSION_MAX, WRITER_VERSION_MAX = 3, 7
KNOWN_READER_FEATURES = frozenset({"timestampNtz", "v2Checkpoint", "vacuumProtocolCheck", "variantType"})
KNOWN_WRITER_FEATURES = KNOWN_READER_FEATURES | {"appendOnly", "invariants", "checkConstraints"}
"""Features that a table may list. Those of the second line restrict what may be written only where they are in use, and
:func:`refuse_unknown` looks for that. Delta-rs lists the type of variants wherever it sets a property of a table with
features; a column of it is refused, as any other that the fields lack."""

_ENCODER = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)

_GENERATED, _INVARIANTS, _IDENTITY = "delta.generationExpression", "delta.invariants", "delta.identity."
_MAPPING = "delta.columnMapping.mode"


@attrs.frozen
class Change:
    """What a version changes, and what it says of itself.

    Args:
        added: new data files, which are in the table's folder.
        removed: data files that the version no longer has. A file whose dead rows change is removed as it was, and
            added with its new vector.
        is_of_rows: whether rows are added or removed; False if they only move between files.
        taken: the time up to which expired rows are taken out; None if that stays.
        ttl: how long keys live, in microseconds; None if that stays.
        metadata: the log's actions ``protocol`` and ``metaData``, by which columns are added, or others' changes taken
            back; or, if rows move, the table's ``metaData`` as it is. That makes an OPTIMIZE of somebody else fail that
            has read the files before: delta-rs does not look for files that were moved meanwhile, and would put their
            rows in once more.
        is_first: whether it begins a table.
        is_of_owner: whether the table gets another owner, and nothing else changes.
        txid: the transaction that it makes visible; None for a marker and for upkeep.
        restored: the version that it restores, if it is a roll-back.
        turn: the last transaction of the topology that stays, if it marks that the topology goes back.
    """

    added: Sequence[DataFile] = ()
    removed: Sequence[DataFile] = ()
    is_of_rows: bool = True
    taken: int | None = None
    ttl: int | None = None
    metadata: Sequence[Mapping[str, Any]] = ()
    is_first: bool = False
    is_of_owner: bool = False
    txid: int | None = None
    restored: int | None = None
    turn: int | None = None

    @property
    def rows_grown(self) -> int:
        """The number of rows that it adds, less those that it removes."""
        if not self.is_of_rows:
            return 0
        return sum(file.live for file in self.added) - sum(file.live for file in self.removed)

    @property
    def operation(self) -> str:
        """Delta's word for it."""
        if self.is_first:
            return "CREATE TABLE"
        if self.is_of_rows:
            return "RESTORE" if self.metadata else "WRITE"
        if self.is_of_owner:
            return "SET TBLPROPERTIES"
        if self.removed:
            return "OPTIMIZE"
        return "ADD COLUMNS" if self.added else "SET TBLPROPERTIES"


def tries(location: Location, state: str | None = None, txid: int | None = None) -> Iterator[None]:
    """Yield before each try to put a version, until the caller has put it; each is progress.

    Raises:
        StateFailure: others have taken the version for a minute, and at least 10 times.
    """
    began_secs, count = time.monotonic(), 0
    while count < _TRIES_MIN or time.monotonic() - began_secs < _TRIED_SECS:
        yield
        current_probe().step()
        count += 1
    raise StateFailure(
        f"{'' if state is None else f'state {state!r}: '}somebody else was faster in each of {count} tries to write to "
        f"the table at {location.address} within {time.monotonic() - began_secs:.0f} s{_last_in(location)}; let them "
        "pause between their writes",
        txid=txid,
    )


def _last_in(location: Location) -> str:
    """Return by what the newest version was made, after a comma; nothing if the log has no entry of it."""
    newest = read_entry(location, max(KeptLog.of(location.folder).entries, default=0))
    return "" if newest is None else f", the last time by {newest.operation}"


def entry_of(change: Change, commit_info: Mapping[str, str], applications: Mapping[str, int], time_ms: int) -> bytes:
    """Return the entry of a change, at ``time_ms`` since 1970; ``commit_info`` is what it says beyond Delta's words."""
    removed = {file.path: file for file in change.removed}
    assert not any(file.is_in(removed) for file in change.added), "readers take the removal of a file for the last word"
    information = {
        "timestamp": time_ms,
        "operation": change.operation,
        "operationParameters": {"mode": "Overwrite" if change.removed else "Append"},
        "engineInfo": "txtopo",
        **commit_info,
    }
    actions: list[Mapping[str, Any]] = [
        {"commitInfo": information},
        *change.metadata,
        *({"txn": {"appId": name, "version": number}} for name, number in applications.items()),
        *(
            {
                "remove": {
                    "path": file.path,
                    "deletionTimestamp": time_ms,
                    "dataChange": change.is_of_rows,
                    "extendedFileMetadata": True,
                    "partitionValues": dict(file.partition),
                    "size": file.size,
                    **_vector_of(file),
                }
            }
            for file in change.removed
        ),
        *(
            {
                "add": {
                    "path": file.path,
                    "partitionValues": dict(file.partition),
                    "size": file.size,
                    "modificationTime": time_ms,
                    "dataChange": change.is_of_rows,
                    **_stats_of(file),
                    **_vector_of(file),
                }
            }
            for file in change.added
        ),
    ]
    return "\n".join(map(_ENCODER.encode, actions)).encode()


def _vector_of(file: DataFile) -> dict[str, Any]:
    # Readers ignore a removal without the vector that the file has.
    return {} if file.vector is None else {"deletionVector": file.vector.in_log}


def _stats_of(file: DataFile) -> dict[str, str]:
    if file.vector is not None:
        return {"stats": row_count_of(file.rows, is_live=False)}
    return {"stats": file.stats} if file.stats else {}


def refuse_unknown(address: str, protocol: Any, configuration: Mapping[str, str | None], schema_json: str) -> None:
    """Refuse a table, whose schema is as in the log, that asks more of a writer than txtopo gives.

    Raises:
        ConfigError: names what the table asks for.
    """
    feature = unknown(protocol, configuration, schema_json)
    if feature is not None:
        raise ConfigError(
            f"the table at {address} has {feature}, which txtopo does not write; it was changed after txtopo made it. "
            "'txtopo repair' takes that back"
        )


def unknown(protocol: Any, configuration: Mapping[str, str | None], schema_json: str) -> str | None:
    """Describe what a table asks of a writer beyond what txtopo gives; return None if nothing."""
    reader, writer = protocol.min_reader_version, protocol.min_writer_version
    if reader > READER_VERSION_MAX or writer > WRITER_VERSION_MAX:
        return f"the protocol ({reader}, {writer})"
    feature = _unknown_feature(protocol, own={VECTORS_FEATURE} if has_vectors(configuration) else set())
    if feature is not None:
        return feature
    if (configuration.get(_MAPPING) or "none") != "none":
        return f"column mapping by {configuration[_MAPPING]}"
    if (configuration.get("delta.appendOnly") or "false").lower() == "true":
        return "the property delta.appendOnly"
    if (configuration.get("delta.enableChangeDataFeed") or "false").lower() == "true":
        return "a change data feed"
    constraint = next((name for name in configuration if name.startswith("delta.constraints.")), None)
    if constraint is not None:
        return f"the constraint {constraint.removeprefix('delta.constraints.')!r}"
    for field in json.loads(schema_json)["fields"]:
        for name in field["metadata"]:
            if name in {_GENERATED, _INVARIANTS} or name.startswith(_IDENTITY):
                return f"a column {field['name']!r} with {name}"
    return None


def _unknown_feature(protocol: Any, own: AbstractSet[str]) -> str | None:
    """Describe a feature that txtopo does not write, or the lack of one that it has given the table."""
    readers, writers = ({*(each or ())} for each in (protocol.reader_features, protocol.writer_features))
    features = (readers - KNOWN_READER_FEATURES - own) | (writers - KNOWN_WRITER_FEATURES - own)
    if features:
        return f"the table feature {min(features)!r}"
    return None if own <= readers else f"the table feature {min(own)!r} no more"
