"""Records as JSON: what the journal, the coordinator state and snapshots keep of values, and the values read back.

A record is an attrs class. A field that is written under another name says so by its metadata, ``WRITTEN_AS_LIFE`` for
one that files of earlier versions have as ``life``. A name that the class does not have is passed over.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, TypeVar

import attrs

if TYPE_CHECKING:
    from cattrs import Converter

T = TypeVar("T")

DAMAGE = (ValueError, TypeError, KeyError, AttributeError)
"""What :func:`from_json` raises of what is no such record, and ``json.loads`` of what is no JSON."""

_WRITTEN_NAME = "txtopo.written_name"

WRITTEN_AS_LIFE = {_WRITTEN_NAME: "life"}
"""An incarnation's field, by the name that it had first."""


def to_json(record: attrs.AttrsInstance) -> Any:
    """Return a record as JSON has it: dictionaries, lists, texts and numbers."""
    return _converter().unstructure(record)


def from_json(value: Any, kind: type[T]) -> T:
    """Return the record that :func:`to_json` was given.

    Args:
        value: what it returned, decoded from JSON.
        kind: the record's class.

    Raises:
        KeyError: a field is missing; one of :data:`DAMAGE` for whatever else is wrong.
    """
    return _converter().structure(value, kind)


@functools.cache
def _converter() -> Converter:
    # Executors import some records with the states that they belong to, and need not have cattrs.
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
