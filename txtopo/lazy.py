"""Lazy imports of a package's names, on first access (PEP 562).

There are two reasons: an executor imports the user's module and with it ``txtopo``, and must not load the engine; and a
command that is interrupted while it loads must not print a traceback of imports.

A package lists its names once, as imports below ``if TYPE_CHECKING``, where type checkers and editors see them. This
module reads them from there, as lazy_loader reads them from a stub.
"""

from __future__ import annotations

import ast
import importlib
import linecache
import sys
from collections.abc import Callable
from typing import Any

from txtopo.topology.user_code.modules import refuse_hiding


def lazy_names(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return ``__getattr__``, ``__dir__`` and ``__all__`` of a package that is being imported."""
    namespace: Any = sys.modules[package]
    source = "".join(linecache.getlines(namespace.__file__, vars(namespace)))  # works in a zip file, too
    module_of = {
        alias.name: node.module
        for block in ast.parse(source).body
        if isinstance(block, ast.If) and isinstance(block.test, ast.Name) and block.test.id == "TYPE_CHECKING"
        for node in block.body
        if isinstance(node, ast.ImportFrom) and node.module is not None
        for alias in node.names
    }

    def get(name: str) -> Any:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            value = getattr(importlib.import_module(module_of[name]), name)
        except (ImportError, AttributeError):  # of which Python says in part that this package lacks the name
            refuse_hiding()
            raise
        setattr(namespace, name, value)  # from now on Python finds it without calling __getattr__
        return value

    names = sorted(module_of)
    return get, lambda: sorted({*vars(namespace), *names}), names
