"""Converts records to JSON and back, for the journal, the coordinator state and snapshots.

A record is an attrs class. The metadata of a field may give it another name in JSON, such as one in camel case.
Names in JSON that the class does not have are ignored.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar, get_args

import attrs

if TYPE_CHECKING:
    from cattrs import Converter

T = TypeVar("T")

DAMAGE = (ValueError, TypeError, KeyError, AttributeError, RecursionError)
"""The exceptions that a damaged record raises in :func:`from_json`, or already in ``json.loads``."""

_WRITTEN_NAME = "txtopo.written_name"


def written_as(name: str) -> dict[str, str]:
    """Return the metadata of a field that has another name in JSON."""
    return {_WRITTEN_NAME: name}


def name_in_json(field: attrs.Attribute[Any]) -> str:
    """Return the name that a field of a record has in JSON."""
    return str(field.metadata.get(_WRITTEN_NAME, field.name))


def in_camel_case(_kind: type, fields: list[attrs.Attribute[Any]]) -> list[attrs.Attribute[Any]]:
    """Give the fields of an attrs class names in camel case in JSON, but for those that have another one."""

    def camel(name: str) -> str:
        first, *others = name.rstrip("_").split("_")
        return "".join([first, *(word.capitalize() for word in others)])

    return [field.evolve(metadata={**written_as(camel(field.name)), **field.metadata}) for field in fields]


def to_json(record: attrs.AttrsInstance) -> Any:
    """Return a record as JSON: dictionaries, lists, strings and numbers."""
    return _converter().unstructure(record)


def from_json(value: Any, kind: type[T]) -> T:
    """Return the record that :func:`to_json` converted; raise KeyError for a missing field, or else :data:`DAMAGE`."""
    return _converter().structure(value, kind)


def dumped(value: Any, **options: Any) -> str:
    """Return JSON as a text for others, in which NaN and infinite numbers of users are texts, spelt as Spark does."""

    def without_nan(value: Any) -> Any:
        match value:
            case float():
                return value if math.isfinite(value) else json.dumps(value)
            case dict():
                return {name: without_nan(part) for name, part in value.items()}
            case list() | tuple():
                return [without_nan(part) for part in value]
        return value

    try:
        return json.dumps(value, allow_nan=False, **options)
    except ValueError:
        return json.dumps(without_nan(value), **options)


def packed(head: Any, values: Iterable[bytes]) -> bytes:
    """Return a line of JSON, which says what follows, and values one after another."""
    return b"".join([json.dumps(head).encode(), b"\n", *values])


def unpacked(data: bytes) -> tuple[dict[str, Any], bytes]:
    """Return the line that :func:`packed` wrote, and all that follows."""
    line, _, content = data.partition(b"\n")
    return json.loads(line), content


def read_json(text: str | bytes) -> Any:
    """Return JSON that others have sent; stricter than ``json.loads``, which accepts more than JSON allows.

    Raises:
        ValueError: the text is not JSON, an object has a name twice, a number is infinite or NaN, or the nesting is too
            deep.
    """
    try:
        return json.loads(text, object_pairs_hook=_object, parse_constant=_no_number, parse_float=_finite)
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error


def from_request(value: Any, kind: type[T]) -> T:
    """Return the record that others have sent: as :func:`from_json`, but no value is converted to a field's type."""
    return _converter(is_strict=True).structure(value, kind)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError(f"an object has a name twice, among {sorted(members)}")
    return members


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is not a number in JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is too large")
    return number


def _exactly(*kinds: type) -> Callable[[Any, Any], Any]:
    def structure(value: Any, kind: Any) -> Any:
        # By type() and not isinstance(), because True is an int.
        if type(value) not in kinds:
            raise TypeError(f"{value!r:.100} is not of type {kind.__name__}")
        try:
            return kind(value)
        except OverflowError as error:
            raise ValueError("a number is too large") from error

    return structure


@functools.cache
def _converter(*, is_strict: bool = False) -> Converter:
    # Imported here, because executors import the classes of some records, and need not have cattrs.
    from cattrs import Converter  # noqa: PLC0415
    from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn, override  # noqa: PLC0415

    converter = Converter(detailed_validation=False)

    def overrides(kind: type[attrs.AttrsInstance]) -> dict[str, Any]:
        renamed = {field.name: field.metadata.get(_WRITTEN_NAME) for field in attrs.fields(kind)}
        return {name: override(rename=alias) for name, alias in renamed.items() if alias is not None}

    converter.register_structure_hook_factory(
        attrs.has, lambda kind: make_dict_structure_fn(kind, converter, **overrides(kind))
    )
    converter.register_unstructure_hook_factory(
        attrs.has, lambda kind: make_dict_unstructure_fn(kind, converter, **overrides(kind))
    )
    if is_strict:
        for kind, kinds in {str: (str,), bool: (bool,), int: (int,), float: (float, int)}.items():
            converter.register_structure_hook(kind, _exactly(*kinds))
        converter.register_structure_hook_func(
            lambda kind: getattr(kind, "__origin__", None) is dict,
            lambda value, kind: {
                converter.structure(name, get_args(kind)[0]): converter.structure(each, get_args(kind)[1])
                for name, each in _mapping(value).items()
            },
        )
    return converter


def _mapping(value: Any) -> dict[Any, Any]:
    if not isinstance(value, dict):
        raise TypeError(f"{value!r:.100} is not an object")
    return value
