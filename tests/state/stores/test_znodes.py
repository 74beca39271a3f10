"""Tests of how changes become ZooKeeper operations."""

import hypothesis
import hypothesis.strategies as st

from state.stores.memory import apply_change
from state.stores.znodes import (
    STEP_BYTES_MAX,
    STEP_OPERATIONS_MAX,
    CreateNode,
    DeleteNode,
    SetNode,
    Step,
    Znodes,
    data_of,
    steps,
    value_of,
)
from txtopo.api.store import Delete, Put

PATHS = st.lists(st.sampled_from("abc"), max_size=3).map(lambda names: "/".join(["t", *names]))
CHANGES = st.one_of(st.builds(Put, PATHS, st.sampled_from([b"", b"\0", b"v", b"w"])), st.builds(Delete, PATHS))


class Server:
    """Nodes under ZooKeeper's rules: what is not as an operation expects is an error."""

    def __init__(self):
        self.nodes = {}

    def apply(self, operation):
        match operation:
            case CreateNode(path, data):
                assert path not in self.nodes
                assert path == "t" or path.rpartition("/")[0] in self.nodes
                self.nodes[path] = data
            case SetNode(path, data):
                assert path in self.nodes
                self.nodes[path] = data
            case DeleteNode(path):
                assert not [other for other in self.nodes if other.startswith(f"{path}/")]
                del self.nodes[path]

    def values(self):
        values = {path: value_of(data) for path, data in self.nodes.items()}
        return {path: value for path, value in values.items() if value is not None}

    def folders(self):
        return {path for path, data in self.nodes.items() if not data}


@hypothesis.given(st.lists(st.lists(CHANGES, max_size=8), max_size=8))
@hypothesis.settings(deadline=None)
def test_operations_amount_to_the_changes(writes):
    """The server takes every operation, its values are those of a dictionary, and no folder is empty."""
    server, znodes, expected = Server(), Znodes(), {}
    for changes in writes:
        for step in steps(znodes, changes):
            for operation in step.operations:
                server.apply(operation)
        for change in changes:
            apply_change(expected, change)
        assert server.values() == expected
        assert all(any(path.startswith(f"{folder}/") for path in expected) for folder in server.folders())
        assert znodes.empty_folders() == []


@hypothesis.given(st.binary(max_size=3))
def test_value_and_data(value):
    """Every value is kept as data that is not empty, and got back from it; empty data is a folder."""
    assert data_of(value)
    assert value_of(data_of(value)) == value
    assert value_of(b"") is None


def test_steps_keep_to_their_bounds():
    """No step has more operations or bytes than a transaction may, and no Put is parted."""
    znodes = Znodes()
    writes = [Put(f"t/{number}/deep/er", bytes(10_000)) for number in range(600)]
    cut = list(steps(znodes, writes))
    for step in cut:
        assert len(step.operations) <= STEP_OPERATIONS_MAX
        assert sum(len(operation.data) for operation in step.operations) <= STEP_BYTES_MAX
        assert step.operations[-1].data != b""
    assert [step.changes_done for step in cut] == sorted({step.changes_done for step in cut})
    assert cut[-1].changes_done == 600
    deletes = list(steps(znodes, [Delete("t/0"), Delete("t")]))
    assert [step.changes_done for step in deletes] == [1, 1, 1, 2]
    assert sum(len(step.operations) for step in deletes) == 600 * 3 + 1


def test_nothing_to_change_is_one_empty_step():
    """A write of nothing still is a step, so that its checks are made."""
    assert list(steps(Znodes(), [])) == [Step((), 0)]
    assert list(steps(Znodes(), [Delete("t/never")])) == [Step((), 1)]


def test_a_folder_that_gets_a_value_stays():
    """When its last child is removed, too."""
    znodes = Znodes()
    for change in (Put("t/a/b", b"v"), Put("t/a", b"w")):
        znodes.operations(change)
    assert znodes.operations(Delete("t/a/b")) == [DeleteNode("t/a/b")]
    assert znodes.operations(Put("t/a", b"x")) == [SetNode("t/a", b"x")]


def test_a_change_that_does_not_fit_begins_a_step():
    """By the number of its operations, its bytes, or the bytes of its path; the step before it is full by then."""
    paths = [f"t/{number}" for number in range(STEP_OPERATIONS_MAX - 2)]
    many = list(steps(Znodes(), [*(Put(path, b"v") for path in paths), Put("t/deep/down", b"v")]))
    assert [len(step.operations) for step in many] == [STEP_OPERATIONS_MAX - 1, 2]
    half = b"v" * (STEP_BYTES_MAX // 2 - 1_000)
    large = list(steps(Znodes(), [Put(f"t/{number}", half) for number in range(6)]))
    assert [step.changes_done for step in large] == [2, 4, 6]
    encoded = [Put(f"t/{'ü' * 500}{number}", b"v") for number in range(STEP_OPERATIONS_MAX - 1)]
    assert len(list(steps(Znodes(), encoded))) > 2
