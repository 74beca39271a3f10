"""The documents: a topology's page, a transaction's, the list of topologies, and a message."""

from __future__ import annotations

from txtopo.inspect.cluster import Cluster
from txtopo.inspect.past.transaction import Transaction
from txtopo.inspect.run.slugs import OF_RUN
from txtopo.inspect.run.status import Topologies
from txtopo.ui.checks import PageHeader
from txtopo.ui.markup.elements import Attribute, Child, Markup, joined, tag
from txtopo.ui.markup.spans import SPANS
from txtopo.ui.views.cluster import cluster_part
from txtopo.ui.views.header import header_part
from txtopo.ui.views.topologies import topologies_part
from txtopo.ui.views.transactions import transaction_part

_TITLES = {
    "timeline": "Timeline",
    "plots": "Plots",
    "graph": "Graph",
    "states": "States",
    "errors": "Errors",
    "settings": "Settings",
    "runs": "Runs",
}
_EVERY_MS = {"plots": 2000, "graph": 5000, "states": 5000, "errors": 2000, "settings": 60_000, "runs": 5000}
_PLAIN = ("plots", "graph", "errors", "settings", "runs")
_PAST = ("states",)
"""What an earlier run has no longer: tables are as the last run has left them."""
_PLOT_SECS = {"60": "a minute", "300": "5 minutes", "900": "15 minutes", "3600": "an hour"}
_KEYS = (
    ("↑ ↓", "pick a transaction"),
    ("← →", "move in time"),
    ("PgUp PgDn", "move through the rows"),
    ("+ \N{MINUS SIGN}", "zoom"),
    ("F", "follow"),
    ("A", "all"),
    ("L", "from the left"),
    ("Enter", "its own page"),
)


def topology_page(header: PageHeader) -> Markup:
    """Return the page of a topology: its header and one view for each tab."""
    names = _PLAIN if header.is_plain else tuple(_TITLES)
    back = None
    if header.past is not None:
        names = tuple(name for name in names if name not in _PAST)
        back = _back(f"the last run of {header.id}", header.slug.partition(OF_RUN)[0])
    tabs = (tag("li", tag("a", _TITLES[name], href=f"#{name}")) for name in names)
    views = (_timeline(header) if name == "timeline" else _view(name) for name in names)
    return _document(
        _title(header),
        back,
        _part("header", 1000, header_part(header), id="header", class_="header"),
        tag("section", id="check", aria_live="polite"),
        tag("nav", tag("ul", tabs), aria_label="Views"),
        tag("main", views, id="main"),
        data_slug=header.slug,
        data_kind=header.kind,
    )


def _title(header: PageHeader) -> str:
    return header.id if header.past is None else f"{header.id}, run {header.past}"


def _back(words: str, slug: str) -> Markup:
    return tag("p", tag("a", f"← {words}", href=f"/t/{slug}"), class_="back")


def _view(name: str) -> Markup:
    address, tools = name, None
    if name == "plots":
        address = "plots?secs=300"
        options = [tag("option", words, value=secs, selected=secs == "300") for secs, words in _PLOT_SECS.items()]
        moves = [
            tag("button", words, type="button", id=name, disabled=name != "earlier")
            for name, words in (("earlier", "← earlier"), ("later", "later →"), ("latest", "latest"))
        ]
        tools = tag("p", tag("label", tag("select", options, id="secs"), " at a time"), moves, class_="tools")
    if name == "graph":
        buttons = [
            tag("button", words, type="button", id=f"graph-{name}", aria_label=label)
            for name, words, label in (
                ("closer", "+", "larger"),
                ("farther", "\N{MINUS SIGN}", "smaller"),
                ("fit", "fit", "as wide as the window"),
                ("whole", "1:1", "in its own size"),
            )
        ]
        tools = tag("p", buttons, class_="tools")
    content = _part(address, _EVERY_MS[name], id=f"{name}-part")
    return tag("section", tag("h2", _TITLES[name]), tools, content, id=name, class_="view", hidden=True)


def _timeline(header: PageHeader) -> Markup:
    kinds = [*((style, text) for style, text, *_ in SPANS), ("failed", "failed")]
    legend = tag("ul", (tag("li", tag("span", class_=f"swatch {style}"), text) for style, text in kinds), class_="key")
    canvas = tag(
        "canvas",
        id="gantt",
        tabindex=0,
        role="application",
        aria_label="Transactions in time, a row each. The table below has those in view.",
        aria_describedby="keys",
    )
    keys = tag("ul", (tag("li", tag("kbd", key), f" {words}") for key, words in _KEYS), id="keys", class_="keys")
    shown = _part("transactions?limit=100", 2000, id="in-view")
    failed = tag("label", tag("input", type="checkbox", id="failed-only"), " failed ones only, of all that are known")
    rows = tag("details", tag("summary", "transactions in view, as a table"), tag("p", failed), shown, id="rows")
    is_there = header.timeline.is_there
    return tag(
        "section",
        tag("h2", "Timeline"),
        tag("p", None if is_there else header.timeline.why, id="no-timeline", class_="none", hidden=is_there),
        _timeline_tools(),
        legend,
        canvas,
        tag("p", " ", id="hint", class_="about", role="status"),
        tag("div", tag("p", "Pick a transaction for its details.", class_="none"), id="panel", class_="panel"),
        rows,
        keys,
        id="timeline",
        class_="view",
        hidden=True,
    )


def _timeline_tools() -> Markup:
    toggles = [
        tag("button", words, type="button", id=name, aria_pressed=pressed)
        for name, words, pressed in (("follow", "follow", "true"), ("aligned", "from the left", "false"))
    ]
    zooms = [
        tag("button", sign, type="button", id=name, aria_label=words)
        for name, sign, words in (
            ("closer", "+", "closer"),
            ("farther", "\N{MINUS SIGN}", "farther"),
            ("all", "all", "all"),
        )
    ]
    find = tag(
        "form",
        tag("label", "transaction ", tag("input", id="wanted", inputmode="numeric", autocomplete="off", size=9)),
        tag("button", "show", type="submit"),
        id="find",
    )
    return tag("div", tag("div", toggles, zooms, class_="group"), find, class_="tools")


def transaction_page(header: PageHeader, transaction: Transaction) -> Markup:
    """Return the page of one transaction."""
    txid = transaction.txid
    return _document(
        f"{_title(header)}, transaction {txid}",
        _back(_title(header), header.slug),
        tag("section", id="check", aria_live="polite"),
        tag("main", _part(f"transaction/{txid}", 1000, transaction_part(transaction), id="transaction"), id="main"),
        data_slug=header.slug,
        data_kind=header.kind,
    )


def topologies_page(topologies: Topologies, cluster: Cluster | None = None) -> Markup:
    """Return the list of topologies, and of a cluster its daemons."""
    daemons = topologies.is_cluster and _part(
        "/part/cluster", 2000, None if cluster is None else cluster_part(cluster), id="cluster"
    )
    return _document(
        topologies.place,
        tag(
            "main",
            tag("h2", "Topologies"),
            _part("/part/topologies", 2000, topologies_part(topologies), id="topologies"),
            daemons,
            id="main",
        ),
    )


def message_page(title: str, text: str) -> Markup:
    """Return a page that says one thing, such as that a topology is not there."""
    return _document(title, tag("main", message_part(text), tag("p", tag("a", "to the start", href="/")), id="main"))


def message_part(text: str) -> Markup:
    """Return a message in the place of a part."""
    return tag("p", text, class_="none message")


def _part(address: str, every_ms: int, content: Child = None, **attributes: Attribute) -> Markup:
    """Return an element whose content the browser asks for again; the address may begin after the topology's slug."""
    waits = tag("p", "…", class_="none") if content is None else content
    return tag("div", waits, data_part=address, data_every=every_ms, **attributes)


def _document(title: str, *content: Child, **attributes: Attribute) -> Markup:
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", f"{title} · txtopo"),
        tag("link", rel="icon", href="/static/icon.svg"),
        tag("link", rel="stylesheet", href="/static/page.css"),
        tag("script", src="/static/gantt.js", defer=True),
        tag("script", src="/static/page.js", defer=True),
    )
    body = tag(
        "body",
        tag("a", "to the content", href="#main", class_="skip"),
        tag(
            "header",
            tag("a", "txtopo", href="/", class_="home"),
            tag("h1", title),
            tag("p", id="connection", role="status"),
        ),
        tag("noscript", tag("p", "Without JavaScript this page shows its header alone.", class_="message")),
        content,
        tag("dialog", id="question"),
        tag("footer", "All times are UTC."),
        **attributes,
    )
    return joined(Markup("<!doctype html>"), tag("html", head, body, lang="en"))
