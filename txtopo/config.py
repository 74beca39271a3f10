"""Configuration: settings have Storm's dotted names, which can also be spelt as Python keywords.

``Config(max_spout_pending=8)`` and ``Config({"topology.max.spout.pending": 8})`` are equal. ``Config`` refuses an
unknown name and names the nearest known one. Names that start with ``spark.`` go to the Spark session. Other dotted
names are your own, for your spouts and bolts to read.
"""

from __future__ import annotations

import difflib
import enum
import math
import re
from collections.abc import Callable, ItemsView, Iterable, Iterator, Mapping
from typing import Any

import attrs

from txtopo.errors import ConfigError
from txtopo.text.secrecy import HIDDEN, shown
from txtopo.text.suggestions import did_you_mean

MICRO_BATCH, REAL_TIME = "micro-batch", "real-time"
"""Values of ``topology.processing.mode``."""

_OF_WORKERS = "topology.worker"
"""So begin the names of settings that mean something only where there are workers."""

_RESERVED = ("topology.", "txtopo.", "transactional.")
_OWN_PREFIX = "spark."


@attrs.frozen
class Kind:
    """The type of a setting's value."""

    words: str
    """A description of valid values, such as "an integer of at least 1"."""
    convert: Callable[[Any], Any]
    """Converts a value, or its text, to the stored form; raises ValueError or TypeError for an invalid one."""


def integer(low: int, high: float = math.inf) -> Kind:
    """Return the kind of integers of at least ``low``, and at most ``high``."""

    def convert(value: Any) -> int:
        number = int(value) if isinstance(value, str) else value
        # True is an int in Python, but surely a mistake here.
        if isinstance(number, bool) or not isinstance(number, int) or not low <= number <= high:
            raise ValueError
        return number

    return Kind(f"an integer of at least {low}", convert)


def or_none(kind: Kind, texts: Iterable[str] = ("", "none")) -> Kind:
    """Return a kind that also takes None, which ``texts`` spell, in small letters."""

    def convert(value: Any) -> Any:
        is_none = value is None or (isinstance(value, str) and value.lower() in texts)
        return None if is_none else kind.convert(value)

    return Kind(f"{kind.words}, or none", convert)


def _to_seconds(value: Any) -> float:
    number = float(value)
    if isinstance(value, bool) or not 0 < number < math.inf:
        raise ValueError
    return number


def _to_text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError
    return value


def _to_folder(value: Any) -> str:
    folder = _to_text(str(value))
    scheme, separator, rest = folder.partition("://")
    if "\0" in folder or (separator and not (scheme and rest.strip("/"))):
        raise ValueError(folder)
    return folder


def _to_flag(value: Any) -> bool:
    if isinstance(value, str):
        return {"true": True, "false": False}[value.lower()]  # a KeyError is refused like a ValueError, see _check
    if not isinstance(value, bool):
        raise TypeError
    return value


_SERVER = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[\w.-]+)(?::(\d{1,5}))?")
"""A host, or an IPv6 address in brackets, with or without a port."""

PORT_MAX = 65_535


def to_servers(value: Any) -> tuple[str, ...]:
    """Return ``host`` or ``host:port`` from texts with commas; raise ValueError if there is none, or one is none."""
    parts = value.split(",") if isinstance(value, str) else list(value)
    servers = tuple(str(part).strip() for part in parts if str(part).strip())
    if not servers:
        raise ValueError("there is none")
    for server in servers:
        found = _SERVER.fullmatch(server)
        if found is None or not 1 <= int(found[1] or 1) <= PORT_MAX:
            raise ValueError(f"{server!r} is none; write host:port, and an IPv6 address in brackets, as in [::1]:9092")
    return servers


def with_ports(servers: Iterable[str], port: int) -> str:
    """Return servers as a text with commas between them; one without a port gets this one."""
    found = ((server, _SERVER.fullmatch(server)) for server in servers)
    return ",".join(server if match is None or match[1] else f"{server}:{port}" for server, match in found)


def _to_node(value: Any) -> str:
    node = _to_text(value)
    if not re.fullmatch(r"(/[^/\0]+)+", node) or {".", ".."}.intersection(node.split("/")):
        raise ValueError(node)
    return node


def _to_credentials(value: Any) -> str:
    user, colon, _ = _to_text(str(value)).partition(":")
    if not user or not colon:
        raise ValueError("there is no colon behind a user")
    return str(value)


def _to_strategy(value: Any) -> Any:
    if isinstance(value, type) or not callable(getattr(value, "empty_emit", None)):
        raise TypeError
    return value


def one_of(*choices: str) -> Kind:
    """Return the kind of some words, however they are spelt."""
    by_name = {choice.lower(): choice for choice in choices}
    return Kind(f"one of {', '.join(choices)}", lambda value: by_name[str(getattr(value, "value", value)).lower()])


def _to_store(value: Any) -> str:
    text = _to_text(getattr(value, "value", value))
    name = text.lower()
    if name in {"sqlite", "zookeeper"}:
        return name
    scheme, separator, rest = text.partition("://")
    if not (scheme and separator and rest.strip("/")) or name.startswith("file:"):
        raise ValueError(text)
    return text.rstrip("/")


_STORE = Kind("sqlite, zookeeper, or an address such as s3://bucket/folder", _to_store)


def _to_txids(value: Any) -> dict[str, int]:
    if isinstance(value, str):
        pairs = [pair.rpartition("=")[::2] for pair in value.split(",") if pair.strip()]
        value = {name.strip(): int(txid) for name, txid in pairs}
    txids = {name: integer(0).convert(txid) for name, txid in dict(value).items()}
    if not all(isinstance(name, str) and name for name in txids):
        raise ValueError
    return txids


PORT = Kind(f"a port, from 1 to {PORT_MAX}", integer(1, PORT_MAX).convert)
SECONDS = Kind("a number of seconds above 0", _to_seconds)
TEXT = Kind("a non-empty string", _to_text)
_NONE = ("none",)  # an empty text is more often a variable that a script has not set
TEXT_OR_NONE = or_none(Kind("a non-empty string", lambda value: _to_text(str(value))), _NONE)
FOLDER_OR_NONE = or_none(Kind("a path, or an address such as s3://bucket/folder", _to_folder), _NONE)
FLAG = Kind("true or false", _to_flag)
_STRATEGY = or_none(Kind("a SpoutWaitStrategy", _to_strategy), _NONE)
_TXIDS = or_none(Kind("NAME=TXID pairs, separated by commas", _to_txids))
SERVERS = Kind("hosts, or host:port, separated by commas, with an IPv6 address in brackets: [::1]:2181", to_servers)
NODE = Kind("the path of a node below the root, such as /txtopo", _to_node)
CREDENTIALS = or_none(Kind("user:password", _to_credentials), _NONE)


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
        default = self.default
        if isinstance(default, bool):
            return str(default).lower()
        if isinstance(default, tuple):
            return ",".join(default)
        return "none" if default is None else f"{default:g}" if isinstance(default, float) else str(default)

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

SETTINGS: Mapping[str, Setting] = {
    setting.name: setting
    for setting in (
        Setting(
            "topology.max.spout.pending",
            768,
            integer(1),
            "maximum number of pending transactions: begun and not yet committed, by default twice as many where the "
            "topology is in a bucket; in a plain topology, of pending roots of a spout task",
            only=None,
            plain_default=500,
            is_of_component=True,
        ),
        Setting(
            "topology.message.timeout.secs",
            30.0,
            SECONDS,
            "how long an attempt may make no progress; in a plain topology, how long a root may be pending",
            only=None,
        ),
        Setting(
            "topology.acker.executors",
            1,
            or_none(integer(0)),
            "0 turns off the comparison of sent and received tuples; in a plain topology, the number of ackers: none: "
            "one for each worker with spouts; 0: tuple trees are not tracked",
            only=None,
            plain_default=None,
        ),
        Setting(
            "topology.transaction.max.attempts",
            None,
            or_none(integer(1)),
            "maximum number of failures of a transaction; none: no limit",
        ),
        Setting(
            "topology.transaction.max.attempts.policy",
            "WAIT",
            one_of("WAIT", "SKIP"),
            "what to do then: WAIT stops with an error, SKIP writes a dead letter and continues",
        ),
        Setting("topology.dead.letter.path", None, TEXT_OR_NONE, "Delta table of the transactions that SKIP gives up"),
        Setting(
            "topology.journal.bytes.max",
            1024 * 1024 * 1024,
            integer(0),
            "maximum size of the journal, which audit, replay, repair and rewind read; oldest parts go first, also "
            "those that no point needs; 0: no journal",
        ),
        Setting(
            "topology.rewind.hours",
            7 * 24,
            integer(1),
            "how many hours back points reach, which a rewind goes to; if topology.history.recent.secs is none, how "
            "long tables at least keep what all versions need, whatever a state says",
        ),
        Setting(
            "topology.history.recent.secs",
            300,
            or_none(integer(1)),
            "for how many seconds tables keep every version, and so how long a reader of one may take; of older ones, "
            "those of points stay: each 5 minutes for an hour, each hour for a day, each day for "
            "topology.rewind.hours; none: all stay, unless a state says otherwise",
        ),
        Setting(
            "topology.lineage",
            False,
            FLAG,
            "tell OpenLineage's collector what each run reads and writes; its own settings say where that is",
        ),
        Setting(
            "topology.tracing",
            False,
            FLAG,
            "make OpenTelemetry's spans of transactions; its own settings say where they go",
        ),
        Setting("topology.debug", False, FLAG, "log every event and action", only=None, is_of_component=True),
        Setting(
            "topology.state.dir",
            None,
            FOLDER_OR_NONE,
            "folder of coordinator state, journal and what else outlives a run; by default beside the tables",
        ),
        Setting(
            "topology.state.store",
            None,
            or_none(_STORE),
            "store of the coordinator state: a file, ZooKeeper, or a folder in an object store; by default in the "
            "metadata directory: a file of SQLite or, in an object store, a folder",
        ),
        Setting(
            "topology.state.start.empty",
            None,
            _TXIDS,
            "states to begin empty although transactions are committed, because they are new or were left out of the "
            "topology for a while; TXID is the last committed transaction",
        ),
        Setting("transactional.zookeeper.servers", ("127.0.0.1",), SERVERS, "ZooKeeper servers"),
        Setting("transactional.zookeeper.port", 2181, PORT, "port of servers given without one"),
        Setting("transactional.zookeeper.root", "/txtopo", NODE, "ZooKeeper node above all topologies"),
        Setting(
            "transactional.zookeeper.auth",
            None,
            CREDENTIALS,
            "user:password for digest ACLs on all nodes; none: open nodes",
        ),
        Setting("transactional.zookeeper.session.timeout.secs", 10.0, SECONDS, "how long a lost leader keeps the lead"),
        Setting(
            "topology.processing.mode",
            MICRO_BATCH,
            one_of(MICRO_BATCH, REAL_TIME),
            "how transactions are processed: micro-batch in Spark jobs of many; real-time one by one, in workers that "
            "hold their Spark slots for the whole run",
        ),
        Setting("topology.jobs.in.flight.max", 2, integer(1), "maximum number of Spark jobs in flight"),
        Setting("topology.job.transactions.max", 256, integer(1), "maximum number of transactions in one Spark job"),
        Setting(
            "topology.group.transactions.max", 512, integer(1), "maximum number of transactions in one commit group"
        ),
        Setting(
            "topology.received.bytes.max",
            256 << 20,
            integer(1),
            "maximum number of bytes that wait in the driver for their commit",
        ),
        Setting(
            "topology.driver.rows.max",
            1_000_000,
            integer(0),
            "rows of a commit group that the driver folds at a time; with more distinct keys, executors fold them",
        ),
        Setting(
            "topology.state.bytes.max",
            2 << 30,
            integer(0),
            "bytes of the driver's memory for rows of keyed tables and their indexes, and for rows that expire, an "
            "equal share for each table; what is more lies in temporary files that are mapped",
        ),
        Setting(
            "topology.layout",
            "auto",
            one_of("auto", "together", "spread"),
            "whether a transaction's tasks run together in one partition of a job or spread over all",
        ),
        Setting(
            "topology.spark.master",
            None,
            TEXT_OR_NONE,
            "Spark master URL; by default all cores of this machine",
            only=None,
        ),
        Setting(
            "topology.spark.delta",
            False,
            FLAG,
            "start the Spark session with Delta, as for a component with uses_delta = True",
        ),
        Setting("topology.spark.log.level", "ERROR", TEXT, "log level of Spark", only=None),
        *(
            attrs.evolve(setting, only=None)
            for setting in (
                Setting(
                    "topology.workers",
                    None,
                    or_none(integer(1)),
                    "worker processes, in real-time mode; none: one for each Spark slot, and in a plain topology 1",
                ),
                Setting("topology.worker.max.restarts", 10, integer(0), "restarts of workers in the period below"),
                Setting("topology.worker.restart.period.secs", 60.0, SECONDS, "the period of the restarts above"),
                Setting(
                    "topology.worker.watermark.bytes",
                    32 << 20,
                    integer(1),
                    "bytes that may wait in a worker, in queues and to be sent, before no worker begins anything new",
                ),
            )
        ),
        *(
            attrs.evolve(setting, only=TopologyKind.PLAIN)
            for setting in (
                Setting("topology.enable.message.timeouts", True, FLAG, "fail roots whose timeout has passed"),
                Setting(
                    "topology.tick.tuple.freq.secs",
                    None,
                    or_none(SECONDS),
                    "seconds between tick tuples; none: no ticks",
                    is_of_component=True,
                ),
                Setting(
                    "topology.max.task.parallelism",
                    None,
                    or_none(integer(1)),
                    "most tasks of a component; none: no bound",
                    is_of_component=True,
                ),
                Setting("topology.error.throttle.interval.secs", 10.0, SECONDS, "the interval of the bound below"),
                Setting("topology.max.error.report.per.interval", 5, integer(0), "errors that a task reports in it"),
                Setting(
                    "topology.spout.wait.strategy",
                    None,
                    _STRATEGY,
                    "how long a spout that emits nothing waits; none: 1 ms, 10 ms after a second",
                    is_of_component=True,
                ),
            )
        ),
    )
}
_BY_KEYWORD = {setting.keyword: setting for setting in SETTINGS.values()}

_ALIASES = {"topology.ackers": "topology.acker.executors", "ackers": "topology.acker.executors"}
"""Other names of settings: Storm has had both."""


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


class Config(GivenSettings):
    """A topology's configuration: a mapping by dotted name, complete with defaults, and immutable.

    Args:
        values: settings by dotted name.
        **keywords: settings by Python spelling.

    Raises:
        ConfigError: a name is unknown, or a value is invalid.
    """

    def __init__(self, values: Mapping[str, Any] | None = None, /, **keywords: Any) -> None:
        if values is not None and not isinstance(values, Mapping):
            raise ConfigError(f"the configuration is {values!r}; give a mapping of names to values")
        given = {**(values or {}), **keywords}
        defaults = {name: setting.default for name, setting in SETTINGS.items()}
        super().__init__(dict(_check(name, value) for name, value in given.items()), defaults)
        self._kind: TopologyKind | None = None

    def with_settings(self, values: Mapping[str, Any]) -> Config:
        """Return a copy with some settings replaced."""
        changed = Config({**self._given, **values})
        return changed if self._kind is None else changed.of_kind(self._kind)

    def of_kind(self, kind: TopologyKind) -> Config:
        """Return the configuration with a kind's defaults; raise ConfigError for a setting of the other kind only."""
        for name in self._given:
            setting = SETTINGS.get(name)
            if setting is not None and setting.only is kind.other:
                raise ConfigError(
                    f"{name} is for {kind.other.value} topologies ({setting.purpose}); this topology is a "
                    f"{kind.value} one: leave the setting out"
                )
            if name.startswith(_OF_WORKERS) and kind is TopologyKind.TRANSACTIONAL and not self.is_real_time:
                raise ConfigError(
                    f"{name} is for workers ({SETTINGS[name].purpose}), and a transactional topology has some in "
                    f"real-time mode only: set topology.processing.mode to {REAL_TIME}, or leave the setting out"
                )
        return Config._with_defaults(self._given, kind)

    @classmethod
    def _with_defaults(cls, given: Mapping[str, Any], kind: TopologyKind) -> Config:
        config = cls(given)
        if kind is TopologyKind.PLAIN:
            defaults = {name: setting.plain_default for name, setting in SETTINGS.items()}
            config._values = {**defaults, **config._given}
        config._kind = kind
        return config

    @property
    def is_real_time(self) -> bool:
        """Whether transactions are processed in real-time mode."""
        return bool(self._values["topology.processing.mode"] == REAL_TIME)

    @property
    def spark(self) -> dict[str, str]:
        """The settings of the Spark session."""
        return {name: str(value) for name, value in self._values.items() if name.startswith(_OWN_PREFIX)}

    def __getitem__(self, name: str) -> Any:
        setting = _named(name)
        return self._values[name if setting is None else setting.name]

    def __getattr__(self, keyword: str) -> Any:
        setting = None if keyword.startswith("_") else _named(keyword)
        if setting is None:
            raise AttributeError(_unknown(keyword))
        return self._values[setting.name]

    def __reduce__(self) -> tuple[Any, ...]:
        return (Config, (self._given,)) if self._kind is None else (Config._with_defaults, (self._given, self._kind))


def _named(name: str) -> Setting | None:
    """Return the setting of a dotted name, a Python keyword, or another name; None if there is none."""
    name = _ALIASES.get(name, name)
    return SETTINGS.get(name) or _BY_KEYWORD.get(name)


def _check(name: str, value: Any) -> tuple[str, Any]:
    setting = _named(name)
    if setting is not None:
        return setting.name, setting.converted(value)
    if not isinstance(name, str) or "." not in name or name.startswith(_RESERVED) or _is_misspelt(name):
        raise ConfigError(_unknown(name))
    return name, value


def _is_misspelt(name: str) -> bool:
    """Whether a dotted name is so similar to one of txtopo's that it is probably a typo."""
    if name.startswith(_OWN_PREFIX):
        return False
    # Also as if its first part were left out, such as in max.spout.pending.
    candidates = (name, *(prefix + name for prefix in _RESERVED))
    return any(difflib.get_close_matches(candidate, SETTINGS, n=1, cutoff=0.9) for candidate in candidates)


def component_config(config: Config, of_component: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration that a component of a plain topology sees, given what it was declared with.

    A component may change some of txtopo's settings and all of your own; the rest of what it names is ignored.
    """
    given = dict(_check(name, value) for name, value in of_component.items())
    return {**config, **{n: v for n, v in given.items() if n not in SETTINGS or SETTINGS[n].is_of_component}}


def find_setting(name: str) -> Setting:
    """Return the setting of a dotted name or Python keyword; raise ConfigError, with the nearest, if there is none."""
    setting = _named(name)
    if setting is None:
        raise ConfigError(_unknown(name))
    return setting


def _unknown(name: str) -> str:
    return unknown_setting(name, SETTINGS, [*SETTINGS, *_BY_KEYWORD])


def unknown_setting(name: str, settings: Iterable[str], names: Iterable[str] = (), of: str = "") -> str:
    """Say that there is no such setting, with the nearest of them or of their ``names``, or else with all."""
    known = f"; known settings: {', '.join(settings)}"
    return f"there is no setting {name!r}{of}{did_you_mean(name, names or settings, cutoff=0.4) or known}"
