"""What OpenLineage allows in an event, as the classes of its client declare it, which are made from its schemas."""

import datetime as dt
import enum
import importlib
import pkgutil
import types
import typing
import uuid
from collections.abc import Iterator
from typing import Any

import attr
from openlineage.client import generated
from openlineage.client.generated.base import RunEvent

_FACETS = {
    each.__name__: each
    for module in pkgutil.iter_modules(generated.__path__, f"{generated.__name__}.")
    for each in vars(importlib.import_module(module.name)).values()
    if isinstance(each, type) and attr.has(each)
}
_FORMATS: dict[str, Any] = {"eventTime": dt.datetime.fromisoformat, "runId": uuid.UUID}


def misfits(value: Any, kind: Any = RunEvent, at: str = "event") -> Iterator[str]:
    """Yield what of an event, as JSON, does not fit: names that are missing, values of other types, other formats."""
    url = value.get("_schemaURL") if isinstance(value, dict) else None
    if url is not None:
        kind = _FACETS.get(url.rpartition("/")[2])
        if kind is None or kind._get_schema() != url:
            yield f"{at}: no schema {url}"
            return
    if typing.get_origin(kind) in {typing.Union, types.UnionType}:
        found = [list(misfits(value, each, at)) for each in typing.get_args(kind)]
        yield from () if [] in found else max(found, key=len)
    elif typing.get_origin(kind) is list and isinstance(value, list):
        for number, each in enumerate(value):
            yield from misfits(each, *typing.get_args(kind), f"{at}[{number}]")
    elif typing.get_origin(kind) is dict and isinstance(value, dict):
        for name, each in value.items():
            yield from misfits(each, typing.get_args(kind)[1], f"{at}.{name}")
    elif isinstance(kind, type) and attr.has(kind) and isinstance(value, dict):
        hints = typing.get_type_hints(kind)
        for field in attr.fields(kind):
            if field.name in value:
                yield from misfits(value[field.name], hints[field.name], f"{at}.{field.name}")
            elif field.default is attr.NOTHING:
                yield f"{at}: no {field.name}"
    elif typing.get_origin(kind) is typing.Literal or (isinstance(kind, type) and issubclass(kind, enum.Enum)):
        allowed = typing.get_args(kind) or [each.value for each in kind]
        yield from () if value in allowed else [f"{at}: {value!r} is none of {allowed}"]
    elif kind is not Any and not isinstance(value, (int, float) if kind is float else typing.get_origin(kind) or kind):
        yield f"{at}: {value!r} is no {kind}"
    name = at.rpartition(".")[2]
    try:
        _FORMATS.get(name, str)(value)
    except ValueError:
        yield f"{at}: {value!r}"
    if name.endswith(("roducer", "chemaURL")) and ":" not in str(value):
        yield f"{at}: {value!r} is no URI"
