"""Pieces that several views have: tables, links to transactions, and lines for what is not there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from txtopo.ui.markup.elements import Child, Markup, tag


def table(heads: Sequence[str], rows: Iterable[Sequence[Child]], *, caption: str = "", numbers: bool = False) -> Markup:
    """Return a table whose first column names the row, in a frame that scrolls by itself where the window is narrow.

    ``numbers`` puts all other columns to the right. The frame can be reached by the keyboard, for it may scroll.
    """
    head = tag("tr", (tag("th", each, scope="col") for each in heads))
    body = (tag("tr", tag("th", row[0], scope="row"), (tag("td", cell) for cell in row[1:])) for row in rows)
    inner = tag(
        "table",
        caption and tag("caption", caption),
        tag("thead", head),
        tag("tbody", body),
        class_="numbers" if numbers else None,
    )
    return tag("div", inner, class_="wide", tabindex=0, role="region", aria_label=caption or heads[0])


def none(text: str) -> Markup:
    """Return a line that stands where there is nothing to show, and says why."""
    return tag("p", text, class_="none")


def message(text: str) -> Markup:
    """Return what somebody has to be told, such as that something is damaged."""
    return tag("p", text, class_="message")


def transaction_link(txid: int, words: str = "") -> Markup:
    """Return a link to a transaction's page; the browser knows of which topology."""
    return tag("a", words or f"transaction {txid}", href="#", data_transaction=txid)
