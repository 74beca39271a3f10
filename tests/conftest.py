"""What all tests share: one Spark session, one ZooKeeper, one Kafka broker, and the profiles of hypothesis."""

import collections
import itertools
import os
import shutil
import signal
import zlib
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest
from pyspark.sql import SparkSession

from tests import BYTECODE
from tests.azurite import AzuriteServer
from tests.object_server import ObjectStore as ObjectServer, object_store
from txtopo.config import Config
from txtopo.errors import ConfigError
from txtopo.files import durable
from txtopo.servers.kafka import KafkaBroker
from txtopo.servers.zookeeper import ZooKeeperServer
from txtopo.spark.session.sessions import spark_session

# How much hypothesis tries, on however busy a machine. What must pass tries the same each time; `make long` looks for
# more. A test that asks for a number of examples of its own asks tests.budgets for it.
_PATIENT = hypothesis.settings(deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow], print_blob=True)
_PROFILES = {
    "fast": hypothesis.settings(_PATIENT, derandomize=True, max_examples=12, stateful_step_count=20),
    "whole": hypothesis.settings(_PATIENT, derandomize=True, max_examples=40),
    "long": hypothesis.settings(_PATIENT, max_examples=500, stateful_step_count=100),
}
for _name, _profile in _PROFILES.items():
    hypothesis.settings.register_profile(_name, _profile)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "whole"))

# A shell lets a command in the background ignore Ctrl-C, and what the command starts ignores it too: tests send it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let several processes share the tests: each takes its part of the files."""
    parser.addoption("--part", default="1/1", metavar="N/OF", help="run the Nth part of the test files only")


@pytest.hookimpl(tryfirst=True)  # before -m is looked at
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what uses the session of Spark or a server of its own, or is long, so that the fast suite leaves it out."""
    for item in items:
        if item.get_closest_marker("long") is not None:
            item.add_marker("slow")  # a variant that only `make long` runs, of a test that is fast
        parameters = item.callspec.params if hasattr(item, "callspec") else {}  # a parameter may be named spark, too
        if "spark" in getattr(item, "fixturenames", ()) and "spark" not in parameters:
            item.add_marker("spark")
        servers = {"kafka", "postgres", "zookeeper"}.intersection(getattr(item, "fixturenames", ()))
        if servers - parameters.keys():
            item.add_marker("slow")
    for _, variants in itertools.groupby(items, key=lambda item: item.nodeid.partition("[")[0]):
        _mark_but_few([item for item in _covering(list(variants)) if item.get_closest_marker("slow") is None])


def _covering(variants: list[pytest.Item]) -> list[pytest.Item]:
    """Mark variants of a test as long: all but so many that each value of each parameter, or each pair, occurs."""
    covering = variants[0].get_closest_marker("covering")
    if covering is None:
        return variants
    candidates = [item for item in variants if item.get_closest_marker("long") is None]
    wanted = {id(item): set(itertools.combinations(_values(item), *covering.args)) for item in candidates}
    left = set().union(*wanted.values())
    used: collections.Counter[object] = collections.Counter()
    chosen: list[pytest.Item] = []
    while left:
        # Of those that cover as much, one that is not slow, as the fast suite takes some, and of values that are rare.
        best = max(
            candidates,
            key=lambda item: (
                len(wanted[id(item)] & left),
                item.get_closest_marker("slow") is None,
                -sum(used[each] for each in wanted[id(item)]),
            ),
        )
        chosen.append(best)
        used.update(wanted[id(best)])
        left -= wanted[id(best)]
    for item in candidates:
        if item not in chosen:
            item.add_marker("long")
            item.add_marker("slow")
    return [item for item in variants if item in chosen]


def _values(variant: pytest.Item) -> list[tuple[object, ...]]:
    """Return what it has of each `parametrize`, and of each fixture that has variants."""
    params = variant.callspec.params
    marks = [mark.args[0] for mark in variant.iter_markers("parametrize")]
    groups = [names.replace(" ", "").split(",") if isinstance(names, str) else names for names in marks]
    of_fixtures = params.keys() - set(itertools.chain(*groups))
    return [
        (*names, *(id(params[name]) for name in names))
        for names in [*groups, *([name] for name in sorted(of_fixtures))]
    ]


def _mark_but_few(variants: list[pytest.Item]) -> None:
    """Mark variants of a test as slow: all but those, evenly chosen, that the fast suite runs."""
    few = variants[0].get_closest_marker("few") if variants else None
    if few is not None:
        (count,) = few.args
        chosen = {len(variants) * number // count for number in range(count)}
        for at, item in enumerate(variants):
            if at not in chosen:
                item.add_marker("slow")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out the files of other parts: they are not even imported."""
    part, parts = map(int, config.getoption("--part").split("/"))
    name = collection_path.relative_to(config.rootpath).as_posix()
    is_of_other = collection_path.is_file() and zlib.crc32(name.encode()) % parts != part - 1
    return True if is_of_other else None


@pytest.fixture(scope="session", autouse=True)
def _bytecode_of_modules_that_tests_write(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Nothing of it stays in the folder for bytecode."""
    yield
    shutil.rmtree(f"{BYTECODE}{tmp_path_factory.getbasetemp()}", ignore_errors=True)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One Spark session on two cores, which run() finds by itself."""
    with spark_session(Config(spark_master="local[2]"), "txtopo-tests") as session:
        yield session


@pytest.fixture
def bucket_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectServer]:
    """A server of the one bucket ``s3://bucket``, whose options are in the environment."""
    with object_store() as server:
        for name, value in server.options.items():
            monkeypatch.setenv(name.upper(), value)
        yield server


@pytest.fixture(scope="session")
def azure() -> Iterator[AzuriteServer]:
    """One running emulator of Azure for the whole test session; the tests are skipped where it is not installed."""
    with AzuriteServer() as server:
        yield server


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    """One running ZooKeeper server for the whole test session; a session there may last from 1 s to 10 s."""
    with ZooKeeperServer(tmp_path_factory.mktemp("zookeeper"), tick_time_ms=500) as server:
        yield server


@pytest.fixture(scope="session")
def kafka() -> Iterator[KafkaBroker]:
    """One running Kafka broker for the whole test session; each test has topics of its own."""
    broker = KafkaBroker()
    try:
        broker.start()
    except ConfigError as missing:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(str(missing))
    yield broker
    broker.kill()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """Wait for what a test has begun beside, such as the sync of a draft in vain: the next test may watch the disk."""
    if durable._threads.cache_info().currsize:
        threads = durable._threads()
        durable._threads.cache_clear()
        threads.shutdown()
