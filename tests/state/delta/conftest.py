"""Shared by the tests of tables that also have Spark's Delta as a reader or a writer."""

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

import pytest

from tests.state.delta.spark_session import begin_session


@pytest.fixture(scope="session")
def spark() -> Iterator[ProcessPoolExecutor]:
    """A session with Delta, in a process of its own: a JVM takes JARs when it starts, or never."""
    pytest.importorskip("delta")
    spawned = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawned, initializer=begin_session) as pool:
        yield pool
