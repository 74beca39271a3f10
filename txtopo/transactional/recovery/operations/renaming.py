"""Renaming: gives a topology another id, or some of its states other names, safely even if it crashes.

Whoever renames has the lead of the topology under its former id, and has recovered it: the last group is committed, and
each table is fenced. Then:

1. It records the plan in the coordinator state; if the id changes, under both ids. From now on no run starts under
   either, and an interrupted rename is finished from this record.
2. Each table gets its new owner, in one Delta write. Rows, versions and application ids stay as they are, so what was
   written before is read as ever, and whoever had opened the table is fenced under its former name, too.
3. The journal gets a part with the new names, by which its earlier parts are read from then on; if the id changes, its
   files move before. So do the journals of backfills.
4. What shows runs moves, if the id changes: nothing depends on it.
5. The coordinator state gets the new names; if the id changes, all of it moves. The plan goes off the record.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from txtopo.api.state import CanBeRenamed, StateTable
from txtopo.errors import ConfigError, StopError
from txtopo.failpoints import durable_step
from txtopo.files.folder import Folder
from txtopo.journal.backfills import backfills_in, rename_in_backfills, unfinished_backfills
from txtopo.journal.folders import enter_rename, find_journal
from txtopo.journal.journal import journal_files
from txtopo.text.words import NOTHING_CHANGED
from txtopo.transactional.recovery.coordinator_state import CoordinatorState
from txtopo.transactional.recovery.plans import NewNames, end_rename, record_plan


@attrs.frozen
class Renaming:
    """A topology that is renamed: its coordinator state under the former id and under the new one, and its tables."""

    former: CoordinatorState
    own: CoordinatorState
    """The same object if the id stays."""
    metadata_dir: Folder
    tables: Mapping[str, StateTable]
    """By the new name of each state, its table."""

    def check(self, plan: NewNames) -> None:
        """Refuse names that are in use, and what can't be renamed, before anything is changed.

        Raises:
            ConfigError: a state can't be renamed.
            StopError: a name is in use, or a backfill is unfinished.
        """
        rename, marks = plan.rename, self.former.committed().states
        for name, table in self.tables.items():
            description = table.describe()
            if description is not None and description.incarnation != self.former.incarnation:
                raise StopError(
                    f"the table of state {name!r}, {table.address}, is of another incarnation of topology "
                    f"{description.topology_id!r}: run 'txtopo repair' with the former names; {NOTHING_CHANGED}"
                )
        current_names = [rename.since.get(name, name) for name, mark in marks.items() if mark.left_after is None]
        unable = [
            *(name for name, table in self.tables.items() if not isinstance(table, CanBeRenamed)),
            *(name for name in current_names if name not in self.tables),
        ]
        for name in unable:
            if rename.is_of_id or name in rename.states:
                raise ConfigError(
                    f"state {name!r} can't be renamed: its table has no way to get another owner; {NOTHING_CHANGED}"
                )
        used = [name for name in rename.states if name in marks and name not in rename.since]
        if used:
            raise StopError(f"the topology had a state {used[0]!r} before: choose another name; {NOTHING_CHANGED}")
        if rename.is_of_id:
            self._refuse_other(rename.topology)
        joined = {name: mark.identity for name, mark in marks.items()}
        for name in unfinished_backfills(self.metadata_dir, self.former.topology_id, joined):
            raise StopError(f"the backfill of state {name!r} is unfinished: finish it first; {NOTHING_CHANGED}")

    def _refuse_other(self, topology_id: str) -> None:
        places = {
            "the store": self.own.is_begun or bool(self.own.values.asides()),
            str(self.metadata_dir): bool(journal_files(find_journal(self.metadata_dir, topology_id)))
            or not backfills_in(self.metadata_dir, topology_id).is_empty(),
        }
        where = next((place for place, is_used in places.items() if is_used), None)
        if where is not None:
            raise StopError(f"{where} has records of a topology {topology_id!r}: choose another id; {NOTHING_CHANGED}")

    def carry_out(self, plan: NewNames) -> None:
        """Carry out, or continue, a plan but for its end; raise LostLead if another coordinator leads meanwhile."""
        former, own, rename = self.former, self.own, plan.rename
        # A crash before the first leaves a topology that nobody has touched. One between the two leaves its former code
        # refused, and the new code finds the plan there.
        for state in (former,) if former is own else (former, own):
            with durable_step("rename.begin"):
                record_plan(state, plan)
        for name, table in self.tables.items():
            description = table.describe()
            if description is not None and (description.topology_id, description.state) != (rename.topology, name):
                assert isinstance(table, CanBeRenamed), "check() has looked"
                # A crash after this leaves tables of either name; both codes are refused, and the next call does the
                # rest.
                with durable_step("rename.table"):
                    table.rename(rename.topology, name, former.epoch)
        # After a crash, some files are here and some there, or a part without entries is in place.
        with durable_step("rename.journal"):
            enter_rename(self.metadata_dir, rename, own.epoch)
            rename_in_backfills(self.metadata_dir, rename)

    def end(self, plan: NewNames) -> None:
        """Let the topology run under its new names; raise LostLead if another coordinator leads meanwhile."""
        former, own, rename = self.former, self.own, plan.rename
        mark, timeline = former.committed(), former.timeline()
        since = rename.since
        mark = attrs.evolve(mark, states={since.get(name, name): state for name, state in mark.states.items()})
        with durable_step("rename.end"):
            end_rename(own, mark, attrs.evolve(timeline, renames=(*timeline.renames, rename)), former)
