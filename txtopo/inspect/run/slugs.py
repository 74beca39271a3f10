"""Slugs: names of topologies as they stand in a URL, where a browser changes nothing about them."""

from __future__ import annotations

import re

OF_RUN = "@"
"""In a slug between that of a topology, which has none, and the number of one of its earlier runs."""

_PLAIN = re.compile(rb"[A-Za-z0-9_-]")


def slug_of(name: str) -> str:
    """Return a name with every byte but letters, digits, ``_``, ``-`` and inner dots as ``~hh``.

    >>> slug_of("words/2 ½")
    'words~2f2~20~c2~bd'
    """
    parts = []
    for at, byte in enumerate(name.encode(errors="surrogatepass")):
        char = bytes([byte])
        is_plain = _PLAIN.match(char) is not None or (char == b"." and at > 0)
        parts.append(char.decode() if is_plain else f"~{byte:02x}")
    return "".join(parts)
