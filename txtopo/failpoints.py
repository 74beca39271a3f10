"""Failpoints: named points before and after each durable step, where a test lets the process die, stop or fail.

There are also some around user code. Production code reaches them too, at the cost of reading one variable. Arm them
from outside with an environment variable, before the process starts::

    TXTOPO_FAILPOINTS="table.write.after=kill:3" txtopo run examples.transactional_words

The syntax is ``NAME=ACTION[:COUNT]``, several separated by semicolons. The action happens once, when the name is
reached for the COUNT-th time (by default the first). Actions are ``kill`` (SIGKILL to this process), ``stop`` (SIGSTOP)
and ``fail`` (raises FailedException, like an external failure). The simulator arms them from inside, with
:func:`armed`.

A failpoint is named where it is reached, and nowhere else; what may be armed is read from the sources.

Source: etcd's gofail, which reads them as well, and FreeBSD's fail(9).
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import attrs

from txtopo.errors import ConfigError, FailedException
from txtopo.text.suggestions import did_you_mean

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

ENVIRONMENT = "TXTOPO_FAILPOINTS"

_PACKAGES = ("txtopo", "state")
"""The packages that reach failpoints."""

_REACHED = re.compile(r'\b(durable_step|reach)\("([a-z.]+)"\)')


class ProcessDeath(BaseException):
    """Raised at a failpoint in a simulation: the process ends there, and no code may catch this."""


Handler = Callable[[str], None]
"""Called with the name of each failpoint that is reached; may raise."""

_handler: Handler | None = None


def reach(name: str) -> None:
    """Run the action that is armed for a failpoint, if any."""
    if _handler is not None:
        _handler(name)


class durable_step:  # noqa: N801 - it is used like a function: with durable_step(…)
    """Reach ``NAME.before`` and, unless the step fails, ``NAME.after``."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        reach(f"{self._name}.before")

    def __exit__(self, _kind: object, error: BaseException | None, *_: object) -> None:
        if error is None:
            reach(f"{self._name}.after")


@contextlib.contextmanager
def armed(handler: Handler) -> Iterator[None]:
    """Call ``handler`` for every failpoint that this process reaches within the context."""
    global _handler  # noqa: PLW0603 - a process has one handler
    before, _handler = _handler, handler
    try:
        yield
    finally:
        _handler = before


def known_failpoints() -> list[str]:
    """Return the names of all failpoints, sorted."""
    names: set[str] = set()
    for package in _PACKAGES:
        found: Any = find_spec(package)  # which imports nothing
        for source in _sources(found.loader.get_resource_reader(package).files()):
            for kind, name in _REACHED.findall(source):
                names |= {name} if kind == "reach" else {f"{name}.before", f"{name}.after"}
    return sorted(names)


def _sources(folder: Traversable) -> Iterator[str]:
    """Yield what the modules below a folder consist of, which may be in an archive."""
    for file in folder.iterdir():
        if file.is_dir():
            yield from _sources(file)
        elif file.name.endswith(".py"):
            yield file.read_text(encoding="utf-8")


@attrs.define(eq=False)
class _Charge:
    """The action that is armed for one failpoint."""

    action: Callable[[str], None]
    left: int


def arm_from_text(text: str) -> Handler | None:
    """Return the handler for ``TXTOPO_FAILPOINTS``, None if it is empty; raise ConfigError for what is wrong in it."""
    charges: dict[str, _Charge] = {}
    parts = [part.strip() for part in text.split(";") if part.strip()]
    known_names = known_failpoints() if parts else []
    for part in parts:
        name, _, order = part.partition("=")
        action, _, count = order.partition(":")
        if name not in known_names:
            hint = did_you_mean(name, known_names) or f"; known failpoints: {', '.join(known_names)}"
            raise ConfigError(f"{ENVIRONMENT}: there is no failpoint {name!r}{hint}")
        if action not in _ACTIONS or not (count or "1").isdecimal() or int(count or 1) < 1:
            known = ", ".join(_ACTIONS)
            raise ConfigError(f"{ENVIRONMENT}: {part!r} is not NAME=ACTION[:COUNT] with an ACTION of {known}")
        charges[name] = _Charge(_ACTIONS[action], int(count or 1))

    def handler(name: str) -> None:
        charge = charges.get(name)
        if charge is not None:
            charge.left -= 1
            if charge.left == 0:  # below 0 it has happened already, and happens once
                charge.action(name)

    return handler if charges else None


def _kill(_name: str) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _stop(_name: str) -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def _fail(name: str) -> None:
    raise FailedException(f"failpoint {name!r} was armed to fail")


_ACTIONS: dict[str, Callable[[str], None]] = {"kill": _kill, "stop": _stop, "fail": _fail}

_handler = arm_from_text(os.environ.get(ENVIRONMENT, ""))
