"""The OpenAPI document of the page's API. Tests compare it with the routes, and the routes' answers with it."""

from __future__ import annotations

from typing import Any

Shape = Any
"""A type's name, with ``?`` if it may be null; ``[shape]``; ``{name: shape}``; or ``{"*": shape}`` for any names."""

_TOPOLOGY: Shape = {
    "slug": "string",
    "id": "string",
    "kind": "string",
    "status": "string",
    "statusText": "string",
    "committed": "integer?",
    "lag": "integer?",
    "lagFiles": "integer?",
    "lagBytes": "integer?",
    "lastError": "string?",
    "startedAt": "number?",
    "updatedAt": "number?",
}
_CHECK: Shape = {
    "check": "integer",
    "kind": "string",
    "slug": "string",
    "txid": "integer?",
    "state": "string",
    "startedAt": "number",
    "endedAt": "number?",
    "output": "string",
}
_COUNTS: Shape = {
    "emitted": "number?",
    "transferred": "number?",
    "executed": "number?",
    "acked": "number?",
    "failed": "number?",
    "queued": "number?",
}
_PROCESS: Shape = ({"pid": "integer", "host": "string", "epoch": "integer", "isAlive": "boolean?"},)
_ROOTS: Shape = (dict.fromkeys(("emitted", "acked", "failed", "pending"), "integer?"),)
_HEADER: Shape = {
    **_TOPOLOGY,
    "now": "number",
    "past": "integer?",
    "endedAt": "number?",
    "process": _PROCESS,
    "begun": "integer?",
    "transactions": "integer?",
    "deadLetters": "integer?",
    "attempts": "integer?",
    "failures": "integer?",
    "tuples": "integer?",
    "pending": (dict.fromkeys(("ready", "processing", "processed", "committing"), "integer?"),),
    "remaining": "integer?",
    "rate": {"transactions": "number?", "tuples": "number?"},
    "latency": {"p50Secs": "number?", "p99Secs": "number?"},
    "lowest": (
        {
            "txid": "integer",
            "status": "string",
            "waitsFor": "string",
            "sinceSecs": "number?",
            "attempt": "integer?",
        },
    ),
    "lastFailure": (
        {"txid": "integer?", "attempt": "integer?", "component": "string?", "error": "string", "at": "number"},
    ),
    "isFailing": "boolean",
    "check": (_CHECK,),
    "timeline": {"isThere": "boolean", "why": "string"},
    "damage": ["string"],
    "can": dict.fromkeys(("audit", "replay", "activate", "rebalance", "kill"), "boolean"),
    "isActive": "boolean?",
    "roots": _ROOTS,
    "workers": (dict.fromkeys(("wanted", "running", "restarts", "killed", "cpuSecs"), "number?"),),
    "components": [{"id": "string", **_COUNTS}],
}
_WHOLE, _MILLIS = ["integer"], ["number"]
_TIMELINE: Shape = {
    "head": "integer",
    "lost": "boolean",
    "base": "number",
    "now": "number",
    "epoch": "integer",
    "runs": [{"epoch": "integer", "pid": "integer", "at": "number"}],
    "attempts": {
        **dict.fromkeys(("txid", "try", "epoch", "outcome", "job", "group", "tuples", "component", "text"), _WHOLE),
        **dict.fromkeys(
            ("available", "begun", "metadata", "started", "processed", "grouped", "phases", "ended"), _MILLIS
        ),
    },
    "writes": {
        **dict.fromkeys(("epoch", "group", "state", "rows", "removed"), _WHOLE),
        **dict.fromkeys(("prepared", "decided", "from", "to"), _MILLIS),
    },
    "texts": {"*": "string"},
}
_MOMENTS: Shape = dict.fromkeys(
    (
        "availableAt",
        "begunAt",
        "metadataAt",
        "startedAt",
        "processedAt",
        "groupedAt",
        "phasesAt",
        "endedAt",
    ),
    "number?",
)
_TRANSACTION: Shape = {
    "txid": "integer",
    "now": "number",
    "headline": "string",
    "story": [{"label": "string", "text": "string"}],
    "attempts": [
        {
            "try": "integer",
            "epoch": "integer",
            "outcome": "string",
            "job": "integer?",
            "group": "integer?",
            "tuples": "integer",
            "component": "string?",
            "error": "string?",
            **_MOMENTS,
        }
    ],
    "writes": [
        {
            "state": "string",
            "rows": "integer",
            "removed": "integer",
            **dict.fromkeys(("preparedAt", "decidedAt", "fromAt", "toAt"), "number?"),
        }
    ],
    "journal": (
        {
            "group": ["integer"],
            "metadata": "any",
            "plannedAt": "number?",
            "ranges": {"*": ["any"]},
            "skipped": {"*": [["any"]]},
            "tuples": {"*": "integer"},
            "isDeadLetter": "boolean",
        },
    ),
    "can": {"audit": "boolean", "replay": "boolean"},
    "previous": "integer?",
    "next": "integer?",
}
_TRANSACTIONS: Shape = {
    "transactions": [
        {
            "txid": "integer",
            "status": "string",
            "attempts": "integer",
            "epoch": "integer",
            "group": "integer?",
            "tuples": "integer",
            "beganAt": "number?",
            "endedAt": "number?",
            "secs": "number?",
            "component": "string?",
            "error": "string?",
        }
    ],
    "isCut": "boolean",
}
_ERRORS: Shape = {
    "total": "integer",
    "groups": [
        {
            "component": "string",
            "first": "string",
            "count": "integer",
            "firstAt": "number",
            "lastAt": "number",
            "errors": [
                {
                    "at": "number",
                    "txid": "integer?",
                    "attempt": "integer?",
                    "epoch": "integer?",
                    "component": "string",
                    "text": "string",
                }
            ],
        }
    ],
}
_STATES: Shape = {
    "states": [
        {
            "name": "string",
            "kind": "string?",
            "class": "string?",
            "key": "string?",
            "value": "string?",
            "path": "string",
            **dict.fromkeys(("rows", "files", "bytes", "version", "txid"), "integer?"),
            "updatedAt": "number?",
            "note": "string",
            "error": "string?",
        }
    ],
    "isLive": "boolean",
    "why": "string",
}
_ROWS: Shape = {
    "name": "string",
    "txid": "integer?",
    "columns": ["string"],
    "types": ["string"],
    "rows": [["string?"]],
    "found": "integer",
    "total": "integer",
    "isCut": "boolean",
    "lastTxid": "integer?",
    "error": "string?",
}
_GRAPH: Shape = {
    "topology": "string",
    "kind": "string",
    "components": [
        {
            "id": "string",
            "kind": "string",
            "class": "string",
            "tasks": "integer",
            "phase": "string?",
            "committer": "boolean",
            "streams": {"*": "string"},
            "states": ["string"],
            "counts": {
                "in": "number?",
                "out": {"*": "number"},
                "emitted": "number?",
                "executed": "number?",
                "acked": "number?",
                "failed": "number?",
                "queued": "number?",
            },
            "lastError": "string?",
            "lastFailedAt": "number?",
            "isFailing": "boolean",
        }
    ],
    "edges": [{"source": "string", "stream": "string", "target": "string", "grouping": "string"}],
    "states": {"*": {"class": "string", "kind": "string", "key": "string", "value": "string", "path": "string"}},
    "why": "string",
}
_PLOTS: Shape = {
    "secs": "integer",
    "stepSecs": "integer",
    "until": "integer",
    "isLast": "boolean",
    "at": ["integer"],
    "plots": [{"name": "string", "title": "string", "unit": "string", "lines": {"*": ["number?"]}}],
}
_SETTINGS: Shape = {
    "settings": [
        {
            "name": "string",
            "inPython": "string",
            "value": "string",
            "default": "string",
            "isDefault": "boolean",
            "purpose": "string",
            "isSecret": "boolean",
        }
    ],
    "arguments": {"*": "string"},
    "why": "string",
}

_RUNS: Shape = {
    "runs": [
        {
            "past": "integer?",
            **{name: _TOPOLOGY[name] for name in ("slug", "kind", "status", "committed")},
            "why": "string",
            **dict.fromkeys(("startedAt", "endedAt", "updatedAt"), "number?"),
            **dict.fromkeys(("tuples", "transactions", "deadLetters", "failures"), "integer?"),
            "process": _PROCESS,
            "roots": _ROOTS,
        }
    ],
}
_TOPOLOGIES: Shape = {
    "version": "string",
    "place": "string",
    "isCluster": "boolean",
    "topologies": [{**_TOPOLOGY, "rate": "number?"}],
}
_CLUSTER: Shape = {
    "now": "number",
    "nimbuses": [
        {
            "address": "string",
            "isLeader": "boolean",
            "isAlive": "boolean",
            "startedAt": "number",
            "version": "string",
            "codeHeld": ["string"],
        }
    ],
    "supervisors": [
        {
            "host": "string",
            "startedAt": "number",
            "slots": "integer",
            "used": "integer",
            "drivers": [{"slug": "string", "id": "string", "pid": "integer?"}],
        }
    ],
    "why": "string",
}
_CHANGED: Shape = {"id": "string", "status": "string", "secondsLeft": "number?"}
_BEGUN: Shape = {"check": "integer"}

_OF_TOPOLOGY = "/api/v1/topology/{slug}"
SHAPES: dict[tuple[str, str], tuple[str, Shape, dict[str, str]]] = {
    ("get", "/api/v1/topology"): ("All topologies", _TOPOLOGIES, {}),
    ("get", "/api/v1/cluster"): ("The daemons of a cluster; 404 if this page is of a folder", _CLUSTER, {}),
    ("get", _OF_TOPOLOGY): ("Status, rate, lag, the lowest uncommitted transaction", _HEADER, {}),
    ("get", f"{_OF_TOPOLOGY}/timeline"): (
        "Attempts and writes after a record; give `head` as `since` the next time",
        _TIMELINE,
        {"since": "integer"},
    ),
    ("get", f"{_OF_TOPOLOGY}/transactions"): (
        "Transactions, newest first",
        _TRANSACTIONS,
        {"from": "integer", "to": "integer", "failed": "integer", "limit": "integer"},
    ),
    ("get", f"{_OF_TOPOLOGY}/transaction/{{txid}}"): ("One transaction: story, attempts, writes", _TRANSACTION, {}),
    ("get", f"{_OF_TOPOLOGY}/errors"): ("The last hundred errors, in groups", _ERRORS, {}),
    ("get", f"{_OF_TOPOLOGY}/state"): ("The states and the size of their tables", _STATES, {}),
    ("get", f"{_OF_TOPOLOGY}/state/rows"): (
        "Rows of a state, now or as of a transaction; `key` once for each key field",
        _ROWS,
        {"name": "string", "key": "string", "txid": "integer", "limit": "integer"},
    ),
    ("get", f"{_OF_TOPOLOGY}/graph"): ("Components, edges, states, counts", _GRAPH, {}),
    ("get", f"{_OF_TOPOLOGY}/plots"): (
        "Samples as lines over the last seconds, or those before a moment in seconds since 1970",
        _PLOTS,
        {"secs": "integer", "until": "integer"},
    ),
    ("get", f"{_OF_TOPOLOGY}/settings"): ("The settings, those that differ from their default first", _SETTINGS, {}),
    ("get", f"{_OF_TOPOLOGY}/runs"): (
        "The last run, and earlier ones that are kept: their slugs take the place of the topology's",
        _RUNS,
        {},
    ),
    ("get", "/api/v1/check/{number}"): ("An audit or a replay that the page has begun", _CHECK, {}),
    ("post", f"{_OF_TOPOLOGY}/audit"): ("Begin an audit", _BEGUN, {}),
    ("post", f"{_OF_TOPOLOGY}/replay/{{txid}}"): ("Begin a replay of a transaction", _BEGUN, {}),
    **{
        ("post", f"{_OF_TOPOLOGY}/{what}"): (f"{words}; 404 if this page is of a folder", _CHANGED, {})
        for what, words in (
            ("activate", "Let a topology of a cluster begin transactions again"),
            ("deactivate", "Let it begin no transaction"),
            ("rebalance", 'Start it anew after a wait; the body may be {"settings": {NAME: TEXT}}'),
            ("kill", "End it after a wait"),
        )
    },
    ("post", "/api/v1/session"): ("A one-time address for another browser", {"url": "string"}, {}),
}
"""By method and path: what it is, the shape of its answer, its query's parameters."""

_NUMBERS = ("txid", "number")
ERROR: Shape = {"error": "string", "errorMessage": "string"}


def document() -> dict[str, Any]:
    """Return the document."""
    paths: dict[str, dict[str, Any]] = {}
    for (method, path), (summary, shape, query) in SHAPES.items():
        named = [part[1:-1] for part in path.split("/") if part.startswith("{")]
        parameters = [
            {
                "name": name,
                "in": "path",
                "required": True,
                "schema": {"type": "integer" if name in _NUMBERS else "string"},
            }
            for name in named
        ]
        parameters += [{"name": name, "in": "query", "schema": {"type": kind}} for name, kind in query.items()]
        begins = shape is _BEGUN
        paths.setdefault(path, {})[method] = {
            "summary": summary,
            "parameters": parameters,
            "responses": {
                "202" if begins else "200": _answer(summary, shape),
                "default": _answer("What is wrong, and what to do", ERROR),
            },
        }
    return {
        "openapi": "3.1.0",
        "info": {"title": "txtopo's page", "version": "1"},
        "security": [{"session": []}],
        "components": {
            "securitySchemes": {
                "session": {
                    "type": "apiKey",
                    "in": "cookie",
                    "name": "txtopo-PORT",
                    "description": "set by the address that is printed when the page starts; it works once",
                }
            }
        },
        "paths": paths,
    }


def _answer(text: str, shape: Shape) -> dict[str, Any]:
    return {"description": text, "content": {"application/json": {"schema": schema_of(shape)}}}


def schema_of(shape: Shape) -> dict[str, Any]:
    """Return a shape as a JSON schema; a shape in a tuple may be null."""
    match shape:
        case "any":
            return {}
        case str():
            name = shape.removesuffix("?")
            return {"type": [name, "null"] if name != shape else name}
        case (inner,) if isinstance(shape, tuple):
            return {"anyOf": [schema_of(inner), {"type": "null"}]}
        case [inner]:
            return {"type": "array", "items": schema_of(inner)}
        case {"*": inner}:
            return {"type": "object", "additionalProperties": schema_of(inner)}
        case _:
            return {
                "type": "object",
                "properties": {name: schema_of(inner) for name, inner in shape.items()},
                "required": list(shape),
                "additionalProperties": False,
            }
