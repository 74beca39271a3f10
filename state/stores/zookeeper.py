"""The store for several machines: ZooKeeper, through kazoo.

Below the root there are two trees::

    values/<topology id>/…          the values; state.stores.znodes describes their format
    leads/<topology id>             the epoch; every new lead sets it, so its version fences
    leads/<topology id>/holder      ephemeral: the holder of the lead

Three rules limit a topology to one writer:

1. *The holder node* makes a second process fail early while the first one is alive.
2. *Every write* is a transaction that also checks the version of the epoch node and that the holder node
   exists. So ZooKeeper itself refuses a zombie, and a lead ends with its session.
3. *Taking the lead* creates the holder node and increments the epoch in one transaction.

How a zombie is refused:

1. A leads with epoch 4.
2. A's machine hangs; its session expires and the holder node is removed.
3. B takes the lead with epoch 5.
4. A wakes up and sends a write that it had planned.
5. The epoch node no longer has the version that A knows: the transaction fails, and A stops with LostLead.

After a ``kill -9`` the holder node stays until the session expires. Another process that requests the lead then checks
the holder:

- If the holder is alive on the same machine, the request is refused after 0.5 seconds; not earlier, because a process
  that was just killed may not be dead yet.
- If the holder is dead on the same machine, the other process takes over immediately.
- If the holder is on another machine, the request waits as long as a dead holder's session can last, and is refused
  only then.

A wrong conclusion that the holder is dead would cost it its lead, but never allow two writers, because of the version
check.

If the connection breaks during a write, the write may or may not have been applied. It is then planned again from the
current nodes and sent again. That is safe: because of the epoch check nobody else writes, and a Put or Delete can be
repeated.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Sequence
from typing import Any, assert_never

import attrs

from state.stores.holder import GRACE_SECS, Holder, loss, refusal
from state.stores.paths import checked_changes, checked_path, checked_topology_id, decoded_segment, encoded_path
from state.stores.znodes import CreateNode, DeleteNode, SetNode, Step, Znodes, steps, value_of
from state.stores.zookeeper_session import (
    Answer,
    Applied,
    AwakeDeadline,
    ConditionFailed,
    OutcomeUnknown,
    ZooKeeperSession,
)
from txtopo.api.arguments import checked_arguments
from txtopo.api.store import Change, Delete, Lead, Store
from txtopo.errors import ConfigError, InternalError, LostLead, StopError
from txtopo.settings.kinds import to_servers

_POLL_SECS = 0.1
"""How long the holder's end is waited for at a time; then it is asked again who holds the lead."""
_RELEASE_SECS = 2.0
"""How long the end of a run tries to free the lead, which its session frees in the end."""
_PLANS_MAX = 100
"""A step that is read and tried so often in vain has a rival that has no business there."""
_CHECKS = 2
"""The number of checks before the operations of a step."""

_SESSION_SECS_MAX = (1 << 31) // 1000
"""ZooKeeper counts milliseconds in 32 bits."""


class ZooKeeperStore(Store):
    """A store in ZooKeeper; safe to use from several threads.

    Until a lead is taken, a read may lag slightly behind writes of other processes; after that, never.

    Args:
        hosts: ``"host:port,host:port"``.
        root: the node above all others; created if it does not exist.
        session_timeout_secs: the time in seconds that a lead outlives its holder, and that a connection may be lost.
            The server limits it to 2 to 20 times its ``tickTime``.
        credentials: ``"user:password"`` for digest ACLs on all nodes; None: open nodes.

    Raises:
        StopError: no server can be reached.
    """

    session_secs_min = 6.0
    """The shortest session of a server with ZooKeeper's default tickTime, even if a shorter one was requested."""
    margin_secs = 2.0
    """How much longer than a session its node may stay: the server looks at sessions once a tick."""

    @checked_arguments
    def __init__(
        self, hosts: str, root: str = "/txtopo", session_timeout_secs: float = 10.0, credentials: str | None = None
    ) -> None:
        try:
            to_servers(hosts)
        except ValueError:
            raise ConfigError(f"hosts is {hosts!r}; give host:port, or several separated by commas") from None
        if not 0 < session_timeout_secs < _SESSION_SECS_MAX:
            raise ConfigError(f"session_timeout_secs is {session_timeout_secs!r}; give a number of seconds above 0")
        self.root = f"/{encoded_path(checked_path(root.strip('/')))}"
        self.session = ZooKeeperSession(hosts, session_timeout_secs, credentials)
        self._leads: list[ZooKeeperLead] = []

    def read(self, path: str) -> bytes | None:
        """Return the value at ``path``, or None."""
        node = self.session.data(self.node_of(checked_path(path)))
        return None if node is None else value_of(node[0])

    def children(self, path: str) -> list[str]:
        """Return the sorted names directly below ``path`` (``""``: the topology ids)."""
        node = self.node_of(checked_path(path)) if path else f"{self.root}/values"
        return sorted(decoded_segment(name) for name in self.session.children(node))

    def take_lead(self, topology_id: str, owner: str, epoch_min: int = 1) -> ZooKeeperLead:
        """Take the lead of a topology, and increment its epoch; see :meth:`Store.take_lead`.

        If the holder is on another machine and may be dead, this waits as long as its session can last.
        """
        epoch_node = f"{self.root}/leads/{encoded_path(checked_topology_id(topology_id))}"
        self.session.make(f"{self.root}/values", b"")
        self.session.make(epoch_node, b"0")
        holder = Holder.of_this_process(owner, self.session.timeout_secs)
        term = _Claim(self, topology_id, epoch_node, holder, epoch_min).take()
        lead = ZooKeeperLead(self, topology_id, term)
        self._leads.append(lead)
        lead.prepare()
        return lead

    def close(self) -> None:
        """Release the leads that were taken here, and end the session."""
        for lead in self._leads:
            lead.release()
        self.session.close()

    def node_of(self, path: str) -> str:
        """Return the znode of a value."""
        return f"{self.root}/values/{encoded_path(path)}"


@attrs.frozen
class _Term:
    epoch: int
    epoch_node: str
    epoch_version: int
    sessions_lost: int
    """The number of sessions lost before the one that took the lead."""


@attrs.frozen
class _Claim:
    store: ZooKeeperStore
    topology_id: str
    epoch_node: str
    holder: Holder
    epoch_min: int

    @property
    def session(self) -> ZooKeeperSession:
        return self.store.session

    def take(self) -> _Term:
        """Return the term, once the lead is taken; raise AlreadyRunning if a live process or session holds it."""
        started = time.monotonic()
        holder_node = _holder_node(self.epoch_node)
        while True:
            # Read before the holder node is created: if the session ends right after it, is_held() finds out.
            sessions_lost = self.session.sessions_lost
            epoch, version = self._epoch()
            holder_data = self.session.data(holder_node)
            in_place = None if holder_data is None else _holder_in(holder_data[0])
            if in_place is not None:
                if in_place.token == self.holder.token:
                    # The transaction was applied, although its answer was lost.
                    return _Term(epoch, self.epoch_node, version, sessions_lost)
                if in_place.is_alive() is not False:
                    self._wait_or_refuse(in_place, started)
                    continue
            transaction = self.session.client.transaction()
            if in_place is not None:
                # If a third process has taken the lead since, this is its node. Then the epoch has another version, and
                # the whole transaction fails.
                transaction.delete(holder_node)
            transaction.create(holder_node, self.holder.to_bytes(), ephemeral=True)
            next_epoch = max(epoch + 1, self.epoch_min)
            transaction.set_data(self.epoch_node, str(next_epoch).encode(), version=version)
            answer = self.session.commit(transaction, self.session.deadline())
            # If another process was faster, the next round finds its node. If the answer was lost, it may find our own.
            if isinstance(answer, Applied):
                return _Term(next_epoch, self.epoch_node, answer.last.version, sessions_lost)

    def _epoch(self) -> tuple[int, int]:
        epoch_data = self.session.data(self.epoch_node)
        if epoch_data is None:
            raise StopError(f"the node {self.epoch_node} was deleted while the lead was taken; start again")
        data, stat = epoch_data
        return int(data), stat.version

    def _wait_or_refuse(self, in_place: Holder, started: float) -> None:
        longest_secs = max(self.session.timeout_secs, in_place.session_timeout_secs, self.store.session_secs_min)
        patience_secs = GRACE_SECS if in_place.is_alive() else longest_secs + self.store.margin_secs
        remaining_secs = started + patience_secs - time.monotonic()
        if remaining_secs <= 0:
            raise refusal(self.topology_id, in_place)
        self.session.wait_until_gone(_holder_node(self.epoch_node), min(remaining_secs, _POLL_SECS))


class ZooKeeperLead(Lead):
    """The lead of a topology in ZooKeeper; made by :meth:`ZooKeeperStore.take_lead`."""

    def __init__(self, store: ZooKeeperStore, topology_id: str, term: _Term) -> None:
        self._store = store
        self._session = store.session
        self._topology_id = topology_id
        self._term = term
        self._lock = threading.RLock()
        self._znodes: Znodes | None = None
        self._lost: LostLead | None = None
        self._in_doubt = False

    @property
    def epoch(self) -> int:
        """The epoch: one more than that of the last lead, unless a higher one was requested."""
        return self._term.epoch

    def prepare(self) -> None:
        """Read which nodes exist, and remove empty folders that a leader left when it died between two steps."""
        with self._lock:
            self._znodes = self._read_znodes()
            folders = self._znodes.empty_folders()
            if folders:
                self.write([Delete(folder) for folder in folders])

    def write(self, changes: Sequence[Change]) -> None:
        """Apply all changes in order, as one ZooKeeper transaction; see :meth:`Lead.write`.

        If the list exceeds one transaction (700 KB, 500 nodes), it is divided into several, in order. If the
        connection breaks, they are sent again for as long as a session lasts.

        Raises:
            LostLead: another process has taken the lead since, or this one's session has expired. If the answer to a
                step was lost, so that it may have been applied, the message says so.
            StopError: no server can be reached; the last step may have been applied.
        """
        remaining: list[Change] | None = checked_changes(self._topology_id, changes)
        with self._lock:
            self._in_doubt = False
            deadline = self._session.deadline()
            for _ in range(_PLANS_MAX):
                assert remaining is not None, "the loop ends when nothing remains"
                remaining = self._try(remaining, deadline)
                if remaining is None:
                    return
        raise InternalError(
            f"the nodes of topology {self._topology_id!r} change while its lead is held: "
            "no other program may write there"
        )

    def is_held(self) -> bool:
        """Whether the session that took the lead is alive, and no write has found the lead lost."""
        return (
            self._lost is None
            and self._session.sessions_lost == self._term.sessions_lost
            and not self._session.is_cut_off()
        )

    def release(self) -> None:
        """Give up the lead; a second call does nothing. Without a connection, the lead ends with the session."""
        with self._lock, contextlib.suppress(StopError):
            if self._lost is not None:
                return
            self._lost = loss(self._topology_id, self.epoch, self.epoch)
            deadline = AwakeDeadline(_RELEASE_SECS)
            answer: Answer = OutcomeUnknown()
            # Again after a lost answer: if the node is gone already, the transaction fails, which ends the loop.
            while isinstance(answer, OutcomeUnknown) and not deadline.is_over:
                transaction = self._session.client.transaction()
                transaction.check(self._term.epoch_node, self._term.epoch_version)
                transaction.delete(_holder_node(self._term.epoch_node))
                answer = self._session.commit(transaction, deadline)

    def _try(self, changes: list[Change], deadline: AwakeDeadline) -> list[Change] | None:
        """Apply changes; return those that must be planned again, or None if all are applied."""
        if self._lost is not None:
            raise self._lost
        # Until the last step is answered, it is uncertain which nodes exist.
        znodes, self._znodes = self._znodes, None
        if znodes is None:
            znodes = self._read_znodes()
        steps_done = 0
        for step in steps(znodes, changes):
            answer = self._session.commit(self._transaction(step), deadline)
            match answer:
                case Applied():
                    steps_done = step.changes_done
                case OutcomeUnknown():
                    self._in_doubt = True
                    return changes[steps_done:]
                case ConditionFailed(position):
                    if position < _CHECKS:
                        # The epoch has changed, or the holder node is gone. Otherwise a node is not as planned.
                        raise self._found_lost()
                    return changes[steps_done:]
                case _:
                    assert_never(answer)
        self._znodes = znodes
        return None

    def _transaction(self, step: Step) -> Any:
        transaction = self._session.client.transaction()
        transaction.check(self._term.epoch_node, self._term.epoch_version)
        transaction.check(_holder_node(self._term.epoch_node), -1)
        for operation in step.operations:
            node = self._store.node_of(operation.path)
            match operation:
                case CreateNode(_, data):
                    transaction.create(node, data)
                case SetNode(_, data):
                    transaction.set_data(node, data)
                case DeleteNode():
                    transaction.delete(node)
                case _:
                    assert_never(operation)
        return transaction

    def _found_lost(self) -> LostLead:
        epoch_data = self._session.data(self._term.epoch_node)
        self._lost = loss(self._topology_id, self.epoch, None if epoch_data is None else int(epoch_data[0]))
        if self._in_doubt:
            self._lost.message += ", except perhaps one step whose answer was lost with the connection"
        return self._lost

    def _read_znodes(self) -> Znodes:
        """Read which nodes exist, level by level, without their values."""
        znodes = Znodes()
        level = [self._topology_id]
        while level:
            stats = self._session.stats_of_all([self._store.node_of(path) for path in level])
            present = [(path, stat) for path, stat in zip(level, stats, strict=True) if stat is not None]
            for path, stat in present:
                znodes.add(path, has_value=stat.dataLength > 0)
            parents = [path for path, stat in present if stat.numChildren]
            names = self._session.children_of_all([self._store.node_of(path) for path in parents])
            level = [
                f"{path}/{decoded_segment(name)}" for path, below in zip(parents, names, strict=True) for name in below
            ]
        return znodes


def _holder_node(epoch_node: str) -> str:
    return f"{epoch_node}/holder"


def _holder_in(data: bytes) -> Holder:
    unnamed = Holder(owner="somebody", pid=0, host="an unknown machine", machine="", started="", token="")
    return Holder.from_bytes(data) or unnamed
