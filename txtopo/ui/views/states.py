"""The states of a topology, and the rows of one of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from txtopo.inspect.past.tables import Rows, States, StateTable
from txtopo.text.words import count_of, moment, number, size
from txtopo.ui.markup.elements import Markup, tag
from txtopo.ui.views.tables import message, none, table


def states_part(states: States) -> Markup:
    """Return a table of the states, and for each a form to look up rows in it."""
    if not states.states:
        return none(states.why or "no table is known: the topology has none, or none has been written yet")
    heads = (
        "state",
        "kind",
        "rows",
        "files",
        "size",
        "files on disk",
        "size on disk",
        "points",
        "version",
        "last txid",
        "updated (UTC)",
        "fields",
        "path",
    )
    rows = [
        [
            state.name,
            " ".join(filter(None, (state.kind, state.class_))),
            *map(number, (state.rows, state.files)),
            size(state.bytes),
            number(state.disk_files),
            size(state.disk_bytes),
            _points(state),
            *map(number, (state.version, state.txid)),
            moment(state.updated_at),
            _fields(state),
            tag("span", state.error, class_="reason") if state.error else tag("code", state.path),
        ]
        for state in states.states
    ]
    advice = [tag("p", f"{state.name}: {state.advice}", class_="about") for state in states.states if state.advice]
    why = states.why and message(states.why)
    return tag("div", why, table(heads, rows), advice, map(_lookup, states.states))


def _points(state: StateTable) -> str:
    """Say how many transactions it can be shown as of, besides the last ones, and since when."""
    if not state.points:
        return "" if state.all_since is None else "all"
    oldest = state.points[0]
    return f"{len(state.points)} since {oldest.txid}, {moment(oldest.written_at)[:16]}"


def _fields(state: StateTable) -> str:
    return f"{state.key} → {state.value}" if state.key else state.value or ""


def _lookup(state: StateTable) -> Markup:
    """A form whose answer, like what is typed, stays when the part is asked for again (``data-own``)."""
    keys = [
        tag("label", name, " ", tag("input", name="key", autocomplete="off", spellcheck="false"))
        for name in key_names(state.key or "")
    ]
    form = tag(
        "form",
        tag("input", type="hidden", name="name", value=state.name),
        keys,
        tag("label", "as of transaction ", tag("input", name="txid", inputmode="numeric", placeholder="now", size=8)),
        tag("button", "look up" if keys else "show rows", type="submit"),
        keys and tag("span", "an empty key shows the first rows", class_="about"),
        class_="lookup",
    )
    points = bool(state.points) and tag("p", _points_text(state), class_="about")
    answer = tag("div", data_own=True, class_="answer", aria_live="polite")
    return tag("details", tag("summary", f"look into {state.name}"), points, form, answer, data_key=state.name)


def _points_text(state: StateTable) -> str:
    """List the transactions that it can be shown as of."""
    since = "" if state.all_since is None else f", and each commit group from {state.all_since.txid} on"
    return f"Points: {', '.join(str(point.txid) for point in state.points)}{since}."


def key_names(declared: str) -> list[str]:
    """Return the names of fields that are declared as ``name: type, name: type``; a type may hold commas itself."""
    names, depth, start = [], 0, 0
    for at, character in enumerate(f"{declared},"):
        depth += {"<": 1, "(": 1, ">": -1, ")": -1}.get(character, 0)
        if character == "," and depth == 0:
            names.append(declared[start:at].partition(":")[0].strip())
            start = at + 1
    return [name for name in names if name]


def rows_part(rows: Rows) -> Markup:
    """Return rows of a state, or why it can't show them."""
    if rows.error:
        return tag("p", rows.error, class_="reason")
    when = "now" if rows.txid is None else f"as of transaction {rows.txid}"
    head = f"{count_of(rows.found, 'row')} of {number(rows.total)}, {when}"
    if rows.last_txid is not None:
        head += f"; the last transaction is {rows.last_txid}"
    if not rows.rows:
        return tag("p", f"no row: {head}", class_="none")
    heads = [f"{name}: {kind}" for name, kind in zip(rows.columns, rows.types, strict=True)]
    cells = (tuple(map(_cell, row)) for row in rows.rows)
    cut = f"These are the first {len(rows.rows)}." if rows.is_cut else ""
    return tag("div", tag("p", f"{head}. {cut}", class_="about"), _rows(heads, cells, rows.name))


def _rows(heads: Sequence[str], cells: Any, name: str) -> Markup:
    return table(heads, cells, caption=f"Rows of {name}")


def _cell(value: str | None) -> Markup:
    return tag("i", "null") if value is None else tag("span", value, class_="value")
