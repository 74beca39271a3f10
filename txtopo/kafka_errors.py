"""Errors over Kafka: whether it refuses us, which stays so, or does not answer now; how often to say so, and safely."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs

from txtopo.errors import InputError, SourceFailure

_REFUSALS = frozenset(
    {
        "TOPIC_AUTHORIZATION_FAILED",
        "GROUP_AUTHORIZATION_FAILED",
        "CLUSTER_AUTHORIZATION_FAILED",
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
        "SASL_AUTHENTICATION_FAILED",
        "UNSUPPORTED_SASL_MECHANISM",
        "_AUTHENTICATION",
    }
)

REPEAT_SECS = 30.0
"""How often the same error is reported while it lasts."""

_KINDS_MAX = 100


def escaped(text: str) -> str:
    """Return a text in which what is not printable is escaped: it may quote a record, and will be on a terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def failure(error: Any, text: str, servers: str, who: str, *, where: str = "") -> InputError | SourceFailure:
    """Return txtopo's error for one of the client.

    Args:
        error: the ``KafkaError``.
        text: what it says, without secrets.
        servers: where Kafka is.
        who: whose client it is: the spout, or the bolt.
        where: the topic, partition or group in question, if it is known.

    Returns:
        InputError if Kafka refuses this client, which stays so until somebody changes something; else SourceFailure.
    """
    name = error.name()
    what = escaped(f"{where}: {text}" if where else text)
    # Other trouble with TLS may pass, for example when a broker ends in the middle of a handshake.
    is_untrusted = name == "_SSL" and "certificate" in text
    if name not in _REFUSALS and not is_untrusted:
        return SourceFailure(f"Kafka at {servers}: {what}")
    cure = "give its user the right to it, or " if name.endswith("AUTHORIZATION_FAILED") else ""
    return InputError(f"Kafka at {servers} refuses: {what}; {cure}see {who}'s properties")


@attrs.define
class _Repeated:
    last_secs: float
    left_out: int = 0


class RepeatedErrors:
    """Lets an error through when it comes first, and after that now and then, with how often it came.

    A client that has lost its broker complains dozens of times a second.

    Args:
        clock: tells the time, in seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._seen: dict[str, _Repeated] = {}

    def due(self, text: str) -> str | None:
        """Return what to report of an error now; None for nothing. Texts that differ in numbers only are the same."""
        now, kind = self._clock(), "".join("" if character.isdigit() else character for character in text)
        seen = self._seen.get(kind)
        if seen is None:
            while len(self._seen) >= _KINDS_MAX:
                del self._seen[next(iter(self._seen))]
            self._seen[kind] = _Repeated(now)
            return text
        if now - seen.last_secs < REPEAT_SECS:
            seen.left_out += 1
            return None
        left_out, secs = seen.left_out, now - seen.last_secs
        seen.last_secs, seen.left_out = now, 0
        return f"{text} ({left_out + 1} times in {secs:.0f} s)" if left_out else text
