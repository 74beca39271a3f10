"""Optional methods: a coordinator or emitter may omit methods that would do nothing.

Users also write coordinators and emitters as plain classes that have only the methods they need.
"""

from __future__ import annotations

from typing import Any


def call_if_there(target: object, method: str, *arguments: Any, default: Any = None) -> Any:
    """Call a method and return its result; return ``default`` if the object has no such method."""
    found = getattr(target, method, None)
    return default if found is None else found(*arguments)
