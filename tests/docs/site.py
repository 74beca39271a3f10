"""The site: what MkDocs is told by ``mkdocs.yml``, and ``python -m tests.docs.site FOLDER``, which looks at what it built.

Docstrings name things as Sphinx does, ``:class:`~txtopo.Fields```; the site shows them as code. A built site loads
nothing from elsewhere: no script, style sheet, font or image.
"""

import pathlib
import re
import sys

_ROLE = re.compile(r":(?:class|meth|func|attr|mod):<code>~?([\w.]+)</code>")
_LOADED = re.compile(r"""<(?:script|img|iframe|source|link)\b[^>]*?\b(?:src|href)=["']?((?:https?:)?//[^"'\s>]+)""")
_STYLE = re.compile(r"""(?:url\(|@import)\s*["']?((?:https?:)?//[^"')\s]+)""")


def on_page_content(html: str, **_context: object) -> str:
    """Show the roles of docstrings as code; MkDocs calls it for each page."""
    return _ROLE.sub(lambda match: f"<code>{match[1].rpartition('.')[2]}</code>", html)


def loaded_from_elsewhere(site: pathlib.Path) -> list[str]:
    """Return what the pages and style sheets of a built site load from other hosts, each with its file."""
    found = []
    for path in sorted(site.rglob("*")):
        pattern = {".html": _LOADED, ".css": _STYLE}.get(path.suffix)
        if pattern is not None:
            found += [f"{path.relative_to(site)}: {url}" for url in pattern.findall(path.read_text(encoding="utf-8"))]
    return found


def main() -> int:
    """Look at a site; return the number of what it loads from elsewhere."""
    found = loaded_from_elsewhere(pathlib.Path(sys.argv[1]))
    print("\n".join(found) or "the site loads nothing from elsewhere")
    return len(found)


if __name__ == "__main__":
    sys.exit(main())
