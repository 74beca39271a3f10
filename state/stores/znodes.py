"""The leader's copy of its znode tree, and the translation of changes to ZooKeeper operations. Pure, no connection.

ZooKeeper's transactions can only create, set and delete single nodes, and each operation fails if the node is
not as expected. The leader is the only writer below its topology, so it can remember which nodes exist (without
their values) and need not ask the server before a write.

A node may exist only because a node below it has a value. Such a *folder* has empty data, and is removed with its
last child. A value that is empty, or begins with the escape byte, is stored with an escape byte before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs

from state.stores.paths import ancestors, encoded_path
from txtopo.api.store import Change, Delete, Put

STEP_BYTES_MAX = 700 * 1000
"""The maximum number of bytes in one ZooKeeper transaction; the server's own limit is 1 MiB."""

STEP_OPERATIONS_MAX = 500
"""The maximum number of operations in one ZooKeeper transaction."""

_OPERATION_BYTES = 100
"""What an operation is counted as, besides its path and data."""
_ESCAPE = b"\0"


@attrs.frozen
class CreateNode:
    """Create a node that does not exist."""

    path: str
    data: bytes


@attrs.frozen
class SetNode:
    """Set the data of an existing node."""

    path: str
    data: bytes


@attrs.frozen
class DeleteNode:
    """Delete an existing node without children."""

    path: str


Operation = CreateNode | SetNode | DeleteNode


@attrs.frozen
class Step:
    """Operations that fit one ZooKeeper transaction."""

    operations: tuple[Operation, ...]
    changes_done: int
    """The number of changes that are completely applied after this step."""


@attrs.define(eq=False)
class _Znode:
    has_value: bool
    children: set[str]


class Znodes:
    """The existing nodes below a topology, and whether they have values."""

    def __init__(self) -> None:
        self._nodes: dict[str, _Znode] = {}

    def add(self, path: str, *, has_value: bool) -> None:
        """Add an existing node, after its parents."""
        self._nodes[path] = _Znode(has_value, set())
        parent, _, name = path.rpartition("/")
        if parent:
            self._nodes[parent].children.add(name)

    def empty_folders(self) -> list[str]:
        """Return the nodes with neither value nor children; a leader that dies between two steps leaves such nodes."""
        return [path for path, node in self._nodes.items() if not node.has_value and not node.children]

    def operations(self, change: Change) -> list[Operation]:
        """Return the operations of a change, and record their effect."""
        match change:
            case Put(path, value):
                return self._put(path, data_of(value))
            case Delete(path):
                return self._delete(path)

    def _put(self, path: str, data: bytes) -> list[Operation]:
        if path in self._nodes:
            self._nodes[path].has_value = True
            return [SetNode(path, data)]
        missing = [folder for folder in ancestors(path) if folder not in self._nodes]
        for folder in missing:
            self.add(folder, has_value=False)
        self.add(path, has_value=True)
        return [*(CreateNode(folder, b"") for folder in missing), CreateNode(path, data)]

    def _delete(self, path: str) -> list[Operation]:
        if path not in self._nodes:
            return []
        doomed = list(self._deepest_first(path))
        for folder in reversed(ancestors(path)):
            node = self._nodes[folder]
            # It has a value, or a child besides the one that goes.
            if node.has_value or len(node.children) > 1:
                break
            doomed.append(folder)
        for node_path in doomed:
            del self._nodes[node_path]
        parent, _, name = doomed[-1].rpartition("/")
        if parent:
            self._nodes[parent].children.discard(name)
        return [DeleteNode(node_path) for node_path in doomed]

    def _deepest_first(self, path: str) -> Iterator[str]:
        for name in sorted(self._nodes[path].children):
            yield from self._deepest_first(f"{path}/{name}")
        yield path


def steps(znodes: Znodes, changes: Sequence[Change]) -> Iterator[Step]:
    """Divide changes into steps, one of them at least; a Put stays in one, so that no empty folder is left."""
    operations: list[Operation] = []
    size = 0
    for index, change in enumerate(changes):
        parts = znodes.operations(change)
        # A Delete may be split: its operations come deepest first, so each can be applied alone. If the leader dies
        # between two steps, the next one removes the empty folders that are left.
        for part in [parts] if isinstance(change, Put) else [[operation] for operation in parts]:
            part_size = sum(_bytes_of(operation) for operation in part)
            too_many = len(operations) + len(part) > STEP_OPERATIONS_MAX
            if operations and (too_many or size + part_size > STEP_BYTES_MAX):
                yield Step(tuple(operations), index)
                operations, size = [], 0
            operations.extend(part)
            size += part_size
    yield Step(tuple(operations), len(changes))


def data_of(value: bytes) -> bytes:
    """Return the data that represents a value."""
    return _ESCAPE + value if not value or value.startswith(_ESCAPE) else value


def value_of(data: bytes) -> bytes | None:
    """Return the value that ``data`` represents; None for a folder."""
    if not data:
        return None
    return data[1:] if data.startswith(_ESCAPE) else data


def _bytes_of(operation: Operation) -> int:
    data = b"" if isinstance(operation, DeleteNode) else operation.data
    return _OPERATION_BYTES + len(encoded_path(operation.path)) + len(data)
