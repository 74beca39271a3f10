"""Transactions: a table of many, and all that is known of one."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from txtopo.inspect.past.transaction import Entered, Transaction
from txtopo.inspect.timeline.attempts import Transactions
from txtopo.text.words import UNKNOWN, cut, duration, moment, number
from txtopo.ui.markup.elements import Child, Markup, tag
from txtopo.ui.markup.spans import SPANS, seconds_of, spans_svg
from txtopo.ui.views.tables import none, story, table, transaction_link

_BAD = {"failed", "dead letter"}
_METADATA_CHARACTERS_MAX = 20_000


def transactions_part(transactions: Transactions) -> Markup:
    """Return a table of transactions, newest first."""
    rows = [
        [
            transaction_link(transaction.txid, str(transaction.txid)),
            tag("span", transaction.status, class_="bad" if transaction.status in _BAD else ""),
            number(transaction.attempts),
            number(transaction.tuples),
            moment(transaction.began_at),
            duration(transaction.secs),
            transaction.error
            and tag("span", f"{transaction.component or 'unknown component'}: {transaction.error}", class_="reason"),
        ]
        for transaction in transactions.transactions
    ]
    if not rows:
        return none("no such transaction among those that the timeline still has")
    heads = ("transaction", "status", "attempts", "tuples", "began (UTC)", "took", "last failure")
    more = transactions.is_cut and tag("p", "There are more: show fewer rows of the timeline.", class_="about")
    return tag("div", table(heads, rows), more)


def transaction_part(transaction: Transaction) -> Markup:
    """Return the story of a transaction, its attempts, writes and metadata, and what can be checked of it."""
    attempts, journal = transaction.attempts, transaction.journal
    is_done = attempts[-1].outcome in {"visible", "dead letter"} if attempts else journal is not None
    return tag(
        "article",
        tag("h2", transaction.headline),
        _neighbours(transaction),
        _buttons(transaction),
        tag("div", spans_svg(attempts, transaction.writes, transaction.now), class_="wide"),
        tag("div", None if is_done else story(transaction.story)),  # what it waits for comes first
        _attempts(transaction),
        _errors(transaction),
        _writes(transaction),
        [tag("h3", "Story"), story(transaction.story)] if is_done else None,
        _metadata(journal),
        class_="transaction",
        data_done=is_done,
        data_key=f"transaction {transaction.txid}",
    )


def _neighbours(transaction: Transaction) -> Markup:
    links: list[Child] = []
    for txid, arrow in ((transaction.previous, "← "), (transaction.next, "→ ")):
        if txid is not None:
            links.append(tag("li", transaction_link(txid, f"{arrow}{txid}")))
    return tag("ul", links, tag("li", transaction_link(transaction.txid, "its own page"), class_="own"), class_="links")


def _buttons(transaction: Transaction) -> Markup | None:
    can, txid = transaction.can, transaction.txid
    words = {
        "audit": (
            "audit this",
            "audit",
            "prove from journal and tables that each transaction, this one too, was committed once",
        ),
        "replay": ("replay this", f"replay/{txid}", "run it once more without writing, and compare its tuples"),
    }
    buttons = [
        tag("button", word, type="button", id=f"{name}-{txid}", data_post=address, title=why)
        for name, (word, address, why) in words.items()
        if getattr(can, name)
    ]
    return tag("p", buttons, class_="actions") if buttons else None


def _attempts(transaction: Transaction) -> Child:
    if not transaction.attempts:
        return none("the timeline no longer has its attempts")
    heads = ("attempt", "outcome", "epoch", "job", "group", "tuples", *(words for _, words, *_ in SPANS))
    last = transaction.attempts[-1]
    rows = (
        [
            number(attempt.try_),
            tag(
                "span",
                "lost with its run" if attempt.outcome == "open" and attempt is not last else attempt.outcome,
                class_="bad" if attempt.outcome in {"failed", "dead letter"} else "",
            ),
            *map(number, (attempt.epoch, attempt.job, attempt.group, attempt.tuples)),
            *(duration(seconds_of(attempt, style)) for style, *_ in SPANS),
        ]
        for attempt in transaction.attempts
    )
    return [tag("h3", "Attempts"), table(heads, rows, numbers=True)]


def _errors(transaction: Transaction) -> Iterator[Markup]:
    for attempt in transaction.attempts:
        if attempt.error:
            where = f" in {attempt.component}" if attempt.component else ""
            yield tag(
                "h3",
                f"Attempt {attempt.try_} failed{where}",
                f", {moment(attempt.ended_at)} UTC" if attempt.ended_at else "",
            )
            yield tag("pre", attempt.error, class_="error", tabindex=0)


def _writes(transaction: Transaction) -> Child:
    rows: list[Sequence[Child]] = []
    for write in transaction.writes:
        times = [_between(write.prepared_at, write.decided_at), _between(write.from_at, write.to_at)]
        rows.append([write.state, number(write.rows), number(write.removed), *times, moment(write.to_at)])
    heads = ("state", "rows put", "removed", "data files", "log entry", "visible (UTC)")
    return [tag("h3", "Delta writes of its whole group"), table(heads, rows, numbers=True)] if rows else None


def _between(start: float | None, end: float | None) -> str:
    return UNKNOWN if start is None or end is None else duration(end - start)


def _metadata(journal: Entered | None) -> Child:
    if journal is None:
        return None
    text = cut(json.dumps(journal.metadata, ensure_ascii=False, indent=2), _METADATA_CHARACTERS_MAX)
    return tag("details", tag("summary", "metadata"), tag("pre", text, tabindex=0), data_key="metadata")
