"""Finds bolts that ack inputs and then keep them only in memory, where they are lost if the worker dies.

The ledger cannot see that, since it does not know what a bolt keeps. So the bolt receives the inputs of the schedule
without faults again, alone, without ackers and other workers:

1. First it receives all of them. An input that it acks at once, and for which it emits nothing, is *silent*. Filters
   have silent inputs, too.
2. Then it receives them again, but one silent input is left out, or has the values of another input. If the bolt's
   *later* tuples differ, it had kept the input: it acked first and emitted afterwards.

A tuple that is emitted at a tick has no input of its own, so any difference counts. At another input, a difference
counts if the bolt emits both times, but other values: a sampler that emits every tenth input only chooses another one.
Leaving out an input shifts any numbers that a bolt gives to its inputs, so it counts at ticks only.

A bolt that emits nothing writes to the outside, which the simulator does not see. It is found if it collects silent
inputs in a list or dict among its attributes, and empties that later.
"""

from __future__ import annotations

import functools
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import attrs
import cloudpickle

from txtopo.api.collector import OutputCollector
from txtopo.api.fields import Fields
from txtopo.api.tuples import DEFAULT_STREAM, Tuple, TupleSource
from txtopo.config import Config, component_config
from txtopo.errors import FailedException
from txtopo.plain.tasks.collectors import BasicCollector
from txtopo.plain.tasks.context import PlainTaskContext
from txtopo.plain.tasks.errors import blaming
from txtopo.plain.tasks.offload import Offloading
from txtopo.plain.trees.tuples import SETTLED, TreeTuple
from txtopo.testing.checkers import Violation
from txtopo.testing.simulation.plain.ledger import named
from txtopo.topology.plain_plan import SYSTEM, SYSTEM_TASK, TICK_STREAM, PlainComponent, PlainKind, PlainPlan

INPUTS = 250
"""Inputs that a bolt receives; fewer recorded ones are repeated, as delivery at least once allows."""
TICK_EVERY = 20
"""Inputs between two ticks."""
SUSPECTS_MAX = 8
"""About how many silent inputs are left out, one at a time."""
RUN_SECS_MAX = 2.0
"""A bolt that takes longer, because it waits for something, is not tried again."""


@attrs.frozen
class Input:
    """An input that a bolt's task has received."""

    task: int
    values: Sequence[Any]
    source: TupleSource


TICK = Input(SYSTEM_TASK, (1,), TupleSource(SYSTEM, TICK_STREAM, SYSTEM_TASK, Fields("rate_secs")))


@attrs.define(eq=False)
class _Turn:
    """What a bolt did when it received an input."""

    input: Input
    emitted: list[str] = attrs.field(factory=list)
    """The stream and values of each tuple, as text: users' values need not be comparable."""
    is_acked: bool = False
    has_offloaded: bool = False

    @property
    def is_silent(self) -> bool:
        """Whether the input was acked at once, with no tuple and no slow call."""
        return self.is_acked and not self.emitted and not self.has_offloaded


def check_buffers(
    plan: PlainPlan, config: Config, make_object: Callable[[str], Any], inputs: Mapping[str, Sequence[Input]]
) -> None:
    """Check that bolts ack no input that they still need; raise a :class:`Violation` otherwise.

    Args:
        plan: the plan, without fields for tokens.
        config: the topology's configuration.
        make_object: makes a new object of the component with an id.
        inputs: the recorded inputs of each bolt, by component id.
    """
    for component in plan.components:
        if inputs.get(component.id):
            _Trial(plan, component, config, make_object).run(_sequence(inputs[component.id], component))


def _sequence(recorded: Sequence[Input], component: PlainComponent) -> list[Input]:
    has_ticks = component.configuration.get("topology.tick.tuple.freq.secs")
    sequence: list[Input] = []
    for number in range(max(INPUTS, len(recorded))):
        sequence.append(recorded[number % len(recorded)])
        if has_ticks and number % TICK_EVERY == TICK_EVERY - 1:
            sequence.append(TICK)
    return [*sequence, TICK] if has_ticks else sequence


@attrs.define(eq=False)
class _Trial:
    """Runs one bolt of a topology alone."""

    plan: PlainPlan
    component: PlainComponent
    config: Config
    make_object: Callable[[str], Any]

    def run(self, sequence: list[Input]) -> None:
        """Try the bolt; raise a :class:`Violation` if it acks an input that it only keeps."""
        began = time.monotonic()
        try:
            turns = self._turns(sequence, watches_attributes=True)
            if time.monotonic() - began > RUN_SECS_MAX or _told(turns) != _told(self._turns(sequence)):
                return  # it is slow; or no two runs compare, as of a bolt that draws at random or reads a clock
        except Violation:
            raise
        except Exception:  # noqa: BLE001 - user code may need more than a bolt alone, which is no finding
            return
        silent = [at for at, turn in enumerate(turns) if turn.is_silent and turn.input is not TICK]
        if not any(turn.emitted for turn in turns):
            return
        # The first ones, and others spread over all: a bolt may begin to keep inputs at any point.
        for at in silent[: SUSPECTS_MAX // 2] + silent[SUSPECTS_MAX // 2 :: max(1, len(silent) // SUSPECTS_MAX)]:
            try:
                later = self._differs(turns, sequence, at)
            except Exception:  # noqa: BLE001 - as above
                return
            if later is not None:
                raise Violation(
                    f"{self._name(sequence[at])} acked {_named(sequence[at])}, and emitted nothing for it, but what it "
                    f"emitted later, {later}, depends on it: it was only in the bolt's memory, and if the worker dies "
                    "in between, it is lost though its root was acked; hold the input, emit anchored to it, then ack"
                )

    def _differs(self, turns: list[_Turn], sequence: list[Input], at: int) -> str | None:
        """Return where the bolt emits something else without an input or with other values of it; None if nowhere."""
        suspect = sequence[at]
        without = self._turns(sequence[:at] + sequence[at + 1 :])
        for turn, other in zip(turns[at + 1 :], without[at:], strict=True):
            if turn.input is TICK and turn.emitted != other.emitted:
                return "at a tick"
        other_values = next(
            (each for each in sequence if each.source == suspect.source and repr(each.values) != repr(suspect.values)),
            None,
        )
        if other_values is None:
            return None
        changed = self._turns([*sequence[:at], other_values, *sequence[at + 1 :]])
        if not changed[at].is_silent:  # with these values it emits at once, so later tuples prove nothing
            return None
        for turn, other in zip(turns[at + 1 :], changed[at + 1 :], strict=True):
            if turn.emitted != other.emitted:
                if turn.input is TICK:
                    return "at a tick"
                if turn.emitted and other.emitted:
                    return f"for {_named(turn.input)}"
        return None

    def _turns(self, sequence: Sequence[Input], *, watches_attributes: bool = False) -> list[_Turn]:
        """Run a new object of the bolt, and return what it did for each input."""
        made = self.make_object(self.component.id)
        offloading = _Offloading()
        config = component_config(self.config, self.component.configuration)
        task = self.component.tasks[0]
        user_code = functools.partial(blaming, self.component.id, task)
        context = PlainTaskContext(self.plan, self.component, task, config, [], offloading, user_code)
        collector = _Collector()
        execute = _execute_of(self.component.kind, made, config, context, collector)
        watch = _Attributes(made) if watches_attributes else None
        turns: list[_Turn] = []
        for given in sequence:
            current = TreeTuple(given.values, given.source, 0, 0)
            collector.turn, collector.current = _Turn(given), current
            try:
                execute(current)
            except FailedException:
                collector.fail(current)
            collector.turn.has_offloaded = offloading.under_way > 0
            offloading.run_done()
            turns.append(collector.turn)
            if watch is not None:
                emptied = watch.see(collector.turn)
                if emptied is not None and not any(turn.emitted for turn in turns):
                    attribute, kept = emptied
                    raise Violation(
                        f"{self._name(kept)} acked {_named(kept)} when it had only put it into its attribute "
                        f"{attribute!r}, which it emptied later: if the worker dies in between, it is lost though its "
                        "root was acked; hold the input, write it, then ack"
                    )
        return turns

    def _name(self, input: Input) -> str:
        return f"bolt {self.component.id!r} (task {input.task})"


def _execute_of(
    kind: PlainKind, made: Any, config: Mapping[str, Any], context: PlainTaskContext, collector: _Collector
) -> Callable[[Tuple], None]:
    if kind is not PlainKind.BASIC_BOLT:
        made.prepare(config, context, collector)
        execute: Callable[[Tuple], None] = made.execute
        return execute
    made.prepare(config, context)
    return BasicCollector(collector, made).execute


class _Collector(OutputCollector):
    """Records what a bolt does in a turn."""

    turn: _Turn
    current: Tuple

    def emit(self, values: Sequence[Any], anchors: Any = None, stream: str = DEFAULT_STREAM) -> list[int]:
        del anchors
        self.turn.emitted.append(f"{stream}: {list(values)!r}")
        return []

    def emit_direct(self, task: int, values: Sequence[Any], anchors: Any = None, stream: str = DEFAULT_STREAM) -> None:
        del task  # a bolt may choose tasks in turn, which leaving out an input shifts
        self.emit(values, anchors, stream)

    def ack(self, tuple: Tuple) -> None:
        self._settle(tuple, is_acked=True)

    def fail(self, tuple: Tuple) -> None:
        self._settle(tuple, is_acked=False)

    def reset_timeout(self, tuple: Tuple) -> None:
        """Record nothing."""

    def report_error(self, error: BaseException) -> None:
        """Record nothing."""

    def _settle(self, tuple: Tuple, *, is_acked: bool) -> None:
        if tuple is self.current and tuple.roots is not SETTLED:  # type: ignore[attr-defined] # of a TreeTuple
            self.turn.is_acked = is_acked
        tuple.roots = SETTLED  # type: ignore[attr-defined]


class _Offloading(Offloading):
    """Slow calls that are not made, and end without an error after the turn."""

    def __init__(self) -> None:
        super().__init__()
        self._waiting: deque[Callable[[Future[Any]], None]] = deque()

    def submit(self, task: int, call: Callable[[], Any], on_done: Callable[[Future[Any]], None]) -> None:
        del task, call
        self.under_way += 1
        self._waiting.append(on_done)

    def run_done(self) -> bool:
        for _ in range(len(self._waiting)):  # calls that these submit end after a later turn
            self.under_way -= 1
            done: Future[Any] = Future()
            done.set_result(None)
            self._waiting.popleft()(done)
        return True


class _Attributes:
    """The lists and dicts among a bolt's attributes: the silent inputs that they grew by, and when they are emptied."""

    def __init__(self, made: Any) -> None:
        self._made = made
        self._lengths: dict[str, int] = {}
        self._grown: dict[str, list[Input]] = {}

    def see(self, turn: _Turn) -> tuple[str, Input] | None:
        """Return the attribute that was emptied in a turn, and the first silent input that it held; None for none."""
        found = None
        for name, value in vars(self._made).items() if hasattr(self._made, "__dict__") else ():
            if not isinstance(value, (list, deque, dict)):
                continue
            before, now = self._lengths.get(name, 0), len(value)
            self._lengths[name] = now
            grown = self._grown.setdefault(name, [])
            if now > before and turn.is_silent:
                grown.append(turn.input)
            elif now <= 1 < before:
                if len(grown) > 1:
                    found = name, grown[0]
                grown.clear()
        return found


def _named(input: Input) -> str:
    return named(TreeTuple(input.values, input.source, 0, 0))


def _told(turns: Sequence[_Turn]) -> list[tuple[list[str], bool, bool]]:
    return [(turn.emitted, turn.is_acked, turn.has_offloaded) for turn in turns]


def objects_of(prototypes: Mapping[str, bytes], connect: Callable[[Any], None]) -> Callable[[str], Any]:
    """Return a function that makes a component's object from its prototype, and connects it to an outside."""

    def make_object(component: str) -> Any:
        made = cloudpickle.loads(prototypes[component])
        connect(made)
        return made

    return make_object
