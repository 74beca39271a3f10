"""Settings of a client library, with secrets that are resolved only where a client is made.

A value may be ``env:NAME``, the value of an environment variable, or ``file:PATH``, the content of a file without the
line end. Only that reference is shipped to executors, logged or recorded, never the secret.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from txtopo.errors import ConfigError
from txtopo.text.secrecy import is_reference, is_secret

T = TypeVar("T")

Value = str | int | float | bool | Callable[..., Any]
"""A setting's value; some clients take callables, for example to refresh a token."""

_SHORTEST_SECRET = 4
"""The shortest secret that is hidden in texts; hiding shorter ones would hide parts of ordinary words."""

HIDDEN = "***"


class ClientProperties(Mapping[str, Value]):
    """A client's settings by name, with their values as given; :meth:`resolved` returns the real values.

    Args:
        properties: the settings by the client's names, for example ``{"sasl.password": "env:KAFKA_PASSWORD"}``.
        reserved: the names that the component sets itself, each with what the user can do instead.

    Raises:
        ConfigError: a name is reserved, or a name or value has the wrong type.
    """

    def __init__(
        self, properties: Mapping[str, Value] | None = None, reserved: Mapping[str, str] | None = None
    ) -> None:
        properties_given = dict(properties or {})
        for name, value in properties_given.items():
            if not isinstance(name, str):
                raise ConfigError(f"properties: {name!r} is not the name of a setting; names are strings")
            if name in (reserved or {}):
                raise ConfigError(f"properties: {name!r} is set by txtopo: {(reserved or {})[name]}")
            if not isinstance(value, str | int | float) and not callable(value):
                raise ConfigError(f"properties: {name!r} has a value of type {type(value).__name__}; give a string")
        self._given = properties_given

    def resolved(self) -> dict[str, Value]:
        """Return the settings with their secrets, to be kept nowhere; ConfigError if one is not on this machine."""
        return {name: resolved("properties", name, value) for name, value in self._given.items()}

    def scrubbed(self, text: str) -> str:
        """Return a text, for example an error of the client, without the secrets."""
        for name, value in self._given.items():
            if not _is_secret(name, value):
                continue
            try:
                secret = resolved("properties", name, value)
            except ConfigError:
                continue  # this process can't resolve it, so the text can't have it from here
            if isinstance(secret, str) and len(secret) >= _SHORTEST_SECRET:
                text = text.replace(secret, HIDDEN)
        return text

    def shown(self) -> dict[str, Any]:
        """Return the settings for people: references as they are, other secrets hidden."""
        return {
            name: HIDDEN if _is_secret(name, value) and not is_reference(value) else value
            for name, value in self._given.items()
        }

    def without(self, names: Collection[str]) -> ClientProperties:
        """Return the settings without those of some names."""
        return ClientProperties({name: value for name, value in self._given.items() if name not in names})

    def __getitem__(self, name: str) -> Value:
        return self._given[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._given)

    def __len__(self) -> int:
        return len(self._given)

    def __hash__(self) -> int:
        return hash(frozenset(self._given.items()))

    def __repr__(self) -> str:
        return f"ClientProperties({self.shown()!r})"


def _is_secret(name: str, value: Value) -> bool:
    return is_reference(value) or (is_secret(name) and not callable(value))


def resolved(noun: str, name: str, value: T) -> T | str:
    """Return a setting's value, or what it refers to; ``noun`` names the settings in the ConfigError without one."""
    if not isinstance(value, str):
        return value
    kind, _, where = value.partition(":")
    match kind:
        case "env":
            if where not in os.environ:
                raise ConfigError(f"{noun}: {name!r} is {value!r}, but this process has no such variable")
            return os.environ[where]
        case "file":
            try:
                return Path(where).read_text().rstrip("\r\n")
            except (OSError, UnicodeDecodeError) as error:
                raise ConfigError(f"{noun}: {name!r} is {value!r}, which can't be read here: {error}") from None
        case _:
            return value
