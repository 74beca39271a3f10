"""HTML that can't forget to escape: elements are made by :func:`tag`, and every text that goes into one is escaped."""

from __future__ import annotations

import html
from collections.abc import Iterable

from txtopo.text.printable import escaped

_VOID = frozenset({"input", "br", "hr", "meta", "link"})


class Markup(str):
    """HTML that needs no escaping: what :func:`tag` and :func:`joined` return."""

    __slots__ = ()


Child = str | int | float | None | Iterable["Child"]
"""What may stand in an element: markup as it is, any other text escaped, nothing for None and False; or several."""

Attribute = str | int | float | bool | None


def tag(name: str, /, *children: Child, **attributes: Attribute) -> Markup:
    """Return an element.

    An attribute's name has ``_`` for ``-``, and one at its end is dropped: ``class_``, ``data_keep``, ``for_``. True
    gives an attribute without a value, None and False give none.
    """
    parts = [name]
    for key, value in attributes.items():
        label = key.rstrip("_").replace("_", "-")
        if value is True:
            parts.append(label)
        elif value is not None and value is not False:
            parts.append(f'{label}="{plain(str(value))}"')
    head = f"<{' '.join(parts)}>"
    return Markup(head if name in _VOID else f"{head}{joined(*children)}</{name}>")


def joined(*children: Child) -> Markup:
    """Return markup and texts one after another."""
    return Markup("".join(map(_part, children)))


def plain(text: str) -> str:
    """Return a text for HTML, in an element or in a quoted attribute.

    What is unprintable is escaped as for a terminal: half a surrogate pair can't be sent at all, and marks that turn
    the direction of writing would show a name as another one.
    """
    return html.escape(escaped(text, keep="\n\t"))


def _part(child: Child) -> str:
    if isinstance(child, Markup):
        return child
    if child is None or child is False:
        return ""
    if isinstance(child, str | int | float):
        return plain(str(child))
    return "".join(map(_part, child))
