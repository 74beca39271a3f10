"""What is a secret, by its name or by its form; asked wherever settings, or texts that may quote them, are shown.

A name shows that its value is a secret: ``shop.password``, ``fs.s3a.access.key``, ``dbPwd``. A value of any name may be
or contain one: ``https://user:password@host``, a JAAS configuration, a private key in PEM; of such a text only the
secret is hidden. In doubt hide: a wrongly hidden value costs a look elsewhere, a shown secret costs more.

``env:NAME`` and ``file:PATH`` say where a secret is, and are shown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

HIDDEN = "…"

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_SECRET_PART = re.compile(
    r"passw|passphrase|passcode|pwd|secret|token|credential|auth(?!or(?!i))|jaas|signature|cookie"
    r"|(?:access|account|api|encryption|master|private|shared|signing|storage)key"
)
_SECRET_WORDS = frozenset({"pass", "pw", "pin", "sas", "jwt", "pem", "creds", "salt", "dsn", "otp", "sig"})
_KEYS = frozenset({"key", "keys"})
"""Secrets at the end of a name, as in ``ssl.key``; but not by themselves: ``key`` is a table's, say."""

_WHERE_OR_HOW = frozenset(
    [
        "location",
        "path",
        "file",
        "dir",
        "provider",
        "class",
        "type",
        "mechanism",
        "secs",
        "ms",
        "bytes",
        "max",
        "field",
        "fields",
        "column",
        "error",
        "exception",
    ]
)
"""Last words of names whose value is no secret but its place, form or limit; or an error."""

_SHORTEST_SECRET = 4
"""Shorter values are not hidden in texts: they would hide ordinary words."""

_NAME = re.compile(r"""(?<![\w.\-])(?:-D)?(?P<name>[\w.\-]++)['"]?\s*[=:]\s*["']?""")
_VALUE = re.compile(r"""(?<=["'])(?:[^"'\\]|\\.)+|(?<!["'])[^\s"'&;,)}\]]+""")
"""``name=value``, ``"name": "value"`` and the like, as in JAAS, connection strings, queries, printed settings, and
``-Dname=value`` for a JVM."""

_FORMS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"-----BEGIN ([A-Z0-9 ]*)-----.*?(?:-----END \1-----|\Z)", re.DOTALL), HIDDEN),
    # In "user:password@host" both go; a password may hold "/" or "@". A container of Azure's stands before an "@", too.
    (
        re.compile(r"(?P<scheme>(?<![\w+.\-])[a-zA-Z][\w+.\-]*+://)[^\s/@:\"'<>]*:[^\s\"'<>]{0,1000}@"),
        rf"\g<scheme>{HIDDEN}@",
    ),
    (
        re.compile(r"(?P<scheme>(?<![\w+.\-])(?!abfss?:|wasbs?:)[a-zA-Z][\w+.\-]*+://)[^\s/@:\"'<>?#]+@"),
        rf"\g<scheme>{HIDDEN}@",
    ),
    (re.compile(r"\beyJ[\w\-]{8,}\.[\w\-]{4,}\.[\w\-]*"), HIDDEN),
    (re.compile(r"(?i)\b(?P<kind>bearer|basic|digest)\s+(?=\S*\d|\S{20})[\w.~+/=\-]{8,}"), rf"\g<kind> {HIDDEN}"),
    (
        re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b|\bgh[pousr]_\w{20,}|\bxox[abprs]-[\w\-]{10,}|\bsk-[\w\-]{20,}"),
        HIDDEN,
    ),
    (
        re.compile(r"(?P<hook>\bhooks\.slack\.com/\w+/|/api/webhooks/|\.webhook\.office\.com/\w+/)[^\s\"'<>]+"),
        rf"\g<hook>{HIDDEN}",
    ),
    (re.compile(r"(?P<bot>\bapi\.telegram\.org/bot)[^\s/\"'<>]+"), rf"\g<bot>{HIDDEN}"),
)
"""Texts that are secrets, or hold one, by their form: PEM, URLs, JWT, HTTP's headers, what clouds and chats give."""


def is_secret(name: str) -> bool:
    """Whether a setting's value is a secret, by its name."""
    words = [word.lower() for word in _WORDS.findall(name)]
    if not words or words[-1] in _WHERE_OR_HOW:
        return False
    if not _SECRET_WORDS.isdisjoint(words) or (len(words) > 1 and words[-1] in _KEYS):
        return True
    return _SECRET_PART.search("".join(words)) is not None


def is_reference(value: object) -> bool:
    """Whether a value only says where a secret is: ``env:NAME`` or ``file:PATH``."""
    return isinstance(value, str) and value.startswith(("env:", "file:"))


def shown(name: str, value: Any) -> Any:
    """Return a setting's value for people: hidden if it is a secret; a text without the secrets in it."""
    if is_reference(value):
        return value
    if is_secret(name):
        return HIDDEN
    return without_secrets(value) if isinstance(value, str) else value


def without_secrets(text: str, settings: Mapping[str, object] | None = None) -> str:
    """Return a text for people, such as an error's message, without its secrets and those of ``settings``."""
    for name, value in (settings or {}).items():
        secret = str(value)
        if len(secret) >= _SHORTEST_SECRET and is_secret(name) and not is_reference(value):
            text = text.replace(secret, HIDDEN)
    for form, replacement in _FORMS:
        text = form.sub(replacement, text)
    return _without_named(text)


def _without_named(text: str) -> str:
    parts, told_to = [], 0
    name = _NAME.search(text)
    while name is not None:
        # After a name that is no secret go on right behind it, for a name may follow: "error: token: …",
        # "--set=password=…".
        following = name.end()
        value = _VALUE.match(text, following) if is_secret(name["name"]) else None
        if value is not None and not is_reference(value[0]) and not value[0].startswith(HIDDEN):
            parts += [text[told_to:following], HIDDEN]
            following = told_to = value.end()
        name = _NAME.search(text, following)
    return "".join([*parts, text[told_to:]])
