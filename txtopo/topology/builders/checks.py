"""Checks that find the mistakes of a graph before anything runs.

Each check yields a sentence for each mistake, with the component and the remedy; ``build()`` raises them together.
"""

from __future__ import annotations

import datetime as dt
import graphlib
import os
import urllib.parse
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any

import pyarrow as pa

from txtopo.api.abilities import BoundsSkew, ChecksTables, KeepsByKey
from txtopo.api.components.bolt import Bolt, DataFrameBolt, TakesBatches
from txtopo.api.components.groupings import KEYED, GroupingKind
from txtopo.api.components.optional import call_if_there
from txtopo.api.components.spout import AnySpout, SpoutTable
from txtopo.api.data.fields import ATTEMPT_FIELD, ATTEMPT_FIELD_NAMES, Fields
from txtopo.api.reference import Reference
from txtopo.api.state import State
from txtopo.api.time_to_live import CLOCK_FIELD
from txtopo.api.values import StateKind
from txtopo.config import Config
from txtopo.errors import ConfigError
from txtopo.text.suggestions import did_you_mean
from txtopo.topology.builders.graph import Declared, Graph
from txtopo.topology.builders.kinds import PLAIN_KINDS, bolt_classes, rules_of
from txtopo.topology.plans.plan import Plan

ID_LENGTH_MAX = 200
"""The maximum length of a topology id, quoted: names of files have at most 255 bytes, and parts of our own."""

_SHOWN = 40

_OF_THEIR_OWN = frozenset({GroupingKind.CUSTOM, GroupingKind.DIRECT})
"""Groupings whose author says where rows go."""

OWN_PREFIX = "spout."
"""The prefix of the names of a spout's committers and states."""

Streams = Mapping[str, Mapping[str, Fields]]
"""The fields of each stream of each component."""


def check_ids(graph: Graph) -> Iterator[str]:
    """Find ids that are missing, malformed or used twice."""
    yield from _no_text("topology id", graph.topology_id) or _no_file(graph.topology_id)
    for declared in graph.declared:
        yield from _no_text("component id", declared.id)
    for name, _ in graph.states:
        yield from _no_text("state", name)
    for name, count in Counter(each.id for each in graph.declared if isinstance(each.id, str)).items():
        if count > 1:
            yield f"component id {name!r} is used {count} times; give each spout and bolt its own id"
    for name, count in Counter(name for name, _ in graph.states if isinstance(name, str)).items():
        if count > 1:
            yield f"state {name!r} is set {count} times; give each state its own name"


def _no_text(kind: str, name: Any) -> list[str]:
    """Say why a name is none, if it is none."""
    if not name or not isinstance(name, str):
        return [f"{kind} {name!r} must be a non-empty string"]
    if any("\ud800" <= character <= "\udfff" for character in name):
        return [f"{kind} {name!r} has half of a surrogate pair, which no file can hold; write the whole character"]
    if "\n" in name:
        return [f"{kind} {name!r} has a line break, which would cut lines of logs and of the terminal; leave it out"]
    return []


def _no_file(topology_id: str) -> list[str]:
    """Say why a topology id can't be a part of names of files, if it can't."""
    if "/" in topology_id:
        return [f"the topology id {topology_id!r} must be a non-empty string without a slash"]
    if topology_id in {".", ".."}:
        return [f"the topology id {topology_id!r} is the name of a folder already; give the topology another"]
    length = len(urllib.parse.quote(topology_id, safe=""))
    subject = f"the topology id {topology_id[:_SHOWN]!r}… has {length} characters as part of a file's name"
    return [f"{subject}, at most {ID_LENGTH_MAX} fit; give the topology a shorter one"] * (length > ID_LENGTH_MAX)


def own_tables_of(graph: Graph) -> list[tuple[Declared, str, SpoutTable]]:
    """Return the tables that spouts fill themselves, each with its spout and the name of its committer and state.

    Those of the first spout have no other name than in a topology without any other.
    """
    own_tables = []
    for index, spout in enumerate(graph.spouts):
        component = spout.component
        tables = call_if_there(component, "own_tables", default={}) if isinstance(component, AnySpout) else {}
        prefix = f"{OWN_PREFIX}{spout.id}." if index else OWN_PREFIX
        own_tables += [(spout, f"{prefix}{name}", table) for name, table in tables.items()]
    return own_tables


def check_own_tables(graph: Graph) -> Iterator[str]:
    """Find bolts and states that have the name of one of the spouts' own."""
    for spout, name, _ in own_tables_of(graph):
        for kind, names in (("bolt", [d.id for d in graph.declared]), ("state", [state for state, _ in graph.states])):
            if name in names:
                yield f"{kind} {name!r}: spout {spout.id!r} adds a {kind} of that name; give yours another name"


def place_of(address: str) -> PurePath:
    """Return where a table or a folder really is, behind symbolic links; an address of an object store as it is."""
    return PurePath(address if "://" in address else os.path.realpath(address))


def check_places(states: Iterable[tuple[str, Any]]) -> Iterator[str]:
    """Find states whose table is inside another state's: a foreign vacuum of the outer one deletes it with its log."""
    addresses = [(name, state.address) for name, state in states if isinstance(state, State)]
    for name, address in addresses:
        if address is not None and "\0" in address:
            yield f"state {name!r}: its table can't be at {address!r}: no path has a null character"
            return
    places = [(name, address, place_of(address)) for name, address in addresses if address is not None]
    for inner, address, path in places:
        for outer, around, above in places:
            if path != above and path.is_relative_to(above):
                yield (
                    f"state {inner!r}: its table {address} is inside {around}, the table of state {outer!r}, and a "
                    "vacuum of that one would delete it; put each table beside the others"
                )


def check_kinds(graph: Graph) -> Iterator[str]:
    """Find components of the wrong class."""
    for spout in graph.spouts:
        if not isinstance(spout.component, AnySpout):
            yield (
                f"{spout.id!r}: {_not_here(spout.component)}; subclass TransactionalSpout, "
                "PartitionedTransactionalSpout, OpaquePartitionedTransactionalSpout or DataFrameSpout"
            )
    for declared in graph.bolts:
        bolt = declared.component
        if not isinstance(bolt, Bolt):
            text = f"the class {bolt.__name__}, not an object of it," if isinstance(bolt, type) else type(bolt).__name__
            yield f"{declared.id!r}: {text} is not a bolt; subclass {_either(bolt_classes())}"
        elif (rules := rules_of(bolt)) is None:
            yield f"{declared.id!r}: {_not_here(bolt)}; subclass {_either(bolt_classes())}"
        elif declared.is_committer and not rules.may_commit:
            yield (
                f"committer {declared.id!r} is a {type(bolt).__name__}, which has no finish_batch(); "
                f"make it a {_either(bolt_classes(may_commit=True), ' or an ')}"
            )
    for name, state in graph.states:
        if not isinstance(state, State):
            yield f"state {name!r} is a {type(state).__name__}; pass a DeltaState, a MemoryState or another State"


def check_clocks(graph: Graph) -> Iterator[str]:
    """Find states whose keys expire by the watermark of a state that is not declared, or has none."""
    states = {name: state for name, state in graph.states if isinstance(name, str) and isinstance(state, State)}
    for name, state in states.items():
        ttl = state.time_to_live
        if ttl is None:
            continue
        clock = states.get(ttl.clock)
        where = f"state {name!r} expires by the clock {ttl.clock!r}"
        if clock is None:
            yield (
                f"{where}, but no state has that name; declare the clock's state, for example "
                f"set_state({ttl.clock!r}, clock.state(path)) of an EventClock"
            )
        elif not _is_clock(clock):
            yield (
                f"{where}, which is a {type(clock).__name__} without a watermark; name the state of an EventClock: one "
                f"string as its key, and a value field '{CLOCK_FIELD}: timestamp'"
            )


def check_references(graph: Graph) -> Iterator[str]:
    """Find reference tables that are none, and names that are none or set twice."""
    for name, reference in graph.references:
        yield from _no_text("reference", name)
        if not isinstance(reference, Reference):
            yield f"reference {name!r} is a {type(reference).__name__}; pass a DeltaReference"
    for name, count in Counter(name for name, _ in graph.references if isinstance(name, str)).items():
        if count > 1:
            yield f"reference {name!r} is set {count} times; give each reference its own name"


def _is_clock(state: State) -> bool:
    is_keyed = state.kind is StateKind.TRANSACTIONAL and state.time_to_live is None
    return (
        is_keyed
        and tuple(state.key.types) == (pa.string(),)
        and (CLOCK_FIELD, pa.timestamp("us", tz="UTC")) in zip(state.value.names, state.value.types, strict=True)
    )


def _not_here(component: object) -> str:
    """Say why a component does not belong in a transactional topology."""
    name = type(component).__name__
    if rules_of(component, PLAIN_KINDS) is not None:
        return f"{name} is for plain topologies, which a TopologyBuilder builds"
    return f"{name} is a Bolt and none of its kinds" if isinstance(component, Bolt) else f"{name} is not a spout"


def check_parallelism(graph: Graph) -> Iterator[str]:
    """Find parallelism that is not a positive integer."""
    for declared in graph.declared:
        for kind, value in (("parallelism", declared.parallelism), ("number of tasks", declared.num_tasks)):
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                yield f"{declared.id!r}: the {kind} is {value!r}; it must be an integer of at least 1"


def check_times(graph: Graph) -> Iterator[str]:
    """Find bolts that ask for transactions without input, but not by a usable time."""
    for declared in graph.bolts:
        after = declared.component.quiet_after if isinstance(declared.component, TakesBatches) else None
        if after is not None and (not isinstance(after, dt.timedelta) or after < dt.timedelta(milliseconds=1)):
            yield f"{declared.id!r}: quiet_after is {after!r}; give a timedelta of at least a millisecond, or None"


def check_settings(graph: Graph) -> Iterator[str]:
    """Find component settings that misspell the name of one of txtopo's, or have a wrong value."""
    for declared in graph.declared:
        try:
            Config(declared.configuration)
        except ConfigError as error:
            yield f"{declared.id!r}: {error}"


def check_streams(declared: Declared, streams: Mapping[str, Any]) -> Iterator[str]:
    """Find output streams whose first field is not the attempt."""
    for stream, fields in streams.items():
        where = f"{declared.id!r}, stream {stream!r}"
        if not isinstance(fields, Fields):
            yield f"{where}: output fields are {fields!r}; write them as Fields({ATTEMPT_FIELD!r}, …)"
        elif not fields.names or fields.names[0] not in ATTEMPT_FIELD_NAMES or fields.types[0] is not None:
            yield (
                f"{where}: {fields} does not have the attempt as its first field; "
                f"begin it with {ATTEMPT_FIELD!r} and emit the attempt as each tuple's first value"
            )
        elif (rules := rules_of(declared.component)) and rules.emits_columns and not fields.columnar:
            yield f"{where}: a DataFrame needs a type for each field; write 'name: string' or another Spark type"


def check_subscriptions(graph: Graph, streams: Streams) -> Iterator[str]:
    """Find bolts without input, unknown sources, streams and fields, and groupings that do not fit."""
    for declared in graph.bolts:
        if not declared.subscriptions:
            spout = next((d.id for d in graph.spouts), graph.declared[0].id)
            yield f"bolt {declared.id!r} has no input; add a grouping, for example .shuffle_grouping({spout!r})"
        for subscription in declared.subscriptions:
            source, stream, grouping = subscription.source, subscription.stream, subscription.grouping
            if source not in streams:  # then the stream and its fields can't be checked
                yield f"bolt {declared.id!r} subscribes to unknown component {source!r}{nearest(source, streams)}"
                continue
            if stream not in streams[source]:
                declared_streams = [repr(name) for name in streams[source] if not str(name).startswith("__")]
                names = ", ".join(declared_streams) or "none; set its output_fields"
                yield f"bolt {declared.id!r} subscribes to unknown stream {stream!r} of {source!r}; known: {names}"
                continue
            fields = streams[source][stream]
            if grouping.kind in KEYED:
                yield from _check_keys(declared.id, source, grouping.fields, fields)
            if grouping.kind is GroupingKind.CUSTOM and not hasattr(grouping.custom, "choose_tasks"):
                yield f"bolt {declared.id!r}: custom_grouping takes a CustomStreamGrouping, not {grouping.custom!r}"
            rules = rules_of(declared.component)
            if rules is not None and rules.takes_columns and not fields.columnar:
                yield (
                    f"bolt {declared.id!r} takes Arrow columns, but {source!r} emits {fields} without types; "
                    "give each field a type, for example 'word: string'"
                )


def check_inputs(graph: Graph, streams: Streams) -> Iterator[str]:
    """Find what bolts themselves miss in the streams that they subscribe to."""
    read = {
        (subscription.source, subscription.stream)
        for declared in graph.bolts
        for subscription in declared.subscriptions
    }
    for declared in graph.bolts:
        inputs = {
            (subscription.source, subscription.stream): streams[subscription.source][subscription.stream]
            for subscription in declared.subscriptions
        }
        assert isinstance(declared.component, Bolt), "others were refused"
        mistakes = list(declared.component.input_mistakes(inputs))
        # With fields that are missing in a stream, there is nothing to compare a table with.
        if isinstance(declared.component, ChecksTables):
            if not mistakes:
                mistakes = list(declared.component.table_mistakes(inputs, dict(graph.states)))
            streams_read = {stream for source, stream in read if source == declared.id}
            mistakes += declared.component.output_mistakes(streams_read, dict(graph.states))
        for mistake in mistakes:
            yield f"bolt {declared.id!r} {mistake}"


def check_whole_keys(graph: Graph, streams: Streams) -> Iterator[str]:
    """Find bolts that keep something for each key, one of whose keys may have rows in several tasks."""
    # Their streams have no key, though they may have a field of its name.
    clocks = {each.id for each in graph.bolts if isinstance(each.component, BoundsSkew)}
    for declared in graph.bolts:
        bolt = declared.component
        if not isinstance(bolt, KeepsByKey) or (declared.num_tasks or declared.parallelism or 1) == 1:
            continue
        grouped_by = bolt.grouped_by
        ways: dict[Any, str] = {}
        where = f"bolt {declared.id!r}"
        for subscription in declared.subscriptions:
            stream = subscription.source, subscription.stream
            for key in grouped_by.get(stream, ()) if isinstance(grouped_by, Mapping) else [grouped_by]:
                # Nor has a stream one that a subclass of the user's makes a key of.
                if (
                    not len(key)
                    or subscription.source in clocks
                    or not {*key} <= {*streams[subscription.source][subscription.stream]}
                ):
                    continue
                where = f"bolt {declared.id!r} keeps something for each {', '.join(key)}, so one task must have all its"
                by = subscription.grouping.fields or ()
                if subscription.grouping.kind is GroupingKind.GLOBAL:
                    ways.setdefault((), f"{subscription.source!r} by none")
                elif subscription.grouping.kind is GroupingKind.FIELDS and {*by} <= {*key}:
                    ways.setdefault(tuple(map(key.index, by)), f"{subscription.source!r} by {', '.join(by)}")
                elif subscription.grouping.kind not in _OF_THEIR_OWN:
                    yield (
                        f"{where} rows; write .fields_grouping({subscription.source!r}, {Fields(*key)!r}), or give it "
                        "one task"
                    )
        if len(ways) > 1:
            yield (
                f"{where} rows, but it groups {' and '.join(ways.values())}; group them by the same fields of the key, "
                "in the same order, or give it one task"
            )


def _check_keys(bolt: str, source: str, keys: Fields | None, fields: Fields) -> Iterator[str]:
    if not keys:
        yield f"bolt {bolt!r}: the fields grouping on {source!r} names no field; pass Fields(…)"
    for name in keys or ():
        if name not in fields:
            yield f"bolt {bolt!r} groups {source!r} by unknown field {name!r}{nearest(name, fields)}"


def check_dataframes(graph: Graph, streams: Streams, commit_phase: set[str]) -> Iterator[str]:
    """Find DataFrame bolts in the commit phase, and DataFrame bolts with inputs of different fields."""
    for declared in graph.declared:
        if not isinstance(declared.component, DataFrameBolt):
            continue
        if declared.id in commit_phase:
            yield (
                f"DataFrame bolt {declared.id!r} is below a committer, but the commit phase runs without "
                "DataFrames; make it a BatchBolt or an ArrowBatchBolt, or move it above the committer"
            )
        inputs = [streams[s.source][s.stream] for s in declared.subscriptions if s.stream in streams.get(s.source, {})]
        if len({fields.without_attempt() for fields in inputs}) > 1:
            yield f"DataFrame bolt {declared.id!r} has inputs with different fields; give them equal fields"


def check_cycle(graph: Graph) -> Iterator[str]:
    """Find a cycle of subscriptions."""
    inputs = {d.id: [s.source for s in d.subscriptions] for d in graph.declared}
    try:
        graphlib.TopologicalSorter(inputs).prepare()
    except graphlib.CycleError as error:
        names = " → ".join(repr(name) for name in error.args[1])
        yield f"the bolts {names} form a cycle; remove one of these groupings"


def check_skew(plan: Plan) -> Iterator[str]:
    """Find bounds on the skew of event time by which it can't be said which spout is ahead of which."""
    bounds = [bolt for bolt in plan.bolts if isinstance(bolt.component, BoundsSkew) and bolt.component.skew_max]
    if len(bounds) > 1:
        yield f"{_either([repr(bound.id) for bound in bounds], ' and ')} have skew_max=; give it to one of them"
    for bolt in bounds:
        for source in dict.fromkeys(edge.source for edge in plan.inputs(bolt.id)):
            above = sorted(plan.spouts_above(source))
            if len(above) > 1:
                yield (
                    f"bolt {bolt.id!r} has skew_max=, but {source!r} has the tuples of "
                    f"{_either([repr(each) for each in above], ' and ')}, so it can't be said which of them is ahead; "
                    "subscribe it to a component of each"
                )


def _either(names: Sequence[str], last: str = " or ") -> str:
    return f"{', '.join(names[:-1])}{last}{names[-1]}"


def nearest(name: str, candidates: Iterable[str]) -> str:
    """Return the end of a sentence about an unknown name: the known one that it resembles, or all of them."""
    names = [str(each) for each in candidates]
    return did_you_mean(name, names) or f"; known: {', '.join(map(repr, names))}"
