"""A layer holds what a plain dictionary holds, in whichever form its values lie."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

import txtopo.backend.layer
from txtopo.backend.layer import Layer

KEYS = st.sampled_from("abcd")
BARE = st.dictionaries(KEYS, st.integers(0, 9), max_size=4)
KEPT = st.dictionaries(KEYS, st.one_of(st.none(), st.tuples(st.integers(1, 9), st.integers(0, 9))), max_size=3)


def made(txid: int, value: int) -> tuple[int, int]:
    return (txid, value)


@given(st.lists(st.tuples(BARE, KEPT, BARE), max_size=5), st.integers(0, 12))
def test_layers_of_transactions(transactions, puts_keys_max) -> None:
    """What transactions put, bare or whole or removed, is seen through their layers and through the group's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(txtopo.backend.layer, "PUTS_KEYS_MAX", puts_keys_max)
        check_layers(transactions)


@given(st.lists(BARE, max_size=9))
def test_bare_txids(transactions) -> None:
    """The last transaction that has put a key is found at the end, however often keys were put again."""
    group, model = Layer(made), {}
    for txid, values in enumerate(transactions, 1):
        group.put_bare(txid, list(values), list(values.values()))
        model.update(dict.fromkeys(values, txid))
    assert dict(zip(group.bare, group.bare_txids(), strict=True)) == model


def check_layers(transactions) -> None:
    group, model = Layer(made), {}
    for txid, (first, kept, second) in enumerate(transactions, 1):
        own, own_model = Layer(made, txid), {}
        own.put_bare(txid, list(first), list(first.values()))
        own_model.update({key: made(txid, value) for key, value in first.items()})
        for key, value in kept.items():
            own.put(key, value)
            own_model[key] = value
        own.put_bare(txid, list(second), list(second.values()))
        own_model.update({key: made(txid, value) for key, value in second.items()})
        assert dict(own) == own_model
        group.merge(txid, own)
        model.update(own_model)
        assert dict(group) == model
        assert len(group) == len(model)
        assert all(key in group for key in model)
        assert [made(t, v) for t, v in zip(group.bare_txids(), group.bare.values(), strict=True)] == [
            group[key] for key in group.bare
        ]
        assert group.bare.keys().isdisjoint(group.kept)
    group.clear()
    assert dict(group) == {}
