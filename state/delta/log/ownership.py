"""The owner of a Delta table, and the fence that keeps coordinators of older epochs from writing to it.

The *owner* is written to the table's configuration when it is created, and compared whenever it is opened. A table of
another topology, state, incarnation or kind, or with other columns, is refused before anything is written. So is a
table that txtopo did not create.

The *fence*: a coordinator that has lost its lead writes nothing more. Every Delta write carries two application
transactions: ``<topology>/<state>`` → txid and ``<topology>/epoch`` → epoch. Opening a state writes only the second
one, the *marker*. After that, a coordinator of an older epoch cannot write, however the two interleave. If the old one
looks after the marker:

1. New writes the marker.
2. Old looks at the table, sees a marker newer than its epoch, and stops.

If it looked before:

1. Old looks at the table, sees no marker, and is paused.
2. New writes the marker.
3. Old writes. The version after the one that it saw is taken (see :mod:`state.delta.log.put`), so it looks again, and
   stops.

So a write never moves behind another writer's version unseen, as delta-rs and Spark let it. If it did so after another
writer's append, both would be in the table, and rows could be there twice.

If topology or state are renamed, the owner gets the new names, and the application transactions keep the former ones:
so all versions carry the same, and the fence keeps out whoever has opened the table under the former name.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
from deltalake import DeltaTable, Schema
from deltalake.exceptions import DeltaError

from state.delta.log.damage import state_failure
from state.delta.log.entries import EPOCH_KEY, RESTORED_KEY, TURN_KEY, TXID_KEY, entry_path
from state.delta.log.growth import Growth, columns_misfit, first_protocol
from state.delta.log.location import LOG_FOLDER, Location
from state.delta.log.put import Change, entry_of
from state.delta.log.vectors import VECTORS_FEATURE, VECTORS_PROPERTIES, has_vectors
from txtopo.api.values import StateKind
from txtopo.columnar.rows_by_time import BEFORE_ALL
from txtopo.errors import ConfigError, DivergenceError, LostLead
from txtopo.files.durable import make_folder
from txtopo.files.formats import TABLE, Format, refuse_other

_EPOCH = "epoch"

WORLD_ERRORS = (DeltaError, OSError, pa.ArrowException)
"""The errors of delta-rs and its readers for failures outside txtopo."""


@attrs.frozen
class Fence:
    """The right of one coordinator to write to one table."""

    owner: Owner
    epoch: int

    def check(self, table: DeltaTable) -> None:
        """Raise LostLead if a newer epoch has opened the table; ``table`` must be the handle that will write."""
        owner, marker = self.owner, Numbers.of(table, self.owner.application).epoch or 0
        if marker > self.epoch:
            raise LostLead(
                f"state {owner.state!r} of topology {owner.topology_id!r} was opened by a coordinator of epoch "
                f"{marker}; this one has epoch {self.epoch} and writes nothing more"
            )

    def put(self, location: Location, version: int, change: Change) -> bool:
        """Put a version of a table that nobody writes to by a writer; return False if somebody else was faster."""
        entry = self.entry(change, version, int(time.time() * 1000))
        return location.folder.put_if_absent(entry_path(version), entry)

    def entry(self, change: Change, version: int, time_ms: int) -> bytes:
        """Return the log entry of a version that this coordinator makes; see :func:`entry_of`."""
        mine = {EPOCH_KEY: self.epoch, TXID_KEY: change.txid, RESTORED_KEY: change.restored, TURN_KEY: change.turn}
        application = self.owner.application
        numbers = {
            _epoch_in(application): self.epoch,
            application: change.txid,
            application + _ROLLED_BACK: None if change.restored is None else version,
            application + _TURNED: None if change.turn is None else version,
            application + _TAKEN: change.taken,
            application + _TTL: change.ttl,
        }
        commit_info, applications = (
            {name: number for name, number in known.items() if number is not None} for known in (mine, numbers)
        )
        return entry_of(change, {name: str(number) for name, number in commit_info.items()}, applications, time_ms)


_ROLLED_BACK, _TURNED, _TAKEN, _TTL = "/rolled-back", "/turned", "/taken", "/ttl"


def _epoch_in(application: str) -> str:
    topology_id, _, _ = application.partition("/")  # which has no slash
    return f"{topology_id}/{_EPOCH}"


@attrs.frozen
class Numbers:
    """What a version of a state's table carries as application transactions; each is read when it is asked for.

    Their ids begin with the one of the table's txids, its *application*. None for what the version does not carry.
    """

    _number_of: Callable[[str], int | None]
    _application: str

    @staticmethod
    def of(table: DeltaTable, application: str) -> Numbers:
        """Return those of a handle's version: of itself and of those before."""
        return Numbers(table.transaction_version, application)

    @staticmethod
    def in_entry(actions: Iterable[Mapping[str, Any]], application: str) -> Numbers:
        """Return those that the actions of one version have."""
        versions = {action["txn"]["appId"]: action["txn"]["version"] for action in actions if "txn" in action}
        return Numbers(versions.get, application)

    @property
    def epoch(self) -> int | None:
        """The newest epoch that has opened the table."""
        return self._number_of(_epoch_in(self._application))

    @property
    def txid(self) -> int | None:
        """The last transaction."""
        return self._number_of(self._application)

    @property
    def rolled_back_at(self) -> int | None:
        """The last version made by a roll-back."""
        return self._number_of(self._application + _ROLLED_BACK)

    @property
    def turned_at(self) -> int | None:
        """The last version that marks a turn of the topology."""
        return self._number_of(self._application + _TURNED)

    @property
    def taken(self) -> int | None:
        """The time up to which expired rows are taken out, in µs since 1970 UTC."""
        return self._number_of(self._application + _TAKEN)

    @property
    def taken_until(self) -> int:
        """The same; before all times if none are."""
        until = self.taken
        return BEFORE_ALL if until is None else until

    @property
    def ttl(self) -> int | None:
        """How long keys live, in microseconds."""
        return self._number_of(self._application + _TTL)


@contextlib.contextmanager
def failing(problem: str, location: Location) -> Iterator[None]:
    """Raise errors of the world as a StateFailure that says what failed; see :func:`state_failure`."""
    try:
        yield
    except WORLD_ERRORS as error:
        raise state_failure(problem, error, location.root) from error


_EXPIRES = "txtopo.expires"
_TOPOLOGY, _STATE, _INCARNATION, _KIND = "txtopo.topology", "txtopo.state", "txtopo.incarnation", "txtopo.kind"
_LABEL = "txtopo.application"
_FORMAT, _NEEDS = "txtopo.format", "txtopo.format.needs"

_WAY_OUT = (
    "Give the state another path; or, if the table is no longer needed, remove it; or, if it belongs to "
    "coordinator state that was lost, restore that, or try 'txtopo repair'"
)


@attrs.frozen
class Owner:
    """The owner of a table, with the incarnation of the topology in which the table was created."""

    topology_id: str
    state: str = attrs.field()
    incarnation: str
    kind: StateKind
    expires: str = ""
    """The field with the time by which a row expires; empty if rows do not expire."""
    label: str = attrs.field(default="", eq=False)
    """The application id of the table's txids if topology or state were renamed since it was made; otherwise empty."""

    @state.validator
    def _check_state(self, _attribute: object, state: str) -> None:
        if state == _EPOCH:
            raise ConfigError(f"a state cannot be named {_EPOCH!r}: the table's fence uses that name; rename it")

    @staticmethod
    def of(table: DeltaTable) -> Owner | None:
        """Return the owner of ``table``, None if it is not txtopo's; StopError if it has another format."""
        configuration = table.metadata().configuration
        if _FORMAT in configuration:
            stored_format = Format(int(configuration[_FORMAT] or 0), configuration.get(_NEEDS) or "")
            refuse_other(f"the table at {table.table_uri}", stored_format, TABLE)
        names = (_TOPOLOGY, _STATE, _INCARNATION, _KIND)
        if any(configuration.get(name) is None for name in names):
            return None
        topology_id, state, incarnation, kind = (configuration[name] for name in names)
        if kind not in {known.value for known in StateKind}:
            return None
        expires, label = configuration.get(_EXPIRES) or "", configuration.get(_LABEL) or ""
        return Owner(topology_id, state, incarnation, StateKind(kind), expires, label)

    def take(
        self,
        location: Location,
        schema: pa.Schema,
        partition_by: Sequence[str] = (),
        growth: Growth = Growth.ASKED,
        *,
        with_vectors: bool | None = False,
    ) -> DeltaTable:
        """Return a handle of this owner's table; create the table if it does not exist.

        ``growth`` says whether it may lack columns; see :func:`~state.delta.log.growth.columns_misfit`. With vectors,
        it must have been made for them, and otherwise for none; None: either.

        Raises:
            DivergenceError: the table has another owner, or the path holds something else.
            ConfigError: it is made for deletion vectors and the state does not declare them, or the reverse.
        """
        table = location.existing() or self._make(location, schema, partition_by, with_vectors=bool(with_vectors))
        owner = Owner.of(table)
        if owner is None:
            raise not_ours(location)
        is_own = owner == self
        is_checked = is_own and with_vectors is not None
        vectors = vectors_misfit(table, with_vectors=bool(with_vectors)) if is_checked else None
        if vectors is not None:
            raise ConfigError(f"state {self.state!r}: the table at {location.address} can't be opened: {vectors}")
        misfit = columns_misfit(table, schema, partition_by, growth) if is_own else f"it belongs to {owner.text()}"
        if misfit is not None:
            raise self._divergence(location, table, misfit)
        return table

    @property
    def application(self) -> str:
        """The application id that carries the table's txids."""
        return self.label or f"{self.topology_id}/{self.state}"

    @property
    def configuration(self) -> dict[str, str]:
        """The properties of this owner's table."""
        return {
            _TOPOLOGY: self.topology_id,
            _STATE: self.state,
            _INCARNATION: self.incarnation,
            _KIND: self.kind.value,
            _FORMAT: str(TABLE.number),
            _NEEDS: TABLE.needs,
            **({_EXPIRES: self.expires} if self.expires else {}),
            **({_LABEL: self.label} if self.label else {}),
        }

    def among(self, configuration: Mapping[str, Any]) -> dict[str, Any]:
        """Return the properties of a table, with this owner in place of the one that they name."""
        more = {name: value for name, value in configuration.items() if name not in {_EXPIRES, _LABEL}}
        return {**more, **self.configuration}

    def renamed(self, topology_id: str, state: str) -> Owner:
        """Return the owner of the same table under other names."""
        return attrs.evolve(self, topology_id=topology_id, state=state, label=self.application)

    def fence(self, epoch: int) -> Fence:
        """Return the right of a coordinator of an epoch to write to the table."""
        return Fence(self, epoch)

    @property
    def description(self) -> str:
        """What the table says of itself to people."""
        return f"State {self.state} of the txtopo topology {self.topology_id}"

    def text(self) -> str:
        """Return the owner in words."""
        kind, expires = self.kind.value, f", expires {self.expires!r}" if self.expires else ""
        return (
            f"topology {self.topology_id!r}, state {self.state!r}, incarnation {self.incarnation!r}, kind {kind!r}"
            f"{expires}"
        )

    def first_actions(
        self, protocol: Mapping[str, Any], schema: Schema, partition_by: Sequence[str], properties: Mapping[str, str]
    ) -> list[Mapping[str, Any]]:
        """Return the log's actions that begin a new table of this owner, with other properties beside its own."""
        metadata = {
            "id": str(uuid.uuid4()),
            "name": self.state,
            "description": self.description,
            "format": {"provider": "parquet", "options": {}},
            "schemaString": schema.to_json(),
            "partitionColumns": list(partition_by),
            "configuration": self.among(properties),
            "createdTime": int(time.time() * 1000),
        }
        return [{"protocol": protocol}, {"metaData": metadata}]

    def _make(
        self, location: Location, schema: pa.Schema, partition_by: Sequence[str], *, with_vectors: bool
    ) -> DeltaTable:
        foreign = location.foreign_file()
        if foreign is not None:
            raise not_empty(location, foreign)
        if location.root is not None:
            make_folder(location.root / LOG_FOLDER)
        protocol = first_protocol(schema, *([VECTORS_FEATURE] if with_vectors else ()))
        properties = VECTORS_PROPERTIES if with_vectors else {}
        actions = self.first_actions(protocol, Schema.from_arrow(schema), partition_by, properties)
        entry = entry_of(Change(metadata=actions, is_first=True), {EPOCH_KEY: "0"}, {}, int(time.time() * 1000))
        # Whoever is faster has made the table. A crash before this leaves a folder without one, and one after it an
        # empty table, which the next coordinator takes.
        location.folder.put_if_absent(entry_path(0), entry)
        return location.handle()

    def _divergence(self, location: Location, table: DeltaTable, problem: str) -> DivergenceError:
        owner = Owner.of(table) or self
        last = table.transaction_version(owner.application)
        history = "nothing has been written to it" if last is None else f"its last transaction is {last}"
        return DivergenceError(
            f"the table at {location.address} does not belong to {self.text()}: {problem}; {history}. {_WAY_OUT}.",
            txid=last,
        )


def vectors_misfit(table: DeltaTable, *, with_vectors: bool) -> str | None:
    """Describe that a table is made for deletion vectors and its state does not declare them, or the reverse."""
    if has_vectors(table.metadata().configuration) == with_vectors:
        return None
    if with_vectors:
        return (
            "it has no deletion vectors, which the state declares; 'txtopo evolve MODULE' turns them on, or leave out "
            "deletion_vectors=True"
        )
    return (
        "it has deletion vectors, which the state does not declare; 'txtopo evolve MODULE' turns them off, or add "
        "deletion_vectors=True"
    )


def not_ours(location: Location) -> DivergenceError:
    """Return the error for a Delta table that txtopo did not create."""
    return DivergenceError(f"the Delta table at {location.address} was not made by txtopo. {_WAY_OUT}.")


def not_empty(location: Location, foreign: Path) -> DivergenceError:
    """Return the error for a folder with other files."""
    return DivergenceError(
        f"{location.address} is not a Delta table, and it is not empty: it contains {foreign.name}. {_WAY_OUT}."
    )
