"""The header of a topology's page: does it move, how fast, how late, what waits, what failed, is it exact."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from txtopo.text.words import UNKNOWN, ago, count_of, duration, number, size
from txtopo.ui.markup.elements import Child, Markup, tag
from txtopo.ui.markup.plots import short
from txtopo.ui.views.checks import CHECK_WORDS
from txtopo.ui.views.tables import message, transaction_link

_CONFIRM = {
    "activate": ("activate", "Let the spout emit again?"),
    "deactivate": ("deactivate", "Let the spout emit nothing more? What is pending is still processed."),
    "rebalance": ("rebalance…", "Assign the driver anew, with these settings changed?"),
    "kill": ("kill…", "End the topology and remove it from the cluster? Its tables stay."),
}
"""The word on a button of the cluster, and the question that it asks."""


def header_part(header: Mapping[str, Any]) -> Markup:
    """Return the status of a run and one tile for each question."""
    tiles = _transactional(header) if header["kind"] == "transactional" else _plain(header)
    status = tag(
        "p",
        tag("span", class_="dot", aria_hidden="true"),
        tag("b", header["statusText"]),
        " ",
        tag("span", _process(header), class_="about"),
        class_=f"status {header['status']}",
        data_status=header["status"],
    )
    return tag("div", status, map(message, header["damage"]), tag("dl", tiles, class_="tiles"), _buttons(header))


def _process(header: Mapping[str, Any]) -> str:
    process, parts = header["process"], []
    if process is not None:
        parts.append(f"process {process['pid']} on {process['host']}, epoch {process['epoch']}")
    if header["startedAt"] is not None:
        end = header["endedAt"] or header["now"]
        parts.append(f"{'ran' if header['endedAt'] else 'up'} {duration(end - header['startedAt'])}")
    return ", ".join(parts)


def _transactional(header: Mapping[str, Any]) -> Iterator[Markup]:
    rate, latency, pending = header["rate"], header["latency"], header["pending"] or {}
    dead = header["deadLetters"]
    begun = [f"{number(header['begun'])} begun", *([count_of(dead, "dead letter")] if dead else [])]
    yield _tile("committed", number(header["committed"]), ", ".join(begun))
    yield _tile("transactions/s", short(rate["transactions"]), f"{short(rate['tuples'])} tuples/s{_average(header)}")
    yield _tile("latency, median", duration(latency["p50Secs"]), f"99 %: {duration(latency['p99Secs'])}")
    yield _lag(header)
    words = ", ".join(f"{count} {phase}" for phase, count in pending.items() if count)
    yield _tile("pending", number(sum(pending.values())), words or "nothing", style="double")
    yield _lowest(header)
    yield _failures(header, header["failures"], f"of {count_of(header['attempts'] or 0, 'attempt')}")
    if header["past"] is None:
        yield _exact(header)


def _plain(header: Mapping[str, Any]) -> Iterator[Markup]:
    roots, workers, rate, latency = header["roots"] or {}, header["workers"], header["rate"], header["latency"]
    yield _tile("roots acked", number(roots.get("acked")), f"{number(roots.get('emitted'))} emitted")
    yield _tile("roots/s", short(rate["transactions"]), f"{short(rate['tuples'])} tuples/s{_average(header)}")
    yield _tile("latency, median", duration(latency["p50Secs"]), f"99 %: {duration(latency['p99Secs'])}")
    yield _lag(header)
    yield _tile("pending roots", number(roots.get("pending")), "emitted, not yet acked")
    if workers is not None:
        killed = f", {number(workers['killed'])} killed" if workers["killed"] else ""
        tone = "bad" if workers["running"] < workers["wanted"] else ""
        running = f"{number(workers['running'])} of {number(workers['wanted'])}"
        yield _tile("workers", running, f"{count_of(workers['restarts'], 'restart')}{killed}", style=tone)
    yield _failures(header, roots.get("failed"), "roots")


def _average(header: Mapping[str, Any]) -> str:
    return "" if header["status"] in {"running", "starting", "silent"} else ", on average"


def _lag(header: Mapping[str, Any]) -> Markup:
    remaining = header["remaining"]
    left = (
        "" if remaining is None else f"about {count_of(remaining, 'transaction')} left" if remaining else "nothing left"
    )
    if header["lag"] is not None:
        return _tile("lag", short(header["lag"]), left or "records")
    if header["lagFiles"] is not None:
        about = [left, "" if header["lagBytes"] is None else size(header["lagBytes"])]
        return _tile("lag", count_of(header["lagFiles"], "file"), ", ".join(filter(None, about)))
    return _tile("lag", UNKNOWN, left or "not known")


def _lowest(header: Mapping[str, Any]) -> Markup:
    lowest = header["lowest"]
    if lowest is None:
        return _tile("first in line", UNKNOWN, "nothing is pending", style="broad")
    about = [lowest["status"]]
    if lowest["attempt"] is not None:
        about.append(f"attempt {lowest['attempt']}")
    if lowest["sinceSecs"] is not None:
        about.append(f"for {duration(lowest['sinceSecs'])}")
    waits = lowest["waitsFor"] and [", waits for ", tag("span", lowest["waitsFor"], class_="waits")]
    value = transaction_link(lowest["txid"], str(lowest["txid"]))
    return _tile("first in line", value, ", ".join(about), waits, style="broad")


def _failures(header: Mapping[str, Any], count: int | None, of: str) -> Markup:
    last, is_failing = header["lastFailure"], header["isFailing"]
    style = "bad broad" if is_failing else "broad"
    if last is None:
        return _tile("failures", number(count), of, style=style)
    where = f"{last['component']}: " if last["component"] else ""
    said = f"{where}{last['error'].partition(chr(10))[0]}"
    reason = tag("span", said, class_="reason" if is_failing else "past", title=said)
    link: Child = "" if last["txid"] is None else [" in ", transaction_link(last["txid"])]
    since = ago(last["at"], header["now"])
    return _tile(
        "failures",
        number(count),
        f"{of}; the last ",
        since,
        link,
        ": ",
        reason,
        style=style,
    )


def _exact(header: Mapping[str, Any]) -> Markup:
    check = header["check"]
    if check is None:
        value, about, tone = "not audited", "by this page", ""
    else:
        value, tone = CHECK_WORDS[check["kind"], check["state"]]
        about = f"{check['kind']}, {ago(check['endedAt'] or check['startedAt'], header['now'])}"
    button = header["can"]["audit"] and tag("button", "audit", id="audit", type="button", data_post="audit")
    return _tile("exactly once", value, about, " ", button, style=tone)


def _tile(name: str, value: Child, *about: Child, style: str = "") -> Markup:
    words = tag("dd", *about, class_="about") if any(about) else None
    return tag(
        "div", tag("dt", name), tag("dd", value, class_="value"), words, class_=f"tile {style}".strip(), data_key=name
    )


def _buttons(header: Mapping[str, Any]) -> Markup | None:
    """What the cluster can do with the topology; each button asks first."""
    can = {**header["can"], "deactivate": header["can"]["activate"] and header["isActive"] is True}
    can["activate"] = can["activate"] and header["isActive"] is not True
    buttons = [
        tag(
            "button",
            word,
            type="button",
            id=what,
            data_post=what,
            data_confirm=f"{header['id']}: {question}",
            data_settings=what == "rebalance",
        )
        for what, (word, question) in _CONFIRM.items()
        if can.get(what)
    ]
    return tag("p", buttons, class_="actions") if buttons else None
