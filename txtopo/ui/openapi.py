"""The OpenAPI document of the page's API, made of the questions and the types of their answers."""

from __future__ import annotations

import collections.abc
import enum
import types
import typing
from typing import Any, Union

import attrs

from txtopo.files.records import name_in_json
from txtopo.inspect.backend import QUESTIONS
from txtopo.inspect.cluster import Changed, Cluster
from txtopo.inspect.run.status import Topologies
from txtopo.ui.checks import Begun, Check, PageHeader
from txtopo.ui.security import Invitation

_OF_TOPOLOGY = "/api/v1/topology/{slug}"
_CHANGES = {
    "activate": "Let a topology of a cluster begin transactions again",
    "deactivate": "Let it begin no transaction",
    "rebalance": 'Start it anew after a wait; the body may be {"settings": {NAME: TEXT}}',
    "kill": "End it after a wait",
}


@attrs.frozen
class Operation:
    """What can be asked for at a path: in words, the type of the answer, and the kinds of its query's parameters."""

    summary: str
    answer: type
    query: dict[str, str] = attrs.field(factory=dict)


OPERATIONS: dict[tuple[str, str], Operation] = {
    ("get", "/api/v1/topology"): Operation("All topologies", Topologies),
    ("get", "/api/v1/cluster"): Operation("The daemons of a cluster; 404 if this page is of a folder", Cluster),
    **{
        ("get", f"{_OF_TOPOLOGY}/{question.path}".removesuffix("/")): Operation(
            question.summary,
            question.answer if question.path else PageHeader,
            {parameter.name: parameter.kind for parameter in question.parameters},
        )
        for question in QUESTIONS
    },
    ("get", "/api/v1/check/{number}"): Operation("An audit or a replay that the page has begun", Check),
    ("post", f"{_OF_TOPOLOGY}/audit"): Operation("Begin an audit", Begun),
    ("post", f"{_OF_TOPOLOGY}/replay/{{txid}}"): Operation("Begin a replay of a transaction", Begun),
    ("post", f"{_OF_TOPOLOGY}/cancel"): Operation("End its audit or replay that runs", Begun),
    **{
        ("post", f"{_OF_TOPOLOGY}/{command}"): Operation(f"{words}; 404 if this page is of a folder", Changed)
        for command, words in _CHANGES.items()
    },
    ("post", "/api/v1/session"): Operation("A one-time address for another browser", Invitation),
}
"""By method and path."""

_NUMBERS = ("txid", "number")
ERROR = {
    "type": "object",
    "properties": {"error": {"type": "string"}, "errorMessage": {"type": "string"}},
    "required": ["error", "errorMessage"],
    "additionalProperties": False,
}


def document() -> dict[str, Any]:
    """Return the document."""
    paths: dict[str, dict[str, Any]] = {}
    for (method, path), operation in OPERATIONS.items():
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
        parameters += [
            {"name": name, "in": "query", "schema": {"type": kind}} for name, kind in operation.query.items()
        ]
        status = "202" if operation.answer is Begun else "200"
        paths.setdefault(path, {})[method] = {
            "summary": operation.summary,
            "parameters": parameters,
            "responses": {
                status: _answer(operation.summary, schema_of(operation.answer)),
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


def _answer(text: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": text, "content": {"application/json": {"schema": schema}}}


_SCALARS = {int: "integer", float: "number", str: "string", bool: "boolean", type(None): "null"}


def schema_of(kind: Any) -> dict[str, Any]:
    """Return the JSON schema of a type: of an answer, or of what stands in one."""
    if kind is Any:
        return {}
    if kind in _SCALARS:
        return {"type": _SCALARS[kind]}
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return {"enum": [member.value for member in kind]}
    if attrs.has(kind):
        hints = typing.get_type_hints(kind)
        properties = {name_in_json(field): schema_of(hints[field.name]) for field in attrs.fields(kind)}
        return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if origin in {Union, types.UnionType}:
        schemas = [schema_of(part) for part in parts]
        if all(isinstance(schema.get("type"), str) and schema["type"] in _SCALARS.values() for schema in schemas):
            return {"type": [schema["type"] for schema in schemas]}
        return {"anyOf": schemas}
    if origin in {dict, collections.abc.Mapping}:
        return {"type": "object", "additionalProperties": schema_of(parts[1])}
    return {"type": "array", "items": schema_of(parts[0])}
