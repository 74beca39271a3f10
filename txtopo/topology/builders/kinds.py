"""The kinds of components: a table of rules for the builder and its checks.

A class of ``txtopo.transactional.tasks.bolt_tasks`` and a line in its table define how the tasks of a kind run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from txtopo.api.components.bolt import ArrowBatchBolt, BasicBolt, BatchBolt, Bolt, DataFrameBolt, RichBolt
from txtopo.api.components.spout import AnySpout, DataFrameSpout, Spout
from txtopo.topology.plans.plain_plan import PlainKind
from txtopo.topology.plans.plan import ComponentKind


@attrs.frozen
class KindRules:
    """The rules for all components of a kind."""

    kind: ComponentKind | PlainKind
    base: Any
    """The class that its components subclass."""
    methods: Mapping[str, Sequence[str]]
    """The methods that txtopo calls, with the names of their parameters."""
    may_commit: bool = False
    """Whether they may be committers."""
    takes_columns: bool = False
    """Whether their inputs need typed fields."""
    emits_columns: bool = False
    """Whether their outputs need typed fields."""


_SHORT = ("config", "context")
_PREPARE = (*_SHORT, "collector", "attempt")
_ROWS = {"prepare": _PREPARE, "execute": ("tuple",), "execute_batch": ("batch",), "finish_batch": ()}
_ARROW = {"prepare": _PREPARE, "execute": ("batch",), "finish_batch": ()}
_BASIC = {"prepare": _SHORT, "execute": ("tuple", "collector"), "cleanup": ()}
_READ = {"coordinator": _SHORT, "read": ("spark", "metadata")}
_TRANSFORM = {"transform": ("frame",)}
_SPOUT = {"coordinator": _SHORT, "emitter": _SHORT}

KINDS = (
    KindRules(ComponentKind.BASIC_BOLT, BasicBolt, _BASIC),
    KindRules(ComponentKind.BATCH_BOLT, BatchBolt, _ROWS, may_commit=True),
    KindRules(ComponentKind.ARROW_BOLT, ArrowBatchBolt, _ARROW, may_commit=True, takes_columns=True),
    KindRules(ComponentKind.DATAFRAME_BOLT, DataFrameBolt, _TRANSFORM, takes_columns=True, emits_columns=True),
    KindRules(ComponentKind.DATAFRAME_SPOUT, DataFrameSpout, _READ, emits_columns=True),
    KindRules(ComponentKind.SPOUT, AnySpout, _SPOUT),
)
"""The kinds of transactional topologies; the first match counts, so subclasses come before their base classes."""

_RICH = {"prepare": (*_SHORT, "collector"), "execute": ("tuple",), "execute_batch": ("tuples",), "cleanup": ()}
_NEXT = {
    "open": (*_SHORT, "collector"),
    "next_tuple": (),
    "ack": ("message_id",),
    "fail": ("message_id",),
    "activate": (),
    "deactivate": (),
    "is_exhausted": (),
    "close": (),
}

PLAIN_KINDS = (
    KindRules(PlainKind.BASIC_BOLT, BasicBolt, _BASIC),
    KindRules(PlainKind.RICH_BOLT, RichBolt, _RICH),
    KindRules(PlainKind.SPOUT, Spout, _NEXT),
)
"""The kinds of plain topologies."""


def takes_batches(kind: type) -> bool:
    """Whether txtopo calls ``execute_batch`` of a bolt of class ``kind``; of a batch bolt, for columnar streams.

    The most derived class that defines one of the two methods decides: a subclass that overrides only ``execute``
    wants to be called tuple by tuple.
    """
    for base in kind.__mro__:
        if base in {BatchBolt, RichBolt}:
            break
        if "execute_batch" in vars(base):
            return True
        if "execute" in vars(base):
            break
    return False


def rules_of(component: object, kinds: Sequence[KindRules] = KINDS) -> KindRules | None:
    """Return the rules of a component's kind; None if it is of none of ``kinds``."""
    return next((rules for rules in kinds if isinstance(component, rules.base)), None)


def bolt_classes(kinds: Sequence[KindRules] = KINDS, *, may_commit: bool = False) -> list[str]:
    """Return the names of the classes that bolts, or committers, subclass."""
    bolts = [rules for rules in kinds if isinstance(rules.base, type) and issubclass(rules.base, Bolt)]
    return [rules.base.__name__ for rules in bolts if rules.may_commit or not may_commit]
