"""``txtopo evolve``: make a topology's tables as their states are declared, in what can be changed."""

from __future__ import annotations

import click

from txtopo.api.state import State, TableDescription
from txtopo.assembly.start import recover_alone
from txtopo.assembly.storage import states_of
from txtopo.cli.command import Command
from txtopo.cli.mend.agreement import say_done
from txtopo.cli.target import takes_target
from txtopo.topology.user_code.loading import Target
from txtopo.transactional.recovery.tables import growing


@click.command("evolve", cls=Command)
@takes_target
def evolve(target: Target) -> None:
    """Make a topology's tables as declared, once: with the columns of new fields, and deletion vectors or none.

    MODULE, ATTRIBUTE and --set are as for 'txtopo run'. The topology must not be running.

    A state may have new fields that its table lacks: value fields, or fields of a table of rows. Their columns are
    added as a run would do it if the state were declared with schema_evolution="add": after recovery, in one version of
    the table that changes no row. Earlier rows have nulls there. A column that was added can't be removed.

    A state may be declared with deletion_vectors=True and its table made without, or the reverse. They are turned on by
    one version that changes no row. To turn them off, the files that have some are written anew; versions from before
    have them as long as the table keeps these, and readers of such a version must know them.
    """
    plan, config = target.plan, target.config
    states = states_of(plan, config)
    before = {
        name: table for name, state in states.items() if (table := _described(state)) and (table.lacks or table.turns)
    }
    if not before:
        click.echo("nothing to do: no table lacks a field that can be added, and deletion vectors are as declared")
        return
    recover_alone(plan, config, {name: growing(state) if name in before else state for name, state in states.items()})
    for name, table in before.items():
        if table.lacks:
            click.echo(f"state {name!r}: added {', '.join(table.lacks)}; earlier rows have nulls there")
        if table.turns == "on":
            click.echo(f"state {name!r}: deletion vectors are on; its readers must know them")
        elif table.turns == "off":
            last = _last_txid(states[name])
            click.echo(f"state {name!r}: deletion vectors are off; what is kept up to transaction {last} may have them")
    say_done(target)


def _described(state: State) -> TableDescription | None:
    table = state.table()
    return None if table is None else table.describe()


def _last_txid(state: State) -> int:
    description = _described(state)
    return 0 if description is None else description.last_txid or 0
