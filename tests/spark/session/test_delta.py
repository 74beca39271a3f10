"""Delta through Spark: a DataFrame bolt joins a dimension table, in a session that has Delta or says what is missing."""

import pathlib

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from tests.processes import ran
from tests.spark.delta_join import PRICES, EnrichUndeclared, join_topology, totals
from txtopo import Config, run
from txtopo.errors import ConfigError, UserCodeError
from txtopo.spark.session.delta import CATALOG, EXTENSION, check_delta_can_start, delta_settings, has_to_fetch_jars


@pytest.fixture
def dimension(tmp_path: pathlib.Path) -> pathlib.Path:
    """A Delta table of prices by item, written by somebody else."""
    path = tmp_path / "prices"
    write_deltalake(str(path), pa.table({"item": list(PRICES), "price": list(PRICES.values())}))
    return path


@pytest.mark.long
@pytest.mark.slow
def test_join(dimension: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """``uses_delta = True`` is all it takes: the session that txtopo starts reads the table (by the guide's bolt), and so does a given one."""
    pytest.importorskip("delta", reason="there is no delta-spark for this Spark: pip install '.[spark-delta]'")
    done = ran("-m", "tests.spark.delta_join", dimension, tmp_path)
    if "unresolved dependency" in done.stderr or "download failed" in done.stderr:
        pytest.skip("Delta's JARs can't be fetched from Maven here")
    assert done.returncode == 0, done.stderr
    # Spark 3.5 lets Ivy say where its settings are from before anybody can tell it to be quiet.
    lines = [line for line in done.stdout.splitlines() if not line.startswith(":: loading settings")]
    assert lines == ["own session: exact", "given session: exact"]
    assert "::" not in done.stderr


def test_session_without_delta(spark: SparkSession, dimension: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """A running session without Delta is refused before anything is written, by the component that wants it."""
    with pytest.raises(
        ConfigError, match=r"'enrich' uses Delta through Spark .* has no Delta: start it with"
    ) as raised:
        run(join_topology(dimension, tmp_path / "out"), spark=spark)
    assert "\n" not in str(raised.value)
    with pytest.raises(ConfigError, match=r"topology\.spark\.delta requires Delta"):
        run(join_topology(dimension, tmp_path / "out", EnrichUndeclared(str(dimension))), Config(spark_delta=True))
    assert not (tmp_path / "out").exists()


def test_undeclared(spark: SparkSession, dimension: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """A bolt that reads Delta and does not say so ends the run with the remedy, in one line."""
    with pytest.raises(
        UserCodeError, match=r"set uses_delta = True .*delta_join\.py, line \d+, in transform"
    ) as raised:
        run(join_topology(dimension, tmp_path / "out", EnrichUndeclared(str(dimension))))
    assert raised.value.component == "enrich"
    assert raised.value.txid is not None
    assert "\n" not in str(raised.value)
    assert totals(tmp_path / "out") == {}


def test_settings_of_the_caller() -> None:
    """The caller's extensions, catalog and JARs are kept; what is missing is added."""
    given = {"spark.sql.extensions": "your.Own", "spark.jars": "/jars/delta-spark_2.13-4.0.0.jar"}
    added = {"spark.sql.extensions": f"your.Own,{EXTENSION}", "spark.sql.catalog.spark_catalog": CATALOG}
    partitions = "spark.databricks.delta.snapshotPartitions"
    assert delta_settings(given) == {**added, partitions: "4"}
    assert delta_settings(given, is_here=False) == added
    given |= {**added, partitions: "50"}
    assert delta_settings(given) == {"spark.sql.extensions": f"your.Own,{EXTENSION}"}


def test_jars_to_fetch(tmp_path: pathlib.Path) -> None:
    """Spark fetches JARs that it has not kept from an earlier start; such as are given are never fetched."""
    settings = {"spark.jars.ivy": str(tmp_path), "spark.jars.packages": "a:b:1,io.delta:delta-spark_2.13:4.0.0"}
    assert has_to_fetch_jars(settings)
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "io.delta_delta-spark_2.13-4.0.0.jar").touch()
    assert not has_to_fetch_jars(settings)
    assert not has_to_fetch_jars({"spark.jars": "/jars/delta-spark_2.13-4.0.0.jar"})


@pytest.mark.slow
def test_offline(dimension: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """The first start says that it fetches Delta's JARs; where Maven can't be reached, one line says what to do."""
    pytest.importorskip("delta", reason="there is no delta-spark for this Spark: pip install '.[spark-delta]'")
    nowhere = tmp_path / "ivysettings.xml"
    nowhere.write_text(
        "<ivysettings><settings defaultResolver='none'/><resolvers><filesystem name='none'>"
        f"<artifact pattern='{tmp_path}/[artifact]-[revision].jar'/></filesystem></resolvers></ivysettings>"
    )
    code = (
        "import sys, pathlib, txtopo\nfrom tests.spark.delta_join import join_topology\n"
        "settings = {'spark.jars.ivy': sys.argv[2], 'spark.jars.ivySettings': sys.argv[3]}\n"
        "txtopo.run(join_topology(*map(pathlib.Path, sys.argv[1:3])), txtopo.Config(settings))\n"
    )
    done = ran("-c", code, dimension, tmp_path / "out", nowhere)
    lines = done.stderr.splitlines()
    assert lines[0] == "Spark downloads Delta's JARs from Maven before its first start, about 90 MB"
    (told,) = (line for line in lines if line.startswith("txtopo.errors.ConfigError: Spark did not start: "))
    assert told.endswith("or name the JARs in spark.jars")
    assert "unresolved dependency: io.delta#" in lines[-1]  # the JVM's own last line


def test_without_delta_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without delta-spark nobody knows the JARs: one line says what to install; JARs that are named are enough."""

    def not_installed(name: str) -> str:
        raise importlib_metadata.PackageNotFoundError(name)

    import importlib.metadata as importlib_metadata

    monkeypatch.setattr("importlib.metadata.version", not_installed)
    with pytest.raises(ConfigError, match=r"'enrich' uses Delta .*pip install '.\[spark-delta\]'"):
        check_delta_can_start(Config(), ["enrich"])
    check_delta_can_start(Config({"spark.jars.packages": "io.delta:delta-spark_2.13:4.0.0"}), ["enrich"])
