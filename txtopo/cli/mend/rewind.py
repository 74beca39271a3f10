"""``txtopo rewind``: bring a topology back to an earlier transaction, so that later ones run again."""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import click

from txtopo.api.data.utc import micros_at
from txtopo.assembly.storage import metadata_dir_of, store_place, subject_of
from txtopo.attempts import transactions_words
from txtopo.cli.command import Command, CommandLineError, WholeNumber
from txtopo.cli.look.points import planned_point, point_lines
from txtopo.cli.mend.agreement import ask, takes_yes
from txtopo.cli.mend.repair import carried_out
from txtopo.cli.target import takes_target
from txtopo.files.places import is_address
from txtopo.journal.entries import JournalTransaction
from txtopo.text.secrecy import command_line
from txtopo.text.words import NOTHING_CHANGED, count_of
from txtopo.topology.plans.plan import Phase
from txtopo.topology.user_code.loading import Target
from txtopo.transactional.recovery.operations.diagnosis import Diagnosis, RepairSubject
from txtopo.transactional.recovery.operations.going_back import DryRun, Rewind
from txtopo.transactional.recovery.operations.procedure import Procedure
from txtopo.transactional.recovery.operations.rewind import Past, Point
from txtopo.transactional.recovery.plans import Adopt, BeginEmpty, GoTo, Join, Repair

PARTITIONS_SHOWN = 10
"""How many partitions of the input are listed."""

_REACH = (
    "tables keep what a rewind needs for topology.rewind.hours = {hours} at least, from the next run on; the journal "
    "keeps topology.journal.bytes.max = {bytes:,} bytes"
)


class _Time(click.ParamType):  # type: ignore[type-arg] # generic since click 8.4 only
    """A point in time; the converted value is in ms since 1970."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Convert a text such as ``2026-11-20 14:00``."""
        try:
            return micros_at(dt.datetime.fromisoformat(str(value))) // 1000
        except ValueError:
            self.fail(f"{value!r} is not a time; write it as '2026-11-20 14:00', in UTC, or with a zone", param, ctx)


@click.command(cls=Command)
@takes_target
@click.argument("txid", metavar="[TXID]", type=WholeNumber(0), required=False)
@click.option("--to", "time_ms", metavar="TIME", type=_Time(), help="The last transaction planned by then; UTC.")
@click.option("--dry-run", "is_dry", is_flag=True, help="Only show what would change; the topology may be running.")
@takes_yes
def rewind(target: Target, txid: int | None, time_ms: int | None, is_dry: bool, yes: bool) -> None:  # noqa: FBT001
    """Bring a topology back to an earlier transaction; the later ones run again, with the code that is there then.

    All tables, the coordinator state, what the spout keeps, and the journal go back together, to the newest point at or
    before TXID at which all can stand. TXID 0 is the time before the first transaction. Without TXID and --to, the
    points are listed, and what bounds them; nothing is changed.

    The topology must not be running. What is replaced is kept, under a name that ends in 'before-repair-N'. If a rewind
    is interrupted, no run begins; the same command, or 'txtopo repair', finishes it. What bolts did outside the
    topology's tables is not undone.
    """
    if txid is not None and time_ms is not None:
        raise CommandLineError("TXID and --to exclude each other; give one of them")
    if txid is None and time_ms is None:
        if is_dry:
            raise CommandLineError("--dry-run needs a TXID or --to")
        _echo(_point_lines(target, _dry_run(target)))
    elif is_dry:
        dry = _dry_run(target, txid)
        if time_ms is not None:
            txid = dry.past.at(time_ms)
            dry = _dry_run(target, txid)
        assert txid is not None, "one of them is given"
        _echo(_dry_lines(target, dry, txid))
    else:
        _rewind(target, txid, time_ms, is_agreed=yes)


def _rewind(target: Target, txid: int | None, time_ms: int | None, *, is_agreed: bool) -> None:
    subject = subject_of(target.plan, target.config)
    found: list[Rewind] = []

    def decide(diagnosis: Diagnosis) -> Repair | None:
        if diagnosis.unfinished is not None:
            return diagnosis.unfinished
        found[:] = [Rewind.decided(subject, diagnosis, txid, time_ms)]
        return found[0].plan

    def agree(diagnosis: Diagnosis, plan: Repair) -> None:
        if diagnosis.unfinished is not None:
            click.echo(f"finishing an interrupted {diagnosis.unfinished.command}")
            return
        (way,) = found
        assert isinstance(plan, GoTo), "decide() has made it"
        _echo(_plan_lines(target, way.past, way.point, way.reasons, diagnosis.record.committed.txid))
        _echo(_way_on_lines(subject, way.past, plan, way.new))
        ask(_effect(way.past, way.point), is_agreed=is_agreed)

    procedure = Procedure("txtopo rewind", _show_nothing, decide, agree)
    plan = carried_out(target, procedure)
    if isinstance(plan, BeginEmpty | Join | Adopt):  # one that was in the way, and goes back nowhere
        plan = carried_out(target, procedure)
    if plan is None:
        click.echo(f"the topology is at transaction {found[0].point.txid} already; nothing to rewind")


def _show_nothing(_diagnosis: Diagnosis) -> None:
    pass


def _dry_run(target: Target, txid: int | None = None) -> DryRun:
    plan, config = target.plan, target.config
    return DryRun.of(subject_of(plan, config), store_place(plan, config).open, txid)


def _echo(lines: Iterable[str]) -> None:
    for line in lines:
        click.echo(line)


def _point_lines(target: Target, dry: DryRun) -> Iterator[str]:
    """Yield the points that a topology can be brought back to, and what bounds them."""
    past = dry.past
    yield f"topology {dry.subject.topology_id!r}: at transaction {_named(past.points[0])}"
    standing = [point for point in past.standing if 0 < point.txid < past.committed.txid]
    if standing:
        yield f"it can be brought back to {count_of(len(standing), 'point')}:"
        ends = reversed(past.points[1:])
        yield from point_lines((_named(point), bool(point.txid) and not point.obstacles) for point in ends)
    else:
        yield "it can be brought back to no point after its first transaction"
    if not past.points[-1].obstacles:
        yield "  and to 0, before its first transaction"
    for name in past.unversioned:
        yield f"state {name!r} keeps no versions: it stays as it is"
    bounds = [point for point in past.points if point.obstacles]
    if bounds:
        for obstacle in bounds[0].obstacles:
            yield f"not to {bounds[0].txid}: {obstacle}"
    yield f"the journal begins with transaction {past.oldest or past.committed.txid}"
    config = target.config
    yield _REACH.format(hours=config["topology.rewind.hours"], bytes=config["topology.journal.bytes.max"])


def _named(point: Point) -> str:
    return planned_point(point.txid, point.checkpoint.planned)


def _plan_lines(target: Target, past: Past, point: Point, reasons: Sequence[str], committed: int) -> Iterator[str]:
    """Yield why it is not a nearer point, what is not undone, and what would keep the ``committed`` transactions."""
    for reason in reasons:
        yield f"a later point is not possible: {reason}"
    bolts = [
        component.id
        for component in target.plan.of_phase(Phase.COMMIT)
        if not type(component.component).__module__.startswith(("committers.", "spouts.", "txtopo."))
    ]
    if bolts:
        yield f"not undone: what {', '.join(map(repr, bolts))} did outside the topology's tables, if anything"
    for name in past.unversioned:
        if target.plan.states[name].is_durable:
            undone = f"what {transactions_words(point.txid + 1, past.committed.txid)} have written"
            yield f"not undone: {undone} to state {name!r}, which keeps no versions: it takes them once"
        else:
            yield f"not undone: state {name!r}, which is in memory: it goes on with what the process has that runs it"
    if not point.txid:
        yield "the spout begins where its options say"
    place = f"{target.plan.topology_id}-at-{committed}"
    beside, _, _ = str(metadata_dir_of(target.plan, target.config)).rpartition("/")
    if is_address(beside):  # beside the topology, but in its bucket
        is_bucket = "/" not in beside.partition("://")[2]
        place = f"{beside}/{place}" if is_bucket else f"{beside}-at-{committed}"
    fork = command_line(["txtopo", "fork", *target.words, str(committed), place])
    yield f"there is no way forward again: to keep what is there now, first run '{fork}', or copy the folder"


def _way_on_lines(subject: RepairSubject, past: Past, plan: GoTo, new: Collection[str]) -> Iterator[str]:
    """Yield what becomes of states that the topology does not have at the point."""
    again = "'txtopo backfill' gives it its history again" if plan.txid else "the next run begins it"
    for name in plan.forgotten:
        if name not in past.unfinished:
            yield f"state {name!r} joined the topology later: its table is moved aside, and {again}"
        elif name in subject.states:
            later = f"the backfill of state {name!r} has later transactions"
            yield f"{later}: it and its table are moved aside, and {again}"
        else:
            yield (
                f"the backfill of state {name!r}, which the code lacks, has later transactions: it is moved aside, but "
                "its table stays: move it away before another backfill"
            )
    for name in new:
        if name in plan.forgotten:
            continue
        table = subject.states[name].table()
        found = None if table is None else table.describe()
        if name in past.unfinished:
            yield f"state {name!r} is new: its backfill, at transaction {past.unfinished[name]}, can go on afterwards"
        elif table is not None and found is not None and found.last_txid is not None:
            yield f"state {name!r} is new: before a backfill, move its table at {table.address} away"
        else:
            yield f"state {name!r} is new, and left as it is: 'txtopo backfill' gives it its history afterwards"


def _effect(past: Past, point: Point) -> str:
    tables = ", ".join(map(repr, point.rolled_back)) or "no table"
    return (
        f"{tables} rolled back, each by a new version that equals the old one; the topology goes back to transaction "
        f"{_named(point)}, and transactions {point.txid + 1} to {past.committed.txid} run again"
    )


def _dry_lines(target: Target, dry: DryRun, txid: int) -> Iterator[str]:
    """Yield what a rewind would change: versions and rows of tables, and the input that is read again."""
    past = dry.past
    point, reasons = past.nearest(txid)
    if point.txid == past.committed.txid:
        yield f"the topology is at transaction {point.txid} already; nothing to rewind"
        return
    plan = past.plan(point, 0)
    dry.check(target.plan, target.config, store_place(target.plan, target.config).open, plan)
    yield f"to transaction {_named(point)}; transactions {point.txid + 1} to {past.committed.txid} would run again"
    yield from _plan_lines(target, past, point, reasons, dry.committed)
    yield from _way_on_lines(subject_of(target.plan, target.config), past, plan, dry.new)
    for name in past.descriptions:
        if name not in plan.forgotten:
            yield f"state {name!r}: {_change_text(dry, name, point)}"
    yield from _input_lines(past.undone(point))
    yield NOTHING_CHANGED


def _change_text(dry: DryRun, name: str, point: Point) -> str:
    """Describe what going back to a point changes in a table."""
    version, change = dry.past.descriptions[name].version, dry.change(name, point)
    if change is None:
        return f"version {version}, no change"
    had = f"what it had after transaction {point.txid}" if change.like is None else f"version {change.like}"
    like = "an empty table" if change.is_emptied else had
    counts = f"{count_of(change.gone, 'row')} would go, {change.back:,} come back, {change.changed:,} change back"
    return f"version {version}; a new one would equal {like}, {counts}"


def _input_lines(undone: Iterable[JournalTransaction]) -> Iterator[str]:
    spans: dict[str, tuple[Any, Any]] = {}
    count = 0
    for transaction in undone:
        count += 1
        # Of each transaction, the partitions in their order, before those that later ones alone have.
        own = {name: (start, spans.pop(name, (start, end))[1]) for name, (start, end) in transaction.input.items()}
        spans = own | spans
    for partition, (start, end) in itertools.islice(spans.items(), PARTITIONS_SHOWN):
        yield f"input {partition}: {start} to {end} again"
    if len(spans) > PARTITIONS_SHOWN:
        yield f"and {count_of(len(spans) - PARTITIONS_SHOWN, 'more partition')}"
    if not spans:
        yield f"input: that of {count_of(count, 'transaction')} again; the spout reports no ranges"
