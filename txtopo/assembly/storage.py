"""Where a topology keeps what outlives its runs: its metadata directory, its store and its states."""

from __future__ import annotations

import pathlib
import weakref
from collections.abc import Callable, Mapping
from pathlib import PurePosixPath
from typing import Any

from state.delta.keyed.state import DeltaState
from state.stores.memory import MemoryPlace, MemoryStore
from state.stores.objects import ObjectStore
from state.stores.sqlite import SqliteStore, damage_of_store, set_damaged_store_aside
from txtopo.api.data.fields import Fields
from txtopo.api.state import State
from txtopo.api.store import Store
from txtopo.config import Config
from txtopo.errors import ConfigError
from txtopo.files.folder import Folder, LocalFolder
from txtopo.files.objects import ObjectFolder
from txtopo.files.places import folder_at, is_address, local_path
from txtopo.journal.ending import METADATA_DIR
from txtopo.journal.entries import DEAD_LETTERS
from txtopo.journal.folders import FOLDER
from txtopo.journal.tail import STORE_FOLDER
from txtopo.settings.kinds import with_ports
from txtopo.topology.builders.checks import check_places as find_nested, place_of
from txtopo.topology.plans.plan import Plan, shared_storage_options
from txtopo.transactional.recovery.operations.diagnosis import RepairSubject
from txtopo.transactional.recovery.operations.procedure import StorePlace
from txtopo.transactional.recovery.tables import descriptions_of, tables_of

STORE_FILE = "coordinator.sqlite"

DEFAULT_METADATA_DIR = f"txtopo-data/{METADATA_DIR}"
"""The metadata directory of a topology that has no tables, if it needs one."""

_OWN = (FOLDER, "staging", "notes", "backfill", STORE_FILE, STORE_FOLDER)
"""What is in a metadata directory besides files of a run."""

_memory_places: weakref.WeakKeyDictionary[Any, MemoryPlace] = weakref.WeakKeyDictionary()
"""The coordinator state of topologies with in-memory states, by state: it exists as long as its state."""

_PENDING_IN_A_BUCKET = 2
"""How many times the default number of transactions may be pending there: a group waits for three puts, so more are
processed meanwhile and share the next ones. At 40 ms a request, transactions of 1,000 words are committed at 0.82 of
the rate on a disk, the median of fifteen pairs from 0.69 to 0.91; three pairs without it had 0.76, 0.78 and 0.84. On a
disk nothing is gained by it."""


def metadata_dir_of(plan: Plan, config: Config) -> Folder:
    """Return the metadata directory of a topology: where it was said to be, or a folder beside its tables."""
    declared = said_metadata_dir(plan, config)
    if declared is not None:
        return folder_at(declared, shared_storage_options(plan.states.values(), declared))
    for state in plan.states.values():
        if state.home is not None:
            return folder_at(state.home, state.storage_options).below(METADATA_DIR)
    return folder_at(DEFAULT_METADATA_DIR)


def pending_max_of(plan: Plan, config: Config) -> int:
    """Return how many transactions of a topology may be pending, as set, or by default where it is."""
    is_by_default = "topology.max.spout.pending" not in config.given
    return int(config.max_spout_pending) * (_PENDING_IN_A_BUCKET if is_by_default and in_a_bucket(plan, config) else 1)


def in_a_bucket(plan: Plan, config: Config) -> bool:
    """Whether a topology is in an object store, and each write waits for one."""
    return not isinstance(metadata_dir_of(plan, config), LocalFolder)


def said_metadata_dir(plan: Plan, config: Config) -> str | None:
    """Return the metadata directory by ``topology.state.dir``, or by the topology's output; None if none says it."""
    if config.state_dir is not None:
        return str(config.state_dir)
    is_kept = plan.output is not None and any(state.is_durable for state in plan.states.values())
    return f"{str(plan.output).rstrip('/')}/{METADATA_DIR}" if is_kept else None


def check_places(plan: Plan, config: Config, states: Mapping[str, State]) -> None:
    """Raise ConfigError if one of tables and metadata directory lies in another, where it would be deleted with it."""
    for mistake in find_nested(states.items()):
        raise ConfigError(mistake)
    metadata_dir = metadata_dir_of(plan, config)
    metadata_place = place_of(str(metadata_dir))
    for name, state in states.items():
        if state.address is None:
            continue
        table = place_of(state.address)
        if metadata_place.is_relative_to(table):
            raise ConfigError(
                f"the metadata directory {metadata_dir} is inside {state.address}, the table of state {name!r}, and a "
                "vacuum of that one would delete it; set topology.state.dir to a folder outside of all tables"
            )
        if any(table.is_relative_to(metadata_place / each) for each in _OWN):
            raise ConfigError(
                f"state {name!r}: its table {state.address} is where txtopo keeps files of its own, in the metadata "
                f"directory {metadata_dir}; put the table beside that"
            )


def address_from(folder: Folder, address: str) -> str:
    """Return a table's address relative to a folder if it is below it, so that both can be moved together."""
    place = address.rstrip("/") if is_address(address) else str(local_path(address))
    home = PurePosixPath(str(folder))
    return str(PurePosixPath(place).relative_to(home)) if PurePosixPath(place).is_relative_to(home) else place


def make_store(plan: Plan, config: Config) -> Store:
    """Return the store of a topology's coordinator state; the caller closes it."""
    states = list(plan.states.values())
    if config.state_store == "zookeeper":
        port = config["transactional.zookeeper.port"]
        hosts = with_ports(config["transactional.zookeeper.servers"], port)
        from state.stores.zookeeper import ZooKeeperStore  # noqa: PLC0415 - kazoo only where ZooKeeper is used

        return ZooKeeperStore(
            hosts,
            root=config["transactional.zookeeper.root"],
            session_timeout_secs=config["transactional.zookeeper.session.timeout.secs"],
            credentials=config["transactional.zookeeper.auth"],
        )
    folder = store_folder_of(plan, config)
    if folder is not None:
        return ObjectStore(folder.address, dict(folder.options))
    file = store_file_of(plan, config)
    return MemoryStore(_memory_places.setdefault(states[0], MemoryPlace())) if file is None else SqliteStore(file)


def store_file_of(plan: Plan, config: Config) -> pathlib.Path | None:
    """Return where a topology's embedded store is, None for other stores; ConfigError if in an object store."""
    if config.state_store not in {None, "sqlite"} or _is_in_memory(plan, config):
        return None
    metadata_dir = metadata_dir_of(plan, config)
    if isinstance(metadata_dir, LocalFolder):
        return metadata_dir.root / STORE_FILE
    if config.state_store == "sqlite":
        raise ConfigError(
            f"a file of SQLite can't be in {metadata_dir}: leave topology.state.store out, so that coordinator state "
            "is there, too, or set topology.state.dir to a folder on a disk"
        )
    return None


def store_folder_of(plan: Plan, config: Config) -> ObjectFolder | None:
    """Return where a topology's coordinator state is in an object store; None if its store is another one."""
    if config.state_store is not None and is_address(config.state_store):
        options = shared_storage_options(plan.states.values(), config.state_store)
        return ObjectFolder(config.state_store, tuple((options or {}).items()))
    if config.state_store is not None or _is_in_memory(plan, config):
        return None
    metadata_dir = metadata_dir_of(plan, config)
    return metadata_dir.below(STORE_FOLDER) if isinstance(metadata_dir, ObjectFolder) else None


def _is_in_memory(plan: Plan, config: Config) -> bool:
    states = plan.states.values()
    return bool(states) and not any(state.is_durable for state in states) and config.state_dir is None


def store_place(plan: Plan, config: Config) -> StorePlace:
    """Return where a topology keeps its coordinator state."""
    file = store_file_of(plan, config)

    def damage() -> str | None:
        problem = None if file is None else damage_of_store(file)
        if file is None or problem is None:
            return None
        whose = "with the coordinator state of all topologies that use it"
        return f"the store {file.absolute()}, {whose}, is damaged: {problem}"

    def set_aside(owner: str) -> pathlib.Path:
        assert file is not None, "no other store is damaged as a whole"
        return set_damaged_store_aside(file, owner)

    return StorePlace(lambda: make_store(plan, config), MemoryStore, damage, set_aside)


def subject_of(plan: Plan, config: Config) -> RepairSubject:
    """Return a topology as a subject of repair."""
    metadata_dir, states = metadata_dir_of(plan, config), with_kept_letters(plan, config, plan.topology_id)
    return RepairSubject(
        topology_id=plan.topology_id,
        spouts=plan.kinds,
        states=states,
        metadata_dir=metadata_dir,
        addresses={
            name: address_from(metadata_dir.parent, state.address)
            for name, state in states.items()
            if state.address is not None
        },
        optional=optional_states(plan, states),
    )


def store_words(plan: Plan, config: Config) -> str:
    """Return where a topology's coordinator state is, for people; it holds no secret."""
    if config.state_store == "zookeeper":
        hosts = with_ports(config["transactional.zookeeper.servers"], config["transactional.zookeeper.port"])
        return f"ZooKeeper at {hosts}, below {config['transactional.zookeeper.root']}"
    folder = store_folder_of(plan, config)
    if folder is not None:
        return str(folder)
    file = store_file_of(plan, config)
    return "memory" if file is None else str(file)


def states_of(
    plan: Plan, config: Config, make_dead_letters: Callable[[Any, Fields, Fields], State] = DeltaState
) -> dict[str, State]:
    """Return a topology's states, with the one for dead letters if transactions may be skipped."""
    if config.transaction_max_attempts_policy == "SKIP" and config.transaction_max_attempts is not None:
        return {**plan.states, **dead_letters_of(plan, config, make_dead_letters)}
    return dict(plan.states)


def dead_letters_of(
    plan: Plan, config: Config, make_dead_letters: Callable[[Any, Fields, Fields], State] = DeltaState
) -> dict[str, State]:
    """Return the state for dead letters, by its name."""
    if DEAD_LETTERS in plan.states:
        raise ConfigError(f"state name {DEAD_LETTERS!r} is reserved for txtopo; give that state another name")
    path = config.dead_letter_path or str(metadata_dir_of(plan, config).parent.below("dead_letters"))
    value = Fields("attempt: long", "tries: long", "metadata: string", "error: string")
    state = make_dead_letters(path, Fields("transaction: long"), value)
    return {DEAD_LETTERS: state.in_store(shared_storage_options(plan.states.values(), state.home))}


def with_kept_letters(plan: Plan, config: Config, topology_id: str | None = None) -> dict[str, State]:
    """Return a topology's states, with the one for dead letters if it has a table, whatever the policy is now.

    ``topology_id`` is whose the table must be, None for anybody's: a run by WAIT, a 'txtopo skip' before or a change of
    the policy has left it.
    """
    states = states_of(plan, config)
    if DEAD_LETTERS in states:
        return states
    letters = dead_letters_of(plan, config)
    description = descriptions_of(tables_of(letters)).get(DEAD_LETTERS)
    is_own = description is not None and topology_id in {None, description.topology_id}
    return states | (letters if is_own else {})


def optional_states(plan: Plan, states: Mapping[str, State]) -> frozenset[str]:
    """Return the states that txtopo has added to the topology's own: for dead letters, and those of the spout.

    They may come and go with their settings: while a setting is off, there is nothing to put into its state.
    """
    of_spout = {component.id for component in plan.components if component.is_left_out_without_tuples}
    return frozenset(name for name in states if name not in plan.states or name in of_spout)
