"""Failpoints: named points before and after each durable step, where a test lets the process die, stop or fail.

There are also some around user code. Production code reaches them too, at the cost of reading one variable. Arm them
from outside with an environment variable, before the process starts::

    TXTOPO_FAILPOINTS="table.write.after=kill:3" txtopo run examples.transactional_words

The syntax is ``NAME=ACTION[:COUNT]``, several separated by semicolons. The action happens once, when the name is
reached for the COUNT-th time (by default the first). Actions are ``kill`` (SIGKILL to this process), ``stop`` (SIGSTOP)
and ``fail`` (raises FailedException, like an external failure). The simulator arms them from inside, with
:func:`armed`.

Source: etcd's gofail and FreeBSD's fail(9).
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator

import attrs

from txtopo.errors import ConfigError, FailedException
from txtopo.text.suggestions import did_you_mean

ENVIRONMENT = "TXTOPO_FAILPOINTS"

_STEPS = {
    "lead.take": "the lead is taken from the store",
    "table.open": "a table is opened, which fences it; once for each table",
    "recovery.write": "recovery publishes a decided group's write to a table; once for each table",
    "recovery.commit": "recovery marks a published group as committed",
    "recovery.begin": "recovery records that states are begun empty",
    "recovery.aside": "recovery sets the former table of such a state aside; once for each table",
    "recovery.begun": "recovery records the new tables of such states",
    "table.grow": "a table gets columns that it lacks, or deletion vectors are turned on or off, when a run begins",
    "recovery.confirm": "a new leader records that it has recovered",
    "references.complete": "a run records versions of reference tables that transactions were planned without",
    "references.replan": "transactions that are not committed are planned again with the newest versions",
    "spout.keep": "a spout's coordinator writes its own values to the store",
    "metadata.save": "metadata of begun transactions is made durable",
    "table.prepare": "a table's write is prepared; once for each table of a group",
    "group.journal": "a group is appended to the journal",
    "group.decide": "a group's note is recorded in the coordinator state, which decides the group",
    "table.write": "a table's write is published; once for each table of a group",
    "group.commit": "a published group is marked as committed in the coordinator state, by the next write to it",
    "table.maintain": "a table is maintained",
    "journal.cut": "a file of the journal that no point needs is removed; once for each file",
    "repair.damage": "a repair sets aside coordinator state that can't be read",
    "repair.begin": "a repair writes its plan into the coordinator state",
    "repair.alteration": "a repair takes back what others have changed of a table itself; once for each table",
    "repair.table": "a repair brings a table to its transaction in the plan; once for each table",
    "repair.backfill": "a rewind moves aside the journals of the backfills that it undoes",
    "repair.journal": "a repair writes the new state into the journal",
    "repair.end": "a repair replaces the coordinator state and removes its plan",
    "rename.begin": "a rename writes its plan into the coordinator state; of an id, into that of either id",
    "rename.table": "a table gets its new owner; once for each table",
    "rename.journal": "the journal of a topology that is renamed moves, and gets a part with the new names",
    "rename.state": "the coordinator state of a topology that is renamed is copied to the new id",
    "rename.shown": "the timeline of a topology that is renamed moves",
    "rename.end": "a rename is off the record",
    "fork.begin": "a fork is named in its folder, as one that is not finished",
    "fork.table": "a fork makes a table; once for each table",
    "fork.journal": "a fork writes its beginning into its journal",
    "fork.state": "a fork begins its coordinator state",
    "fork.end": "a fork is named in its folder as finished",
    "backfill.begin": "a backfill founds its own coordinator state",
    "backfill.table": "a backfill copies a table of the topology; once for each table",
    "backfill.plan": "a backfill writes the plan to join the topology into the topology's coordinator state",
    "backfill.enter": "a backfill writes the topology with its new states into the topology's journal",
    "backfill.epoch": "a backfill keeps which epoch's part of the journal it reads",
    "backfill.join": "a backfill records its new states in the topology's coordinator state",
    "nimbus.number": "a nimbus takes a number for a submission",
    "nimbus.keep": "a nimbus keeps the code of a topology on its disk: as the leader at a submission, or a copy",
    "nimbus.upload": "a nimbus gives the code of a submission to the code distributor",
    "nimbus.publish": "a nimbus publishes what the code of a submission consists of",
    "nimbus.check": "a nimbus asks a supervisor whether the code of a submission builds its topology",
    "nimbus.replicate": "a nimbus waits until enough others hold the code of a submission",
    "nimbus.start": "a nimbus lets a submitted topology begin",
    "nimbus.hold": "a nimbus says in ZooKeeper that it holds a copy of the code of a topology",
    "nimbus.store": "a nimbus stores a topology's changed status",
    "nimbus.assign": "a nimbus assigns a topology to a supervisor",
    "nimbus.remove": "a nimbus removes a killed topology",
    "supervisor.launch": "a supervisor starts a driver",
    "supervisor.report": "a supervisor reports how a driver has ended",
}

_PLACES = {
    "delta.write.checked": "a Delta write knows what it is to change, and has not written yet",
    "delta.write.landed": "a Delta write is durable, but the coordinator does not know it yet",
    "fork.shared": "the files of a fork's table are in its folder, and nothing names them yet",
    "delta.prepared": "the files of a write are durable, and nobody sees them",
    "folder.drafted": "a file is on disk, but only under its draft's name",
    "folder.named": "a file has its name, but its folder is not synced yet, nor is a file whose name nobody knows",
    "spout.emit": "an emitter is about to emit its share of a batch",
    "bolt.execute": "a bolt is about to execute tuples, in either phase",
    "pool.answer": "a worker of real-time mode has finished an attempt, and has not told the driver yet",
    "pool.answered": "a worker of real-time mode has told the driver that it has finished an attempt",
    "bolt.finish": "a bolt is about to finish its batch, in either phase",
}

FAILPOINTS: dict[str, str] = {
    **{f"{name}.{side}": f"{side} {what}" for name, what in _STEPS.items() for side in ("before", "after")},
    **_PLACES,
}
"""All failpoints, with a description of their place."""


class ProcessDeath(BaseException):
    """Raised at a failpoint in a simulation: the process ends there, and no code may catch this."""


Handler = Callable[[str], None]
"""Called with the name of each failpoint that is reached; may raise."""

_handler: Handler | None = None


def reach(name: str) -> None:
    """Run the action that is armed for a failpoint, if any."""
    if _handler is not None:
        _handler(name)


class durable_step:  # noqa: N801 - it is used like a function: with durable_step(…)
    """Reach ``NAME.before`` and, unless the step fails, ``NAME.after``."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        reach(f"{self._name}.before")

    def __exit__(self, _kind: object, error: BaseException | None, *_: object) -> None:
        if error is None:
            reach(f"{self._name}.after")


@contextlib.contextmanager
def armed(handler: Handler) -> Iterator[None]:
    """Call ``handler`` for every failpoint that this process reaches within the context."""
    global _handler  # noqa: PLW0603 - a process has one handler
    before, _handler = _handler, handler
    try:
        yield
    finally:
        _handler = before


@attrs.define(eq=False)
class _Charge:
    """The action that is armed for one failpoint."""

    action: Callable[[str], None]
    left: int


def arm_from_text(text: str) -> Handler | None:
    """Return the handler for ``TXTOPO_FAILPOINTS``, None if it is empty; raise ConfigError for what is wrong in it."""
    charges: dict[str, _Charge] = {}
    for part in filter(None, (part.strip() for part in text.split(";"))):
        name, _, order = part.partition("=")
        action, _, count = order.partition(":")
        if name not in FAILPOINTS:
            hint = did_you_mean(name, FAILPOINTS) or f"; known failpoints: {', '.join(FAILPOINTS)}"
            raise ConfigError(f"{ENVIRONMENT}: there is no failpoint {name!r}{hint}")
        if action not in _ACTIONS or not (count or "1").isdecimal() or int(count or 1) < 1:
            known = ", ".join(_ACTIONS)
            raise ConfigError(f"{ENVIRONMENT}: {part!r} is not NAME=ACTION[:COUNT] with an ACTION of {known}")
        charges[name] = _Charge(_ACTIONS[action], int(count or 1))

    def handler(name: str) -> None:
        charge = charges.get(name)
        if charge is not None:
            charge.left -= 1
            if charge.left == 0:  # below 0 it has happened already, and happens once
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
