"""What the author of a state must know; :mod:`txtopo.api.map_state` is what a bolt sees of it.

A *topology* declares a :class:`State` with ``builder.set_state``. The coordinator that leads opens it as an
:class:`OpenedState`, and writes each commit group into it:

1. The group's bolts read values with :meth:`OpenedState.multi_get`. What they put stays in txtopo's buffer, on top of
   the durable values; :meth:`OpenedState.check` looks at it while the component that put it is known.
2. :meth:`OpenedState.prepare` makes all that the write needs durable, but nothing of it visible, and returns a *note*.
3. The coordinator state records the notes of all states of the group in one step, which decides the group: without it
   nothing ever becomes visible, and with it the coordinator, or whoever leads after it, publishes every note.
4. :meth:`OpenedState.publish` makes what a note describes visible with its txid, in one atomic step. It does nothing if
   the transaction is visible already, so it may be repeated.

A state that can't hide what it writes has only :meth:`OpenedState.write`: then the note holds the values themselves.

A keyed state stores the values of its *kind*, whose rules are in :mod:`txtopo.api.values`, and returns them as they
are. What comes after ``OpenedState`` is optional: a state has a capability if its class inherits it, and the tests in
:mod:`txtopo.testing.conformance.state` find out which it has.
"""

from __future__ import annotations

import base64
import datetime as dt
import pickle
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal, Protocol

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from txtopo.api.data.fields import Fields
from txtopo.api.dataset import Dataset
from txtopo.api.map_state import takes_no_rows
from txtopo.api.reduction import Folding
from txtopo.api.time_to_live import TimeToLive
from txtopo.api.values import Key, StateKind, StateValue
from txtopo.api.writes import KeyedWrites, Reducible, Rows, RowsFile, RowsMode, TransactionRows, Writes
from txtopo.files.folder import Folder

SchemaEvolution = Literal["add"]
"""How a state's table may change its columns: by adding those of fields that are new."""

_PICKLED = "pickled"
"""In the note of a state that can't hide what it writes: the values."""


class State(ABC):
    """A state as declared with ``builder.set_state``: picklable, opened by the coordinator that leads."""

    key: Fields
    value: Fields
    kind: StateKind
    partition_by: Sequence[str] = ()
    """The fields that a rows table is partitioned by."""
    expires: str = ""
    """The field with the time by which a row expires; empty if rows do not expire."""
    time_to_live: TimeToLive | None = None
    """How long the keys of a keyed state live; None if they do not expire."""
    schema_evolution: SchemaEvolution | None = None
    """``"add"`` if the table gets the columns that it lacks when a run begins; None if they are refused."""
    deletion_vectors: bool = False
    """Whether its table is made for deletion vectors of Delta."""
    turns_vectors: bool = False
    """Whether a table of the other sort is made as declared when it is opened, and not refused."""
    retry_secs: float = 3.0
    """For how long a write that fails is tried again before the run stops; more than 3 s for what takes long to mend
    itself, such as an election of leaders."""

    def as_rows(self, name: str, rows: Rows) -> pa.Table:
        """Return ``rows`` as an Arrow table with the columns of this rows table; see :meth:`MapState.as_rows`.

        ``name`` is the state's, for errors.
        """
        raise takes_no_rows(self)

    def fitted(self, name: str, keys: Sequence[Key], values: Sequence[Any]) -> Sequence[Key]:
        """Return keys in the form in which the state stores them; unchanged by default.

        ``name`` is the state's, for errors; ``values``, one for each key, are checked, but not stored.

        Raises:
            FieldsError: a key or a value does not fit its field.
        """
        del name, values
        return keys

    @abstractmethod
    def open(self, topology_id: str, name: str, incarnation: str, epoch: int) -> OpenedState:
        """Open the state for writing, and fence every coordinator of an earlier epoch.

        Args:
            topology_id: the topology that the state belongs to.
            name: the state's name in that topology.
            incarnation: a random id, drawn when the topology's coordinator state was created. The state stores it
                when it is created itself; a different one later means that the two do not belong together.
            epoch: the epoch of the coordinator that opens the state.

        Raises:
            DivergenceError: the state belongs to another topology, another state name or another incarnation.
            LostLead: a newer epoch has opened the state.
        """

    @abstractmethod
    def snapshot(self, txid: int | None = None) -> pa.Table:
        """Return all rows (key fields, value fields, txid) as of transaction ``txid`` or the latest.

        For readers outside a topology.
        """

    def table(self) -> StateTable | None:
        """Return the state's table for inspection without opening the state; None if that is not supported."""
        return None

    def forked(self, topology_id: str) -> State | None:
        """Return this state for a fork of its topology: empty, at a place of its own. By default None: it has none.

        For states that are no :class:`CanBeForked`. It is called before each run of the fork, and must name the same
        place each time; nothing is opened.

        Args:
            topology_id: the fork's.
        """
        del topology_id
        return None

    @property
    def is_durable(self) -> bool:
        """Whether the state outlives the process."""
        return True

    @property
    def address(self) -> str | None:
        """The table's path, for readers outside a topology; None if it cannot be read from outside."""
        return None

    @property
    def dataset(self) -> Dataset | None:
        """The table as catalogs of lineage name it; None: by the topology's id and the state's name."""
        return None if self.address is None else Dataset.at(self.address)

    @property
    def home(self) -> str | None:
        """Where the metadata directory is if ``topology.state.dir`` is not set; None if the state has no preference.

        A folder, or an address in an object store.
        """
        return None

    @property
    def storage_options(self) -> Mapping[str, str] | None:
        """The options of the object store that :attr:`home` is in; None: from the environment."""
        return None

    def in_store(self, options: Mapping[str, str] | None) -> State:
        """Return this state with options of its object store, unless it has some or is in none."""
        return self


class OpenedState(ABC):
    """A state opened by the coordinator that leads the topology. Not for bolts.

    *An implementation* must make :meth:`publish` one atomic, durable step that carries ``(txid, epoch)``; by default it
    calls :meth:`write`, which then must be that. It must refuse to write once a newer epoch is known, and do nothing if
    the table has the transaction already, because txtopo repeats a failed write whose outcome is unknown. The
    implementation raises :class:`~txtopo.errors.StateFailure` if the table cannot be read or written for external
    reasons; txtopo tries again a few times and then stops the run. Any other FailedException counts as a StateFailure;
    any other exception is a bug and stops the run at once.

    *txtopo* guarantees to call it from one thread at a time, with rising txids, but for what only fits rows: see
    :class:`FoldsRows` and :class:`TakesRows`.

    This is all that a state needs; the capabilities below are optional.
    """

    declared: State
    """The declared state: its kind decides what is stored with a value, its fields how values are copied for bolts."""

    @property
    @abstractmethod
    def identity(self) -> str:
        """An id that differs from that of any other table ever created at the same place: Delta's table id, say."""

    @property
    @abstractmethod
    def last_txid(self) -> int | None:
        """The txid of the last write, read anew at each access; None before the first write."""

    @property
    def version(self) -> int | None:
        """The last table version that this coordinator wrote; None if tables have no versions."""
        return None

    @abstractmethod
    def multi_get(self, keys: Sequence[Key]) -> list[StateValue | None]:
        """Return the durable value of each key, or None.

        Raises:
            FieldsError: a key does not fit the key fields.
            StateFailure: the table cannot be read at the moment; the message names what cannot be read. txtopo
                retries, and stops the run if that does not help.
        """

    def check(self, values: KeyedWrites) -> None:
        """Raise for values that :meth:`write` would refuse; called while the component that put them is known.

        A group whose values have passed is decided, and must be written then: a refusal after that would stop every
        run until it is mended.

        Args:
            values: what a transaction has put so far, without previous values.

        Raises:
            FieldsError: a key or value does not fit the fields.
        """

    def prepare(self, txid: int, values: Writes) -> Any:
        """Make all that a write needs durable, but nothing of it visible, and return the note to publish it from.

        The note is JSON. A note that no group has decided is never published; what it refers to is then garbage. By
        default :meth:`check` looks at the values, and the note holds them, pickled.

        Raises:
            FieldsError: a key or value does not fit the fields: the last chance to refuse it.
        """
        if isinstance(values, Mapping):
            self.check(KeyedWrites.of(self.declared.kind, txid, values))
        return {_PICKLED: base64.b64encode(pickle.dumps(values)).decode()}

    def publish(self, txid: int, note: Any) -> None:
        """Make a prepared write of any epoch visible as of transaction ``txid``, in one atomic, durable step.

        Does nothing but make it durable if the transaction is visible already.

        Raises:
            LostLead: a newer epoch has fenced this one; nothing was written.
            DivergenceError: the write can no longer be made: what was prepared is gone, or somebody else has changed
                the table; nothing was written.
        """
        self.write(txid, pickle.loads(base64.b64decode(note[_PICKLED])))  # noqa: S301 - ours, from our store

    @abstractmethod
    def write(self, txid: int, values: Writes) -> None:
        """Insert, replace or remove the row of each key, as of transaction ``txid``, in one atomic step.

        Raises:
            FieldsError: a key or value does not fit the fields; nothing was written.
            LostLead: a newer epoch has fenced this one; nothing was written.
        """

    def clean_up(self) -> None:
        """Remove what coordinators of this epoch and of earlier ones have prepared and nobody will publish.

        *txtopo* calls this when a run begins, after it has published the group that was decided. By default it does
        nothing.
        """

    @abstractmethod
    def snapshot(self, txid: int | None = None) -> pa.Table:
        """Return all rows (key fields, value fields, txid) as of transaction ``txid`` or the latest."""

    @property
    def rewritten_bytes(self) -> int:
        """About how many bytes of rows that it does not change the last prepared write writes again; 0 by default.

        If they are many, txtopo makes fewer, larger groups.
        """
        return 0

    @property
    def is_upkeep_due(self) -> bool:
        """Whether the next :meth:`maintain` may remove the history of the table; False by default.

        *txtopo* then makes durable, before, which version it has seen last, so that a start after a crash does not look
        for one that is gone.
        """
        return False

    def maintain(self) -> None:
        """Run table maintenance; called between writes, after the last one is committed. Does nothing by default.

        Raises:
            FailedException: it failed and the rows are unchanged. txtopo logs a warning and calls it again after a
                later write; any other error stops the run.
            LostLead: a newer epoch has fenced this one; nothing was done.
        """

    def close(self) -> None:
        """Release resources. Does nothing by default."""


class Executors(Protocol):
    """Runs a function on several items at once, in other processes or in this one."""

    slots: int
    """The number of items that run at the same time."""

    def compute(self, function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        """Return ``function(item)`` for each item, in order; function and items must pickle.

        Raises:
            FailedException: some of the work was lost; the caller may try again.
        """


# Optional capabilities


class FoldsRows(ABC):
    """Folds the rows of a whole commit group at once, instead of key by key."""

    @abstractmethod
    def reducible_rows(self, values: Reducible, reduction: Folding) -> Reducible | None:
        """Return ``values`` as rows for :meth:`fold`; None if they must be folded key by key.

        It looks at nothing but its arguments, as :meth:`rows_to_put` does: either is called beside writes, too.
        """

    def rows_to_put(self, txid: int, values: KeyedWrites) -> Reducible | None:
        """Return what a transaction puts and removes, without previous values, as rows for :meth:`fold`.

        None, the default: the state gets the last value of each key instead, as :class:`KeyedWrites`.

        Raises:
            FieldsError: a key or value does not fit the fields.
        """
        return None

    @abstractmethod
    def fold(self, parts: Sequence[TransactionRows], reduction: Folding | None) -> Writes | None:
        """Fold the rows of consecutive transactions into the durable values; return the write.

        Args:
            parts: the rows of each transaction, in txid order, as :meth:`reducible_rows` or, without a reduction,
                :meth:`rows_to_put` returned them. No durable value includes a transaction whose rows are put.
            reduction: the function to fold with; None: the last row of a key is put in the place of the durable one.

        Returns:
            The write; None if a result does not fit its field or a stored value already contains one of the
            transactions, which are folded key by key then. What is put always becomes a write.
        """


class FindsRows(FoldsRows):
    """Is a keyed state that also looks keys up in columns.

    A transaction then learns what it changes without a Python object for each key.
    What :meth:`rows_to_put` returns, and what :meth:`fold` without a reduction takes, are tables of the key fields, the
    value fields and a long ``txid``; a row without a txid removes its key.
    """

    @abstractmethod
    def rows_among(self, keys: pa.Table) -> tuple[npt.NDArray[np.int64], pa.Table]:
        """Return the durable rows of those of some keys that exist, and the position of each one's key among them.

        Args:
            keys: a table of the key fields; a key may come several times.

        Returns:
            Positions from 0, and a row for each: key fields, value fields, maybe others, and ``txid``.
        """

    @abstractmethod
    def rows_as_kept(self, rows: pa.Table) -> pa.Table | None:
        """Return rows of the key fields and then the value fields, with any names, as they are kept.

        None: they are no rows that fit; key by key the state says what does not. It is called beside writes, too.
        """


class ExpiresKeys(ABC):
    """Is a keyed state whose keys may expire; see :mod:`txtopo.api.time_to_live`.

    It may drop a key once a transaction was written, since it was opened, for which the key had expired, not before:
    that transaction tells of it whoever follows the table's changes. It may return such keys as long as it has them:
    txtopo leaves them out. In :meth:`FoldsRows.fold` each part has the time up to which keys have expired for its
    transaction, and the fold is cut where a key has.
    """

    @abstractmethod
    def expired_until(self, watermark: dt.datetime | None) -> int:
        """Return the time up to which keys have expired for good; a time before all others if none has.

        That is what had expired for the last write. If the time to live is another one than before a restart, it is
        what had expired by the former one at ``watermark``, which is that of the first transaction then.
        """

    @abstractmethod
    def expired_rows(self, until: int) -> pa.Table:
        """Return the durable rows that it still has of keys whose time is at or before another one, in any order.

        Args:
            until: the time, in µs since 1970 UTC.

        Returns:
            A table of the key fields, the value fields, maybe others, and ``txid``.
        """


class TakesRows(ABC):
    """Is a rows table: takes rows without keys, by appending them or replacing partitions."""

    @abstractmethod
    def rows_to_write(self, rows: Rows, mode: RowsMode) -> pa.Table | RowsFile:
        """Return rows in the form that :meth:`write_rows` takes. It is called beside writes, too.

        Raises:
            FieldsError: a value does not fit its field.
            StateAccessError: the table cannot be written in this mode.
        """

    @abstractmethod
    def write_rows(self, parts: Sequence[TransactionRows]) -> Writes:
        """Return the write that puts the rows of several transactions into the table, in txid order.

        It leaves out the rows of transactions that the table already contains.

        Args:
            parts: the rows of each task of each transaction, in txid order, as :meth:`rows_to_write` returned them.

        Raises:
            FailedException: some of the work was lost; the caller may try again.
        """


class ExpiresRows(ABC):
    """Is a rows table whose rows expire, each at a time of its own, and are taken out of it then.

    The writes that :meth:`TakesRows.write_rows` makes of such a table also have parts that take rows out. Times are in
    µs since 1970 UTC. A row whose time is not after the last such time is gone.
    """

    @abstractmethod
    def taken_until(self) -> int:
        """Return the time up to which rows are taken; a time before all others if none is."""

    @abstractmethod
    def count(self, after: int) -> int:
        """Return the number of rows that expire after a time, at least :meth:`taken_until`."""

    @abstractmethod
    def expired(self, after: int, until: int) -> pa.Table:
        """Return the rows, with the table's fields, that expire after one time and up to another.

        Args:
            after: the time up to which rows are taken, at least :meth:`taken_until`.
            until: the time up to which they are wanted.
        """

    @abstractmethod
    def holds(self, keys: pa.Table, after: int) -> pa.BooleanArray:
        """Return for each key whether it has a row that expires after a time.

        Args:
            keys: the columns of the declared key; two nulls are equal.
            after: the time up to which rows are taken, at least :meth:`taken_until`.
        """

    @abstractmethod
    def of_keys(self, keys: pa.Table, after: int) -> pa.Table:
        """Return the rows, with the table's fields, that have one of some keys and expire after a time.

        Args:
            keys: the columns of the declared key.
            after: the time up to which rows are taken, at least :meth:`taken_until`.
        """


class UsesExecutors(ABC):
    """Delegates work that is too large for the driver to executors."""

    @abstractmethod
    def use_executors(self, executors: Executors, driver_rows_max: int) -> None:
        """Set the executors, and the maximum number of rows that the driver may fold itself."""


@attrs.frozen
class History:
    """What of the past of a topology's tables is kept.

    Args:
        points: transactions that can be returned to, in order: of each, a table keeps its last version up to it.
        recent_secs: for how long every version is kept, also for those who have begun to read it; None: none is removed
            for being old, unless the state itself says so.
        rewind_hours: how old points become.
        now_secs: the time that all of this is said at, in seconds since 1970.
        committed: the last committed transaction, which is kept as points are: it becomes one if it stands for long.
    """

    points: tuple[int, ...]
    recent_secs: int | None
    rewind_hours: int
    now_secs: float
    committed: int = 0


class HoldsRows(ABC):
    """Holds the rows of its table in the driver's memory."""

    @abstractmethod
    def hold_rows(self, bytes_max: int) -> None:
        """Hold at most so many bytes of them there; it may begin to load them, beside what is next."""


class NotesRows(ABC):
    """Can have a group decided before it writes files: the notes of small writes have their rows."""

    @abstractmethod
    def note_rows(self, bytes_max: int) -> None:
        """Put the rows of a write into its note, if they have at most so many bytes.

        Such a group is durable a few milliseconds earlier, and visible as late as ever: its files are written when it
        is published. *txtopo* calls it in real-time mode.
        """


class KeepsHistory(ABC):
    """Removes in its maintenance what only earlier versions of its table need."""

    @abstractmethod
    def keep_history(self, history: History) -> None:
        """Keep what a history names; its maintenance removes the rest. *txtopo* calls it before :meth:`maintain`."""


class CanBeRepaired(ABC):
    """Can return to an earlier transaction and adopt other writers' changes, for ``txtopo repair`` and ``rewind``."""

    @abstractmethod
    def roll_back(self, txid: int | None) -> None:
        """Restore the table to its content after the write of transaction ``txid``, in one atomic step.

        Afterwards its last txid is ``txid``, or 0 if ``txid`` is None (before any write). Does nothing if the table
        is in that state already.

        Raises:
            StateAccessError: the table no longer keeps that version.
            LostLead: a newer epoch has opened the table; nothing was written.
        """

    @abstractmethod
    def record_turn(self, txid: int) -> None:
        """Mark in the table that the topology has gone back to ``txid``, after which transactions begin anew.

        Also where the table has none of the undone ones: nothing else in it would tell that they are.

        Raises:
            LostLead: a newer epoch has opened the table; nothing was written.
        """

    def why_not_adopted(self) -> str | None:
        """Describe why other writers' changes can't be accepted; None if they can.

        *txtopo* asks before it calls :meth:`adopt` of any state.
        """
        return None

    @abstractmethod
    def adopt(self) -> None:
        """Accept other writers' changes as this state's own, as of its last transaction.

        Raises:
            LostLead: a newer epoch has opened the table; nothing was written.
        """


class GrowsColumns(ABC):
    """Can add the columns of new fields to its table, and turn deletion vectors on and off."""

    @abstractmethod
    def grow(self) -> None:
        """Add the columns that the declared fields have and the table lacks, in one atomic step; rows have nulls there.

        In another one, deletion vectors are turned on or off, if the table is to follow the declaration in that.
        *txtopo* calls it when a run begins, after recovery. Does nothing if the table is as declared.

        Raises:
            LostLead: a newer epoch has opened the table; nothing was written.
        """


class CanBeForked(ABC):
    """Is a declared state whose table can be made anew as of a transaction, in another place, for ``txtopo fork``."""

    @abstractmethod
    def moved(self, path: str) -> State:
        """Return this state, with its table at another path in the file system."""

    @abstractmethod
    def fork(self, origin: str, txid: int, topology_id: str, name: str, incarnation: str, epoch: int) -> None:  # noqa: PLR0913, PLR0917 - those of open(), and what to make it from
        """Make this state's table as another one was after the write of a transaction, in one atomic step.

        Others may write to that table meanwhile, and whatever happens to it later must not change the new one. What a
        crash leaves is removed with the new table's folder.

        Args:
            origin: the address of the other table, of a state that is declared like this one.
            txid: the last transaction in the new table.
            topology_id: the new table's owner, as for :meth:`State.open`; so are the others.
            name: the state's name.
            incarnation: the fork's.
            epoch: the epoch of the coordinator that makes it.

        Raises:
            StateAccessError: the table no longer keeps that version.
            ConfigError: such a table can't be forked.
        """


class KeepsVersions(ABC):
    """Is a declared state whose table can be read as of a transaction, for audits and replays."""

    @abstractmethod
    def open_as_of(self, topology_id: str, name: str, txid: int) -> Any:
        """Open the table as of a transaction, read-only and without fencing anybody.

        Raises:
            ConfigError: there is no table.
            StateAccessError: that version is no longer kept.
        """


# The table, inspected without opening the state


@attrs.frozen
class TableDescription:
    """The properties stored in a table."""

    topology_id: str
    """The topology that it was created for."""
    state: str
    """The state's name in that topology."""
    incarnation: str
    """The topology's incarnation that created it."""
    identity: str
    """An id that differs from that of any other table ever created at the same place."""
    last_txid: int | None
    """The txid of the last write; None before the first."""
    epoch: int
    """The newest epoch that has opened it; 0 if none has."""
    version: int
    """Its version, counted from 0."""
    misfit: str | None
    """How its columns or its kind differ from the topology's declaration, in words; None if they don't."""
    damage: str | None = None
    """A problem with its files that does not prevent reading it, in words; None if there is none."""
    lacks: tuple[str, ...] = ()
    """The columns, ``name: type``, that the declaration has and the table lacks, if it can get them."""
    turns: str = ""
    """``"on"`` or ``"off"`` if deletion vectors are declared and the table is not made for them, or the reverse."""
    alteration: str | None = None
    """How another writer has changed the table itself, in words, so that it can't be opened before
    :meth:`StateTable.take_back`; None if nobody has."""


class StateTable(ABC):
    """The table of a state that outlives its process.

    *An implementation* must change nothing in any method but :meth:`set_aside` and :meth:`take_back`. *txtopo*
    guarantees to call these only while it holds the lead and nobody has the state open.
    """

    @property
    @abstractmethod
    def address(self) -> str:
        """The table's path or URL, for messages."""

    @abstractmethod
    def describe(self) -> TableDescription | None:
        """Return the table's description, read anew; None if there is no table.

        Raises:
            DivergenceError: something other than a table of a txtopo state is at this place.
            FailedException: the table cannot be reached.
        """

    @abstractmethod
    def foreign_change(self, since: int | None) -> str | None:
        """Describe changes by other writers; None if there are none.

        Args:
            since: the last version that the coordinator state records; this version and all later ones are checked.
                None, or a version above the table's, means the version of the coordinator's last write.
        """

    @abstractmethod
    def obstacle(self, txid: int, note: Any) -> str | None:
        """Describe, as a relative clause about a prepared write, why it can't be published.

        None if it can, or is visible already.
        """

    @abstractmethod
    def undone_to(self, epoch: int) -> int | None:
        """Return the lowest transaction to which a later epoch has rolled the table back; None if none has.

        0 if the table no longer knows.
        """

    def turned_to(self, epoch: int) -> int | None:
        """Return the lowest transaction to which the topology has gone back at a later epoch; None if it has not.

        0 if the table no longer knows. Override it if opened tables have :meth:`CanBeRepaired.record_turn`.
        """
        return None

    @abstractmethod
    def is_kept(self, txid: int | None) -> bool:
        """Return whether the version after the write of transaction ``txid`` (None: before any) is still complete."""

    @property
    def no_past(self) -> str:
        """Why no version before the last can be had, for messages; empty if old ones are kept for a while."""
        return ""

    def kept(self, txids: Collection[int]) -> set[int]:
        """Return those of many transactions that :meth:`is_kept` finds complete; override it to ask once for all."""
        return {txid for txid in txids if self.is_kept(txid)}

    def all_kept(self) -> set[int]:
        """Return all transactions whose versions are complete, if it can list them: that of many tables can't be told.

        Who goes back without saying where to is offered these, and the points of the topology.
        """
        return set()

    def take_back(self, epoch: int) -> None:
        """Make the table as it was before the alteration in its description, in rows, columns and features.

        Does nothing if there is none. Override it if :meth:`describe` finds alterations. ``epoch`` is that of the lead.

        Raises:
            LostLead: a newer epoch has opened the table.
            StateAccessError: what it had before is gone.
        """

    def notes(self) -> Folder | None:
        """Return a folder for notes that are too large for the coordinator's store; None if the table has no room.

        What is put there must last as the table does, whatever becomes of the coordinator's machine. txtopo deletes its
        files, and leaves alone those of others.
        """
        return None

    @abstractmethod
    def asides(self) -> list[int]:
        """Return the numbers under which tables were set aside here before."""

    def why_it_stays(self) -> str | None:
        """Describe why :meth:`set_aside` can't move the table, and how to do it by hand; None if it can.

        No plan to move tables is begun if one of them stays.
        """
        return None

    @abstractmethod
    def set_aside(self, number: int) -> None:
        """Move the table to a name that ends in ``.before-repair-<number>``.

        Does nothing if it is there already, or if there is no table.

        Raises:
            ConfigError: the table cannot be moved; the message explains how to do it by hand.
        """


class CanBeRenamed(ABC):
    """Is a :class:`StateTable` that can get another owner, for ``txtopo rename``."""

    @abstractmethod
    def rename(self, topology_id: str, name: str, epoch: int) -> None:
        """Make it the table of a state and a topology with other names, in one atomic step; all else stays.

        Does nothing if it is that already. What was written under the former names is read under the new ones, and
        whoever has opened the table under the former names, at an earlier epoch, writes nothing more.

        Args:
            topology_id: the topology's id.
            name: the state's name in it.
            epoch: the epoch of whoever leads.

        Raises:
            LostLead: a newer epoch has opened the table.
        """
