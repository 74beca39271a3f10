"""A layer holds what a plain dictionary holds, in whichever form its values lie."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from txtopo.contracts.layer import Layer

KEYS = st.sampled_from("abcd")
BARE = st.dictionaries(KEYS, st.integers(0, 9), max_size=4)
KEPT = st.dictionaries(KEYS, st.one_of(st.none(), st.tuples(st.integers(1, 9), st.integers(0, 9))), max_size=3)


def made(txid: int, value: int) -> tuple[int, int]:
    return (txid, value)


@given(st.lists(st.tuples(BARE, KEPT, BARE), max_size=5))
def test_layers_of_transactions(transactions) -> None:
    """What transactions put, bare or whole or removed, is seen through their layers and through the group's."""
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
