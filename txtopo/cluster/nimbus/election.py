"""Who leads: the contract of a leader elector, and the one on ZooKeeper.

Nimbuses queue for the lead. The first in the queue must hold all code; if it does not, it leaves the queue, and queues
again when it does. One transaction then makes it the leader and raises the epoch:

1. A is first, and reads version 4 of the epoch node.
2. A holds the code of all topologies that ``/storms`` lists.
3. The transaction of A sets the epoch node if its version is still 4, checks that A's place in the queue exists, and
   creates ``/leader``. Only a leader writes ``/storms``, so at this moment A still holds all code.

kazoo's recipes Election and Lock block their caller, know no epoch, and report a lost connection too late. So this
queue is txtopo's own.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable

from txtopo.cluster.state import ClusterState, Term
from txtopo.errors import StopError, Unreachable

_LOG = logging.getLogger(__name__)
_POLL_SECS = 1.0
"""How often to look without a change reported by a watch."""
_AWAY_SECS = 0.2
"""How soon to try again while ZooKeeper does not answer, or after a term could not begin."""


class LeaderElector(ABC):
    """Decides which nimbus leads. Subclass it to elect leaders by other means than ZooKeeper's queue.

    *You* must take a term only by :meth:`ClusterState.begin_term`, with the epoch's version read before ``may_lead``
    was asked: that is what fences. *txtopo* calls :meth:`prepare` once and first, then the others from any thread.
    """

    @abstractmethod
    def prepare(self, state: ClusterState, address: str, may_lead: Callable[[], bool]) -> None:
        """Get ready; do not queue yet.

        Args:
            state: the state of the cluster.
            address: this nimbus' ``host:port``.
            may_lead: says whether this nimbus holds all code. Ask it when this nimbus would be the leader, after the
                epoch's version was read; if it says no, leave the queue until the next ``add_to_leader_lock_queue``.
        """

    @abstractmethod
    def add_to_leader_lock_queue(self) -> None:
        """Queue for the lead; return at once. If this nimbus is queued or leads, nothing changes."""

    @abstractmethod
    def is_queued(self) -> bool:
        """Whether this nimbus wants to lead, or leads."""

    @abstractmethod
    def term(self) -> Term | None:
        """Return the term of this nimbus; None if it does not lead.

        None at once when the connection that the lead depends on breaks, and before another nimbus can lead.
        """

    def is_leader(self) -> bool:
        """Whether this nimbus leads, as far as it knows. A write must prove it; see ``LeaderWrites``."""
        return self.term() is not None

    @abstractmethod
    def get_leader_address(self) -> str:
        """Return the ``host:port`` of the nimbus that leads; raise NoLeader if none does at the moment."""

    @abstractmethod
    def close(self) -> None:
        """Leave the queue, give up the lead, and end what runs in the background; a second call does nothing.

        When it returns, :meth:`is_leader` is False.
        """


class ZooKeeperLeaderElector(LeaderElector):
    """Elects the leader by a queue of ephemeral nodes in ZooKeeper.

    A thread of its own waits for the nimbus' turn, and calls ``on_change``, which must not wait, when it has won or
    lost the lead. Any error but Unreachable ends the thread, which then calls ``on_failure`` with it.
    """

    def __init__(
        self, on_failure: Callable[[BaseException], None] = lambda _: None, on_change: Callable[[], None] = lambda: None
    ) -> None:
        self._on_failure = on_failure
        self._on_change = on_change
        self._wake = threading.Event()
        self._lock = threading.Lock()
        self._is_wanted = False
        self._is_closed = False
        self._term: Term | None = None
        self._ended: Term | None = None
        """A term that this nimbus has given up, and has still to remove from ZooKeeper."""
        self._place: str | None = None
        """The name of this nimbus' node in the queue, which begins with a token of its session."""
        self._thread: threading.Thread | None = None

    def prepare(self, state: ClusterState, address: str, may_lead: Callable[[], bool]) -> None:
        """Start the thread that waits for this nimbus' turn; see :meth:`LeaderElector.prepare`."""
        self._state = state
        self._address = address
        self._may_lead = may_lead
        self._token = secrets.token_hex(8)
        state.session.listen(self._wake.set)
        self._thread = threading.Thread(target=self._run, name="election", daemon=True)
        self._thread.start()

    def add_to_leader_lock_queue(self) -> None:
        """Queue for the lead."""
        with self._lock:
            self._is_wanted = not self._is_closed
        self._wake.set()

    def is_queued(self) -> bool:
        """Whether this nimbus wants to lead, or leads."""
        return self._is_wanted

    def term(self) -> Term | None:
        """Return the term; None while the connection is broken."""
        # ZooKeeper removes ``/leader`` only when the session times out, and kazoo notices a broken connection earlier:
        # no other nimbus leads while this one believes that it does.
        term, session = self._term, self._state.session
        return term if term and session.is_connected and session.sessions_lost == term.sessions_lost else None

    def get_leader_address(self) -> str:
        """Return the leader's address."""
        return self._state.leader()

    def close(self) -> None:
        """Leave the queue, give up the lead, and end the thread, which removes the nodes in ``_clean_up``."""
        with self._lock:
            self._is_closed = True
            self._is_wanted = False
            self._give_up()
        self._wake.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(self._state.session.patience_secs)

    def _give_up(self) -> None:
        if self._term is not None:
            self._ended, self._term = self._term, None

    def _run(self) -> None:
        try:
            while True:
                self._wake.clear()
                try:
                    wait_secs = self._step()
                except Unreachable:
                    if self._is_closed:
                        return
                    wait_secs = _AWAY_SECS
                if self._is_closed and self._place is None and self._ended is None:
                    return
                if wait_secs > 0:
                    self._wake.wait(wait_secs)
        except BaseException as error:  # noqa: BLE001 - a nimbus ends on whatever it did not expect
            if not (self._is_closed and isinstance(error, StopError)):
                self._on_failure(error)

    def _step(self) -> float:
        """Go one step on: clean up, queue, stand for election; return how long to wait for news, in seconds."""
        session = self._state.session
        self._clean_up()
        term = self._term
        if term is not None and not self._is_in_force(term):
            _LOG.warning("the lead of term %d is lost", term.epoch)
            with self._lock:
                self._term = None if self._term is term else self._term  # close() may have given it up
            self._on_change()
        if self._term is not None or not self._is_wanted:
            return _POLL_SECS
        place = self._queue()
        names = sorted(session.children(self._state.node("leader-queue")), key=_sequence)
        if place not in names:
            # ZooKeeper has removed it with its session, which may have ended since _queue(), or a person has. Queue
            # again, at the end: whoever stood behind it may already be on its way to lead.
            self._place = None
            return 0.0
        position = names.index(place)
        ahead = self._state.node("leader-queue", names[position - 1]) if position else self._state.node("leader")
        # Watch only the one ahead, not the whole queue: its end wakes one nimbus instead of all.
        predecessor = session.watched_data(ahead, self._wake.set)
        if predecessor is not None and (position or predecessor[1].ephemeralOwner != session.session_id):
            return _POLL_SECS
        if predecessor is not None:
            # 1. This session began a term. 2. The connection broke before the answer. 3. begin_term() could not find
            # out. Nobody works in that term, so remove its node and stand again.
            self._state.remove_nodes(ahead)
            return 0.0
        # Whoever stood ahead in the queue has left between the two reads: look at once who is ahead now.
        return 0.0 if position else self._stand_for_election(place)

    def _is_in_force(self, term: Term) -> bool:
        """Whether ZooKeeper still has the term: its session lives, and nobody has removed its node."""
        session = self._state.session
        leader_node = session.watched_data(self._state.node("leader"), self._wake.set)
        return (
            leader_node is not None
            and leader_node[1].ephemeralOwner == session.session_id
            and session.sessions_lost == term.sessions_lost
        )

    def _stand_for_election(self, place: str) -> float:
        version = self._state.epoch_version()  # before may_lead(): see ``begin_term``
        if not self._may_lead():
            with self._lock:
                self._is_wanted = False
            _LOG.info("this nimbus lacks code of active topologies: it leaves the queue until it has all")
            return 0.0
        term = self._state.begin_term(self._address, version, self._state.node("leader-queue", place))
        if term is None:
            return _AWAY_SECS
        with self._lock:
            self._term = term
            # This nimbus may have been closed while the transaction was under way.
            if not self._is_wanted:
                self._give_up()
                return 0.0
        _LOG.info("this nimbus leads, in term %d", term.epoch)
        self._on_change()
        return _POLL_SECS

    def _queue(self) -> str:
        """Return this nimbus' place in the queue; make one if it has none in this session."""
        session = self._state.session
        folder = self._state.node("leader-queue")
        prefix = f"{self._token}-{session.sessions_lost}-n-"
        while self._place is None or not self._place.startswith(prefix):
            # A create whose answer was lost may have been applied. Find the node by the token, or this nimbus would
            # stand twice in the queue and wait for itself.
            mine = [name for name in session.children(folder) if name.startswith(prefix)]
            if mine:
                self._place = min(mine, key=_sequence)
                break
            transaction = session.client.transaction()
            transaction.create(f"{folder}/{prefix}", self._address.encode(), ephemeral=True, sequence=True)
            session.commit(transaction, session.deadline())
        return self._place

    def _clean_up(self) -> None:
        """Remove given-up nodes from ZooKeeper: the lead first, because the next in the queue waits for it."""
        ended = self._ended
        if ended is not None:
            if ended.sessions_lost == self._state.session.sessions_lost:  # otherwise it went with its session
                self._state.end_term(ended)
            self._ended = None
            self._on_change()
        if self._place is not None and not self._is_wanted:
            with contextlib.suppress(StopError) if self._is_closed else contextlib.nullcontext():
                self._state.remove_nodes(self._state.node("leader-queue", self._place))
            self._place = None


def _sequence(name: str) -> int:
    # ZooKeeper appends ten digits; the token before them orders nothing.
    return int(name[-10:])
