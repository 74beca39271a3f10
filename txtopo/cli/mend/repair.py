"""``txtopo repair``: make coordinator state and tables agree again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from txtopo.assembly.storage import store_place, subject_of
from txtopo.cli.command import Command, CommandLineError
from txtopo.cli.mend.agreement import ask, say_done, takes_yes
from txtopo.cli.target import takes_target
from txtopo.topology.user_code.loading import Target
from txtopo.transactional.recovery.divergence import DivergenceKind
from txtopo.transactional.recovery.operations.diagnosis import Diagnosis, RepairSubject
from txtopo.transactional.recovery.operations.procedure import Procedure
from txtopo.transactional.recovery.plans import Adopt, BeginEmpty, GoTo, Join, Repair, StartAnew


@click.command(cls=Command)
@takes_target
@takes_yes
@click.option(
    "--accept-foreign-writes",
    "is_accepting",
    is_flag=True,
    help="Keep foreign writes to the tables instead of undoing them.",
)
@click.option(
    "--start-anew",
    "is_anew",
    is_flag=True,
    help="Move tables, journal and coordinator state aside, and begin again at transaction 1.",
)
def repair(target: Target, yes: bool, is_accepting: bool, is_anew: bool) -> None:  # noqa: FBT001 - click
    """Make coordinator state and tables agree again if a run refuses to begin.

    MODULE, ATTRIBUTE and --set are as for 'txtopo run'. A running topology is not touched.

    Reports what is wrong and what can be done. A repair that loses nothing is done without asking: if coordinator state
    was wiped, or restored from an earlier backup, it is rebuilt from the journal, provided that all tables agree with
    it. The command asks before it rolls tables back to the newest transaction at which all of them are valid, and
    before committed ones run again; before it accepts foreign writes; and before it starts anew. It keeps everything
    that it replaces, under a name that ends in 'before-repair-N'. If a repair is interrupted, the next one finishes it.
    """
    if is_accepting and is_anew:
        raise CommandLineError("--accept-foreign-writes and --start-anew exclude each other; give one of them")
    subject = subject_of(target.plan, target.config)

    def show(diagnosis: Diagnosis) -> None:
        for line in _diagnosis_lines(subject, diagnosis):
            click.echo(line)

    def decide(diagnosis: Diagnosis) -> Repair | None:
        return diagnosis.repair(is_accepting=is_accepting, is_anew=is_anew)

    def agree(diagnosis: Diagnosis, plan: Repair) -> None:
        _agree(diagnosis, plan, is_agreed=yes)

    def kept(path: Path) -> None:
        click.echo(f"the damaged store is kept as {path}")

    if carried_out(target, Procedure("txtopo repair", show, decide, agree, kept)) is None:
        click.echo("nothing to repair")


def carried_out(target: Target, procedure: Procedure) -> Repair | None:
    """Carry out what a procedure decides, and tell how to go on; return that, None if there was nothing to do."""
    plan, config = target.plan, target.config
    repair = procedure.carry_out(plan, config, subject_of(plan, config), store_place(plan, config))
    if repair is not None:
        say_done(target)
    return repair


def _agree(diagnosis: Diagnosis, plan: Repair, *, is_agreed: bool) -> None:
    """Print the repair, and ask for agreement if it is needed; raise StopError without it."""
    if plan == diagnosis.unfinished:
        click.echo(f"finishing an interrupted {diagnosis.unfinished.command}")
        return
    text = _remedy_text(diagnosis, plan)
    if plan == diagnosis.go_to:
        for obstacle in diagnosis.obstacles:
            click.echo(f"a later transaction is not possible: {obstacle}")
    if plan == diagnosis.go_to and diagnosis.is_safe:
        click.echo(f"safe: {text}")
        return
    ask(text, is_agreed=is_agreed)


def _diagnosis_lines(subject: RepairSubject, diagnosis: Diagnosis) -> Iterator[str]:
    record = diagnosis.record
    yield f"topology {subject.topology_id!r}"
    state = "none" if record.incarnation is None else f"at transaction {record.committed.txid}"
    yield f"  coordinator state: {state}{_group_text(diagnosis)}"
    journal = "none" if diagnosis.journal_txid is None else f"at transaction {diagnosis.journal_txid}"
    yield f"  journal: {diagnosis.journal_problem or journal}"
    for name, table in subject.tables().items():
        description = diagnosis.descriptions.get(name)
        at = (
            "none"
            if description is None
            else f"at transaction {description.last_txid or 0}, version {description.version}"
        )
        yield f"  table of state {name!r}: {at}, {table.address}"
    for name, last in diagnosis.apart.items():
        history = "'txtopo backfill' gives it its history" if last is None else f"its backfill is at transaction {last}"
        yield f"  state {name!r} is new, and no part of a repair: {history}"
    for divergence in diagnosis.divergences:
        yield f"found: {divergence.text}"
    for text in diagnosis.damage:
        yield f"found: {text}"


def _remedy_text(diagnosis: Diagnosis, plan: Repair) -> str:
    match plan:
        case StartAnew(number=number):
            return (
                "tables, journal and coordinator state are moved aside, to names that end in "
                f"before-repair-{number}; nothing is deleted, and the next run begins at transaction 1"
            )
        case Adopt(states):
            return f"foreign writes to {_names(states)} are accepted; nothing runs again"
        case BeginEmpty(txid, states):
            return f"{_names(states)} begun empty after transaction {txid}; nothing runs again"
        case Join(txid, states):
            return f"{_names(tuple(states))} join the topology at transaction {txid}; nothing runs again"
        case GoTo():
            return _go_to_text(diagnosis, plan)


def _go_to_text(diagnosis: Diagnosis, plan: GoTo) -> str:
    committed = diagnosis.record.committed.txid
    rolled_back = ""
    if diagnosis.rolled_back:
        targets = ", ".join(f"{name!r} to transaction {plan.states.get(name, 0)}" for name in diagnosis.rolled_back)
        rolled_back = f"rolled back: {targets}, each by a new version that equals the old one; "
    if plan.is_as_it_is:
        kept = f"the coordinator state stays at transaction {plan.txid}"
        return f"{rolled_back}{kept}, and nothing runs again"
    rebuilt = f"the coordinator state is rebuilt, at transaction {plan.txid}"
    is_undone = any(divergence.kind is DivergenceKind.OTHER_TIMELINE for divergence in diagnosis.divergences)
    last = max(
        [
            0 if is_undone else committed,
            diagnosis.journal_txid or 0,
            *(description.last_txid or 0 for description in diagnosis.descriptions.values()),
        ]
    )
    again = f", and transactions {plan.txid + 1} to {last} run again" if last > plan.txid else ""
    aside = f"; backfills of {_names(plan.forgotten)}, and their tables, are moved aside" if plan.forgotten else ""
    return f"{rolled_back or 'no table is changed; '}{rebuilt}{again}{aside}"


def _group_text(diagnosis: Diagnosis) -> str:
    group = diagnosis.record.group
    return "" if group is None else f", and transactions {group.first} to {group.last} are being written"


def _names(states: tuple[str, ...]) -> str:
    return ", ".join(map(repr, states))
