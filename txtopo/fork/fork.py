"""A fork: a second topology that goes on from a committed transaction of another one, in a separate folder.

It has another id, an incarnation and a coordinator state of its own, and tables that are as the origin's were. What the
origin has begun since then is begun in the fork as well: its transactions get the same input and have the same times,
so that the tables of both can be compared. The origin is only read, and may be running.

1. The fork is named in its folder, in ``_txtopo/fork.json``, as one that is not finished, with its plan. No run starts
   with such a fork.
2. Whoever makes it takes the lead of the new topology, so that nobody else makes it too, and removes what an
   interrupted try has left.
3. Each table is made, with the rows of the transaction; a state that had none gets an empty one.
4. A journal is begun. Its header says what is committed: from here on the fork can be read and audited.
5. The coordinator state is begun, in one step.
6. The fork is named as finished.

A crash at any moment leaves a fork that is not finished. To run ``txtopo fork`` again makes it anew, by the same plan:
it is refused if the topology has gone back since, so that its transaction is another one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import attrs

from txtopo.api.state import CanBeForked, GrowsColumns, OpenedState, State, StateTable, TableDescription
from txtopo.errors import ConfigError, DivergenceError, StateAccessError
from txtopo.failpoints import durable_step
from txtopo.files.folder import Folder, LocalFolder
from txtopo.files.formats import FIRST, FORK, Format, refuse_other
from txtopo.files.records import DAMAGE, from_json, to_json
from txtopo.journal.ending import METADATA_DIR
from txtopo.journal.entries import JournalHeader, JournalPart
from txtopo.journal.folders import find_journal
from txtopo.journal.search import JournalSearch
from txtopo.journal.turns import Turn
from txtopo.journal.writer import PART_BYTES_MAX, JournalWriter
from txtopo.transactional.core.events import TransactionMetadata
from txtopo.transactional.recovery.checkpoints import Checkpoint, header_after
from txtopo.transactional.recovery.coordinator_state import CommittedMark, CoordinatorState, Folds, StateMark
from txtopo.transactional.recovery.operations.diagnosis import RepairSubject
from txtopo.transactional.recovery.operations.rewind import Reach, summarized
from txtopo.transactional.recovery.operations.ways import version_is_gone
from txtopo.transactional.recovery.plans import GoTo
from txtopo.transactional.recovery.tables import growing

_FILE = "fork.json"
_IN_DOUBT = (
    ". Its commit group is being written, or that was interrupted: if no run goes on, start one, which finishes a "
    "group that was decided; then fork"
)


@attrs.frozen
class Fork:
    """What a fork's folder says of it."""

    topology: str
    """Its id."""
    incarnation: str
    declared: str
    """The id that its module declares."""
    origin: str = ""
    """The folder that it was forked from, for people."""
    txid: int = 0
    """The last transaction that it has from there."""
    tables: Mapping[str, str] = attrs.field(factory=dict)
    """The path of each state's table, relative to the folder."""
    plan: GoTo | None = None
    """Where it begins."""
    is_made: bool = False
    """Whether it is finished."""
    format: Format = FORK


@attrs.frozen
class ForkPoint:
    """The transaction from which a fork goes on."""

    checkpoint: Checkpoint
    obstacles: tuple[str, ...]
    """Why it is no later one, up to the one that was asked for."""


@attrs.frozen
class ForkPoints:
    """The transactions from which a fork of a topology may go on, as its journal and tables have them."""

    origin: RepairSubject
    parts: Sequence[JournalPart]
    """What the origin's journal says of them."""
    checkpoints: tuple[Checkpoint, ...]
    """Newest first."""

    _tables: Mapping[str, StateTable]
    _descriptions: Mapping[str, TableDescription]
    _kept: Mapping[str, Collection[int]]
    _entered: int
    """The last transaction that the journal has entered; it may not be committed."""
    _is_of_all: bool

    @classmethod
    def of(
        cls,
        origin: RepairSubject,
        decided: int,
        txids: Collection[int],
        *,
        is_of_all: bool = False,
    ) -> ForkPoints:
        """Find them.

        Args:
            origin: the topology.
            decided: the last transaction that the origin's coordinator state has decided.
            txids: the points on record, and a transaction that is asked for.
            is_of_all: whether only those count at which it had each of its states.

        Raises:
            ConfigError: the journal has no complete line yet.
        """
        # A state that can't be copied begins empty in the fork, whatever its table keeps.
        tables = {n: table for n, table in origin.tables().items() if isinstance(origin.states[n], CanBeForked)}
        descriptions = {name: found for name, table in tables.items() if (found := table.describe()) is not None}
        reach = Reach.of(origin, tables, descriptions, txids, decided)
        newest = reach.parts[-1].entries
        entered = newest[-1].last if newest else 0
        checkpoints = tuple(reach.checkpoints)
        return cls(origin, reach.parts, checkpoints, tables, descriptions, reach.kept, entered, is_of_all)

    @property
    def unversioned(self) -> tuple[str, ...]:
        """The states that can't be copied as of a transaction."""
        return tuple(name for name in self.origin.states if name not in self._tables)

    @property
    def standing(self) -> tuple[Checkpoint, ...]:
        """The checkpoints as of which all tables are kept, newest first."""
        return tuple(checkpoint for checkpoint in self.checkpoints if next(self._obstacles(checkpoint), None) is None)

    def nearest(self, txid: int) -> ForkPoint:
        """Return the newest transaction up to ``txid`` as of which all tables are kept; see :meth:`find`.

        Raises:
            StateAccessError: the transaction is not committed yet, or no moment up to it is kept.
        """
        topology_id, points = self.origin.topology_id, self.checkpoints
        if txid > points[0].txid:
            raise StateAccessError(
                f"transaction {txid} of topology {topology_id!r} is not committed; the last one that is, is "
                f"{points[0].txid}{_IN_DOUBT * (txid <= self._entered)}"
            )
        point, obstacles = self.find(txid)
        if point is not None:
            return ForkPoint(point, tuple(obstacles))
        way_out = "" if points[-1].txid or not txid else ". Give 0 to fork it from the beginning"
        raise StateAccessError(
            f"topology {topology_id!r} can't be forked at transaction {txid}{' or before' * bool(txid)}: "
            f"{'; '.join(obstacles)}{way_out}"
        )

    def find(self, txid: int) -> tuple[Checkpoint | None, list[str]]:
        """Return the newest moment up to a transaction as of which all tables are kept, and why it is no later one.

        None if there is none; 0, where all tables are empty, only for 0. ``txid`` is a committed transaction, or 0.
        """
        points, seen = self.checkpoints, list[str]()
        if txid not in {point.txid for point in points} and txid > points[-1].txid:
            after = min(point.txid for point in points if point.txid > txid)
            before = max(point.txid for point in points if point.txid < txid)
            seen.append(f"transactions {before + 1} to {after} were written together")
        for point in points:
            if point.txid > txid or (txid and not point.txid):  # the beginning is for who asks for it
                continue
            obstacles = [*self._obstacles(point, is_sure=True)]
            if not obstacles:
                return point, summarized(seen)
            seen += obstacles
        return None, summarized(seen) or [f"the journal begins after transaction {points[-1].txid}"]

    def _obstacles(self, point: Checkpoint, *, is_sure: bool = False) -> Iterator[str]:
        """Yield what is in the way of a checkpoint; ``is_sure`` looks at the files of its versions once more."""
        for name in self._tables:
            if point.has(name):
                mark = point.states[name]
                is_kept = not mark.txid or mark.txid in self._kept.get(name, ())
                table = self._tables[name] if is_kept and is_sure else None
                obstacle = _obstacle(name, mark, self._descriptions.get(name), table, is_kept=is_kept)
                if obstacle is not None:
                    yield obstacle
            # Otherwise, a state that the module has got since has no table in the fork, as it would have none here.
            elif self._is_of_all:
                yield f"state {name!r} joined the topology later"


def _obstacle(
    name: str, mark: StateMark, description: TableDescription | None, table: StateTable | None, *, is_kept: bool
) -> str | None:
    """Describe why a table can't be made as of a mark; None if it can.

    ``is_kept`` says whether its log has the version; a table that is given is asked for the version's files, too.
    """
    if not mark.txid:  # it was empty
        return None
    if description is None or description.identity != mark.identity:
        return f"the table of {name!r} is gone, or is another one by now"
    if is_kept and (table is None or table.is_kept(mark.txid)):
        return None
    return version_is_gone(name, mark.txid)


@attrs.frozen
class ForkSubject:
    """A fork to make."""

    fork: Fork
    folder: Folder
    origin: RepairSubject
    plan: GoTo
    states: Mapping[str, State]
    """The origin's states, moved to their places in the fork."""
    begun: Sequence[TransactionMetadata]
    """The transactions after the point that the origin has begun by now: the fork gives them the same input."""
    source: Mapping[str, bytes]
    """What the spout's coordinator keeps as of the last of these, by path below its own."""
    empty: Mapping[str, str] = attrs.field(factory=dict)
    """The states that begin empty at the point though the origin has rows of them, each with why."""
    turns: tuple[Turn, ...] = ()
    """Those that the origin had gone through when the point was found."""
    folds: Folds = attrs.field(factory=dict)
    """What is folded into the origin's tables."""

    @property
    def metadata_dir(self) -> Folder:
        """The fork's metadata directory."""
        return self.folder.below(METADATA_DIR)

    @property
    def marks(self) -> dict[str, StateMark]:
        """The marks of the states that the fork begins with: those of the origin at the point, and of empty ones."""
        of_origin = {name: mark for name, mark in self.plan.marks.items() if name in self.states}
        return {**of_origin, **dict.fromkeys(self.empty, StateMark("", None, begun_after=self.plan.txid))}


def find_fork(folder: Folder) -> Fork | None:
    """Return what a folder says of the fork in it, finished or not; None if it holds none.

    Raises:
        DivergenceError: it can't be read.
        StopError: another version of txtopo has made the fork, in a format that this one does not read.
    """
    path = f"{METADATA_DIR}/{_FILE}"
    try:
        value = json.loads(folder.get(path))
        refuse_other(f"the fork in {folder}", from_json(value.get("format", to_json(FIRST)), Format), FORK)
        return from_json(value, Fork)
    except FileNotFoundError:
        return None
    except (OSError, *DAMAGE) as error:
        raise DivergenceError(
            f"{folder}/{path} can't be read ({error}); remove the folder, and make the fork again"
        ) from error


def claim(subject: ForkSubject) -> None:
    """Name the fork in its folder as unfinished, unless it is named; raise ConfigError if it holds something else."""
    folder, fork = subject.folder, subject.fork
    if find_fork(folder) is None:
        if not _is_free(folder):
            raise ConfigError(f"{folder} is not empty: give the fork a folder of its own")
        # A crash before this leaves nothing. After it, the folder is taken for a fork that is to be made again.
        with durable_step("fork.begin"):
            subject.metadata_dir.put_if_absent(_FILE, _encoded(fork))
    found = find_fork(folder)
    if found is not None and found.is_made:
        raise ConfigError(
            f"{folder} holds the fork {found.topology!r} already, of transaction {found.txid}: give the new one a "
            "folder of its own, or remove that one"
        )
    # The lead of its id keeps others from making it at the same time, so it can't be made under another one.
    if found is not None and found.topology != fork.topology:
        raise ConfigError(
            f"{folder} holds a fork {found.topology!r} that is not finished: make it with --id {found.topology}, or "
            "remove the folder"
        )
    if found is not None and found.plan is not None and _begins(found.plan) != _begins(subject.plan):
        is_other = found.txid == subject.plan.txid
        why = "the topology has gone back since, and that is another one by now" if is_other else "it begins there"
        raise ConfigError(
            f"{folder} holds a fork of transaction {found.txid} that is not finished, and {why}: remove the folder to "
            "make another one"
        )


def _begins(plan: GoTo) -> GoTo:
    """Return a plan without what changes while the topology goes on."""
    return attrs.evolve(plan, until=0, last_txids={})


def _is_free(folder: Folder) -> bool:
    """Whether there is nothing in a folder, except drafts that a crash may have left."""
    found = {*folder.names(), *folder.folders()}
    return folder.is_empty() or (found == {METADATA_DIR} and folder.is_empty(METADATA_DIR))


def make(subject: ForkSubject, coordinator_state: CoordinatorState) -> None:
    """Make a fork that was claimed, with the lead of the new topology.

    Raises:
        ConfigError: it is finished by now, or the store has another topology of that id.
        StateAccessError: the origin no longer keeps a version of a table, or has gone back.
    """
    claim(subject)  # again: another process may have made it, or has removed its own, until this one had the lead
    before, files = find_fork(subject.folder), subject.metadata_dir
    known = {subject.fork.incarnation, before.incarnation if before is not None else ""}
    if coordinator_state.is_begun and coordinator_state.incarnation not in known:
        raise ConfigError(
            f"the store has a topology {subject.fork.topology!r} already: choose another id for the fork with --id"
        )
    _clear(subject.folder, before or subject.fork)
    if isinstance(files, LocalFolder):
        files.remove_drafts()
    files.put(_FILE, _encoded(subject.fork))

    def begin_journal(header: JournalHeader) -> None:
        # 1. A table is made. 2. The origin goes back, and commits other transactions of the same numbers. 3. The next
        # table would have rows of those.
        _refuse_turned(subject)
        JournalWriter(find_journal(files, subject.fork.topology), header, PART_BYTES_MAX)

    fill(subject, coordinator_state, begin_journal)
    with durable_step("fork.end"):
        files.put(_FILE, _encoded(attrs.evolve(subject.fork, is_made=True)))


def _refuse_turned(subject: ForkSubject) -> None:
    """Raise StateAccessError if a fork's origin, by its journal, has gone back since the point was found."""
    origin = subject.origin
    headers = JournalSearch(find_journal(origin.metadata_dir, origin.topology_id)).headers()
    if not headers or (headers[-1].incarnation, headers[-1].turns) != (subject.plan.incarnation, subject.turns):
        raise StateAccessError(
            f"topology {origin.topology_id!r} has gone back or has begun anew while the fork was made; nothing is left "
            "of it: make it again"
        )


def fill(
    subject: ForkSubject, coordinator_state: CoordinatorState, begin_journal: Callable[[JournalHeader], object]
) -> None:
    """Make tables, journal and coordinator state of a fork; StateAccessError if the origin lost a table's version."""
    opened: dict[str, OpenedState] = {}
    try:
        # What is no table of the fork's folder is opened by its first run: no next try could remove it.
        marks = subject.marks
        for name in [name for name in marks if name in subject.fork.tables]:
            # A crash leaves some of the tables, perhaps one without a log; the next try removes them all.
            with durable_step("fork.table"):
                state, origin = subject.states[name], subject.origin.states[name]
                opened[name] = copied(state, origin, marks[name], coordinator_state, name, subject.fork.incarnation)
        told = {name: subject.folds.get(marks[name].identity, {}) for name in opened}
        marks |= {name: mark_of(each, marks[name]) for name, each in opened.items()}
        folds = {marks[name].identity: own for name, own in told.items() if own}
        plan = subject.plan
        committed = CommittedMark(plan.txid, plan.metadata, marks, plan.planned)
        with durable_step("fork.journal"):
            owner = subject.fork.topology, subject.fork.incarnation, coordinator_state.epoch
            begin_journal(header_after(committed, owner, subject.origin.spouts, subject.fork.tables))
        # A crash after this leaves a fork that lacks nothing but its name as finished, so it is made again.
        with durable_step("fork.state"):
            coordinator_state.found(
                subject.fork.incarnation, committed, subject.origin.spouts, subject.begun, subject.source, folds
            )
    finally:
        for each in opened.values():
            each.close()


def discard(folder: Folder, fork: Fork) -> None:
    """Remove a fork that could not be made, with its folder if that is empty then; nobody may have its store open."""
    _clear(folder, fork)
    metadata_dir = folder.below(METADATA_DIR)
    for name in metadata_dir.folders():
        metadata_dir.delete_all(name)
    for name in metadata_dir.names():
        if name != _FILE:
            metadata_dir.delete(name)
    # Last: a crash before this leaves a fork that is not finished, for the next try.
    metadata_dir.delete(_FILE)
    for each in (metadata_dir, folder):
        if each.is_empty():
            each.delete_all()


def copied(  # noqa: PLR0913, PLR0917 - a table, its origin, and its owner
    state: State, origin: State, mark: StateMark, coordinator_state: CoordinatorState, name: str, incarnation: str
) -> OpenedState:
    """Make the table of a state as another one was, with the columns of fields that it did not have yet, and open it.

    ``state``, whose table's place is free, gets what ``mark`` says of ``origin``, and the name, the incarnation and the
    coordinator state of its topology.

    Raises:
        StateAccessError: the origin no longer keeps that version.
    """
    owner = coordinator_state.topology_id, name, incarnation, coordinator_state.epoch
    if mark.txid and isinstance(state, CanBeForked):
        state.fork(str(origin.address), mark.txid, *owner)
    opened = growing(state).open(*owner)
    if isinstance(opened, GrowsColumns):
        opened.grow()
    return opened


def mark_of(state: OpenedState, copied_mark: StateMark) -> StateMark:
    """Return the mark of a table that was copied as of a mark."""
    return StateMark(state.identity, state.last_txid, state.version, None, copied_mark.begun_after)


def _clear(folder: Folder, fork: Fork) -> None:
    for path in fork.tables.values():
        folder.delete_all(path)
    find_journal(folder.below(METADATA_DIR), fork.topology).delete_all()


def _encoded(fork: Fork) -> bytes:
    return json.dumps(to_json(fork), indent=2).encode()
