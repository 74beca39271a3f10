"""Converts records to JSON and back, for the journal, the coordinator state and snapshots.

A record is an attrs class. A field may have another name in JSON, which its metadata gives; so an incarnation is still
``life``, its name in the first versions of txtopo. Names that are no fields of the class are ignored.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, TypeVar

import attrs

if TYPE_CHECKING:
    from cattrs import Converter

T = TypeVar("T")

DAMAGE = (ValueError, TypeError, KeyError, AttributeError)
"""The exceptions that a damaged record raises in :func:`from_json`, or already in ``json.loads``."""

_WRITTEN_NAME = "txtopo.written_name"

LIFE = "life"
"""The name of an incarnation's field in JSON."""

WRITTEN_AS_LIFE = {_WRITTEN_NAME: LIFE}
"""The metadata of an incarnation's field."""


def to_json(record: attrs.AttrsInstance) -> Any:
    """Return a record as JSON: dictionaries, lists, strings and numbers."""
    return _converter().unstructure(record)


def from_json(value: Any, kind: type[T]) -> T:
    """Return the record that :func:`to_json` converted.

    Args:
        value: the decoded JSON.
        kind: the record's class.

    Raises:
        KeyError: a field is missing. Other damage raises any of :data:`DAMAGE`.
    """
    return _converter().structure(value, kind)


@functools.cache
def _converter() -> Converter:
    # Imported here, because executors import the classes of some records, and need not have cattrs.
    from cattrs import Converter  # noqa: PLC0415
    from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn, override  # noqa: PLC0415

    converter = Converter(detailed_validation=False)

    def overrides(kind: type[attrs.AttrsInstance]) -> dict[str, Any]:
        renamed = {field.name: field.metadata.get(_WRITTEN_NAME) for field in attrs.fields(kind)}
        return {name: override(rename=written) for name, written in renamed.items() if written is not None}

    converter.register_structure_hook_factory(
        attrs.has, lambda kind: make_dict_structure_fn(kind, converter, **overrides(kind))
    )
    converter.register_unstructure_hook_factory(
        attrs.has, lambda kind: make_dict_unstructure_fn(kind, converter, **overrides(kind))
    )
    return converter
