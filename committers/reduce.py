"""``ReduceCommitter``: fold a stream into a keyed table by aggregates, or by any associative function."""

from __future__ import annotations

import functools
import operator
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs
import numpy as np
import pyarrow as pa

from committers.aggregates.aggregate import Aggregate
from committers.aggregates.aggregation import AggregateCombiner, Aggregation, merged_rows
from committers.aggregates.fields import fields_of
from committers.aggregates.numbers import Count
from committers.aggregates.retracting import count_name, overdrawn, retracting
from committers.changes import CHANGES, DIFF, emit_changes, emit_expired
from committers.inputs import field_mistakes
from committers.spill import ReducingCommitter
from committers.waiting import converted
from state import DeltaState
from txtopo import (
    BatchOutputCollector,
    Fields,
    OutputFieldsDeclarer,
    TopologyContext,
    TransactionAttempt,
    Tuple,
)
from txtopo.api.abilities import ChecksTables, DescribesFolds, Inputs
from txtopo.api.arguments import checked_arguments
from txtopo.api.data.tuples import TupleSource
from txtopo.api.data.types import ddl_name
from txtopo.api.map_state import pairs_of
from txtopo.api.reduction import Combiner, Merge, Reduction, Reductions, combining
from txtopo.api.state import State
from txtopo.columnar.conversion import fitted_array, python_rows
from txtopo.columnar.reducing import ReductionCombiner, is_reducible, reduced
from txtopo.columnar.rows_file import in_memory
from txtopo.errors import FieldsError, TopologyError
from txtopo.topology.user_code.blame import REMEDY, blame, record_tuple


class ReduceCommitter(ReducingCommitter, DescribesFolds, ChecksTables):
    """Folds each key's values into a state, first within the batch, then into what the state holds.

    Either several fields, each by its own aggregate::

        ReduceCommitter("shops", "shop", values={"orders": Count(), "revenue": Sum("price"), "largest": Max("price")})

    or one field by a function, ``ReduceCommitter("words", "word", "n", max)``.

    *You* must group the stream by the key fields, so that one task has all values of a key, and give an associative
    function, because batches are folded on the executors before the state's value is known.
    *txtopo* guarantees that each transaction is folded into each key exactly once.

    Aggregates are folded as Arrow columns all the way into the table, and skip nulls; each says
    what it makes of which type. They fill all value fields of the state, by name: a ``Mean`` named ``price`` fills
    ``price_sum`` and ``price_count``, a ``First`` or ``Last`` named ``opening`` fills ``opening`` and ``opening_at``.
    A field of the stream without a type in its aggregate has that of the state's field.

    With a function, integers are folded by ``operator.add``, ``min`` and ``max`` as Arrow columns all the way into the
    table, if the stream's fields have types or its keys are strings or integers. Keys and values must fit the types
    that the state declares, in whatever form they arrive: numpy numbers are folded as Python numbers, which never
    overflow, and a value that does not fit, such as ``1.0`` for a ``long``, raises a ``FieldsError``.
    A function never gets None, which is skipped; for ``min`` and ``max`` NaN is the largest number; decimals are
    combined with up to 100 digits. So the table does not depend on how the stream is cut into transactions.

    The stream ``changes`` of aggregates whose fields all have types has what each transaction changes in the table: the
    key and the results of each key that it changes, with the field ``diff``: -1 for what they were before, if the key
    was there, and 1 for what they are after. It costs nothing if nobody reads it. A key of a state with a ``ttl`` is
    told with -1, and removed, by the first transaction that finds it expired, whether it has input or not; one whose
    time has passed already when it comes is not put.

    With ``diff`` the stream is one of changes, of another table or of a bolt of yours: a row with -1 is taken back. The
    table is what the rows that are there make, and a key without any is removed; so one of the aggregates is a
    ``Count()``, and the state has no ``ttl``. Of doubles there is no exact sum, and ``First``, ``Last``, ``ArgMax`` and
    approximate ones can't take rows back: they are refused. A ``Sum`` fills the fields of a ``Mean``; ``Min``, ``Max``,
    ``CountDistinct`` and ``Collect`` named ``top`` fill ``top_values``, all values that are there with their numbers,
    ``TopN`` and ``LastN`` fill ``top_rows``: up to ``values_max`` of a key, 10,000 of those that have none.

    Args:
        state: the name of the state in ``builder.set_state``.
        key: the field or fields of the key, each with a type if :meth:`state` is to make the table.
        value: the field to fold, unless there are ``values``.
        function: combines two values into one; the sum by default. It must be defined in a module so that it can be
            pickled.
        values: an aggregate for each value field of the state, which is declared by hand, or by :meth:`state`.
        diff: the field that says how often a row counts: 1, or -1 to take it back; empty: each counts once.

    Raises:
        TopologyError: it has neither a value nor values; or an aggregate can't take rows back.
    """

    _source: TupleSource | None = None
    """The source of the last tuple, whose fields' positions are known."""

    @checked_arguments
    def __init__(  # noqa: PLR0913 - what to fold, and how; the last two are named
        self,
        state: str,
        key: str | Fields | Sequence[str],
        value: str = "",
        function: Callable[[Any, Any], Any] = operator.add,
        *,
        values: Mapping[str, Aggregate] | None = None,
        diff: str = "",
    ) -> None:
        if bool(value) == bool(values):
            raise TopologyError(
                "a ReduceCommitter folds one field by a function, or several by aggregates; give it a value "
                "or values={field of the state: aggregate}"
            )
        self._state_name = state
        self._key_fields = key if isinstance(key, Fields) else Fields(*([key] if isinstance(key, str) else key))
        self._key = self._key_fields.names
        self._value = value
        self._function = function
        self._combine = combining(function)
        if diff and not values:
            raise TopologyError(
                "a ReduceCommitter of changes has aggregates, which can take rows back, and no function; give it "
                "values={…}"
            )
        self._diff = diff
        self._values = retracting(values) if values and diff else values and dict(values)

    @property
    def grouped_by(self) -> Fields:
        """The fields of the key: one task must have all rows of a key."""
        return self._key_fields

    @property
    def folds(self) -> Mapping[str, Mapping[str, str]]:
        """What each column of the state is made of, in words, as far as it is known."""
        if self._values:
            return {self._state_name: self._declared(self._values).definition}
        reduction = Reduction.of(self._function) if self._has_no_overrides else None
        folds = {"": f"{reduction.value} of {self._value}"} if isinstance(reduction, Reduction) else {}
        return {self._state_name: folds}

    def state(self, path: str | os.PathLike[str], **options: Any) -> DeltaState:
        """Return the table of several aggregates: their key and value fields; ``options`` are the table's.

        Raises:
            FieldsError: a field of the key or of an aggregate has no type.
            TopologyError: the committer folds one field by a function, which does not say the table's types.
        """
        if not self._values:
            raise TopologyError(
                "a ReduceCommitter with a function does not know the types of its table; declare it: "
                "DeltaState(path, key=Fields(…), value=Fields(…))"
            )
        return DeltaState(path, *self._declared(self._values).table_fields, **options)

    def _declared(self, values: Mapping[str, Aggregate]) -> Aggregation:
        return Aggregation(self._key_fields, values, self._diff)

    def changes(self) -> Fields:
        """Return the fields of the stream of changes: key, results and ``diff``, as for a table of them.

        Raises:
            FieldsError: a field has no type.
            TopologyError: the committer folds by a function.
        """
        return fields_of(self._declared(self._told()).result_schema) + Fields(f"{DIFF}: long")

    def results(self, rows: pa.Table) -> pa.Table:
        """Return the results that rows of the table show: the key and one column for each aggregate."""
        declared = self._declared(self._told())
        return (declared if declared.has_types else declared.typed(rows.schema)).results(rows)

    def _told(self) -> Mapping[str, Aggregate]:
        if not self._values:
            raise TopologyError("a ReduceCommitter with a function tells no changes; give it values={…}")
        return self._values

    def declare_output_fields(self, declarer: OutputFieldsDeclarer) -> None:
        """Declare the stream of changes if all fields have types, and none has the name of its ``diff``."""
        declared = self._declared(self._values) if self._values and self._has_no_overrides else None
        if declared is not None and declared.has_types and DIFF not in declared.result_schema.names:
            declarer.declare_stream(CHANGES, self.changes().with_attempt())

    def prepare(
        self,
        config: Mapping[str, Any],
        context: TopologyContext,
        collector: BatchOutputCollector,
        attempt: TransactionAttempt,
    ) -> None:
        """Start with nothing folded."""
        self._state = context.state(self._state_name)
        self._folded: dict[Any, Any] = {}
        self._pairs: list[tuple[Any, Any]] = []
        """Keys and values that wait to be checked together and folded, in their order."""
        self._tuples: list[Sequence[Any]] = []
        self._find_aggregates()
        self._tells = CHANGES in context.this_targets
        self._begin()

    def _find_aggregates(self) -> None:
        if self._values:
            fields = self._state.key, self._state.value
            self._aggregates = _Aggregates.of(
                self._state_name, *fields, self._key, tuple(self._values.items()), self._diff
            )

    @property
    def _has_no_overrides(self) -> bool:
        """Whether no subclass overrides the folding."""
        hooks = ("execute", "execute_batch", "execute_combined", "fold")
        return all(getattr(type(self), name) is getattr(ReduceCommitter, name) for name in hooks)

    def input_mistakes(self, inputs: Inputs) -> Iterator[str]:
        """Return the fields that a stream lacks, unless a subclass reads others."""
        used = [name for value in self._values.values() for name in value.inputs] if self._values else [self._value]
        read = [*self._key, *used, *([self._diff] if self._diff else ())]
        return field_mistakes(read, inputs if self._has_no_overrides else {})

    def output_mistakes(self, streams: Collection[str], states: Mapping[str, State]) -> Iterator[str]:
        """Return why rows can't be taken back."""
        del streams
        state = states.get(self._state_name)
        if self._diff and state is not None and state.time_to_live is not None:
            yield (
                f"takes rows back, but the keys of state {self._state_name!r} expire: a row that is taken back after "
                "its key is gone would count as fewer than none; leave out the ttl"
            )

    def combiner(self) -> Combiner | None:
        """Return a combiner of equal keys if it gives the same result; None if a subclass overrides the folding."""
        has_no_overrides = self._has_no_overrides
        if self._values and has_no_overrides:
            return AggregateCombiner(Aggregation(Fields(*self._key), self._values, self._diff))
        reduction = None if self._value in self._key else Reduction.of(self._function)
        if has_no_overrides and isinstance(reduction, Reduction):
            return ReductionCombiner(self._key, self._value, reduction)
        return None

    def execute(self, tuple: Tuple) -> None:
        """Fold one value."""
        if tuple.source is not self._source:
            self._look_at(tuple.source)
        values = tuple.values
        if not self._values:
            self.fold(self._key_of(values), values[self._value_at])
            return
        self._tuples.append([values[position] for position in self._inputs_at])
        if len(self._tuples) >= self.spill_limits.tuples_waiting:
            self._take_tuples()

    def execute_batch(self, batch: pa.RecordBatch) -> None:
        """Fold the rows of a record batch: as columns if their order does not matter, otherwise value by value."""
        if self._values:
            self._wait_for(self._aggregates.lifted(batch))
            return
        rows = pa.Table.from_batches([batch]).select([*self._key, self._value])
        is_alike = not self._rows or rows.schema.equals(self._rows[0].schema)
        is_of_keys = self._value in self._key  # reduced columns need distinct names
        if Reduction.of(self._function) is None or is_of_keys or not is_alike or not is_reducible(rows, [self._value]):
            self._fold_rows(rows)
            return
        self._wait_for(rows)

    def execute_combined(self, batch: pa.RecordBatch) -> None:
        """Fold rows that are partials of aggregates already."""
        if self._values:
            self._wait_for(self._aggregates.of_partials(batch))
        else:
            self.execute_batch(batch)

    def finish_batch(self) -> None:
        """Fold the batch into the state."""
        self._take_tuples()
        self._fold_waiting()
        if self._values and (self._diff or self._tells):
            self._fold_changes(self._values)
            return
        if self._values:
            for rows in (*self._rows, *self._files):
                self._state.multi_reduce(rows, self._aggregates.reductions)
            return
        if self._folded:
            self._state.multi_reduce(self._folded, self._function)
        for rows in (*self._rows, *self._files):
            self._state.multi_reduce(rows, self._function)

    def _fold_changes(self, values: Mapping[str, Aggregate]) -> None:
        """Fold the batch into the state, remove keys that have no rows any more, and emit what changes."""
        own = self._aggregates
        results = own.aggregation.results
        parts = [*self._rows, *map(in_memory, self._files)]
        if parts:
            name = count_name(values) if self._diff else ""
            changes = self._state.reduce_changes(own.merged(pa.concat_tables(parts)), own.reductions, name)
            if name:
                self._check_taken_back(values, changes.after)
            if self._tells:
                emit_changes(self.collector, changes, results)
        if self._tells:
            emit_expired(self.collector, self.context, self._state, results)

    def _check_taken_back(self, values: Mapping[str, Aggregate], rows: pa.Table) -> None:
        """Refuse keys of which more was taken back than had come."""
        below = rows.filter(pa.array(overdrawn(values, rows)))
        if below.num_rows:
            key = python_rows(below.select(list(self._key)).slice(0, 1))[0]
            raise FieldsError(
                f"a row of {key} is taken back that has not come: "
                f"{self.context.this_component_id!r} reads changes that began before it, the transaction with the row "
                "was skipped, or a bolt above takes back what it has not emitted"
            )

    def __getstate__(self) -> dict[str, Any]:
        """Reduce waiting rows before the object moves to the commit phase; spill many rows to a file."""
        if "_rows" in self.__dict__:
            self._take_tuples()
            self._reduce_to_move(self._key)
            try:
                self._fold_waiting()
            except Exception as error:  # noqa: BLE001 - of the user's function, which is no matter of pickling
                raise blame(error, REMEDY) from None
        state = super().__getstate__()
        # The others are only used in the processing phase.
        for name in ("_aggregates", "_source", "_key_of", "_value_at", "_inputs_at"):
            state.pop(name, None)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore the rows, and find the aggregates again: to pickle them takes 20 times as long."""
        super().__setstate__(state)
        if "_state" in state:
            self._find_aggregates()

    def _take_tuples(self) -> None:
        """Make columns of the tuples that wait."""
        if self._tuples:
            own = self._aggregates
            self._wait_for(own.lifted(converted(own.aggregation.inputs, self._tuples, own.columns)))

    def _look_at(self, source: TupleSource) -> None:
        """Find the positions of the fields, once for the thousands of tuples from one source."""
        self._source = source
        if self._values:
            self._inputs_at = [source.fields.index(name) for name in self._aggregates.aggregation.inputs]
            return
        self._key_of = operator.itemgetter(*map(source.fields.index, self._key))
        self._value_at = source.fields.index(self._value)

    def _merged(self, rows: pa.Table) -> pa.Table | None:
        """Return the waiting rows reduced to one row per key; None once they are folded one by one."""
        if self._values:
            return self._aggregates.merged(rows)
        reduction = Reduction.of(self._function)
        assert reduction is not None, "only what can be reduced waits"
        merged = reduced(rows, self._key, reduction.by_column([self._value]))
        if merged is None:
            self._fold_rows(rows)
        return merged

    def _fold_rows(self, rows: pa.Table) -> None:
        for key, value in pairs_of(rows, len(self._key)):
            self.fold(key, value)

    def fold(self, key: Any, value: Any) -> None:
        """Fold one value; subclasses may call it from their own ``execute``.

        Values wait to be checked and folded together: the error of one may come with a later one, and fails the
        transaction, also if it is caught.
        """
        self._pairs.append((key, value))
        if len(self._pairs) >= self.spill_limits.tuples_waiting:
            self._fold_waiting()

    def _fold_waiting(self) -> None:
        """Fold what waits; raise a FieldsError if a key or a value does not fit the state's types."""
        if not self._pairs:
            return
        names = [self._key[0] if len(self._key) == 1 else f"({', '.join(self._key)})", self._value]
        folded, combine = self._folded, self._combine
        for key, value in converted(names, self._pairs, self._fitted):
            try:
                folded[key] = combine(folded[key], value) if key in folded else value
            except Exception as error:
                record_tuple(error, names, (key, value))
                self._pairs = [(key, value)]
                raise

    def _fitted(self, pairs: Sequence[Sequence[Any]]) -> Iterable[tuple[Any, Any]]:
        """Return pairs with their keys as the state has them; together: alone, a time takes 100 times as long."""
        keys, values = _python_keys([key for key, _ in pairs]), _python_values([value for _, value in pairs])
        return zip(self._state.fitted(keys, values), values, strict=True)


@attrs.define(eq=False)
class _Aggregates:
    """What a committer folds into the value fields of a state.

    Args:
        state: the state's name, for errors.
        aggregation: the aggregates by the stream's key fields, with the types of the state's fields.
        reductions: how the value fields of the state are folded, in its order.
    """

    state: str
    aggregation: Aggregation
    reductions: Reductions
    _of_rows: tuple[pa.Schema, Aggregation] | None = None
    """The aggregation with all types: those of some rows where the state has none."""

    @staticmethod
    @functools.lru_cache(maxsize=256)
    def of(  # noqa: PLR0913, PLR0917 - all that they depend on
        name: str,
        key_fields: Fields,
        value_fields: Fields,
        key: Sequence[str],
        aggregates: tuple[tuple[str, Aggregate], ...],
        diff: str,
    ) -> _Aggregates:
        """Return the aggregates of a state; raise a FieldsError unless they fill exactly its value fields.

        Each task of each attempt has the same ones.
        """
        filled = [column + suffix for column, aggregate in aggregates for suffix in aggregate.suffixes]
        names = list(value_fields) or filled
        if sorted(names) != sorted(filled):
            raise FieldsError(
                f"state {name!r} has the value fields {', '.join(names)}, but the aggregates fill {', '.join(filled)}; "
                "give values={…} an aggregate for each, under its name"
            )
        if len(key_fields) and len(key_fields) != len(key):
            raise FieldsError(f"state {name!r} has the key {key_fields}, but the committer's is {', '.join(key)}")
        types = dict(zip(value_fields.names, value_fields.types, strict=True))
        typed = {
            column: _typed_as(aggregate, [types.get(column + suffix) for suffix in aggregate.suffixes])
            for column, aggregate in aggregates
        }
        own_key = [_spec(field, kind) for field, kind in zip(key, key_fields.types or [None] * len(key), strict=True)]
        aggregation = Aggregation(Fields(*own_key), typed, diff)
        return _Aggregates(name, aggregation, Reductions(tuple((each, aggregation.reductions[each]) for each in names)))

    def lifted(self, rows: pa.Table | pa.RecordBatch) -> pa.Table:
        """Return rows with the key fields and the value fields of the state; several may have the same key."""
        typed = self._of_rows
        if typed is None or not rows.schema.equals(typed[0]):
            typed = self._of_rows = rows.schema, self.aggregation.typed(rows.schema)
        lifted = self._checked(typed[1].lifted(rows))
        # What is merged by a function is a value for a table only once it is merged: single values are no sketch.
        return self.merged(lifted) if any(isinstance(how, Merge) for _, how in self.reductions.columns) else lifted

    def of_partials(self, rows: pa.RecordBatch) -> pa.Table:
        """Return partials that a combiner has made as :meth:`lifted` does."""
        table = pa.Table.from_batches([rows])
        if self.aggregation.has_types:
            for name, how in self.reductions.columns:
                is_wider = pa.types.is_floating(self.aggregation.partial_fields.field(name).type)
                if how is Reduction.SUM and is_wider and pa.types.is_integer(table[name].type):
                    # Its values fit, and their sum is rounded as that of doubles is.
                    at = table.column_names.index(name)
                    table = table.set_column(at, name, table[name].cast(pa.float64(), safe=False))
            table = self.aggregation.as_partials(table)
        return self._checked(table)

    def _checked(self, rows: pa.Table) -> pa.Table:
        for name in self.aggregation.key:
            if rows[name].null_count:
                raise FieldsError(f"state {self.state!r}, key field {name!r}: a key is null; keys never are")
        return rows.select([*self.aggregation.key, *(name for name, _ in self.reductions.columns)])

    def merged(self, rows: pa.Table) -> pa.Table:
        """Return rows of :meth:`lifted` reduced to one row per key."""
        return merged_rows(rows, list(self.aggregation.key), dict(self.reductions.columns))

    def columns(self, tuples: Sequence[Sequence[Any]]) -> pa.Table:
        """Return the inputs of tuples as columns."""
        fields = [self.aggregation.key, *(aggregate.inputs for aggregate in self.aggregation.aggregates.values())]
        if self.aggregation.diff:
            fields.append(Fields(f"{self.aggregation.diff}: long"))
        pairs = [pair for field in fields for pair in zip(field.names, field.types, strict=True)]
        types = {name: kind for name, kind in reversed(pairs) if kind is not None}
        counted_names = {
            name
            for aggregate in self.aggregation.aggregates.values()
            if isinstance(aggregate, Count)
            for name in aggregate.inputs
        }
        arrays = {}
        for name, values in zip(self.aggregation.inputs, zip(*tuples, strict=True), strict=True):
            if name not in types and name in counted_names:  # counted, and nothing else
                arrays[name] = pa.array([None if value is None else True for value in values], pa.bool_())
                continue
            kind = types.get(name)
            if kind is None:
                raise FieldsError(
                    f"field {name!r} has no type, nor has its field in state {self.state!r}; write '{name}: long' or "
                    "another Spark type"
                )
            arrays[name] = fitted_array(name, values, kind, f"folded into state {self.state!r}")
        return pa.table(arrays)


def _typed_as(aggregate: Aggregate, kinds: Sequence[pa.DataType | None]) -> Aggregate:
    """Return the aggregate with types of the state's fields, for those of its own without a type."""
    return aggregate if None in kinds else aggregate.typed_by([kind for kind in kinds if kind is not None])


def _spec(name: str, kind: pa.DataType | None) -> str:
    return name if kind is None else f"{name}: {ddl_name(kind)}"


def _python_values(values: Sequence[Any]) -> Sequence[Any]:
    """Return numbers of numpy as Python numbers, and all other values unchanged."""
    if not any(issubclass(kind, np.generic) for kind in set(map(type, values))):
        return values
    return [value.item() if isinstance(value, np.generic) else value for value in values]


def _python_keys(keys: Sequence[Any]) -> Sequence[Any]:
    """Return keys, some of which may be tuples, as :func:`_python_values` returns values."""
    if tuple not in set(map(type, keys)):
        return _python_values(keys)
    return [tuple(_python_values(key)) if type(key) is tuple else _python_values([key])[0] for key in keys]
