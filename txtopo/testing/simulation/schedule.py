"""One schedule, of a topology of either kind: a seeded run in which numbered faults strike."""

from __future__ import annotations

import enum
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

Kinds = Sequence[Any]
"""Kinds of fault: members of the enumeration of transactional topologies, or of plain ones."""

Log = Callable[[str], None]
"""Takes what happens, line by line."""

KIND_DRAWN = 0.5
"""How probable it is that a schedule has a kind of fault at all."""

Kind = TypeVar("Kind", bound=enum.Enum)


class Schedule(ABC):
    """A world in which faults strike.

    Everything is drawn from ``seed``. If ``only`` is given, only the faults with these numbers strike. ``log`` receives
    what happens, line by line.
    """

    def __init__(self, seed: int, only: frozenset[int] | None, log: Log | None) -> None:
        self.random = random.Random(seed)  # noqa: S311 - reproducible, not secret
        self.runs_ahead = seed % 2 == 1
        """Whether commit phases run beside the writes of the group before, as in a bucket."""
        self.struck: list[tuple[int, str]] = []
        """The faults that struck, each with its number."""
        self.has_faults = True
        """Whether faults may still strike."""
        self.is_logged = log is not None
        self._log = log
        self._only = only
        self._rates: Mapping[Any, float] = {}
        self._drawn = 0
        """How many faults were drawn, including those that are left out."""

    @abstractmethod
    def run(self) -> None:
        """Run the schedule; raise a Violation if a promise is broken, or the error that no fault explains."""

    @abstractmethod
    def dissolve(self) -> None:
        """Drop all references once the schedule is over: worlds, processes and tables refer to each other."""

    @abstractmethod
    def now(self) -> str:
        """Return the time and who acts, as the log shows them."""

    def draw_rates(self, kinds: Iterable[Kind], middle: Mapping[Kind, float], drawn: float = KIND_DRAWN) -> list[Kind]:
        """Draw which kinds of fault there are (``drawn``: how probably), and a rate for each; return the kinds."""
        self._rates = {
            # 0.18 to 2.8 times the middle, evenly on a scale of powers: some schedules have few faults, others many.
            kind: middle[kind] * 2 ** self.random.uniform(-2.5, 1.5)
            for kind in kinds
            if self.random.random() < drawn
        }
        return list(self._rates)

    def strikes(self, kind: enum.Enum, *where: object) -> bool:
        """Draw whether a fault strikes now, and record it if it does."""
        rate = self._rates.get(kind, 0.0) if self.has_faults else 0.0
        if rate == 0.0 or self.random.random() >= rate:
            return False
        # Faults that are left out count, too: the others keep their numbers while a failure is shrunk.
        self._drawn += 1
        if self._only is not None and self._drawn not in self._only:
            return False
        fault = " ".join(map(str, (kind.value, *where)))
        self.struck.append((self._drawn, fault))
        self.log(f"fault {self._drawn}: {fault}")
        return True

    def log(self, text: str) -> None:
        """Write a line to the log, if there is one."""
        if self._log is not None:
            self._log(f"{self.now()}  {text}")


class Simulated(ABC):
    """A simulated topology of either kind."""

    warnings: Sequence[str] = ()
    """Findings of the schedule without faults that may be intended."""

    @property
    @abstractmethod
    def kinds(self) -> Kinds:
        """All kinds of fault."""

    @abstractmethod
    def world(self, seed: int, kinds: Kinds, only: frozenset[int] | None = None, log: Log | None = None) -> Schedule:
        """Return the schedule of a seed, with faults of some kinds.

        See :class:`Schedule` for ``only`` and ``log``.
        """
