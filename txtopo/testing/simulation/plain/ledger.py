"""The ledger: what was emitted in a plain topology and what is open of it; checks what spouts are told of it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

import attrs

from txtopo.testing.checkers import Violation

LOOK_SECS_MAX = 1.0
"""How much later than its timeout a root may fail."""


@attrs.define(eq=False)
class Root:
    """A tuple that a spout has emitted with a message id, and what is known of its tree.

    Args:
        serial: its number in the schedule.
        message_id: what the spout calls it.
        emitted_at: when.
    """

    serial: int
    message_id: Any
    emitted_at: float
    open: set[tuple[int, int]] = attrs.field(factory=set)
    """The tuples of its tree that are neither acked nor failed: the token and the task of each."""
    sent_to: set[int] = attrs.field(factory=set)
    """The epochs that tuples of its tree were sent to."""
    told_of: dict[int, set[int]] = attrs.field(factory=dict)
    """By the epoch that tells its acker, those of them: of the root's own tuples, and of those that were acked."""
    is_failed: bool = False
    """Whether a tuple of its tree failed."""
    is_doubled: bool = False
    """Whether a tuple of its tree came twice: one copy may be done before the other, so what is open says nothing."""
    renewed_at: float = 0.0
    """When its timeout was last asked to begin anew."""
    outcome: str | None = None


@attrs.define(eq=False)
class Held:
    """A tuple that a task has received and has neither acked nor failed."""

    tuple: Any
    """The tuple itself: while it is here, no other one has its identity."""
    token: int
    sent_to: set[int] = attrs.field(factory=set)
    """The epochs that tuples anchored to it were sent to."""


@attrs.define(eq=False)
class Life:
    """One life of a worker, as the ledger sees it.

    Args:
        epoch: its epoch.
    """

    epoch: int
    held: dict[int, Held] = attrs.field(factory=dict)
    """What its tasks hold, by the tuple's identity."""
    tasks: dict[int, int] = attrs.field(factory=dict)
    """The task of each of these."""
    roots: dict[int, Root] = attrs.field(factory=dict)
    """The roots of its spout tasks that are neither acked nor failed, by serial."""


@attrs.define(eq=False)
class Ledger:
    """All the tuples of a schedule.

    Args:
        clock: tells the time, in seconds.
        timeout_secs: when a root fails; None: never.
        is_acking: whether tuple trees are tracked.
        say: is told what happens, line by line; None: nobody is.
    """

    clock: Callable[[], float]
    timeout_secs: float | None
    is_acking: bool
    say: Callable[[str], None] | None = None
    dead: set[int] = attrs.field(factory=set)
    """The epochs that have died."""
    emitted: int = 0
    """How many roots were emitted."""
    acked: int = 0
    failed: int = 0
    _tokens: int = 0
    _roots_of: dict[int, tuple[Root, ...]] = attrs.field(factory=dict)
    """By token, the roots whose trees the tuple belongs to."""

    @property
    def tuples(self) -> int:
        """How many tuples were emitted, by spouts and bolts."""
        return self._tokens

    def token(self) -> int:
        """Return a number for a tuple that is about to be emitted."""
        self._tokens += 1
        return self._tokens

    def begin(self, message_id: Any) -> Root:
        """Take note that a spout is about to emit a root."""
        self.emitted += 1
        root = Root(self.emitted, message_id, self.clock())
        if self.say is not None:
            self.say(f"{_name(root)} is emitted")
        return root

    def sent_root(self, life: Life, root: Root, token: int, tasks: Iterable[int], epochs: Collection[int]) -> None:
        """Take note of the tasks that a root went to, and of the epochs that these tasks are in."""
        self._roots_of[token] = (root,)
        root.open.update((token, task) for task in tasks)
        root.sent_to.update(epochs)
        root.told_of[life.epoch] = set(epochs)
        if root.outcome is None:
            life.roots[root.serial] = root

    def sent(
        self, life: Life, anchors: Iterable[Any], token: int, tasks: Collection[int], epochs: Collection[int]
    ) -> None:
        """Take note of a tuple that a bolt has emitted."""
        held = [life.held[id(each)] for each in anchors if id(each) in life.held]
        roots: dict[int, Root] = {}
        for each in held:
            each.sent_to.update(epochs)
            for root in self._roots_of.get(each.token, ()):
                roots[root.serial] = root
        if roots:
            self._roots_of[token] = tuple(roots.values())
        for root in roots.values():
            root.open.update((token, task) for task in tasks)
            root.sent_to.update(epochs)

    def received(self, life: Life, tuple: Any, token: int, task: int) -> None:
        """Take note that a task has received a tuple."""
        if token in self._roots_of:
            life.held[id(tuple)] = Held(tuple, token)
            life.tasks[id(tuple)] = task

    def tuple_acked(self, life: Life, tuple: Any) -> None:
        """Take note that a task has acked a tuple; one that it does not hold any more is ignored."""
        held = life.held.pop(id(tuple), None)
        if held is None:
            return
        task = life.tasks.pop(id(tuple))
        for root in self._roots_of[held.token]:
            root.open.discard((held.token, task))
            root.told_of.setdefault(life.epoch, set()).update(held.sent_to)

    def tuple_failed(self, life: Life, tuple: Any) -> None:
        """Take note that a task has failed a tuple."""
        held = life.held.pop(id(tuple), None)
        if held is not None:
            del life.tasks[id(tuple)]
            for root in self._roots_of[held.token]:
                root.is_failed = True

    def renewed(self, life: Life, tuple: Any) -> None:
        """Take note that a task has asked for more time."""
        held = life.held.get(id(tuple))
        for root in self._roots_of[held.token] if held is not None else ():
            root.renewed_at = self.clock()

    def doubled(self, token: int) -> None:
        """Take note that a tuple comes twice."""
        for root in self._roots_of.get(token, ()):
            root.is_doubled = True

    def root_acked(self, life: Life, root: Root) -> None:
        """Check that a spout may be told of an ack."""
        self._settle(life, root, "acked")
        self.acked += 1
        if not self.is_acking or root.is_doubled:
            return
        if root.is_failed:
            raise Violation(f"{_name(root)} was acked though a tuple of its tree had failed (acking)")
        if root.open:
            raise Violation(f"{_name(root)} was acked with {len(root.open)} tuples of its tree open (acking)")

    def root_failed(self, life: Life, root: Root) -> None:
        """Check that a spout may be told of a failure: a root fails for a reason."""
        self._settle(life, root, "failed")
        self.failed += 1
        secs = self.clock() - root.emitted_at
        if not (
            root.is_failed or root.sent_to & self.dead or (self.timeout_secs is not None and secs >= self.timeout_secs)
        ):
            raise Violation(
                f"{_name(root)} failed after {secs:g} s without a reason: no tuple of it failed, no worker that it "
                "touched died, and its timeout had not passed"
            )

    def check_in_time(self, life: Life) -> None:
        """Check that no root of a worker that has just looked is older than its timeout allows."""
        if self.timeout_secs is None:
            return
        latest = self.clock() - self.timeout_secs - LOOK_SECS_MAX
        for root in life.roots.values():
            if max(root.emitted_at, root.renewed_at) < latest:
                raise Violation(f"{_name(root)} is pending {-latest + self.clock():g} s after it was emitted")

    def check_at_rest(self, lives: Collection[Life]) -> None:
        """Check that nothing is pending that had to be settled at once, now that all is quiet and nothing was lost.

        What a worker that has died had to tell may be lost with it. Then the one that had sent it the tuple tells of
        it, as soon as that one acks its own.

        Raises:
            Violation: a root is pending all of whose tuples were acked, one of whose tuples failed, or that has
                touched a worker that died; or nobody holds anything of it any more.
        """
        holding = {(held.token, life.tasks[key]) for life in lives for key, held in life.held.items()}
        for life in lives:
            for root in life.roots.values():
                if not root.open and not root.is_doubled:
                    raise Violation(f"{_name(root)} is pending though its whole tree was acked")
                if root.is_failed:
                    raise Violation(f"{_name(root)} is pending though a tuple of it failed")
                if any(told & self.dead for teller, told in root.told_of.items() if teller not in self.dead):
                    raise Violation(f"{_name(root)} is pending though it has touched a worker that died (promise 18)")
                if not root.open & holding:
                    raise Violation(f"{_name(root)} is pending though no task holds a tuple of it")

    def _settle(self, life: Life, root: Root, outcome: str) -> None:
        if root.outcome is not None:
            raise Violation(f"{_name(root)} was {outcome} after it was {root.outcome}")
        root.outcome = outcome
        if self.say is not None:
            self.say(f"{_name(root)} is {outcome}")
        if life.roots.pop(root.serial, None) is None and root.open:
            raise Violation(f"{_name(root)} was {outcome} in another life of its spout task")


def _name(root: Root) -> str:
    return f"root {root.serial} (message {root.message_id!r})"
