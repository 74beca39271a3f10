"""Lazy imports of a package's names, on first access (PEP 562).

There are two reasons: an executor imports the user's module and with it ``txtopo``, and must not load the engine; and a
command that is interrupted while it loads must not print a traceback of imports.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def lazy_names(
    package: str, modules: Mapping[str, Sequence[str]], former: Mapping[str, str] | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return ``__getattr__``, ``__dir__`` and ``__all__`` of a package.

    Args:
        package: the package's name.
        modules: the names by the module that defines them. The package repeats them below ``if TYPE_CHECKING``.
        former: current names by names of earlier versions, which are accepted with a warning.
    """
    former = former or {}
    module_of = {name: module for module, names in modules.items() for name in names}

    def get(name: str) -> Any:
        if name in former:
            text = f"{package}.{name} was renamed to {former[name]}; the old name will be removed in 1.0"
            warnings.warn(text, FutureWarning, stacklevel=2)
            return get(former[name])
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(module_of[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    names = sorted(module_of)
    return get, lambda: sorted({*vars(sys.modules[package]), *names}), names
