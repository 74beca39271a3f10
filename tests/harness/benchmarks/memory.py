"""The memory of the driver: its processes while something runs, and the heap of its JVM. Linux only."""

import os
import threading
from pathlib import Path
from typing import Self

from pyspark.sql import SparkSession

_PERIOD_SECS = 0.05
"""What is folded in memory is held for a tenth of a second."""

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class MemorySampler:
    """Samples the resident memory of a process while it is entered; None for this one.

    Its own memory alone leaves out pages of mapped files, which the system may take back.
    """

    def __init__(self, pid: int | None = None, *, is_own: bool = False) -> None:
        self._look = own_mib if is_own else resident_mib
        self._pid = pid
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample, name="memory-sampler", daemon=True)
        self._mib: list[float] = []

    def peak_mib(self) -> float:
        return max(self._mib)

    def __enter__(self) -> Self:
        self._mib.append(self._look(self._pid))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._over.wait(_PERIOD_SECS):
            self._mib.append(self._look(self._pid))


def jvm_of(pid: int) -> int:
    """Return the JVM that a driver's Python process has started."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            name, _, rest = (process / "stat").read_text(encoding="utf-8").rpartition(")")
        except (FileNotFoundError, ProcessLookupError):  # it has ended
            continue
        if name.endswith("(java") and int(rest.split()[1]) == pid:
            return int(process.name)
    raise LookupError(f"process {pid} has no JVM")


def jvm_heap_mib(spark: SparkSession) -> float:
    """Return the live memory on the heap of the driver's JVM, after a garbage collection."""
    lang = _jvm(spark)
    lang.System.gc()  # before it, most of the heap is garbage that is not collected yet
    runtime = lang.Runtime.getRuntime()
    return round((runtime.totalMemory() - runtime.freeMemory()) / 2**20, 1)


def resident_mib(pid: int | None = None) -> float:
    """Return the resident memory of a process; None for this one."""
    return _pages(pid)[0] * _PAGE_BYTES / 2**20


def own_mib(pid: int | None = None) -> float:
    """Return the same without pages of files, mapped or in shared memory."""
    resident, shared = _pages(pid)
    return (resident - shared) * _PAGE_BYTES / 2**20


def _pages(pid: int | None) -> tuple[int, int]:
    """Return how many pages of a process are resident, and how many of these are of files."""
    _, resident, shared, *_ = Path(f"/proc/{pid or os.getpid()}/statm").read_text(encoding="ascii").split()
    return int(resident), int(shared)


def _jvm(spark: SparkSession) -> object:
    return spark.sparkContext._jvm.java.lang
