"""Optional methods: what a coordinator or emitter may leave out is as if it did nothing.

Users write coordinators and emitters as plain classes too, with the methods that matter to them.
"""

from __future__ import annotations

from typing import Any


def call_if_there(target: object, method: str, *arguments: Any, default: Any = None) -> Any:
    """Call a method and return its answer; return ``default`` if the object has no such method."""
    found = getattr(target, method, None)
    return default if found is None else found(*arguments)
