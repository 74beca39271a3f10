"""Who has removed a version of a reference table, for the error that says so."""

from __future__ import annotations

import datetime as dt

from deltalake.exceptions import TableNotFoundError

from state.delta.log.data_files import DataFolder, files_of
from state.delta.log.entries import actions_of, log_entries
from state.delta.log.kept import KeptLog
from state.delta.log.location import Location
from state.delta.log.ownership import WORLD_ERRORS, Owner
from txtopo.api.data.utc import EPOCH
from txtopo.api.reference import SeenVersion

_LOOK_BACK_VERSIONS = 1_000
"""How many versions are looked through for who has vacuumed: for an error, each is a read."""


def removal_of(location: Location, seen: SeenVersion) -> str | None:
    """Describe that a version is gone, who has removed it, and the way on; None if it is there or nobody can tell."""
    try:
        why = _missing(location, seen.version)
        if why is None:
            return None
        who = _who(location, seen.version)
    except TableNotFoundError:
        why, who = "there is no table any more", "whoever has removed it left no record"
    except WORLD_ERRORS:
        return None
    return (
        f"version {seen.version} of reference {seen.name!r}, the table at {location.address}, is gone: {why}; {who}. "
        "A transaction that was planned with it can't see it. Restore the files, or run 'txtopo replan MODULE', which "
        "plans the transactions that are not committed again with the newest version, and start again"
    )


def _missing(location: Location, version: int) -> str | None:
    """Describe what of a version is missing; None if all is there."""
    location.handle()  # raises if the table is out of reach
    log = KeptLog.of(location.folder)
    if version not in log.versions():
        return "the log has no entry for it any more"
    table = location.handle(version)
    files = files_of(location, table, table.metadata().partition_columns).values()
    missing = DataFolder(location).missing(file for file in files if not file.is_elsewhere)
    return None if missing is None else f"it needs {missing}"


def _who(location: Location, version: int) -> str:
    latest = location.handle()
    for entry in log_entries(location, latest.version(), max(version, latest.version() - _LOOK_BACK_VERSIONS)):
        if "VACUUM" in entry.operation.upper():
            (information, *_) = actions_of(location, entry.version, "commitInfo")
            by = information.get("engineInfo") or information.get("clientVersion") or "an unknown client"
            user = f", user {information['userName']}" if information.get("userName") else ""
            at = f" at {EPOCH + dt.timedelta(milliseconds=entry.written_ms):%F %T} UTC" if entry.written_ms else ""
            return f"the last vacuum is version {entry.version}, {entry.operation!r} by {by}{user}{at}"
    owner = Owner.of(latest)
    if owner is not None:
        return (
            f"no vacuum is in the log, so it was the upkeep of topology {owner.topology_id!r}, which writes the table "
            f"as its state {owner.state!r}: its vacuum_retention_hours says how long files stay"
        )
    return "no vacuum is in the log, so whoever has removed it left no record"
