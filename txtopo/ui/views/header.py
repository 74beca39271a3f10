"""The header of a topology's page: does it move, how fast, how late, what waits, what failed, is it exact."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from txtopo.inspect.run.status import Pending, Roots
from txtopo.text.words import UNKNOWN, ago, count_of, duration, number, size
from txtopo.ui.checks import PageHeader
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


def header_part(header: PageHeader) -> Markup:
    """Return the status of a run and one tile for each question."""
    tiles = _plain(header) if header.is_plain else _transactional(header)
    status = tag(
        "p",
        tag("span", class_="dot", aria_hidden="true"),
        tag("b", header.status_text),
        " ",
        tag("span", _process(header), class_="about"),
        class_=f"status {header.status}",
        data_status=header.status,
    )
    return tag("div", status, map(message, header.damage), tag("dl", tiles, class_="tiles"), _buttons(header))


def _process(header: PageHeader) -> str:
    process, parts = header.process, []
    if process is not None:
        parts.append(f"process {process.pid} on {process.host}, epoch {process.epoch}")
    if header.started_at is not None:
        end = header.ended_at or header.now
        parts.append(f"{'ran' if header.ended_at else 'up'} {duration(end - header.started_at)}")
    return ", ".join(parts)


def _transactional(header: PageHeader) -> Iterator[Markup]:
    rate, latency, pending = header.rate, header.latency, header.pending or Pending()
    dead = header.dead_letters
    begun = [f"{number(header.begun)} begun", *([count_of(dead, "dead letter")] if dead else [])]
    yield _tile("committed", number(header.committed), ", ".join(begun))
    yield _tile("transactions/s", short(rate.transactions), f"{short(rate.tuples)} tuples/s{_average(header)}")
    yield _tile("latency, median", duration(latency.p50_secs), f"99 %: {duration(latency.p99_secs)}")
    yield _lag(header)
    counts = {phase: count for phase, count in attrs.asdict(pending).items() if count}
    words = ", ".join(f"{count} {phase}" for phase, count in counts.items())
    yield _tile("pending", number(sum(counts.values())), words or "nothing", style="double")
    yield _lowest(header)
    yield _failures(header, header.failures, f"of {count_of(header.attempts or 0, 'attempt')}")
    if header.past is None:
        yield _exact(header)


def _plain(header: PageHeader) -> Iterator[Markup]:
    roots, workers, rate, latency = header.roots or Roots(), header.workers, header.rate, header.latency
    yield _tile("roots acked", number(roots.acked), f"{number(roots.emitted)} emitted")
    yield _tile("roots/s", short(rate.transactions), f"{short(rate.tuples)} tuples/s{_average(header)}")
    yield _tile("latency, median", duration(latency.p50_secs), f"99 %: {duration(latency.p99_secs)}")
    yield _lag(header)
    yield _tile("pending roots", number(roots.pending), "emitted, not yet acked")
    if workers is not None:
        killed = f", {number(workers.killed)} killed" if workers.killed else ""
        tone = "bad" if (workers.running or 0) < (workers.wanted or 0) else ""
        running = f"{number(workers.running)} of {number(workers.wanted)}"
        yield _tile("workers", running, f"{count_of(workers.restarts or 0, 'restart')}{killed}", style=tone)
    yield _failures(header, roots.failed, "roots")


def _average(header: PageHeader) -> str:
    return "" if header.status in {"running", "starting", "silent"} else ", on average"


def _lag(header: PageHeader) -> Markup:
    remaining = header.remaining
    left = (
        "" if remaining is None else f"about {count_of(remaining, 'transaction')} left" if remaining else "nothing left"
    )
    if header.lag is not None:
        records = "records" if header.lag_files is None else f"records, {count_of(header.lag_files, 'file')}"
        return _tile("lag", short(header.lag), records if header.lag_files is not None else left or records)
    if header.lag_files is not None:
        about = [left, "" if header.lag_bytes is None else size(header.lag_bytes)]
        return _tile("lag", count_of(header.lag_files, "file"), ", ".join(filter(None, about)))
    return _tile("lag", UNKNOWN, left or "not known")


def _lowest(header: PageHeader) -> Markup:
    lowest = header.lowest
    if lowest is None:
        is_over = header.status in {"ended", "failed", "killed"}
        return _tile("first in line", UNKNOWN, "the run is over" if is_over else "nothing is pending", style="broad")
    about = [lowest.status]
    if lowest.attempt is not None:
        about.append(f"attempt {lowest.attempt}")
    if lowest.since_secs is not None:
        about.append(f"for {duration(lowest.since_secs)}")
    waits = lowest.waits_for and [", waits for ", tag("span", lowest.waits_for, class_="waits")]
    value = transaction_link(lowest.txid, str(lowest.txid))
    return _tile("first in line", value, ", ".join(about), waits, style="broad")


def _failures(header: PageHeader, count: int | None, of: str) -> Markup:
    last, is_failing = header.last_failure, header.is_failing
    style = "bad broad" if is_failing else "broad"
    if last is None:
        return _tile("failures", number(count), of, style=style)
    where = f"{last.component}: " if last.component else ""
    said = f"{where}{last.error.partition(chr(10))[0]}"
    reason = tag("span", said, class_="reason" if is_failing else "past", title=said)
    link: Child = "" if last.txid is None else [" in ", transaction_link(last.txid)]
    since = ago(last.at, header.now)
    which = "the run ended" if header.status == "failed" else "the last"
    return _tile("failures", number(count), f"{of}; {which} ", since, link, ": ", reason, style=style)


def _exact(header: PageHeader) -> Markup:
    check = header.check
    if check is None:
        value, about, tone = "not audited", "by this page", ""
    else:
        value, tone = CHECK_WORDS[check.kind, check.state]
        about = f"{check.kind}, {ago(check.ended_at or check.started_at, header.now)}"
    button = header.can.audit and tag("button", "audit", id="audit", type="button", data_post="audit")
    return _tile("exactly once", value, about, " ", button, style=tone)


def _tile(name: str, value: Child, *about: Child, style: str = "") -> Markup:
    words = tag("dd", *about, class_="about") if any(about) else None
    return tag(
        "div", tag("dt", name), tag("dd", value, class_="value"), words, class_=f"tile {style}".strip(), data_key=name
    )


def _buttons(header: PageHeader) -> Markup | None:
    can = {
        "activate": header.can.activate and header.is_active is not True,
        "deactivate": header.can.activate and header.is_active is True,
        "rebalance": header.can.rebalance,
        "kill": header.can.kill,
    }
    buttons = [
        tag(
            "button",
            word,
            type="button",
            id=command,
            data_post=command,
            data_confirm=f"{header.id}: {question}",
            data_settings=command == "rebalance",
        )
        for command, (word, question) in _CONFIRM.items()
        if can[command]
    ]
    return tag("p", buttons, class_="actions") if buttons else None
