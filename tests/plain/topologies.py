"""Small plain topologies, and a worker that runs alone, for the tests of this folder."""

import random
from collections.abc import Mapping
from typing import Any

import cloudpickle

from txtopo.api.components.bolt import BasicBolt, OutputFieldsDeclarer, RichBolt
from txtopo.api.components.spout import Spout
from txtopo.api.data.fields import Fields
from txtopo.config import Config
from txtopo.plain.worker import Worker
from txtopo.settings.setting import TopologyKind
from txtopo.topology.plans.assignment import assign
from txtopo.topology.topology import PlainTopology


class Words(Spout):
    output_fields = Fields("word")

    def next_tuple(self):
        pass


class Pass(BasicBolt):
    output_fields = Fields("word")

    def execute(self, tuple, collector):
        collector.emit(tuple.values)


class Take(RichBolt):
    def execute(self, tuple):
        pass


class Streams(RichBolt):
    """Declares a default stream, another one, and a direct one."""

    def declare_output_fields(self, declarer: OutputFieldsDeclarer) -> None:
        declarer.declare(Fields("word"))
        declarer.declare_stream("side", Fields("word", "n"))
        declarer.declare_stream("direct", Fields("word"), direct=True)

    def execute(self, tuple):
        pass


class TwoArgumentsError(Exception):
    """Pickles, and does not come back: its pickle has one argument."""

    def __init__(self, what, why):
        super().__init__(f"{what}: {why}")


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Alone:
    """The workers of a topology, called by hand: the frames that they send are kept by receiver."""

    def __init__(
        self,
        topology: PlainTopology,
        config: Mapping[str, Any] | None = None,
        workers: int = 1,
        seed: int = 0,
        clock: Any = None,
    ) -> None:
        of_kind = Config(config).of_kind(TopologyKind.PLAIN)
        plan = topology.plan.limited(of_kind)
        self.assignment = assign(plan, workers, of_kind.acker_executors)
        self.clock = clock or Clock()
        self.sent: dict[int, list[bytes]] = {worker: [] for worker in range(workers)}
        self.objects: dict[str, list[Any]] = {component.id: [] for component in plan.components}
        prototypes = {component.id: cloudpickle.dumps(component.component) for component in plan.components}

        def make_object(component: str) -> Any:
            made = cloudpickle.loads(prototypes[component])
            self.objects[component].append(made)
            return made

        self.workers = [
            Worker(
                plan,
                self.assignment,
                worker,
                of_kind,
                {number: number for number in range(workers)},
                make_object=make_object,
                send=lambda to, data: self.sent[to].append(data),
                clock=self.clock,
                rng=random.Random(seed + worker),
            )
            for worker in range(workers)
        ]

    def activate(self, *, is_active: bool = True) -> None:
        for worker in self.workers:
            worker.set_active(is_active=is_active)

    def deliver(self, *to: int) -> int:
        """Give the workers, or some of them, what was sent to them; return how many frames that was."""
        delivered = 0
        for worker in to or range(len(self.workers)):
            frames, self.sent[worker] = self.sent[worker], []
            for frame in frames:
                self.workers[worker].receive(frame)
            delivered += len(frames)
        return delivered

    def run(self, passes_max: int = 50) -> None:
        """Run until nothing is done any more, or so many passes."""
        for _ in range(passes_max):
            worked = [worker.run_pass() for worker in self.workers]
            if not self.deliver() and not any(worked):
                return
