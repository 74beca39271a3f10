"""The last errors of a topology."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from txtopo.engine.timeline.records import PROGRESS, ROOTS, OfProgress, OfRoots
from txtopo.secrecy import without_secrets
from txtopo.transactional.core.history import first_line
from txtopo.ui.answers.facts import Facts
from txtopo.ui.answers.series import last_number


def errors(facts: Facts) -> dict[str, Any]:
    """Return the last errors, grouped by component and first line, newest first."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    found = [_error(each) for each in reversed(facts.timeline.errors())]
    for error in found:
        groups.setdefault((error["component"], first_line(error["text"])), []).append(error)
    return {
        "total": _total_errors(facts, len(found)),
        "groups": [
            {
                "component": component,
                "first": first,
                "count": len(own),
                "firstAt": own[-1]["at"],
                "lastAt": own[0]["at"],
                "errors": own,
            }
            for (component, first), own in groups.items()
        ],
    }


def _total_errors(facts: Facts, listed: int) -> int:
    kind, at = (ROOTS, OfRoots.ERRORS) if facts.is_plain else (PROGRESS, OfProgress.FAILURES)
    total = last_number(facts.timeline.last(kind).get(""), at)
    return listed if total is None else max(int(total), 0)


def _error(each: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "at": each.get("at_secs"),
        "txid": each.get("txid"),
        "attempt": each.get("attempt"),
        "epoch": each.get("epoch"),
        "component": str(each.get("component") or ""),
        "text": without_secrets(str(each.get("text", ""))),
    }


def last_failure(facts: Facts) -> dict[str, Any] | None:
    """Return the last error in a line; None if there was none."""
    found = facts.timeline.errors()
    if not found:
        return None
    error = _error(found[-1])
    return {
        "txid": error["txid"],
        "attempt": error["attempt"],
        "component": error["component"] or None,
        "error": first_line(error["text"]),
        "at": error["at"],
    }
