"""One setting, and a mapping of those that were given, with the defaults of the others."""

from __future__ import annotations

import enum
from collections.abc import ItemsView, Iterable, Iterator, Mapping
from typing import Any

import attrs

from txtopo.errors import ConfigError
from txtopo.settings.kinds import Kind
from txtopo.text.secrecy import HIDDEN, shown
from txtopo.text.suggestions import did_you_mean


class TopologyKind(enum.Enum):
    """The two kinds of topologies."""

    TRANSACTIONAL = "transactional"
    PLAIN = "plain"

    @property
    def other(self) -> TopologyKind:
        """The other kind."""
        return TopologyKind.PLAIN if self is TopologyKind.TRANSACTIONAL else TopologyKind.TRANSACTIONAL


@attrs.frozen
class Setting:
    """A known setting."""

    name: str
    """The dotted name."""
    default: Any
    kind: Kind
    purpose: str
    """What it is for, in a few words."""
    only: TopologyKind | None = TopologyKind.TRANSACTIONAL
    """The kind of topologies that it is for; None for both."""
    plain_default: Any = attrs.Factory(lambda self: self.default, takes_self=True)
    """Its default in a plain topology, if that differs."""
    is_of_component: bool = False
    """Whether a component may have a value of its own."""

    def converted(self, value: Any) -> Any:
        """Return a value, or its text, in the form in which it is kept; raise ConfigError for an invalid one."""
        try:
            return self.kind.convert(value)
        except (ValueError, TypeError, LookupError, OverflowError):
            given = shown(self.name, value)
            given = given if given is HIDDEN else repr(given)  # not compared with it: an array has no answer
            raise ConfigError(f"{self.name} is {given}; it must be {self.kind.words} ({self.purpose})") from None

    @property
    def keyword(self) -> str:
        """The name as a Python keyword: without ``topology.``, dots as underscores."""
        return self.name.removeprefix("topology.").replace(".", "_")

    @property
    def default_text(self) -> str:
        """The default as a value for ``--set``."""
        return self.text_of(self.default)

    @staticmethod
    def text_of(value: Any) -> str:
        """Return a value in the form in which it is kept as one for ``--set``."""
        match value:
            case bool() | None:
                return str(value).lower()
            case tuple():
                return ",".join(value)
            case Mapping():
                return ",".join(f"{name}={part}" for name, part in value.items())
        return str(value).removesuffix(".0") if isinstance(value, float) else str(value)

    @property
    def is_storms(self) -> bool:
        """Whether Storm has a setting of that name."""
        return self.name in _STORMS


_STORMS = frozenset(
    {
        "nimbus.code.sync.freq.secs",
        "nimbus.host",
        "nimbus.monitor.freq.secs",
        "nimbus.seeds",
        "nimbus.task.launch.secs",
        "nimbus.task.timeout.secs",
        "storm.local.dir",
        "storm.zookeeper.root",
        "storm.zookeeper.servers",
        "supervisor.monitor.frequency.secs",
        "supervisor.worker.shutdown.sleep.secs",
        "supervisor.worker.start.timeout.secs",
        "supervisor.worker.timeout.secs",
        "topology.max.spout.pending",
        "topology.message.timeout.secs",
        "topology.acker.executors",
        "topology.debug",
        "topology.enable.message.timeouts",
        "topology.error.throttle.interval.secs",
        "topology.max.error.report.per.interval",
        "topology.max.replication.wait.time.sec",
        "topology.max.task.parallelism",
        "topology.min.replication.count",
        "topology.spout.wait.strategy",
        "topology.tick.tuple.freq.secs",
        "topology.workers",
        "transactional.zookeeper.servers",
        "transactional.zookeeper.port",
        "transactional.zookeeper.root",
    }
)
"""Names that Storm has too; the others are txtopo's own, in Storm's style."""


class GivenSettings(Mapping[str, Any]):
    """Settings by dotted name, complete with defaults, and immutable."""

    def __init__(self, given: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
        self._given = dict(given)
        self._values = {**defaults, **self._given}

    @property
    def given(self) -> Mapping[str, Any]:
        """The settings that were given, without the defaults."""
        return self._given

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def items(self) -> ItemsView[str, Any]:
        """Return names and values; faster than Mapping's method, for the copies that each process makes."""
        return self._values.items()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({ ({name: shown(name, value) for name, value in self._given.items()})!r})"


def unknown_setting(name: str, settings: Iterable[str], names: Iterable[str] = (), of: str = "") -> str:
    """Say that there is no such setting, with the nearest of them or of their ``names``, or else with all."""
    known = f"; known settings: {', '.join(settings)}"
    return f"there is no setting {name!r}{of}{did_you_mean(name, names or settings, cutoff=0.4) or known}"
