"""A disk that is full, and descriptors that have run out, for one process."""

import contextlib
import resource
from collections.abc import Iterator


@contextlib.contextmanager
def no_file_larger_than(size: int) -> Iterator[None]:
    """Refuse every write beyond ``size`` bytes with an OSError, as a full disk does; Python ignores the signal."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@contextlib.contextmanager
def no_descriptor_left() -> Iterator[None]:
    """Let this process open nothing within the block.

    The standard streams are open, so three are as good as none, but for poll(), which Spark's server of accumulators
    calls each second: it may wait for no more descriptors than a process may have.
    """
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
