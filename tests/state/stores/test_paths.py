"""Tests of how paths are checked and spelt."""

import hypothesis
import hypothesis.strategies as st
import pytest

from state.stores.paths import PATH_BYTES_MAX, ancestors, checked_path, decoded_segment, encoded_path
from txtopo.errors import StateAccessError

NAMES = st.text(min_size=1, max_size=20).filter(lambda name: "/" not in name)


def test_ancestors():
    """The paths above a path, the topmost first."""
    assert (ancestors("a/b/c"), ancestors("a")) == (["a", "a/b"], [])


@hypothesis.example([".", "..", "..."])
@hypothesis.given(st.lists(NAMES, min_size=1, max_size=4))
def test_encoded_path_is_one_that_zookeeper_takes(names):
    """Each segment is printable ASCII, neither "." nor "..", and decodes to what it was."""
    segments = encoded_path("/".join(names)).split("/")
    assert [decoded_segment(segment) for segment in segments] == names
    assert all(segment.isascii() and segment.isprintable() and segment.strip(".") for segment in segments)


def test_the_longest_path():
    """The bound is in bytes, for these are what ZooKeeper counts."""
    assert checked_path("x" * PATH_BYTES_MAX)
    for path in ("x" * (PATH_BYTES_MAX + 1), "ä" * (PATH_BYTES_MAX // 2 + 1)):
        with pytest.raises(StateAccessError, match="bytes, more than"):
            checked_path(path)


def test_plain_names_stay_readable():
    """What people usually write is the same in ZooKeeper."""
    assert encoded_path("word-count_2/meta/17 a=b:c") == "word-count_2/meta/17 a=b:c"
