"""What a rewind asks of the spout: whether its source has the input still, and where its own values go back to.

The spout's coordinator is asked as at the start of a run, but what it writes is only gathered. The rewind applies it in
the step that replaces the coordinator state, so the spout's values and the metadata never disagree. Then a second
coordinator resumes on top of these changes: a source that would be refused by the next run is refused before anything
is changed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from txtopo.api.optional import call_if_there
from txtopo.api.store import Change, Delete, Lead, Put, Store
from txtopo.config import Config
from txtopo.errors import StateAccessError
from txtopo.topology.plan import Plan
from txtopo.topology.user_code import user_code
from txtopo.transactional.recovery.coordinator_state import CoordinatorState
from txtopo.transactional.recovery.diagnosis import GoTo
from txtopo.transactional.tasks.context import TaskContext
from txtopo.transactional.tasks.factory import TaskFactory


class GatheringLead(Lead):
    """A lead that writes nothing: it gathers the changes."""

    def __init__(self, epoch: int = 0) -> None:
        self.changes: list[Change] = []
        self._epoch = epoch

    @property
    def epoch(self) -> int:
        """The epoch that it was made with."""
        return self._epoch

    def write(self, changes: Sequence[Change]) -> None:
        """Gather changes."""
        self.changes += changes

    def is_held(self) -> bool:
        """Return True: nothing can be lost."""
        return True

    def release(self) -> None:
        """Do nothing."""


class _ChangedStore(Store):
    """A store as it will be after some changes; for reading only."""

    def __init__(self, store: Store, changes: Sequence[Change]) -> None:
        self._store = store
        self._changes = changes

    def read(self, path: str) -> bytes | None:
        for change in reversed(self._changes):
            if isinstance(change, Put) and change.path == path:
                return change.value
            if isinstance(change, Delete) and _is_at_or_below(path, change.path):
                return None
        return self._store.read(path)

    def children(self, path: str) -> list[str]:
        put = [
            each.path[len(path) + 1 :]
            for each in self._changes
            if isinstance(each, Put) and each.path.startswith(f"{path}/")
        ]
        names = {*self._store.children(path), *(each.partition("/")[0] for each in put)}
        return sorted(name for name in names if self._has(f"{path}/{name}"))

    def take_lead(self, topology_id: str, owner: str, epoch_min: int = 1) -> Lead:
        del topology_id, owner, epoch_min
        return GatheringLead()

    def close(self) -> None:
        pass

    def _has(self, path: str) -> bool:
        return self.read(path) is not None or bool(self.children(path))


def _is_at_or_below(path: str, above: str) -> bool:
    return path == above or path.startswith(f"{above}/")


def changes_of_spout(
    plan: Plan, config: Config, coordinator_state: CoordinatorState, to: GoTo, undone: Sequence[Any]
) -> list[Change]:
    """Return the changes that bring the spout's own values back; nothing is written.

    Args:
        plan: the topology.
        config: its configuration.
        coordinator_state: as it is before the rewind.
        to: where the rewind goes.
        undone: the metadata of the transactions after that.

    Raises:
        StateAccessError: the spout keeps values of its own and can't bring them back.
        InputError: the source no longer has what is to be read again, or no longer matches the metadata.
    """
    store, _, root = coordinator_state.source_place
    changes, can_go_back = _asked(plan, config, coordinator_state, to, undone)
    if not can_go_back and store.children(root):
        raise StateAccessError(
            f"the coordinator of spout {plan.spout.id!r} keeps values of its own, and has no method rewind() to bring "
            f"them back to transaction {to.txid}: give it one, see Coordinator.rewind"
        )
    after = _ChangedStore(store, changes)
    with _coordinator(plan, config) as coordinator:
        call_if_there(coordinator, "open_store", after, GatheringLead(coordinator_state.epoch), root)
        plan.semantics.resume(coordinator, to.txid, to.metadata, is_first=True)
    return changes


def ask_for_input(
    plan: Plan, config: Config, coordinator_state: CoordinatorState, to: GoTo, undone: Sequence[Any]
) -> None:
    """Ask the spout, as a rewind would, whether its source has the input of later transactions; see changes_of_spout.

    Raises:
        InputError: the source no longer has it.
    """
    _asked(plan, config, coordinator_state, to, undone)


def _asked(
    plan: Plan, config: Config, coordinator_state: CoordinatorState, to: GoTo, undone: Sequence[Any]
) -> tuple[list[Change], bool]:
    """Return the changes of the spout's own values that a rewind would make, and whether it can go back."""
    store, _, root = coordinator_state.source_place
    gathering = GatheringLead(coordinator_state.epoch)
    with _coordinator(plan, config) as coordinator:
        call_if_there(coordinator, "open_store", store, gathering, root)
        can_go_back = plan.semantics.rewind(coordinator, to.txid, to.metadata, undone)
    return gathering.changes, can_go_back


@contextlib.contextmanager
def _coordinator(plan: Plan, config: Config) -> Iterator[Any]:
    """Yield a fresh coordinator of the spout; what is done with it is the user's code."""
    spout, factory = plan.spout, TaskFactory(plan, config, {})
    with user_code(spout.id, None):
        coordinator = spout.component.coordinator(factory.configuration(spout), TaskContext(plan, spout, 0, None))
        try:
            yield coordinator
        finally:
            call_if_there(coordinator, "close")
