"""One schedule, of a topology of either kind: a seeded run in which numbered faults strike."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

Kinds = Sequence[Any]
"""Kinds of fault: classes of workloads for transactional topologies, members of an enumeration for plain ones."""

KIND_DRAWN = 0.5
"""How probable it is that a schedule has a kind of fault at all."""

Kind = TypeVar("Kind")


class Schedule(ABC):
    """A world in which faults strike.

    Args:
        seed: what everything is drawn from.
        only: the faults that strike, by their number; None for all of them.
        log: is told what happens, line by line.
    """

    def __init__(self, seed: int, only: frozenset[int] | None, log: Callable[[str], None] | None) -> None:
        self.random = random.Random(seed)  # noqa: S311 - reproducible, not secret
        self.struck: list[tuple[int, str]] = []
        """The faults that struck, each with its number."""
        self.has_faults = True
        """Whether faults may still strike."""
        self.is_logged = log is not None
        self._log = log
        self._only = only
        self._drawn = 0
        """How many faults were drawn, those among them that are left out."""

    @abstractmethod
    def run(self) -> None:
        """Run the schedule.

        Raises:
            Violation: a promise is broken.
            Exception: something that no fault explains.
        """

    @abstractmethod
    def dissolve(self) -> None:
        """Let go of everything, for the schedule is over and told of: little is left to look for as garbage then."""

    @abstractmethod
    def now(self) -> str:
        """Return the time, and who acts, as the log shows them."""

    def draw_rates(self, kinds: Iterable[Kind], middle: Mapping[Kind, float]) -> dict[Kind, float]:
        """Draw which kinds of fault there are, and the rate of each round its middle."""
        return {
            kind: middle[kind] * 2 ** self.random.uniform(-2.5, 1.5)
            for kind in kinds
            if self.random.random() < KIND_DRAWN
        }

    def strike(self, *what: object) -> bool:
        """Let a fault strike that was drawn, unless it is left out; return whether it does."""
        number = self.next_fault()
        if number is None:
            return False
        self.note_fault(number, " ".join(map(str, what)))
        return True

    def next_fault(self) -> int | None:
        """Return the number of the next fault; None if it is left out."""
        self._drawn += 1
        return self._drawn if self._only is None or self._drawn in self._only else None

    def note_fault(self, number: int, what: str) -> None:
        """Take note of a fault that strikes."""
        self.struck.append((number, what))
        self.log(f"fault {number}: {what}")

    def log(self, text: str) -> None:
        """Tell what happens."""
        if self._log is not None:
            self._log(f"{self.now()}  {text}")


class Simulated(ABC):
    """What is simulated: a topology of either kind."""

    kinds: ClassVar[Kinds]
    """All the kinds of fault that there are."""
    warnings: Sequence[str] = ()
    """What the schedule without faults has shown that need not be wrong."""

    @abstractmethod
    def world(
        self,
        seed: int,
        kinds: Kinds,
        only: frozenset[int] | None = None,
        log: Callable[[str], None] | None = None,
    ) -> Schedule:
        """Return the schedule of a seed.

        Args:
            seed: the seed.
            kinds: the kinds of fault that may be drawn; empty for none.
            only: the numbers of the faults to inject; None for all.
            log: called with each step of the schedule as a line.
        """

    def take_learned(self) -> Any:
        """Return what was learned since the last call, of use to later schedules in any process; None for nothing."""

    def learn(self, learned: Any) -> None:
        """Take what another process has learned."""
