"""The memory of the driver while something runs: its Python process and its JVM. Linux only."""

from __future__ import annotations

import os
import statistics
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from pyspark.sql import SparkSession

_PERIOD_SECS = 0.2
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class MemorySampler:
    """Samples the resident memory of this process and of Spark's JVM while it is entered."""

    def __init__(self, spark: SparkSession) -> None:
        self._pids = {"python": os.getpid(), "jvm": int(_jvm(spark).ProcessHandle.current().pid())}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample, name="memory-sampler", daemon=True)
        self._started = 0.0
        self.secs: list[float] = []
        """When each sample was taken, in seconds from the start."""
        self.mib: dict[str, list[float]] = {name: [] for name in self._pids}
        """The samples of ``python`` and ``jvm``."""

    def peak_mib(self, name: str) -> float:
        return max(self.mib[name])

    def tenths_mib(self, name: str) -> tuple[float, float]:
        """Return the median of the first and of the last tenth of the samples."""
        samples = self.mib[name]
        tenth = max(1, len(samples) // 10)
        return statistics.median(samples[:tenth]), statistics.median(samples[-tenth:])

    def __enter__(self) -> Self:
        self._started = time.perf_counter()
        self._take()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._over.wait(_PERIOD_SECS):
            self._take()

    def _take(self) -> None:
        self.secs.append(round(time.perf_counter() - self._started, 2))
        for name, pid in self._pids.items():
            self.mib[name].append(round(resident_mib(pid), 1))


def jvm_heap_mib(spark: SparkSession) -> float:
    """Return the live memory on the heap of the driver's JVM, after a garbage collection."""
    lang = _jvm(spark)
    lang.System.gc()  # before it, most of the heap is garbage that is not collected yet
    runtime = lang.Runtime.getRuntime()
    return round((runtime.totalMemory() - runtime.freeMemory()) / 2**20, 1)


def resident_mib(pid: int | None = None) -> float:
    """Return the resident memory of a process; None for this one."""
    pid = pid or os.getpid()
    return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * _PAGE_BYTES / 2**20


def _jvm(spark: SparkSession) -> object:
    return spark.sparkContext._jvm.java.lang
