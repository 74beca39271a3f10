"""Failpoints: named places round each durable step, where a test lets the process die, stop or fail.

There are some round the user's code, too. All are reached in production, at the price of one look at a
variable. Arm them from outside by the environment, before the process starts::

    TXTOPO_FAILPOINTS="table.write.after=kill:3" txtopo run examples.transactional_words

``NAME=ACTION[:COUNT]``, several separated by semicolons; it happens when the name is reached for the COUNT-th
time (1 unless given), and once. Actions: ``kill`` (SIGKILL to this process), ``stop`` (SIGSTOP), ``fail`` (a
FailedException, as if the world had failed there). The simulator arms them from inside, by :func:`armed`.

Source: etcd's gofail and FreeBSD's fail(9).
"""

from __future__ import annotations

import contextlib
import difflib
import os
import signal
from collections.abc import Callable, Iterator
from types import TracebackType

import attrs

from txtopo.errors import ConfigError, FailedException

ENVIRONMENT = "TXTOPO_FAILPOINTS"

_STEPS = {
    "lead.take": "the lead is taken from the store",
    "table.open": "a table is opened, which fences it; once for each table",
    "recovery.drop": "recovery strikes out a group none of whose writes landed",
    "recovery.write": "recovery finishes a table's write from what was staged; once for each table",
    "recovery.commit": "recovery counts a finished group as committed",
    "recovery.confirm": "a new leader writes that it has recovered",
    "spout.keep": "a spout's coordinator writes to the store what it keeps beside metadata",
    "metadata.save": "metadata of begun transactions is made durable",
    "group.stage": "a table's write is staged; once for each table of a group that writes several",
    "group.journal": "a group is entered in the journal",
    "group.begin": "a group is noted in the coordinator state",
    "table.write": "a table is written; once for each table of a group",
    "group.commit": "a group is counted as committed in the coordinator state",
    "group.clear": "what a group has staged is removed",
    "table.maintain": "a table's upkeep is looked after",
    "repair.begin": "a repair writes its plan into the coordinator state",
    "repair.table": "a repair brings a table to where its plan has it; once for each table",
    "repair.journal": "a repair says in the journal what stands fast",
    "repair.end": "a repair replaces the coordinator state and strikes its plan out",
}

_PLACES = {
    "delta.write.checked": "a Delta write has looked at its fence, and not written yet",
    "delta.write.landed": "a Delta write has landed, and nobody knows yet",
    "delta.stage.drafted": "a staged write is on disk under its draft's name",
    "spout.emit": "an emitter is about to emit its share of a batch",
    "bolt.execute": "a bolt is about to take some tuples, in either phase",
    "bolt.finish": "a bolt is about to finish its batch, in either phase",
}

FAILPOINTS: dict[str, str] = {
    **{f"{name}.{side}": f"{side} {what}" for name, what in _STEPS.items() for side in ("before", "after")},
    **_PLACES,
}
"""Every failpoint, and where it is."""


class ProcessDeath(BaseException):
    """Raise it where a failpoint is reached, in a simulation: the process ends there, and nobody may catch it."""


Handler = Callable[[str], None]
"""Called with the name of each failpoint that is reached; it may raise."""

_handler: Handler | None = None


def reach(name: str) -> None:
    """Say that a failpoint is reached; what was armed for it happens now."""
    if _handler is not None:
        _handler(name)


class durable_step:  # noqa: N801 - reads as what it is: with durable_step(…)
    """Reach ``NAME.before`` and, unless the step fails, ``NAME.after``."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        reach(f"{self._name}.before")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            reach(f"{self._name}.after")


@contextlib.contextmanager
def armed(handler: Handler) -> Iterator[None]:
    """Tell ``handler`` of every failpoint reached in this process within the context."""
    global _handler  # noqa: PLW0603 - one process, one handler
    before, _handler = _handler, handler
    try:
        yield
    finally:
        _handler = before


@attrs.define(eq=False)
class _Charge:
    """What was armed for one failpoint."""

    action: Callable[[str], None]
    left: int


def arm_from_text(text: str) -> Handler | None:
    """Return what ``TXTOPO_FAILPOINTS`` asks for; None if it asks for nothing.

    Raises:
        ConfigError: a name, an action or a count is wrong.
    """
    charges: dict[str, _Charge] = {}
    for part in filter(None, (part.strip() for part in text.split(";"))):
        name, _, order = part.partition("=")
        action, _, count = order.partition(":")
        if name not in FAILPOINTS:
            nearest = difflib.get_close_matches(name, FAILPOINTS, n=1)
            hint = f"did you mean {nearest[0]!r}?" if nearest else f"there are {', '.join(FAILPOINTS)}"
            raise ConfigError(f"{ENVIRONMENT}: there is no failpoint {name!r}; {hint}")
        if action not in _ACTIONS or not (count or "1").isdecimal() or int(count or 1) < 1:
            known = ", ".join(_ACTIONS)
            raise ConfigError(f"{ENVIRONMENT}: {part!r} is not NAME=ACTION[:COUNT] with an ACTION of {known}")
        charges[name] = _Charge(_ACTIONS[action], int(count or 1))

    def handler(name: str) -> None:
        charge = charges.get(name)
        if charge is not None:
            charge.left -= 1
            if charge.left == 0:
                charge.action(name)

    return handler if charges else None


def _kill(_name: str) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _stop(_name: str) -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def _fail(name: str) -> None:
    raise FailedException(f"failpoint {name!r} was armed to fail")


_ACTIONS: dict[str, Callable[[str], None]] = {"kill": _kill, "stop": _stop, "fail": _fail}

_handler = arm_from_text(os.environ.get(ENVIRONMENT, ""))
