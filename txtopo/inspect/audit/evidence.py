"""The audit of a topology: the journal and the tables that it names, read so that they agree."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from state.delta.read.audit import read_histories
from txtopo.assembly.snapshot import read_snapshot, snapshots_in
from txtopo.errors import ConfigError
from txtopo.files.folder import Folder
from txtopo.inspect.audit.checks import audit, tables_of
from txtopo.inspect.audit.report import AuditProgress, AuditReport
from txtopo.journal.backfills import backfills_of
from txtopo.journal.ending import READS_MAX, read_consistently
from txtopo.journal.entries import JournalHeader
from txtopo.journal.folders import find_journal
from txtopo.journal.journal import read_journal


def audited(
    metadata_dir: Folder,
    topology_id: str,
    *,
    with_rows: bool,
    tell: Callable[[AuditProgress], object] = lambda _: None,
) -> AuditReport:
    """Audit a topology, even if a coordinator writes meanwhile.

    ``tell`` is called with how far it is, for each version of a table.

    1. Read the journal, and how far its run says that it is.
    2. Read the tables, which may contain later groups by now.
    3. Read the journal again. If it has only grown, cut the tables' histories at the end of the first reading. If
       another coordinator has begun, start over.

    Raises:
        ConfigError: there is nothing to prove, or coordinators follow one another too fast.
        DivergenceError: the journal is damaged, or a table is missing or is not a table of a state.
        StateAccessError: a table can't be read.
    """
    journal = find_journal(metadata_dir, topology_id)

    def tell_progress(state: str, done: int, versions: int) -> None:
        tell(AuditProgress(state, done, versions))

    def read_once(_: object) -> AuditReport | None:
        parts = read_journal(journal)
        if not parts:
            raise ConfigError(f"the journal {journal} has no complete line yet: there is nothing to prove")
        committed = _reported(metadata_dir, parts[-1].header)
        tables, departed = tables_of(parts)
        histories = read_histories(metadata_dir, tables, with_rows=with_rows, departed=departed, tell=tell_progress)
        again = read_journal(journal)
        if again[-1].header.epoch != parts[-1].header.epoch:
            return None
        if again != parts:
            entries = parts[-1].entries
            end = entries[-1].last if entries else parts[-1].header.committed
            histories = {name: history.until(end) for name, history in histories.items()}
            committed = min(committed, end)
        return audit(parts, histories, committed, backfills_of(metadata_dir, parts))

    report = read_consistently(journal, read_once)
    if report is None:
        raise ConfigError(f"coordinators follow one another too fast to be audited; gave up after {READS_MAX} tries")
    report.topology, report.with_rows = topology_id, with_rows
    for proof in () if with_rows else report.tables:
        proof.rows_put = proof.rows_removed = proof.unread = None
    return report


def _reported(metadata_dir: Folder, header: JournalHeader) -> int:
    """Return the last transaction that the newest coordinator's run has reported as committed; 0 if there is none."""
    with contextlib.suppress(ConfigError):  # a report that can't be read proves nothing
        found = read_snapshot(snapshots_in(metadata_dir), header.topology)
        if found is not None and found[0].wrote(header):
            return found[1].committed
    return 0
