"""The errors of native libraries, delta-rs and obstore, as people may see them."""

from __future__ import annotations

import re

_FRAME = re.compile(r"^\s*\d+: \S")
"""A line of a native backtrace."""

_STYLE = re.compile(r"\x1b\[[0-9;]*m")
_DEBUG = "Debug source:"
"""What follows repeats the text as a dump of the library's objects."""

_NO_CREDENTIALS = re.compile(
    r"no credentials|credentials? provider|IMDS|169\.254\.169\.254|/latest/api/token|metadata\.google\.internal",
    re.IGNORECASE,
)
"""What stores say that found no credentials, or asked the machine's cloud for some, where it has none."""

_OF_HTTP = re.compile(r"builder error|URL scheme is not allowed")
"""What stores say of an endpoint without TLS, which has to be allowed."""

_OF_CATALOG = "Max catalog version"
"""What delta-rs says of a table whose versions only its catalog knows."""


def native_text(error: BaseException) -> str:
    """Return the text of a native error without stack frames, dumps and styles of terminals."""
    text = _STYLE.sub("", str(error)).partition(_DEBUG)[0]
    if _NO_CREDENTIALS.search(text):
        return (
            "no credentials for it were found; set them in the environment (S3: AWS_ACCESS_KEY_ID, "
            "AWS_SECRET_ACCESS_KEY and AWS_REGION), or give storage_options"
        )
    if _OF_CATALOG in text:
        return (
            "its commits are its catalog's (the feature catalogManaged), which delta-rs can't take part in yet; read "
            "it by a DataFrameSpout, through Spark, and keep tables of txtopo in an external location"
        )
    allow = "; an endpoint that begins with http:// needs AWS_ALLOW_HTTP=true" if _OF_HTTP.search(text) else ""
    lines: list[str] = []
    for line in text.splitlines():
        if _FRAME.match(line) or line.strip().startswith("stack backtrace"):
            break
        lines.append(line)
    return ("\n".join(lines).strip() or type(error).__name__) + allow
