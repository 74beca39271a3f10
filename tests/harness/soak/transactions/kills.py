"""Kills: who dies where; and the plan that takes every failpoint in turn, with random moments between."""

import enum
import random
from collections.abc import Sequence

import attrs

from txtopo.failpoints import known_failpoints


class Victim(enum.Enum):
    ALL = "all"
    DRIVER = "the driver"
    JVM = "the JVM"
    WORKER = "a Python worker"
    EXECUTOR = "an executor"


@attrs.frozen
class Kill:
    """One kill.

    Args:
        victim: what dies.
        failpoint: the driver dies when it reaches this for the ``count``-th time, alone or with everything; or each
            Python worker does. Empty: the victim dies when ``count`` further transactions are committed.
        count: of reaches or transactions.
        stopped_secs: how long the victim is stopped, and then goes on, if it is not killed.
    """

    victim: Victim
    failpoint: str = ""
    count: int = 1
    stopped_secs: float = 0.0

    @property
    def is_survived(self) -> bool:
        """Whether the run must go on."""
        return self.victim in {Victim.WORKER, Victim.EXECUTOR} or self.stopped_secs > 0

    @property
    def armed(self) -> str:
        """The value that arms the failpoint in the environment."""
        return f"{self.failpoint}=kill:{self.count}" if self.failpoint else ""

    @property
    def name(self) -> str:
        """The name that it is counted under."""
        where = self.failpoint or "a random moment"
        who = self.victim.value + (" stopped" if self.stopped_secs else "")
        return where if self.victim is Victim.ALL else f"{where}, {who}"

    def __str__(self) -> str:
        return f"{self.name} ({self.count if self.failpoint else f'+{self.count}'})"


def step_of(failpoint: str) -> str:
    """Return the step that a failpoint stands before or after."""
    return failpoint.removesuffix(".before").removesuffix(".after")


ELSEWHERE = (
    "repair.",
    "rename.",
    "spout.keep.",
    "nimbus.",
    "supervisor.",
    "recovery.begin.",
    "recovery.aside.",
    "recovery.begun.",
    "table.grow.",
    "journal.cut.",
    "fork.",
    "backfill.",
    "pool.",
    "references.",
)
"""The beginnings of failpoints that have tests of their own: of repairs and renames, of a spout that keeps something, of
a cluster's daemons, of states that are begun empty, of tables that get new columns, of a journal that is cut, of forks
and backfills, of the workers of real-time mode, and of reference tables that a topology gets later.
"""

WORKER_FAILPOINTS = ("pool.answer", "pool.answered")
"""The failpoints of the workers of real-time mode."""

RUN_FAILPOINTS = tuple(name for name in known_failpoints() if not name.startswith(ELSEWHERE))
"""The failpoints that a run can reach."""

_EMIT = "spout.emit"
_OF_FILE = "folder.named"
"""What executors reach that fold rows into a table, too."""
_USER_CODE = frozenset({_EMIT, "bolt.execute", "bolt.finish"})
_AT_START = {"lead.take": 1, "table.open": 3, "recovery.write": 2, "recovery.commit": 1, "recovery.confirm": 1}
"""The most times that some steps are reached in a run, all of them at its start."""

_SETTLING = ("recovery.write.", "recovery.commit.")
"""The beginnings of failpoints that recovery reaches only after a kill at one of :data:`DECIDED`."""

DECIDED = (
    "group.decide.after",
    "table.write.before",
    "delta.write.checked",
    "delta.write.landed",
    "table.write.after",
    "group.commit.before",
    "recovery.write.before",
    "recovery.write.after",
    "recovery.commit.before",
)
"""A kill at one of these leaves a group that is decided, and not committed."""

UNSETTLED = frozenset({"lead.take.before", "lead.take.after", "table.open.before", "table.open.after"})
"""A kill at one of these leaves whatever the kill before has left: recovery has not begun."""

_STEPS_MAX = 20
_USER_CODE_MAX = 80
_TRANSACTIONS_MAX = 60
_MOMENTS = (Victim.ALL, Victim.ALL, Victim.DRIVER, Victim.JVM, Victim.WORKER)
_REAL_TIME_MOMENTS = (Victim.ALL, Victim.DRIVER, Victim.JVM, *6 * (Victim.WORKER, Victim.EXECUTOR))
_STOPPED = (Victim.DRIVER, Victim.WORKER, Victim.EXECUTOR)
_STOPS = 0.4
"""The probability that a random moment of real-time mode stops its victim."""
_STOPPED_SECS = (0.5, 3.0, 8.0, 20.0)
"""A worker counts as dead after five seconds."""


@attrs.define(eq=False)
class Plan:
    """Decides on kills; ``moments`` is the probability of a random moment. ``inline``: one process is all to kill.

    In real-time mode victims are also stopped, and workers die round their answers. ``folds``: executors fold rows.
    """

    rng: random.Random
    inline: bool
    real_time: bool = False
    moments: float = 0.3
    folds: bool = False
    _turn: list[str] = attrs.field(factory=list)

    def next(self, *, is_group_decided: bool) -> Kill:
        """Return the next kill, of a run that begins with a decided group, or without one."""
        if not self._turn:
            names = RUN_FAILPOINTS + (WORKER_FAILPOINTS if self.real_time else ())
            self._turn = self.rng.sample(names, len(names))
        waiting = [name for name in self._turn if name.startswith(_SETTLING)]
        if waiting and is_group_decided:
            return self._take(waiting)
        if self.rng.random() < self.moments:
            return self.moment()
        if len(waiting) < len(self._turn):
            return self._take([name for name in self._turn if name not in waiting])
        return self._at(self.rng.choice([name for name in DECIDED if not name.startswith(_SETTLING)]))

    def moment(self) -> Kill:
        """Return a kill or a stop at a random moment."""
        return self._moment(_REAL_TIME_MOMENTS if self.real_time else _MOMENTS)

    def after(self, kill: Kill) -> Kill | None:
        """Return what follows in the same run, which would otherwise finish its input; None after its end."""
        if not kill.is_survived:
            return None
        return self.moment() if self.real_time else self._moment((Victim.ALL, Victim.DRIVER))

    def _moment(self, victims: Sequence[Victim]) -> Kill:
        victim = Victim.ALL if self.inline else self.rng.choice(victims)
        is_stopped = self.real_time and victim in _STOPPED and self.rng.random() < _STOPS
        stopped_secs = self.rng.choice(_STOPPED_SECS) if is_stopped else 0.0
        return Kill(victim, count=self.rng.randint(1, _TRANSACTIONS_MAX), stopped_secs=stopped_secs)

    def put_back(self, kill: Kill) -> None:
        """Give a failpoint that a run has not come to another turn."""
        if kill.failpoint and kill.failpoint not in self._turn:
            self._turn.append(kill.failpoint)

    def _take(self, names: list[str]) -> Kill:
        """Return a kill at the first of ``names``, whose turn it was then."""
        self._turn.remove(names[0])
        return self._at(names[0])

    def _at(self, failpoint: str) -> Kill:
        if failpoint in WORKER_FAILPOINTS:
            return Kill(Victim.WORKER, failpoint, self.rng.randint(_STEPS_MAX, _USER_CODE_MAX))
        if failpoint in _USER_CODE and not self.inline and (failpoint == _EMIT or self.rng.random() < 1 / 2):
            # Each worker counts for itself, so each job must come through with far fewer.
            return Kill(Victim.WORKER, failpoint, self.rng.randint(_USER_CODE_MAX, 2 * _USER_CODE_MAX))
        if self.folds and failpoint == _OF_FILE and not self.inline:
            return Kill(Victim.WORKER, failpoint, self.rng.randint(_STEPS_MAX // 2, _STEPS_MAX))
        most = _USER_CODE_MAX if failpoint in _USER_CODE else _AT_START.get(step_of(failpoint), _STEPS_MAX)
        if self.folds and step_of(failpoint) in _AT_START:  # into one table
            most = 1
        victim = Victim.ALL if self.inline else self.rng.choice([Victim.ALL, Victim.ALL, Victim.DRIVER])
        return Kill(victim, failpoint, self.rng.randint(1, most))
