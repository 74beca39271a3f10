"""A diagnosis, and what is done about it, in words."""

from __future__ import annotations

from collections.abc import Iterator

from txtopo.recovery.diagnosis import Adopt, Diagnosis, GoTo, RepairSubject, StartAnew


def diagnosis_lines(subject: RepairSubject, diagnosis: Diagnosis) -> Iterator[str]:
    """Yield what was found, a line each."""
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
    for divergence in diagnosis.divergences:
        yield f"found: {divergence.text}"
    for text in diagnosis.damage:
        yield f"found: {text}"


def remedy_text(diagnosis: Diagnosis, plan: GoTo | StartAnew | Adopt) -> str:
    """Return in one sentence what a plan does, without its end."""
    match plan:
        case StartAnew(number):
            return (
                "tables, journal and coordinator state are moved aside, to names that end in "
                f"before-repair-{number}; nothing is deleted, and the next run begins at transaction 1"
            )
        case Adopt(states):
            return f"what somebody else wrote to {_names(states)} is accepted as it is; nothing runs again"
        case GoTo():
            return _go_to_text(diagnosis, plan)


def _go_to_text(diagnosis: Diagnosis, plan: GoTo) -> str:
    committed = diagnosis.record.committed.txid
    rolled_back = ""
    if diagnosis.rolled_back:
        to = ", ".join(f"{name!r} to transaction {plan.states.get(name, 0)}" for name in diagnosis.rolled_back)
        rolled_back = f"rolled back by a new version that equals an old one: {to}; "
    if plan.is_as_it_is:
        kept = f"the coordinator state stays at transaction {plan.txid}"
        return f"{rolled_back}{kept}, and nothing runs again"
    made = f"the coordinator state is made anew, at transaction {plan.txid}"
    last = max(
        [
            committed,
            diagnosis.journal_txid or 0,
            *(description.last_txid or 0 for description in diagnosis.descriptions.values()),
        ]
    )
    again = f", and transactions {plan.txid + 1} to {last} run again" if last > plan.txid else ""
    return f"{rolled_back or 'no table is changed; '}{made}{again}"


def _group_text(diagnosis: Diagnosis) -> str:
    group = diagnosis.record.group
    return "" if group is None else f", and transactions {group.first} to {group.last} are being written"


def _names(states: tuple[str, ...]) -> str:
    return ", ".join(map(repr, states))
