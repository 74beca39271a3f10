"""``txtopo evolve``: add the columns of new fields to a topology's tables."""

from __future__ import annotations

import click

from txtopo.api.state import State, growing
from txtopo.cli.command import Command
from txtopo.cli.target import takes_target
from txtopo.secrecy import command_line
from txtopo.topology.loading import Target
from txtopo.transactional.run.assembly import recover_alone
from txtopo.transactional.run.storage import states_of


@click.command("evolve", cls=Command)
@takes_target
def evolve(target: Target) -> None:
    """Add the columns of new fields to a topology's tables, once.

    MODULE, ATTRIBUTE and --set are as for 'txtopo run'. The topology must not be running.

    A state may have new fields that its table lacks: value fields, or fields of a table of rows. Their columns are
    added as a run would do it if the state were declared with schema_evolution="add": after recovery, in one version of
    the table that changes no row. Earlier rows have nulls there. A column that was added can't be removed.
    """
    plan, config = target.plan, target.config
    states = states_of(plan, config)
    lacks = {name: columns for name, state in states.items() if (columns := _lacks(state))}
    if not lacks:
        click.echo("nothing to add: no table lacks a field that its state has and that can be added")
        return
    recover_alone(plan, config, {name: growing(state) if name in lacks else state for name, state in states.items()})
    for name, columns in lacks.items():
        click.echo(f"state {name!r}: added {', '.join(columns)}; earlier rows have nulls there")
    click.echo(f"done; to continue: {command_line(['txtopo', 'run', *target.words])}")


def _lacks(state: State) -> tuple[str, ...]:
    table = state.table()
    description = None if table is None else table.look()
    return () if description is None else description.lacks
