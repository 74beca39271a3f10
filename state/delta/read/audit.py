"""Histories of tables for the audit, read from their Delta logs, with the rows of each version if requested."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import attrs
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from state.delta.log.entries import entry_path
from state.delta.log.kept import KeptLog
from state.delta.log.location import Location
from state.delta.log.ownership import WORLD_ERRORS, Numbers, Owner
from state.delta.read.followed import FollowedRows
from state.delta.read.multiset import missing_from
from state.delta.read.reading import key_mask
from state.delta.schema import TXID_FIELD
from txtopo.api.table_history import SAMPLES_MAX, RowChanges, TableHistory, TableVersion, rolled_back_from
from txtopo.columnar.conversion import python_rows
from txtopo.errors import DivergenceError, StateAccessError
from txtopo.files.folder import Folder
from txtopo.journal.ending import table_path
from txtopo.journal.entries import JournalTable
from txtopo.text.native import native_text


def read_histories(
    metadata_dir: Folder,
    tables: Mapping[str, JournalTable],
    *,
    with_rows: bool,
    departed: Collection[str] = (),
    tell: Callable[[str, int, int], object] = lambda *_: None,
) -> dict[str, TableHistory]:
    """Return the history of each table, by state; if ``with_rows``, with the changes of rows in each version.

    The tables of ``departed`` states are left out if they are missing, or are not those that the journal knows.
    ``tell`` is called with a state, the number of its table's versions that have been read, and that of all.

    Raises:
        DivergenceError: a table is missing, or is not a table of a state.
        StateAccessError: a log cannot be read.
    """
    histories = {}
    for name, table in tables.items():
        location = Location.in_store_of(metadata_dir, table_path(metadata_dir, table))
        try:
            if name in departed and not _is_there(location, table):
                continue
            reader = _Reader.of(name, location)
            histories[name] = reader.read(functools.partial(tell, name), with_rows=with_rows)
        except WORLD_ERRORS as error:
            raise StateAccessError(
                f"state {name!r}: the log of the table at {location.address} cannot be read", cause=native_text(error)
            ) from error
    return histories


def compare_rows(
    before: pa.Table, after: pa.Table, keys: Sequence[str], since: int, alive: pa.Table | None = None
) -> RowChanges:
    """Return the changes between rows of two versions, all or those that may differ.

    ``since`` is the txid of the version before. ``alive`` are the rows of ``before`` whose keys have not expired, if
    keys may: the others may go at any time.
    """
    alive = before if alive is None else alive
    is_put = pc.fill_null(pc.greater(after[TXID_FIELD], since), False)
    changed, kept = after.filter(is_put), after.filter(pc.invert(is_put))
    txids = pc.min_max(changed[TXID_FIELD]).as_py()
    stayed = before.filter(key_mask(before, kept.select(keys)))
    removed = alive.num_rows - pc.sum(key_mask(alive, after.select(keys))).as_py() if alive.num_rows else 0
    return RowChanges(
        put=changed.num_rows,
        put_low=txids["min"],
        put_high=txids["max"],
        removed=removed,
        unexplained=() if _sorted(stayed, keys).equals(_sorted(kept, keys)) else _unexplained(before, kept, keys),
    )


def compare_bags(before: pa.Table, after: pa.Table, since: int) -> RowChanges:
    """As :func:`compare_rows`, for rows without keys."""
    is_put = pc.fill_null(pc.greater(after[TXID_FIELD], since), False)
    changed, unchanged = after.filter(is_put), after.filter(pc.invert(is_put))
    txids = pc.min_max(changed[TXID_FIELD]).as_py()
    unexplained = missing_from(before, unchanged)
    return RowChanges(
        put=changed.num_rows,
        put_low=txids["min"],
        put_high=txids["max"],
        removed=before.num_rows - unchanged.num_rows + unexplained.num_rows,
        unexplained=tuple(f"{row} was not there" for row in python_rows(unexplained.slice(0, SAMPLES_MAX))),
    )


def _is_there(location: Location, known: JournalTable) -> bool:
    table = location.existing()
    return table is not None and str(table.metadata().id) == known.identity


@attrs.frozen
class _Reader:
    """Reads one table's history."""

    state: str
    location: Location
    latest: DeltaTable
    owner: Owner

    @classmethod
    def of(cls, state: str, location: Location) -> _Reader:
        latest = location.existing()
        owner = None if latest is None else Owner.of(latest)
        if latest is None or owner is None:
            raise DivergenceError(
                f"state {state!r}: there is no table of a txtopo state at {location.address}, where the journal has "
                "one; restore it"
            )
        return cls(state, location, latest, owner)

    def read(self, tell: Callable[[int, int], object], *, with_rows: bool) -> TableHistory:
        rows = FollowedRows(self.location, self.latest, self.owner)
        versions: list[TableVersion] = []
        log = KeptLog.of(self.location.folder)
        count = sum(version <= self.latest.version() for version in log.entries)
        openable = {*log.versions()}
        for version, actions in self._log(log, openable):
            last = versions[-1].txid if versions else None
            found = self._version(version, actions, last) if versions else self._first(version, actions)
            follows = bool(versions) and versions[-1].version == version - 1
            found = attrs.evolve(found, follows=follows or not versions)
            if with_rows:
                changes = self._changes(rows, versions, found, actions, openable)
                found = attrs.evolve(found, changes=changes)
            versions.append(found)
            tell(len(versions), count)
        newest = rows.all() if with_rows and rows.keys else None
        doubled = () if newest is None else _doubled(newest, rows.keys)
        identity = str(self.latest.metadata().id)
        return TableHistory(self.state, self.location.address, identity, tuple(versions), doubled)

    def _changes(
        self,
        rows: FollowedRows,
        versions: Sequence[TableVersion],
        found: TableVersion,
        actions: Sequence[Mapping[str, Any]],
        openable: Collection[int],
    ) -> RowChanges | None:
        """Return the changes of rows in a version, which comes after ``versions``.

        A rollback must equal the version that it restores, not the one before it. If that is gone, it comes after a gap
        behind the one before that.
        """
        restored = versions[rolled_back_from(versions, found.txid) - 1] if found.is_rollback and versions else None
        if restored is not None and (restored.version not in openable or (restored.txid or 0) > (found.txid or 0)):
            restored = None
        if found.version not in openable:
            rows.forget()
            is_known = restored is not None and (restored.txid or 0) == (found.txid or 0)
            if restored is not None and is_known:
                rows.go_to(restored.version, ())
            return RowChanges(0, None, None, 0) if is_known else None
        step, since = rows.go_to(found.version, actions), versions[-1].txid or 0 if versions else 0
        if found.is_rollback:
            step = None if restored is None else rows.since(restored.version)
            since = 0 if restored is None else restored.txid or 0
        if step is None:
            return None
        if not step.before.num_rows and not step.after.num_rows:
            return RowChanges(0, None, None, 0)
        if not rows.keys:
            return compare_bags(step.before, step.after, since)
        twice = rows.doubled()
        changes = compare_rows(step.before, step.after, rows.keys, since, rows.alive(step.before))
        return changes if twice is None else attrs.evolve(changes, doubled=_doubled(twice, rows.keys))

    def _log(self, log: KeptLog, openable: Collection[int]) -> Iterator[tuple[int, list[Mapping[str, Any]]]]:
        """Yield the versions up to the latest with their actions, oldest first.

        Before a gap in the log are the versions of points, and those that went back, which may not be opened any more.
        """
        for version in log.entries:
            if version > self.latest.version():
                return
            lines = self.location.folder.get(entry_path(version)).splitlines()
            actions = [json.loads(line) for line in lines if line.strip()]
            if version in openable or self._numbers(actions).rolled_back_at is not None:
                yield version, actions

    def _first(self, version: int, actions: Sequence[Mapping[str, Any]]) -> TableVersion:
        numbers = self._numbers(actions)
        if numbers.txid is None:
            numbers = Numbers.of(self.location.handle(version), self.owner.application)
        return TableVersion(version, numbers.txid, numbers.epoch, _operation(actions), touches=True)

    def _version(self, version: int, actions: Sequence[Mapping[str, Any]], last: int | None) -> TableVersion:
        numbers = self._numbers(actions)
        is_rollback = numbers.rolled_back_at is not None
        return TableVersion(
            version=version,
            txid=last if numbers.txid is None else numbers.txid,
            epoch=numbers.epoch,
            operation=_operation(actions),
            touches=any(_touches(action) for action in actions),
            moves=_moves_files(actions) and not any(_touches(action) for action in actions),
            is_rollback=is_rollback,
            # An adoption records the last transaction again.
            is_adoption=not is_rollback and numbers.txid == (last or 0),
        )

    def _numbers(self, actions: Sequence[Mapping[str, Any]]) -> Numbers:
        return Numbers.in_entry(actions, self.owner.application)


def _operation(actions: Sequence[Mapping[str, Any]]) -> str:
    return next((str(a["commitInfo"].get("operation")) for a in actions if "commitInfo" in a), "an unknown operation")


def _moves_files(actions: Sequence[Mapping[str, Any]]) -> bool:
    return any("add" in action or "remove" in action for action in actions)


def _touches(action: Mapping[str, Any]) -> bool:
    moved = action.get("add") or action.get("remove")
    return "metaData" in action or (moved is not None and bool(moved.get("dataChange", True)))


def _sorted(rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    return rows.sort_by([(key, "ascending") for key in keys]).combine_chunks()


def _unexplained(before: pa.Table, kept: pa.Table, keys: Sequence[str]) -> tuple[str, ...]:
    """Describe some rows that have changed without a new txid."""
    before_by_key = {tuple(row[key] for key in keys): row for row in python_rows(before)}
    unexplained = []
    for row in python_rows(kept):
        was = before_by_key.get(tuple(row[key] for key in keys))
        if was is None:
            unexplained.append(f"{row} was not there")
        elif repr(was) != repr(row):
            unexplained.append(f"{was} became {row}")
    return tuple(unexplained[:SAMPLES_MAX])


def _doubled(rows: pa.Table, keys: Sequence[str]) -> tuple[str, ...]:
    counts = rows.group_by(list(keys)).aggregate([([], "count_all")])
    twice = counts.filter(pc.greater(counts["count_all"], 1)).slice(0, SAMPLES_MAX)
    return tuple(str({key: row[key] for key in keys}) for row in python_rows(twice))
