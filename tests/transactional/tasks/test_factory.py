"""Places: a handle of a state leads to the view of it, by the shortest way there is."""

from __future__ import annotations

import threading
from typing import Any
from unittest import mock

import pytest

from txtopo.api.state import MapState
from txtopo.transactional.tasks.state_handle import StateHandle, writes_noted

CALLS: dict[str, tuple[Any, ...]] = {
    "get": ("key",),
    "put": ("key", 1),
    "update": ("key", abs),
    "multi_get": (["key"],),
    "multi_put": ({"key": 1}, None),
    "multi_update": (["key"], abs),
    "multi_reduce": ({"key": 1}, max),
    "multi_remove": (["key"],),
    "append": ([],),
    "replace_partitions": ([],),
    "snapshot": (1,),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("is_noted", [False, True], ids=["", "writes noted"])
def test_handle(name: str, is_noted: bool) -> None:
    """What a bolt calls is called on the view, not made of other calls there; who writes is noted where asked."""
    view, noted = mock.create_autospec(MapState, instance=True, lock=threading.RLock()), []
    if is_noted:
        with writes_noted(lambda component, state: noted.append((component, state))):
            handle = StateHandle("bolt", "state", view, None)
            result = getattr(handle, name)(*CALLS[name])
    else:
        result = getattr(StateHandle("bolt", "state", view, None), name)(*CALLS[name])
    called = getattr(view, name)
    called.assert_called_once_with(*CALLS[name])
    assert result is called.return_value or name.startswith(("put", "multi_put", "multi_re", "append", "replace"))
    assert [call[0] for call in view.method_calls] == [name]
    reads = {"get", "multi_get", "snapshot"}
    assert noted == ([("bolt", "state")] if is_noted and name not in reads else [])


def test_every_method() -> None:
    """No method that a view may do in a way of its own is forgotten above; ``remove`` has none, ``fitted`` asks no view."""
    methods = {name for name, value in vars(MapState).items() if callable(value) and not name.startswith("_")}
    assert methods - {"remove", "as_rows", "fitted"} == set(CALLS)
