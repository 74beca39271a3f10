"""The ledger: what was emitted in a plain topology and what is open of it; checks what spouts are told of it."""

from __future__ import annotations

import reprlib
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NoReturn

import attrs

from txtopo.plain.trees.tuples import SETTLED
from txtopo.testing.checkers import Violation

LOOK_SECS_MAX = 1.0
"""How much later than its timeout a root may fail."""
FORGOTTEN = 2
"""References to a tuple that only the ledger has: its own, and that of the function that counts them."""


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
    """The incarnations that tuples of its tree were sent to."""
    told_of: dict[int, set[int]] = attrs.field(factory=dict)
    """By the incarnation that tells the acker, those of them: of the root's tuples, and of those that were acked."""
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
    """The incarnations that tuples anchored to it were sent to."""


@attrs.define(eq=False)
class Life:
    """One life of a worker, as the ledger sees it.

    Args:
        incarnation: its incarnation.
    """

    incarnation: int
    held: dict[int, Held] = attrs.field(factory=dict)
    """What its tasks hold, by the tuple's identity."""
    tasks: dict[int, int] = attrs.field(factory=dict)
    """The task of each of these."""
    roots: dict[int, Root] = attrs.field(factory=dict)
    """The roots of its spout tasks that are neither acked nor failed, by serial."""
    acked: Any = None
    """The tuple that the bolt whose turn it is has acked in this turn; the last one of several."""
    is_broken: bool = False
    """Whether an exception was drawn in a component: one that caught it may ack what it has failed, or the reverse."""


@attrs.define(eq=False)
class Ledger:
    """All the tuples of a schedule.

    Args:
        clock: tells the time, in seconds.
        timeout_secs: when a root fails; None: never.
        is_acking: whether tuple trees are tracked.
        components: the component of each task.
        say: is told what happens, line by line; None: nobody is.
    """

    clock: Callable[[], float]
    timeout_secs: float | None
    is_acking: bool
    components: Mapping[int, str]
    say: Callable[[str], None] | None = None
    dead: set[int] = attrs.field(factory=set)
    """The incarnations that have died."""
    emitted: int = 0
    """How many roots were emitted."""
    acked: int = 0
    failed: int = 0
    recorded: list[tuple[int, Any, Any]] | None = None
    """The task, the values and the source of each tracked tuple that bolts have received, if they are recorded."""
    violation: Violation | None = None
    """The first promise that was broken in the components' code, where they might catch an exception."""
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

    def sent_root(
        self, life: Life, root: Root, token: int, tasks: Iterable[int], incarnations: Collection[int]
    ) -> None:
        """Take note of the tasks that a root went to, and of the incarnations that these tasks are in."""
        self._roots_of[token] = (root,)
        root.open.update((token, task) for task in tasks)
        root.sent_to.update(incarnations)
        root.told_of[life.incarnation] = set(incarnations)
        if root.outcome is None:
            life.roots[root.serial] = root

    def sent(
        self, life: Life, anchors: Iterable[Any], token: int, tasks: Collection[int], incarnations: Collection[int]
    ) -> None:
        """Take note of a tuple that a bolt has emitted."""
        held = [life.held[id(each)] for each in anchors if id(each) in life.held]
        roots: dict[int, Root] = {}
        for each in held:
            each.sent_to.update(incarnations)
            for root in self._roots_of.get(each.token, ()):
                roots[root.serial] = root
        if roots:
            self._roots_of[token] = tuple(roots.values())
        for root in roots.values():
            root.open.update((token, task) for task in tasks)
            root.sent_to.update(incarnations)

    def received(self, life: Life, tuple: Any, token: int, task: int) -> None:
        """Take note that a task has received a tuple."""
        if token in self._roots_of:
            life.held[id(tuple)] = Held(tuple, token)
            life.tasks[id(tuple)] = task
            if self.recorded is not None:
                self.recorded.append((task, tuple.values, tuple.source))

    def tuple_acked(self, life: Life, tuple: Any) -> None:
        """Take note that a task has acked a tuple; one that it does not hold any more is ignored."""
        held = life.held.pop(id(tuple), None)
        if held is None:
            return
        life.acked = tuple
        task = life.tasks.pop(id(tuple))
        for root in self._roots_of[held.token]:
            root.open.discard((held.token, task))
            root.told_of.setdefault(life.incarnation, set()).update(held.sent_to)

    def tuple_failed(self, life: Life, tuple: Any) -> None:
        """Take note that a task has failed a tuple."""
        held = life.held.pop(id(tuple), None)
        if held is not None:
            del life.tasks[id(tuple)]
            for root in self._roots_of[held.token]:
                root.is_failed = True

    def settled_again(self, life: Life, task: int, tuple: Any, what: str) -> None:
        """Take note that a task acks or fails a tuple that it has acked or failed before."""
        self._judge(
            life,
            lambda: (
                f"{self.name_of(task)} {what} {named(tuple)} again: it had acked or failed it before; settle each "
                "input once"
            ),
        )

    def anchored_late(self, life: Life, task: int, values: Any, anchors: Iterable[Any]) -> None:
        """Take note that a task may not anchor a tuple as it wants to."""
        settled = [each for each in anchors if getattr(each, "roots", None) is SETTLED]
        if settled:
            self._judge(
                life,
                lambda: (
                    f"{self.name_of(task)} emitted {shown(values)} anchored to {named(settled[0])}, which it had acked "
                    "or failed before: emit first, then ack"
                ),
            )

    def emitted_after_ack(self, life: Life, task: int, values: Any, anchors: Iterable[Any]) -> None:
        """Take note that a task has emitted a tuple after it has acked an input in the same turn.

        That is wrong unless the tuple is anchored to something that the task still holds.
        """
        if not any(id(each) in life.held for each in anchors):
            self._judge(
                life,
                lambda: (
                    f"{self.name_of(task)} emitted {shown(values)} after it had acked {named(life.acked)}, and "
                    "anchored it to no input that it holds: if its worker dies in between, the root is acked and the "
                    "tuple is lost; emit first, anchored to the input, then ack"
                ),
            )

    def name_of(self, task: int) -> str:
        """Return what findings call a task."""
        return f"bolt {self.components[task]!r} (task {task})"

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
            self._break(f"{_name(root)} was acked though a tuple of its tree had failed (acking)")
        if root.open:
            self._break(f"{_name(root)} was acked with {len(root.open)} tuples of its tree open (acking)")

    def root_failed(self, life: Life, root: Root) -> None:
        """Check that a spout may be told of a failure: a root fails for a reason."""
        self._settle(life, root, "failed")
        self.failed += 1
        secs = self.clock() - root.emitted_at
        if not (
            root.is_failed or root.sent_to & self.dead or (self.timeout_secs is not None and secs >= self.timeout_secs)
        ):
            self._break(
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

    def check_forgotten(self, lives: Iterable[Life]) -> None:
        """Check that bolts still have the inputs that they have neither acked nor failed.

        Joins, windows and sinks hold inputs for as long as they like. Nobody can ack a tuple that only the ledger has.

        Raises:
            Violation: a bolt has let go of an input.
        """
        for life in lives if self.is_acking else ():
            for key, held in () if life.is_broken else life.held.items():
                if sys.getrefcount(held.tuple) <= FORGOTTEN:
                    raise Violation(
                        f"{self.name_of(life.tasks[key])} has neither acked nor failed {named(held.tuple)}, and has "
                        "let go of it, so that its root can only time out; ack or fail each input"
                    )

    def held_by(self, lives: Iterable[Life]) -> Counter[str]:
        """Return how many inputs each bolt holds."""
        return Counter(self.name_of(task) for life in lives for task in life.tasks.values())

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

    def _judge(self, life: Life, text: Callable[[], str]) -> None:
        """Take note of what a bolt does wrong, unless something was drawn that explains it."""
        if self.violation is None and self.is_acking and not life.is_broken:
            self.violation = Violation(text())

    def _break(self, text: str) -> NoReturn:
        """Take note of what a spout must not be told, and tell it nothing."""
        self.violation = self.violation or Violation(text)
        raise self.violation

    def _settle(self, life: Life, root: Root, outcome: str) -> None:
        if root.outcome is not None:
            self._break(f"{_name(root)} was {outcome} after it was {root.outcome}")
        root.outcome = outcome
        if self.say is not None:
            self.say(f"{_name(root)} is {outcome}")
        if life.roots.pop(root.serial, None) is None and root.open:
            self._break(f"{_name(root)} was {outcome} in another life of its spout task")


def named(tuple: Any) -> str:
    """Return what findings call a tuple."""
    return f"{shown(tuple.values)} of {tuple.source.component!r}"


def shown(values: Any) -> str:
    """Return values as findings show them: cut, if they are long."""
    return reprlib.repr(values)


def _name(root: Root) -> str:
    return f"root {root.serial} (message {root.message_id!r})"
