"""How recorded plans end: each in one write of the coordinator state, which it changes or replaces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from txtopo.api.store import Change, Put
from txtopo.failpoints import durable_step
from txtopo.files.formats import COORDINATOR_STATE
from txtopo.files.records import to_json
from txtopo.journal.turns import Timeline
from txtopo.transactional.recovery.coordinator_state import CommittedMark, CoordinatorState
from txtopo.transactional.recovery.values import (
    COMMITTED,
    FORMAT,
    GROUP,
    INCARNATION,
    METADATA,
    NOTE,
    PLAN,
    POINTS,
    SOURCE,
    SPOUTS,
    TIMELINE,
    values_below,
)


def end_plan(coordinator_state: CoordinatorState, mark: CommittedMark) -> None:
    """End a plan that keeps the begun transactions and the group in progress."""
    # No start has been since: what this epoch has rolled back is the tables' last transaction, so it is no turn.
    values = coordinator_state.values
    timeline = attrs.evolve(coordinator_state.timeline(), epoch=coordinator_state.epoch)
    values.write([values.put(COMMITTED, to_json(mark)), values.put(TIMELINE, to_json(timeline)), values.delete(PLAN)])


def end_rename(
    coordinator_state: CoordinatorState, mark: CommittedMark, timeline: Timeline, former: CoordinatorState
) -> None:
    """End the rename of a topology, or of its states: give it a mark with the new names, and its timeline.

    If ``former`` is another one, all of it moves here. A crash in between leaves the plan here, and the next call
    goes on: what is here by then was copied whole.
    """
    values, before = coordinator_state.values, former.values
    named = [values.put(COMMITTED, to_json(mark)), values.put(TIMELINE, to_json(timeline))]
    if former is coordinator_state:
        values.write([*named, values.delete(PLAN)])
        return
    if not coordinator_state.is_begun:
        copied = [
            Put(values.path(path), value)
            for name in before.names()
            if name != INCARNATION
            for path, value in values_below(before.store, before.topology_id, name)
        ]
        # The incarnation goes last, in case the store splits the step.
        with durable_step("rename.state"):
            values.write([*copied, *named, values.put(INCARNATION, former.incarnation)])
    remove_all(former)
    values.write([values.delete(PLAN)])


def remove_all(coordinator_state: CoordinatorState) -> None:
    """Remove all of a coordinator state, its plan last: it lives on under another id."""
    values = coordinator_state.values
    values.write([values.delete(name) for name in (*values.names(), PLAN)])


def end_by_replacing(  # noqa: PLR0913, PLR0917 - all that a repair replaces
    coordinator_state: CoordinatorState,
    incarnation: str,
    spouts: Mapping[str, str],
    mark: CommittedMark,
    timeline: Timeline,
    number: int,
    of_spout: Sequence[Change] = (),
) -> None:
    """End a repair by replacing the coordinator state; the old values move below ``before-repair-<number>``.

    ``of_spout`` are changes of the spout's values, whose former state is kept there too.
    """
    values = coordinator_state.values
    changes: list[Change] = [
        *values.set_aside((INCARNATION, SPOUTS, COMMITTED, TIMELINE, GROUP, NOTE, METADATA), number),
        values.put(FORMAT, to_json(COORDINATOR_STATE)),
        values.put(INCARNATION, incarnation),
    ]
    if of_spout:
        changes += [*values.copy_aside([SOURCE], number), *of_spout]
    changes += [
        values.put(SPOUTS, dict(spouts)),
        values.put(COMMITTED, to_json(mark)),
        values.put(TIMELINE, to_json(timeline)),
        values.put(POINTS, to_json(coordinator_state.points().until(mark.txid))),
    ]
    # The plan goes last: if a store splits the step and a crash comes in between, no run starts, and the next
    # repair carries the plan out again.
    values.write([*changes, values.delete(PLAN)])


def end_by_setting_aside(coordinator_state: CoordinatorState, number: int) -> None:
    """End a repair by moving all coordinator state below ``before-repair-<number>``."""
    values = coordinator_state.values
    values.write([*values.set_all_aside(number), values.delete(PLAN)])
