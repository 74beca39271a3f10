"""The kinds of values that settings take: each converts a value, or its text, and refuses a wrong one."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from typing import Any

import attrs


@attrs.frozen
class Kind:
    """The type of a setting's value."""

    words: str
    """A description of valid values, such as "an integer of at least 1"."""
    convert: Callable[[Any], Any]
    """Converts a value, or its text, to the stored form; raises ValueError or TypeError for an invalid one."""


def integer(low: int, high: float = math.inf) -> Kind:
    """Return the kind of integers of at least ``low``, and at most ``high``."""

    def convert(value: Any) -> int:
        number = int(value) if isinstance(value, str) else value
        # True is an int in Python, but surely a mistake here.
        if isinstance(number, bool) or not isinstance(number, int) or not low <= number <= high:
            raise ValueError
        return number

    return Kind(f"an integer of at least {low}", convert)


def or_none(kind: Kind, texts: Iterable[str] = ("", "none")) -> Kind:
    """Return a kind that also takes None, which ``texts`` spell, in small letters."""

    def convert(value: Any) -> Any:
        is_none = value is None or (isinstance(value, str) and value.lower() in texts)
        return None if is_none else kind.convert(value)

    return Kind(f"{kind.words}, or none", convert)


def _to_seconds(value: Any) -> float:
    number = float(value)
    if isinstance(value, bool) or not 0 < number < math.inf:
        raise ValueError
    return number


def _to_text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError
    return value


def _to_folder(value: Any) -> str:
    folder = _to_text(str(value))
    scheme, separator, rest = folder.partition("://")
    if "\0" in folder or (separator and not (scheme and rest.strip("/"))):
        raise ValueError(folder)
    return folder


def _to_flag(value: Any) -> bool:
    if isinstance(value, str):
        return {"true": True, "false": False}[value.lower()]  # a KeyError is refused like a ValueError, see _check
    if not isinstance(value, bool):
        raise TypeError
    return value


_SERVER = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[\w.-]+)(?::(\d{1,5}))?")
"""A host, or an IPv6 address in brackets, with or without a port."""

PORT_MAX = 65_535


def to_servers(value: Any) -> tuple[str, ...]:
    """Return ``host`` or ``host:port`` from texts with commas; raise ValueError if there is none, or one is none."""
    parts = value.split(",") if isinstance(value, str) else list(value)
    servers = tuple(str(part).strip() for part in parts if str(part).strip())
    if not servers:
        raise ValueError("there is none")
    for server in servers:
        found = _SERVER.fullmatch(server)
        if found is None or not 1 <= int(found[1] or 1) <= PORT_MAX:
            raise ValueError(f"{server!r} is none; write host:port, and an IPv6 address in brackets, as in [::1]:9092")
    return servers


def with_ports(servers: Iterable[str], port: int) -> str:
    """Return servers as a text with commas between them; one without a port gets this one."""
    found = ((server, _SERVER.fullmatch(server)) for server in servers)
    return ",".join(server if match is None or match[1] else f"{server}:{port}" for server, match in found)


def _to_node(value: Any) -> str:
    node = _to_text(value)
    if not re.fullmatch(r"(/[^/\0]+)+", node) or {".", ".."}.intersection(node.split("/")):
        raise ValueError(node)
    return node


def _to_credentials(value: Any) -> str:
    user, colon, _ = _to_text(str(value)).partition(":")
    if not user or not colon:
        raise ValueError("there is no colon behind a user")
    return str(value)


def _to_strategy(value: Any) -> Any:
    if isinstance(value, type) or not callable(getattr(value, "empty_emit", None)):
        raise TypeError
    return value


def one_of(*choices: str) -> Kind:
    """Return the kind of some words, however they are spelt."""
    by_name = {choice.lower(): choice for choice in choices}
    return Kind(f"one of {', '.join(choices)}", lambda value: by_name[str(getattr(value, "value", value)).lower()])


def _to_store(value: Any) -> str:
    text = _to_text(getattr(value, "value", value))
    name = text.lower()
    if name in {"sqlite", "zookeeper"}:
        return name
    scheme, separator, rest = text.partition("://")
    if not (scheme and separator and rest.strip("/")) or name.startswith("file:"):
        raise ValueError(text)
    return text.rstrip("/")


STORE = Kind("sqlite, zookeeper, or an address such as s3://bucket/folder", _to_store)


def _to_txids(value: Any) -> dict[str, int]:
    if isinstance(value, str):
        pairs = [pair.rpartition("=")[::2] for pair in value.split(",") if pair.strip()]
        value = {name.strip(): int(txid) for name, txid in pairs}
    txids = {name: integer(0).convert(txid) for name, txid in dict(value).items()}
    if not all(isinstance(name, str) and name for name in txids):
        raise ValueError
    return txids


PORT = Kind(f"a port, from 1 to {PORT_MAX}", integer(1, PORT_MAX).convert)
SECONDS = Kind("a number of seconds above 0", _to_seconds)
TEXT = Kind("a non-empty string", _to_text)
_NONE = ("none",)  # an empty text is more often a variable that a script has not set
TEXT_OR_NONE = or_none(Kind("a non-empty string", lambda value: _to_text(str(value))), _NONE)
FOLDER_OR_NONE = or_none(Kind("a path, or an address such as s3://bucket/folder", _to_folder), _NONE)
FLAG = Kind("true or false", _to_flag)
STRATEGY = or_none(Kind("a SpoutWaitStrategy", _to_strategy), _NONE)
TXIDS = or_none(Kind("NAME=TXID pairs, separated by commas", _to_txids))
SERVERS = Kind("hosts, or host:port, separated by commas, with an IPv6 address in brackets: [::1]:2181", to_servers)
NODE = Kind("the path of a node below the root, such as /txtopo", _to_node)
CREDENTIALS = or_none(Kind("user:password", _to_credentials), _NONE)
