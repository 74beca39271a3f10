"""The last errors of a topology, and whether it still fails."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from txtopo.engine.timeline.records import COMPONENT, PROGRESS, ROOTS, ErrorRecord, OfComponent, OfProgress, OfRoots
from txtopo.files.records import in_camel_case
from txtopo.inspect.run.known import KnownRun, now_of
from txtopo.inspect.run.status import Failure
from txtopo.inspect.timeline.series import last_growth, last_number
from txtopo.text.secrecy import without_secrets
from txtopo.transactional.core.record.history import first_line


@attrs.frozen(field_transformer=in_camel_case)
class Error:
    """An error, with its traceback."""

    at: float
    txid: int | None = None
    attempt: int | None = None
    epoch: int | None = None
    component: str = ""
    text: str = ""


@attrs.frozen(field_transformer=in_camel_case)
class ErrorGroup:
    """Errors of one component with the same first line, newest first."""

    component: str
    first: str
    count: int
    first_at: float
    last_at: float
    errors: Sequence[Error]


@attrs.frozen(field_transformer=in_camel_case)
class Errors:
    """The last errors in groups, and how many failures there were."""

    total: int = 0
    groups: Sequence[ErrorGroup] = ()


CURRENT_SECS = 60.0
"""What has gone on for so long without a failure fails no longer."""


def errors(known: KnownRun) -> Errors:
    """Return the last errors by component and first line, newest first; raise ConfigError if they can't be read."""
    known.timeline.check("errors")
    return Errors(_total_errors(known), groups_of(known))


def groups_of(known: KnownRun) -> list[ErrorGroup]:
    """Return the groups of errors; none if they can't be read."""
    groups: dict[tuple[str, str], list[Error]] = {}
    found = [_error(error) for error in reversed(known.timeline.errors())]
    for error in found:
        groups.setdefault((error.component, first_line(error.text)), []).append(error)
    return [
        ErrorGroup(component, first, len(own), own[-1].at, own[0].at, own) for (component, first), own in groups.items()
    ]


def _total_errors(known: KnownRun) -> int:
    kind, at = (ROOTS, OfRoots.ERRORS) if known.is_plain else (PROGRESS, OfProgress.FAILURES)
    total = last_number(known.timeline.last(kind).get(""), at)
    return len(known.timeline.errors()) if total is None else max(int(total), 0)


def _error(record: ErrorRecord) -> Error:
    return Error(
        record.at_secs, record.txid, record.attempt, record.epoch, record.component, without_secrets(record.text)
    )


def is_current(known: KnownRun, failed_at: float | None) -> bool:
    """Whether a topology or a component that has failed last then still fails, or did when the run died."""
    if known.ended and not known.is_failed:
        return False
    return failed_at is not None and abs(now_of(known) - failed_at) <= CURRENT_SECS  # a clock may be set back


def last_failed_at(known: KnownRun) -> float | None:
    """Return when a transaction or a root has last failed, in seconds since 1970."""
    found: list[float | None] = [error.at_secs for error in known.timeline.errors()[-1:]]
    if known.is_plain:  # a failed root needs no error
        found += [last_growth(rows, OfRoots.FAILED) for _, rows in known.timeline.samples(ROOTS)]
    return max((at for at in found if at is not None), default=None)


def components_failed_at(known: KnownRun) -> dict[str, float]:
    """Return when each component has last failed, if it has, in seconds since 1970."""
    found: list[tuple[str, float | None]] = [(error.component, error.at_secs) for error in known.timeline.errors()]
    if known.is_plain:
        samples = known.timeline.samples(COMPONENT)
        found += [(name, last_growth(rows, OfComponent.FAILED)) for name, rows in samples]
    return {name: at for name, at in sorted(found, key=lambda item: item[1] or 0.0) if at is not None}


def last_failure(known: KnownRun) -> Failure | None:
    """Return the last error in a line; None if there was none."""
    found = known.timeline.errors()
    if not found:
        return None
    error = _error(found[-1])
    return Failure(error.txid, error.attempt, error.component or None, first_line(error.text), error.at)
