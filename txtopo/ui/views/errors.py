"""The last hundred errors, grouped by component and first line."""

from __future__ import annotations

from txtopo.inspect.run.failures import Error, ErrorGroup, Errors
from txtopo.text.words import count_of, moment, number
from txtopo.ui.markup.elements import Child, Markup, tag
from txtopo.ui.views.tables import none, transaction_link


def errors_part(errors: Errors) -> Markup:
    """Return the groups, newest first; each opens to its errors with tracebacks."""
    if not errors.groups:
        return none("nothing has failed in this run")
    shown = sum(len(group.errors) for group in errors.groups)
    total = errors.total
    left_out = "" if total is None or total <= shown else f" These are the last {shown:,}; the counts are of these."
    words = f"{number(total)} {'failure' if total == 1 else 'failures'} in this run.{left_out}"
    return tag(
        "div",
        tag("p", words, class_="about"),
        (_group(group, is_open=at == 0) for at, group in enumerate(errors.groups)),
    )


def _group(group: ErrorGroup, *, is_open: bool) -> Markup:
    head = tag(
        "summary",
        tag("b", f"{group.count:,} \N{MULTIPLICATION SIGN} "),
        tag("span", group.component or "unknown component", class_="component"),
        " ",
        tag("span", group.first, class_="reason"),
        tag("span", f" last {moment(group.last_at)}", class_="about"),
    )
    known = count_of(len(group.errors), "error")
    key = f"{group.component}\n{group.first}"
    errors = (tag("li", _where(error), tag("pre", error.text, tabindex=0)) for error in group.errors)
    return tag(
        "details",
        head,
        tag("p", f"{known}, the first {moment(group.first_at)}", class_="about"),
        tag("ol", errors),
        class_="errors",
        open=is_open,
        data_key=key,
    )


def _where(error: Error) -> Markup:
    parts: list[Child] = [tag("time", moment(error.at))]
    if error.txid is not None:
        parts += [", ", transaction_link(error.txid)]
    if error.attempt is not None:
        parts.append(f", attempt {error.attempt}")
    if error.epoch is not None:
        parts.append(f", epoch {error.epoch}")
    return tag("p", parts)
