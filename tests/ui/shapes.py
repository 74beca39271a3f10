"""Compares an answer with the shape that the OpenAPI document gives it."""

from collections.abc import Iterator
from typing import Any

_KINDS = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
    "array": (list,),
    "object": (dict,),
}


def misfits(value: Any, schema: dict[str, Any], place: str = "$") -> Iterator[str]:
    """Yield where a value does not fit a schema."""
    if "anyOf" in schema:
        tries = [list(misfits(value, each, place)) for each in schema["anyOf"]]
        if all(tries):
            yield from min(tries, key=len)
        return
    kinds = schema.get("type", list(_KINDS))
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if type(value) not in {kind for name in kinds for kind in _KINDS[name]}:
        yield f"{place}: {value!r} is no {kinds}"
        return
    if isinstance(value, list):
        for at, each in enumerate(value[:50]):
            yield from misfits(each, schema.get("items", {}), f"{place}[{at}]")
    if isinstance(value, dict) and "properties" in schema:
        named = schema["properties"]
        yield from (f"{place}.{name} is missing" for name in named.keys() - value.keys())
        yield from (f"{place}.{name} is not declared" for name in value.keys() - named.keys())
        for name in named.keys() & value.keys():
            yield from misfits(value[name], named[name], f"{place}.{name}")
    elif isinstance(value, dict) and isinstance(schema.get("additionalProperties"), dict):
        for name, each in value.items():
            yield from misfits(each, schema["additionalProperties"], f"{place}.{name}")
