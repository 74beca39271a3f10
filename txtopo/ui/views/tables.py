"""Pieces that several views have: tables, stories, links to transactions, and lines for what is not there."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

from txtopo.inspect.past.wording import StoryLine
from txtopo.ui.markup.elements import Child, Markup, tag

_LINES_MAX = 5


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


def story(of: Iterable[StoryLine]) -> Markup:
    """Return lines as commands print them; of a thousand of a kind, such as files that were read, the first show."""
    lines: list[Child] = []
    for label, group in itertools.groupby(of, lambda line: line.label):
        texts = [line.text for line in group]
        lines.append(tag("dt", label))
        lines += [tag("dd", text) for text in texts[:_LINES_MAX]]
        if len(texts) > _LINES_MAX:
            more = (tag("p", text) for text in texts[_LINES_MAX:])
            lines.append(tag("dd", tag("details", tag("summary", f"{len(texts) - _LINES_MAX:,} more"), more)))
    return tag("dl", lines, class_="story")
