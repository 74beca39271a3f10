"""The ledger: every tuple of a plain topology and whether it is settled; checks the acks and failures of spouts."""

from __future__ import annotations

import reprlib
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NoReturn

import attrs

from txtopo.plain.trees.tuples import SETTLED
from txtopo.testing.checkers import Violation

POLL_SECS_MAX = 1.0
"""How much later than its timeout a root may fail."""
FORGOTTEN = 2
"""References to a tuple that only the ledger holds: its own, and that of ``sys.getrefcount`` while it counts."""


@attrs.define(eq=False)
class Root:
    """A tuple that a spout emitted with a message id, and what is known of its tree.

    ``serial`` is its number in the schedule. All times are seconds of simulated time.
    """

    serial: int
    message_id: Any
    emitted_at: float
    open: set[tuple[int, int]] = attrs.field(factory=set)
    """The tuples of its tree that are neither acked nor failed: the token and the task of each."""
    sent_to: set[int] = attrs.field(factory=set)
    """The generations that tuples of its tree were sent to."""
    told_of: dict[int, set[int]] = attrs.field(factory=dict)
    """By generation, the generations in the messages that it sends to the acker: those that the root was sent to, if
    it has the spout task, and those that tuples anchored to an acked input were sent to."""
    is_failed: bool = False
    """Whether a tuple of its tree failed."""
    is_doubled: bool = False
    """Whether a tuple of its tree came twice. One copy may be acked before the other, so ``open`` proves nothing."""
    renewed_at: float = 0.0
    """When a bolt last reset its timeout."""
    outcome: str | None = None


@attrs.define(eq=False)
class Unacked:
    """A tuple that a task has received and has neither acked nor failed."""

    tuple: Any
    """The tuple itself. The reference keeps Python from giving its ``id()`` to another tuple."""
    token: int
    sent_to: set[int] = attrs.field(factory=set)
    """The generations that tuples anchored to it were sent to."""


@attrs.define(eq=False)
class Account:
    """One generation of a worker, as the ledger sees it."""

    generation: int
    unacked: dict[int, Unacked] = attrs.field(factory=dict)
    """The inputs that its tasks hold, by ``id()``."""
    tasks: dict[int, int] = attrs.field(factory=dict)
    """The task of each input, by the same ``id()``."""
    roots: dict[int, Root] = attrs.field(factory=dict)
    """The roots of its spout tasks that are neither acked nor failed, by serial."""
    acked: Any = None
    """The last tuple that the running bolt has acked in this turn."""
    is_broken: bool = False
    """Whether a schedule raised an exception in a component. A component that catches it may ack an input that it has
    failed, and is not blamed for that."""


@attrs.define(eq=False)
class Ledger:
    """All tuples of a schedule.

    A root of the age ``timeout_secs`` fails (None: none does); ``is_acking``: whether tuple trees are tracked;
    ``components`` has the component of each task; ``say`` gets a line for each root that is emitted or settled.
    """

    clock: Callable[[], float]
    timeout_secs: float | None
    is_acking: bool
    components: Mapping[int, str]
    say: Callable[[str], None] | None = None
    dead: set[int] = attrs.field(factory=set)
    """The dead generations that the driver has announced."""
    emitted: int = 0
    """How many roots were emitted."""
    acked: int = 0
    failed: int = 0
    violation: Violation | None = None
    """The first broken promise found while a component's code runs. It is kept, as the component may catch an
    exception."""
    _tokens: int = 0
    _roots_of: dict[int, tuple[Root, ...]] = attrs.field(factory=dict)
    """By token, the roots whose trees the tuple belongs to."""

    @property
    def tuples(self) -> int:
        """How many tuples spouts and bolts have emitted."""
        return self._tokens

    def token(self) -> int:
        """Return a new token, for a tuple that is about to be emitted."""
        self._tokens += 1
        return self._tokens

    def begin(self, message_id: Any) -> Root:
        """Record a root that a spout is about to emit."""
        self.emitted += 1
        root = Root(self.emitted, message_id, self.clock())
        if self.say is not None:
            self.say(f"{_name(root)} is emitted")
        return root

    def sent_root(
        self, account: Account, root: Root, token: int, tasks: Iterable[int], generations: Collection[int]
    ) -> None:
        """Record the tasks that a root was sent to, and their generations."""
        self._roots_of[token] = (root,)
        root.open.update((token, task) for task in tasks)
        root.sent_to.update(generations)
        root.told_of[account.generation] = set(generations)
        if root.outcome is None:  # without ackers, a root is acked before its emit returns
            account.roots[root.serial] = root

    def sent(
        self,
        account: Account,
        anchors: Iterable[Any],
        token: int,
        tasks: Collection[int],
        generations: Collection[int],
    ) -> None:
        """Record a tuple that a bolt has emitted; it joins the trees of those anchors that the bolt holds."""
        unacked = [account.unacked[id(anchor)] for anchor in anchors if id(anchor) in account.unacked]
        roots: dict[int, Root] = {}
        for each in unacked:
            each.sent_to.update(generations)
            for root in self._roots_of.get(each.token, ()):
                roots[root.serial] = root
        if roots:
            self._roots_of[token] = tuple(roots.values())
        for root in roots.values():
            root.open.update((token, task) for task in tasks)
            root.sent_to.update(generations)

    def received(self, account: Account, tuple: Any, token: int, task: int) -> None:
        """Record an input of a task, if it belongs to a tree."""
        if token in self._roots_of:
            account.unacked[id(tuple)] = Unacked(tuple, token)
            account.tasks[id(tuple)] = task

    def tuple_acked(self, account: Account, tuple: Any) -> None:
        """Record an ack; ignore a tuple that the task does not hold."""
        unacked = account.unacked.pop(id(tuple), None)
        if unacked is None:
            return
        account.acked = tuple
        task = account.tasks.pop(id(tuple))
        for root in self._roots_of[unacked.token]:
            root.open.discard((unacked.token, task))
            root.told_of.setdefault(account.generation, set()).update(unacked.sent_to)

    def tuple_failed(self, account: Account, tuple: Any) -> None:
        """Record a failure; ignore a tuple that the task does not hold."""
        unacked = account.unacked.pop(id(tuple), None)
        if unacked is not None:
            del account.tasks[id(tuple)]
            for root in self._roots_of[unacked.token]:
                root.is_failed = True

    def settled_again(self, account: Account, task: int, tuple: Any, what: str) -> None:
        """Blame a task that acks or fails a tuple a second time."""
        self._judge(
            account,
            lambda: (
                f"{self.name_of(task)} {what} {named(tuple)} again: it had acked or failed it before; settle each "
                "input once"
            ),
        )

    def anchored_late(self, account: Account, task: int, values: Any, anchors: Iterable[Any]) -> None:
        """Blame a task that anchors a tuple to an input that it has settled before."""
        settled = [anchor for anchor in anchors if getattr(anchor, "roots", None) is SETTLED]
        if settled:
            self._judge(
                account,
                lambda: (
                    f"{self.name_of(task)} emitted {shown(values)} anchored to {named(settled[0])}, which it had acked "
                    "or failed before: emit first, then ack"
                ),
            )

    def emitted_after_ack(self, account: Account, task: int, values: Any, anchors: Iterable[Any]) -> None:
        """Blame a task that emits after an ack in the same turn, unless it anchors to an input that it still holds."""
        if not any(id(anchor) in account.unacked for anchor in anchors):
            self._judge(
                account,
                lambda: (
                    f"{self.name_of(task)} emitted {shown(values)} after it had acked {named(account.acked)}, and "
                    "anchored it to no input that it holds: if its worker dies in between, the root is acked and the "
                    "tuple is lost; emit first, anchored to the input, then ack"
                ),
            )

    def name_of(self, task: int) -> str:
        """Return the name of a task in findings."""
        return f"bolt {self.components[task]!r} (task {task})"

    def renewed(self, account: Account, tuple: Any) -> None:
        """Record that a task has reset the timeout of an input's roots."""
        unacked = account.unacked.get(id(tuple))
        for root in self._roots_of[unacked.token] if unacked is not None else ():
            root.renewed_at = self.clock()

    def doubled(self, token: int) -> None:
        """Record that a tuple arrives twice."""
        for root in self._roots_of.get(token, ()):
            root.is_doubled = True

    def root_acked(self, account: Account, root: Root) -> None:
        """Check an ack that a spout is about to receive."""
        self._settle(account, root, "acked")
        self.acked += 1
        if not self.is_acking or root.is_doubled:  # without ackers, an ack says nothing about the tree
            return
        if root.is_failed:
            self._break(f"{_name(root)} was acked though a tuple of its tree had failed (acking)")
        if root.open:
            self._break(f"{_name(root)} was acked with {len(root.open)} tuples of its tree open (acking)")

    def root_failed(self, account: Account, root: Root) -> None:
        """Check a failure that a spout is about to receive: a root fails only for a reason."""
        self._settle(account, root, "failed")
        self.failed += 1
        secs = self.clock() - root.emitted_at
        if not (
            root.is_failed or root.sent_to & self.dead or (self.timeout_secs is not None and secs >= self.timeout_secs)
        ):
            self._break(
                f"{_name(root)} failed after {secs:g} s without a reason: no tuple of it failed, no worker that it "
                "touched died, and its timeout had not passed"
            )

    def check_in_time(self, account: Account) -> None:
        """Check that no root is pending past its timeout on a worker that has just failed its old roots."""
        if self.timeout_secs is None:
            return
        latest = self.clock() - self.timeout_secs - POLL_SECS_MAX
        for root in account.roots.values():
            if max(root.emitted_at, root.renewed_at) < latest:
                raise Violation(f"{_name(root)} is pending {-latest + self.clock():g} s after it was emitted")

    def check_forgotten(self, accounts: Iterable[Account]) -> None:
        """Check that bolts still refer to the inputs that they have neither acked nor failed.

        Joins, windows and sinks may hold inputs for as long as they like. But if only the ledger refers to an input,
        no bolt can ever ack it.
        """
        for account in accounts if self.is_acking else ():
            for key, unacked in () if account.is_broken else account.unacked.items():
                if sys.getrefcount(unacked.tuple) <= FORGOTTEN:
                    raise Violation(
                        f"{self.name_of(account.tasks[key])} has neither acked nor failed {named(unacked.tuple)}, and "
                        "has let go of it, so that its root can only time out; ack or fail each input"
                    )

    def unsettled_by(self, accounts: Iterable[Account]) -> Counter[str]:
        """Return how many inputs each bolt has not settled."""
        return Counter(self.name_of(task) for account in accounts for task in account.tasks.values())

    def check_at_rest(self, accounts: Collection[Account]) -> None:
        """Check, once no worker does anything and no frame was lost, that no root is pending that should be settled.

        A dead worker's messages to the acker may be lost with it. Then the worker that sent it the tuple names it to
        the acker, when it acks its own input.

        Raises:
            Violation: a root is pending though its whole tree was acked, a tuple of it failed, it has touched a dead
                worker, or no task holds a tuple of it any more.
        """
        holding = {
            (unacked.token, account.tasks[key]) for account in accounts for key, unacked in account.unacked.items()
        }
        for account in accounts:
            for root in account.roots.values():
                if not root.open and not root.is_doubled:
                    raise Violation(f"{_name(root)} is pending though its whole tree was acked")
                if root.is_failed:
                    raise Violation(f"{_name(root)} is pending though a tuple of it failed")
                if any(told & self.dead for teller, told in root.told_of.items() if teller not in self.dead):
                    raise Violation(f"{_name(root)} is pending though it has touched a worker that died (promise 18)")
                if not root.open & holding:
                    raise Violation(f"{_name(root)} is pending though no task holds a tuple of it")

    def _judge(self, account: Account, text: Callable[[], str]) -> None:
        """Keep a bolt's mistake as the violation, unless a drawn exception explains it."""
        if self.violation is None and self.is_acking and not account.is_broken:
            self.violation = Violation(text())

    def _break(self, text: str) -> NoReturn:
        """Keep a wrong ack or failure as the violation, and raise before the spout receives it."""
        self.violation = self.violation or Violation(text)
        raise self.violation

    def _settle(self, account: Account, root: Root, outcome: str) -> None:
        if root.outcome is not None:
            self._break(f"{_name(root)} was {outcome} after it was {root.outcome}")
        root.outcome = outcome
        if self.say is not None:
            self.say(f"{_name(root)} is {outcome}")
        # A root that this generation does not have is one of an earlier generation. Or it is acked within its emit,
        # before any tuple of it is open.
        if account.roots.pop(root.serial, None) is None and root.open:
            self._break(f"{_name(root)} was {outcome} in another generation of its spout task")


def named(tuple: Any) -> str:
    """Return the name of a tuple in findings."""
    return f"{shown(tuple.values)} of {tuple.source.component!r}"


def shown(values: Any) -> str:
    """Return values as text, cut if they are long."""
    return reprlib.repr(values)


def _name(root: Root) -> str:
    return f"root {root.serial} (message {root.message_id!r})"
