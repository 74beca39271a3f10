"""The state of the cluster in ZooKeeper. Each node has one kind of writer; see the table in ``docs/architecture.md``.

::

    ROOT/format                           {"layout": 1, "cluster": ID}: a daemon refuses a layout that it does not know
    ROOT/epoch                            the number of the last term; its version fences
    ROOT/leader                           ephemeral: the leader's address
    ROOT/leader-queue/TOKEN-n-SEQUENCE    ephemeral, sequential: nimbuses that want to lead
    ROOT/nimbuses/HOST:PORT               ephemeral: NimbusInfo
    ROOT/supervisors/ID                   ephemeral: SupervisorInfo
    ROOT/submissions                      empty: its version numbers the submissions
    ROOT/storms/ID                        Topology
    ROOT/assignments/ID                   Assignment
    ROOT/workerbeats/ID                   the highest assignment number so far
    ROOT/workerbeats/ID/NUMBER            Heartbeat
    ROOT/endings/ID                       empty
    ROOT/endings/ID/NUMBER                Ending
    ROOT/code-distributor/ID              Manifest
    ROOT/code-distributor/ID/HOST:PORT    empty: this nimbus holds all of it, checked
    ROOT/state                            coordinator state of the topologies; see ``state.stores.zookeeper``

Values are JSON: the record of that name, as :mod:`txtopo.files.records` writes it.

**Terms.** A :class:`Term` is one nimbus' time as leader. :meth:`ClusterState.begin_term` raises the epoch and creates
``/leader`` in one transaction. Every write of a leader goes through :class:`LeaderWrites`: a transaction that begins
with two checks, that the epoch node still has the version of the term, and that ``/leader`` exists. So ZooKeeper itself
refuses the writes of a leader that another one has followed, or whose session is over.

If the connection breaks during a write, ZooKeeper may or may not have applied it. The leader then reads again, plans
again and sends again: nobody else writes those nodes while the term lasts.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import attrs

from state.stores.zookeeper_session import Applied, ConditionFailed, OutcomeUnknown, ZooKeeperSession
from txtopo.cluster.code_store import Manifest
from txtopo.cluster.decisions.assignment import Assignment, ClusterView, Ending, Heartbeat, SupervisorInfo
from txtopo.cluster.decisions.lifecycle import Topology
from txtopo.errors import InternalError, NoLeader, NotLeader, StopError, Unreachable
from txtopo.files.records import DAMAGE, from_json, to_json

LAYOUT = 1
"""The version of the layout. A change that an older daemon would misread raises it."""

_FOLDERS = (
    "leader-queue",
    "nimbuses",
    "supervisors",
    "submissions",
    "storms",
    "assignments",
    "workerbeats",
    "endings",
    "code-distributor",
)
_NESTED = ("endings", "code-distributor")
"""The folders of which a daemon watches a level more; not ``workerbeats``, for there are too many heartbeats."""
_PLANS_MAX = 100
"""How often to plan a write again because a node has changed meanwhile; more often is a second writer, not chance."""
_CHECKS = 2
"""How many checks a leader's write begins with; if one of them fails, the term is over."""

R = TypeVar("R", bound=attrs.AttrsInstance)


@attrs.frozen
class NimbusInfo:
    """A live nimbus; ``/nimbuses/HOST:PORT``. ``started_at`` is wall-clock time, for display only."""

    address: str
    started_at: float = 0.0
    version: str = ""


@attrs.frozen
class Term:
    """One nimbus' time as leader.

    ``epoch`` is higher than in any earlier term, and ``version``, of the epoch node, fences. The term is over once the
    leader has lost a session more than the ``sessions_lost`` before its begin.
    """

    epoch: int
    version: int
    address: str
    sessions_lost: int


class ClusterState:
    """The state of the cluster; safe to use from several threads.

    Reads return what was true a moment ago. All methods raise Unreachable when ZooKeeper does not answer for longer
    than a session lasts.

    Args:
        hosts: ZooKeeper's servers, ``"host:port,host:port"``.
        root: the node above all others.
        session_timeout_secs: how long ZooKeeper takes a silent daemon for alive.
        credentials: ``"user:password"`` for digest ACLs on all nodes; None: open nodes.

    Raises:
        Unreachable: no server can be reached.
        StopError: the nodes have a layout that this version does not know.
    """

    def __init__(
        self,
        hosts: str,
        root: str = "/txtopo-cluster",
        session_timeout_secs: float = 10.0,
        credentials: str | None = None,
    ) -> None:
        self.root = "/" + root.strip("/")
        self.session = ZooKeeperSession(hosts, session_timeout_secs, credentials)
        self.cluster_id = ""
        """Made with the nodes. A daemon keeps code in a folder of that name: connected to another ZooKeeper, it neither
        finds nor removes the code of this one."""
        self._announced: dict[str, tuple[bytes, int]] = {}  # data and session, to write only news
        try:
            self._lay_out()
        except BaseException:
            self.session.close()
            raise

    def close(self) -> None:
        """End the session, and with it a term and all that was announced."""
        self.session.close()

    # What is read.

    def topologies(self) -> dict[str, Topology]:
        """Return all topologies, by id."""
        return self._records("storms", Topology)

    def topology(self, topology: str, on_change: Callable[[], None] | None = None) -> Topology | None:
        """Return a topology; None if there is none. ``on_change`` is called once when it changes or goes."""
        return self._record(Topology, "storms", topology, on_change=on_change)

    def assignments(self) -> dict[str, Assignment]:
        """Return all assignments, by topology."""
        return self._records("assignments", Assignment)

    def assignment(self, topology: str) -> Assignment | None:
        """Return the assignment of a topology; None if it has none."""
        return self._record(Assignment, "assignments", topology)

    def ending(self, topology: str, number: int) -> Ending | None:
        """Return how the driver of an assignment ended, as its supervisor has reported; None if it has not."""
        return self._record(Ending, "endings", topology, str(number))

    def manifest(self, topology: str) -> Manifest | None:
        """Return the published manifest of a topology; None if none is."""
        found = self.session.data(self.node("code-distributor", topology))
        return None if found is None else Manifest.from_bytes(found[0])

    def supervisors(self) -> dict[str, SupervisorInfo]:
        """Return the live supervisors, by id."""
        return self._records("supervisors", SupervisorInfo)

    def nimbuses(self) -> dict[str, NimbusInfo]:
        """Return the live nimbuses, by address."""
        return self._records("nimbuses", NimbusInfo)

    def manifests(self) -> dict[str, Manifest]:
        """Return the published manifests, by topology."""
        return {name: Manifest.from_bytes(data) for name, data in self._values("code-distributor").items()}

    def holders(self) -> dict[str, frozenset[str]]:
        """Return the addresses of the nimbuses that hold the code of each published topology, dead ones included."""
        return {name: frozenset(addresses) for name, addresses in self._below("code-distributor").items()}

    def holders_of(self, topology: str) -> frozenset[str]:
        """Return the addresses of the nimbuses that hold the code of a topology, dead ones included."""
        return frozenset(self.session.children(self.node("code-distributor", topology)))

    def live_holders(self) -> dict[str, frozenset[str]]:
        """Return the addresses of the live nimbuses that hold the code of each published topology."""
        holders, live = self.holders(), frozenset(self.session.children(self.node("nimbuses")))
        return {topology: addresses & live for topology, addresses in holders.items()}

    def live_holders_of(self, topology: str) -> frozenset[str]:
        """Return the addresses of the live nimbuses that hold the code of a topology."""
        return self.holders_of(topology) & frozenset(self.session.children(self.node("nimbuses")))

    def heartbeat(self, topology: str, number: int) -> Heartbeat | None:
        """Return the last heartbeat of the driver of an assignment."""
        return self._record(Heartbeat, "workerbeats", topology, str(number))

    def heartbeats(self) -> dict[tuple[str, int], Heartbeat]:
        """Return the last heartbeats, by topology and assignment number."""
        return self._numbered("workerbeats", Heartbeat)

    def view(self) -> ClusterView:
        """Return what a leader decides on."""
        numbers = {name: int(data) for name, data in self._values("workerbeats").items()}
        return ClusterView(
            self.topologies(), self.assignments(), self.supervisors(), self._numbered("endings", Ending), numbers
        )

    def leader(self) -> str:
        """Return the address of the nimbus that leads; raise NoLeader if none does at the moment."""
        found = self.session.data(self.node("leader"))
        if found is None:
            raise NoLeader("no nimbus leads at the moment; try again in a few seconds")
        return found[0].decode()

    def watch(self, folders: Iterable[str], on_change: Callable[[], None]) -> None:
        """Call ``on_change`` when something in one of the folders changes: a name, a value, or a name below a name.

        kazoo's thread calls it, at least once, so it must not wait. A watch fires once: after it, watch again, then
        read. A change between the two is then in what you read; the other way round, nobody would tell you.
        """
        roots = [self.node(folder) for folder in folders]
        names = self.session.watch_children_of_all(roots, on_change)
        nodes = [f"{root}/{name}" for root, below in zip(roots, names, strict=True) for name in below]
        self.session.watch_data_of_all(nodes, on_change)
        nested = tuple(self.node(folder) for folder in _NESTED)
        self.session.watch_children_of_all([node for node in nodes if node.startswith(nested)], on_change)

    # What each daemon writes about itself.

    def announce_nimbus(self, nimbus: NimbusInfo) -> None:
        """Announce a nimbus until the session ends; call it at every look, for the session may have expired."""
        self._announce(self.node("nimbuses", nimbus.address), _bytes(nimbus))

    def announce_supervisor(self, supervisor: SupervisorInfo) -> None:
        """Announce a supervisor in the same way."""
        self._announce(self.node("supervisors", supervisor.id), _bytes(supervisor))

    def hold(self, topology: str, address: str) -> bool:
        """Record durably that a nimbus holds the code of a topology. False: the topology is gone."""
        return self._put(self.node("code-distributor", topology), address, b"")

    def drop(self, topology: str, address: str) -> None:
        """Record that a nimbus no longer holds the code of a topology."""
        self.remove_nodes(self.node("code-distributor", topology, address))

    def beat(self, topology: str, number: int, heartbeat: Heartbeat) -> bool:
        """Write the heartbeat of a driver. False: the topology is gone, and the driver should end."""
        return self._put(self.node("workerbeats", topology), str(number), _bytes(heartbeat))

    def report(self, topology: str, number: int, ending: Ending) -> bool:
        """Write how the driver of an assignment ended. False: the topology is gone."""
        return self._put(self.node("endings", topology), str(number), _bytes(ending))

    # Terms.

    def epoch_version(self) -> int:
        """Return the version of the epoch node, for :meth:`begin_term`."""
        found = self.session.data(self.node("epoch"))
        if found is None:
            raise StopError(f"the node {self.node('epoch')} is gone: somebody removed the cluster's nodes")
        version: int = found[1].version
        return version

    def begin_term(self, address: str, epoch_version: int, guard: str | None = None) -> Term | None:
        """Make a nimbus the leader, and raise the epoch, in one transaction.

        *You* must read ``epoch_version`` before you check that the nimbus may lead: then a term of another nimbus
        between check and transaction makes this one fail. ``guard`` is a node that must exist, such as the nimbus'
        place in a queue.

        Returns:
            The term; None if another nimbus leads, or has led meanwhile, or the guard is gone.
        """
        sessions_lost = self.session.sessions_lost
        found = self.session.data(self.node("epoch"))
        if found is None or found[1].version != epoch_version:
            return None
        epoch = int(found[0]) + 1
        transaction = self.session.client.transaction()
        if guard is not None:
            transaction.check(guard, -1)
        transaction.set_data(self.node("epoch"), str(epoch).encode(), version=epoch_version)
        transaction.create(self.node("leader"), address.encode(), ephemeral=True)
        deadline = self.session.deadline()
        if isinstance(self.session.commit(transaction, deadline), Applied):
            return Term(epoch, epoch_version + 1, address, sessions_lost)
        # 1. ZooKeeper applies the transaction. 2. The answer is lost. 3. ``/leader`` exists, and this session owns it:
        # the term has begun, unless the epoch moved on or the session ended since.
        leader = self.session.data(self.node("leader"))
        if leader is None or leader[1].ephemeralOwner != self.session.session_id:
            return None
        if self.epoch_version() != epoch_version + 1 or self.session.sessions_lost != sessions_lost:
            return None
        return Term(epoch, epoch_version + 1, address, sessions_lost)

    def end_term(self, term: Term) -> None:
        """Remove ``/leader``, if it is still of this term."""

        def plan(transaction: Any) -> None:
            transaction.check(self.node("epoch"), term.version)
            transaction.delete(self.node("leader"))

        self.apply(plan)

    def remove_nodes(self, *nodes: str) -> None:
        """Remove nodes that only this process writes; it is not an error if one is missing."""
        for node in nodes:
            self.apply(lambda transaction, node=node: transaction.delete(node))  # type: ignore[misc]  # mypy cannot infer a lambda with a default

    def apply(self, plan: Callable[[Any], object]) -> Applied | ConditionFailed:
        """Send a transaction that ``plan`` fills; plan and send again, applied or not, while answers are lost."""
        deadline = self.session.deadline()
        while True:
            transaction = self.session.client.transaction()
            plan(transaction)
            answer = self.session.commit(transaction, deadline)
            if not isinstance(answer, OutcomeUnknown):
                return answer

    def write(
        self, plan: Callable[[Any], object], is_final: Callable[[ConditionFailed], bool] = lambda _: False
    ) -> Applied | None:
        """Send a transaction, planned again while nodes change meanwhile; None for a refusal that ``is_final``."""
        for _ in range(_PLANS_MAX):
            answer = self.apply(plan)
            if isinstance(answer, Applied):
                return answer
            if is_final(answer):
                return None
        raise InternalError(
            f"nodes below {self.root} change all the time: do two daemons have the same address or folder, or does "
            "another program write there?"
        )

    def exists(self, node: str) -> bool:
        """Whether there is a node."""
        return self.session.stats_of_all([node])[0] is not None

    def node(self, *names: str) -> str:
        """Return the path of a node below the root."""
        return "/".join((self.root, *names))

    def _lay_out(self) -> None:
        # Every daemon tries to make every node, and the first one wins; a crash midway leaves the rest to the next one.
        # ``format`` goes first: a daemon of another layout refuses before it writes anything.
        self.session.make(self.node("format"), json.dumps({"layout": LAYOUT, "cluster": secrets.token_hex(8)}).encode())
        found = self.session.data(self.node("format"))
        written = json.loads(found[0]) if found else {}
        layout = written.get("layout")
        if layout != LAYOUT:
            raise StopError(
                f"the cluster at {self.root} in ZooKeeper has layout {layout}, and this version of txtopo knows "
                f"{LAYOUT}: start the version that wrote it, or give storm.zookeeper.root another value"
            )
        self.cluster_id = str(written.get("cluster", "0"))
        self.session.make(self.node("epoch"), b"0")
        for folder in _FOLDERS:
            self.session.make(self.node(folder), b"")

    def _record(self, kind: type[R], *names: str, on_change: Callable[[], None] | None = None) -> R | None:
        node = self.node(*names)
        found = self.session.data(node) if on_change is None else self.session.watched_data(node, on_change)
        return None if found is None else _record(node, found[0], kind)

    def _records(self, folder: str, kind: type[R]) -> dict[str, R]:
        return {name: _record(self.node(folder, name), data, kind) for name, data in self._values(folder).items()}

    def _numbered(self, folder: str, kind: type[R]) -> dict[tuple[str, int], R]:
        keys = [(name, number) for name, numbers in self._below(folder).items() for number in numbers]
        nodes = [self.node(folder, *key) for key in keys]
        found = self.session.data_of_all(nodes)
        return {
            (name, int(number)): _record(node, data[0], kind)
            for (name, number), node, data in zip(keys, nodes, found, strict=True)
            if data is not None
        }

    def _values(self, folder: str) -> dict[str, bytes]:
        """Return the value of each node in a folder; those that go meanwhile are left out."""
        names = sorted(self.session.children(self.node(folder)))
        found = self.session.data_of_all([self.node(folder, name) for name in names])
        return {name: data[0] for name, data in zip(names, found, strict=True) if data is not None}

    def _below(self, folder: str) -> dict[str, list[str]]:
        """Return the names below each node in a folder."""
        names = sorted(self.session.children(self.node(folder)))
        return dict(zip(names, self.session.children_of_all([self.node(folder, name) for name in names]), strict=True))

    def _announce(self, node: str, data: bytes) -> None:
        sessions_lost = self.session.sessions_lost
        if self._announced.get(node) == (data, sessions_lost):
            return

        def plan(transaction: Any) -> None:
            if self.exists(node):
                # It is of this daemon's last session, and goes when ZooKeeper ends that one.
                transaction.delete(node)
            transaction.create(node, data, ephemeral=True)

        self.write(plan)
        self._announced[node] = (data, sessions_lost)

    def _put(self, parent: str, name: str, data: bytes) -> bool:
        """Create or replace a child; False if the parent does not exist."""
        node = f"{parent}/{name}"

        def plan(transaction: Any) -> None:
            (transaction.set_data if self.exists(node) else transaction.create)(node, data)

        return self.write(plan, lambda _: not self.exists(parent)) is not None


class LeaderWrites:
    """The writes of one term: each is one transaction, which ZooKeeper refuses once the term is over.

    All methods raise NotLeader when the term is over; nothing of the write was applied then, or nothing that counts.
    After Unreachable the write may have been applied.
    """

    def __init__(self, state: ClusterState, term: Term) -> None:
        self._state = state
        self.term = term

    def check(self) -> None:
        """Write nothing; raise NotLeader as a write would."""
        self._write(lambda _: None, is_harmless=True)

    def next_number(self) -> int:
        """Return a number that no submission has had: the new version of a node. A lost answer wastes a number."""
        node = self._state.node("submissions")
        written = self._write(lambda transaction: transaction.set_data(node, b""), is_harmless=True)
        return int(written.version)

    def publish(self, manifest: Manifest) -> None:
        """Publish the manifest of a submission's code, and that this nimbus holds it."""
        folder = self._state.node("code-distributor", manifest.topology)

        def plan(transaction: Any) -> None:
            if not self._state.exists(folder):  # otherwise it was applied, and the answer lost
                # Together: other nimbuses fetch what is published, so from the first moment somebody must hold it.
                transaction.create(folder, manifest.to_bytes())
                transaction.create(f"{folder}/{self.term.address}", b"")

        self._write(plan, is_harmless=True)

    def start(self, topology: Topology, replaced: Iterable[str] = ()) -> None:
        """Let a topology begin, and remove the ended topologies that it replaces, given by id."""

        def plan(transaction: Any) -> None:
            if self._state.exists(self._state.node("storms", topology.id)):
                return  # it was applied, and the answer lost
            # In the same transaction: a crash leaves either the ended topologies or the one that takes their name.
            for each in replaced:
                self._delete_all(transaction, each)
            transaction.create(self._state.node("workerbeats", topology.id), b"0")
            transaction.create(self._state.node("endings", topology.id), b"")
            transaction.create(self._state.node("storms", topology.id), _bytes(topology))

        self._write(plan)

    def store(self, topology: Topology) -> None:
        """Replace a topology's record."""
        self._write(lambda transaction: transaction.set_data(self._state.node("storms", topology.id), _bytes(topology)))

    def assign(self, assignment: Assignment) -> None:
        """Store an assignment, and remove heartbeats and endings of earlier ones."""
        node = self._state.node("assignments", assignment.topology)

        def plan(transaction: Any) -> None:
            self._delete_words(transaction, assignment.topology)
            # The number is kept apart from the assignment: it must outlive an ``unassign``.
            beats = self._state.node("workerbeats", assignment.topology)
            transaction.set_data(beats, str(assignment.number).encode())
            (transaction.set_data if self._state.exists(node) else transaction.create)(node, _bytes(assignment))

        self._write(plan)

    def unassign(self, topology: str) -> None:
        """Remove a topology's assignment, with heartbeats and endings."""
        node = self._state.node("assignments", topology)

        def plan(transaction: Any) -> None:
            self._delete_words(transaction, topology)
            if self._state.exists(node):
                transaction.delete(node)

        self._write(plan)

    def remove(self, topology: str) -> None:
        """Remove everything about a topology."""
        self._write(lambda transaction: self._delete_all(transaction, topology))

    def _delete_words(self, transaction: Any, topology: str) -> None:
        for folder in ("workerbeats", "endings"):
            node = self._state.node(folder, topology)
            for name in self._state.session.children(node):
                transaction.delete(f"{node}/{name}")

    def _delete_all(self, transaction: Any, topology: str) -> None:
        for folder in ("assignments", "workerbeats", "endings", "code-distributor", "storms"):
            node = self._state.node(folder, topology)
            if self._state.exists(node):
                for name in self._state.session.children(node):
                    transaction.delete(f"{node}/{name}")
                transaction.delete(node)

    def _write(self, plan: Callable[[Any], Any], *, is_harmless: bool = False) -> Any:
        """Send a transaction that ``plan`` fills, behind the two checks of the term; return its last result.

        A driver or supervisor may write a heartbeat or ending between plan and transaction: then plan again. What
        ``is_harmless`` may be asked for again elsewhere even if it was applied.
        """
        unanswered = 0

        def whole(transaction: Any) -> None:
            nonlocal unanswered
            unanswered += 1
            transaction.check(self._state.node("epoch"), self.term.version)
            transaction.check(self._state.node("leader"), -1)
            plan(transaction)

        def is_over(refused: ConditionFailed) -> bool:
            nonlocal unanswered
            unanswered -= 1
            return refused.position < _CHECKS

        applied = self._state.write(whole, is_over)
        if applied is None and unanswered and not is_harmless:
            raise Unreachable(
                f"the term {self.term.epoch} of {self.term.address} is over, and the answer of ZooKeeper to its last "
                "write was lost: it may have been applied"
            )
        if applied is None:
            raise NotLeader(f"the term {self.term.epoch} of {self.term.address} is over: nothing was written")
        return applied.last


def _bytes(record: attrs.AttrsInstance) -> bytes:
    return json.dumps(to_json(record)).encode()


def _record(node: str, data: bytes, kind: type[R]) -> R:
    try:
        return from_json(json.loads(data), kind)
    except DAMAGE as error:
        raise StopError(
            f"the node {node} in ZooKeeper is damaged, or of another version of txtopo: {error!r}"
        ) from error
