"""Copies share nothing that can be changed, and what can't be changed is not copied."""

import threading

import pytest

from txtopo import Fields
from txtopo.api.data.copying import copied, copying_of_rows
from txtopo.errors import FieldsError


@pytest.mark.parametrize("value", ["text", b"bytes", 1, 1.5, True, None, ("a", 1, None)])
def test_what_cannot_be_changed(value) -> None:
    """Texts, bytes, numbers, truth values, nothing, and tuples of these are the very same."""
    assert copied(value) is value


def test_what_cannot_be_copied() -> None:
    """A value that can't travel is refused, with its class."""
    with pytest.raises(FieldsError, match="lock"):
        copied([threading.Lock()])


def test_rows() -> None:
    """Of a tuple the fields that can be changed are copied; one in which nothing can is the very same."""
    assert copying_of_rows(Fields("attempt", "word: string", "n: long")) is None
    copying = copying_of_rows(Fields("attempt", "word: string", "tags: array<string>"))
    row = (1, "a", ["x"])
    own = copying.copied_in(row)
    assert own == row
    assert own[2] is not row[2]
    plain = (1, "a", None)
    assert copying.copied_out(plain) is plain


@pytest.mark.parametrize("deep", [False, True])
def test_rows_as_dicts(deep: bool) -> None:
    """A list of dicts is copied with each of them, whether they hold plain values only or not."""
    value = [{"bidder": 1, "tags": ["x"] if deep else "x"}, {"bidder": 2}]
    own = copied(value)
    assert own == value
    assert all(one is not other for one, other in zip(own, value, strict=True))
    assert not deep or own[0]["tags"] is not value[0]["tags"]


def test_one_dict_twice() -> None:
    """An object that is there twice is so in the copy, too."""
    one = {"n": 1}
    first, second = copied([one, one])
    assert first is second is not one
