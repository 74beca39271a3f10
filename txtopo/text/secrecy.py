"""What is a secret, by its name or by its form; asked wherever settings, or texts that may quote them, are shown.

A name shows that its value is a secret: ``shop.password``, ``fs.s3a.access.key``, ``dbPwd``. A value of any name may be
or contain one: ``https://user:password@host``, a JAAS configuration, a private key in PEM; of such a text only the
secret is hidden. In doubt hide: a wrongly hidden value costs a look elsewhere, a shown secret costs more.

``env:NAME`` and ``file:PATH`` say where a secret is, and are shown.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote, quote_plus

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

# A group that is repeated is atomic, as (?>(?:…)+): Python before 3.11.5 errs with (?:…)++ (python/cpython#106052).
_NAMED = re.compile(
    r"""
    # name=value, "name": "value", name => value, <name>value</name>, "name": "x", "value": "y", and -Dname=value
    (?<![\w.\-])(?:-D)?(?P<name>[\w.\-]++)(?>(?:\\*+["'])?)\s*+
        (?:[=:]{1,2}>?|-?>|%3[DdAa]|</name>\s*+<value>|,?\s*+\\*+["']?value\\*+["']?\s*+[=:])\s*+
    # ('name', 'value')
    | \(\s*+[bBrRuU]{0,2}\\*+["'](?P<first>[\w.\-]++)\\*+["']\s*+,\s*+
    # --name value, and the same in a list of arguments
    | (?<![\w.\-])(?P<option>--?[A-Za-z][\w.\-]*+)(?>(?:\\*+["'])?)(?:\s*+,\s*+|\s++)(?!\\*+["']?-)
    # password is value, password value
    | (?<![A-Za-z0-9])(?i:(?P<noun>
          (?P<password>passw(?:or)?d|passphrase|passcode|pwd|pw)
          |(?:access|account|api|encryption|master|private|secret|shared|signing|storage)[\ _\-]?key
          |pin|secret|token|credentials?|cookie|signature
      )(?>(?:\\*+["'])?)(?>(?P<is>\s++(?:is|was))?)\s++)
    """,
    re.VERBOSE,
)
"""Where a value follows that may be a secret, by the name before it."""

_VALUE = re.compile(
    r"""(?:[bBfFrRuU]{1,2}(?=\\*["']))?
    (?:(?P<quote>\\+["'])(?>(?:(?!(?P=quote)).)+) | "(?>(?:[^"\\]|\\.)+) | '(?>(?:[^'\\]|\\.)+)
      | (?>(?:[^\s"'&;,)}\]<\\]|<(?!/)|\\(?!["']))+))""",
    re.VERBOSE | re.DOTALL,
)
"""In quotes, perhaps escaped ones, which it includes at its beginning, or up to what ends a value elsewhere."""

_PLAIN_NAME = re.compile(r"[\w.\-]+")
_OPENING = re.compile(r"""[bBfFrRuU]{0,2}\\*["']""")
_BRACKETS = {"{": "}", "[": "]", "(": ")"}
_OPENED = re.compile(r"(?:[A-Za-z_][\w.]*+)?[{\[(]")
"""Brackets, perhaps those of a call, such as an object's ``repr``."""
_INSIDE = re.compile(r"""[{[(}\])]|"(?>(?:[^"\\]|\\.)*)(?:"|\\?\Z)|'(?>(?:[^'\\]|\\.)*)(?:'|\\?\Z)""", re.DOTALL)

_WORD = re.compile(r"[A-Za-z]?[a-z]*[.:!?]?")
_PROSE = re.compile(
    r"""(?:a|an|and|are|as|at|be|been|by|can|cannot|correct|does|empty|expired|file|for|from|given|had|has|have|hidden|if|in
    |incorrect|invalid|is|it|longer|missing|must|needed|neither|no|none|not|null|of|on|one|only|or|refused|rejected
    |required|set|shorter|should|shown|so|that|the|there|this|to|too|unknown|unset|used|was|which|will|with|without
    |wrong)[.:!?]*""",
    re.VERBOSE | re.IGNORECASE,
)
"""What follows "password" or "password is" in a sentence that names no password."""

_TOKEN_MIN = 8
"""Texts shorter than this behind "token" or "secret" are words of a sentence, such as "unexpected token ')'"."""

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
        re.compile(
            r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b|\bgh[pousr]_\w{20,}|\bxox[abprs]-[\w\-]{10,}|\bsk-[\w\-]{20,}"
            r"|\b[rs]k_(?:live|test)_\w{10,}|\bgl(?:pat|dt)-[\w\-]{20,}|\bgithub_pat_\w{20,}|\bAIza[\w\-]{35}"
        ),
        HIDDEN,
    ),
    (
        re.compile(r"(?P<hook>\bhooks\.slack\.com/\w+/|/api/webhooks/|\.webhook\.office\.com/\w+/)[^\s\"'<>]+"),
        rf"\g<hook>{HIDDEN}",
    ),
    (re.compile(r"(?P<bot>\bapi\.telegram\.org/bot)[^\s/\"'<>]+"), rf"\g<bot>{HIDDEN}"),
)
"""Texts that are secrets, or hold one, by their form: PEM, URLs, JWT, HTTP's headers, what clouds and chats give."""

_kept: list[frozenset[str]] = []
"""The secrets that are hidden in each text of this process, whoever makes it fit for people."""


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
    match value:
        case str():
            return without_secrets(value)
        case Mapping():
            return {own: shown(str(own), each) for own, each in value.items()}
        case list() | tuple():
            return [shown(name, each) for each in value]
    return value


def without_secrets(text: str, settings: Mapping[str, object] | None = None) -> str:
    """Return a text for people, such as an error's message, without its secrets and those of ``settings``."""
    for secret in sorted(_secrets_of(settings or {}).union(*_kept), key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    for form, replacement in _FORMS:
        text = form.sub(replacement, text)
    return _without_named(text)


@contextlib.contextmanager
def secrets_kept(settings: Mapping[str, object]) -> Iterator[None]:
    """Let :func:`without_secrets` hide the secrets of ``settings`` meanwhile, wherever in this process it is called."""
    secrets = _secrets_of(settings)
    _kept.append(secrets)
    try:
        yield
    finally:
        _kept.remove(secrets)


class SecretFilter(logging.Filter):
    """Hides secrets in log records, whose texts come from libraries and user code and may quote settings.

    It also hides every secret value of ``settings``, a topology's, wherever it stands.
    """

    def __init__(self, settings: Mapping[str, object] | None = None) -> None:
        super().__init__()
        self.settings: Mapping[str, object] = settings or {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Hide the secrets of a record; let every record through."""
        try:
            message = record.getMessage()
        except Exception as error:  # noqa: BLE001 - whoever logs what does not fit its arguments may not fail
            message = f"{record.pathname}:{record.lineno} logs what can't be written: {type(error).__name__}: {error}"
        record.msg, record.args = without_secrets(message, self.settings), ()
        if record.exc_info:
            traceback = record.exc_text or logging.Formatter().formatException(record.exc_info)
            record.exc_text = without_secrets(traceback, self.settings)
        return True


def command_line(words: Iterable[str]) -> str:
    """Return the text of a command for people, without the secrets among its words; see :func:`shlex.join`."""
    parts, option = [], ""
    for word in words:
        is_value = is_secret(option) and not word.startswith("-") and not is_reference(word)
        parts.append(HIDDEN if is_value else _shown_word(word))
        option = word if word.startswith("-") else ""
    return shlex.join(parts)


def _shown_word(word: str) -> str:
    name, equals, value = word.partition("=")
    if not equals or _PLAIN_NAME.fullmatch(name) is None:
        return without_secrets(word)
    # A value may have blanks in it, so in a longer text nobody could say where it ends.
    return f"{name}={shown(name, value) if is_secret(name) else _shown_word(value)}"


def _secrets_of(settings: Mapping[str, object]) -> frozenset[str]:
    """Return the texts that are secrets of settings, also as they are in other texts."""
    secrets = [
        str(value)
        for key, setting_value in settings.items()
        for name, value in _parts(key, setting_value)
        if len(str(value)) >= _SHORTEST_SECRET and is_secret(name) and not is_reference(value)
    ]
    return frozenset(
        form
        for secret in secrets
        for form in (
            *(secret, repr(secret)[1:-1], json.dumps(secret)[1:-1]),
            *(quote(secret), quote(secret, safe=""), quote_plus(secret)),
        )
    )


def _parts(name: str, value: object) -> Iterator[tuple[str, object]]:
    parsed = value
    if isinstance(value, str) and value.lstrip().startswith(("{", "[")):
        with contextlib.suppress(ValueError, RecursionError):
            parsed = json.loads(value)
    match parsed:
        case Mapping():
            for member, each in parsed.items():
                yield from _parts(f"{name}.{member}" if is_secret(name) else str(member), each)
        case list() | tuple():
            for each in parsed:
                yield from _parts(name, each)
        case _:
            yield name, parsed
    if parsed is not value:
        yield name, value  # others may quote it whole


def _without_named(text: str) -> str:
    parts, told_to = [], 0
    named = _NAMED.search(text)
    while named is not None:
        # After a name that is no secret go on right behind it, for a name may follow: "error: token: …",
        # "--set=password=…".
        following = named.end()
        start, end = _span_of_secret(text, named)
        if start < end:
            parts += [text[told_to:start], HIDDEN]
            following = told_to = end
        named = _NAMED.search(text, following)
    return "".join([*parts, text[told_to:]])


def _span_of_secret(text: str, named: re.Match[str]) -> tuple[int, int]:
    """Return where the secret behind a name begins and ends, without its quotes: twice the same if there is none."""
    start = named.end()
    name = named["name"] or named["first"] or named["option"]
    if name is not None and not is_secret(name):
        return start, start
    if name is not None and (opened := _OPENED.match(text, start)) is not None:
        return start, _end_of_brackets(text, opened.end() - 1)
    value = _VALUE.match(text, start)
    if value is None:
        return start, start
    opening = _OPENING.match(text, start)
    secret = text[start if opening is None else opening.end() : value.end()]
    if is_reference(secret) or secret.startswith(HIDDEN) or (name is None and not _is_told(named, value[0], secret)):
        return start, start
    return value.end() - len(secret), value.end()


def _is_told(named: re.Match[str], value: str, secret: str) -> bool:
    """Whether a sentence tells a secret: "password is x", "passwd x", and not "password is wrong"."""
    if _PROSE.fullmatch(secret):
        return False
    if named["is"] is not None:
        return True
    is_word = value == secret and _WORD.fullmatch(secret) is not None
    if named["password"] is None:
        return not is_word and len(secret) >= _TOKEN_MIN and any(map(str.isdigit, secret))
    return not is_word or named["password"].lower() in {"passwd", "pwd", "pw"}


def _end_of_brackets(text: str, start: int) -> int:
    """Return the end of what a bracket opens; that of the text if nothing closes it."""
    closing: list[str] = []
    for bracket in _INSIDE.finditer(text, start):
        if bracket[0] in _BRACKETS:
            closing.append(_BRACKETS[bracket[0]])
        elif closing and bracket[0] == closing[-1]:
            closing.pop()
            if not closing:
                return bracket.end()
    return len(text)
