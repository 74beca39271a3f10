"""The values of a topology in a store: their names, how they are encoded, and those that repairs have set aside."""

from __future__ import annotations

import contextlib
import json
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

import attrs

from txtopo.api.store import VALUE_BYTES_MAX, Change, Delete, Lead, Put, Store
from txtopo.errors import DivergenceError, RuleError
from txtopo.files.records import DAMAGE, from_json
from txtopo.journal.folders import ASIDES_MAX

_COPY_TRIES_MAX = 20
"""A copy takes milliseconds; a topology that writes between so many pairs of them is read in vain."""

FORMAT = "format"
INCARNATION = "incarnation"
SPOUTS = "spouts"
COMMITTED = "committed"
METADATA = "metadata"
GROUP = "group"
NOTE = "note"
PLAN = "repair"
RECOVERED = "recovered"
TIMELINE = "timeline"
POINTS = "points"
FOLDS = "folds"
SOURCE = "source"
TRANSACTION_TIME = "pace"
_ASIDE = "before-repair-"

T = TypeVar("T")


@attrs.frozen
class Values:
    """One topology's values in a store, which ``lead`` may write, by name: the path below the topology."""

    store: Store
    lead: Lead
    topology_id: str

    def path(self, name: str) -> str:
        """Return the path of a value in the store."""
        return f"{self.topology_id}/{name}"

    def raw(self, name: str) -> bytes | None:
        """Return a value as it is; None if there is none."""
        return self.store.read(self.path(name))

    def read(self, name: str, kind: type[T]) -> T | None:
        """Return a value; None if there is none; raise DivergenceError if it is damaged."""
        return value_in(self.store, self.path(name), kind)

    def children(self, name: str) -> Sequence[str]:
        """Return the last parts of the names below a name."""
        return self.store.children(self.path(name))

    def put(self, name: str, value: Any) -> Put:
        """Return the change that sets a value."""
        return Put(self.path(name), encoded(value))

    def delete(self, name: str) -> Delete:
        """Return the change that removes a value and all below it."""
        return Delete(self.path(name))

    def write(self, changes: Sequence[Change]) -> None:
        """Write changes in one step; raise LostLead if the lead is lost."""
        self.lead.write(changes)

    def names(self) -> list[str]:
        """Return the names of all values but the plan, in the order in which they can be removed.

        The format goes last: if a store splits the step, what is left would be taken for an earlier version's.
        """
        names = [name for name in self.store.children(self.topology_id) if name != PLAN]
        return sorted(names, key=lambda name: name == FORMAT)

    def asides(self) -> list[int]:
        """Return the numbers under which earlier repairs have set values aside."""
        names = self.store.children(self.topology_id)
        return sorted(int(name.removeprefix(_ASIDE)) for name in names if name.startswith(_ASIDE))

    def set_aside(self, names: Sequence[str], number: int) -> list[Change]:
        """Return changes that copy all values below some names aside and remove them, and copies of old repairs."""
        old = [f"{_ASIDE}{each}" for each in self.asides() if each <= number - ASIDES_MAX]
        return [*self.copy_aside(names, number), *(self.delete(name) for name in (*names, *old))]

    def set_all_aside(self, number: int) -> list[Change]:
        """Return the same changes for all values but the plan."""
        return self.set_aside([name for name in self.names() if not name.startswith(_ASIDE)], number)

    def copy_aside(self, names: Sequence[str], number: int) -> list[Change]:
        """Return changes that copy all values below some names aside."""
        copies = (
            (self.path(f"{_ASIDE}{number}/{path}"), value)
            for name in names
            for path, value in values_below(self.store, self.topology_id, name)
        )
        # If a store has split an earlier try, the copy holds the value from before the repair, and this one may be from
        # the repair itself.
        return [Put(aside, value) for aside, value in copies if self.store.read(aside) is None]


def set_damaged_aside(store: Store, lead: Lead, topology_id: str) -> None:
    """Move all values of a topology below ``before-repair-<number>``, without reading what is in them."""
    values = Values(store, lead, topology_id)
    names = [name for name in store.children(topology_id) if not name.startswith(_ASIDE)]
    lead.write(values.set_aside(names, 1 + max(values.asides(), default=0)))


def all_values(store: Store, topology_id: str) -> list[Change]:
    """Return all values of a topology, as changes that write them."""
    names = store.children(topology_id)
    return [
        Put(f"{topology_id}/{path}", value) for name in names for path, value in values_below(store, topology_id, name)
    ]


def copy_of(store: Store, topology_id: str) -> dict[str, bytes] | None:
    """Return coordinator state as of one moment, by path, without repairs; None if it is written faster than read."""
    values: dict[str, bytes] | None = None
    for _ in range(_COPY_TRIES_MAX):
        names = [name for name in store.children(topology_id) if not name.startswith(_ASIDE)]
        again = {path: value for name in names for path, value in values_below(store, topology_id, name)}
        if again == values:
            return values
        values = again
    return None


def room_of_spout(root: str, spout_id: str) -> str:
    """Return the path below which the coordinator of a spout keeps its values, below that of all spouts."""
    return f"{root}/{urllib.parse.quote(spout_id, safe='')}"


def source_in(values: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the values of the spouts' coordinators in a copy of coordinator state, by path below their own."""
    prefix = f"{SOURCE}/"
    return {path.removeprefix(prefix): value for path, value in values.items() if path.startswith(prefix)}


def values_below(store: Store, topology_id: str, name: str) -> Iterator[tuple[str, bytes]]:
    """Yield the value of a name, if any, and of all names below it."""
    value = store.read(f"{topology_id}/{name}")
    if value is not None:
        yield name, value
    for child in store.children(f"{topology_id}/{name}"):
        yield from values_below(store, topology_id, f"{name}/{child}")


def incarnation_in(store: Store, topology_id: str) -> str | None:
    """Return the incarnation that a store records, without the lead; None if it records none."""
    return value_in(store, f"{topology_id}/{INCARNATION}", str)


def value_in(store: Store, path: str, kind: type[T]) -> T | None:
    """Return a value of a store; None if there is none."""
    value = store.read(path)
    if value is None:
        return None
    with naming_damage(path):
        return from_json(json.loads(str(value, "utf-8")), kind)


@contextlib.contextmanager
def naming_damage(path: str) -> Iterator[None]:
    """Name the value that can't be read in the context, as a DivergenceError."""
    try:
        yield
    except DAMAGE as error:
        raise DivergenceError(
            f"the value {path!r} of the coordinator state can't be read ({error!r}): it is damaged. Restore it from "
            "the same backup as the tables, or run 'txtopo repair', which rebuilds it from the journal"
        ) from error


METADATA_BYTES_MAX = VALUE_BYTES_MAX - 100
"""A transaction's metadata may have as many bytes; the rest of the value is for when it was planned."""

ENCODER = json.JSONEncoder(separators=(",", ":"))
"""Shared, because json.dumps() would create one for each value."""


def encoded(value: Any, bytes_max: int = VALUE_BYTES_MAX) -> bytes:
    """Return a value as it is stored; raise RuleError if it is not JSON, or has too many bytes."""
    try:
        content = ENCODER.encode(value).encode()
    except (TypeError, ValueError) as error:
        raise RuleError(f"metadata must be JSON ({error}); return numbers, strings, lists and dictionaries") from error
    if len(content) > bytes_max:
        raise RuleError(
            f"metadata has {len(content)} bytes, more than the maximum of {bytes_max}; keep offsets in it, not data"
        )
    return content


def as_json(metadata: Any) -> Any:
    """Return metadata as later attempts see it, by way of JSON; raise RuleError if it is none, or too large."""
    return json.loads(encoded(metadata, METADATA_BYTES_MAX))
